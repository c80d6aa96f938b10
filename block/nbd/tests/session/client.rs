//! An NBD client for tests, and protocol constants.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::SIZE;

/// A connected client, before or after it chose an export.
pub struct Client(pub UnixStream);

impl Client {
    pub fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        // A server that never replies fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        Self(stream)
    }

    pub fn go(socket: &Path, export: &str) -> Self {
        let mut client = Self::connect(socket);
        client.0.write_all(b"IHAVEOPT\0\0\0\x01").unwrap();
        client
            .0
            .write_all(&u32::try_from(export.len()).unwrap().to_be_bytes())
            .unwrap();
        client.0.write_all(export.as_bytes()).unwrap();
        let mut facts = [0; 10];
        client.0.read_exact(&mut facts).unwrap();
        assert_eq!(facts[..8], (SIZE as u64).to_be_bytes());
        client
    }

    pub fn send(&mut self, command: u16, flags: u16, offset: u64, length: usize, data: &[u8]) {
        let length = u32::try_from(length).unwrap();
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(offset.to_be_bytes().iter().rev());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).unwrap();
    }

    pub fn receive(&mut self, length: usize) -> Result<Vec<u8>, u32> {
        self.receive_any(length).1
    }

    // Receives the next reply: the offset of its request, which is its cookie, and the data or error.
    pub fn receive_any(&mut self, length: usize) -> (u64, Result<Vec<u8>, u32>) {
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&header[8..]);
        (u64::from_le_bytes(cookie), self.receive_data(&header, length))
    }

    fn receive_data(&mut self, header: &[u8; 16], length: usize) -> Result<Vec<u8>, u32> {
        assert_eq!(header[..4], 0x6744_6698_u32.to_be_bytes());
        match u32::from_be_bytes(header[4..8].try_into().unwrap()) {
            0 => {
                let mut data = vec![0; length];
                self.0.read_exact(&mut data).unwrap();
                Ok(data)
            }
            error => Err(error),
        }
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.send(READ, 0, offset, length, &[]);
        self.receive(length)
    }

    pub fn is_disconnected(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
