//! Tests of the `thermo-nbd` command.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod command;

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use command::{TIMEOUT, thermo_nbd, wait_until};

/// Runs the command to its end.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    thermo_nbd(folder, arguments).output().unwrap()
}

/// Runs the command and parses its standard output as JSON.
fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn help_of_each_command_has_two_examples() {
    let folder_path = Path::new("/");
    for verb in [&[][..], &["status"], &["set"], &["squeeze"]] {
        let output = run(folder_path, &[verb, &["--help"]].concat());
        let help = String::from_utf8(output.stdout).unwrap();
        let examples = help.split("Examples:").nth(1).unwrap_or("");
        assert!(
            examples.matches("\n  thermo-nbd ").count() >= 2,
            "{verb:?}: {help}"
        );
    }
}

#[test]
fn server_runs_until_sigterm_and_prints_summary() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![0; 65536]).unwrap();
    let arguments = [
        "--unix",
        "socket",
        "--export",
        "disk=disk.img,ro",
        "--budget",
        "1M",
        "--json",
    ];
    let server = thermo_nbd(folder.path(), &arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let socket = folder.path().join("socket");
    assert!(
        wait_until(|| UnixStream::connect(&socket).is_ok()),
        "the server does not listen"
    );
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut greeting = [0; 16];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT");

    let pid = server.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = server.wait_with_output().unwrap();
    let stderr_text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{stderr_text}");
    assert!(
        stderr_text.contains("pressure: "),
        "the pressure sources are not reported: {stderr_text}"
    );
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["budget_bytes"], 1 << 20);
    assert!(summary["pools"]["disk"].is_object(), "{summary}");
    assert!(!socket.exists());
}

// Starts a server with a memory export of 1 MiB, a budget of 2 MiB, and the control socket `c`.
fn start_with_control_socket(folder: &Path) -> Child {
    let arguments = [
        "--unix",
        "s",
        "--control",
        "c",
        "--export",
        "m=mem:,size=1M",
        "--budget",
        "2M",
    ];
    let server = thermo_nbd(folder, &arguments)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(
        wait_until(|| folder.join("c").exists()),
        "the control socket does not exist"
    );
    server
}

#[test]
fn slow_client_of_control_socket_does_not_hold_up_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = start_with_control_socket(folder.path());
    let mut slow = UnixStream::connect(folder.path().join("c")).unwrap();
    // A byte of an endless line, every half of the time limit for a single read, until the server closes the
    // connection.
    let client = std::thread::spawn(move || {
        while slow.write_all(b"s").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let status = run(folder.path(), &["status", "--control", "c"]);
    assert_eq!(status.status.code(), Some(0), "{}", stderr(&status));
    client.join().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn watchdog_of_systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let systemd = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    systemd.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut server = thermo_nbd(folder.path(), &["--unix", "s", "--export", "m=mem:,size=1M"])
        .env("NOTIFY_SOCKET", folder.path().join("notify"))
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let mut text = [0; 64];
        let len = systemd.recv(&mut text).unwrap();
        assert_eq!(&text[..len], b"WATCHDOG=1");
    }
    // A watchdog that is gone is an error, which a service manager acts on.
    drop(systemd);
    assert_eq!(server.wait().unwrap().code(), Some(2));
}

#[test]
fn limit_of_open_files_is_raised_for_all_connections() {
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -Sn 40; exec \"$0\" --unix s --control c --export m=mem:,size=1M --connections 128";
    let mut server = Command::new("sh")
        .current_dir(folder.path())
        .args(["-c", script, env!("CARGO_BIN_EXE_thermo-nbd")])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(|| folder.path().join("c").exists()));
    let connect = |_| UnixStream::connect(folder.path().join("s")).unwrap();
    let clients: Vec<UnixStream> = (0..60).map(connect).collect();
    let connected = || json(folder.path(), &["status", "--control", "c", "--json"])["connections"].clone();
    assert!(wait_until(|| connected() == clients.len()), "{}", connected());
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn control_socket_reports_and_changes_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    let mut server = start_with_control_socket(folder_path);
    let status = json(folder_path, &["status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["budget_bytes"], &status["schema"]),
        (&(2 << 20).into(), &1.into())
    );
    let set = run(
        folder_path,
        &["set", "--control", "c", "max_buffer_pages=7", "budget=3M"],
    );
    assert_eq!(set.status.code(), Some(0), "{}", stderr(&set));
    for (settings, expected) in [
        (&["max_buffer_pages=8", "budget=1"][..], "too small"),
        (&["max_buffer_pages=many"], "not a number"),
        (&["pages=1"], "cannot be set"),
    ] {
        let output = run(folder_path, &[&["set", "--control", "c"][..], settings].concat());
        assert_eq!(output.status.code(), Some(2), "{settings:?}");
        assert!(
            stderr(&output).contains(expected),
            "{settings:?}: {}",
            stderr(&output)
        );
    }
    let status = json(folder_path, &["status", "--control", "c", "--json"]);
    assert_eq!(
        (&status["max_buffer_pages"], &status["budget_bytes"]),
        (&7.into(), &(3 << 20).into())
    );
    let metrics = run(folder_path, &["status", "--control", "c", "--metrics"]);
    assert!(String::from_utf8_lossy(&metrics.stdout).contains("thermo_nbd_budget_bytes 3145728"));
    server.kill().unwrap();
    server.wait().unwrap();
    let unreachable = run(folder_path, &["status", "--control", "c"]);
    assert_eq!(unreachable.status.code(), Some(2));
    assert!(
        stderr(&unreachable).contains("no server replies at c"),
        "{}",
        stderr(&unreachable)
    );
}

#[test]
fn invalid_options_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), "x").unwrap();
    for (arguments, expected) in [
        (&["--export", "disk=disk.img"][..], "--unix PATH, --tcp"),
        (&["--unix", "s", "--export", "disk"], "NAME=PATH"),
        (&["--unix", "s", "--export", "disk=nowhere.img"], "nowhere.img"),
        (
            &["--unix", "s", "--export", "disk=disk.img", "--budget", "4K"],
            "Raise the budget",
        ),
        (
            &["-s", "--export", "disk=disk.img"],
            "standard input is not a socket",
        ),
        (
            &["--unix", "s", "--export", "disk=disk.img,size=2"],
            "has 1 B, but 2 B were requested",
        ),
        (
            &[
                "--unix",
                "s",
                "--export",
                "disk=disk.img",
                "--tls-cert",
                "disk.img",
                "--tls-key",
                "disk.img",
            ],
            "no PEM certificate",
        ),
        (
            &["--unix", "no/such/folder/s", "--export", "disk=disk.img"],
            "cannot listen",
        ),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr(&output).contains(expected),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}

// Sends `header` and `data` to a client of the first export, and returns the error of the reply.
fn request(client: &mut UnixStream, command: u8, data: &[u8]) -> u32 {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, command]);
    bytes.extend([0; 16]);
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    client.write_all(&bytes).unwrap();
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    u32::from_be_bytes(reply[4..8].try_into().unwrap())
}

fn client_of_first_export(socket: &Path) -> UnixStream {
    let mut client = UnixStream::connect(socket).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The flags: fixed newstyle, no zeroes. Then EXPORT_NAME with an empty name.
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    client.read_exact(&mut [0; 18 + 10]).unwrap();
    client
}

#[test]
fn lost_writes_are_reported_on_every_connection() {
    const WRITE: u8 = 1;
    const FLUSH: u8 = 3;
    const EIO: u32 = 5;
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    std::fs::write(folder_path.join("disk.img"), vec![0; 65536]).unwrap();
    // The kernel reports a failed writeback to one fdatasync. strace counts the calls of each thread.
    let server = Command::new("strace")
        .current_dir(folder_path)
        .args([
            // -D: the server is our child, not strace's.
            "-D",
            "-f",
            "-o",
            "calls",
            "-e",
            "trace=fdatasync",
            "-e",
            "inject=fdatasync:error=EIO:when=1",
        ])
        .arg(env!("CARGO_BIN_EXE_thermo-nbd"))
        .args([
            "--unix",
            "s",
            "--control",
            "c",
            "--export",
            "disk=disk.img",
            "--threads",
            "1",
        ])
        .stderr(Stdio::null())
        .spawn();
    let mut server = match server {
        Ok(server) => server,
        Err(error) => return eprintln!("SKIP: cannot run strace: {error}"),
    };
    assert!(wait_until(|| UnixStream::connect(folder_path.join("s")).is_ok()));
    let mut clients = [0; 2].map(|_| client_of_first_export(&folder_path.join("s")));
    assert_eq!(request(&mut clients[0], WRITE, b"data"), 0);
    let errors = clients.each_mut().map(|client| request(client, FLUSH, &[]));
    let later = request(&mut client_of_first_export(&folder_path.join("s")), FLUSH, &[]);
    let text = run(folder_path, &["status", "--control", "c"]);
    let status = json(folder_path, &["status", "--control", "c", "--json"]);
    drop(clients);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((errors, later), ([EIO, EIO], EIO));
    assert_eq!(status["failed_exports"], serde_json::json!(["disk"]));
    assert!(String::from_utf8_lossy(&text.stdout).contains("\"disk\" lost acknowledged writes"));
}

#[test]
fn force_serves_image_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    std::fs::write(folder_path.join("disk.img"), "x").unwrap();
    let arguments = |socket| ["--unix", socket, "--export", "disk=disk.img"];
    let spawn = |arguments: &[&str]| {
        let mut server = thermo_nbd(folder_path, arguments);
        server.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut first = spawn(&arguments("s"));
    assert!(wait_until(|| UnixStream::connect(folder_path.join("s")).is_ok()));
    let mut second = thermo_nbd(folder_path, &arguments("t"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let has_ended = wait_until(|| second.try_wait().unwrap().is_some());
    // Has no effect on a server that has ended.
    second.kill().unwrap();
    let second = second.wait_with_output().unwrap();
    let mut forced = spawn(&[&arguments("u")[..], &["--force"]].concat());
    let is_served = wait_until(|| UnixStream::connect(folder_path.join("u")).is_ok());
    for server in [&mut first, &mut forced] {
        server.kill().unwrap();
        server.wait().unwrap();
    }
    assert!(has_ended, "the file is served twice");
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert!(
        stderr(&second).contains("disk.img is in use"),
        "{}",
        stderr(&second)
    );
    assert!(is_served);
}

#[test]
fn socket_options_never_remove_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    std::fs::write(folder_path.join("disk.img"), "data").unwrap();
    for arguments in [
        &["--unix", "s", "--control", "disk.img"][..],
        &["--unix", "disk.img"],
        &["--vhost-user", "disk.img=m"],
    ] {
        let all = [arguments, &["--export", "m=mem:,size=1M"]].concat();
        let mut server = thermo_nbd(folder_path, &all)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        assert!(
            wait_until(|| server.try_wait().unwrap().is_some()
                || std::fs::read(folder_path.join("disk.img")).is_err()),
            "{arguments:?}: neither refused nor removed"
        );
        // Has no effect on a server that has ended.
        server.kill().unwrap();
        let output = server.wait_with_output().unwrap();
        assert_eq!(std::fs::read(folder_path.join("disk.img")).unwrap(), b"data");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
        let error = stderr(&output);
        assert!(
            error.contains("disk.img is a regular file, not a socket"),
            "{error}"
        );
    }
}

#[test]
fn vhost_user_option_is_validated() {
    let folder = tempfile::tempdir().unwrap();
    let folder_path = folder.path();
    for (given, expected) in [
        ("s", "\"s\" is not PATH=EXPORT"),
        ("=disk", "\"=disk\" is not PATH=EXPORT"),
        ("s=dsik", "needs export \"dsik\""),
    ] {
        let arguments = ["--vhost-user", given, "--export", "disk=mem:,size=1M"];
        let output = run(folder_path, &arguments);
        assert_eq!(output.status.code(), Some(2), "{given}");
        assert!(stderr(&output).contains(expected), "{given}: {}", stderr(&output));
        assert!(!folder_path.join("s").exists(), "{given}");
    }
}
