//! Subreaper: a process whose parent ended becomes a child of the nearest subreaper above it instead of pid 1
//! (`PR_SET_CHILD_SUBREAPER`, prctl(2)). So a program that daemonizes stays a descendant.

use std::io;

/// Makes this process the subreaper of its descendants.
///
/// # Errors
/// None known since Linux 3.4.
pub fn become_subreaper() -> io::Result<()> {
    // Any pid means "yes".
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn subreaper_is_supported() {
        assert!(super::become_subreaper().is_ok());
    }
}
