//! Negotiation, without a socket: bytes of the client in, bytes of the server out, and at the end an export.

use super::option::{self, LONGEST_OPTION, answer, text, with_length};
use super::reply::{ALLOCATION_ID, Style};

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

const ALLOCATION: &str = "base:allocation";

/// What the server says first: two magic numbers and its flags (fixed newstyle, no zeroes).
#[must_use]
pub fn greeting() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT".to_vec();
    bytes.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;
const FLAG_SEND_DF: u16 = 1 << 7;
/// A client needs a handful; one that sends more has another aim.
const MOST_OPTIONS: u32 = 256;

/// What a client is told about an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The name it is known by.
    pub name: String,
    /// For people.
    pub description: String,
    /// Its length in bytes.
    pub size: u64,
    /// What it can do: `NBD_FLAG_*` of the protocol.
    pub flags: u16,
    /// Requests that are multiples of this are done best.
    pub preferred: u32,
    /// The largest request it takes.
    pub largest: u32,
}

/// Whether the connection is, may be, or must be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// Not offered.
    #[default]
    None,
    /// Offered.
    Offered,
    /// Nothing but `STARTTLS` is answered before it.
    Required,
    /// Encrypted already.
    Active,
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
    /// As above, where it could not be told why.
    #[error("the client asked for an export in the clear, and encryption is required")]
    Plain,
    /// Somebody may have put it there.
    #[error("bytes came behind STARTTLS that are not encrypted")]
    BehindStartTls,
}

/// What a client chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The export, by the name the client used.
    pub name: String,
    /// How it wants its answers.
    pub style: Style,
    /// It may ask which bytes are stored.
    pub allocation: bool,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More bytes of the client are needed.
    More,
    /// An option was answered; perhaps there is another.
    Answered,
    /// When the answer is sent, encryption begins.
    StartTls,
    /// The client chose; requests follow.
    Export(Chosen),
    /// The client leaves.
    Leave,
}

/// The state of one negotiation.
#[derive(Debug, Default)]
pub struct Handshake {
    flags: Option<u32>,
    options: u32,
    tls: Tls,
    structured: bool,
    /// The export for which `base:allocation` was chosen.
    allocation: Option<String>,
}

impl Handshake {
    /// One that offers encryption, or not.
    #[must_use]
    pub fn new(tls: Tls) -> Self {
        Self {
            tls,
            ..Self::default()
        }
    }

    /// Takes an option, if there is one, from the front of `input` and adds the answer to `output`, which is to be sent
    /// whatever comes next.
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
        let Some((number, data)) = option::take(input)? else {
            return Ok(Next::More);
        };
        self.options += 1;
        if self.options > MOST_OPTIONS {
            return Err(HandshakeError::TooMany);
        }
        match (self.tls, number) {
            (_, option::ABORT) => {
                answer(output, number, option::ACK, &[]);
                Ok(Next::Leave)
            }
            (_, option::STARTTLS) => self.start_tls(&data, input, output),
            (Tls::Required, option::EXPORT_NAME) => Err(HandshakeError::Plain),
            (Tls::Required, _) => {
                answer(output, number, option::ERR_TLS_REQD, b"begin with STARTTLS");
                Ok(Next::Answered)
            }
            (_, option::EXPORT_NAME) => {
                let zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
                self.export_name(&data, zeroes, output, exports)
            }
            _ => Ok(self.option(number, &data, output, exports)),
        }
    }

    // What a client sent in the clear behind it could have come from somebody in between, so that ends it.
    fn start_tls(&mut self, data: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        let refused = match self.tls {
            _ if !data.is_empty() => Some((option::ERR_INVALID, &b"STARTTLS takes no data"[..])),
            Tls::None => Some((option::ERR_POLICY, &b"encryption is not set up here"[..])),
            Tls::Active => Some((option::ERR_INVALID, &b"it is encrypted already"[..])),
            Tls::Offered | Tls::Required => None,
        };
        if let Some((kind, why)) = refused {
            answer(output, option::STARTTLS, kind, why);
            return Ok(Next::Answered);
        }
        if !input.is_empty() {
            return Err(HandshakeError::BehindStartTls);
        }
        answer(output, option::STARTTLS, option::ACK, &[]);
        self.tls = Tls::Active;
        self.structured = false;
        self.allocation = None;
        Ok(Next::StartTls)
    }

    fn export_name(
        &self,
        data: &[u8],
        zeroes: bool,
        output: &mut Vec<u8>,
        exports: &dyn Directory,
    ) -> Result<Next, HandshakeError> {
        let name = String::from_utf8_lossy(data).into_owned();
        let Some(facts) = exports.find(&name) else {
            return Err(HandshakeError::UnknownExport(name));
        };
        output.extend(facts.size.to_be_bytes());
        output.extend(self.flags_of(&facts).to_be_bytes());
        output.extend(std::iter::repeat_n(0, if zeroes { 124 } else { 0 }));
        Ok(Next::Export(self.chosen(name)))
    }

    fn option(&mut self, number: u32, data: &[u8], output: &mut Vec<u8>, exports: &dyn Directory) -> Next {
        match number {
            option::LIST if data.is_empty() => list(output, exports),
            option::LIST => answer(output, number, option::ERR_INVALID, b"LIST takes no data"),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(output, number, option::ACK, &[]);
            }
            option::STRUCTURED_REPLY => {
                answer(
                    output,
                    number,
                    option::ERR_INVALID,
                    b"STRUCTURED_REPLY takes no data",
                );
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, output, exports);
            }
            option::INFO | option::GO => match self.info(number, data, output, exports) {
                Some(name) if number == option::GO => return Next::Export(self.chosen(name)),
                _ => {}
            },
            _ => answer(output, number, option::ERR_UNSUP, b"not offered"),
        }
        Next::Answered
    }

    fn chosen(&self, name: String) -> Chosen {
        let allocation = self.structured && self.allocation.as_ref() == Some(&name);
        let style = if self.structured {
            Style::Structured
        } else {
            Style::Simple
        };
        Chosen {
            name,
            style,
            allocation,
        }
    }

    fn flags_of(&self, facts: &Facts) -> u16 {
        facts.flags | if self.structured { FLAG_SEND_DF } else { 0 }
    }

    // The data: the name, how many kinds of information are wanted, the kinds. Name and description go to who asked.
    fn info(
        &self,
        number: u32,
        data: &[u8],
        output: &mut Vec<u8>,
        exports: &dyn Directory,
    ) -> Option<String> {
        let Some((name, kinds)) = name_and_kinds(data) else {
            let why = b"the lengths in it do not agree, or the name is not UTF-8";
            answer(output, number, option::ERR_INVALID, why);
            return None;
        };
        let Some(facts) = exports.find(name) else {
            answer(output, number, option::ERR_UNKNOWN, b"there is no such export");
            return None;
        };
        let mut tell = |kind: u16, parts: &[&[u8]]| {
            let data = [&kind.to_be_bytes()[..], &parts.concat()].concat();
            answer(output, number, option::REP_INFO, &data);
        };
        let flags = self.flags_of(&facts);
        tell(INFO_EXPORT, &[&facts.size.to_be_bytes(), &flags.to_be_bytes()]);
        if kinds.contains(&INFO_NAME) {
            tell(INFO_NAME, &[facts.name.as_bytes()]);
        }
        if kinds.contains(&INFO_DESCRIPTION) && !facts.description.is_empty() {
            tell(INFO_DESCRIPTION, &[facts.description.as_bytes()]);
        }
        let sizes = [1, facts.preferred, facts.largest].map(u32::to_be_bytes);
        tell(INFO_BLOCK_SIZE, &[&sizes.concat()]);
        answer(output, number, option::ACK, &[]);
        Some(name.to_owned())
    }

    // The data: the name, the number of queries, the queries. No query to LIST means all there are, to SET none.
    fn contexts(&mut self, number: u32, data: &[u8], output: &mut Vec<u8>, exports: &dyn Directory) {
        let sets = number == option::SET_META_CONTEXT;
        if sets {
            self.allocation = None;
        }
        if sets && !self.structured {
            answer(
                output,
                number,
                option::ERR_INVALID,
                b"STRUCTURED_REPLY comes first",
            );
            return;
        }
        let Some((name, queries)) = name_and_queries(data) else {
            let why = b"the lengths in it do not agree, or a text is not UTF-8";
            answer(output, number, option::ERR_INVALID, why);
            return;
        };
        if exports.find(name).is_none() {
            answer(output, number, option::ERR_UNKNOWN, b"there is no such export");
            return;
        }
        let all = !sets && (queries.is_empty() || queries.contains(&"base:"));
        if all || queries.contains(&ALLOCATION) {
            let id = if sets { ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat();
            answer(output, number, option::META_CONTEXT, &context);
            if sets {
                self.allocation = Some(name.to_owned());
            }
        }
        answer(output, number, option::ACK, &[]);
    }
}

fn list(output: &mut Vec<u8>, exports: &dyn Directory) {
    for name in exports.names() {
        answer(output, option::LIST, option::SERVER, &with_length(&name));
    }
    answer(output, option::LIST, option::ACK, &[]);
}

fn name_and_kinds(mut data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let name = text(&mut data)?;
    let (count, kinds) = data.split_first_chunk()?;
    let (kinds, rest) = kinds.as_chunks();
    let agrees = rest.is_empty() && kinds.len() == usize::from(u16::from_be_bytes(*count));
    agrees.then(|| (name, kinds.iter().map(|kind| u16::from_be_bytes(*kind)).collect()))
}

fn name_and_queries(mut data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let name = text(&mut data)?;
    let (count, mut rest) = data.split_first_chunk()?;
    let mut queries = Vec::new();
    for _ in 0..u32::from_be_bytes(*count) {
        queries.push(text(&mut rest)?);
    }
    rest.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests;
