//! Every request header is rejected, or its range lies within the export.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thermo_nbd::protocol::request::{Command, REQUEST_HEADER_LEN, Request};

fuzz_target!(|data: ([u8; REQUEST_HEADER_LEN], u64, bool)| {
    let (header, size, read_only) = data;
    let Some(request) = Request::parse(&header) else { return };
    if request.validation_error(size, read_only).is_none() {
        assert!(!(read_only && request.modifies_export()));
        if request.command != Command::Flush {
            assert!(request.offset.checked_add(u64::from(request.length)).is_some_and(|end| end <= size));
        }
    }
});
