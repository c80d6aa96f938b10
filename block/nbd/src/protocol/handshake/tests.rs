#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use super::*;
use crate::protocol::option::{
    ACK, ERR_INVALID, ERR_POLICY, ERR_TLS_REQD, ERR_UNKNOWN, ERR_UNSUP, META_CONTEXT, REP_INFO, SERVER,
    encode_option,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

struct OneExport;

impl Directory for OneExport {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let info = ExportInfo {
            name: "disk".to_owned(),
            description: "a disk".to_owned(),
            size: 5,
            flags: 1,
            preferred_block: 4096,
            max_payload: 1 << 20,
        };
        (name == "disk").then_some(info)
    }

    fn names(&self) -> Vec<String> {
        vec!["disk".to_owned()]
    }
}

fn go_option(name: &str) -> Vec<u8> {
    encode_option(option::GO, &[&length_prefixed(name)[..], &[0, 0]].concat())
}

fn meta_context_option(number: u32, queries: &[&str]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).unwrap().to_be_bytes();
    let queries: Vec<u8> = queries.iter().flat_map(|query| length_prefixed(query)).collect();
    encode_option(number, &[&length_prefixed("disk")[..], &count, &queries].concat())
}

fn run_to_end(
    handshake: &mut Handshake,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> Result<Next, HandshakeError> {
    loop {
        match handshake.step(input, output, &OneExport)? {
            Next::Answered => {}
            other => return Ok(other),
        }
    }
}

fn negotiate_with(tls: Tls, flags: u32, options: &[Vec<u8>]) -> (Result<Next, HandshakeError>, Vec<u8>) {
    let mut input = [&flags.to_be_bytes()[..], &options.concat()].concat();
    let mut output = Vec::new();
    let next = run_to_end(&mut Handshake::new(tls), &mut input, &mut output);
    (next, output)
}

fn negotiate(flags: u32, options: &[Vec<u8>]) -> (Result<Next, HandshakeError>, Vec<u8>) {
    negotiate_with(Tls::None, flags, options)
}

fn reply_types(mut output: &[u8]) -> Vec<u32> {
    let mut reply_types = Vec::new();
    while let Some((head, rest)) = output.split_first_chunk::<20>() {
        reply_types.push(u32::from_be_bytes(head[12..16].try_into().unwrap()));
        let len = u32::from_be_bytes(head[16..].try_into().unwrap()) as usize;
        output = &rest[len..];
    }
    reply_types
}

fn disk_choice(style: ReplyStyle, allocation: bool) -> Result<Next, HandshakeError> {
    let name = "disk".to_owned();
    Ok(Next::Export(ChosenExport {
        name,
        style,
        allocation,
    }))
}

#[test]
fn go_chooses_export() {
    let (next, output) = negotiate(
        3,
        &[
            encode_option(77, &[]),
            encode_option(option::LIST, &[]),
            go_option("nothing"),
            go_option("disk"),
        ],
    );
    assert_eq!(next, disk_choice(ReplyStyle::Simple, false));
    let expected = [ERR_UNSUP, SERVER, ACK, ERR_UNKNOWN, REP_INFO, REP_INFO, ACK];
    assert_eq!(reply_types(&output), expected);
}

#[test]
fn handshake_selects_structured_replies_and_allocation() {
    let structured = encode_option(option::STRUCTURED_REPLY, &[]);
    let set = meta_context_option(option::SET_META_CONTEXT, &["other:x", "base:allocation"]);
    let (next, output) = negotiate(3, &[set.clone(), structured, set, go_option("disk")]);
    assert_eq!(next, disk_choice(ReplyStyle::Structured, true));
    let expected = [ERR_INVALID, ACK, META_CONTEXT, ACK, REP_INFO, REP_INFO, ACK];
    assert_eq!(reply_types(&output), expected);
    let (_, output) = negotiate(
        3,
        &[
            meta_context_option(option::LIST_META_CONTEXT, &[]),
            meta_context_option(option::LIST_META_CONTEXT, &["qemu:"]),
        ],
    );
    assert_eq!(reply_types(&output), [META_CONTEXT, ACK, ACK]);
}

#[test]
fn info_returns_name_and_description_when_requested() {
    let info = |reply_types: &[u8]| {
        encode_option(
            option::INFO,
            &[&length_prefixed("disk")[..], reply_types].concat(),
        )
    };
    let (next, output) = negotiate(3, &[info(&[0, 2, 0, 1, 0, 2])]);
    assert_eq!((next, reply_types(&output).len()), (Ok(Next::NeedMore), 5));
    assert!(output.windows(6).any(|part| part == b"a disk"));
}

#[test]
fn starttls_is_rejected_offered_or_required() {
    let start = encode_option(option::STARTTLS, &[]);
    let (next, output) = negotiate(3, &[start.clone(), go_option("disk")]);
    assert!(matches!(next, Ok(Next::Export(_))));
    assert_eq!(reply_types(&output)[0], ERR_POLICY);
    let (next, output) = negotiate_with(Tls::Required, 3, &[go_option("disk"), start.clone()]);
    assert_eq!(
        (next, reply_types(&output)),
        (Ok(Next::StartTls), vec![ERR_TLS_REQD, ACK])
    );
    let (next, _) = negotiate_with(Tls::Offered, 3, &[start, go_option("disk")]);
    assert_eq!(next, Err(HandshakeError::BehindStartTls));
    let (next, _) = negotiate_with(Tls::Required, 3, &[encode_option(option::EXPORT_NAME, b"disk")]);
    assert_eq!(next, Err(HandshakeError::Plain));
}

#[test]
fn export_name_chooses_export() {
    let (next, output) = negotiate(1, &[encode_option(option::EXPORT_NAME, b"disk")]);
    assert_eq!(
        (next, output.len()),
        (disk_choice(ReplyStyle::Simple, false), 134)
    );
    let (next, output) = negotiate(3, &[encode_option(option::EXPORT_NAME, b"disk")]);
    assert_eq!((next.is_ok(), output), (true, vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 1]));
    let (next, _) = negotiate(3, &[encode_option(option::EXPORT_NAME, b"x")]);
    assert_eq!(next, Err(HandshakeError::UnknownExport("x".to_owned())));
}

#[test]
fn handshake_rejects_protocol_violations() {
    assert_eq!(negotiate(0, &[]).0, Err(HandshakeError::Flags(0)));
    assert_eq!(negotiate(7, &[]).0, Err(HandshakeError::Flags(7)));
    let magic = negotiate(1, &[vec![b'x'; 16]]).0;
    assert!(matches!(
        magic,
        Err(HandshakeError::Option(OptionError::Magic(_)))
    ));
    let mut long = encode_option(option::LIST, &[]);
    long[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(
        negotiate(1, &[long]).0,
        Err(HandshakeError::Option(OptionError::TooLong { .. }))
    ));
    let flood = vec![encode_option(option::LIST, &[]); 257];
    assert_eq!(negotiate(1, &flood).0, Err(HandshakeError::TooMany));
    assert_eq!(
        negotiate(1, &[encode_option(option::ABORT, &[])]).0,
        Ok(Next::Disconnect)
    );
}

#[test]
fn handshake_rejects_inconsistent_lengths() {
    for data in [
        &[][..],
        &[0, 0, 0, 9, 1],
        &[0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 1, 0xff, 0, 0],
    ] {
        let (next, output) = negotiate(1, &[encode_option(option::GO, data)]);
        assert_eq!(
            (next, reply_types(&output)),
            (Ok(Next::NeedMore), vec![ERR_INVALID])
        );
    }
    let list = encode_option(option::LIST_META_CONTEXT, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(reply_types(&negotiate(1, &[list]).1), [ERR_INVALID]);
}

proptest! {
    #![proptest_config(Config { cases: 200, rng_seed: RngSeed::Fixed(10809), failure_persistence: None, ..Config::default() })]

    #[test]
    fn replies_do_not_depend_on_fragmentation(cuts in prop::collection::vec(1..40usize, 1..30)) {
        let options = [encode_option(option::LIST, &[]), encode_option(99, b"abc"), go_option("disk")];
        let (want, expected) = negotiate(3, &options);
        let whole = [&3_u32.to_be_bytes()[..], &options.concat()].concat();
        let (mut handshake, mut input, mut output) = (Handshake::default(), Vec::new(), Vec::new());
        let mut next = Ok(Next::NeedMore);
        let mut rest = &whole[..];
        for cut in cuts.into_iter().chain([whole.len()]) {
            let (part, left) = rest.split_at(cut.min(rest.len()));
            rest = left;
            input.extend(part);
            if next == Ok(Next::NeedMore) {
                next = run_to_end(&mut handshake, &mut input, &mut output);
            }
        }
        prop_assert_eq!((next, output), (want, expected));
    }

    #[test]
    fn handshake_never_panics(number in 0..12_u32, bytes in prop::collection::vec(any::<u8>(), 0..200), as_option in any::<bool>()) {
        let mut input = if as_option {
            [&[0, 0, 0, 3][..], &encode_option(option::STRUCTURED_REPLY, &[]), &encode_option(number, &bytes)].concat()
        } else {
            bytes
        };
        let _ = run_to_end(&mut Handshake::new(Tls::Offered), &mut input, &mut Vec::new());
    }
}
