//! The handshake: consumes bytes of the client, produces bytes of the server, and ends with the choice of an
//! export.

use super::option::{self, OptionError, length_prefixed, reply, text};
use super::reply::{ALLOCATION_ID, ReplyStyle};

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

const ALLOCATION: &str = "base:allocation";

/// The first message of the server: two magic numbers and the handshake flags (fixed newstyle, no zeroes).
#[must_use]
pub fn greeting() -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT".to_vec();
    bytes.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;
const FLAG_SEND_DF: u16 = 1 << 7;
/// Maximum number of options in one handshake. A normal client sends a handful.
const MAX_OPTIONS: u32 = 256;

/// An export as described to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name of the export.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Length in bytes.
    pub size: u64,
    /// Transmission flags: `NBD_FLAG_*` of the protocol.
    pub flags: u16,
    /// Preferred block size, in bytes.
    pub preferred_block: u32,
    /// Maximum block size (payload of one request), in bytes.
    pub max_payload: u32,
}

/// State of TLS on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// Not offered.
    #[default]
    None,
    /// Offered.
    Offered,
    /// Required: only `STARTTLS` is accepted before.
    Required,
    /// The connection is encrypted.
    Active,
}

/// A directory of exports.
pub trait Directory {
    /// The export called `name`. The empty name means the default export.
    fn find(&self, name: &str) -> Option<ExportInfo>;
    /// The names of all exports.
    fn names(&self) -> Vec<String>;
}

/// The handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The data is not a valid option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The client does not support fixed newstyle, or set flags that were not offered.
    #[error(
        "the client sent flags {0:#x}; only fixed newstyle (1) and no zeroes (2) are supported, and fixed newstyle is required"
    )]
    Flags(u32),
    /// Too many options.
    #[error("the client sent {MAX_OPTIONS} options without choosing an export")]
    TooMany,
    /// `EXPORT_NAME` named an unknown export. The option has no error reply, so the server disconnects.
    #[error("the client requested export {0:?}, which does not exist")]
    UnknownExport(String),
    /// `EXPORT_NAME` on an unencrypted connection although TLS is required. The option has no error reply.
    #[error("the client requested an export without TLS, but TLS is required")]
    Plain,
    /// Plain data followed `STARTTLS`. An attacker may have injected it.
    #[error("unencrypted data followed STARTTLS")]
    BehindStartTls,
}

/// The export and options that a client chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenExport {
    /// Name of the export, as sent by the client.
    pub name: String,
    /// Format of replies.
    pub style: ReplyStyle,
    /// The client may query `base:allocation`.
    pub allocation: bool,
}

/// The next step of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More data of the client is needed.
    NeedMore,
    /// An option was handled; another may follow.
    Answered,
    /// After the reply is sent, TLS starts.
    StartTls,
    /// The client chose an export; requests follow.
    Export(ChosenExport),
    /// The client aborted.
    Disconnect,
}

/// The state of one handshake.
#[derive(Debug, Default)]
pub struct Handshake {
    flags: Option<u32>,
    options: u32,
    tls: Tls,
    structured: bool,
    /// The export for which the client selected `base:allocation`.
    allocation: Option<String>,
}

impl Handshake {
    /// A handshake that offers TLS according to `tls`.
    #[must_use]
    pub fn new(tls: Tls) -> Self {
        Self {
            tls,
            ..Self::default()
        }
    }

    /// Consumes one option from the front of `input`, if it is complete, and appends the reply to `output`.
    /// Send `output` whatever the result is.
    ///
    /// # Errors
    /// The client violates the protocol. The connection must be closed.
    pub fn step(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        exports: &dyn Directory,
    ) -> Result<Next, HandshakeError> {
        let Some(flags) = self.flags else {
            let Some((bytes, _)) = input.split_first_chunk() else {
                return Ok(Next::NeedMore);
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
            return Ok(Next::NeedMore);
        };
        self.options += 1;
        if self.options > MAX_OPTIONS {
            return Err(HandshakeError::TooMany);
        }
        match (self.tls, number) {
            (_, option::ABORT) => {
                reply(output, number, option::ACK, &[]);
                Ok(Next::Disconnect)
            }
            (_, option::STARTTLS) => self.start_tls(&data, input, output),
            (Tls::Required, option::EXPORT_NAME) => Err(HandshakeError::Plain),
            (Tls::Required, _) => {
                reply(
                    output,
                    number,
                    option::ERR_TLS_REQD,
                    b"STARTTLS is required first",
                );
                Ok(Next::Answered)
            }
            (_, option::EXPORT_NAME) => {
                let zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
                self.export_name(&data, zeroes, output, exports)
            }
            _ => Ok(self.option(number, &data, output, exports)),
        }
    }

    // Plain data after STARTTLS could be injected by an attacker, so it ends the connection.
    fn start_tls(&mut self, data: &[u8], input: &[u8], output: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        let refused = match self.tls {
            _ if !data.is_empty() => Some((option::ERR_INVALID, &b"STARTTLS takes no data"[..])),
            Tls::None => Some((option::ERR_POLICY, &b"TLS is not configured"[..])),
            Tls::Active => Some((option::ERR_INVALID, &b"the connection is encrypted already"[..])),
            Tls::Offered | Tls::Required => None,
        };
        if let Some((kind, why)) = refused {
            reply(output, option::STARTTLS, kind, why);
            return Ok(Next::Answered);
        }
        if !input.is_empty() {
            return Err(HandshakeError::BehindStartTls);
        }
        reply(output, option::STARTTLS, option::ACK, &[]);
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
        let Some(info) = exports.find(&name) else {
            return Err(HandshakeError::UnknownExport(name));
        };
        output.extend(info.size.to_be_bytes());
        output.extend(self.flags_of(&info).to_be_bytes());
        output.extend(std::iter::repeat_n(0, if zeroes { 124 } else { 0 }));
        Ok(Next::Export(self.chosen(name)))
    }

    fn option(&mut self, number: u32, data: &[u8], output: &mut Vec<u8>, exports: &dyn Directory) -> Next {
        match number {
            option::LIST if data.is_empty() => list(output, exports),
            option::LIST => reply(output, number, option::ERR_INVALID, b"LIST takes no data"),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                reply(output, number, option::ACK, &[]);
            }
            option::STRUCTURED_REPLY => {
                reply(
                    output,
                    number,
                    option::ERR_INVALID,
                    b"STRUCTURED_REPLY takes no data",
                );
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_contexts(number, data, output, exports);
            }
            option::INFO | option::GO => match self.info(number, data, output, exports) {
                Some(name) if number == option::GO => return Next::Export(self.chosen(name)),
                _ => {}
            },
            _ => reply(output, number, option::ERR_UNSUP, b"option is not supported"),
        }
        Next::Answered
    }

    fn chosen(&self, name: String) -> ChosenExport {
        let allocation = self.structured && self.allocation.as_ref() == Some(&name);
        let style = if self.structured {
            ReplyStyle::Structured
        } else {
            ReplyStyle::Simple
        };
        ChosenExport {
            name,
            style,
            allocation,
        }
    }

    fn flags_of(&self, info: &ExportInfo) -> u16 {
        info.flags | if self.structured { FLAG_SEND_DF } else { 0 }
    }

    // Data: the name, the number of information requests, the requests. Name and description are sent only if
    // requested.
    fn info(
        &self,
        number: u32,
        data: &[u8],
        output: &mut Vec<u8>,
        exports: &dyn Directory,
    ) -> Option<String> {
        let Some((name, kinds)) = name_and_kinds(data) else {
            let why = b"inconsistent lengths, or the name is not UTF-8";
            reply(output, number, option::ERR_INVALID, why);
            return None;
        };
        let Some(info) = exports.find(name) else {
            reply(output, number, option::ERR_UNKNOWN, b"the export does not exist");
            return None;
        };
        let mut send_info = |kind: u16, parts: &[&[u8]]| {
            let data = [&kind.to_be_bytes()[..], &parts.concat()].concat();
            reply(output, number, option::REP_INFO, &data);
        };
        let flags = self.flags_of(&info);
        send_info(INFO_EXPORT, &[&info.size.to_be_bytes(), &flags.to_be_bytes()]);
        if kinds.contains(&INFO_NAME) {
            send_info(INFO_NAME, &[info.name.as_bytes()]);
        }
        if kinds.contains(&INFO_DESCRIPTION) && !info.description.is_empty() {
            send_info(INFO_DESCRIPTION, &[info.description.as_bytes()]);
        }
        let sizes = [1, info.preferred_block, info.max_payload].map(u32::to_be_bytes);
        send_info(INFO_BLOCK_SIZE, &[&sizes.concat()]);
        reply(output, number, option::ACK, &[]);
        Some(name.to_owned())
    }

    // Data: the name, the number of queries, the queries. Without queries, LIST means all contexts and SET
    // means none.
    fn meta_contexts(&mut self, number: u32, data: &[u8], output: &mut Vec<u8>, exports: &dyn Directory) {
        let is_set = number == option::SET_META_CONTEXT;
        if is_set {
            self.allocation = None;
        }
        if is_set && !self.structured {
            reply(
                output,
                number,
                option::ERR_INVALID,
                b"STRUCTURED_REPLY is required first",
            );
            return;
        }
        let Some((name, queries)) = name_and_queries(data) else {
            let why = b"inconsistent lengths, or a string is not UTF-8";
            reply(output, number, option::ERR_INVALID, why);
            return;
        };
        if exports.find(name).is_none() {
            reply(output, number, option::ERR_UNKNOWN, b"the export does not exist");
            return;
        }
        let all = !is_set && (queries.is_empty() || queries.contains(&"base:"));
        if all || queries.contains(&ALLOCATION) {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat();
            reply(output, number, option::META_CONTEXT, &context);
            if is_set {
                self.allocation = Some(name.to_owned());
            }
        }
        reply(output, number, option::ACK, &[]);
    }
}

fn list(output: &mut Vec<u8>, exports: &dyn Directory) {
    for name in exports.names() {
        reply(output, option::LIST, option::SERVER, &length_prefixed(&name));
    }
    reply(output, option::LIST, option::ACK, &[]);
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
