//! The control files as a file system.
//!
//! Every request is checked for who asks: files are root's alone, whatever a mount lets through. A name that is
//! fixed always means the same node, so the kernel may remember it; one that was made by a write is asked for anew each
//! time, since writing a count replaces all of them. Reads and writes go past the page cache, for a file may change at any time.

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

/// How long what never changes is remembered.
const LONG: Duration = Duration::from_secs(3600);
/// Threads that serve requests. Commands that take long have one each besides.
const THREADS: usize = 4;
/// Past the page cache, and writes side by side, so that `off` need not wait for the command that it ends. That takes
/// Linux 6.2, and a file that was not opened for truncation, which waits for every write before it.
const OPENED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
/// What `stat` tells of every file, as in sysfs.
const SIZE: u64 = 4096;

/// Control files that are mounted; dropped, they are unmounted.
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
    /// No `/dev/fuse`, no right to mount, no such directory.
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
        let face = Face {
            files: Arc::clone(&files),
        };
        let session = Session::new(face, dir, &config)?.spawn()?;
        Ok(Self {
            files,
            dir: dir.to_owned(),
            session: Some(session),
        })
    }

    /// Stops every kdamond and unmounts. Whoever still has a file open keeps it, and no path leads to it any more.
    ///
    /// # Errors
    /// It is not mounted any more, or not by us.
    pub fn unmount(mut self) -> io::Result<()> {
        self.take_away()
    }

    fn take_away(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        self.files.stop_all();
        // The library's own way fails while a file is open.
        let done = unmount(&self.dir, UnmountFlags::DETACH);
        drop(session);
        Ok(done?)
    }

    /// The control files.
    #[must_use]
    pub fn files(&self) -> &dyn ControlFiles {
        &*self.files
    }

    /// False once somebody else has unmounted it.
    #[must_use]
    pub fn is_served(&self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|session| !session.guard.is_finished())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Somebody else may have unmounted it.
        drop(self.take_away());
    }
}

struct Face {
    files: Arc<dyn ControlFiles>,
}

fn refusal(errno: Errno) -> Reply {
    Reply::from_i32(errno.raw_os_error())
}

fn allow(request: &Request) -> Result<(), Errno> {
    if request.uid() == 0 {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}

/// Whether a signal waits for the thread that waits for us: it cannot take it before it has our answer, not even to
/// die.
fn has_gone(tid: u32) -> bool {
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
        size: if node.is_dir() { 0 } else { SIZE },
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

impl Face {
    fn attr(&self, ino: Ino) -> Result<FileAttr, Errno> {
        self.files.tree().node(ino).map(|node| attr(ino, node))
    }

    fn lookup(&self, parent: Ino, name: &OsStr) -> Result<(FileAttr, Duration), Errno> {
        let tree = self.files.tree();
        let ino = tree.lookup(parent, name.to_str().ok_or(Errno::NOENT)?)?;
        let node = tree.node(ino)?;
        let remembered = if node.is_lasting() { LONG } else { Duration::ZERO };
        Ok((attr(ino, node), remembered))
    }

    fn may_open(&self, request: &Request, ino: Ino, flags: OpenFlags) -> Result<(), Errno> {
        allow(request)?;
        let tree = self.files.tree();
        let node = tree.node(ino)?;
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        // In sysfs even root cannot write what is not to be written.
        if writes && node.mode() & 0o200 == 0 {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }

    /// All names of a directory with its own and its parent's, in an order that stays while nothing changes.
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

impl Filesystem for Face {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.lookup(parent.0, name) {
            Ok((attr, remembered)) => reply.entry_with_ttls(&LONG, &remembered, &attr, Generation(0)),
            Err(errno) => reply.error(refusal(errno)),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&LONG, &attr),
            Err(errno) => reply.error(refusal(errno)),
        }
    }

    /// Truncation, which comes with opening for writing, means nothing here; owners and modes stay.
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
            return reply.error(refusal(Errno::PERM));
        }
        match self.attr(ino.0) {
            Ok(attr) => reply.attr(&LONG, &attr),
            Err(errno) => reply.error(refusal(errno)),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.may_open(request, ino.0, flags) {
            Ok(()) => reply.opened(FileHandle(0), OPENED),
            Err(errno) => reply.error(refusal(errno)),
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
        match allow(request).and_then(|()| self.files.read(ino.0)) {
            Ok(text) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let end = begin.saturating_add(size as usize).min(text.len());
                reply.data(&text.as_bytes()[begin..end]);
            }
            Err(errno) => reply.error(refusal(errno)),
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
        if let Err(errno) = allow(request) {
            return reply.error(refusal(errno));
        }
        let answer = |written: Result<usize, Errno>, reply: ReplyWrite| match written {
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(refusal(errno)),
        };
        if !self.files.is_slow(ino.0) {
            let write = Write {
                offset,
                ..Write::of(data)
            };
            return answer(self.files.write(ino.0, write), reply);
        }
        let (files, data, client) = (Arc::clone(&self.files), data.to_vec(), request.pid());
        let command = thread::Builder::new().name("damonfs-command".to_owned());
        // Without a thread the reply is dropped, which the library answers with EIO.
        drop(command.spawn(move || {
            let write = Write {
                text: &data,
                offset,
                given_up: &|| has_gone(client),
            };
            answer(files.write(ino.0, write), reply);
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
            Err(errno) => return reply.error(refusal(errno)),
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
        reply.error(refusal(Errno::ACCESS));
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
        reply.error(refusal(Errno::ACCESS));
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
        reply.error(refusal(Errno::PERM));
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(refusal(Errno::PERM));
    }

    fn rmdir(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(refusal(Errno::PERM));
    }
}
