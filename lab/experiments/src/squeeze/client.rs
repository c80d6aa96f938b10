//! The load: a connection that asks for several blocks at once and waits for all of them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::Error;

/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(120);
const HEAD_OF_ANSWER: usize = 16;

/// What to do with blocks.
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
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0; 18])?;
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend(u32::try_from(export.len()).unwrap_or_default().to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello)?;
        let mut facts = [0; 10];
        stream.read_exact(&mut facts)?;
        let (size, _) = facts.split_first_chunk().ok_or(std::io::ErrorKind::InvalidData)?;
        let size = u64::from_be_bytes(*size);
        Ok(Self { stream, size })
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Asks for `count` blocks of `block` bytes from `offset` on (around the end), all at once, and takes the answers.
    pub(super) fn batch(&mut self, way: Direction, offset: u64, block: u32, count: u64) -> Result<(), Error> {
        self.try_batch(way, offset, block, count)
            .map_err(|error| Error::Squeeze(format!("the load broke off: {error}")))
    }

    fn try_batch(&mut self, way: Direction, offset: u64, block: u32, count: u64) -> std::io::Result<()> {
        let data = if way == Direction::Write {
            block as usize
        } else {
            0
        };
        let mut requests = Vec::new();
        for number in 0..count {
            let at = (offset + number * u64::from(block)) % (self.size / u64::from(block) * u64::from(block));
            requests.extend(0x2560_9513_u32.to_be_bytes());
            requests.extend([0, 0, 0, way as u8]);
            requests.extend(number.to_be_bytes());
            requests.extend(at.to_be_bytes());
            requests.extend(block.to_be_bytes());
            requests.resize(requests.len() + data, 0);
        }
        self.stream.write_all(&requests)?;
        let body = if way == Direction::Read { block as usize } else { 0 };
        let mut answer = vec![0; HEAD_OF_ANSWER + body];
        for _ in 0..count {
            self.stream.read_exact(&mut answer)?;
            if answer[4..8] != [0; 4] {
                let code = i32::from(answer[7]);
                return Err(std::io::Error::from_raw_os_error(code));
            }
        }
        Ok(())
    }
}
