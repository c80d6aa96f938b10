/* Page pools for I/O servers: fast while memory is plenty, inside one byte budget always, and back with the kernel
 * within milliseconds when memory is short.
 *
 * Every device opens a pool. A request takes a buffer, and gives it back when it is done; at the end of a batch of
 * requests the pool is shrunk to what it may keep. A thread started by thermo_pools_new() notices pressure (the service
 * manager's word, stalls, room below a memory limit, free memory) and squeezes all pools.
 *
 * All functions may be called by any thread at any time, unless their comment says otherwise. Link with the static
 * library and -lpthread -ldl -lm.
 */
#ifndef THERMO_POOL_H
#define THERMO_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct thermo_pools thermo_pools;               /* all pools of a process, in one budget */
typedef struct thermo_pool thermo_pool;                 /* the buffers of one device */
typedef struct thermo_buffer thermo_buffer;             /* one of them, lent */
typedef struct thermo_registration thermo_registration; /* something else that can free memory */

/* Starts with no pools; all together never hold more than `budget` bytes. NULL when no thread can be started. */
thermo_pools *thermo_pools_new(uint64_t budget);
/* Ends the thread. Pools, buffers and registrations must be gone before. */
void thermo_pools_free(thermo_pools *pools);

/* Free pages that each pool keeps (1024), and for how long after pressure it keeps none (10; 0 ignores pressure). */
void thermo_pools_set_max_buffer_pages(thermo_pools *pools, uint64_t pages);
void thermo_pools_set_buffer_squeeze_duration_ms(thermo_pools *pools, uint64_t ms);
/* Squeezes now, as if memory were short, and calls who registered. Tells the bytes that were freed. */
uint64_t thermo_pools_report_pressure(thermo_pools *pools);
/* Bytes that all pools hold, lent or free, and the most that they ever did. */
uint64_t thermo_pools_used(const thermo_pools *pools);
uint64_t thermo_pools_peak(const thermo_pools *pools);
/* All numbers in the text form of Prometheus; at most `size` bytes with the zero at the end. Tells how many bytes the
 * whole takes, without the zero. */
size_t thermo_pools_metrics(const thermo_pools *pools, char *text, size_t size);

/* Opens a pool under a name of its own. `largest` bytes of the budget, rounded up to a power of two, are reserved for
 * its largest request, so that it never waits for another device. NULL when they do not fit, or the name is taken. */
thermo_pool *thermo_pool_open(thermo_pools *pools, const char *name, uint64_t largest);
void thermo_pool_close(thermo_pool *pool);

/* Lends `len` bytes, which hold what their last user in this pool left, or zeros. When the budget is used up it waits for
 * `timeout_ms` at most; 0 does not wait, -1 waits for as long as it takes. NULL when nothing came free, or when `len` is
 * more than the largest request. */
thermo_buffer *thermo_pool_acquire(thermo_pool *pool, size_t len, int64_t timeout_ms);
void *thermo_buffer_data(thermo_buffer *buffer);
/* Any thread may do this, also after its pool was closed. */
void thermo_buffer_release(thermo_buffer *buffer);
/* A batch of requests ends: shrinks the pool to what it may keep. */
void thermo_pool_end_batch(thermo_pool *pool);
uint64_t thermo_pool_free_pages(const thermo_pool *pool);

/* Registers something else that can free memory: on pressure `reclaim(data)` is called, on the pools' thread, never
 * twice at once, and tells the bytes it freed. Who has the higher priority is called earlier; pools have 0. */
thermo_registration *thermo_pools_register(thermo_pools *pools, const char *name, int priority,
                                           uint64_t (*reclaim)(void *data), void *data);
/* When it returns no call is under way and none will come. */
void thermo_registration_drop(thermo_registration *registration);

#ifdef __cplusplus
}
#endif
#endif
