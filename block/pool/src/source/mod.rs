//! Where pressure is noticed.
//!
//! No one sign is enough. Stalls ([`PsiTotal`]) tell the truth, but late: without swap, a group whose memory is all
//! anonymous hardly stalls before it is killed. So room below a limit ([`Headroom`]) and free memory of the machine
//! ([`FreeMemory`]) are watched too. A service manager may know better: [`Manager`]. [`choose`] takes what this machine
//! offers and says why.

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
pub use manager::Manager;
pub use psi::{PsiTotal, PsiTrigger};
pub use script::Script;

/// Why a source cannot tell (any more).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A file of the kernel failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// What the service manager named cannot be used.
    #[error("MEMORY_PRESSURE_WATCH={}: {source}. Unset it, or give a pressure file, a FIFO or a socket", .path.display())]
    Manager {
        /// What it named.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The text that the service manager wants written is no base64.
    #[error("MEMORY_PRESSURE_WRITE={text:?} is not base64: {reason}")]
    NotBase64 {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no limit to stay below.
    #[error("no memory limit is set on {}, nor above it", .0.display())]
    NoLimit(PathBuf),
}

/// Something that can be asked, often and cheaply, whether memory is short.
pub trait Source: Send {
    /// What it is, with the file it reads.
    fn name(&self) -> String;

    /// What was seen since the last time it was asked, if that is pressure. `now` is monotonic time.
    ///
    /// # Errors
    /// When it cannot tell; it is not asked again.
    fn check(&mut self, now: Nanos) -> Result<Option<String>, SourceError>;
}
