/* Hints: actions on the memory of other processes.
 *
 * Link with -lthermo. At run time the program needs libthermo.so: in /usr/local/lib (run ldconfig), in
 * LD_LIBRARY_PATH, or in a run path (-Wl,-rpath,DIR). Every function may be called from any thread. A struct
 * thermo may be used by one thread at a time; only thermo_cancel() may be called at any time. The library has
 * no global state and prints nothing.
 *
 * See examples/session.c for an example.
 */
#ifndef THERMO_H
#define THERMO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a struct below changes. */
#define THERMO_ABI 1

/* Actions. COLD and COOL of the patches of 2019 are THERMO_PAGEOUT and THERMO_COLD. */
enum thermo_action {
	THERMO_STAT = 0,       /* only count */
	THERMO_COLD = 1,       /* deactivate: reclaimed first under memory pressure */
	THERMO_PAGEOUT = 2,    /* reclaim now */
	THERMO_WILLNEED = 3,   /* read in from swap or file */
	THERMO_LRU_PRIO = 4,   /* move to the active LRU lists */
	THERMO_LRU_DEPRIO = 5, /* like THERMO_COLD */
	THERMO_HUGEPAGE = 6,   /* collapse into huge pages */
	THERMO_COLLAPSE = 7    /* the same, only where at least 80 % of the pages are present */
};

/* Kinds of pages. */
enum thermo_kind { THERMO_ALL = 0, THERMO_ANON = 1, THERMO_FILE = 2 };

/* Why bytes were skipped. */
enum thermo_reason {
	THERMO_NONE = 0,
	THERMO_NOT_PRESENT = 1, /* not in memory, or not mapped */
	THERMO_SHARED = 2,      /* mapped by other processes too */
	THERMO_LOCKED = 3,      /* locked by mlock() */
	THERMO_UNADVISABLE = 4, /* hugetlb or device memory */
	THERMO_FILTERED = 5,    /* of the other kind, or young */
	THERMO_SWAP_FLOOR = 6,  /* too little free swap */
	THERMO_REFAULTS = 7,    /* too much paged-out memory was refaulted */
	THERMO_GONE = 8,        /* the process has ended */
	THERMO_REFUSED = 9,     /* missing privileges: root, or CAP_SYS_NICE, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH */
	THERMO_LIMIT = 10,      /* a limit was reached: bytes, time or CPU time */
	THERMO_CANCELLED = 11,  /* thermo_cancel() was called */
	THERMO_DRY_RUN = 12,    /* THERMO_DRY is set */
	THERMO_UNSUPPORTED = 13, /* the action or the system call is not supported here */
	THERMO_OTHER = 14
};

struct thermo_hint {
	uint32_t process; /* returned by thermo_add_pid() or thermo_add_pidfd() */
	uint32_t action;  /* enum thermo_action */
	uint64_t start;   /* address in that process; pages only partly in the range are skipped */
	uint64_t end;     /* exclusive */
};

struct thermo_result {
	uint64_t advised;   /* bytes of present pages for which the kernel accepted the advice */
	uint64_t changed;   /* bytes verified as changed; THERMO_UNKNOWN where the effect cannot be observed */
	uint64_t skipped;   /* bytes skipped */
	uint32_t reason;    /* enum thermo_reason of most skipped bytes */
	uint32_t refused;   /* 1: failed wholly or in part (gone, locked, unadvisable, refused, unsupported) */
};
#define THERMO_UNKNOWN UINT64_MAX

/* 0 means no limit. */
struct thermo_limits {
	uint64_t max_bytes;  /* maximum bytes advised by all hints */
	uint64_t max_ns;     /* nothing is started later than this after the first hint */
	uint64_t max_cpu_ns; /* nothing is started once the calling thread has spent this much CPU time */
	uint32_t kind;       /* enum thermo_kind */
	uint32_t flags;      /* THERMO_DRY, THERMO_SKIP_YOUNG */
};
#define THERMO_DRY 1u        /* count what would be done, do nothing */
#define THERMO_SKIP_YOUNG 2u /* skip pages whose accessed bit is set */

/* A set of processes. */
struct thermo;

/* THERMO_ABI of the library. */
uint32_t thermo_abi(void);

/* An empty set. NULL only when memory is exhausted. */
struct thermo *thermo_new(void);

/* Frees the set. NULL is allowed. */
void thermo_free(struct thermo *thermo);

/* Adds a process. The set holds this process, even if its pid is reused later. Returns the process number for
 * hints, or a negative errno (-ESRCH: no such process). */
int64_t thermo_add_pid(struct thermo *thermo, uint32_t pid);

/* Adds a process by its pidfd. The pidfd is duplicated; the caller still has to close it. -EBADF: not a
 * pidfd. */
int64_t thermo_add_pidfd(struct thermo *thermo, int pidfd);

/* Removes a process. Its number is not reused. */
void thermo_remove(struct thermo *thermo, uint32_t process);

/* 1 if the process is in the set and alive, else 0. */
int thermo_is_alive(const struct thermo *thermo, uint32_t process);

/* The mappings of a process to which hints can apply, ascending. Writes at most n starts and ends. Returns
 * the total number of mappings, or a negative errno. name: only mappings whose name contains this string;
 * NULL: all. */
int64_t thermo_ranges(const struct thermo *thermo, uint32_t process, const char *name, uint64_t *starts,
		      uint64_t *ends, size_t n);

/* Applies n hints in order; results[i] is the result of hints[i]. A hint that fails does not stop the others.
 * limits may be NULL. Returns 0, or a negative errno if nothing was started (-EINVAL: an unknown action, kind
 * or flag, or an end before its start; -EOPNOTSUPP: accessed bits cannot be read here, so young pages cannot
 * be skipped). */
int thermo_give(struct thermo *thermo, const struct thermo_hint *hints, size_t n, const struct thermo_limits *limits,
		struct thermo_result *results);

/* May be called from any thread. The running thermo_give() skips everything that it has not started. Later
 * calls are not affected. */
void thermo_cancel(struct thermo *thermo);

#ifdef __cplusplus
}
#endif
#endif
