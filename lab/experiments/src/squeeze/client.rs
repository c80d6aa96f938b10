//! The load: an NBD client that sends several requests at once and waits for all replies.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Error;

/// Timeout of reads and writes on the socket.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Size of the header of a simple reply.
const REPLY_HEADER: usize = 16;

/// Type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Direction {
    Read = 0,
    Write = 1,
}

/// A client of one export.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    size: u64,
}

impl Client {
    pub(super) fn connect(socket: &Path, export: &str) -> Result<Self, Error> {
        Self::try_connect(socket, export)
            .map_err(|error| Error::Squeeze(format!("cannot use export {export}: {error}")))
    }

    fn try_connect(socket: &Path, export: &str) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.read_exact(&mut [0; 18])?;
        let mut handshake = 3_u32.to_be_bytes().to_vec();
        handshake.extend(b"IHAVEOPT\0\0\0\x01");
        handshake.extend(u32::try_from(export.len()).unwrap_or_default().to_be_bytes());
        handshake.extend(export.as_bytes());
        stream.write_all(&handshake)?;
        let mut export_info = [0; 10];
        stream.read_exact(&mut export_info)?;
        let (size, _) = export_info
            .split_first_chunk()
            .ok_or(std::io::ErrorKind::InvalidData)?;
        let size = u64::from_be_bytes(*size);
        Ok(Self { stream, size })
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Sends requests for `count` blocks of `block` bytes, starting at `offset` and wrapping at the end, and
    /// receives all replies.
    pub(super) fn batch(
        &mut self,
        direction: Direction,
        offset: u64,
        block: u32,
        count: u64,
    ) -> Result<(), Error> {
        self.try_batch(direction, offset, block, count)
            .map_err(|error| Error::Squeeze(format!("the load failed: {error}")))
    }

    fn try_batch(
        &mut self,
        direction: Direction,
        offset: u64,
        block: u32,
        count: u64,
    ) -> std::io::Result<()> {
        let data = if direction == Direction::Write {
            block as usize
        } else {
            0
        };
        let mut requests = Vec::new();
        for number in 0..count {
            let at = (offset + number * u64::from(block)) % (self.size / u64::from(block) * u64::from(block));
            requests.extend(0x2560_9513_u32.to_be_bytes());
            requests.extend([0, 0, 0, direction as u8]);
            requests.extend(number.to_be_bytes());
            requests.extend(at.to_be_bytes());
            requests.extend(block.to_be_bytes());
            requests.resize(requests.len() + data, 0);
        }
        self.stream.write_all(&requests)?;
        let body = if direction == Direction::Read {
            block as usize
        } else {
            0
        };
        let mut reply = vec![0; REPLY_HEADER + body];
        for _ in 0..count {
            self.stream.read_exact(&mut reply)?;
            if reply[4..8] != [0; 4] {
                let code = i32::from(reply[7]);
                return Err(std::io::Error::from_raw_os_error(code));
            }
        }
        Ok(())
    }
}
