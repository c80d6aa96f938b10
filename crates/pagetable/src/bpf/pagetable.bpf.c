// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * Reads the page tables of another process through the kernel's direct map of physical memory, and
 * the flags of the folios behind them from the array of struct page (vmemmap). The program takes no
 * lock and writes nothing to the kernel's memory.
 *
 * A table that is freed during the walk gives garbage, never a fault: every frame number is checked
 * against the end of memory before it is followed, and bpf_probe_read_kernel() survives the rest.
 *
 * The walk does not depend on the architecture. User space passes the number of levels, the bits of
 * an entry that hold the frame, and the bits and their value that mark a leaf above the lowest
 * level.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Shared with shared.rs: keep both alike. */
#define MAX_PROBES 4096
#define MAX_TABLES 256
#define ENTRIES 512
#define MAX_LEVELS 5
#define UNREADABLE 255
/* Each step reads one upper entry, skips one hole or copies one table. This limit is enough to
 * cross 4 GiB of holes a call. */
#define MAX_STEPS (MAX_TABLES * 16)

enum op { OP_PROBES = 0, OP_TABLES = 1, OP_WORDS = 2, OP_FILE = 3, OP_KERNEL = 4 };
/* The leaves whose folio is read as well. */
enum folios { FOLIOS_NONE = 0, FOLIOS_NOT_ACCESSED = 1, FOLIOS_ALL = 2 };
/* Flags of a folio. FOLIO_SHMEM: it is up to date and swap-backed, as memory of tmpfs is. */
enum folio_bits { FOLIO_READ = 1, FOLIO_YOUNG = 2, FOLIO_LARGE = 4, FOLIO_SHMEM = 8 };
enum status { OK = 0, GONE = 1 };

struct call {
	/* In. */
	__u32 op;
	__u32 pid;
	__u32 nr_probes;
	__u32 levels;
	__u64 direct_map;
	__u64 frame_mask;
	__u64 memory_end;
	__u64 leaf_mask;
	__u64 leaf_value;
	/* The accessed bit. */
	__u64 accessed_mask;
	/* Start of the array of struct page; 0: unknown. */
	__u64 vmemmap;
	__u32 folios;
	/* For OP_FILE: a file descriptor of the process. */
	__u32 fd;
	/* For OP_TABLES: the addresses whose tables are copied. */
	__u64 start;
	__u64 end;
	/* In and out: the next address to copy tables for. */
	__u64 cursor;
	/* Out. */
	__u64 pgd;
	__u32 status;
	__u32 nr_tables;
	/* Kept between copy steps: the slot of the level-1 table (PMD table) that covers the
	 * cursor, once it is copied. It is in a map and not on the stack: verifiers up to 6.6 check
	 * a loop's body once, with the stack as it is before the first step, and would treat the
	 * code of later steps as dead. */
	__u32 pmd_slot;
	__u32 has_pmd;
	__u64 pmd_base;
	/* For OP_FILE: the folio of the file's first page; the size of a struct page (0: its
	 * layout is unknown); whether folios can be marked young; where the file's position is in
	 * kernel memory. */
	__u64 folio;
	__u32 page_size;
	__u32 has_young;
	__u64 file_position;
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
	/* One bit an entry: its accessed bit is clear, but its folio is young. */
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
	long long f_pos;
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

/* Up to 6.17 `flags` is an integer; since 6.18 it is a structure around one. */
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

/* The numbers differ between kernels. Flags that a kernel lacks are missing from its type. */
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

/* Any kernel structure whose first member is a 64-bit integer. */
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

static __always_inline struct call *get_call(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&calls, &zero);
}

/* Reads a 64-bit word of kernel memory. Where the kernel allows bpf_rdonly_cast(), a load
 * instruction with fault handling is used: it is several times as fast as the call, and reads 0
 * where the call would fail. */
static __always_inline long read_kernel(__u64 *word, __u64 addr)
{
	if (!bpf_rdonly_cast || !bpf_core_type_exists(struct timespec64))
		return bpf_probe_read_kernel(word, sizeof(*word), (void *)addr);
	*word = bpf_core_cast((void *)addr, struct timespec64)->tv_sec;
	return 0;
}

/* Walks the tables for `addr` down to level `lowest`, or to the entry that ends the walk above it
 * (a leaf or an absent entry). Stores the entry in `*entry` and returns its level, or UNREADABLE. */
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

static __always_inline __u32 page_flags_offset(void)
{
	if (bpf_core_field_exists(struct page___wrapped, flags))
		return bpf_core_field_offset(struct page___wrapped, flags);
	return bpf_core_field_offset(struct page, flags);
}

/* The size of a struct page; 0 if its flags or compound_head cannot be read. */
static __always_inline __u32 page_struct_size(void)
{
	if (!bpf_core_field_exists(struct page, flags) && !bpf_core_field_exists(struct page___wrapped, flags))
		return 0;
	if (!bpf_core_field_exists(struct page, compound_head))
		return 0;
	return bpf_core_type_size(struct page);
}

/* Reads the folio of the frame at `physical`. Returns folio_bits; 0: the folio could not be read. */
static __always_inline __u32 folio_at(const struct call *call, __u64 physical)
{
	__u64 page = call->vmemmap + (physical >> 12) * page_struct_size();
	__u64 flags, head;
	__u32 found = FOLIO_READ;

	if (!call->vmemmap || !page_struct_size() || physical >= call->memory_end)
		return 0;
	if (read_kernel(&head, page + bpf_core_field_offset(struct page, compound_head)))
		return 0;
	if (head & 1) {
		found |= FOLIO_LARGE;
		page = head - 1;
	}
	if (read_kernel(&flags, page + page_flags_offset()))
		return 0;
	if (IS_SET(flags, PG_head))
		found |= FOLIO_LARGE;
	if (IS_SET(flags, PG_young))
		found |= FOLIO_YOUNG;
	if (IS_SET(flags, PG_uptodate) && IS_SET(flags, PG_swapbacked))
		found |= FOLIO_SHMEM;
	return found;
}

/* The folio of the page that a probe's entry maps, if the entry is a leaf and its folio was
 * requested. */
static __always_inline __u32 folio_of(const struct call *call, __u64 entry, __u64 level)
{
	/* Entries made inaccessible (PROT_NONE) hold an inverted frame on x86: their folios are not
	 * read. */
	int is_leaf = (entry & 1) && (level == 0 || (entry & call->leaf_mask) == call->leaf_value);
	__u64 span;

	if (!call->folios || !is_leaf || level >= MAX_LEVELS)
		return 0;
	if (call->folios != FOLIOS_ALL && (entry & call->accessed_mask))
		return 0;
	span = 1ULL << (12 + 9 * level);
	return folio_at(call, entry & call->frame_mask & ~(span - 1));
}

static long probe_entry(__u32 index, void *none)
{
	struct probe *probe = bpf_map_lookup_elem(&probes, &index);
	struct call *call = get_call();
	__u64 entry = 0;

	if (!probe || !call)
		return 1;
	probe->level = walk(call, probe->addr, 0, &entry);
	probe->entry = entry;
	probe->folio = folio_of(call, entry, probe->level);
	return 0;
}

/* Reads the word at each address through the direct map. User space checks with it, on its own
 * memory, that the base of the direct map is right. */
static long read_word(__u32 index, void *none)
{
	struct probe *probe = bpf_map_lookup_elem(&probes, &index);
	struct call *call = get_call();
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

/* Entries handled in one step of bpf_loop(): a step costs more than an entry. */
#define ENTRIES_PER_STEP 8

struct young_scan {
	__u32 slot;
	/* Number of the first step. */
	__u32 first;
};

/* Reads the young flags of the folios behind some entries of a copied table. Nearly free of
 * branches, because the verifier follows each of them; therefore pages that NUMA balancing made
 * inaccessible are skipped. */
static long read_young_step(__u32 step, void *ctx)
{
	const struct young_scan *scan = ctx;
	__u32 slot = scan->slot, nth = (scan->first + step) % (ENTRIES / ENTRIES_PER_STEP);
	struct table *table = bpf_map_lookup_elem(&tables, &slot);
	struct head *head = bpf_map_lookup_elem(&heads, &slot);
	struct call *call = get_call();
	__u64 mask, value, young = 0;

	if (!call || !table || !head)
		return 1;
	mask = 1 | call->accessed_mask | (head->level ? call->leaf_mask : 0);
	value = 1 | (head->level ? call->leaf_value : 0);
#pragma unroll
	for (int i = 0; i < ENTRIES_PER_STEP; i++) {
		__u64 entry = table->entries[nth * ENTRIES_PER_STEP + i];
		__u64 physical = entry & call->frame_mask;
		__u64 page = call->vmemmap + (physical >> 12) * page_struct_size();
		__u64 flags, tail_of;

		/* Skip: not a leaf, accessed bit set, or beyond the end of memory. */
		if (((entry & mask) ^ value) | (call->memory_end - 1 - physical) >> 63)
			continue;
		if (read_kernel(&tail_of, page + bpf_core_field_offset(struct page, compound_head)))
			continue;
		page += (tail_of - 1 - page) & -(tail_of & 1);
		if (read_kernel(&flags, page + page_flags_offset()))
			continue;
		young |= (flags >> bpf_core_enum_value(enum pageflags, PG_young) & 1) << i;
	}
	head->young[nth * ENTRIES_PER_STEP / 64] |= young << (nth * ENTRIES_PER_STEP % 64);
	return 0;
}

/* Reads the young flags for all entries of the table inside the requested range. */
static __always_inline void read_young(const struct call *call, __u32 slot, __u64 base, __u64 level)
{
	__u64 shift = 12 + 9 * (level & 1), step = (__u64)ENTRIES_PER_STEP << shift;
	__u64 end = base + ((__u64)ENTRIES << shift);
	__u64 from = call->start > base ? call->start : base, to = call->end < end ? call->end : end;
	struct young_scan scan = { .slot = slot, .first = (from - base) / step };

	if (!HAS_FLAG(PG_young) || !page_struct_size() || !call->vmemmap || from >= to)
		return;
	bpf_loop((to - base + step - 1) / step - scan.first, read_young_step, &scan, 0);
}

/* Copies the table at `frame` into the next slot. Returns 0, and uses no slot, if it could not be
 * read. */
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
		read_young(call, slot, base, level);
	return 1;
}

static __always_inline int is_table(const struct call *call, __u64 entry)
{
	return (entry & 1) && (entry & call->leaf_mask) != call->leaf_value;
}

static long copy_step(__u32 index, void *none)
{
	struct call *call = get_call();
	struct table *pmd;
	__u64 entry = 0, cursor;
	__u32 pmd_slot;

	if (!call)
		return 1;
	cursor = call->cursor;
	if (cursor >= call->end || call->nr_tables >= MAX_TABLES)
		return 1;
	if (!call->has_pmd || call->pmd_base != cursor >> 30) {
		__u32 level = walk(call, cursor, 2, &entry);
		__u32 slot = call->nr_tables;
		__u64 span;

		if (level == 2 && is_table(call, entry) &&
		    copy_table(call, entry & call->frame_mask, cursor >> 30 << 30, 1)) {
			call->pmd_slot = slot;
			call->pmd_base = cursor >> 30;
			call->has_pmd = 1;
			return 0;
		}
		/* A hole, or a leaf of 1 GiB (only hugetlb and devices have those): skip it. */
		if (level < 2 || level >= MAX_LEVELS)
			level = 2;
		span = 1ULL << (12 + 9 * level);
		call->cursor = (cursor | (span - 1)) + 1;
		return 0;
	}
	pmd_slot = call->pmd_slot;
	pmd = bpf_map_lookup_elem(&tables, &pmd_slot);
	if (!pmd)
		return 1;
	entry = pmd->entries[(cursor >> 21) & (ENTRIES - 1)];
	if (is_table(call, entry))
		copy_table(call, entry & call->frame_mask, cursor >> 21 << 21, 0);
	call->cursor = ((cursor >> 21) + 1) << 21;
	return 0;
}

/* Reads the word of kernel memory at each address. */
static long read_kernel_word(__u32 index, void *none)
{
	struct probe *probe = bpf_map_lookup_elem(&probes, &index);

	if (!probe)
		return 1;
	probe->level = UNREADABLE;
	if (!bpf_probe_read_kernel(&probe->entry, sizeof(probe->entry), (void *)probe->addr))
		probe->level = 0;
	return 0;
}

/* Finds the folio of the first page, and the position, of an open file of the process. The page
 * cache of a file with only that page is an xarray whose head is the page. */
static __always_inline void find_file(struct task_struct *task, struct call *call)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd), *file = 0;

	call->page_size = page_struct_size();
	call->has_young = HAS_FLAG(PG_young);
	call->folio = 0;
	call->file_position = 0;
	if (call->fd >= BPF_CORE_READ(table, max_fds))
		return;
	if (bpf_probe_read_kernel(&file, sizeof(file), files + call->fd))
		return;
	call->folio = (__u64)BPF_CORE_READ(file, f_mapping, i_pages.xa_head);
	if (file && bpf_core_field_exists(file->f_pos))
		call->file_position = (__u64)file + bpf_core_field_offset(struct file, f_pos);
}

static __always_inline int run_call(struct task_struct *task, struct call *call)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);

	/* The status stays GONE if there is no address space, or its top table is unknown. */
	if (!mm)
		return 0;
	call->pgd = (__u64)BPF_CORE_READ(mm, pgd);
	if (!call->pgd)
		return 0;
	call->status = OK;
	call->has_pmd = 0;
	if (call->op == OP_PROBES)
		bpf_loop(call->nr_probes, probe_entry, 0, 0);
	else if (call->op == OP_WORDS)
		bpf_loop(call->nr_probes, read_word, 0, 0);
	else if (call->op == OP_KERNEL)
		bpf_loop(call->nr_probes, read_kernel_word, 0, 0);
	else if (call->op == OP_FILE)
		find_file(task, call);
	else
		bpf_loop(MAX_STEPS, copy_step, 0, 0);
	return 0;
}

/* Run by BPF_PROG_TEST_RUN, on kernels that have bpf_task_from_pid(). */
SEC("syscall")
int by_syscall(void *ctx)
{
	struct call *call = get_call();
	struct task_struct *task;

	if (!call)
		return 0;
	call->status = GONE;
	task = bpf_task_from_pid(call->pid);
	if (!task)
		return 0;
	run_call(task, call);
	bpf_task_release(task);
	return 0;
}

/* Run by reading an iterator over one thread, on all other kernels. */
SEC("iter/task")
int by_iterator(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct call *call = get_call();

	if (!call || !task)
		return 0;
	return run_call(task, call);
}
