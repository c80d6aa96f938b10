#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
use super::*;
use crate::protocol::option::{
    ACK, ERR_INVALID, ERR_POLICY, ERR_TLS_REQD, ERR_UNKNOWN, ERR_UNSUP, META_CONTEXT, REP_INFO, SERVER,
    encoded,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

struct One;

impl Directory for One {
    fn find(&self, name: &str) -> Option<Facts> {
        let facts = Facts {
            name: "disk".to_owned(),
            description: "a disk".to_owned(),
            size: 5,
            flags: 1,
            preferred: 4096,
            largest: 1 << 20,
        };
        (name == "disk").then_some(facts)
    }

    fn names(&self) -> Vec<String> {
        vec!["disk".to_owned()]
    }
}

fn go(name: &str) -> Vec<u8> {
    encoded(option::GO, &[&with_length(name)[..], &[0, 0]].concat())
}

fn contexts(number: u32, queries: &[&str]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).unwrap().to_be_bytes();
    let queries: Vec<u8> = queries.iter().flat_map(|query| with_length(query)).collect();
    encoded(number, &[&with_length("disk")[..], &count, &queries].concat())
}

fn run(handshake: &mut Handshake, input: &mut Vec<u8>, output: &mut Vec<u8>) -> Result<Next, HandshakeError> {
    loop {
        match handshake.step(input, output, &One)? {
            Next::Answered => {}
            other => return Ok(other),
        }
    }
}

fn talk_with(tls: Tls, flags: u32, options: &[Vec<u8>]) -> (Result<Next, HandshakeError>, Vec<u8>) {
    let mut input = [&flags.to_be_bytes()[..], &options.concat()].concat();
    let mut output = Vec::new();
    let next = run(&mut Handshake::new(tls), &mut input, &mut output);
    (next, output)
}

fn talk(flags: u32, options: &[Vec<u8>]) -> (Result<Next, HandshakeError>, Vec<u8>) {
    talk_with(Tls::None, flags, options)
}

fn kinds(mut output: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while let Some((head, rest)) = output.split_first_chunk::<20>() {
        kinds.push(u32::from_be_bytes(head[12..16].try_into().unwrap()));
        let len = u32::from_be_bytes(head[16..].try_into().unwrap()) as usize;
        output = &rest[len..];
    }
    kinds
}

fn disk(style: Style, allocation: bool) -> Result<Next, HandshakeError> {
    let name = "disk".to_owned();
    Ok(Next::Export(Chosen {
        name,
        style,
        allocation,
    }))
}

#[test]
fn a_client_goes() {
    let (next, output) = talk(
        3,
        &[
            encoded(77, &[]),
            encoded(option::LIST, &[]),
            go("nothing"),
            go("disk"),
        ],
    );
    assert_eq!(next, disk(Style::Simple, false));
    let told = [ERR_UNSUP, SERVER, ACK, ERR_UNKNOWN, REP_INFO, REP_INFO, ACK];
    assert_eq!(kinds(&output), told);
}

#[test]
fn a_client_chooses_structured_replies_and_allocation() {
    let structured = encoded(option::STRUCTURED_REPLY, &[]);
    let set = contexts(option::SET_META_CONTEXT, &["other:x", "base:allocation"]);
    let (next, output) = talk(3, &[set.clone(), structured, set, go("disk")]);
    assert_eq!(next, disk(Style::Structured, true));
    let told = [ERR_INVALID, ACK, META_CONTEXT, ACK, REP_INFO, REP_INFO, ACK];
    assert_eq!(kinds(&output), told);
    let (_, output) = talk(
        3,
        &[
            contexts(option::LIST_META_CONTEXT, &[]),
            contexts(option::LIST_META_CONTEXT, &["qemu:"]),
        ],
    );
    assert_eq!(kinds(&output), [META_CONTEXT, ACK, ACK]);
}

#[test]
fn name_and_description_go_to_who_asks() {
    let info = |kinds: &[u8]| encoded(option::INFO, &[&with_length("disk")[..], kinds].concat());
    let (next, output) = talk(3, &[info(&[0, 2, 0, 1, 0, 2])]);
    assert_eq!((next, kinds(&output).len()), (Ok(Next::More), 5));
    assert!(output.windows(6).any(|part| part == b"a disk"));
}

#[test]
fn encryption_is_refused_offered_or_required() {
    let start = encoded(option::STARTTLS, &[]);
    let (next, output) = talk(3, &[start.clone(), go("disk")]);
    assert!(matches!(next, Ok(Next::Export(_))));
    assert_eq!(kinds(&output)[0], ERR_POLICY);
    let (next, output) = talk_with(Tls::Required, 3, &[go("disk"), start.clone()]);
    assert_eq!(
        (next, kinds(&output)),
        (Ok(Next::StartTls), vec![ERR_TLS_REQD, ACK])
    );
    let (next, _) = talk_with(Tls::Offered, 3, &[start, go("disk")]);
    assert_eq!(next, Err(HandshakeError::BehindStartTls));
    let (next, _) = talk_with(Tls::Required, 3, &[encoded(option::EXPORT_NAME, b"disk")]);
    assert_eq!(next, Err(HandshakeError::Plain));
}

#[test]
fn the_old_way_to_choose() {
    let (next, output) = talk(1, &[encoded(option::EXPORT_NAME, b"disk")]);
    assert_eq!((next, output.len()), (disk(Style::Simple, false), 134));
    let (next, output) = talk(3, &[encoded(option::EXPORT_NAME, b"disk")]);
    assert_eq!((next.is_ok(), output), (true, vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 1]));
    let (next, _) = talk(3, &[encoded(option::EXPORT_NAME, b"x")]);
    assert_eq!(next, Err(HandshakeError::UnknownExport("x".to_owned())));
}

#[test]
fn who_does_not_keep_to_the_protocol_is_shut_out() {
    assert_eq!(talk(0, &[]).0, Err(HandshakeError::Flags(0)));
    assert_eq!(talk(7, &[]).0, Err(HandshakeError::Flags(7)));
    let magic = talk(1, &[vec![b'x'; 16]]).0;
    assert!(matches!(magic, Err(HandshakeError::Magic(_))));
    let mut long = encoded(option::LIST, &[]);
    long[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    assert!(matches!(talk(1, &[long]).0, Err(HandshakeError::TooLong { .. })));
    let flood = vec![encoded(option::LIST, &[]); 257];
    assert_eq!(talk(1, &flood).0, Err(HandshakeError::TooMany));
    assert_eq!(talk(1, &[encoded(option::ABORT, &[])]).0, Ok(Next::Leave));
}

#[test]
fn lengths_that_do_not_agree_are_told() {
    for data in [
        &[][..],
        &[0, 0, 0, 9, 1],
        &[0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 1, 0xff, 0, 0],
    ] {
        let (next, output) = talk(1, &[encoded(option::GO, data)]);
        assert_eq!((next, kinds(&output)), (Ok(Next::More), vec![ERR_INVALID]));
    }
    let list = encoded(option::LIST_META_CONTEXT, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(kinds(&talk(1, &[list]).1), [ERR_INVALID]);
}

proptest! {
    #![proptest_config(Config { cases: 200, rng_seed: RngSeed::Fixed(10809), failure_persistence: None, ..Config::default() })]

    #[test]
    fn however_the_bytes_come_the_answer_is_the_same(cuts in prop::collection::vec(1..40usize, 1..30)) {
        let options = [encoded(option::LIST, &[]), encoded(99, b"abc"), go("disk")];
        let (want, told) = talk(3, &options);
        let whole = [&3_u32.to_be_bytes()[..], &options.concat()].concat();
        let (mut handshake, mut input, mut output) = (Handshake::default(), Vec::new(), Vec::new());
        let mut next = Ok(Next::More);
        let mut rest = &whole[..];
        for cut in cuts.into_iter().chain([whole.len()]) {
            let (part, left) = rest.split_at(cut.min(rest.len()));
            rest = left;
            input.extend(part);
            if next == Ok(Next::More) {
                next = run(&mut handshake, &mut input, &mut output);
            }
        }
        prop_assert_eq!((next, output), (want, told));
    }

    #[test]
    fn no_bytes_make_it_panic(number in 0..12_u32, bytes in prop::collection::vec(any::<u8>(), 0..200), as_option in any::<bool>()) {
        let mut input = if as_option {
            [&[0, 0, 0, 3][..], &encoded(option::STRUCTURED_REPLY, &[]), &encoded(number, &bytes)].concat()
        } else {
            bytes
        };
        let _ = run(&mut Handshake::new(Tls::Offered), &mut input, &mut Vec::new());
    }
}
