//! The example server works.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The path of the example. Cargo builds it together with all tests. If only this test was built, it is built
/// here.
fn example() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples/echo_server");
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--package", "thermo-pool", "--examples", "--target-dir"])
            .arg(tests.ancestors().nth(3).unwrap())
            .status()
            .unwrap();
        assert!(built.success(), "the example cannot be built");
    }
    program
}

#[test]
fn echo_server_answers_and_releases_buffers_when_pressure_is_reported() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut server = Command::new(example())
        .arg(addr.to_string())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = connect(addr);
    stream.write_all(b"hello").unwrap();
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello");

    let mut enter = server.stdin.take().unwrap();
    enter.write_all(b"\n").unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let released = lines.find(|line| line.contains(" released; ")).unwrap();
    drop(enter);
    assert!(released.contains("Usage"), "{released}");
    assert!(
        lines.any(|line| line.starts_with("thermo_pool")),
        "statistics follow"
    );
    assert!(server.wait().unwrap().success(), "the end of its input ends it");
}

/// Connects as soon as the server listens.
fn connect(addr: std::net::SocketAddr) -> TcpStream {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        match TcpStream::connect(addr) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
