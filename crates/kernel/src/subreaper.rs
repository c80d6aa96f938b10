//! Being the parent of orphans: a process whose parent ended passes to the nearest subreaper above it instead of to
//! pid 1 (`PR_SET_CHILD_SUBREAPER`, prctl(2)). So a program that sends itself to the background stays in sight.

use std::io;

/// Takes in, from now on, the orphans among the descendants of this process.
///
/// # Errors
/// None known since Linux 3.4.
pub fn take_in_orphans() -> io::Result<()> {
    // Any pid stands for "yes".
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_kernel_we_run_on_knows_it() {
        assert!(super::take_in_orphans().is_ok());
    }
}
