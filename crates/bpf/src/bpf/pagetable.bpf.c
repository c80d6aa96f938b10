// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Reads page tables of another process through the kernel's direct map of physical memory. Takes no lock and
 * changes nothing. A table that is freed while it is walked gives garbage, never a fault: every frame number is
 * checked against the end of memory before it is followed, and bpf_probe_read_kernel() survives the rest.
 *
 * The walk knows nothing of the architecture: user space says how many levels there are, which bits of an entry
 * are the frame and which value of which bits marks a leaf above the lowest level.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Shared with shared.rs: keep them alike. */
#define MAX_PROBES 4096
#define MAX_TABLES 256
#define ENTRIES 512
#define MAX_LEVELS 5
#define UNREADABLE 255
/* One read of an upper entry, one skip or one copied table each: enough to cross 4 GiB of holes a call. */
#define MAX_STEPS (MAX_TABLES * 16)

enum what { PROBES = 0, TABLES = 1, WORDS = 2 };
enum status { OK = 0, GONE = 1, NO_MM = 2, UNREADABLE_ROOT = 3 };

struct call {
	/* In. */
	__u32 what;
	__u32 pid;
	__u32 nr_probes;
	__u32 levels;
	__u64 direct_map;
	__u64 frame_mask;
	__u64 memory_end;
	__u64 leaf_mask;
	__u64 leaf_value;
	__u64 end;
	/* In and out: where the copying of tables goes on. */
	__u64 cursor;
	/* Out. */
	__u64 pgd;
	__u32 status;
	__u32 nr_tables;
	/* Between steps of the copying: the slot of the level-1 table that covers the cursor, once it is copied.
	 * In a map, not on the stack: verifiers up to 6.6 look at a loop's body once, with what the stack holds
	 * before the first step, and would take the later steps' code for dead. */
	__u32 middle;
	__u32 has_middle;
	__u64 middle_base;
};

struct probe {
	__u64 addr;
	__u64 entry;
	__u64 level;
};

struct head {
	__u64 base;
	__u64 level;
};

struct table {
	__u64 entries[ENTRIES];
};

struct mm_struct {
	void *pgd;
} __attribute__((preserve_access_index));

struct task_struct {
	struct mm_struct *mm;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_PROBES);
	__type(key, __u32);
	__type(value, struct probe);
} probes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TABLES);
	__type(key, __u32);
	__type(value, struct head);
} heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_TABLES);
	__type(key, __u32);
	__type(value, struct table);
} tables SEC(".maps");

static __always_inline struct call *the_call(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&calls, &zero);
}

/* Follows `addr` down to the entry of level `lowest`, or to what ends the walk above it. Returns the level of
 * `*entry`, or UNREADABLE. */
static __always_inline __u32 walk(const struct call *call, __u64 addr, __u32 lowest, __u64 *entry)
{
	__u64 table = call->pgd;

#pragma unroll
	for (int level = MAX_LEVELS - 1; level >= 0; level--) {
		__u64 index = (addr >> (12 + 9 * level)) & (ENTRIES - 1);
		__u64 frame;

		if (level >= call->levels)
			continue;
		if (bpf_probe_read_kernel(entry, sizeof(*entry), (void *)(table + index * 8)))
			return UNREADABLE;
		if (level <= lowest || !(*entry & 1) || (*entry & call->leaf_mask) == call->leaf_value)
			return level;
		frame = *entry & call->frame_mask;
		if (frame >= call->memory_end)
			return UNREADABLE;
		table = call->direct_map + frame;
	}
	return UNREADABLE;
}

static long look_at(__u32 index, void *none)
{
	struct probe *probe = bpf_map_lookup_elem(&probes, &index);
	struct call *call = the_call();
	__u64 entry = 0;

	if (!probe || !call)
		return 1;
	probe->level = walk(call, probe->addr, 0, &entry);
	probe->entry = entry;
	return 0;
}

/* Reads the word at each address through the direct map: how user space finds out, on memory of its own, whether
 * it knows the direct map's base. */
static long read_word(__u32 index, void *none)
{
	struct probe *probe = bpf_map_lookup_elem(&probes, &index);
	struct call *call = the_call();
	__u64 entry = 0, frame, word = 0, span;
	__u32 level;

	if (!probe || !call)
		return 1;
	level = walk(call, probe->addr, 0, &entry);
	probe->level = UNREADABLE;
	if (level >= MAX_LEVELS || !(entry & 1))
		return 0;
	span = 1ULL << (12 + 9 * level);
	frame = ((entry & call->frame_mask) & ~(span - 1)) + (probe->addr & (span - 1));
	if (frame >= call->memory_end ||
	    bpf_probe_read_kernel(&word, sizeof(word), (void *)(call->direct_map + frame)))
		return 0;
	probe->level = level;
	probe->entry = word;
	return 0;
}

/* Copies the table at `frame` into the next slot. False: it could not be read, and no slot is used. */
static __always_inline int copy_table(struct call *call, __u64 frame, __u64 base, __u64 level)
{
	__u32 slot = call->nr_tables;
	struct head *head = bpf_map_lookup_elem(&heads, &slot);
	struct table *table = bpf_map_lookup_elem(&tables, &slot);

	if (!head || !table || frame >= call->memory_end)
		return 0;
	if (bpf_probe_read_kernel(table, sizeof(*table), (void *)(call->direct_map + frame)))
		return 0;
	head->base = base;
	head->level = level;
	call->nr_tables = slot + 1;
	return 1;
}

static __always_inline int is_table(const struct call *call, __u64 entry)
{
	return (entry & 1) && (entry & call->leaf_mask) != call->leaf_value;
}

static long copy_step(__u32 index, void *none)
{
	struct call *call = the_call();
	struct table *middle;
	__u64 entry = 0, cursor;
	__u32 middle_slot;

	if (!call)
		return 1;
	cursor = call->cursor;
	if (cursor >= call->end || call->nr_tables >= MAX_TABLES)
		return 1;
	if (!call->has_middle || call->middle_base != cursor >> 30) {
		__u32 level = walk(call, cursor, 2, &entry);
		__u32 slot = call->nr_tables;
		__u64 span;

		if (level == 2 && is_table(call, entry) &&
		    copy_table(call, entry & call->frame_mask, cursor >> 30 << 30, 1)) {
			call->middle = slot;
			call->middle_base = cursor >> 30;
			call->has_middle = 1;
			return 0;
		}
		/* Nothing here (or a leaf of 1 GiB, which only hugetlb and devices have): on behind it. */
		if (level < 2 || level >= MAX_LEVELS)
			level = 2;
		span = 1ULL << (12 + 9 * level);
		call->cursor = (cursor | (span - 1)) + 1;
		return 0;
	}
	middle_slot = call->middle;
	middle = bpf_map_lookup_elem(&tables, &middle_slot);
	if (!middle)
		return 1;
	entry = middle->entries[(cursor >> 21) & (ENTRIES - 1)];
	if (is_table(call, entry))
		copy_table(call, entry & call->frame_mask, cursor >> 21 << 21, 0);
	call->cursor = ((cursor >> 21) + 1) << 21;
	return 0;
}

static __always_inline int serve(struct task_struct *task, struct call *call)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	if (!mm) {
		call->status = NO_MM;
		return 0;
	}
	call->pgd = (__u64)BPF_CORE_READ(mm, pgd);
	if (!call->pgd) {
		call->status = UNREADABLE_ROOT;
		return 0;
	}
	call->status = OK;
	call->has_middle = 0;
	if (call->what == PROBES)
		bpf_loop(call->nr_probes, look_at, 0, 0);
	else if (call->what == WORDS)
		bpf_loop(call->nr_probes, read_word, 0, 0);
	else
		bpf_loop(MAX_STEPS, copy_step, 0, 0);
	return 0;
}

/* Run by BPF_PROG_TEST_RUN where the kernel has bpf_task_from_pid() for it. */
SEC("syscall")
int by_syscall(void *ctx)
{
	struct call *call = the_call();
	struct task_struct *task;

	if (!call)
		return 0;
	call->status = GONE;
	task = bpf_task_from_pid(call->pid);
	if (!task)
		return 0;
	serve(task, call);
	bpf_task_release(task);
	return 0;
}

/* Run by reading an iterator that was opened for one thread, elsewhere. */
SEC("iter/task")
int by_iterator(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct call *call = the_call();

	if (!call || !task)
		return 0;
	return serve(task, call);
}
