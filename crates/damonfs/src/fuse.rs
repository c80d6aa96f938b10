//! The control files as a FUSE file system.
//!
//! Only root may open, read or write a file, whatever the mount allows, so each such request is checked. The
//! kernel caches names that are permanent. It looks up directories created by a write each time, because
//! writing a count replaces all of them. Reads and writes bypass the page cache, because a file may change at
//! any time.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno as Reply, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, SessionACL, WriteFlags,
};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::files::{ControlFiles, Write};
use crate::tree::{Ino, Node};

/// How long the kernel may cache attributes and permanent names.
const CACHE_TIME: Duration = Duration::from_secs(3600);
/// Threads that serve requests. Each slow command has a thread of its own in addition.
const THREADS: usize = 4;
/// Direct I/O with parallel writes, so that `off` does not wait for the command that it ends. Parallel writes
/// need Linux 6.2 and a file opened without truncation: a truncation waits for every write before it.
const OPEN_FLAGS: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// Size of every file in `stat`, in bytes, as in sysfs.
const FILE_SIZE: u64 = 4096;

/// Mounted control files. Dropping unmounts them.
#[derive(Debug)]
pub struct Mounted {
    files: Arc<dyn ControlFiles>,
    dir: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts `files` at `dir`.
    ///
    /// # Errors
    /// There is no `/dev/fuse`, mounting is not permitted, or `dir` does not exist.
    pub fn new(files: Arc<dyn ControlFiles>, dir: &Path) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("thermo".to_owned()),
            MountOption::Subtype("thermo".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
        ];
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        let server = Server {
            files: Arc::clone(&files),
        };
        let session = Session::new(server, dir, &config)?.spawn()?;
        Ok(Self {
            files,
            dir: dir.to_owned(),
            session: Some(session),
        })
    }

    /// Stops every kdamond and unmounts. Open files stay open, but no path leads to them.
    ///
    /// # Errors
    /// `dir` is no longer a mount point, or unmounting is not permitted.
    pub fn unmount(mut self) -> io::Result<()> {
        self.unmount_once()
    }

    fn unmount_once(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        self.files.stop_all();
        // fuser's own unmount fails while a file is open.
        let unmounted = unmount(&self.dir, UnmountFlags::DETACH);
        drop(session);
        Ok(unmounted?)
    }

    /// The control files.
    #[must_use]
    pub fn files(&self) -> &dyn ControlFiles {
        &*self.files
    }

    /// Returns false once another program has unmounted the files.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.guard.is_finished())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Fails if another program has unmounted the files.
        drop(self.unmount_once());
    }
}

struct Server {
    files: Arc<dyn ControlFiles>,
}

fn fuse_errno(errno: Errno) -> Reply {
    Reply::from_i32(errno.raw_os_error())
}

fn require_root(request: &Request) -> Result<(), Errno> {
    if request.uid() == 0 {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}

/// Returns true if thread `tid` has a pending signal or has ended. The thread waits for the reply and cannot
/// handle any signal before, not even SIGKILL.
fn is_interrupted(tid: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{tid}/status")) else {
        return true;
    };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .unwrap_or(0)
    };
    (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:") & !set("SigIgn:") != 0
}

fn attr(ino: Ino, node: &Node) -> FileAttr {
    let (kind, nlink) = if node.is_dir() {
        (FileType::Directory, 2)
    } else {
        (FileType::RegularFile, 1)
    };
    FileAttr {
        ino: INodeNo(ino),
        size: if node.is_dir() { 0 } else { FILE_SIZE },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: node.mode(),
        nlink,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Server {
    fn attr(&self, ino: Ino) -> Result<FileAttr, Errno> {
        self.files.tree().node(ino).map(|node| attr(ino, node))
    }

    fn lookup(&self, parent: Ino, name: &OsStr) -> Result<(FileAttr, Duration), Errno> {
        let tree = self.files.tree();
        let ino = tree.lookup(parent, name.to_str().ok_or(Errno::NOENT)?)?;
        let node = tree.node(ino)?;
        let ttl = if node.is_permanent() {
            CACHE_TIME
        } else {
            Duration::ZERO
        };
        Ok((attr(ino, node), ttl))
    }

    fn check_open(&self, request: &Request, ino: Ino, flags: OpenFlags) -> Result<(), Errno> {
        require_root(request)?;
        let tree = self.files.tree();
        let node = tree.node(ino)?;
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        // In sysfs not even root can write to a read-only file.
        if writes && node.mode() & 0o200 == 0 {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// All names of a directory, with `.` and `..`. The order is stable while nothing changes.
    fn list(&self, ino: Ino) -> Result<Vec<(Ino, FileType, String)>, Errno> {
        let tree = self.files.tree();
        let parent = tree.node(ino)?.parent();
        let kind = |ino| match tree.node(ino) {
            Ok(node) if !node.is_dir() => FileType::RegularFile,
            _ => FileType::Directory,
        };
        let mut names = vec![
            (ino, FileType::Directory, ".".to_owned()),
            (parent, FileType::Directory, "..".to_owned()),
        ];
        names.extend(
            tree.list(ino)?
                .map(|(name, ino)| (ino, kind(ino), name.to_owned())),
        );
        Ok(names)
    }
}

impl Filesystem for Server {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.lookup(parent.0, name) {
            Ok((attr, ttl)) => reply.entry_with_ttls(&CACHE_TIME, &ttl, &attr, Generation(0)),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&CACHE_TIME, &attr),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    /// Ignores truncation, which comes with opening for writing. Owners and modes cannot be changed.
    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(fuse_errno(Errno::PERM));
        }
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&CACHE_TIME, &attr),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.check_open(request, ino.0, flags) {
            Ok(()) => reply.opened(FileHandle(0), OPEN_FLAGS),
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match require_root(request).and_then(|()| self.files.read(ino.0)) {
            Ok(text) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = text.as_bytes().get(begin..).unwrap_or_default();
                reply.data(rest.get(..size as usize).unwrap_or(rest));
            }
            Err(errno) => reply.error(fuse_errno(errno)),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Err(errno) = require_root(request) {
            return reply.error(fuse_errno(errno));
        }
        let send_reply = |written: Result<usize, Errno>, reply: ReplyWrite| match written {
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(fuse_errno(errno)),
        };
        if !self.files.is_slow(ino.0) {
            let write = Write {
                offset,
                ..Write::new(data)
            };
            return send_reply(self.files.write(ino.0, write), reply);
        }
        let (files, data, client) = (Arc::clone(&self.files), data.to_vec(), request.pid());
        let command = thread::Builder::new().name("damonfs-command".to_owned());
        // If no thread can be started, the reply is dropped and fuser answers EIO.
        drop(command.spawn(move || {
            let write = Write {
                text: &data,
                offset,
                is_cancelled: &|| is_interrupted(client),
            };
            send_reply(files.write(ino.0, write), reply);
        }));
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.list(ino.0) {
            Ok(names) => names,
            Err(errno) => return reply.error(fuse_errno(errno)),
        };
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (ino, kind, name)) in (1..).zip(names).skip(begin) {
            if reply.add(INodeNo(ino), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(fuse_errno(Errno::ACCESS));
    }

    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(fuse_errno(Errno::ACCESS));
    }

    fn mkdir(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(fuse_errno(Errno::PERM));
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(fuse_errno(Errno::PERM));
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(fuse_errno(Errno::PERM));
    }
}
