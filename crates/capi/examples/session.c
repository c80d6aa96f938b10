/* A small session manager. It starts a program and reads commands: "hide" pages out the program's anonymous
 * memory, "show" brings it back before the program needs it.
 *
 * From the root of the source tree, after `cargo build --release -p thermo-capi`:
 *
 *   cc crates/capi/examples/session.c -Icrates/capi/include -Ltarget/release -lthermo -o session
 *   printf 'hide\nshow\nquit\n' | LD_LIBRARY_PATH=target/release ./session sleep 600
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "thermo.h"

#define MAX_RANGES 4096

static uint64_t starts[MAX_RANGES], ends[MAX_RANGES];
static struct thermo_hint hints[MAX_RANGES];
static struct thermo_result results[MAX_RANGES];

/* Gives one hint per mapping of the program and prints the results. */
static int hint(struct thermo *thermo, uint32_t process, uint32_t action)
{
	struct thermo_limits limits = { .kind = THERMO_ANON, .max_ns = 5000000000ull };
	uint64_t advised = 0, changed = 0, refused = 0;
	int64_t n = thermo_ranges(thermo, process, NULL, starts, ends, MAX_RANGES);
	int error;

	if (n < 0)
		return (int)n;
	if (n > MAX_RANGES)
		n = MAX_RANGES;
	for (int64_t i = 0; i < n; i++)
		hints[i] = (struct thermo_hint){ process, action, starts[i], ends[i] };
	/* Swapped-out pages do not count as anonymous, but they are the pages to bring back. */
	if (action == THERMO_WILLNEED)
		limits.kind = THERMO_ALL;
	error = thermo_give(thermo, hints, (size_t)n, &limits, results);
	if (error)
		return error;
	for (int64_t i = 0; i < n; i++) {
		advised += results[i].advised;
		changed += results[i].changed == THERMO_UNKNOWN ? 0 : results[i].changed;
		refused += results[i].reason == THERMO_REFUSED;
	}
	printf("%lld mappings: %llu bytes advised, %llu changed, %llu refused\n", (long long)n,
	       (unsigned long long)advised, (unsigned long long)changed, (unsigned long long)refused);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	struct thermo *thermo = thermo_new();
	char line[64];
	int64_t process;
	int error = 0;
	pid_t pid;

	if (argc < 2 || thermo_abi() != THERMO_ABI) {
		fprintf(stderr, "usage: session COMMAND...\n");
		return 2;
	}
	pid = fork();
	if (pid == 0) {
		execvp(argv[1], argv + 1);
		_exit(127);
	}
	process = thermo_add_pid(thermo, (uint32_t)pid);
	if (process < 0)
		error = (int)process;
	while (!error && fgets(line, sizeof(line), stdin) && strcmp(line, "quit\n")) {
		if (!strcmp(line, "hide\n"))
			error = hint(thermo, (uint32_t)process, THERMO_PAGEOUT);
		else if (!strcmp(line, "show\n"))
			error = hint(thermo, (uint32_t)process, THERMO_WILLNEED);
	}
	if (error)
		fprintf(stderr, "session: %s\n", strerror(-error));
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
	thermo_free(thermo);
	return error ? 1 : 0;
}
