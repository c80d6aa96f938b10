//! No bytes of a client make the negotiation panic, and however they are cut the answers are the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thermo_nbd::protocol::handshake::{Directory, Facts, Handshake, HandshakeError, Next, Tls};

struct One;

impl Directory for One {
    fn find(&self, name: &str) -> Option<Facts> {
        (name.len() < 2).then(|| Facts {
            name: "a".to_owned(),
            description: "b".to_owned(),
            size: 1 << 20,
            flags: 1,
            preferred: 4096,
            largest: 32 << 20,
        })
    }

    fn names(&self) -> Vec<String> {
        vec!["a".to_owned(), String::new()]
    }
}

fn talk(pieces: &[&[u8]], tls: Tls) -> (Result<Next, HandshakeError>, Vec<u8>) {
    let (mut handshake, mut input, mut output) = (Handshake::new(tls), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match handshake.step(&mut input, &mut output, &One) {
                Ok(Next::Answered) => {}
                Ok(Next::More) => break,
                end => return (end, output),
            }
        }
    }
    (Ok(Next::More), output)
}

fuzz_target!(|data: (u8, Vec<u8>)| {
    let (cut, bytes) = data;
    // Without encryption: with it, bytes that come in the same piece as STARTTLS end the connection, by intent.
    let whole = talk(&[&bytes], Tls::None);
    let (one, other) = bytes.split_at(usize::from(cut).min(bytes.len()));
    assert_eq!(whole, talk(&[one, other], Tls::None));
    let _ = talk(&[&bytes], Tls::Required);
    let _ = talk(&[&bytes], Tls::Offered);
});
