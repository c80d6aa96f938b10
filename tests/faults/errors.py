"""The errors that each system call can return, and the numbers of the calls."""
import re
import subprocess

SHORT = "short"
# What each call can return, by its man page. Calls that are not named do not fail, or are of the C library.
ERRORS = {
    "openat": "ENOMEM EMFILE EIO EACCES",
    "close": "EIO EINTR ENOSPC",
    "read": "EIO EINTR short", "pread64": "EIO EINTR short", "readv": "EIO short",
    "write": "ENOSPC EIO EINTR short", "pwrite64": "ENOSPC EIO short", "writev": "ENOSPC EIO short",
    "pwritev": "ENOSPC EIO short", "preadv": "EIO short", "splice": "EIO",
    "recvfrom": "ENOMEM EINTR short", "recvmsg": "ENOMEM EINTR", "sendto": "ENOMEM EINTR short", "sendmsg": "ENOMEM EINTR",
    "mmap": "ENOMEM", "mremap": "ENOMEM", "munmap": "ENOMEM", "mprotect": "ENOMEM", "mlockall": "ENOMEM",
    "clone3": "EAGAIN", "clone": "EAGAIN", "vfork": "EAGAIN",
    "socket": "EMFILE ENOMEM", "socketpair": "EMFILE", "accept4": "EMFILE ENOMEM EINTR", "connect": "ENOMEM", "bind": "EACCES ENOMEM",
    "setsockopt": "ENOMEM", "getsockname": "ENOBUFS",
    "epoll_create1": "EMFILE", "epoll_ctl": "ENOMEM ENOSPC", "epoll_wait": "EINTR", "eventfd2": "EMFILE ENOMEM",
    "timerfd_create": "EMFILE", "timerfd_settime": "EINVAL", "signalfd4": "EMFILE", "pidfd_open": "EMFILE ENOMEM", "memfd_create": "EMFILE ENOMEM",
    "pipe2": "EMFILE", "dup": "EMFILE", "dup3": "EMFILE", "poll": "EINTR ENOMEM", "ppoll": "EINTR ENOMEM", "inotify_init1": "EMFILE",
    "inotify_add_watch": "ENOSPC ENOMEM", "fsync": "EIO ENOSPC", "fdatasync": "EIO ENOSPC", "ftruncate": "EIO ENOSPC",
    "fallocate": "ENOSPC", "flock": "EINTR ENOLCK", "linkat": "EIO ENOSPC", "rename": "EIO ENOSPC", "renameat": "EIO ENOSPC",
    "renameat2": "EIO ENOSPC", "unlink": "EIO", "unlinkat": "EIO", "mkdir": "ENOSPC", "mkdirat": "ENOSPC",
    "statx": "ENOMEM EIO", "newfstatat": "ENOMEM EIO", "fstat": "EIO", "lseek": "EIO", "getdents64": "EIO", "readlink": "EIO",
    "readlinkat": "EIO", "bpf": "ENOMEM EPERM", "perf_event_open": "EMFILE EACCES", "process_madvise": "ENOMEM EINTR",
    "madvise": "EAGAIN", "ioctl": "EIO", "mount": "EPERM ENOMEM", "umount2": "EBUSY", "unshare": "ENOSPC",
    "clock_nanosleep": "EINTR", "sched_setattr": "EPERM", "setpriority": "EPERM", "sched_getaffinity": "EPERM", "capset": "EPERM",
    "prctl": "EPERM", "seccomp": "EINVAL", "landlock_create_ruleset": "ENOSYS", "landlock_add_rule": "EINVAL",
    "landlock_restrict_self": "E2BIG", "setuid": "EAGAIN", "setgroups": "EPERM", "pidfd_send_signal": "EPERM", "kill": "EPERM",
    "wait4": "EINTR", "waitid": "EINTR", "process_vm_readv": "EFAULT", "kcmp": "EPERM ENOSYS", "move_pages": "ENOMEM EPERM",
    "sysinfo": "EFAULT",
}


# Errors that stay, once they are there: a full disk, no descriptors left, no memory left, a device that is
# gone.
LASTING = {
    "openat": "EMFILE ENOMEM", "read": "EIO", "pread64": "EIO", "write": "ENOSPC", "pwrite64": "ENOSPC EIO", "preadv": "EIO", "pwritev": "ENOSPC",
    "accept4": "ENOMEM", "process_madvise": "ENOMEM", "clone3": "EAGAIN", "bpf": "EPERM ENOMEM", "perf_event_open": "EMFILE",
    "memfd_create": "EMFILE", "ioctl": "EIO", "fsync": "EIO", "fdatasync": "EIO", "getdents64": "EIO", "statx": "EIO", "pidfd_open": "EMFILE",
    "recvfrom": "ENOMEM", "sendto": "ENOMEM", "munmap": "ENOMEM", "epoll_ctl": "ENOMEM", "rename": "EIO",
    "unlink": "EIO", "unlinkat": "EIO", "process_vm_readv": "EFAULT", "fallocate": "ENOSPC",
}
for _name, _errors in LASTING.items():
    ERRORS[_name] = " ".join([ERRORS.get(_name, ""), *(f"{error}+" for error in _errors.split())])


def call_numbers():
    """Names and numbers of this machine's system calls, from the C header."""
    text = subprocess.run(["gcc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"], check=True,
                          capture_output=True, text=True).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", text, re.M)}


NUMBERS = call_numbers()
NAMES = {number: name for name, number in NUMBERS.items()}
