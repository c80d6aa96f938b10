//! Parsing and validation of requests.

/// Length of a request header, in bytes. The data of a write follows.
pub const REQUEST_HEADER_LEN: usize = 28;

/// Maximum length of a read or write, in bytes. By default, clients should not exceed 32 MiB, but the tests
/// of the reference client do. Requests are processed in chunks, so a higher maximum costs no memory.
pub const MAX_PAYLOAD: u32 = 64 << 20;

const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The command of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send data.
    Read,
    /// Receive the data that follows.
    Write,
    /// The client disconnects; no reply.
    Disconnect,
    /// All writes answered before are on stable storage before the reply.
    Flush,
    /// Discard a range.
    Trim,
    /// Start readahead.
    Cache,
    /// Zero a range.
    WriteZeroes,
    /// Report allocation.
    BlockStatus,
    /// A command that was not offered.
    Unknown(u16),
}

/// A parsed request header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// FUA: on stable storage before the reply.
    pub fua: bool,
    /// NO_HOLE: write-zeroes must not create a hole.
    pub no_hole: bool,
    /// DF: the reply to a read must be one chunk.
    pub dont_fragment: bool,
    /// REQ_ONE: report only one extent.
    pub one_extent: bool,
    /// FAST_ZERO: zero only if that is faster than writing zeros.
    pub fast_zero: bool,
    /// Flags that were not offered are set.
    pub unknown_flags: bool,
    /// Cookie that identifies the reply.
    pub cookie: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
}

const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 2;
const FLAG_DF: u16 = 4;
const FLAG_REQ_ONE: u16 = 8;
const FLAG_FAST_ZERO: u16 = 16;
const KNOWN_FLAGS: u16 = FLAG_FUA | FLAG_NO_HOLE | FLAG_DF | FLAG_REQ_ONE | FLAG_FAST_ZERO;

/// An error reply; the values are those of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NbdError {
    /// The export is read-only.
    Permission = 1,
    /// Storage failed.
    Io = 5,
    /// The server is out of memory.
    NoMemory = 12,
    /// The request is beyond the end of the export, or not a valid request.
    Invalid = 22,
    /// The storage is full, or a write is beyond the end.
    NoSpace = 28,
    /// FAST_ZERO would not be faster than writing zeros.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Request {
    /// Parses a request header. `None` if the magic is wrong; the stream is out of sync then.
    #[must_use]
    pub fn parse(header: &[u8; REQUEST_HEADER_LEN]) -> Option<Self> {
        let (magic, rest) = header.split_first_chunk()?;
        let (flags, rest) = rest.split_first_chunk()?;
        let (command, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (length, _) = rest.split_first_chunk()?;
        if u32::from_be_bytes(*magic) != REQUEST_MAGIC {
            return None;
        }
        let flags = u16::from_be_bytes(*flags);
        Some(Self {
            command: match u16::from_be_bytes(*command) {
                0 => Command::Read,
                1 => Command::Write,
                2 => Command::Disconnect,
                3 => Command::Flush,
                4 => Command::Trim,
                5 => Command::Cache,
                6 => Command::WriteZeroes,
                7 => Command::BlockStatus,
                other => Command::Unknown(other),
            },
            fua: flags & FLAG_FUA != 0,
            no_hole: flags & FLAG_NO_HOLE != 0,
            dont_fragment: flags & FLAG_DF != 0,
            one_extent: flags & FLAG_REQ_ONE != 0,
            fast_zero: flags & FLAG_FAST_ZERO != 0,
            unknown_flags: flags & !KNOWN_FLAGS != 0,
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    /// Whether the command modifies the export.
    #[must_use]
    pub const fn modifies_export(&self) -> bool {
        matches!(
            self.command,
            Command::Write | Command::Trim | Command::WriteZeroes
        )
    }

    /// Whether a flag is set that this command does not allow.
    const fn has_invalid_flags(&self) -> bool {
        let no_hole = self.no_hole && !matches!(self.command, Command::WriteZeroes);
        let fast_zero = self.fast_zero && !matches!(self.command, Command::WriteZeroes);
        let dont_fragment = self.dont_fragment && !matches!(self.command, Command::Read);
        let one_extent = self.one_extent && !matches!(self.command, Command::BlockStatus);
        self.unknown_flags || no_hole || fast_zero || dont_fragment || one_extent
    }

    /// Validates the request for an export of `size` bytes. Returns the error to reply with, if invalid.
    #[must_use]
    pub fn validation_error(&self, size: u64, read_only: bool) -> Option<NbdError> {
        let end = self.offset.checked_add(u64::from(self.length));
        let is_beyond_end = self.command != Command::Flush && end.is_none_or(|end| end > size);
        match self.command {
            Command::Unknown(_) => Some(NbdError::Invalid),
            Command::BlockStatus if self.length == 0 => Some(NbdError::Invalid),
            Command::Read | Command::Write if self.length > MAX_PAYLOAD => Some(NbdError::Invalid),
            _ if self.has_invalid_flags() => Some(NbdError::Invalid),
            _ if self.modifies_export() && read_only => Some(NbdError::Permission),
            Command::Write | Command::WriteZeroes if is_beyond_end => Some(NbdError::NoSpace),
            _ if is_beyond_end => Some(NbdError::Invalid),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn header(flags: u16, command: u16, offset: u64, length: u32) -> [u8; REQUEST_HEADER_LEN] {
        let parts = [
            &REQUEST_MAGIC.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &7_u64.to_be_bytes(),
            &offset.to_be_bytes(),
            &length.to_be_bytes(),
        ];
        parts.concat().try_into().unwrap()
    }

    fn validate(flags: u16, command: u16, offset: u64, length: u32, read_only: bool) -> Option<NbdError> {
        Request::parse(&header(flags, command, offset, length))
            .unwrap()
            .validation_error(100, read_only)
    }

    #[test]
    fn parse_reads_request_header() {
        let request = Request::parse(&header(3, 6, 10, 20)).unwrap();
        assert_eq!(request.command, Command::WriteZeroes);
        assert!(request.fua && request.no_hole && !request.unknown_flags);
        assert_eq!((request.cookie, request.offset, request.length), (7, 10, 20));
        assert_eq!(Request::parse(&[0; REQUEST_HEADER_LEN]), None);
    }

    #[test]
    fn validation_returns_protocol_error_codes() {
        assert_eq!(validate(0, 0, 90, 10, true), None);
        assert_eq!(validate(0, 0, 90, 11, true), Some(NbdError::Invalid));
        assert_eq!(validate(0, 0, u64::MAX, 1, true), Some(NbdError::Invalid));
        assert_eq!(validate(0, 1, 90, 11, false), Some(NbdError::NoSpace));
        assert_eq!(validate(0, 1, 0, 1, true), Some(NbdError::Permission));
        assert_eq!(validate(0, 3, u64::MAX, 1, true), None);
        assert_eq!(validate(4, 0, 0, 1, true), None);
        assert_eq!(validate(0, 77, 0, 1, false), Some(NbdError::Invalid));
        assert_eq!(validate(0, 7, 0, 0, false), Some(NbdError::Invalid));
        assert_eq!(validate(8, 7, 0, 1, false), None);
        assert_eq!(validate(1 << 9, 0, 0, 1, false), Some(NbdError::Invalid));
    }
}
