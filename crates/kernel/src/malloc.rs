//! Settings of the C library's allocator (mallopt(3)).

/// Keeps the memory footprint of this process small: blocks of 128 KiB and more return to the kernel as soon
/// as they are freed, and threads share one arena. By default glibc raises this threshold up to 32 MiB as the
/// program frees large blocks, and uses an arena for each thread, which is faster for programs that allocate
/// such blocks all the time. Call it before threads are started. No effect with other C libraries.
pub fn minimize_footprint() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 128 << 10;
        // SAFETY: only affects where later allocations come from.
        unsafe {
            // A setting that is refused keeps its value; nothing depends on it.
            let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
            let _ = libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}
