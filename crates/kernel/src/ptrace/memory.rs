//! The memory of another process, for writing (`/proc/PID/mem`). [`crate::process_vm::read`] reads it by
//! number.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use thermo_units::Addr;

use crate::stalled_call;

/// The address space that a thread had when this was opened. If the process executes another program, writes
/// never reach that program: they fail.
#[derive(Debug)]
pub struct Memory {
    file: Arc<File>,
    pid: u32,
}

impl Memory {
    /// Opens the memory of thread `tid` of process `pid`.
    ///
    /// # Errors
    /// `ENOENT` or `ESRCH` if it has ended, `EACCES` without the right to trace it.
    pub fn open(root: &Path, pid: u32, tid: u32) -> io::Result<Self> {
        let path = root.join(format!("proc/{pid}/task/{tid}/mem"));
        let file = OpenOptions::new().write(true).open(path)?;
        Ok(Self {
            file: Arc::new(file),
            pid,
        })
    }

    /// Writes all of `bytes` to `addr`. As for every tracer, the kernel lets this also write to pages that
    /// the process itself may only read.
    ///
    /// # Errors
    /// `EIO` if a part is not mapped (the other part may have been written), `ESRCH` if the process has ended
    /// or runs another program, `TimedOut` if it does not answer ([`crate::stalled_call`]).
    pub fn write(&self, addr: Addr, bytes: &[u8]) -> io::Result<()> {
        let (file, bytes) = (Arc::clone(&self.file), bytes.to_vec());
        match stalled_call::run_io(self.pid, move || file.write_all_at(&bytes, addr.0)) {
            Err(error) if error.kind() == io::ErrorKind::WriteZero => {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn write_to_unmapped_memory_is_refused() {
        let pid = std::process::id();
        let memory = Memory::open(Path::new("/"), pid, pid).unwrap();
        let error = memory.write(Addr(0x10), b"text").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}
