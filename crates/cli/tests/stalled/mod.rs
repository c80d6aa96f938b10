//! Processes that do not answer: a FUSE mount that never replies, and programs that wait for it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session,
    WriteFlags,
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::common::Guard;

const FOREVER: Duration = Duration::from_secs(3600);
const PAGE: u64 = 4096;
/// Reads of this file are answered, writes are not.
const WRITTEN: (INodeNo, &str) = (INodeNo(2), "written");
/// Reads of this file are not answered.
const READ: (INodeNo, &str) = (INodeNo(3), "read");

/// A mounted file system that answers some requests never. Dropping ends all waits for it.
pub struct DeadMount {
    folder: tempfile::TempDir,
    folder_of_links: tempfile::TempDir,
    abort: PathBuf,
    control: Control,
    session: Option<BackgroundSession>,
    /// Ended after the waits for the file system, because nothing ends them before.
    holders: Vec<Guard>,
}

/// The file system that ends connections, mounted for this test.
struct Control(tempfile::TempDir);

impl Control {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        mount("none", folder.path(), "fusectl", MountFlags::empty(), None).unwrap();
        Self(folder)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

impl DeadMount {
    /// Mounts; `None`, with a line that says why, where that is not possible.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting a FUSE file system needs root and /dev/fuse");
            return None;
        }
        if !Path::new("/usr/bin/python3").exists() {
            println!("SKIP: the target needs /usr/bin/python3");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let session = Session::new(Server::default(), folder.path(), &Config::default()).unwrap();
        let session = Some(session.spawn().unwrap());
        // The connection has the number of the anonymous device.
        let number = rustix::fs::minor(fs::metadata(folder.path()).unwrap().dev());
        let control = Control::mount();
        let mount = Self {
            abort: control.0.path().join(number.to_string()).join("abort"),
            control,
            folder,
            folder_of_links: tempfile::tempdir().unwrap(),
            session,
            holders: Vec::new(),
        };
        assert!(mount.abort.exists(), "{} does not exist", mount.abort.display());
        Some(mount)
    }

    /// A process named `mark`, of 16 MiB, that holds the lock of its address space until this mount is
    /// dropped.
    pub fn lock_holder(&mut self, mark: &str) -> u32 {
        let holder = self.start("lock", WRITTEN.1, mark);
        // "ready" comes before the call that never returns.
        let task = format!("/proc/{holder}/stat");
        let waits = || fs::read_to_string(&task).unwrap().contains(") D ");
        assert!(crate::common::wait_until(waits), "the lock is not held");
        holder
    }

    /// The command line of such a process, for a shell.
    pub fn lock_holder_command(&self) -> String {
        let file = self.folder.path().join(WRITTEN.1);
        format!("python3 {} lock {}", script().display(), file.display())
    }

    /// A process named `mark` whose environment cannot be read.
    pub fn without_environment(&mut self, mark: &str) -> u32 {
        self.start("arguments", READ.1, mark)
    }

    fn start(&mut self, what: &str, file: &str, mark: &str) -> u32 {
        // The name of a program is that of the link that starts it.
        let program = self.folder_of_links.path().join(mark);
        symlink("/usr/bin/python3", &program).unwrap();
        let mut command = Command::new(program);
        command.arg(script()).arg(what).arg(self.folder.path().join(file));
        command
            .env("THERMO_TEST", mark)
            .env("FILLER", "x".repeat(64 << 10));
        let mut holder = Guard(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        let output = holder.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let pid = holder.0.id();
        self.holders.push(holder);
        assert_eq!(line, "ready\n");
        pid
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stalled/hold_lock.py")
}

impl Drop for DeadMount {
    fn drop(&mut self) {
        // A failure leaves processes that nothing can kill, so it must not be overlooked.
        if let Err(error) = fs::write(&self.abort, "1") {
            eprintln!("{}: {error}", self.abort.display());
        }
        // What is still mapped keeps fuser's own unmount from succeeding.
        let _ = unmount(self.folder.path(), UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

#[derive(Default)]
struct Server {
    unanswered: Mutex<(Vec<ReplyData>, Vec<ReplyWrite>)>,
}

fn attributes(ino: INodeNo) -> FileAttr {
    let is_folder = ino == INodeNo::ROOT;
    FileAttr {
        ino,
        size: 64 * PAGE,
        blocks: 1,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_folder {
            FileType::Directory
        } else {
            FileType::RegularFile
        },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Server {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match [WRITTEN, READ].into_iter().find(|(_, known)| name == *known) {
            Some((ino, _)) => reply.entry(&FOREVER, &attributes(ino), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &attributes(ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match ino == READ.0 {
            true => self.unanswered.lock().unwrap().0.push(reply),
            false => reply.data(&vec![0; size as usize]),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.unanswered.lock().unwrap().1.push(reply);
    }
}
