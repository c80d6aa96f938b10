//! Sources of memory pressure.
//!
//! No single signal is enough. Stalls ([`PsiTotal`]) are accurate but late: without swap, a group of only
//! anonymous memory hardly stalls before it is killed. So room below a limit ([`Headroom`]) and free memory
//! of the machine ([`FreeMemory`]) are monitored, too. A service manager may have its own policy:
//! [`ServiceManager`]. [`choose`] selects the sources that this machine offers, with reasons.

use std::io;
use std::path::PathBuf;

use thermo_kernel::FileError;
use thermo_units::Nanos;

mod choose;
mod free;
mod headroom;
mod manager;
mod psi;
mod script;

pub use choose::{Choice, choose};
pub use free::FreeMemory;
pub use headroom::Headroom;
pub use manager::ServiceManager;
pub use psi::{PsiTotal, PsiTrigger};
pub use script::ScriptedSource;

/// A source cannot be used, or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A kernel file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file named by the service manager cannot be used.
    #[error("MEMORY_PRESSURE_WATCH={}: {source}. Unset it, or give a pressure file, a FIFO or a socket", .path.display())]
    ServiceManager {
        /// The path in `MEMORY_PRESSURE_WATCH`.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The data that the service manager wants written is not base64.
    #[error("MEMORY_PRESSURE_WRITE={text:?} is not base64: {reason}")]
    NotBase64 {
        /// The value of `MEMORY_PRESSURE_WRITE`.
        text: String,
        /// The decoding error.
        reason: String,
    },
    /// No memory limit is set.
    #[error("no memory limit is set on {} or its ancestors", .0.display())]
    NoLimit(PathBuf),
}

/// A source of memory pressure that is cheap to poll often.
pub trait Source: Send {
    /// Name of the source, with the file it reads.
    fn name(&self) -> String;

    /// Describes the pressure since the last call; `None` without pressure. `now` is monotonic time.
    ///
    /// # Errors
    /// The source failed. It is not polled again.
    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError>;
}
