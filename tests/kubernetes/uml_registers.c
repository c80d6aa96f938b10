// Preloaded into the kernel of Debian's package user-mode-linux (6.1), which saves registers of its processes
// in a buffer of a fixed size. Processors with AMX have more registers, and refuse to restore a part of them:
// the machine ends with "ptrace set fp regs failed". Nothing in the machine uses AMX, so those registers are
// zero.
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKTEXT = 1, PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205 };
// Offset of the bitmap of register sets that are not in their initial state, and the bits of AMX in it.
enum { XSTATE_BV = 512, AMX_BITS = 3 << 17 };

static long ptrace_call(long request, long pid, void *address, void *data)
{
    return syscall(SYS_ptrace, request, pid, address, data);
}

static long restore(long pid, const struct iovec *part)
{
    static char whole[16384] __attribute__((aligned(64)));
    struct iovec all = {whole, sizeof whole};
    uint64_t used;

    if (ptrace_call(GETREGSET, pid, (void *)NT_X86_XSTATE, &all) != 0)
        return -1;
    if (part->iov_len < all.iov_len) {
        memset(whole, 0, all.iov_len);
        memcpy(whole, part->iov_base, part->iov_len);
        memcpy(&used, whole + XSTATE_BV, sizeof used);
        used &= ~(uint64_t)AMX_BITS;
        memcpy(whole + XSTATE_BV, &used, sizeof used);
        return ptrace_call(SETREGSET, pid, (void *)NT_X86_XSTATE, &all);
    }
    return ptrace_call(SETREGSET, pid, (void *)NT_X86_XSTATE, (void *)part);
}

// As ptrace(2) of the C library: words that are read are the result.
long ptrace(int request, ...)
{
    va_list rest;
    long pid, word;
    void *address, *data;

    va_start(rest, request);
    pid = va_arg(rest, long);
    address = va_arg(rest, void *);
    data = va_arg(rest, void *);
    va_end(rest);
    if (request == SETREGSET && (long)address == NT_X86_XSTATE)
        return restore(pid, data);
    if (request < PEEKTEXT || request > PEEKUSER)
        return ptrace_call(request, pid, address, data);
    if (ptrace_call(request, pid, address, &word) != 0)
        return -1;
    errno = 0;
    return word;
}
