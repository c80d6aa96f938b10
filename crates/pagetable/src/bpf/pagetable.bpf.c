// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Reads page tables of another process through the kernel's direct map of physical memory, and the marks of the
 * folios behind them from the array of struct page. Takes no lock and changes nothing. A table that is freed while it is walked gives garbage, never a fault: every frame number is
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

enum what { PROBES = 0, TABLES = 1, WORDS = 2, FOLIO = 3 };
/* Of which leaves the folio is looked at as well. */
enum folios { OF_NONE = 0, OF_UNMARKED = 1, OF_ALL = 2 };
/* What was seen of a folio. */
enum folio_bits { FOLIO_READ = 1, FOLIO_YOUNG = 2, FOLIO_LARGE = 4, FOLIO_SOUND = 8 };
enum status { OK = 0, GONE = 1 };

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
	/* The accessed mark. */
	__u64 accessed_mask;
	/* Where the array of struct page begins; 0 where that is not known. */
	__u64 page_array;
	__u32 folios;
	/* A file of the process, for FOLIO. */
	__u32 fd;
	/* Tables are copied for these addresses. */
	__u64 start;
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
	/* Of FOLIO: the folio of the file's first page, how large a struct page is (0: not as known here), whether
	 * folios can be marked young. */
	__u64 folio;
	__u32 page_size;
	__u32 has_young;
};

struct probe {
	__u64 addr;
	__u64 entry;
	__u32 level;
	__u32 folio;
};

struct head {
	__u64 base;
	__u64 level;
	/* A bit for each entry: it is not marked accessed, but its folio is marked young. */
	__u64 young[ENTRIES / 64];
};

struct table {
	__u64 entries[ENTRIES];
};

struct mm_struct {
	void *pgd;
} __attribute__((preserve_access_index));

struct xarray {
	void *xa_head;
} __attribute__((preserve_access_index));

struct address_space {
	struct xarray i_pages;
} __attribute__((preserve_access_index));

struct file {
	struct address_space *f_mapping;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct task_struct {
	struct mm_struct *mm;
	struct files_struct *files;
} __attribute__((preserve_access_index));

/* Up to 6.17 `flags` is a number, since 6.18 a structure around it. */
struct page {
	unsigned long flags;
	unsigned long compound_head;
} __attribute__((preserve_access_index));

struct wrapped_flags {
	unsigned long f;
};

struct page___wrapped {
	struct wrapped_flags flags;
} __attribute__((preserve_access_index));

/* Their numbers differ from kernel to kernel; those that a kernel lacks are not in its type. */
enum pageflags {
	PG_uptodate,
	PG_head,
	PG_swapbacked,
	PG_young,
};

#define HAS_FLAG(flag) bpf_core_enum_value_exists(enum pageflags, flag)
#define IS_SET(flags, flag) (HAS_FLAG(flag) && ((flags) >> bpf_core_enum_value(enum pageflags, flag) & 1))

struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

/* Any structure of the kernel that begins with a number of 64 bits. */
struct timespec64 {
	long long tv_sec;
} __attribute__((preserve_access_index));

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

/* Reads a word of the kernel's memory. Where kernels allow it by an instruction, not a call, which beside all that
 * makes calls safe is several times as fast; what cannot be read is 0 then. */
static __always_inline long read_kernel(__u64 *word, __u64 at)
{
	if (!bpf_rdonly_cast || !bpf_core_type_exists(struct timespec64))
		return bpf_probe_read_kernel(word, sizeof(*word), (void *)at);
	*word = bpf_core_cast((void *)at, struct timespec64)->tv_sec;
	return 0;
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
		if (read_kernel(entry, table + index * 8))
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

static __always_inline __u32 offset_of_flags(void)
{
	if (bpf_core_field_exists(struct page___wrapped, flags))
		return bpf_core_field_offset(struct page___wrapped, flags);
	return bpf_core_field_offset(struct page, flags);
}

/* How large a struct page is, if it is one whose flags and compound_head we can read. */
static __always_inline __u32 size_of_page(void)
{
	if (!bpf_core_field_exists(struct page, flags) && !bpf_core_field_exists(struct page___wrapped, flags))
		return 0;
	if (!bpf_core_field_exists(struct page, compound_head))
		return 0;
	return bpf_core_type_size(struct page);
}

/* Looks at the folio that the frame at `physical` belongs to. Returns folio_bits; 0: it could not be read. */
static __always_inline __u32 folio_at(const struct call *call, __u64 physical)
{
	__u64 page = call->page_array + (physical >> 12) * size_of_page();
	__u64 flags, head;
	__u32 found = FOLIO_READ;

	if (!call->page_array || !size_of_page() || physical >= call->memory_end)
		return 0;
	if (read_kernel(&head, page + bpf_core_field_offset(struct page, compound_head)))
		return 0;
	if (head & 1) {
		found |= FOLIO_LARGE;
		page = head - 1;
	}
	if (read_kernel(&flags, page + offset_of_flags()))
		return 0;
	if (IS_SET(flags, PG_head))
		found |= FOLIO_LARGE;
	if (IS_SET(flags, PG_young))
		found |= FOLIO_YOUNG;
	if (IS_SET(flags, PG_uptodate) && IS_SET(flags, PG_swapbacked))
		found |= FOLIO_SOUND;
	return found;
}

/* The same for what the entry of a probe's page maps, if it is a leaf whose folio is asked for. */
static __always_inline __u32 folio_of(const struct call *call, __u64 entry, __u64 level)
{
	/* What is made unreachable has its frame inverted on x86: its folio is not looked at. */
	int is_leaf = (entry & 1) && (level == 0 || (entry & call->leaf_mask) == call->leaf_value);
	__u64 span;

	if (!call->folios || !is_leaf || level >= MAX_LEVELS)
		return 0;
	if (call->folios != OF_ALL && (entry & call->accessed_mask))
		return 0;
	span = 1ULL << (12 + 9 * level);
	return folio_at(call, entry & call->frame_mask & ~(span - 1));
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
	probe->folio = folio_of(call, entry, probe->level);
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

/* Entries whose folios are looked at in one step: a step costs more than an entry. */
#define AT_ONCE 8

struct copied {
	__u32 slot;
	/* The step of the table's that is the first to be made. */
	__u32 first;
};

/* Looks at the folios behind some entries of a table that was copied. Nearly without branches, for a verifier follows
 * each of them; so pages that NUMA balancing has made unreachable are left out. */
static long look_behind(__u32 step, void *what)
{
	const struct copied *copied = what;
	__u32 slot = copied->slot, nth = (copied->first + step) % (ENTRIES / AT_ONCE);
	struct table *table = bpf_map_lookup_elem(&tables, &slot);
	struct head *head = bpf_map_lookup_elem(&heads, &slot);
	struct call *call = the_call();
	__u64 mask, value, young = 0;

	if (!call || !table || !head)
		return 1;
	mask = 1 | call->accessed_mask | (head->level ? call->leaf_mask : 0);
	value = 1 | (head->level ? call->leaf_value : 0);
#pragma unroll
	for (int i = 0; i < AT_ONCE; i++) {
		__u64 entry = table->entries[nth * AT_ONCE + i];
		__u64 physical = entry & call->frame_mask;
		__u64 page = call->page_array + (physical >> 12) * size_of_page();
		__u64 flags, tail_of;

		/* Not an unmarked leaf, or beyond memory. */
		if (((entry & mask) ^ value) | (call->memory_end - 1 - physical) >> 63)
			continue;
		if (read_kernel(&tail_of, page + bpf_core_field_offset(struct page, compound_head)))
			continue;
		page += (tail_of - 1 - page) & -(tail_of & 1);
		if (read_kernel(&flags, page + offset_of_flags()))
			continue;
		young |= (flags >> bpf_core_enum_value(enum pageflags, PG_young) & 1) << i;
	}
	head->young[nth * AT_ONCE / 64] |= young << (nth * AT_ONCE % 64);
	return 0;
}

/* The same for all of it that lies in the range asked for. */
static __always_inline void look_behind_table(const struct call *call, __u32 slot, __u64 base, __u64 level)
{
	__u64 shift = 12 + 9 * (level & 1), step = (__u64)AT_ONCE << shift, end = base + ((__u64)ENTRIES << shift);
	__u64 from = call->start > base ? call->start : base, to = call->end < end ? call->end : end;
	struct copied copied = { .slot = slot, .first = (from - base) / step };

	if (!HAS_FLAG(PG_young) || !size_of_page() || !call->page_array || from >= to)
		return;
	bpf_loop((to - base + step - 1) / step - copied.first, look_behind, &copied, 0);
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
	__builtin_memset(head->young, 0, sizeof(head->young));
	call->nr_tables = slot + 1;
	if (call->folios)
		look_behind_table(call, slot, base, level);
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

/* Finds the folio of the first page of a file of the process: where a file has but that page, its tree is it. */
static __always_inline void find_folio(struct task_struct *task, struct call *call)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = 0;

	call->page_size = size_of_page();
	call->has_young = HAS_FLAG(PG_young);
	call->folio = 0;
	if (call->fd >= BPF_CORE_READ(table, max_fds))
		return;
	if (bpf_probe_read_kernel(&file, sizeof(file), files + call->fd))
		return;
	call->folio = (__u64)BPF_CORE_READ(file, f_mapping, i_pages.xa_head);
}

static __always_inline int serve(struct task_struct *task, struct call *call)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	/* The status stays GONE where there is no address space, or its root cannot be read. */
	if (!mm)
		return 0;
	call->pgd = (__u64)BPF_CORE_READ(mm, pgd);
	if (!call->pgd)
		return 0;
	call->status = OK;
	call->has_middle = 0;
	if (call->what == PROBES)
		bpf_loop(call->nr_probes, look_at, 0, 0);
	else if (call->what == WORDS)
		bpf_loop(call->nr_probes, read_word, 0, 0);
	else if (call->what == FOLIO)
		find_folio(task, call);
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
