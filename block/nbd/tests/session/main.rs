//! Tests of whole sessions over a socket.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use client::{Client, DISCONNECT, FLUSH, FUA, NO_HOLE, READ, TRIM, WRITE, WRITE_ZEROES};
use thermo_nbd::{CHUNK_SIZE, Export, Limits, Listen, Server, ServerError, Sockets};
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;

const SIZE: usize = 1 << 20;

struct TestServer {
    dir: tempfile::TempDir,
    pools: Pools,
    server: Server,
}

fn start_server(limits: Limits) -> TestServer {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, (0..SIZE).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    let exports = vec![
        Export::open("disk", &file, false).unwrap(),
        // The same file again.
        Export::open_without_lock("fixed", &file, true).unwrap(),
    ];
    let pools = Pools::new(Bytes::mib(4), Settings::default());
    let listen = vec![Listen::Unix(dir.path().join("socket"))];
    let sockets = Sockets::open(listen).unwrap();
    let server = Server::start(exports, sockets, &pools, limits, None).unwrap();
    TestServer { dir, pools, server }
}

impl TestServer {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn client(&self, export: &str) -> Client {
        Client::go(&self.socket(), export)
    }
}

#[test]
fn write_is_readable_and_in_file() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    let data = vec![0xaa; CHUNK_SIZE + 5];
    client.send(WRITE, FUA, 3, data.len(), &data);
    assert_eq!(client.receive(0), Ok(vec![]));
    client.send(FLUSH, 0, 0, 0, &[]);
    assert_eq!(client.receive(0), Ok(vec![]));
    let read = client.read(2, data.len() + 2).unwrap();
    assert_eq!(
        (read[0], &read[1..=data.len()], read[data.len() + 1]),
        (2, &data[..], (CHUNK_SIZE + 8) as u8)
    );
    assert_eq!(
        std::fs::read(test.dir.path().join("disk")).unwrap()[3..][..data.len()],
        data
    );
    for (command, flags) in [(WRITE_ZEROES, 0), (WRITE_ZEROES, NO_HOLE), (TRIM, 0)] {
        client.send(command, flags, 4096, 8192, &[]);
        assert_eq!(client.receive(0), Ok(vec![]));
    }
    assert_eq!(client.read(4096, 8192).unwrap(), vec![0; 8192]);
    client.send(DISCONNECT, 0, 0, 0, &[]);
    assert!(client.is_disconnected());
}

#[test]
fn empty_name_selects_first_export() {
    let test = start_server(Limits::default());
    let mut client = test.client("");
    client.send(WRITE, 0, 0, 1, b"w");
    assert_eq!(client.receive(0), Ok(vec![]), "the first export is writable");
}

#[test]
fn pipelined_requests_are_all_answered() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    for at in 0..100 {
        client.send(READ, 0, at, 4096, &[]);
    }
    for at in 0..100 {
        assert_eq!(client.receive(4096).unwrap()[0], at);
    }
    // Replies to large requests may arrive out of order.
    let mut pending: Vec<u64> = (0..32).map(|at| at * 1000).collect();
    for &at in &pending {
        client.send(READ, 0, at, 100_000, &[]);
    }
    while !pending.is_empty() {
        let (at, data) = client.receive_any(100_000);
        let index = pending.iter().position(|&one| one == at).unwrap();
        pending.remove(index);
        let is_expected = |(index, &byte): (usize, &u8)| byte == (at as usize + index) as u8;
        assert!(data.unwrap().iter().enumerate().all(is_expected), "at {at}");
    }
}

#[test]
fn slow_readers_do_not_block_other_clients() {
    let test = start_server(Limits::default());
    // A budget for three chunks.
    test.pools.set_budget(Bytes(3 * CHUNK_SIZE as u64)).unwrap();
    let mut greedy: Vec<Client> = (0..8).map(|_| test.client("disk")).collect();
    for client in &mut greedy {
        for _ in 0..8 {
            client.send(READ, 0, 0, SIZE, &[]);
        }
    }
    let mut modest = test.client("disk");
    for at in 0..20 {
        assert_eq!(modest.read(at, CHUNK_SIZE).unwrap()[0], at as u8);
    }
    for mut client in greedy {
        for _ in 0..8 {
            let data = client.receive(SIZE).unwrap();
            assert!(data.iter().enumerate().all(|(at, &byte)| byte == at as u8));
        }
    }
    assert!(
        test.pools.usage().peak <= Bytes(3 * CHUNK_SIZE as u64),
        "{:?}",
        test.pools.usage()
    );
}

#[test]
fn stalled_client_is_disconnected_and_idle_is_not() {
    let test = start_server(Limits {
        // Long enough for a handshake on a busy machine.
        stall_timeout: thermo_units::Nanos::secs(3),
        ..Limits::default()
    });
    let mut idle = test.client("disk");
    let mut halfway = test.client("disk");
    halfway.send(WRITE, 0, 0, SIZE, &[0; 1000]);
    let mut silent = Client::connect(&test.socket());
    assert!(halfway.is_disconnected());
    assert!(silent.is_disconnected());
    assert_eq!(idle.read(9, 1), Ok(vec![9]));
}

// Sends one byte now and then. Returns whether the server disconnects the client, at the latest after four
// times the stall timeout.
fn is_disconnected_while_dribbling(mut client: Client, stall: Duration) -> bool {
    client.0.set_nonblocking(true).unwrap();
    let start = Instant::now();
    while start.elapsed() < 4 * stall {
        // The kernel reports the disconnect here, or at the read.
        let sent = client.0.write(&[0]);
        let received = client.0.read(&mut [0; 64]);
        if sent.is_err() || received.is_ok_and(|len| len == 0) {
            return true;
        }
        // The pace of the client.
        std::thread::sleep(stall / 30);
    }
    false
}

#[test]
fn single_bytes_do_not_extend_the_time_limit() {
    let stall = Duration::from_secs(3);
    let test = start_server(Limits {
        stall_timeout: thermo_units::Nanos::secs(3),
        ..Limits::default()
    });
    let mut handshake = Client::connect(&test.socket());
    // An unknown option with 16 000 bytes of data.
    handshake.0.write_all(b"IHAVEOPT\0\0\0\x63\0\0\x3e\x80").unwrap();
    let mut request = test.client("disk");
    request.send(WRITE, 0, 0, SIZE, &[]);
    let request = std::thread::spawn(move || is_disconnected_while_dribbling(request, stall));
    assert!(
        is_disconnected_while_dribbling(handshake, stall),
        "in the handshake"
    );
    assert!(request.join().unwrap(), "in a request");
    let error = test.server.status().last_error.unwrap();
    assert!(error.contains("within 3.00 s"), "{error}");
}

#[test]
fn handshake_of_many_options_ends_at_time_limit() {
    let test = start_server(Limits {
        stall_timeout: thermo_units::Nanos::secs(3),
        ..Limits::default()
    });
    let mut client = Client::connect(&test.socket());
    let start = Instant::now();
    // Each option is complete and answered, so the client never stalls.
    let mut reply = [0; 512];
    while client.0.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").is_ok()
        && client.0.read(&mut reply).is_ok_and(|len| len > 0)
    {
        assert!(
            start.elapsed() < Duration::from_secs(12),
            "the handshake has no end"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn pipeline_is_answered_before_disconnect() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    client.send(WRITE, FUA, 0, CHUNK_SIZE, &vec![1; CHUNK_SIZE]);
    client.send(FLUSH, 0, 0, 0, &[]);
    client.send(READ, 0, SIZE as u64 / 2, SIZE / 2, &[]);
    client.send(DISCONNECT, 0, 0, 0, &[]);
    let mut all = Vec::new();
    client.0.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 3 * 16 + SIZE / 2);
}

#[test]
fn flushed_writes_are_visible_to_other_connection() {
    let test = start_server(Limits::default());
    let (mut one, mut other) = (test.client("disk"), test.client("disk"));
    one.send(WRITE, 0, 0, 5, b"hello");
    assert_eq!(one.receive(0), Ok(vec![]));
    other.send(FLUSH, 0, 0, 0, &[]);
    assert_eq!(other.receive(0), Ok(vec![]));
    assert_eq!(other.read(0, 5).unwrap(), b"hello");
}

#[test]
fn invalid_requests_fail_and_connection_continues() {
    let test = start_server(Limits::default());
    let mut client = test.client("fixed");
    client.send(WRITE, 0, 0, CHUNK_SIZE * 2, &vec![1; CHUNK_SIZE * 2]);
    assert_eq!(client.receive(0), Err(1));
    assert_eq!(client.read(SIZE as u64 - 1, 2), Err(22));
    assert_eq!(client.read(u64::MAX, 2), Err(22));
    // Beyond the end of the export and above the maximum payload.
    assert_eq!(client.read(0, 33 << 20), Err(22));
    assert_eq!(client.read(0, u32::MAX as usize), Err(22));
    client.send(99, 0, 0, 0, &[]);
    assert_eq!(client.receive(0), Err(22));
    assert_eq!(client.read(7, 1), Ok(vec![7]));
    let mut client = test.client("disk");
    client.send(WRITE, 0, SIZE as u64, 4, b"over");
    assert_eq!(client.receive(0), Err(28));
    assert_eq!(client.read(0, 0), Ok(vec![]));
}

#[test]
fn shrunk_file_fails_only_the_request() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    std::fs::File::options()
        .write(true)
        .open(test.dir.path().join("disk"))
        .unwrap()
        .set_len(10)
        .unwrap();
    assert_eq!(client.read(4096, 4096), Err(5));
    assert_eq!(client.read(9, 1), Ok(vec![9]));
}

#[test]
fn invalid_bytes_never_end_server() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    client.0.write_all(&[0xff; 28]).unwrap();
    assert!(client.is_disconnected());
    let mut client = Client::connect(&test.socket());
    client.0.write_all(b"no option at all").unwrap();
    assert!(client.is_disconnected());
    // A partial write, then a disconnect.
    let mut client = test.client("disk");
    client.send(WRITE, 0, 0, 1 << 20, &[0; 1000]);
    drop(client);
    assert_eq!(test.client("disk").read(5, 1), Ok(vec![5]));
}

#[test]
fn client_above_limit_is_disconnected() {
    let test = start_server(Limits {
        connections: 1,
        ..Limits::default()
    });
    let mut first = test.client("disk");
    assert_eq!(first.read(1, 1), Ok(vec![1]));
    let second = UnixStream::connect(test.socket()).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(Client(second).is_disconnected());
    assert_eq!(test.server.status().refused, 1);
}

#[test]
fn one_peer_cannot_hold_all_connections() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let pools = Pools::new(Bytes::mib(4), Settings::default());
    let limits = Limits {
        connections: 16,
        connections_per_peer: 3,
        ..Limits::default()
    };
    let export = Export::memory("disk", Bytes(SIZE as u64), false).unwrap();
    let listen = vec![
        Listen::Unix(socket.clone()),
        Listen::Tcp("127.0.0.1:0".to_owned()),
    ];
    let sockets = Sockets::open(listen).unwrap();
    let server = Server::start(vec![export], sockets, &pools, limits, None).unwrap();
    let held: Vec<Client> = (0..3).map(|_| Client::go(&socket, "disk")).collect();
    let fourth = UnixStream::connect(&socket).unwrap();
    fourth.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(Client(fourth).is_disconnected());
    // Another peer is served.
    let mut other = std::net::TcpStream::connect(server.addrs()[0]).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut greeting = [0; 8];
    other.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    assert_eq!((server.status().refused, held.len()), (1, 3));
}

#[test]
fn idle_client_holds_no_memory_under_pressure() {
    let test = start_server(Limits::default());
    let mut client = test.client("disk");
    client.read(0, SIZE).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The reply arrives shortly before its last buffer is put back.
    while test.pools.usage().used > Bytes::ZERO {
        assert!(Instant::now() < deadline, "{:?}", test.pools.usage());
        test.pools.report_pressure();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        test.pools.usage().peak <= Bytes(2 * CHUNK_SIZE as u64),
        "the read was not split into chunks: {:?}",
        test.pools.usage()
    );
}

#[test]
fn shutdown_disconnects_and_removes_socket() {
    let test = start_server(Limits::default());
    let (mut client, socket) = (test.client("disk"), test.socket());
    drop(test.server);
    assert!(client.is_disconnected());
    assert!(!socket.exists());
}

#[test]
fn stale_socket_is_replaced_and_other_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let open = || Sockets::open(vec![Listen::Unix(path.clone())]);
    drop(open().unwrap());
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    let error = open().unwrap_err();
    assert!(matches!(error, ServerError::Listen { .. }));
    assert!(path.exists());
}

#[test]
fn image_in_use_is_refused_by_name() {
    const QEMU_WRITES: u32 = 101;
    const QEMU_DENIES_WRITES: u32 = 201;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, "x").unwrap();
    let open = |read_only| Export::open("disk", &path, read_only);
    let refused = |read_only: bool| {
        let error = open(read_only).unwrap_err().to_string();
        assert!(error.contains("disk.img is in use"), "{error}");
    };
    let writer = open(false).unwrap();
    refused(false);
    refused(true);
    drop(writer);
    let readers = [open(true).unwrap(), open(true).unwrap()];
    refused(false);
    drop(readers);
    for (byte, readable) in [(QEMU_WRITES, false), (QEMU_DENIES_WRITES, true)] {
        let qemu = std::fs::File::open(&path).unwrap();
        thermo_kernel::ofd_lock::share(&qemu, byte).unwrap();
        refused(false);
        assert_eq!(open(true).is_ok(), readable, "byte {byte}");
        Export::open_without_lock("disk", &path, false).unwrap();
    }
    // The locks end with the files.
    open(false).unwrap();
}

#[test]
fn exports_above_budget_are_rejected_with_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, "x").unwrap();
    let export = |name| Export::open(name, &file, true).unwrap();
    let pools = Pools::new(Bytes(CHUNK_SIZE as u64), Settings::default());
    let error = Server::start(
        vec![export("a"), export("b")],
        Sockets::default(),
        &pools,
        Limits::default(),
        None,
    )
    .unwrap_err();
    assert!(error.to_string().contains("256 KiB"), "{error}");
    assert!(
        Export::open("dir", dir.path(), true)
            .unwrap_err()
            .to_string()
            .contains("neither a file")
    );
}
