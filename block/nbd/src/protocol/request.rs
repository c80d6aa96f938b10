//! Requests, as bytes, and why they are refused.

/// Bytes of a request's head; a write's data follows.
pub const HEAD: usize = 28;

/// The largest read or write. Clients should not ask for more than 32 MiB unless they are told that they may; the
/// reference client's own tests do. It is done in pieces, so more costs no memory.
pub const LARGEST_PAYLOAD: u32 = 64 << 20;

const REQUEST_MAGIC: u32 = 0x2560_9513;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send the bytes.
    Read,
    /// Take the bytes that follow.
    Write,
    /// The client leaves; no reply.
    Disconnect,
    /// All writes that were answered are on stable storage before this is answered.
    Flush,
    /// The bytes are not needed any more.
    Trim,
    /// The bytes will be read soon.
    Cache,
    /// The bytes read as zeros.
    WriteZeroes,
    /// Tell which bytes are stored.
    BlockStatus,
    /// Something that was not offered.
    Unknown(u16),
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub command: Command,
    /// With this on stable storage before the answer.
    pub fua: bool,
    /// Zeros are to be written, no hole made.
    pub no_hole: bool,
    /// The answer to a read is not to be taken apart.
    pub whole: bool,
    /// One extent is enough.
    pub one: bool,
    /// Zeros only if that is faster than writing them.
    pub fast: bool,
    /// Other flags: none was offered.
    pub unknown_flags: bool,
    /// By it the client knows the answer.
    pub cookie: u64,
    /// Where in the export.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 2;
const FLAG_DF: u16 = 4;
const FLAG_REQ_ONE: u16 = 8;
const FLAG_FAST_ZERO: u16 = 16;
const KNOWN_FLAGS: u16 = FLAG_FUA | FLAG_NO_HOLE | FLAG_DF | FLAG_REQ_ONE | FLAG_FAST_ZERO;

/// Why a request was refused, in the protocol's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The export is read-only.
    Permission = 1,
    /// The storage failed.
    Io = 5,
    /// The server has no memory for it.
    NoMemory = 12,
    /// It lies beyond the end, or is no request we offered.
    Invalid = 22,
    /// The storage is full, or the write lies beyond the end.
    NoSpace = 28,
    /// It would not be faster than writing zeros.
    NotSupported = 95,
    /// The server is about to end.
    Shutdown = 108,
}

impl Request {
    /// Reads a head; none when it does not begin as one, and then nothing that follows can be understood.
    #[must_use]
    pub fn parse(head: &[u8; HEAD]) -> Option<Self> {
        let (magic, rest) = head.split_first_chunk()?;
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
            whole: flags & FLAG_DF != 0,
            one: flags & FLAG_REQ_ONE != 0,
            fast: flags & FLAG_FAST_ZERO != 0,
            unknown_flags: flags & !KNOWN_FLAGS != 0,
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    /// True when it changes what is stored.
    #[must_use]
    pub const fn changes(&self) -> bool {
        matches!(
            self.command,
            Command::Write | Command::Trim | Command::WriteZeroes
        )
    }

    /// True when a flag was set that this command does not have.
    const fn has_foreign_flags(&self) -> bool {
        let no_hole = self.no_hole && !matches!(self.command, Command::WriteZeroes);
        let fast = self.fast && !matches!(self.command, Command::WriteZeroes);
        let whole = self.whole && !matches!(self.command, Command::Read);
        let one = self.one && !matches!(self.command, Command::BlockStatus);
        self.unknown_flags || no_hole || fast || whole || one
    }

    /// Why an export of `size` bytes does not do it, before anything is tried.
    #[must_use]
    pub fn refusal(&self, size: u64, read_only: bool) -> Option<Refusal> {
        let end = self.offset.checked_add(u64::from(self.length));
        let beyond = self.command != Command::Flush && end.is_none_or(|end| end > size);
        match self.command {
            Command::Unknown(_) => Some(Refusal::Invalid),
            Command::BlockStatus if self.length == 0 => Some(Refusal::Invalid),
            Command::Read | Command::Write if self.length > LARGEST_PAYLOAD => Some(Refusal::Invalid),
            _ if self.has_foreign_flags() => Some(Refusal::Invalid),
            _ if self.changes() && read_only => Some(Refusal::Permission),
            Command::Write | Command::WriteZeroes if beyond => Some(Refusal::NoSpace),
            _ if beyond => Some(Refusal::Invalid),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    fn head(flags: u16, command: u16, offset: u64, length: u32) -> [u8; HEAD] {
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

    fn refused(flags: u16, command: u16, offset: u64, length: u32, read_only: bool) -> Option<Refusal> {
        Request::parse(&head(flags, command, offset, length))
            .unwrap()
            .refusal(100, read_only)
    }

    #[test]
    fn a_head_is_read() {
        let request = Request::parse(&head(3, 6, 10, 20)).unwrap();
        assert_eq!(request.command, Command::WriteZeroes);
        assert!(request.fua && request.no_hole && !request.unknown_flags);
        assert_eq!((request.cookie, request.offset, request.length), (7, 10, 20));
        assert_eq!(Request::parse(&[0; HEAD]), None);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_the_number_the_protocol_wants() {
        assert_eq!(refused(0, 0, 90, 10, true), None);
        assert_eq!(refused(0, 0, 90, 11, true), Some(Refusal::Invalid));
        assert_eq!(refused(0, 0, u64::MAX, 1, true), Some(Refusal::Invalid));
        assert_eq!(refused(0, 1, 90, 11, false), Some(Refusal::NoSpace));
        assert_eq!(refused(0, 1, 0, 1, true), Some(Refusal::Permission));
        assert_eq!(refused(0, 3, u64::MAX, 1, true), None);
        assert_eq!(refused(4, 0, 0, 1, true), None);
        assert_eq!(refused(0, 77, 0, 1, false), Some(Refusal::Invalid));
        assert_eq!(refused(0, 7, 0, 0, false), Some(Refusal::Invalid));
        assert_eq!(refused(8, 7, 0, 1, false), None);
        assert_eq!(refused(1 << 9, 0, 0, 1, false), Some(Refusal::Invalid));
    }
}
