//! Whole sessions over a socket, with a client written here.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use client::{Client, DISCONNECT, FLUSH, FUA, NO_HOLE, READ, TRIM, WRITE, WRITE_ZEROES};
use thermo_nbd::{CHUNK, Export, Limits, Listen, Server, ServerError};
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;

const SIZE: usize = 1 << 20;

struct House {
    dir: tempfile::TempDir,
    pools: Pools,
    server: Server,
}

fn house(limits: Limits) -> House {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, (0..SIZE).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    let exports = vec![
        Export::open("disk", &file, false).unwrap(),
        Export::open("fixed", &file, true).unwrap(),
    ];
    let pools = Pools::new(Bytes::mib(4), Settings::default());
    let listen = vec![Listen::Unix(dir.path().join("socket"))];
    let server = Server::start(exports, listen, &pools, limits, None).unwrap();
    House { dir, pools, server }
}

impl House {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn client(&self, export: &str) -> Client {
        Client::go(&self.socket(), export)
    }
}

#[test]
fn what_is_written_is_read_and_lies_in_the_file() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    let data = vec![0xaa; CHUNK + 5];
    client.send(WRITE, FUA, 3, data.len(), &data);
    assert_eq!(client.answer(0), Ok(vec![]));
    client.send(FLUSH, 0, 0, 0, &[]);
    assert_eq!(client.answer(0), Ok(vec![]));
    let read = client.read(2, data.len() + 2).unwrap();
    assert_eq!(
        (read[0], &read[1..=data.len()], read[data.len() + 1]),
        (2, &data[..], (CHUNK + 8) as u8)
    );
    assert_eq!(
        std::fs::read(house.dir.path().join("disk")).unwrap()[3..][..data.len()],
        data
    );
    for (command, flags) in [(WRITE_ZEROES, 0), (WRITE_ZEROES, NO_HOLE), (TRIM, 0)] {
        client.send(command, flags, 4096, 8192, &[]);
        assert_eq!(client.answer(0), Ok(vec![]));
    }
    assert_eq!(client.read(4096, 8192).unwrap(), vec![0; 8192]);
    client.send(DISCONNECT, 0, 0, 0, &[]);
    assert!(client.sees_the_end());
}

#[test]
fn who_asks_for_no_name_gets_the_first() {
    let house = house(Limits::default());
    let mut client = house.client("");
    client.send(WRITE, 0, 0, 1, b"w");
    assert_eq!(client.answer(0), Ok(vec![]), "the second is read-only");
}

#[test]
fn many_requests_at_once_are_each_answered() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    for at in 0..100 {
        client.send(READ, 0, at, 4096, &[]);
    }
    for at in 0..100 {
        assert_eq!(client.answer(4096).unwrap()[0], at);
    }
    // Large ones overlap, so they may overtake each other.
    let mut asked: Vec<u64> = (0..32).map(|at| at * 1000).collect();
    for &at in &asked {
        client.send(READ, 0, at, 100_000, &[]);
    }
    while !asked.is_empty() {
        let (at, data) = client.answer_of(100_000);
        let place = asked.iter().position(|&one| one == at).unwrap();
        asked.remove(place);
        let right = |(index, &byte): (usize, &u8)| byte == (at as usize + index) as u8;
        assert!(data.unwrap().iter().enumerate().all(right), "at {at}");
    }
}

#[test]
fn clients_that_do_not_take_their_answers_keep_no_other_from_its() {
    let house = house(Limits::default());
    // A budget that three answers would fill.
    house.pools.set_budget(Bytes(3 * CHUNK as u64)).unwrap();
    let mut greedy: Vec<Client> = (0..8).map(|_| house.client("disk")).collect();
    for client in &mut greedy {
        for _ in 0..8 {
            client.send(READ, 0, 0, SIZE, &[]);
        }
    }
    let mut modest = house.client("disk");
    for at in 0..20 {
        assert_eq!(modest.read(at, CHUNK).unwrap()[0], at as u8);
    }
    for mut client in greedy {
        for _ in 0..8 {
            let data = client.answer(SIZE).unwrap();
            assert!(data.iter().enumerate().all(|(at, &byte)| byte == at as u8));
        }
    }
    assert!(
        house.pools.usage().peak <= Bytes(3 * CHUNK as u64),
        "{:?}",
        house.pools.usage()
    );
}

#[test]
fn a_client_that_stops_halfway_is_hung_up_on_and_an_idle_one_is_not() {
    let house = house(Limits {
        // Long enough for a handshake on a machine that does other things too.
        stall: thermo_units::Nanos::secs(3),
        ..Limits::default()
    });
    let mut idle = house.client("disk");
    let mut halfway = house.client("disk");
    halfway.send(WRITE, 0, 0, SIZE, &[0; 1000]);
    let mut silent = Client::connect(&house.socket());
    assert!(halfway.sees_the_end());
    assert!(silent.sees_the_end());
    assert_eq!(idle.read(9, 1), Ok(vec![9]));
}

#[test]
fn all_of_a_pipeline_is_answered_before_the_leave() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    client.send(WRITE, FUA, 0, CHUNK, &vec![1; CHUNK]);
    client.send(FLUSH, 0, 0, 0, &[]);
    client.send(READ, 0, SIZE as u64 / 2, SIZE / 2, &[]);
    client.send(DISCONNECT, 0, 0, 0, &[]);
    let mut all = Vec::new();
    client.0.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 3 * 16 + SIZE / 2);
}

#[test]
fn two_connections_see_each_others_flushed_writes() {
    let house = house(Limits::default());
    let (mut one, mut other) = (house.client("disk"), house.client("disk"));
    one.send(WRITE, 0, 0, 5, b"hello");
    assert_eq!(one.answer(0), Ok(vec![]));
    other.send(FLUSH, 0, 0, 0, &[]);
    assert_eq!(other.answer(0), Ok(vec![]));
    assert_eq!(other.read(0, 5).unwrap(), b"hello");
}

#[test]
fn what_cannot_be_done_is_refused_and_the_connection_goes_on() {
    let house = house(Limits::default());
    let mut client = house.client("fixed");
    client.send(WRITE, 0, 0, CHUNK * 2, &vec![1; CHUNK * 2]);
    assert_eq!(client.answer(0), Err(1));
    assert_eq!(client.read(SIZE as u64 - 1, 2), Err(22));
    assert_eq!(client.read(u64::MAX, 2), Err(22));
    // Far more than any buffer has, and than a request may have.
    assert_eq!(client.read(0, 33 << 20), Err(22));
    assert_eq!(client.read(0, u32::MAX as usize), Err(22));
    client.send(99, 0, 0, 0, &[]);
    assert_eq!(client.answer(0), Err(22));
    assert_eq!(client.read(7, 1), Ok(vec![7]));
    let mut client = house.client("disk");
    client.send(WRITE, 0, SIZE as u64, 4, b"over");
    assert_eq!(client.answer(0), Err(28));
    assert_eq!(client.read(0, 0), Ok(vec![]));
}

#[test]
fn a_file_that_shrinks_is_an_error_of_the_request() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    std::fs::File::options()
        .write(true)
        .open(house.dir.path().join("disk"))
        .unwrap()
        .set_len(10)
        .unwrap();
    assert_eq!(client.read(4096, 4096), Err(5));
    assert_eq!(client.read(9, 1), Ok(vec![9]));
}

#[test]
fn no_bytes_of_a_client_end_the_server() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    client.0.write_all(&[0xff; 28]).unwrap();
    assert!(client.sees_the_end());
    let mut client = Client::connect(&house.socket());
    client.0.write_all(b"no option at all").unwrap();
    assert!(client.sees_the_end());
    // Half a write, and away.
    let mut client = house.client("disk");
    client.send(WRITE, 0, 0, 1 << 20, &[0; 1000]);
    drop(client);
    assert_eq!(house.client("disk").read(5, 1), Ok(vec![5]));
}

#[test]
fn a_client_too_many_sees_the_end() {
    let house = house(Limits {
        connections: 1,
        ..Limits::default()
    });
    let mut first = house.client("disk");
    assert_eq!(first.read(1, 1), Ok(vec![1]));
    let second = UnixStream::connect(house.socket()).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(Client(second).sees_the_end());
    assert_eq!(house.server.status().refused, 1);
}

#[test]
fn an_idle_client_holds_no_memory_under_pressure() {
    let house = house(Limits::default());
    let mut client = house.client("disk");
    client.read(0, SIZE).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The answer comes a moment before its last buffer is back.
    while house.pools.usage().used > Bytes::ZERO {
        assert!(Instant::now() < deadline, "{:?}", house.pools.usage());
        house.pools.report_pressure();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        house.pools.usage().peak <= Bytes(2 * CHUNK as u64),
        "pieces, not the whole: {:?}",
        house.pools.usage()
    );
}

#[test]
fn the_end_hangs_up_and_removes_the_socket() {
    let house = house(Limits::default());
    let (mut client, socket) = (house.client("disk"), house.socket());
    drop(house.server);
    assert!(client.sees_the_end());
    assert!(!socket.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_another_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let pools = Pools::new(Bytes::mib(1), Settings::default());
    drop(
        Server::start(
            Vec::new(),
            vec![Listen::Unix(path.clone())],
            &pools,
            Limits::default(),
            None,
        )
        .unwrap(),
    );
    std::fs::write(&path, "a file").unwrap();
    let error = Server::start(
        Vec::new(),
        vec![Listen::Unix(path.clone())],
        &pools,
        Limits::default(),
        None,
    )
    .unwrap_err();
    assert!(matches!(error, ServerError::Listen { .. }));
    assert!(path.exists());
}

#[test]
fn exports_that_do_not_fit_the_budget_are_refused_with_the_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk");
    std::fs::write(&file, "x").unwrap();
    let export = |name| Export::open(name, &file, true).unwrap();
    let pools = Pools::new(Bytes(CHUNK as u64), Settings::default());
    let error = Server::start(
        vec![export("a"), export("b")],
        Vec::new(),
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
