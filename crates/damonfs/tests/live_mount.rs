//! The control files as a file system: with the kernel's caches and concurrent clients.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{ChildProcess, Files, wait_until};
use thermo_damonfs::Mounted;

struct Mount {
    mounted: Option<Mounted>,
    dir: tempfile::TempDir,
}

impl Mount {
    /// Mounts control files. `None` if mounting is not possible here.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting control files needs root and /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        // Other users may enter the directory, so that the files themselves have to reject them.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        match Mounted::new(Files::with_one_of_each().0, dir.path()) {
            Ok(mounted) => Some(Self {
                mounted: Some(mounted),
                dir,
            }),
            Err(error) => {
                println!("SKIP: control files cannot be mounted here: {error}");
                None
            }
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("admin/kdamonds").join(path)
    }

    fn write(&self, path: &str, text: &str) -> Result<usize, i32> {
        let opened = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.path(path));
        opened
            .and_then(|mut file| file.write(text.as_bytes()))
            .map_err(|error| error.raw_os_error().unwrap_or(0))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }
}

fn errno(errno: rustix::io::Errno) -> i32 {
    errno.raw_os_error()
}

#[test]
fn mounted_files_behave_as_in_sysfs() {
    let Some(mount) = Mount::new() else { return };
    let meta = fs::metadata(mount.path("0/state")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.size(), meta.uid()), (0o600, 4096, 0));
    assert_eq!(fs::metadata(mount.path("0/pid")).unwrap().mode() & 0o7777, 0o400);
    assert_eq!(fs::metadata(mount.path("0")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(mount.write("0/refresh_ms", "12\n"), Ok(3));
    assert_eq!(mount.read("0/refresh_ms"), "12\n");
    assert_eq!(
        mount.write("0/refresh_ms", "-1"),
        Err(errno(rustix::io::Errno::INVAL))
    );
    assert_eq!(
        mount.write("0/refresh_ms", "4294967296"),
        Err(errno(rustix::io::Errno::RANGE))
    );
    assert_eq!(
        mount.write("0/pid", "1"),
        Err(errno(rustix::io::Errno::ACCESS)),
        "not even root may write"
    );
    assert_eq!(
        mount.write("0/nothing", "1"),
        Err(errno(rustix::io::Errno::NOENT))
    );
    assert!(fs::create_dir(mount.path("9")).is_err() && fs::remove_file(mount.path("0/pid")).is_err());
    assert!(File::create(mount.path("new")).is_err());
    let mut names: Vec<_> = fs::read_dir(mount.path("0"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["contexts", "pid", "refresh_ms", "state"]);
}

#[test]
fn replaced_directories_are_never_cached() {
    let Some(mount) = Mount::new() else { return };
    let file = "0/contexts/0/schemes/0/action";
    for _ in 0..50 {
        assert_eq!(mount.write(file, "cold"), Ok(4));
        assert_eq!(mount.read(file), "cold\n");
        let mut open_file = File::open(mount.path(file)).unwrap();
        assert_eq!(mount.write("0/contexts/0/schemes/nr_schemes", "1"), Ok(1));
        assert_eq!(mount.read(file), "stat\n");
        let error = open_file.read(&mut [0; 16]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno(rustix::io::Errno::NODEV)));
        assert_eq!(mount.write("0/contexts/0/schemes/nr_schemes", "0"), Ok(1));
        assert!(!mount.path(file).exists());
        assert_eq!(mount.write("0/contexts/0/schemes/nr_schemes", "1"), Ok(1));
    }
}

#[test]
fn long_write_is_cut_to_a_page() {
    let Some(mount) = Mount::new() else { return };
    let long = "x".repeat(1 << 20);
    assert_eq!(
        mount.write("0/refresh_ms", &long),
        Err(errno(rustix::io::Errno::INVAL))
    );
    let path = "0/contexts/0/schemes/0/filters/0/memcg_path";
    assert_eq!(
        mount.write(path, &long),
        Ok(4096),
        "a page at a time, as in sysfs"
    );
    assert_eq!(mount.read(path).len(), 4097);
}

#[test]
fn concurrent_clients_read_whole_values() {
    let Some(mount) = Mount::new() else { return };
    std::thread::scope(|scope| {
        for client in 1..=16 {
            let mount = &mount;
            scope.spawn(move || {
                for _ in 0..50 {
                    mount
                        .write("0/refresh_ms", &(client * 1_000_003).to_string())
                        .unwrap();
                    let number: u64 = mount.read("0/refresh_ms").trim().parse().unwrap();
                    assert_eq!(number % 1_000_003, 0);
                    mount
                        .write("0/contexts/0/targets/nr_targets", &(client % 4).to_string())
                        .unwrap();
                    // Fails if another client replaces the directory between lookup and open.
                    drop(fs::read_to_string(
                        mount.path("0/contexts/0/targets/0/pid_target"),
                    ));
                }
            });
        }
    });
    assert_eq!(mount.read("0/state"), "off\n");
}

#[test]
fn only_root_may_read_files() {
    let Some(mount) = Mount::new() else { return };
    let as_nobody = |program: &str, path: &str| {
        let mut command = Command::new(program);
        let command = command.arg(mount.path(path)).uid(65534).gid(65534);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    };
    assert!(as_nobody("ls", "0"), "directories are readable, as in sysfs");
    assert!(!as_nobody("cat", "0/state"));
    assert!(!as_nobody("cat", "0/pid"));
    assert_eq!(mount.read("0/state"), "off\n");
}

/// Switches on a kdamond with an apply interval of two minutes.
fn start_with_long_apply_interval(mount: &Mount, target: u32) {
    mount
        .write("0/contexts/0/targets/0/regions/nr_regions", "0")
        .unwrap();
    mount
        .write("0/contexts/0/targets/0/pid_target", &target.to_string())
        .unwrap();
    mount.write("0/contexts/0/schemes/nr_schemes", "1").unwrap();
    mount
        .write("0/contexts/0/schemes/0/apply_interval_us", "120000000")
        .unwrap();
    mount.write("0/state", "on").unwrap();
}

#[test]
fn slow_commands_block_no_reader() {
    let Some(mount) = Mount::new() else { return };
    let sleeper = ChildProcess::sleeping();
    start_with_long_apply_interval(&mount, sleeper.pid());
    let start_client = || {
        let mut client = Command::new("sh");
        let script = "echo update_schemes_tried_bytes >$0";
        ChildProcess::spawn(
            client
                .args(["-c", script])
                .arg(mount.path("0/state"))
                .stderr(Stdio::null()),
        )
    };
    // More clients than threads that serve requests.
    let mut clients: Vec<ChildProcess> = (0..8).map(|_| start_client()).collect();
    assert_eq!(mount.read("0/state"), "on\n");
    assert_eq!(mount.write("0/refresh_ms", "5"), Ok(1));
    // A waiting client can be killed before the two minutes are over. SIGKILL goes to all clients first: the
    // kernel serialises the writes, so a client that waits for the lock ends only after the client that holds
    // it.
    clients.iter_mut().for_each(ChildProcess::send_kill);
    clients.iter_mut().for_each(ChildProcess::kill);
    assert_eq!(mount.write("0/state", "off"), Ok(3));
    assert_eq!(mount.read("0/state"), "off\n");
}

#[test]
fn unmount_while_in_use_stops_kdamonds() {
    let Some(mut mount) = Mount::new() else { return };
    let sleeper = ChildProcess::sleeping();
    mount.write("0/contexts/0/targets/nr_targets", "1").unwrap();
    mount
        .write("0/contexts/0/targets/0/pid_target", &sleeper.pid().to_string())
        .unwrap();
    mount.write("0/contexts/0/schemes/nr_schemes", "0").unwrap();
    mount.write("0/state", "on").unwrap();
    let tid = mount.read("0/pid");
    let mut open_file = File::open(mount.path("0/state")).unwrap();
    drop(mount.mounted.take());
    assert!(!mount.path("0").exists(), "the mount is gone");
    let read: io::Result<usize> = open_file.read(&mut [0; 16]);
    // The read may succeed or fail, but must not block.
    assert!(read.is_err() || read.is_ok_and(|length| length > 0));
    wait_until("the kdamond is gone", || {
        !Path::new(&format!("/proc/self/task/{}", tid.trim())).exists()
    });
}
