//! Encoding of handshake options and their replies.

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Maximum data of an option. Valid options hold a name of at most 4096 bytes and a few numbers.
const MAX_OPTION_DATA: usize = 16 << 10;

pub(super) const EXPORT_NAME: u32 = 1;
pub(super) const ABORT: u32 = 2;
pub(super) const LIST: u32 = 3;
pub(super) const STARTTLS: u32 = 5;
pub(super) const INFO: u32 = 6;
pub(super) const GO: u32 = 7;
pub(super) const STRUCTURED_REPLY: u32 = 8;
pub(super) const LIST_META_CONTEXT: u32 = 9;
pub(super) const SET_META_CONTEXT: u32 = 10;

pub(super) const ACK: u32 = 1;
pub(super) const SERVER: u32 = 2;
pub(super) const REP_INFO: u32 = 3;
pub(super) const META_CONTEXT: u32 = 4;
pub(super) const ERR_UNSUP: u32 = 0x8000_0001;
pub(super) const ERR_POLICY: u32 = 0x8000_0002;
pub(super) const ERR_INVALID: u32 = 0x8000_0003;
pub(super) const ERR_TLS_REQD: u32 = 0x8000_0005;
pub(super) const ERR_UNKNOWN: u32 = 0x8000_0006;

/// The data is not a valid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The data is not an NBD option.
    #[error("the client does not speak NBD: it sent {0:02x?} instead of an option")]
    Magic([u8; 8]),
    /// An option has too much data.
    #[error("option {option} has {len} bytes of data; the maximum is {MAX_OPTION_DATA}")]
    TooLong {
        /// Option number.
        option: u32,
        /// Length of its data, in bytes.
        len: u32,
    },
}

/// Removes the first option from the front of `input`, once it is complete. Returns its number and data.
pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<(u32, Vec<u8>)>, OptionError> {
    let Some((magic, option, len, rest)) = header(input) else {
        return Ok(None);
    };
    if magic != OPTION_MAGIC {
        return Err(OptionError::Magic(*magic));
    }
    let data_len = len as usize;
    if data_len > MAX_OPTION_DATA {
        return Err(OptionError::TooLong { option, len });
    }
    let Some(data) = rest.get(..data_len).map(<[u8]>::to_vec) else {
        return Ok(None);
    };
    input.drain(..16 + data_len);
    Ok(Some((option, data)))
}

/// Magic number, option and length of its data, and what follows.
fn header(input: &[u8]) -> Option<(&[u8; 8], u32, u32, &[u8])> {
    let (magic, rest) = input.split_first_chunk()?;
    let (option, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    Some((magic, u32::from_be_bytes(*option), u32::from_be_bytes(*len), rest))
}

/// Appends a reply to `option` to `output`.
pub(super) fn reply(output: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    output.extend(REPLY_MAGIC.to_be_bytes());
    output.extend(option.to_be_bytes());
    output.extend(kind.to_be_bytes());
    output.extend(u32::try_from(data.len()).unwrap_or_default().to_be_bytes());
    output.extend(data);
}

/// Removes a length-prefixed string from the front of `data`.
pub(super) fn text<'a>(data: &mut &'a [u8]) -> Option<&'a str> {
    let (len, rest) = data.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    *data = rest;
    std::str::from_utf8(text).ok()
}

/// Encodes a string with its length in front.
pub(super) fn length_prefixed(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap_or_default();
    [&len.to_be_bytes()[..], text.as_bytes()].concat()
}

/// Encodes an option as a client sends it.
#[must_use]
pub fn encode_option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap_or_default();
    [OPTION_MAGIC, &number.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}
