/* Hints from outside the process: what should become of the memory of others.
 *
 * Link with -lthermo. Every function is safe to call from any thread; a struct thermo is used by one thread at a
 * time, but for thermo_cancel(). The library keeps no state of its own and prints nothing.
 *
 * An example is examples/session.c.
 */
#ifndef THERMO_H
#define THERMO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a struct below does. */
#define THERMO_ABI 1

/* What to do to a range. COLD and COOL of the patches of 2019 are THERMO_PAGEOUT and THERMO_COLD. */
enum thermo_action {
	THERMO_STAT = 0,       /* nothing: what is meant is counted */
	THERMO_COLD = 1,       /* deactivate: the first to go when memory runs short */
	THERMO_PAGEOUT = 2,    /* reclaim now */
	THERMO_WILLNEED = 3,   /* bring in from swap or file */
	THERMO_LRU_PRIO = 4,   /* move to the active lists */
	THERMO_LRU_DEPRIO = 5, /* as THERMO_COLD */
	THERMO_HUGEPAGE = 6,   /* make huge pages of it */
	THERMO_COLLAPSE = 7    /* the same where most of one is there */
};

/* Which pages of a range. */
enum thermo_kind { THERMO_ALL = 0, THERMO_ANON = 1, THERMO_FILE = 2 };

/* Why bytes were left alone: the reason for most of them. */
enum thermo_reason {
	THERMO_NONE = 0,
	THERMO_NOT_PRESENT = 1, /* no page is there, or nothing is mapped */
	THERMO_SHARED = 2,      /* others map it too */
	THERMO_LOCKED = 3,
	THERMO_UNADVISABLE = 4, /* hugetlb or device memory */
	THERMO_FILTERED = 5,    /* not of the kind, or young */
	THERMO_SWAP_FLOOR = 6,  /* too little swap is free */
	THERMO_REFAULTS = 7,    /* too much of what was paged out came back */
	THERMO_GONE = 8,        /* the process has ended */
	THERMO_REFUSED = 9,     /* privileges lack: root, or CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH */
	THERMO_LIMIT = 10,      /* bytes, CPU time or the deadline */
	THERMO_CANCELLED = 11,
	THERMO_DRY_RUN = 12,
	THERMO_UNSUPPORTED = 13,
	THERMO_OTHER = 14
};

struct thermo_hint {
	uint32_t process; /* what thermo_add_pid() or thermo_add_pidfd() returned */
	uint32_t action;  /* enum thermo_action */
	uint64_t start;   /* addresses in that process; pages in it only in part are left alone */
	uint64_t end;
};

struct thermo_result {
	uint64_t advised;   /* bytes of present pages that the kernel took the advice for */
	uint64_t changed;   /* bytes seen to have changed; THERMO_UNSEEN where nothing can be seen */
	uint64_t left;      /* bytes left alone */
	uint32_t reason;    /* enum thermo_reason */
	uint32_t refused;   /* 1: an error stands against it (gone, locked, unadvisable, refused, unsupported) */
};
#define THERMO_UNSEEN UINT64_MAX

/* 0 is no limit. */
struct thermo_limits {
	uint64_t max_bytes;  /* bytes advised, all together */
	uint64_t max_ns;     /* nothing is begun later than this after the first hint */
	uint64_t max_cpu_ns; /* nothing is begun once so much CPU time of the calling thread was spent */
	uint32_t kind;       /* enum thermo_kind */
	uint32_t flags;      /* THERMO_DRY, THERMO_SKIP_YOUNG */
};
#define THERMO_DRY 1u        /* decide and count everything, do nothing */
#define THERMO_SKIP_YOUNG 2u /* leave pages alone whose accessed mark is set */

/* The processes that can be hinted at. */
struct thermo;

/* THERMO_ABI of the library. */
uint32_t thermo_abi(void);

/* NULL only when memory runs out. */
struct thermo *thermo_new(void);

/* Lets go of all processes. NULL is allowed. */
void thermo_free(struct thermo *thermo);

/* Takes hold of a process, which stays the one it is now whoever gets its number later. Returns its number in hints,
 * or a negative errno (-ESRCH: there is none). */
int64_t thermo_add_pid(struct thermo *thermo, uint32_t pid);

/* The same by a pidfd, which is duplicated: closing it remains the caller's. -EBADF: it is no pidfd. */
int64_t thermo_add_pidfd(struct thermo *thermo, int pidfd);

/* Lets go of one. Numbers are not used again. */
void thermo_remove(struct thermo *thermo, uint32_t process);

/* 1 while it lives, 0 once it ended or when it was not added. */
int thermo_is_alive(const struct thermo *thermo, uint32_t process);

/* The mappings of a process that can be hinted at, ascending. At most n starts and ends are written; returns how many
 * there are, or a negative errno. name: only mappings with this in their name; NULL: all. */
int64_t thermo_ranges(const struct thermo *thermo, uint32_t process, const char *name, uint64_t *starts,
		      uint64_t *ends, size_t n);

/* Gives n hints in their order; results[i] is what came of hints[i]. What cannot be done to one does not keep the
 * others from being done. limits may be NULL. Returns 0, or a negative errno when nothing was begun (-EINVAL: an
 * unknown action, kind or flag, or an end before its start; -EOPNOTSUPP: young pages cannot be told here). */
int thermo_give(struct thermo *thermo, const struct thermo_hint *hints, size_t n, const struct thermo_limits *limits,
		struct thermo_result *results);

/* From any thread: the thermo_give() under way leaves alone what it has not begun; one that is called later is not
 * touched by it. */
void thermo_cancel(struct thermo *thermo);

#ifdef __cplusplus
}
#endif
#endif
