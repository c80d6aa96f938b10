//! Entries for the fuzz targets: the parts that a client reaches only through a socket.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use thermo_kernel::unix_socket::{self, SocketPath};
use thermo_pool::{Pool, Pools, Settings};
use thermo_units::Bytes;
use vhost::vhost_user::Listener;
use virtio_queue::{Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::sock_ctrl_msg::ScmSocket as _;

use crate::client::read_job::CHUNK_SIZE;
use crate::export::Export;
use crate::server::shared::{Counters, Shared};
use crate::server::{Limits, build_shared};
use crate::tls::Encryption;
use crate::vhost::chain::Chain;
use crate::vhost::request::Disk;
use crate::vhost::{Device, serve_connection};
use crate::wire::{Socket, Wire};

/// A guest with a disk of its own.
#[derive(Debug)]
pub struct Guest {
    memory: GuestMemoryMmap,
    exports: [Export; 2],
    pool: Pool,
    _pools: Pools,
    counters: Counters,
}

impl Guest {
    /// Bytes of guest memory.
    pub const MEMORY: usize = 64 << 10;
    const QUEUE_SIZE: u16 = 16;
    /// The rings lie behind everything that an input writes.
    const AVAILABLE_AT: u64 = 60 << 10;
    const USED_AT: u64 = 61 << 10;
    const DISK: u64 = 64 << 10;

    /// A guest with a writable and a read-only disk in memory.
    ///
    /// # Errors
    /// The kernel cannot create the memory.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let pools = Pools::new(Bytes::mib(1), Settings::default());
        // One partial sector at the end of the disk.
        let disk = |read_only| Export::memory("a disk with a long name", Bytes(Self::DISK + 100), read_only);
        Ok(Self {
            memory: GuestMemoryMmap::from_ranges(&[(GuestAddress(0), Self::MEMORY)])?,
            exports: [disk(false)?, disk(true)?],
            pool: pools.open("fuzz", Bytes(CHUNK_SIZE as u64))?,
            _pools: pools,
            counters: Counters::default(),
        })
    }

    /// Executes the request at descriptor `head` of the table at address 0, in memory that begins with
    /// `bytes`. Returns the bytes written according to the used ring; `None` if the queue is invalid.
    pub fn request(&self, bytes: &[u8], head: u16, read_only: bool) -> Option<u32> {
        let len = bytes.len().min(Self::AVAILABLE_AT as usize);
        self.memory
            .write_slice(&[0; Self::MEMORY], GuestAddress(0))
            .ok()?;
        self.memory.write_slice(&bytes[..len], GuestAddress(0)).ok()?;
        // One request: flags, index, ring.
        let available: Vec<u8> = [0_u16, 1, head].into_iter().flat_map(u16::to_le_bytes).collect();
        self.memory
            .write_slice(&available, GuestAddress(Self::AVAILABLE_AT))
            .ok()?;
        let mut queue = Queue::new(Self::QUEUE_SIZE).ok()?;
        queue.try_set_desc_table_address(GuestAddress(0)).ok()?;
        queue
            .try_set_avail_ring_address(GuestAddress(Self::AVAILABLE_AT))
            .ok()?;
        queue
            .try_set_used_ring_address(GuestAddress(Self::USED_AT))
            .ok()?;
        queue.set_ready(true);
        let chain = queue.iter(&self.memory).ok()?.next()?;
        let disk = Disk {
            export: &self.exports[usize::from(read_only)],
            writes_through: false,
            counters: &self.counters,
        };
        let head = chain.head_index();
        let written = Chain::read(&self.memory, chain).map_or(0, |chain| {
            disk.execute(chain, &mut |len| self.pool.try_acquire(len))
        });
        queue.add_used(&self.memory, head, written).ok()?;
        Some(written)
    }
}

/// Sends `bytes` to a server with TLS. Returns the decrypted bytes that it accepted.
///
/// # Errors
/// What the server says to its client's bytes, or to the socket.
pub fn tls_session(encryption: &Encryption, bytes: &[u8]) -> std::io::Result<usize> {
    let (mut client, server) = UnixStream::pair()?;
    let wire = Wire::new(Socket::Unix(server))?;
    wire.start_tls(encryption.connection().map_err(std::io::Error::other)?);
    client.write_all(bytes)?;
    client.shutdown(Shutdown::Write)?;
    let (mut buffer, mut accepted) = ([0; 4096], 0);
    loop {
        match wire.receive(&mut buffer)? {
            0 => return Ok(accepted),
            len => accepted += len,
        }
    }
}

/// The socket of a disk, to which one virtual machine after the other connects.
pub struct VhostServer {
    device: Arc<Device>,
    listener: Listener,
    path: PathBuf,
    /// Sealed memory that a machine may share.
    memory: File,
    _socket: SocketPath,
    _pools: Pools,
}

impl fmt::Debug for VhostServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = (&self.device, &self.memory);
        f.debug_tuple("VhostServer")
            .field(&fields)
            .finish_non_exhaustive()
    }
}

impl VhostServer {
    /// A server at the socket `path`.
    ///
    /// # Errors
    /// The socket or memory cannot be created.
    pub fn new(path: &Path) -> Result<Self, Box<dyn Error>> {
        let pools = Pools::new(Bytes::mib(16), Settings::default());
        let export = Export::memory("disk", Bytes(64 << 10), false)?;
        let shared: Arc<Shared> = Arc::new(build_shared(vec![export], &pools, Limits::default(), None)?);
        let (export, pool) = shared.exports.0.first().cloned().ok_or("no export")?;
        let memory = File::from(memfd_create(
            "fuzz",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        memory.set_len(1 << 20)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK)?;
        let (listener, socket) = unix_socket::bind(path)?;
        Ok(Self {
            device: Arc::new(Device::new(export, pool, shared, path)),
            listener: Listener::from(listener),
            path: path.to_owned(),
            memory,
            _socket: socket,
            _pools: pools,
        })
    }

    /// Serves one machine that sends `messages`, each with as many descriptors as its number says, and
    /// disconnects.
    ///
    /// # Errors
    /// What the machine did wrong.
    pub fn session(&mut self, messages: &[(usize, &[u8])]) -> Result<(), Box<dyn Error>> {
        let machine = UnixStream::connect(&self.path)?;
        for (fds, bytes) in messages {
            let fds = vec![self.memory.as_raw_fd(); *fds];
            machine.send_with_fds(&[*bytes], &fds)?;
        }
        machine.shutdown(Shutdown::Write)?;
        serve_connection(&self.device, &mut self.listener).map_err(|error| error.to_string().into())
    }
}
