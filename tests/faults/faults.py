#!/usr/bin/env python3
"""Makes system calls of each command fail, one in each run, once or from then on (a full disk, no descriptors),
and checks what the command does then: no panic, no hang, no spinning, a sentence or a warning, no half-written
file under a final name, nothing left switched on.

usage: faults.py [--runs N] [--seed SEED] [--only NAME,...] [--call NAME --when N --fault NAME] THERMO THERMO_NBD INJECT

--runs   faults to try for each command (150): at each call first, then at random
--call   one fault in one command, to look at it: prints what the command printed
"""
import argparse
import collections
import concurrent.futures
import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "kills"))
import nbd_client  # noqa: E402
from machine import Target, Violation, is_mounted, leftovers, notes_of, require, undo  # noqa: E402

# A command that is traced on a busy machine takes seconds; one that hangs takes for ever.
DEADLINE = 40
SHORT = "short"
# How Rust's runtime ends a program that gets no memory: for an allocation, or for the start of a thread.
NO_MEMORY = "memory allocation of|an alternative stack: Cannot allocate|alternative stack guard page: Cannot"
# What each call can return, by its man page. Calls that are not named do not fail, or are of the C library.
ERRORS = {
    "openat": "ENOMEM EMFILE EIO EACCES",
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
    "wait4": "EINTR", "waitid": "EINTR", "process_vm_readv": "EFAULT", "sysinfo": "EFAULT",
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


class Command:
    """A command in a folder of its own. `use` is what a client does while it runs."""
    needs_target = True
    # Calls whose errors of the table cannot occur.
    impossible = ()

    def __init__(self, tools, folder):
        self.tools, self.folder, self.target = tools, folder, None

    def arguments(self):
        raise NotImplementedError

    def use(self, process):
        """Returns when the command should end."""

    def check(self, code):
        """Checks the files that the command writes."""

    def path(self, name):
        return os.path.join(self.folder, name)

    def report(self, name, code):
        """A recording under its name must be readable, as far as it goes."""
        if not os.path.exists(self.path(name)):
            return
        done = subprocess.run([self.tools["thermo"], "report", "info", self.path(name), "--json"], capture_output=True,
                              text=True, timeout=DEADLINE)
        nothing = re.search("is empty|before its first record", done.stderr)
        require(done.returncode in (0, 1) or nothing, f"the recording cannot be read: {done.stderr}")
        require(code != 0 or done.returncode == 0, f"ended with 0, but the recording is cut: {done.stderr}")


class Record(Command):
    def arguments(self):
        return ["thermo", "record", "--pid", str(self.target.pid), "-o", self.path("r.arrow"), "--duration", "1500ms"]

    def check(self, code):
        self.report("r.arrow", code)
        require(code != 0 or os.path.exists(self.path("r.arrow")), "ended with 0 without a recording")
        more = set(os.listdir(self.folder)) - {"r.arrow", "log", "out", "calls"}
        require(not more, f"left in the folder: {more}")


class Report(Command):
    """`what` and the end of a whole output."""
    needs_target, output, ending = False, "o.html", "</html>"
    words = ["report", "heatmap", "RECORDING", "--html", "OUTPUT"]

    def arguments(self):
        places = {"RECORDING": self.tools["recording"], "OUTPUT": self.path(self.output)}
        return ["thermo"] + [places.get(word, word) for word in self.words]

    def check(self, code):
        whole = self.tools.setdefault("whole", {}).get(type(self))
        if os.path.exists(self.path(self.output)):
            with open(self.path(self.output), "rb") as file:
                content = file.read()
            if whole is None:
                self.tools["whole"][type(self)] = content
            require(whole in (None, content), f"{self.output} differs from that of a run without a fault")
            require(code == 0, f"ended with {code}, but {self.output} was written")
        elif code == 0:
            raise Violation(f"ended with 0 without {self.output}")
        more = set(os.listdir(self.folder)) - {self.output, "log", "out", "calls"}
        require(not more, f"left in the folder: {more}")


class ReportOut(Report):
    """To standard output."""
    output, words = "out", ["report", "summary", "RECORDING", "--json"]

    def check(self, code):
        with open(self.path("out"), "rb") as file:
            content = file.read()
        whole = self.tools.setdefault("whole", {}).setdefault(type(self), content)
        require(code != 0 or content == whole, "ended with 0 with other output than without a fault")


class ReportCsv(ReportOut):
    words = ["report", "regions", "RECORDING", "--csv"]


class ReportSvg(Report):
    output, words = "o.svg", ["report", "heatmap", "RECORDING", "--svg", "OUTPUT"]


class ReportPng(Report):
    output, words = "o.png", ["report", "heatmap", "RECORDING", "--png", "OUTPUT"]


class ExportJson(Report):
    output, words = "o.json", ["export", "RECORDING", "--format", "damo-json-plain", "-o", "OUTPUT"]


class ExportCsv(Report):
    output, words = "o.csv", ["export", "RECORDING", "--format", "csv", "-o", "OUTPUT"]


class ExportParquet(Report):
    output, words = "o.parquet", ["export", "RECORDING", "--format", "parquet", "-o", "OUTPUT"]


class Schemes(Command):
    def arguments(self):
        with open(self.path("s.damos"), "w") as file:
            file.write("4K max 0 0 100ms max pageout\n4K max 0 0 0 max stat\n4K max 5 max 0 max willneed\n")
        return ["thermo", "schemes", "apply", self.path("s.damos"), "--pid", str(self.target.pid), "--duration", "1500ms"]


class HugeFlags(Command):
    def arguments(self):
        with open(self.path("s.damos"), "w") as file:
            file.write("2M max 0 max 0 max hugepage\n")
        return ["thermo", "schemes", "apply", self.path("s.damos"), "--pid", str(self.target.pid), "--duration", "1500ms",
                "--huge-flags", "--sample", "10ms", "--aggr", "100ms"]

    def check(self, code):
        # Flags cannot be removed: at the end the opposite is set, in mode `madvise` the same as none.
        with open(f"/proc/{self.target.pid}/smaps") as file:
            is_set = re.search("^VmFlags:.* hg( |$)", file.read(), re.M)
        if is_set:
            listed = leftovers(self.tools["thermo"], {self.pid})
            require(listed, "huge-page flags are left set, and doctor --leftovers does not list them")
            require(self.said, "huge-page flags are left set without a word")
        # What is listed ends with the target.
        self.target.remove()


class Lifecycle(Command):
    def arguments(self):
        with open(self.path("apps.toml"), "w") as file:
            file.write(f'[[app]]\nname = "a"\npid = {self.target.pid}\nmin_anon_rss = "1M"\nmin_change = "0"\n'
                       'prefetch = true\nfull_full = "0s"\nsome_some = "0s"\nsome_full = "0s"\nfull_some = "0s"\n')
        return ["thermo", "lifecycle", "run", self.path("apps.toml"), "--socket", self.path("s")]

    def use(self, process):
        wait_while_runs(process, lambda: os.path.exists(self.path("s")))
        for state in ("cached", "foreground"):
            if process.poll() is None:
                done = subprocess.run([self.tools["thermo"], "lifecycle", "set", "a", state, "--socket", self.path("s")],
                                      capture_output=True, text=True, timeout=DEADLINE)
                require(done.returncode in (0, 1, 2) and "panicked" not in done.stderr, f"the client: {done.stderr}")
        if process.poll() is None and not self.lasting:
            # The fault may meet the first of two clients.
            done = [subprocess.run([self.tools["thermo"], "lifecycle", "status", "--socket", self.path("s")],
                                   capture_output=True, text=True, timeout=DEADLINE) for _ in range(2)]
            answered = any(client.returncode == 0 for client in done)
            require(answered or process.poll() is not None, f"the daemon answers nobody: {done[1].stderr}")


class FsMount(Command):
    # writev: replies to the kernel, which refuses none for lack of space.
    # The library fuser panics where poll(2) gets no memory at the unmount: known, not ours.
    impossible = ("writev", "poll")

    def arguments(self):
        os.mkdir(self.path("damon"))
        return ["thermo", "fs", "--mount", self.path("damon")]

    def use(self, process):
        wait_while_runs(process, lambda: is_mounted(self.path("damon")))
        top = self.path("damon/admin/kdamonds")
        script = (f"echo 1 >{top}/nr_kdamonds; cd {top}/0/contexts || exit; echo 1 >nr_contexts; cd 0; echo vaddr >operations;"
                  f"echo 1 >targets/nr_targets; echo {self.target.pid} >targets/0/pid_target; echo 1 >schemes/nr_schemes; cd {top}/0;"
                  "echo on >state; cat state pid; sleep 0.3; echo update_schemes_stats >state; echo update_schemes_tried_regions >state;"
                  "cat contexts/0/schemes/0/stats/*; find . -type f >/dev/null; echo off >state; cat state")
        client = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            client.wait(20)
        except subprocess.TimeoutExpired:
            # Ends the waiting of the client, which not even a signal would.
            process.send_signal(signal.SIGTERM)
            try:
                client.wait(20)
            except subprocess.TimeoutExpired:
                subprocess.run(["umount", "--force", "--lazy", self.path("damon")], check=False)
                os.killpg(process.pid, signal.SIGKILL)
            raise Violation("a file operation waits for ever") from None

    def check(self, code):
        if is_mounted(self.path("damon")):
            listed = [note for note in leftovers(self.tools["thermo"], {self.pid})]
            require(listed, "the mount is left, and doctor --leftovers does not list it")
            require(self.ended_by or self.said, "the mount is left without a word")


class Nbd(Command):
    needs_target = False

    def arguments(self):
        with open(self.path("disk"), "wb") as file:
            file.truncate(1 << 20)
        return ["thermo-nbd", "--unix", self.path("s"), "--export", f"d={self.path('disk')}"]

    def use(self, process):
        wait_while_runs(process, lambda: os.path.exists(self.path("s")))
        self.acknowledged = False
        try:
            stream, size = nbd_client.attach(self.path("s"), "d", 5)
            stream.sendall(nbd_client.request(nbd_client.WRITE, 1, 0, 4096, 0, b"w" * 4096))
            written = nbd_client.reply(stream)[1] == 0
            stream.sendall(nbd_client.request(nbd_client.FLUSH, 2, 0, 0))
            flushed = nbd_client.reply(stream)[1] == 0
            self.acknowledged = written and flushed
            stream.sendall(nbd_client.request(0, 3, 0, 4096))
            if nbd_client.reply(stream)[1] == 0 and written:
                require(nbd_client.receive(stream, 4096) == b"w" * 4096, "the server returned other data")
            stream.close()
        except (ConnectionError, FileNotFoundError, TimeoutError):
            # The fault met this client. The next one is served, or the server has ended.
            self.attach_again(process)

    def attach_again(self, process):
        end = time.monotonic() + 10
        while process.poll() is None and not self.lasting:
            try:
                return nbd_client.attach(self.path("s"), "d", 5)[0].close()
            except (ConnectionError, FileNotFoundError, TimeoutError) as error:
                # The path is there before the server listens.
                require(time.monotonic() < end, f"the server runs and serves nobody: {error}")
                time.sleep(0.005)

    def check(self, code):
        if getattr(self, "acknowledged", False):
            with open(self.path("disk"), "rb") as file:
                require(file.read(4096) == b"w" * 4096, "an acknowledged write is lost")


COMMANDS = [Record, Report, ReportSvg, ReportPng, ReportOut, ReportCsv, ExportJson, ExportCsv, ExportParquet, Schemes, HugeFlags,
            Lifecycle, FsMount, Nbd]


def wait_while_runs(process, condition):
    """Waits for something that no descriptor reports, or the end of the process."""
    end = time.monotonic() + DEADLINE
    while process.poll() is None and not condition():
        require(time.monotonic() < end, "the command does not become ready")
        time.sleep(0.005)


class Run:
    """One run with at most one fault."""

    def __init__(self, tools, kind, call, when, fault):
        self.tools, self.kind, self.call, self.when, self.fault = tools, kind, call, when, fault
        self.counts, self.hit, self.signal = {}, None, None

    def go(self):
        """Returns the class of the outcome. Raises Violation."""
        folder = tempfile.mkdtemp(prefix=f"thermo-faults-{self.kind.__name__}-")
        command = self.kind(self.tools, folder)
        try:
            if command.needs_target:
                command.target = Target(folder)
                os.rename(f"{folder}/target.file", f"{self.tools['folder']}/{os.path.basename(folder)}.file")
            return self.judge(command, *self.execute(command))
        finally:
            if command.target:
                command.target.remove()
            if is_mounted(command.path("damon")):
                subprocess.run(["umount", "--lazy", command.path("damon")], check=False)
            shutil.rmtree(folder, ignore_errors=True)

    def execute(self, command):
        name, *arguments = command.arguments()
        fault = 0 if self.fault == SHORT else getattr(errno, (self.fault or "EIO").rstrip("+"))
        command.lasting = (self.fault or "").endswith("+")
        inject = [self.tools["inject"], command.path("calls"), str(NUMBERS.get(self.call, -1)),
                  f"{self.when}{'+' if command.lasting else ''}", str(fault), "--"]
        with open(command.path("log"), "w") as log, open(command.path("out"), "w") as out:
            process = subprocess.Popen(inject + [self.tools[name], *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                       start_new_session=True, env={**os.environ, "RUST_BACKTRACE": "0"})
            try:
                command.use(process)
                if type(command).use is not Command.use and process.poll() is None:
                    process.send_signal(signal.SIGTERM)
                code = process.wait(DEADLINE)
                with open(command.path("calls")) as file:
                    cpu = re.search(r"^cpu (\d+) ms$", file.read(), re.M)
                require(int(cpu[1]) < 3000, f"spins: {cpu[0]}: {self.read(command, 'log')[-300:]}")
            except (subprocess.TimeoutExpired, TimeoutError):
                raise Violation("hangs: " + self.read(command, "log")[-300:]) from None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        return code, self.read(command, "log")

    @staticmethod
    def read(command, name):
        with open(command.path(name), errors="replace") as file:
            return file.read()

    def judge(self, command, code, log):
        calls = self.read(command, "calls")
        self.counts = {int(number): int(times) for number, times in re.findall(r"^count (\d+) (\d+)$", calls, re.M)}
        self.hit = re.search(r"^hit \d+ \d+ (.*)$", calls, re.M)
        self.log = log
        command.pid = int(re.search(r"^pid (\d+)$", calls, re.M)[1])
        ended_by = re.search(r"^end signal (\d+)$", calls, re.M)
        if ended_by:
            require(int(ended_by[1]) == signal.SIGABRT and re.search(NO_MEMORY, log), f"ended by signal {ended_by[1]}: {log[-300:]}")
        else:
            require("panicked at" not in log or re.search(NO_MEMORY, log), "panics: " + log[-400:])
        command.said, command.ended_by = bool(log.strip()), ended_by
        if command.target:
            command.target.check()
        command.check(code)
        # After a kill, and where it cannot be removed, the next server replaces it. A folder that cannot be
        # opened is not among those where the server may remove files.
        may_leave = ended_by or self.call == "unlink" or re.search(NO_MEMORY, log) or self.hit and command.folder in self.hit[1]
        require(may_leave or not os.path.exists(command.path("s")), "the socket is left")
        undo(self.tools["thermo"], {command.pid})
        require(not notes_of({command.pid}), f"notes are left: {notes_of({command.pid})}")
        if ended_by:
            return "out of memory"
        if code in (1, 2):
            require(log.strip(), f"ended with {code} without a word")
            return "sentence"
        require(code in (0, 130), f"ended with {code}: {log[-300:]}")
        return "warning" if re.search(r"warning|cannot|failed|error", log) else "went on"


def choose(kind, counts, runs, random_source):
    """The faults to try: each call with each of its errors at its first time, then others at random."""
    known = [(NAMES[number], times) for number, times in counts.items()
             if NAMES.get(number) in ERRORS and NAMES[number] not in kind.impossible]
    first = [(name, 1, fault) for name, _ in known for fault in ERRORS[name].split()]
    random_source.shuffle(first)
    chosen = dict.fromkeys(first[:runs])
    for _ in range(100 * runs):
        if len(chosen) >= runs or not known:
            break
        name, times = random_source.choice(known)
        # Half of them among the first calls, which set things up.
        when = random_source.randint(1, times if random_source.random() < 0.5 else min(times, 20))
        chosen[(name, when, random_source.choice(ERRORS[name].split()))] = None
    return list(chosen)


def try_one(tools, kind, call, when, fault):
    run = Run(tools, kind, call, when, fault)
    try:
        return run, run.go(), None
    except Violation as violation:
        return run, "VIOLATION", str(violation)


def test_command(tools, kind, options):
    base = Run(tools, kind, None, 0, None)
    base.go()
    faults = choose(kind, base.counts, options.runs, random.Random(f"{options.seed} {kind.__name__}"))
    outcomes, violations = collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
        for run, outcome, why in pool.map(lambda fault: try_one(tools, kind, *fault), faults):
            reached = bool(run.hit) or outcome == "VIOLATION"
            outcomes[outcome if reached else "not reached"] += 1
            if why:
                at = f" ({run.hit[1].strip()})" if run.hit else ""
                violations.append(f"{kind.__name__}: {run.call} #{run.when} {run.fault}{at}: {why}")
                print(violations[-1][:700], file=sys.stderr, flush=True)
    print(f"{kind.__name__:14} {len(base.counts):5} {sum(base.counts.values()):8} {len(faults):6} "
          + " ".join(f"{outcomes[name]:13}" for name in OUTCOMES))
    print("".join(f"    {line}\n" for line in violations), end="", flush=True)
    return len(violations)


OUTCOMES = ["went on", "warning", "sentence", "out of memory", "not reached", "VIOLATION"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--call")
    parser.add_argument("--when", type=int, default=1)
    parser.add_argument("--fault", default="EIO", help="the name of an error, lasting with +; short")
    parser.add_argument("thermo")
    parser.add_argument("thermo_nbd")
    parser.add_argument("inject")
    options = parser.parse_args()
    kinds = [kind for kind in COMMANDS if not options.only or kind.__name__ in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="thermo-faults-") as folder:
        tools = {"thermo": options.thermo, "thermo-nbd": options.thermo_nbd, "inject": options.inject, "folder": folder,
                 "recording": f"{folder}/base.arrow"}
        target = Target(folder)
        try:
            subprocess.run([options.thermo, "record", "--pid", str(target.pid), "-o", tools["recording"], "--duration", "4s"],
                           check=True, capture_output=True, timeout=DEADLINE)
        finally:
            target.remove()
        if options.call:
            for kind in kinds:
                run, outcome, why = try_one(tools, kind, options.call, options.when, options.fault)
                print(f"{outcome} {why or ''}\n{run.hit and run.hit[0]}\n{getattr(run, 'log', '')}")
            return 0
        print(f"seed {options.seed}; columns: kinds of calls, calls in a run, faults tried, outcomes")
        print(f"{'command':14} {'kinds':>5} {'calls':>8} {'faults':>6} " + " ".join(f"{name:>13}" for name in OUTCOMES))
        violations = sum(test_command(tools, kind, options) for kind in kinds)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
