//! `no_new_privs`: from now on, execve(2) adds no privilege (prctl(2), `PR_SET_NO_NEW_PRIVS`). Set-user-ID
//! programs and file capabilities have no effect.

use std::io;

/// Sets the flag for the calling thread, and for the threads and processes that it starts later.
///
/// # Errors
/// None known since Linux 3.5.
pub fn set() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    #[test]
    fn flag_is_set_for_the_thread() {
        let flag = std::thread::spawn(|| {
            super::set().unwrap();
            rustix::thread::no_new_privs().unwrap()
        });
        assert!(flag.join().unwrap());
        assert!(!rustix::thread::no_new_privs().unwrap());
    }
}
