/* Page pools for I/O servers. All pools share one byte budget. Buffers are cheap to reuse while memory is
 * plentiful. Free pages return to the kernel within milliseconds under memory pressure.
 *
 * Each device opens a pool. A request acquires a buffer and releases it when done. At the end of a batch
 * of requests, the pool is shrunk to the number of free pages it may keep. A thread started by
 * thermo_pools_new() monitors memory pressure (the service manager, PSI stalls, room below a memory limit,
 * free memory) and squeezes all pools.
 *
 * Every function may be called by any thread at any time, unless its comment says otherwise. Link with
 * -lthermo_pool, or with the static library and -lpthread -ldl -lm. */
#ifndef THERMO_POOL_H
#define THERMO_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct thermo_pools thermo_pools;               /* all pools of a process, with one budget */
typedef struct thermo_pool thermo_pool;                 /* the buffers of one device */
typedef struct thermo_buffer thermo_buffer;             /* a buffer lent by a pool */
typedef struct thermo_registration thermo_registration; /* a registered reclaimer */

/* Creates an empty set of pools. Lent and free buffers together never exceed `budget` bytes. NULL if the
 * monitor thread cannot be started. */
thermo_pools *thermo_pools_new(uint64_t budget);
/* Stops the thread. Close all pools, and release all buffers and registrations, first. */
void thermo_pools_free(thermo_pools *pools);

/* Free pages that each pool keeps (default 1024), and how long after a report of pressure it keeps none,
 * in ms (default 10; 0: reports are ignored). */
void thermo_pools_set_max_buffer_pages(thermo_pools *pools, uint64_t pages);
void thermo_pools_set_buffer_squeeze_duration_ms(thermo_pools *pools, uint64_t ms);
/* Reports memory pressure: squeezes all pools and calls all reclaimers. Returns the bytes freed. */
uint64_t thermo_pools_report_pressure(thermo_pools *pools);
/* Bytes that all pools hold, lent or free, and the maximum so far. */
uint64_t thermo_pools_used(const thermo_pools *pools);
uint64_t thermo_pools_peak(const thermo_pools *pools);
/* Writes the statistics in the Prometheus text format, at most `size` bytes with the terminating NUL.
 * Returns the length of the whole text without the NUL. */
size_t thermo_pools_metrics(const thermo_pools *pools, char *text, size_t size);

/* Opens a pool with a unique name. The budget reserves `max_request` bytes, rounded up to a power of two,
 * for its largest request, so the pool never waits for another device. NULL if the reserve does not fit or
 * the name is taken. */
thermo_pool *thermo_pool_open(thermo_pools *pools, const char *name, uint64_t max_request);
void thermo_pool_close(thermo_pool *pool);

/* Acquires a buffer of `len` bytes. It holds the bytes of its last user in this pool, or zeros. If the
 * budget is used up, waits at most `timeout_ms`; 0: does not wait; -1: waits without a limit. NULL after
 * the timeout, or if `len` exceeds the largest request. */
thermo_buffer *thermo_pool_acquire(thermo_pool *pool, size_t len, int64_t timeout_ms);
void *thermo_buffer_data(thermo_buffer *buffer);
/* Any thread may release a buffer, also after its pool was closed. */
void thermo_buffer_release(thermo_buffer *buffer);
/* Ends a batch of requests: shrinks the pool to the number of free pages it may keep. */
void thermo_pool_end_batch(thermo_pool *pool);
uint64_t thermo_pool_free_pages(const thermo_pool *pool);

/* Registers a reclaimer. Under memory pressure, `reclaim(data)` is called by the reporting thread, never
 * twice at once, and returns the bytes it freed. Reclaimers with higher priority are called first; the
 * pools have priority 0. */
thermo_registration *thermo_pools_register(thermo_pools *pools, const char *name, int priority,
                                           uint64_t (*reclaim)(void *data), void *data);
/* After it returns, no call is running and none follows. */
void thermo_registration_drop(thermo_registration *registration);

#ifdef __cplusplus
}
#endif
#endif
