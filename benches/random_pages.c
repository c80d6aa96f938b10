/*
 * Touches random small pages of one mapping at a steady rate, and counts distinct pages exactly.
 *
 * masim's format has neither rates nor distributions, so this program generates the workloads for page-exact
 * checks. --pareto models a database index (rows are drawn like sysbench's rand-type pareto), --hot models a
 * cache of which few items are read. Without either, all items are equally likely.
 *
 * Prints JSON lines: first {"ready":true,...}; then, at the end of each window of --windows,
 * {"window_s":5,"end_s":5.000,"pages":1234}, the number of distinct pages touched in that window.
 * --truth writes the format of `thermo-lab workload --truth`, which
 * `thermo-lab monitor --judge R --truth FILE` reads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define MAX_WINDOWS 8
#define TICK_NS 1000000ull
#define SCATTER 2654435761ull /* a prime, so multiplication modulo the number of items is a permutation */

struct options {
	uint64_t pages, rate, seed, item_pages, truth_span_ms;
	double seconds, pareto, hot;
	int scatter, nr_windows;
	unsigned windows_s[MAX_WINDOWS];
	const char *truth;
};

struct window {
	unsigned length_s;
	uint32_t start; /* tick */
	uint64_t touched;
};

static uint64_t random_state;

/* splitmix64 (Steele, Lea and Flood 2014) */
static uint64_t next_random(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static double next_share(void)
{
	return (double)(next_random() >> 11) * 0x1p-53;
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void fail(const char *action)
{
	fprintf(stderr, "random_pages: %s: %s\n", action, strerror(errno));
	exit(2);
}

/* Returns the first page of a random item. */
static uint64_t draw(const struct options *options)
{
	uint64_t items = options->pages / options->item_pages;
	double share = next_share();
	if (options->pareto > 0) /* as sysbench: share^(log(h) / log(1 - h)) */
		share = pow(share, log(options->pareto) / log(1 - options->pareto));
	else if (options->hot > 0)
		share *= options->hot;
	uint64_t item = (uint64_t)(share * (double)items);
	if (options->scatter)
		item = item * SCATTER % items;
	return item * options->item_pages;
}

/* Writes the pages touched since tick `since` as a line of the truth. */
static void write_span(FILE *out, const struct options *options, const char *memory, const uint32_t *last,
		       uint32_t since, uint64_t start_ns, uint64_t end_ns)
{
	fprintf(out, "{\"start_ns\":%llu,\"end_ns\":%llu,\"pid\":%d,\"ranges\":[", (unsigned long long)start_ns,
		(unsigned long long)end_ns, getpid());
	const char *comma = "";
	for (uint64_t page = 0; page < options->pages; page++) {
		uint64_t first = page;
		while (page < options->pages && last[page] >= since)
			page++;
		if (page == first)
			continue;
		fprintf(out, "%s[%llu,%llu]", comma, (unsigned long long)(uintptr_t)(memory + first * PAGE),
			(unsigned long long)(uintptr_t)(memory + page * PAGE));
		comma = ",";
	}
	fputs("]}\n", out);
	fflush(out);
}

static void parse_windows(struct options *options, char *list)
{
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		if (options->nr_windows == MAX_WINDOWS || atoi(word) < 1) {
			fprintf(stderr, "random_pages: --windows %s: give at most %d lengths of at least 1 s\n", word,
				MAX_WINDOWS);
			exit(2);
		}
		options->windows_s[options->nr_windows++] = (unsigned)atoi(word);
	}
}

static void usage(void)
{
	fputs("Usage: random_pages --pages N --rate ITEMS_A_SECOND [--pareto H | --hot SHARE] [--scatter]\n"
	      "                    [--item-pages N] [--windows 5,10,30] [--seconds S] [--seed N]\n"
	      "                    [--truth FILE [--truth-span-ms N]]\n",
	      stderr);
	exit(2);
}

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "pages", 1, 0, 'p' },	   { "rate", 1, 0, 'r' },    { "pareto", 1, 0, 'h' }, { "hot", 1, 0, 'o' },
		{ "scatter", 0, 0, 's' },  { "windows", 1, 0, 'w' }, { "seconds", 1, 0, 't' }, { "seed", 1, 0, 'e' },
		{ "item-pages", 1, 0, 'i' }, { "truth", 1, 0, 'f' }, { "truth-span-ms", 1, 0, 'm' }, { 0 },
	};
	struct options options = { .item_pages = 1, .seed = 42, .seconds = INFINITY, .truth_span_ms = 1000 };
	int name;
	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (name) {
		case 'p': options.pages = strtoull(optarg, NULL, 10); break;
		case 'r': options.rate = strtoull(optarg, NULL, 10); break;
		case 'h': options.pareto = atof(optarg); break;
		case 'o': options.hot = atof(optarg); break;
		case 's': options.scatter = 1; break;
		case 'w': parse_windows(&options, optarg); break;
		case 't': options.seconds = atof(optarg); break;
		case 'e': options.seed = strtoull(optarg, NULL, 10); break;
		case 'i': options.item_pages = strtoull(optarg, NULL, 10); break;
		case 'f': options.truth = optarg; break;
		case 'm': options.truth_span_ms = strtoull(optarg, NULL, 10); break;
		default: usage();
		}
	}
	if (!options.rate || !options.item_pages || options.pages < options.item_pages || !options.truth_span_ms ||
	    options.pareto < 0 || options.pareto >= 0.5 || options.hot < 0 || options.hot > 1 || optind != argc)
		usage();
	return options;
}

static char *map_pages(uint64_t pages)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail("cannot map the memory");
	if (madvise(memory, pages * PAGE, MADV_NOHUGEPAGE))
		fail("madvise(MADV_NOHUGEPAGE)");
	for (uint64_t page = 0; page < pages; page++)
		memcpy(memory + page * PAGE, &page, sizeof(page));
	return memory;
}

static void print_full_windows(struct window *windows, int count, uint32_t tick)
{
	for (struct window *window = windows; window < windows + count; window++) {
		if (tick - window->start < window->length_s * 1000)
			continue;
		printf("{\"window_s\":%u,\"end_s\":%.3f,\"pages\":%llu}\n", window->length_s, (tick - 1) / 1000.0,
		       (unsigned long long)window->touched);
		fflush(stdout);
		window->start = tick;
		window->touched = 0;
	}
}

static void touch(const struct options *options, const char *memory, uint32_t *last, struct window *windows,
		  uint32_t tick)
{
	uint64_t first = draw(options);
	for (uint64_t page = first; page < first + options->item_pages; page++) {
		(void)*(const volatile char *)(memory + page * PAGE + PAGE / 2);
		for (int i = 0; i < options->nr_windows; i++)
			windows[i].touched += last[page] < windows[i].start;
		last[page] = tick;
	}
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	random_state = options.seed;
	char *memory = map_pages(options.pages);
	/* Tick of the last touch of each page. It serves windows of all lengths. */
	uint32_t *last = calloc(options.pages, sizeof(*last));
	if (!last)
		fail("cannot allocate the table of touches");
	FILE *truth = options.truth ? fopen(options.truth, "w") : NULL;
	if (options.truth && !truth)
		fail(options.truth);
	struct window windows[MAX_WINDOWS];
	for (int i = 0; i < options.nr_windows; i++)
		windows[i] = (struct window){ options.windows_s[i], 1, 0 };

	printf("{\"ready\":true,\"pid\":%d,\"start\":%llu,\"pages\":%llu}\n", getpid(),
	       (unsigned long long)(uintptr_t)memory, (unsigned long long)options.pages);
	fflush(stdout);
	uint64_t begin = now_ns(), now = begin, span_ns = begin, done = 0;
	uint32_t span = 1;
	for (; (double)(now - begin) / 1e9 < options.seconds; now = now_ns()) {
		uint32_t tick = (uint32_t)((now - begin) / TICK_NS) + 1; /* 0: never touched */
		print_full_windows(windows, options.nr_windows, tick);
		if (truth && now - span_ns >= options.truth_span_ms * 1000000) {
			write_span(truth, &options, memory, last, span, span_ns, now);
			span_ns = now;
			span = tick;
		}
		uint64_t due = (uint64_t)((double)(now - begin) / 1e9 * (double)options.rate);
		for (; done < due; done++)
			touch(&options, memory, last, windows, tick);
		nanosleep(&(struct timespec){ .tv_nsec = TICK_NS }, NULL);
	}
	return 0;
}
