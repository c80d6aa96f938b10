//! Input from a client never panics the negotiation, and the replies do not depend on how the input is split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thermo_nbd::protocol::handshake::{Directory, ExportInfo, Handshake, HandshakeError, Next, Tls};

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

fuzz_target!(|data: (u8, Vec<u8>)| {
    let (cut, bytes) = data;
    // Compare without TLS only: with TLS, bytes that arrive together with STARTTLS end the connection on
    // purpose.
    let whole = negotiate(&[&bytes], Tls::None);
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(whole, negotiate(&[first, second], Tls::None));
    let _ = negotiate(&[&bytes], Tls::Required);
    let _ = negotiate(&[&bytes], Tls::Offered);
});
