//! Runs the program for one process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::error::WalkError;
use crate::load::{Kind, Loaded};
use crate::shared::{Call, ProbeSlot, STATUS_GONE, STATUS_OK, UNREADABLE};

/// A loaded program, with the iterators that its runs need.
#[derive(Debug)]
pub(crate) struct Runner {
    pub loaded: Loaded,
    /// Open iterators, by process.
    links: BTreeMap<u32, OwnedFd>,
}

/// Maximum number of iterators kept open. Each is an open file; running one opens another file.
const MAX_LINKS: usize = 256;

/// Maximum number of files that the program keeps open.
pub const MAX_OPEN_FILES: usize = MAX_LINKS + 1;

impl Runner {
    pub(crate) fn new(loaded: Loaded) -> Self {
        Self {
            loaded,
            links: BTreeMap::new(),
        }
    }

    /// Runs the program with `call` for `addrs`, at most [`MAX_PROBES`](crate::shared::MAX_PROBES), and
    /// returns one slot an address.
    pub(crate) fn probe(
        &mut self,
        call: Call,
        addrs: impl Iterator<Item = u64>,
    ) -> Result<&[ProbeSlot], WalkError> {
        let mut nr_probes = 0;
        for (slot, addr) in self.loaded.probes.get_mut().iter_mut().zip(addrs) {
            *slot = ProbeSlot {
                addr,
                level: u32::from(UNREADABLE),
                ..ProbeSlot::default()
            };
            nr_probes += 1;
        }
        self.run(Call { nr_probes, ..call })?;
        Ok(&self.loaded.probes.get()[..nr_probes as usize])
    }

    /// Runs the program with `call` and returns the call with its results.
    pub(crate) fn run(&mut self, call: Call) -> Result<Call, WalkError> {
        let pid = call.pid;
        self.loaded.calls.get_mut()[0] = Call {
            status: STATUS_GONE,
            nr_tables: 0,
            pgd: 0,
            ..call
        };
        let ran = match self.loaded.kind {
            Kind::Syscall => test_run(&self.loaded.program),
            Kind::Iterator => self.iterate_within_file_limit(pid),
        };
        match ran {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                return Err(WalkError::Gone { pid });
            }
            Err(error) => {
                return Err(WalkError::Failed {
                    pid,
                    why: error.to_string(),
                });
            }
        }
        let answer = self.loaded.calls.get()[0];
        if answer.status == STATUS_OK {
            Ok(answer)
        } else {
            Err(WalkError::Gone { pid })
        }
    }

    /// Runs the iterator. At the limit of open files, the kept iterators are closed first.
    fn iterate_within_file_limit(&mut self, pid: u32) -> io::Result<()> {
        let is_file_limit = |error: &io::Error| {
            [Errno::MFILE, Errno::NFILE]
                .map(|errno| Some(errno.raw_os_error()))
                .contains(&error.raw_os_error())
        };
        match self.iterate(pid) {
            Err(error) if is_file_limit(&error) && !self.links.is_empty() => {
                self.links.clear();
                self.iterate(pid)
            }
            result => result,
        }
    }

    fn iterate(&mut self, pid: u32) -> io::Result<()> {
        if !self.links.contains_key(&pid) {
            if self.links.len() >= MAX_LINKS {
                self.links.clear();
            }
            self.links.insert(pid, create_link(&self.loaded.program, pid)?);
        }
        let link = &self.links[&pid];
        // SAFETY: no pointers are passed.
        let iterator = to_owned_fd(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
        let mut buffer = [0; 8];
        while rustix::io::read(&iterator, &mut buffer[..])? > 0 {}
        Ok(())
    }
}

fn test_run(program: &OwnedFd) -> io::Result<()> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` refers to no other memory and lives through the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(())
    }
}

/// Creates an iterator over the single thread `pid`.
fn create_link(program: &OwnedFd, pid: u32) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    info.task.tid = pid;
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: &mut info,
        iter_info_len: size_of_val(&info) as _,
        ..Default::default()
    };
    // SAFETY: `opts`, and `info` that it points to, live through the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            0,
            libbpf_sys::BPF_TRACE_ITER,
            &raw const opts,
        )
    };
    to_owned_fd(fd)
}

fn to_owned_fd(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just returned this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
