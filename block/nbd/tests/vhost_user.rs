//! Tests of vhost-user-blk, from the side of the virtual machine.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod command;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use command::{TIMEOUT, thermo_nbd, wait_until};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use thermo_nbd::{CHUNK_SIZE, Export, Limits, Listen, Server, ServerError, Sockets};
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

/// Layout of guest memory: the parts of the virtqueue, and the parts of a request.
const MEMORY: usize = 8 << 20;
const DESCRIPTORS: u64 = 0;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const QUEUE: u16 = 16;
const HEADER: u64 = 0x3000;
const STATUS: u64 = 0x4000;
const DATA: u64 = 1 << 20;

const SIZE: usize = 2 << 20;
/// Request types and status values.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;

struct Guest {
    frontend: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    submitted: u16,
}

// A guest whose messages are acknowledged, so that errors are visible.
fn negotiate(socket: &Path) -> Frontend {
    let mut frontend = Frontend::connect(socket, 1).unwrap();
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    let protocol = frontend.get_protocol_features().unwrap();
    assert!(protocol.contains(VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK));
    frontend.set_protocol_features(protocol).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    // Without EVENT_IDX, so every used buffer is notified.
    frontend.set_features(features & !(1 << 29)).unwrap();
    frontend
}

fn guest_memory(seals: SealFlags, file_len: usize) -> GuestMemoryMmap {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("machine", flags).unwrap());
    file.set_len(file_len as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    let offset = Some(FileOffset::new(file, 0));
    GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), MEMORY, offset)]).unwrap()
}

fn share(frontend: &Frontend, memory: &GuestMemoryMmap) -> vhost::Result<()> {
    let region = memory.iter().next().unwrap();
    let region = VhostUserMemoryRegionInfo::from_guest_region(region).unwrap();
    frontend.set_mem_table(&[region]).map(drop)
}

impl Guest {
    fn connect(socket: &Path) -> Self {
        let mut frontend = negotiate(socket);
        let memory = guest_memory(SealFlags::SHRINK, MEMORY);
        let base = memory.get_host_address(GuestAddress(0)).unwrap() as u64;
        share(&frontend, &memory).unwrap();
        let kick = EventFd::new(0).unwrap();
        frontend.set_vring_num(0, QUEUE).unwrap();
        frontend.set_vring_base(0, 0).unwrap();
        let rings = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: base + DESCRIPTORS,
            used_ring_addr: base + USED,
            avail_ring_addr: base + AVAIL,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &rings).unwrap();
        frontend.set_vring_call(0, &EventFd::new(0).unwrap()).unwrap();
        frontend.set_vring_kick(0, &kick).unwrap();
        frontend.set_vring_enable(0, true).unwrap();
        Self {
            frontend,
            memory,
            kick,
            submitted: 0,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    // Adds a chain of parts (address, length, writable) to the queue without a notification.
    fn queue(&mut self, parts: &[(u64, u32, bool)]) {
        for (at, &(addr, len, writable)) in parts.iter().enumerate() {
            let more = u16::from(at + 1 < parts.len());
            let next = at as u16 + 1;
            let bytes = [
                &addr.to_le_bytes()[..],
                &len.to_le_bytes(),
                &(more | u16::from(writable) << 1).to_le_bytes(),
                &next.to_le_bytes(),
            ];
            self.put(DESCRIPTORS + 16 * at as u64, &bytes.concat());
        }
        self.put(
            AVAIL + 4 + 2 * u64::from(self.submitted % QUEUE),
            &0_u16.to_le_bytes(),
        );
        self.submitted += 1;
        self.put(AVAIL + 2, &self.submitted.to_le_bytes());
    }

    // Notifies the server and waits until the request is completed.
    fn wait(&self) {
        self.kick.write(1).unwrap();
        let begin = Instant::now();
        while self.get(USED + 2, 2) != self.submitted.to_le_bytes() {
            assert!(begin.elapsed() < TIMEOUT, "the request is not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn header(&self, kind: u32, sector: u64) {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()];
        self.put(HEADER, &header.concat());
        self.put(STATUS, &[0xee]);
    }

    fn request(&mut self, kind: u32, sector: u64, data: &[(u64, u32, bool)]) -> u8 {
        self.header(kind, sector);
        let parts = [&[(HEADER, 16, false)], data, &[(STATUS, 1, true)]].concat();
        self.queue(&parts);
        self.wait();
        self.get(STATUS, 1)[0]
    }
}

struct TestServer {
    dir: tempfile::TempDir,
    pools: Pools,
    server: Server,
}

fn start_server() -> TestServer {
    start_server_with(Limits::default())
}

fn start_server_with(limits: Limits) -> TestServer {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("disk"), vec![0; SIZE]).unwrap();
    let pools = Pools::new(Bytes::mib(1), Settings::default());
    let listen = vec![Listen::VhostUser {
        path: dir.path().join("socket"),
        export: "disk".to_owned(),
    }];
    let exports = vec![Export::open("disk", &dir.path().join("disk"), false).unwrap()];
    let sockets = Sockets::open(listen).unwrap();
    let server = Server::start(exports, sockets, &pools, limits, None).unwrap();
    TestServer { dir, pools, server }
}

impl TestServer {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn wait_until(&self, description: &str, condition: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            assert!(
                begin.elapsed() < TIMEOUT,
                "timeout while waiting for {description}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn second_guest_reads_what_first_guest_wrote() {
    let test = start_server();
    let mut first = Guest::connect(&test.socket());
    test.wait_until("the connection", |test| test.server.status().vhost_clients == 1);
    let flags = VhostUserConfigFlags::empty();
    let (_, space) = first.frontend.get_config(0, 60, flags, &[0; 60]).unwrap();
    assert_eq!(space[..8], (SIZE as u64 / 512).to_le_bytes());

    let bytes: Vec<u8> = (0..1 << 20).map(|at| (at % 253) as u8).collect();
    first.put(DATA, &bytes);
    let len = u32::try_from(bytes.len()).unwrap();
    assert_eq!(first.request(WRITE, 8, &[(DATA, len, false)]), OK);
    assert_eq!(first.request(FLUSH, 0, &[]), OK);
    assert!(std::fs::read(test.dir.path().join("disk")).unwrap()[4096..4096 + bytes.len()] == bytes);
    drop(first);
    test.wait_until("the disconnect", |test| test.server.status().vhost_clients == 0);

    let mut second = Guest::connect(&test.socket());
    assert_eq!(
        second.request(
            READ,
            8,
            &[(DATA, 999_936, true), (DATA + 999_936, len - 999_936, true)]
        ),
        OK
    );
    assert!(second.get(DATA, bytes.len()) == bytes);
    let status = test.server.status();
    assert_eq!(
        (status.requests, status.written, status.connection_errors),
        (3, Bytes::mib(1), 0),
        "{status:?}"
    );
    assert!(
        test.pools.usage().peak <= Bytes::mib(1),
        "{:?}",
        test.pools.usage()
    );
    test.pools.report_pressure();
    test.wait_until("an empty pool", |test| test.pools.usage().used == Bytes::ZERO);
}

// The other tests run the server in the test program, without a filter of system calls.
#[test]
fn confined_command_serves_guests_until_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk"), vec![0; SIZE]).unwrap();
    let disk = ["--vhost-user", "socket=disk", "--export", "disk=disk"];
    let mut command = thermo_nbd(folder.path(), &disk);
    let mut server = command
        .args(["--budget", "2M"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let socket = folder.path().join("socket");
    assert!(wait_until(|| socket.exists()), "the server does not listen");
    for _ in 0..2 {
        let mut guest = Guest::connect(&socket);
        guest.put(DATA, &[7; 4096]);
        assert_eq!(guest.request(WRITE, 8, &[(DATA, 4096, false)]), OK);
        assert_eq!(guest.request(FLUSH, 0, &[]), OK);
        assert_eq!(guest.request(READ, 8, &[(DATA + 4096, 4096, true)]), OK);
        assert_eq!(guest.get(DATA + 4096, 4096), [7; 4096]);
    }
    let kill = Command::new("kill")
        .args(["-TERM", &server.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn memory_that_may_shrink_is_refused() {
    let test = start_server();
    for (seals, file_len, expected) in [
        (SealFlags::GROW, MEMORY, "its memory may shrink"),
        (SealFlags::SHRINK, MEMORY / 2, "a file that is shorter"),
    ] {
        share(&negotiate(&test.socket()), &guest_memory(seals, file_len)).unwrap_err();
        test.wait_until(expected, |test| {
            let error = test.server.status().last_error;
            error.is_some_and(|error| error.contains(expected))
        });
    }
    // A guest with sealed memory cannot replace it by other memory.
    let mut guest = Guest::connect(&test.socket());
    assert_eq!(guest.request(FLUSH, 0, &[]), OK);
    share(&guest.frontend, &guest_memory(SealFlags::GROW, MEMORY)).unwrap_err();
    drop(guest);
    assert_eq!(Guest::connect(&test.socket()).request(FLUSH, 0, &[]), OK);
}

#[test]
fn memory_that_may_shrink_is_served_on_request() {
    let test = start_server_with(Limits {
        allow_unsealed_memory: true,
        ..Limits::default()
    });
    share(&negotiate(&test.socket()), &guest_memory(SealFlags::GROW, MEMORY)).unwrap();
}

#[test]
fn invalid_requests_are_answered_and_guest_continues() {
    let test = start_server();
    let mut guest = Guest::connect(&test.socket());
    assert_eq!(guest.request(99, 0, &[]), UNSUPP);
    assert_eq!(guest.request(READ, SIZE as u64, &[(DATA, 512, true)]), IOERR);
    assert_eq!(guest.request(WRITE, 0, &[(1 << 40, 512, false)]), IOERR);
    // No status byte: the chain is returned unanswered.
    guest.queue(&[(HEADER, 16, false)]);
    guest.wait();
    assert_eq!(guest.request(READ, 0, &[(DATA, 512, true)]), OK);
    // An index beyond the queue size: the queue is disabled, the server continues.
    guest.put(AVAIL + 2, &(guest.submitted + 2 * QUEUE).to_le_bytes());
    guest.kick.write(1).unwrap();
    test.wait_until("the recorded error", |test| {
        test.server.status().last_error.is_some()
    });
    drop(guest);
    assert_eq!(
        Guest::connect(&test.socket()).request(READ, 0, &[(DATA, 512, true)]),
        OK
    );
    assert!(test.pools.usage().peak <= Bytes(2 * CHUNK_SIZE as u64));
}

#[test]
fn used_up_budget_does_not_block_guest() {
    let test = start_server();
    let hog = test.pools.open("hog", Bytes(CHUNK_SIZE as u64)).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| hog.try_acquire(CHUNK_SIZE).ok()).collect();
    assert!(!held.is_empty());
    let mut guest = Guest::connect(&test.socket());
    assert_eq!(guest.request(READ, 0, &[(DATA, 1 << 20, true)]), OK);
    assert_eq!(guest.request(WRITE, 0, &[(DATA, 1 << 20, false)]), OK);
    assert!(
        test.pools.usage().peak <= Bytes::mib(1),
        "{:?}",
        test.pools.usage()
    );
}

#[test]
fn invalid_messages_only_disconnect_sender() {
    use std::io::{Read as _, Write as _};
    let test = start_server();
    for garbage in [&[0xff; 4096][..], b"GET / HTTP/1.0\r\n\r\n", &[0; 3], &[]] {
        let mut stream = std::os::unix::net::UnixStream::connect(test.socket()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The server may disconnect before all data is sent.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(Guest::connect(&test.socket()).request(FLUSH, 0, &[]), OK);
}

#[test]
fn shutdown_with_connected_guest_starts_no_request() {
    let test = start_server();
    let mut guest = Guest::connect(&test.socket());
    assert_eq!(guest.request(FLUSH, 0, &[]), OK);
    test.wait_until("the connection", |test| test.server.status().vhost_clients == 1);
    let TestServer {
        dir,
        pools: _,
        server,
    } = test;
    drop(server);
    assert!(!dir.path().join("socket").exists());
    guest.header(FLUSH, 0);
    guest.queue(&[(HEADER, 16, false), (STATUS, 1, true)]);
    guest.kick.write(1).unwrap();
    // The next request to process.
    assert_eq!(guest.frontend.get_vring_base(0).unwrap(), 1);
    assert_eq!(guest.get(USED + 2, 2), 1_u16.to_le_bytes());
}

#[test]
fn missing_export_error_lists_available_exports() {
    let dir = tempfile::tempdir().unwrap();
    let pools = Pools::new(Bytes::mib(1), Settings::default());
    let listen = vec![Listen::VhostUser {
        path: dir.path().join("socket"),
        export: "dsik".to_owned(),
    }];
    let exports = vec![Export::memory("disk", Bytes::mib(1), false).unwrap()];
    let sockets = Sockets::open(listen).unwrap();
    let error = Server::start(exports, sockets, &pools, Limits::default(), None).unwrap_err();
    assert!(matches!(error, ServerError::NoExport { .. }));
    let message = error.to_string();
    assert!(
        message.contains("\"dsik\"") && message.ends_with("Available: disk"),
        "{message}"
    );
    assert!(!dir.path().join("socket").exists());
}
