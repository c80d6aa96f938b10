//! What killed instances left is told, of the command's own and of the scripts around it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![allow(dead_code, reason = "each test program uses its part of the common module")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::run;
use serde_json::Value;

/// The notes of writer `pid`, as the command tells them.
fn told_of(here: &Path, pid: u32) -> Vec<Value> {
    let output = run(here, &["doctor", "--leftovers", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes = told["leftovers"].as_array().unwrap();
    let left = notes.iter().filter(|note| note["pid"] == pid).cloned().collect();
    assert_eq!(output.status.code(), Some(i32::from(!notes.is_empty())), "{told}");
    left
}

/// A file that is gone with the test.
struct Scrap(PathBuf);

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_swap_of_a_script_that_was_killed_is_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: swap on zram is made by root only");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A device there is none of: only what is noted is looked at.
    let script = "set -euo pipefail; . \"$0\"; zram=/dev/zram4093; note_zram; kill -KILL $$";
    let zram_sh = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/zram.sh");
    let mut killed = Command::new("bash")
        .args(["-c", script])
        .arg(&zram_sh)
        .spawn()
        .unwrap();
    let pid = killed.id();
    let _note = Scrap(format!("/run/thermocline/zram-swap-{pid}-script").into());
    assert_eq!(killed.wait().unwrap().code(), None, "it was killed");
    let told = told_of(folder.path(), pid);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["kind"], "zram-swap");
    let right = "swap on /dev/zram4093: `swapoff /dev/zram4093; \
                 echo 4093 > /sys/class/zram-control/hot_remove` gives it back";
    assert_eq!(told[0]["left"], serde_json::json!([right]));
}
