//! A panic of any thread ends the process.
//!
//! By default it ends the thread alone: the server would accept clients that no worker serves, or hold back
//! memory under pressure, and look healthy. A service manager starts a process again, not a thread.

use thermo_term::exit;

/// Makes every panic end the process with the exit code for errors, after its message. Clients connect again;
/// acknowledged writes are in the page cache, as after a kill.
pub fn end_process_at_panic() {
    let print_message = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print_message(info);
        thermo_kernel::message!(
            "thermo-nbd: a thread panicked, so the server ends. Report the message above, and start the server again"
        );
        std::process::exit(exit::ERROR.into());
    }));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::process::Command;

    const IN_CHILD: &str = "THERMO_NBD_TEST_PANIC";

    // The test runs itself again, because a panic hook belongs to a process.
    #[test]
    fn panic_of_a_worker_ends_the_process() {
        if std::env::var_os(IN_CHILD).is_some() {
            end_process_at_panic();
            let worker = std::thread::Builder::new().name("nbd-0".to_owned());
            let worker = worker.spawn(|| panic!("a broken invariant")).unwrap();
            // Without the hook, the process goes on here and ends with 0.
            drop(worker.join());
            std::process::exit(0);
        }
        let test = "panic::tests::panic_of_a_worker_ends_the_process";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("a broken invariant") && stderr.contains("so the server ends"),
            "{stderr}"
        );
    }
}
