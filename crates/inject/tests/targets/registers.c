/*
 * A test target that knows what its registers hold and what its system calls may return.
 *
 *   registers spin | read | calls | events | allows | denies | traced | leaderless | kind:KIND | execs:FIFO
 *
 * spin: the main thread loops with general registers, all vector registers and the red zone set to known
 *       values, and checks them after each round.
 * read: as spin, but each round reads standard input and waits for the next byte.
 * calls: threads wait repeatedly in each kind of system call that a stop could interrupt; none may fail.
 * events: as calls, with the main thread in epoll_wait, so that no thread waits in a read.
 * allows, denies: as read, with a seccomp filter that allows madvise, or makes it fail.
 * traced: as read, traced by its own parent.
 * leaderless: as read, in a second thread, after the main thread has ended.
 * kind:KIND: a second thread makes one call of a kind per round (see `kinds`), and the main thread wakes it.
 * execs:FIFO: as read, and at a byte in FIFO a second thread executes this program as "replaced", which
 *       prints "replaced" and waits. Both have the same addresses.
 *
 * Prints "ready PID START END TID" with 4 MiB of its own memory and the thread that makes the rounds. At the
 * byte 'q', or the end of standard input, it prints "intact ROUNDS" and exits with 0. An error is printed at
 * once, and the exit code is 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

unsigned char vectors[16 * 32] __attribute__((aligned(32)));
unsigned char vectors_after[16 * 32] __attribute__((aligned(32)));
uint64_t red[16], red_after[16], general_after[8];
char byte;
/* The system call of a round, and its six arguments. */
long call_nr = SYS_read;
uint64_t call_args[6];
static const uint64_t general[8] = {0x1111, 0x2222, 0x3333, 0x4444, 0x5555, 0x6666, 0x7777, 0x8888};

long round_avx(long turns);
long round_sse(long turns);

/* One round: sets all registers, runs `turns` turns of an empty loop, or with 0 makes one system
 * call, and stores all registers. Returns the result of the call. */
#define ROUND(name, load, store)                                                                                   \
	__asm__(".text\n" #name ":\n"                                                                              \
		"push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"                            \
		"mov %rdi, %r9\n"                                                                                  \
		".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                                  \
		" mov red+8*\\n(%rip), %rax\n mov %rax, -8-8*\\n(%rsp)\n " load "\n.endr\n"                           \
		"mov $0x1111, %rbx\n mov $0x2222, %rbp\n mov $0x3333, %r8\n mov $0x4444, %r10\n"                      \
		"mov $0x5555, %r12\n mov $0x6666, %r13\n mov $0x7777, %r14\n mov $0x8888, %r15\n"                     \
		"test %r9, %r9\n jz 2f\n1: dec %r9\n jnz 1b\n xor %eax, %eax\n jmp 3f\n"                              \
		"2: mov call_args(%rip), %rdi\n mov call_args+8(%rip), %rsi\n mov call_args+16(%rip), %rdx\n"        \
		"mov call_args+24(%rip), %r10\n mov call_args+32(%rip), %r8\n mov call_args+40(%rip), %r9\n"         \
		"mov call_nr(%rip), %rax\n syscall\n3:\n"                                                           \
		"mov %rbx, general_after(%rip)\n mov %rbp, general_after+8(%rip)\n"                                 \
		"mov %r8, general_after+16(%rip)\n mov %r10, general_after+24(%rip)\n"                              \
		"mov %r12, general_after+32(%rip)\n mov %r13, general_after+40(%rip)\n"                             \
		"mov %r14, general_after+48(%rip)\n mov %r15, general_after+56(%rip)\n"                             \
		".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"                                                  \
		" mov -8-8*\\n(%rsp), %r8\n mov %r8, red_after+8*\\n(%rip)\n " store "\n.endr\n"                      \
		"pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n")

ROUND(round_avx, "vmovdqa vectors+32*\\n(%rip), %ymm\\n", "vmovdqa %ymm\\n, vectors_after+32*\\n(%rip)");
ROUND(round_sse, "movdqa vectors+32*\\n(%rip), %xmm\\n", "movdqa %xmm\\n, vectors_after+32*\\n(%rip)");

static void wrong(const char *what)
{
	printf("wrong: %s (%s)\n", what, strerror(errno));
	fflush(stdout);
	_exit(1);
}

static char signal_stack[1 << 16];
static stack_t stack_before;
static sigset_t mask_before;

static void check_surroundings(void)
{
	stack_t stack;
	sigset_t mask;

	sigaltstack(NULL, &stack);
	if (stack.ss_sp != stack_before.ss_sp || stack.ss_size != stack_before.ss_size || stack.ss_flags)
		wrong("the alternate signal stack");
	sigprocmask(SIG_BLOCK, NULL, &mask);
	if (memcmp(&mask, &mask_before, 8))
		wrong("the signal mask");
}

/* Returns the result of the system call. */
static long checked_round(long turns)
{
	static int has_avx = -1;
	static uint64_t round;
	uint64_t expected[8];
	size_t width, n;
	long result;

	if (has_avx < 0)
		has_avx = __builtin_cpu_supports("avx");
	width = has_avx ? 32 : 16;
	round++;
	for (n = 0; n < sizeof vectors; n++)
		vectors[n] = (unsigned char)(n * 7 + round);
	for (n = 0; n < 16; n++)
		red[n] = 0xfeed0000 + n + round;
	result = has_avx ? round_avx(turns) : round_sse(turns);
	for (n = 0; n < 16; n++)
		if (memcmp(vectors + 32 * n, vectors_after + 32 * n, width))
			wrong("a vector register");
	if (memcmp(red, red_after, sizeof red))
		wrong("the red zone");
	memcpy(expected, general, sizeof expected);
	if (!turns) {
		expected[2] = call_args[4];
		expected[3] = call_args[3];
	}
	if (memcmp(expected, general_after, sizeof expected))
		wrong("a general register");
	return result;
}

static _Atomic long calls;

#define KEEP(what, condition)                                                                                      \
	for (;;) {                                                                                                 \
		if (!(condition))                                                                                  \
			wrong(what);                                                                               \
		calls++;                                                                                           \
	}                                                                                                          \
	return NULL

static void *sleeps(void *unused)
{
	struct timespec time = {0, 3000000};

	(void)unused;
	KEEP("nanosleep", nanosleep(&time, NULL) == 0);
}

static void *polls(void *unused)
{
	(void)unused;
	KEEP("poll", poll(NULL, 0, 3) == 0);
}

static void *selects(void *unused)
{
	(void)unused;
	struct timeval time;

	for (;;) {
		time = (struct timeval){0, 3000};
		if (select(0, NULL, NULL, NULL, &time))
			wrong("select");
		calls++;
	}
	return NULL;
}

static void *waits_for_events(void *unused)
{
	struct epoll_event event;
	int epoll = epoll_create1(0);

	(void)unused;
	KEEP("epoll_wait", epoll_wait(epoll, &event, 1, 3) == 0);
}

static void *waits_with_a_mask(void *unused)
{
	struct epoll_event event;
	int epoll = epoll_create1(0);
	sigset_t mask;

	(void)unused;
	sigfillset(&mask);
	KEEP("epoll_pwait", epoll_pwait(epoll, &event, 1, 3, &mask) == 0);
}

static void *receives(void *unused)
{
	struct timeval time = {0, 3000};
	int ends[2];
	char one;

	(void)unused;
	socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
	setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
	KEEP("recv", recv(ends[0], &one, 1, 0) == -1 && errno == EAGAIN);
}

/* The kernel does not restart a read of a socket that has a timeout. */
static void *reads_a_socket(void *unused)
{
	struct timeval time = {0, 3000};
	int ends[2];
	char one;

	(void)unused;
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
	KEEP("read of a socket", read(ends[0], &one, 1) == -1 && errno == EAGAIN);
}

static void *waits_for_a_signal(void *unused)
{
	struct timespec time = {0, 3000000};
	sigset_t set;

	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	KEEP("sigtimedwait", sigtimedwait(&set, NULL, &time) == -1 && errno == EAGAIN);
}

static void *waits_on_a_futex(void *unused)
{
	static int word;
	struct timespec time = {0, 3000000};

	(void)unused;
	KEEP("futex", syscall(SYS_futex, &word, 0, 0, &time, NULL, 0) == -1 && errno == ETIMEDOUT);
}

static int pipe_ends[2];

static void *reads(void *unused)
{
	char one;

	(void)unused;
	KEEP("read", read(pipe_ends[0], &one, 1) == 1);
}

static void *writes(void *unused)
{
	struct timespec time = {0, 2000000};

	(void)unused;
	for (;;) {
		nanosleep(&time, NULL);
		if (write(pipe_ends[1], "x", 1) != 1)
			wrong("write");
	}
	return NULL;
}

static void start_calls(int with_reads)
{
	void *(*all[])(void *) = {sleeps, polls, selects, waits_for_events, waits_with_a_mask, receives,
				  waits_for_a_signal, waits_on_a_futex, reads_a_socket, reads, writes};
	pthread_t thread;
	size_t n;

	if (pipe(pipe_ends))
		wrong("pipe");
	for (n = 0; n < sizeof all / sizeof *all - (with_reads ? 0 : 3); n++)
		if (pthread_create(&thread, NULL, all[n], NULL))
			wrong("pthread_create");
}

static int event, epoll_of_events, epoll_of_none, futex_word;
static struct timespec soon;
static struct epoll_event happened;
static sigset_t every_signal;
static struct {
	const sigset_t *set;
	size_t size;
} masked = {&every_signal, 8};

static void wake_futex(void)
{
	futex_word++;
	syscall(SYS_futex, &futex_word, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0);
}

static void write_to_pipe(void)
{
	if (write(pipe_ends[1], "x", 1) != 1)
		wrong("write");
}

static void write_event(void)
{
	eventfd_write(event, 1);
}

static pthread_t worker;

static void send_signal(void)
{
	pthread_kill(worker, SIGUSR2);
}

/* For each kind: the system call, its arguments, the required result, and how the main thread wakes
 * it. Kinds with a timeout wait half a millisecond or one. Kinds with a mask block every signal
 * during their call: the signals that are sent must not end it. */
static const struct kind {
	const char *name;
	long nr;
	uint64_t args[6];
	long result;
	void (*wake)(void);
} kinds[] = {
	{"avx", -1, {0}, 0, NULL},
	{"pipe", SYS_read, {0, (uint64_t)&byte, 1}, 1, write_to_pipe},
	{"futex", SYS_futex, {(uint64_t)&futex_word}, 0, wake_futex},
	{"epoll", SYS_epoll_wait, {0, (uint64_t)&happened, 1, (uint64_t)-1}, 1, write_event},
	{"sleep", SYS_nanosleep, {(uint64_t)&soon}, 0, NULL},
	{"poll", SYS_poll, {0, 0, 1}, 0, NULL},
	{"ppoll", SYS_ppoll, {0, 0, (uint64_t)&soon, (uint64_t)&every_signal, 8}, 0, send_signal},
	{"pselect", SYS_pselect6, {0, 0, 0, 0, (uint64_t)&soon, (uint64_t)&masked}, 0, send_signal},
	{"pwait", SYS_epoll_pwait, {0, (uint64_t)&happened, 1, 1, (uint64_t)&every_signal, 8}, 0, send_signal},
};
static const struct kind *kind;
static _Atomic int worker_tid, is_over, has_ended;

static void nothing(int signal)
{
	(void)signal;
}

static void *rounds_of_a_kind(void *unused)
{
	long result;

	(void)unused;
	worker_tid = (int)syscall(SYS_gettid);
	while (!is_over) {
		/* The kernel stores the remaining time there. */
		soon = (struct timespec){0, 500000};
		if (kind->nr == SYS_futex)
			call_args[2] = (uint64_t)futex_word;
		result = checked_round(kind->nr < 0 ? 200000 : 0);
		if (kind->nr == SYS_futex && result == -EAGAIN)
			result = 0;
		if (result != kind->result) {
			errno = result < 0 ? (int)-result : 0;
			wrong(kind->name);
		}
		calls++;
	}
	has_ended = 1;
	return NULL;
}

static void start_kind(const char *name)
{
	struct sigaction action = {.sa_handler = nothing};
	struct epoll_event input = {.events = EPOLLIN | EPOLLET};
	size_t n;

	for (n = 0; n < sizeof kinds / sizeof *kinds; n++)
		if (!strcmp(kinds[n].name, name))
			kind = &kinds[n];
	if (!kind || pipe(pipe_ends))
		wrong("no such kind");
	sigaction(SIGUSR2, &action, NULL);
	sigfillset(&every_signal);
	event = eventfd(0, 0);
	epoll_of_events = epoll_create1(0);
	epoll_of_none = epoll_create1(0);
	epoll_ctl(epoll_of_events, EPOLL_CTL_ADD, event, &input);
	call_nr = kind->nr;
	memcpy(call_args, kind->args, sizeof call_args);
	if (call_nr == SYS_read)
		call_args[0] = (uint64_t)pipe_ends[0];
	else if (call_nr == SYS_epoll_wait)
		call_args[0] = (uint64_t)epoll_of_events;
	else if (call_nr == SYS_epoll_pwait)
		call_args[0] = (uint64_t)epoll_of_none;
	if (pthread_create(&worker, NULL, rounds_of_a_kind, NULL))
		wrong("pthread_create");
	while (!worker_tid)
		usleep(1000);
}

/* Wakes the second thread until standard input is readable. The main thread itself is in a poll
 * with a timeout, or runs, so it is never preferred. */
static void wake_until_input(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};
	int ready;

	while (!(ready = poll(&input, 1, 2)))
		if (kind->wake)
			kind->wake();
	if (ready < 0)
		wrong("poll");
	is_over = 1;
	while (!has_ended) {
		if (kind->wake)
			kind->wake();
		usleep(1000);
	}
}

static void filter_madvise(unsigned action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof code / sizeof *code, code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		wrong("seccomp");
}

static void be_traced(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME);
		return;
	}
	/* The child never stops, so this waits until it ends. */
	waitpid(child, NULL, 0);
	_exit(0);
}

/* Waits in poll, where no thread is chosen for a call. */
static void *exec_when_told(void *fifo)
{
	struct pollfd told = {.fd = open(fifo, O_RDWR | O_CLOEXEC), .events = POLLIN};

	poll(&told, 1, -1);
	execl("/proc/self/exe", "registers", "replaced", NULL);
	_exit(1);
}

static void be_replaced(void)
{
	struct pollfd input = {.fd = 0, .events = POLLIN};

	puts("replaced");
	fflush(stdout);
	poll(&input, 1, -1);
	_exit(0);
}

/* Executes this program again, with addresses that are not randomised. */
static void fix_addresses(char **argv)
{
	int before = personality(0xffffffff);

	if (before & ADDR_NO_RANDOMIZE)
		return;
	personality(before | ADDR_NO_RANDOMIZE);
	execv("/proc/self/exe", argv);
	_exit(1);
}

static long read_until_quit(void)
{
	long rounds = 0, result;

	call_args[1] = (uint64_t)&byte;
	call_args[2] = 1;
	for (;;) {
		result = checked_round(0);
		if (result < 0) {
			errno = (int)-result;
			wrong("a waiting read");
		}
		if (result == 0 || byte == 'q')
			return rounds;
		rounds++;
	}
}

static uintptr_t memory;

static void print_ready(int tid)
{
	printf("ready %d %lx %lx %d\n", getpid(), (long)memory, (long)memory + (4 << 20), tid);
	fflush(stdout);
}

/* Waits until the main thread has ended. */
static void *run_after_main_ended(void *unused)
{
	char line[512], *state;
	ssize_t got;
	int file;

	(void)unused;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	do {
		usleep(1000);
		file = open("/proc/self/stat", O_RDONLY);
		got = read(file, line, sizeof line - 1);
		close(file);
		if (got <= 0)
			wrong("reading the state of the main thread");
		line[got] = 0;
		state = strrchr(line, ')');
	} while (!state || state[2] != 'Z');
	print_ready((int)syscall(SYS_gettid));
	printf("intact %ld\n", read_until_quit());
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "spin";
	stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
	pthread_t outliving;
	long rounds = 0;
	sigset_t mask;

	if (!strcmp(mode, "replaced"))
		be_replaced();
	if (!strncmp(mode, "execs:", 6))
		fix_addresses(argv);
	memory = (uintptr_t)mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	memory = (memory + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1);
	sigaltstack(&stack, NULL);
	sigaltstack(NULL, &stack_before);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	sigprocmask(SIG_BLOCK, NULL, &mask_before);
	if (!strcmp(mode, "calls"))
		start_calls(1);
	else if (!strcmp(mode, "events"))
		start_calls(0);
	else if (!strcmp(mode, "allows"))
		filter_madvise(SECCOMP_RET_ALLOW);
	else if (!strcmp(mode, "denies"))
		filter_madvise(SECCOMP_RET_ERRNO | EPERM);
	else if (!strcmp(mode, "traced"))
		be_traced();
	else if (!strncmp(mode, "kind:", 5))
		start_kind(mode + 5);
	else if (!strcmp(mode, "leaderless")) {
		pthread_create(&outliving, NULL, run_after_main_ended, NULL);
		syscall(SYS_exit, 0);
	}
	else if (!strncmp(mode, "execs:", 6))
		pthread_create(&outliving, NULL, exec_when_told, (void *)(mode + 6));
	print_ready(kind ? worker_tid : getpid());
	if (!strcmp(mode, "spin")) {
		struct pollfd input = {.fd = 0, .events = POLLIN};
		while (!poll(&input, 1, 0)) {
			checked_round(200000);
			rounds++;
		}
	} else if (!strcmp(mode, "events")) {
		struct epoll_event event = {.events = EPOLLIN};
		int epoll = epoll_create1(0);

		epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
		if (epoll_wait(epoll, &event, 1, -1) != 1)
			wrong("epoll_wait without a timeout");
	} else if (kind)
		wake_until_input();
	else
		rounds = read_until_quit();
	check_surroundings();
	printf("intact %ld\n", calls ? (long)calls : rounds);
	return 0;
}
