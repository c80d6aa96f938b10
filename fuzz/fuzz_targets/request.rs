//! Every head of a request is refused, or lies within the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thermo_nbd::protocol::request::{Command, HEAD, Request};

fuzz_target!(|data: ([u8; HEAD], u64, bool)| {
    let (head, size, read_only) = data;
    let Some(request) = Request::parse(&head) else { return };
    if request.refusal(size, read_only).is_none() {
        assert!(!(read_only && request.changes()));
        if request.command != Command::Flush {
            assert!(request.offset.checked_add(u64::from(request.length)).is_some_and(|end| end <= size));
        }
    }
});
