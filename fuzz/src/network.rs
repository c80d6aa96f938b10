//! Clients of the block server: NBD, its TLS, and virtual machines; the text of its exports and its status.

use std::cell::RefCell;
use std::path::Path;

use thermo_nbd::fuzzing::{Guest, VhostServer, tls_session};
use thermo_nbd::protocol::handshake::{Directory, ExportInfo, Handshake, HandshakeError, Next, Tls};
use thermo_nbd::protocol::request::{Command, REQUEST_HEADER_LEN, Request};
use thermo_nbd::status_text::{self, parse_reply};
use thermo_nbd::{Encryption, ExportSpec};

use crate::Target;

/// The targets of this group.
pub const TARGETS: &[Target] = &[
    Target::new("nbd_handshake", handshake_ignores_how_input_is_split),
    Target::new("nbd_request", valid_request_lies_in_the_export),
    Target::new("nbd_tls", tls_client_gets_an_error_or_ends),
    Target::new("vhost_request", guest_gets_no_more_than_it_offered),
    Target::new("vhost_messages", machine_is_served_or_refused),
    Target::new("nbd_export_option", export_option_is_parsed_or_named),
    Target::new("nbd_export_config", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        if let Err(error) = ExportSpec::parse_config(text) {
            assert!(error.line >= 1 && error.column >= 1, "{error}");
        }
    }),
    Target::new("nbd_reply", |data| {
        let Ok(text) = std::str::from_utf8(data) else {
            return;
        };
        if let Ok(status) = parse_reply(text) {
            assert!(status_text::whole(&status).contains("max_buffer_pages"));
            drop(status_text::released(&status));
        }
    }),
];

/// An option that is parsed has a path or is memory; an error names the option.
fn export_option_is_parsed_or_named(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match ExportSpec::parse_option(text) {
        Ok(spec) => {
            assert!(text.starts_with(&format!("{}=", spec.name)), "{spec:?}");
            let path = spec.path.as_deref().unwrap_or(Path::new("mem:"));
            assert!(text.contains(path.to_str().unwrap_or_default()), "{spec:?}");
            assert_ne!(path, Path::new(""));
        }
        Err(error) => assert!(error.to_string().contains(&format!("{text:?}")), "{error}"),
    }
}

struct OneExport;

impl Directory for OneExport {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        (name.len() < 2).then(|| ExportInfo {
            name: "a".to_owned(),
            description: "b".to_owned(),
            size: 1 << 20,
            flags: 1,
            preferred_block: 4096,
            max_payload: 32 << 20,
        })
    }

    fn names(&self) -> Vec<String> {
        vec!["a".to_owned(), String::new()]
    }
}

fn negotiate(pieces: &[&[u8]], tls: Tls) -> (Result<Next, HandshakeError>, Vec<u8>) {
    let (mut handshake, mut input, mut output) = (Handshake::new(tls), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match handshake.step(&mut input, &mut output, &OneExport) {
                Ok(Next::Answered) => {}
                Ok(Next::NeedMore) => break,
                end => return (end, output),
            }
        }
    }
    (Ok(Next::NeedMore), output)
}

/// The replies do not depend on how the input is split.
fn handshake_ignores_how_input_is_split(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else {
        return;
    };
    // Compare without TLS only: with TLS, bytes that arrive together with STARTTLS end the connection on
    // purpose.
    let whole = negotiate(&[bytes], Tls::None);
    let (first, second) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    assert_eq!(whole, negotiate(&[first, second], Tls::None));
    let _ = negotiate(&[bytes], Tls::Required);
    let _ = negotiate(&[bytes], Tls::Offered);
}

/// Every request header is rejected, or its range lies within the export.
fn valid_request_lies_in_the_export(data: &[u8]) {
    let Some((header, rest)) = data.split_first_chunk::<REQUEST_HEADER_LEN>() else {
        return;
    };
    let Some((size, [read_only])) = rest.split_first_chunk::<8>() else {
        return;
    };
    let (size, read_only) = (u64::from_le_bytes(*size), read_only & 1 == 1);
    let Some(request) = Request::parse(header) else {
        return;
    };
    if request.validation_error(size, read_only).is_none() {
        assert!(!(read_only && request.modifies_export()));
        if request.command != Command::Flush {
            assert!(
                request
                    .offset
                    .checked_add(u64::from(request.length))
                    .is_some_and(|end| end <= size)
            );
        }
    }
}

/// Nothing is accepted that was not encrypted.
fn tls_client_gets_an_error_or_ends(data: &[u8]) {
    thread_local! {
        static ENCRYPTION: Encryption = {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
            let loaded = Encryption::new(&folder.join("server.pem"), &folder.join("server.key"), None, true);
            loaded.unwrap_or_else(|error| panic!("{error}"))
        };
    }
    let accepted = ENCRYPTION.with(|encryption| tls_session(encryption, &data[..data.len().min(1 << 16)]));
    assert!(accepted.is_err() || accepted.is_ok_and(|accepted| accepted == 0));
}

/// One descriptor of an input: address, length, flags and next, in 6 bytes, so that most are in memory.
const DESCRIPTOR: usize = 6;
/// Descriptors of an input.
const DESCRIPTORS: usize = 16;

/// The used ring shows no more bytes than the writable descriptors have.
fn guest_gets_no_more_than_it_offered(data: &[u8]) {
    thread_local! {
        static GUEST: Guest = Guest::new().unwrap_or_else(|error| panic!("{error}"));
    }
    let Some(([head, options], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (table, content) = rest.split_at(rest.len().min(DESCRIPTOR * DESCRIPTORS));
    let mut memory = Vec::new();
    let mut writable = 0_u64;
    for bytes in table.chunks_exact(DESCRIPTOR) {
        let [low, high, len_low, len_high, flags, next] = [0, 1, 2, 3, 4, 5].map(|at| bytes[at]);
        // Bit 7: at the end of the address space. Bit 6: a length that no request has.
        let addr =
            u64::from(u16::from_le_bytes([low, high])) | if flags & 0x80 != 0 { u64::MAX << 16 } else { 0 };
        let len =
            u32::from(u16::from_le_bytes([len_low, len_high])) << if flags & 0x40 != 0 { 16 } else { 0 };
        writable += if flags & 2 != 0 { u64::from(len) } else { 0 };
        memory.extend(addr.to_le_bytes());
        memory.extend(len.to_le_bytes());
        memory.extend(u16::from(flags & 7).to_le_bytes());
        memory.extend(u16::from(next % 20).to_le_bytes());
    }
    memory.resize(DESCRIPTORS * 16, 0);
    memory.extend(content);
    let written = GUEST.with(|guest| guest.request(&memory, u16::from(head % 18), options & 1 == 1));
    // A table of descriptors in guest memory (bit 2 of the flags) has its own lengths.
    let has_tables = table.chunks_exact(DESCRIPTOR).any(|bytes| bytes[4] & 4 != 0);
    if !has_tables {
        assert!(
            written.is_none_or(|written| u64::from(written) <= writable),
            "{written:?} of {writable}"
        );
    }
}

/// Messages of the protocol: a byte with the number of descriptors (0 to 3) and a flag for a reply, the kind,
/// the length of the body, and the body. The header's other fields are always right.
fn machine_is_served_or_refused(mut data: &[u8]) {
    thread_local! {
        static SERVER: RefCell<(VhostServer, tempfile::TempDir)> = {
            let folder = tempfile::TempDir::with_prefix("thermo-fuzz-");
            let folder = folder.unwrap_or_else(|error| panic!("no folder: {error}"));
            let server = VhostServer::new(&folder.path().join("s"));
            RefCell::new((server.unwrap_or_else(|error| panic!("{error}")), folder))
        };
    }
    let mut messages = Vec::new();
    while let Some(([options, kind, len], rest)) = data.split_first_chunk::<3>() {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        data = rest;
        // Version 1; the fourth bit asks for a reply.
        let flags = 1 | u32::from(options & 8);
        let size = u32::try_from(body.len()).unwrap_or_default();
        let header = [u32::from(kind % 48), flags, size].map(u32::to_le_bytes).concat();
        messages.push((usize::from(options & 3), [header, body.to_vec()].concat()));
    }
    let messages: Vec<(usize, &[u8])> = messages.iter().map(|(fds, bytes)| (*fds, &bytes[..])).collect();
    SERVER.with_borrow_mut(|(server, _)| drop(server.session(&messages)));
}
