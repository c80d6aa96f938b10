//! How the C library's allocator holds on to memory (mallopt(3)).

/// Keeps this process small: blocks of 128 KiB and more go back to the kernel as soon as they are freed, and threads
/// share one arena. By itself glibc keeps freed blocks of up to 32 MiB once it has seen some, an arena a thread, which
/// is faster for programs that allocate such blocks all the time. To be called before threads are started; other C
/// libraries are left as they are.
pub fn keep_small() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 128 << 10;
        // SAFETY: changes only where blocks that are allocated from now on come from.
        unsafe {
            // What cannot be set stays as it was; nothing depends on it.
            let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
            let _ = libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}
