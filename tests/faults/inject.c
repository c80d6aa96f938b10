/*
 * Runs a program, and makes one of its system calls fail or come back short.
 *
 * usage: inject LOG CALL WHEN FAULT -- PROGRAM ARG...
 *
 * CALL   number of the system call; -1: only count all calls
 * WHEN   the how manieth call, from 1; "3+": the third and all later ones
 * FAULT  number of the error; 0: the call does less than it was asked for ("short")
 *
 * Counted are the calls of all threads of PROGRAM since its main function, and not those of its children.
 * The calls before it belong to the dynamic loader and to the start of Rust's standard library, which end the
 * program where they fail. The start is over with the second sigaltstack(2) of the main thread.
 *
 * close(2) and a reply to /dev/fuse take effect even where they fail: the descriptor is closed, and the
 * kernel ends the request. So these calls are made, and only their result is replaced.
 *
 * strace(1) injects errors as well, but counts in each thread by itself, also in children, and can not
 * shorten a call.
 *
 * LOG gets "pid PID", a line "hit THREAD CALL ARG ARG ARG FILE" for a fault (the first 20), "count CALL
 * TIMES", and "end exit CODE" or "end signal NUMBER". SIGINT, SIGTERM and SIGHUP are passed on to PROGRAM.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 1024
#define THREADS 4194304

static pid_t program;
static FILE *report;
static long call, when, fault, counts[CALLS], hits;
static int onwards, stacks, started;
/* Of each thread: 0 not known yet, 1 a thread of the program, 2 of another process. */
static unsigned char owners[THREADS];
/* Of each thread: whether the result of the call that it makes is to be replaced. */
static unsigned char replaces[THREADS];

static void fail(const char *what)
{
	fprintf(stderr, "inject: %s: %s\n", what, strerror(errno));
	exit(125);
}

static void pass_on(int number)
{
	kill(program, number);
}

static void start_program(char **arguments)
{
	struct sock_filter one[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
	};
	struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE) };
	struct sock_fprog filter = { sizeof one / sizeof *one, one };
	if (call < 0)
		filter = (struct sock_fprog){ 1, all };
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, 0, 0) || raise(SIGSTOP))
		fail("ptrace");
	/* Without no_new_privs, which would change what the program may do; so this needs root. */
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		fail("seccomp");
	execvp(arguments[0], arguments);
	fail(arguments[0]);
}

static int is_own(pid_t thread)
{
	if (!owners[thread]) {
		char path[64], line[256];
		long group = 0;
		snprintf(path, sizeof path, "/proc/%d/status", thread);
		FILE *status = fopen(path, "r");
		if (!status)
			return 0;
		while (fgets(line, sizeof line, status) && !sscanf(line, "Tgid: %ld", &group))
			;
		fclose(status);
		owners[thread] = group == program ? 1 : 2;
	}
	return owners[thread] == 1;
}

static void file_of(pid_t thread, long number, long fd, char *name, size_t size)
{
	char path[64];
	ssize_t length = -1;
	*name = 0;
	if (number == SYS_openat || number == SYS_newfstatat || number == SYS_statx || number == SYS_unlinkat || number == SYS_mkdirat)
		return;
	snprintf(path, sizeof path, "/proc/%d/fd/%ld", thread, fd);
	if (fd >= 0 && fd < 4096)
		length = readlink(path, name, size - 1);
	name[length < 0 ? 0 : length] = 0;
}

static void path_of(pid_t thread, unsigned long address, char *name, size_t size)
{
	struct iovec here = { name, size - 1 }, there = { (void *)address, size - 1 };
	ssize_t length = process_vm_readv(thread, &here, 1, &there, 1, 0);
	if (length < 0) {	/* the string ends just before a page that is not there */
		here.iov_len = there.iov_len = 4096 - address % 4096 < size - 1 ? 4096 - address % 4096 : size - 1;
		length = process_vm_readv(thread, &here, 1, &there, 1, 0);
	}
	name[length < 0 ? 0 : length] = 0;
}

/* Whether the kernel may do less than asked at this file: no device, and no socket of packets. */
static int can_be_short(pid_t thread, long fd)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof path, "/proc/%d/fd/%ld", thread, fd);
	if (stat(path, &status))
		return 0;
	return S_ISREG(status.st_mode) || S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
}

/* Changes the arguments so that the call does less. Returns 0 where it can not be made to. */
static int shorten(pid_t thread, long number, struct user_regs_struct *registers)
{
	if (!can_be_short(thread, number == SYS_splice ? (long)registers->rdx : (long)registers->rdi))
		return 0;
	switch (number) {
	case SYS_read: case SYS_write: case SYS_pread64: case SYS_pwrite64: case SYS_recvfrom: case SYS_sendto:
		/* 8 bytes: /proc/PID/pagemap gives whole entries only. */
		if (registers->rdx < 2)
			return 0;
		registers->rdx = registers->rdx > 8 ? 8 : registers->rdx / 2;
		return 1;
	case SYS_readv: case SYS_writev: case SYS_preadv: case SYS_pwritev: {
		if (registers->rdx > 1) {
			registers->rdx = 1;
			return 1;
		}
		return 0;
	}
	case SYS_splice:
		if (registers->r8 < 2)
			return 0;
		registers->r8 = registers->r8 > 8 ? 8 : registers->r8 / 2;
		return 1;
	default:
		return 0;
	}
}

static int is_fuse(pid_t thread, long fd)
{
	char name[PATH_MAX];
	file_of(thread, SYS_read, fd, name, sizeof name);
	return !strcmp(name, "/dev/fuse");
}

/* Whether the call has its effect also where it returns this error. */
static int fails_after_its_effect(pid_t thread, long number, long fd)
{
	return number == SYS_close || ((number == SYS_write || number == SYS_writev) && is_fuse(thread, fd));
}

/* Whether the file of a descriptor is of this type (S_IFREG, S_IFDIR). */
static int is_type(pid_t thread, long fd, mode_t type)
{
	char path[64];
	struct stat status;
	snprintf(path, sizeof path, "/proc/%d/fd/%ld", thread, fd);
	return !stat(path, &status) && (status.st_mode & S_IFMT) == type;
}

/*
 * Whether the call can not return this error: only a read of /dev/fuse finds that a request is gone, and
 * nothing is written back at the end of a directory (Rust's standard library panics where closedir(3) fails).
 */
static int is_impossible(pid_t thread, long number, long fd)
{
	return (fault == ENOENT && number == SYS_read && !is_fuse(thread, fd)) ||
	       (number == SYS_close && is_type(thread, fd, S_IFDIR));
}

/* At the end of a call that was made: its result is the error. */
static void replace_result(pid_t thread)
{
	struct user_regs_struct registers;
	replaces[thread] = 0;
	if (ptrace(PTRACE_GETREGS, thread, 0, &registers))
		return;
	registers.rax = -fault;
	ptrace(PTRACE_SETREGS, thread, 0, &registers);
}

static void handle_call(pid_t thread)
{
	struct user_regs_struct registers;
	char name[PATH_MAX];
	if (ptrace(PTRACE_GETREGS, thread, 0, &registers))
		return;
	long number = registers.orig_rax;
	if (!is_own(thread))
		return;
	if (!started) {
		started = number == SYS_sigaltstack && ++stacks == 2;
		return;
	}
	if (number < 0 || number >= CALLS || (call >= 0 && number != call))
		return;
	/*
	 * A fault of writing that lasts is one of files: an eventfd is never full, and the sentence about the
	 * fault is to be seen on standard error.
	 */
	if (onwards && number == SYS_write && (registers.rdi == 2 || !is_type(thread, registers.rdi, S_IFREG)))
		return;
	counts[number]++;
	if (call < 0 || (onwards ? counts[number] < when : counts[number] != when))
		return;
	struct user_regs_struct before = registers;
	if (is_impossible(thread, number, registers.rdi)) {
		counts[number]--;
		return;
	}
	if (fault && fails_after_its_effect(thread, number, registers.rdi)) {
		replaces[thread] = 1;
	} else if (fault) {
		registers.orig_rax = -1;
		registers.rax = -fault;
	} else if (!shorten(thread, number, &registers)) {
		counts[number]--;	/* the next one is tried instead */
		return;
	}
	if (ptrace(PTRACE_SETREGS, thread, 0, &registers))
		return;
	if (hits++ < 20) {
		file_of(thread, number, before.rdi, name, sizeof name);
		if (number == SYS_openat || number == SYS_newfstatat || number == SYS_statx || number == SYS_unlinkat ||
		    number == SYS_mkdirat || number == SYS_readlinkat || number == SYS_faccessat2)
			path_of(thread, before.rsi, name, 256);
		else if (number == SYS_mkdir || number == SYS_unlink || number == SYS_readlink || number == SYS_rename ||
			 number == SYS_mount || number == SYS_umount2 || number == SYS_stat || number == SYS_access)
			path_of(thread, before.rdi, name, 256);
		fprintf(report, "hit %d %ld %#llx %#llx %#llx %s\n", thread, number, before.rdi, before.rsi, before.rdx, name);
		fflush(report);
	}
}

/* One stop of one thread. Returns the signal to give it. */
static int handle_stop(pid_t thread, int status)
{
	int number = WSTOPSIG(status), event = status >> 16;
	if (event == PTRACE_EVENT_SECCOMP)
		handle_call(thread);
	if (event == PTRACE_EVENT_EXEC && thread == program)
		started = stacks = 0;
	if (number == (SIGTRAP | 0x80))
		replace_result(thread);
	if (event || number == SIGTRAP || number == (SIGTRAP | 0x80))
		return 0;
	/* A new thread begins with a SIGSTOP of the tracer. */
	if (number == SIGSTOP && !owners[thread]) {
		is_own(thread);
		return 0;
	}
	return number;
}

int main(int count, char **arguments)
{
	int status;
	pid_t thread;
	char *end;
	if (count < 7 || strcmp(arguments[5], "--")) {
		fprintf(stderr, "usage: inject LOG CALL WHEN FAULT -- PROGRAM ARG...\n");
		return 125;
	}
	report = fopen(arguments[1], "we");
	if (!report)
		fail(arguments[1]);
	call = strtol(arguments[2], NULL, 10);
	when = strtol(arguments[3], &end, 10);
	onwards = *end == '+';
	fault = strtol(arguments[4], NULL, 10);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	program = fork();
	if (program < 0)
		fail("fork");
	if (!program)
		start_program(arguments + 6);
	fprintf(report, "pid %d\n", program);
	fflush(report);
	signal(SIGINT, pass_on);
	signal(SIGTERM, pass_on);
	signal(SIGHUP, pass_on);
	if (waitpid(program, &status, __WALL) != program || !WIFSTOPPED(status))
		fail("the program did not start");
	if (ptrace(PTRACE_SETOPTIONS, program, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
		   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD))
		fail("ptrace");
	owners[program] = 1;
	ptrace(PTRACE_CONT, program, 0, 0);
	for (;;) {
		thread = waitpid(-1, &status, __WALL);
		if (thread < 0 && errno == EINTR)
			continue;
		if (thread < 0)
			fail("waitpid");
		if (WIFSTOPPED(status)) {
			int number = handle_stop(thread, status);
			ptrace(replaces[thread] ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0, number);
			continue;
		}
		owners[thread] = replaces[thread] = 0;
		if (thread == program)
			break;
	}
	for (long number = 0; number < CALLS; number++)
		if (counts[number])
			fprintf(report, "count %ld %ld\n", number, counts[number]);
	struct rusage used;
	getrusage(RUSAGE_CHILDREN, &used);
	fprintf(report, "cpu %ld ms\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
		(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
	if (hits)
		fprintf(report, "hits %ld\n", hits);
	fprintf(report, WIFEXITED(status) ? "end exit %d\n" : "end signal %d\n",
		WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
	fclose(report);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
