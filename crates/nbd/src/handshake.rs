//! Negotiation, without a socket: bytes of the client in, bytes of the server out, and at the end an export.

/// What the server says first: two magic numbers and its flags (fixed newstyle, no zeroes).
#[must_use]
pub fn greeting() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT".to_vec();
    bytes.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_ABORT: u32 = 2;
const OPT_LIST: u32 = 3;
const OPT_INFO: u32 = 6;
const OPT_GO: u32 = 7;

const REP_ACK: u32 = 1;
const REP_SERVER: u32 = 2;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 0x8000_0001;
const REP_ERR_INVALID: u32 = 0x8000_0003;
const REP_ERR_UNKNOWN: u32 = 0x8000_0006;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// An option's data: a name of at most 4096 bytes and some numbers. Longer ones are no option of ours.
const LONGEST_OPTION: usize = 16 << 10;
/// A client needs a handful; one that sends more has another aim.
const MOST_OPTIONS: u32 = 256;

/// What a client is told about an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Its length in bytes.
    pub size: u64,
    /// What it can do: `NBD_FLAG_*` of the protocol.
    pub flags: u16,
    /// The largest request it takes.
    pub largest: u32,
}

/// Where names are looked up.
pub trait Directory {
    /// What there is under `name`. The empty name is the default export.
    fn find(&self, name: &str) -> Option<Facts>;
    /// All names.
    fn names(&self) -> Vec<String>;
}

/// Why a negotiation ended without an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The client sent something else.
    #[error("the client does not speak NBD: it sent {0:02x?} where an option should begin")]
    Magic([u8; 8]),
    /// It does not know fixed newstyle, or sent flags we did not offer.
    #[error("the client's flags are {0:#x}; only fixed newstyle (1) and no zeroes (2) are offered")]
    Flags(u32),
    /// More than an option may hold.
    #[error("option {option} has {len} bytes of data, the most is {LONGEST_OPTION}")]
    TooLong {
        /// Its number.
        option: u32,
        /// Its length.
        len: u32,
    },
    /// Too many options.
    #[error("the client sent {MOST_OPTIONS} options and chose no export")]
    TooMany,
    /// `EXPORT_NAME` has no way to say no but to hang up.
    #[error("the client asked for export {0:?}, which does not exist")]
    UnknownExport(String),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More bytes of the client are needed.
    More,
    /// The client chose the export of this name; requests follow.
    Export(String),
    /// The client leaves.
    Leave,
}

/// The state of one negotiation.
#[derive(Debug, Default)]
pub struct Handshake {
    flags: Option<u32>,
    options: u32,
}

impl Handshake {
    /// Takes what it can from the front of `input` and adds answers to `output`, which are to be sent whatever comes
    /// next.
    ///
    /// # Errors
    /// When the client does not keep to the protocol; the connection is to be closed.
    pub fn step(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        exports: &dyn Directory,
    ) -> Result<Next, HandshakeError> {
        let Some(flags) = self.flags else {
            let Some((bytes, _)) = input.split_first_chunk() else {
                return Ok(Next::More);
            };
            let flags = u32::from_be_bytes(*bytes);
            let offered = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
            if flags & !offered != 0 || flags & u32::from(FLAG_FIXED_NEWSTYLE) == 0 {
                return Err(HandshakeError::Flags(flags));
            }
            input.drain(..4);
            self.flags = Some(flags);
            return self.step(input, output, exports);
        };
        while let Some((option, data)) = take_option(input)? {
            self.options += 1;
            if self.options > MOST_OPTIONS {
                return Err(HandshakeError::TooMany);
            }
            let zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
            match answer(option, &data, zeroes, output, exports)? {
                Next::More => {}
                done => return Ok(done),
            }
        }
        Ok(Next::More)
    }
}

fn take_option(input: &mut Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, HandshakeError> {
    let Some((head, rest)) = input.split_first_chunk::<16>() else {
        return Ok(None);
    };
    let magic = [0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| head[at]);
    if magic != *OPTION_MAGIC {
        return Err(HandshakeError::Magic(magic));
    }
    let (option, len) = (be32(head, 8), be32(head, 12));
    let wanted = len as usize;
    if wanted > LONGEST_OPTION {
        return Err(HandshakeError::TooLong { option, len });
    }
    if rest.len() < wanted {
        return Ok(None);
    }
    let data = rest[..wanted].to_vec();
    input.drain(..16 + wanted);
    Ok(Some((option, data)))
}

fn answer(
    option: u32,
    data: &[u8],
    zeroes: bool,
    output: &mut Vec<u8>,
    exports: &dyn Directory,
) -> Result<Next, HandshakeError> {
    match option {
        OPT_EXPORT_NAME => {
            let name = String::from_utf8_lossy(data).into_owned();
            let Some(facts) = exports.find(&name) else {
                return Err(HandshakeError::UnknownExport(name));
            };
            output.extend(facts.size.to_be_bytes());
            output.extend(facts.flags.to_be_bytes());
            output.extend(std::iter::repeat_n(0, if zeroes { 124 } else { 0 }));
            return Ok(Next::Export(name));
        }
        OPT_ABORT => {
            reply(output, option, REP_ACK, &[]);
            return Ok(Next::Leave);
        }
        OPT_LIST if data.is_empty() => list(output, exports),
        OPT_LIST => reply(output, option, REP_ERR_INVALID, b"LIST takes no data"),
        OPT_INFO | OPT_GO => match info(option, data, output, exports) {
            Some(name) if option == OPT_GO => return Ok(Next::Export(name)),
            _ => {}
        },
        _ => reply(output, option, REP_ERR_UNSUP, b"not offered"),
    }
    Ok(Next::More)
}

fn list(output: &mut Vec<u8>, exports: &dyn Directory) {
    for name in exports.names() {
        let len = u32::try_from(name.len()).unwrap_or_default().to_be_bytes();
        reply(
            output,
            OPT_LIST,
            REP_SERVER,
            &[&len[..], name.as_bytes()].concat(),
        );
    }
    reply(output, OPT_LIST, REP_ACK, &[]);
}

// The data: the name's length, the name, how many kinds of information are wanted, the kinds. We tell the same
// whatever is wanted, which the protocol allows.
fn info(option: u32, data: &[u8], output: &mut Vec<u8>, exports: &dyn Directory) -> Option<String> {
    let parsed = data.split_first_chunk().and_then(|(len, rest)| {
        let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        let (count, kinds) = rest.split_first_chunk()?;
        (kinds.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(name)
    });
    let Some(name) = parsed.and_then(|name| std::str::from_utf8(name).ok()) else {
        reply(
            output,
            option,
            REP_ERR_INVALID,
            b"the lengths in it do not agree, or the name is not UTF-8",
        );
        return None;
    };
    let Some(facts) = exports.find(name) else {
        reply(output, option, REP_ERR_UNKNOWN, b"there is no such export");
        return None;
    };
    let mut export = INFO_EXPORT.to_be_bytes().to_vec();
    export.extend(facts.size.to_be_bytes());
    export.extend(facts.flags.to_be_bytes());
    reply(output, option, REP_INFO, &export);
    let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
    for size in [1, 4096, facts.largest] {
        sizes.extend(size.to_be_bytes());
    }
    reply(output, option, REP_INFO, &sizes);
    reply(output, option, REP_ACK, &[]);
    Some(name.to_owned())
}

fn reply(output: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    output.extend(REPLY_MAGIC.to_be_bytes());
    output.extend(option.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend(u32::try_from(data.len()).unwrap_or_default().to_be_bytes());
    output.extend(data);
}

fn be32(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngSeed};

    struct One;

    impl Directory for One {
        fn find(&self, name: &str) -> Option<Facts> {
            let facts = Facts {
                size: 5,
                flags: 1,
                largest: 1 << 20,
            };
            (name == "disk").then_some(facts)
        }

        fn names(&self) -> Vec<String> {
            vec!["disk".to_owned()]
        }
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap();
        [OPTION_MAGIC, &number.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
    }

    fn go(name: &str) -> Vec<u8> {
        let len = u32::try_from(name.len()).unwrap().to_be_bytes();
        option(OPT_GO, &[&len[..], name.as_bytes(), &[0, 0]].concat())
    }

    fn talk(flags: u32, options: &[Vec<u8>]) -> (Result<Next, HandshakeError>, Vec<u8>) {
        let mut input = [&flags.to_be_bytes()[..], &options.concat()].concat();
        let mut output = Vec::new();
        let next = Handshake::default().step(&mut input, &mut output, &One);
        (next, output)
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

    #[test]
    fn a_client_goes() {
        let structured_replies = option(8, &[]);
        let (next, output) = talk(
            3,
            &[
                structured_replies,
                option(OPT_LIST, &[]),
                go("nothing"),
                go("disk"),
            ],
        );
        assert_eq!(next, Ok(Next::Export("disk".to_owned())));
        let told = [
            REP_ERR_UNSUP,
            REP_SERVER,
            REP_ACK,
            REP_ERR_UNKNOWN,
            REP_INFO,
            REP_INFO,
            REP_ACK,
        ];
        assert_eq!(kinds(&output), told);
    }

    #[test]
    fn the_old_way_to_choose() {
        let (next, output) = talk(1, &[option(OPT_EXPORT_NAME, b"disk")]);
        assert_eq!((next, output.len()), (Ok(Next::Export("disk".to_owned())), 134));
        let (next, output) = talk(3, &[option(OPT_EXPORT_NAME, b"disk")]);
        assert_eq!((next.is_ok(), output), (true, vec![0, 0, 0, 0, 0, 0, 0, 5, 0, 1]));
        let (next, _) = talk(3, &[option(OPT_EXPORT_NAME, b"x")]);
        assert_eq!(next, Err(HandshakeError::UnknownExport("x".to_owned())));
    }

    #[test]
    fn who_does_not_keep_to_the_protocol_is_shut_out() {
        assert_eq!(talk(0, &[]).0, Err(HandshakeError::Flags(0)));
        assert_eq!(talk(7, &[]).0, Err(HandshakeError::Flags(7)));
        assert!(matches!(
            talk(1, &[vec![b'x'; 16]]).0,
            Err(HandshakeError::Magic(_))
        ));
        let mut long = option(OPT_LIST, &[]);
        long[12..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(talk(1, &[long]).0, Err(HandshakeError::TooLong { .. })));
        let flood = vec![option(OPT_LIST, &[]); 257];
        assert_eq!(talk(1, &flood).0, Err(HandshakeError::TooMany));
        assert_eq!(talk(1, &[option(OPT_ABORT, &[])]).0, Ok(Next::Leave));
    }

    #[test]
    fn lengths_that_do_not_agree_are_told() {
        for data in [
            &[][..],
            &[0, 0, 0, 9, 1],
            &[0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 1, 0xff, 0, 0],
        ] {
            let (next, output) = talk(1, &[option(OPT_GO, data)]);
            assert_eq!((next, kinds(&output)), (Ok(Next::More), vec![REP_ERR_INVALID]));
        }
    }

    proptest! {
        #![proptest_config(Config { cases: 200, rng_seed: RngSeed::Fixed(10809), failure_persistence: None, ..Config::default() })]

        #[test]
        fn however_the_bytes_come_the_answer_is_the_same(cuts in prop::collection::vec(1..40usize, 1..30)) {
            let options = [option(OPT_LIST, &[]), option(99, b"abc"), go("disk")];
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
                    next = handshake.step(&mut input, &mut output, &One);
                }
            }
            prop_assert_eq!((next, output), (want, told));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), as_option in any::<bool>()) {
            let mut input = if as_option { [&[0, 0, 0, 3][..], OPTION_MAGIC, &[0, 0, 0], &bytes].concat() } else { bytes };
            let _ = Handshake::default().step(&mut input, &mut Vec::new(), &One);
        }
    }
}
