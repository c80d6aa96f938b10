//! The privileges of `thermo-nbd` once its files and sockets are open: none.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod command;

use std::fs;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use command::{TIMEOUT, thermo_nbd, wait_until};

/// A running server, which is killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server with the export `disk` at the socket `s`, and waits until it greets a client.
fn start(folder: &Path, more: &[&str]) -> Server {
    fs::write(folder.join("disk.img"), vec![0; 1 << 20]).unwrap();
    let arguments = [&["--unix", "s", "--export", "disk=disk.img"], more].concat();
    let mut command = thermo_nbd(folder, &arguments);
    let server = Server(
        command
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut connected = None;
    let listens = wait_until(|| {
        connected = UnixStream::connect(folder.join("s")).ok();
        connected.is_some()
    });
    assert!(listens, "the server does not listen");
    let mut client = connected.unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut greeting = [0; 16];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");
    server
}

/// A field of all threads of the server.
fn fields(server: &Server, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.0.id())).unwrap();
    let field = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    statuses.map(field).collect()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

fn assert_all(server: &Server, name: &str, expected: &str) {
    let found = fields(server, name);
    assert!(found.len() >= 3, "{name} {found:?}");
    assert!(found.iter().all(|value| value == expected), "{name} {found:?}");
}

fn assert_no_privileges(server: &Server) {
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_all(server, set, "0000000000000000");
    }
    if is_root() {
        assert_all(server, "CapBnd:", "0000000000000000");
    }
    assert_all(server, "NoNewPrivs:", "1");
    assert_all(server, "Seccomp:", "2");
}

fn end(mut server: Server) {
    let pid = server.0.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(kill.success());
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

fn output(command: &mut Command) -> Option<Output> {
    let output = command.output();
    output
        .inspect_err(|error| eprintln!("SKIP: {command:?}: {error}"))
        .ok()
}

#[test]
fn server_has_no_privileges_and_removes_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    assert_no_privileges(&server);
    end(server);
    assert!(!folder.path().join("s").exists());
}

#[test]
fn server_of_another_user_writes_to_files_of_root() {
    if !is_root() {
        return eprintln!("SKIP: only root can run a server as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["--user", "nobody"]);
    assert_no_privileges(&server);
    assert!(fields(&server, "Uid:").iter().all(|uid| uid != "0"));
    // Only root can open the folder and the file, but the server has opened it before.
    let uri = format!("nbd+unix:///disk?socket={}", folder.path().join("s").display());
    let write = [
        "-f",
        "raw",
        "-c",
        "write -P 7 4k 4k",
        "-c",
        "flush",
        "-c",
        "read -P 7 4k 4k",
        &uri,
    ];
    if let Some(output) = output(Command::new("qemu-io").args(write)) {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            fs::read(folder.path().join("disk.img")).unwrap()[4096..8192],
            [7; 4096]
        );
    }
    end(server);
}

#[test]
fn unconfined_server_keeps_system_calls() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["--unconfined"]);
    assert_all(&server, "Seccomp:", "0");
    assert_all(&server, "NoNewPrivs:", "0");
}

#[test]
fn wrong_user_is_refused_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--unix",
        "s",
        "--export",
        "m=mem:,size=1M",
        "--user",
        "no-such-user",
    ];
    let output = thermo_nbd(folder.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("no user \"no-such-user\""), "{text}");
    assert!(!folder.path().join("s").exists());
}
