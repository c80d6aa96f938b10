//! Running the program for one process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::error::WalkError;
use crate::load::{Kind, Loaded};
use crate::shared::{Call, ProbeSlot, STATUS_GONE, STATUS_OK, UNREADABLE};

/// A loaded program with what its runs need.
#[derive(Debug)]
pub(crate) struct Runner {
    pub loaded: Loaded,
    /// Iterators that were opened for a process, by its number.
    links: BTreeMap<u32, OwnedFd>,
}

/// More iterators than this are not kept open; each is an open file, and so is what one makes while it runs.
const MAX_LINKS: usize = 256;

/// How many files may be open for the program's sake.
pub const MAX_OPEN: usize = MAX_LINKS + 1;

impl Runner {
    pub(crate) fn new(loaded: Loaded) -> Self {
        Self {
            loaded,
            links: BTreeMap::new(),
        }
    }

    /// Runs the program with `call` for `addrs`, [`MAX_PROBES`](crate::shared::MAX_PROBES) at most, and returns what it read at each.
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

    /// Runs the program with `call` and returns what it made of it.
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
            Kind::Iterator => self.iterate_with_room(pid),
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

    /// Where no more files may be open, those that are kept for later go first.
    fn iterate_with_room(&mut self, pid: u32) -> io::Result<()> {
        let is_full = |error: &io::Error| {
            [Errno::MFILE, Errno::NFILE]
                .map(|errno| Some(errno.raw_os_error()))
                .contains(&error.raw_os_error())
        };
        match self.iterate(pid) {
            Err(error) if is_full(&error) && !self.links.is_empty() => {
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
            self.links.insert(pid, link_to(&self.loaded.program, pid)?);
        }
        let link = &self.links[&pid];
        // SAFETY: no pointers are passed.
        let iterator = owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?;
        let mut nothing = [0; 8];
        while rustix::io::read(&iterator, &mut nothing[..])? > 0 {}
        Ok(())
    }
}

fn test_run(program: &OwnedFd) -> io::Result<()> {
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` names no memory but itself and lives through the call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut opts) };
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(())
    }
}

/// Attaches the iterator to the one thread `pid`.
fn link_to(program: &OwnedFd, pid: u32) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    info.task.tid = pid;
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: &mut info,
        iter_info_len: size_of_val(&info) as _,
        ..Default::default()
    };
    // SAFETY: `opts` and the `info` it names live through the call.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            0,
            libbpf_sys::BPF_TRACE_ITER,
            &raw const opts,
        )
    };
    owned(fd)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel just gave it to us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
