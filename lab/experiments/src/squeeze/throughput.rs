//! The cost of squeezing in the worst case: pools never keep a free page, and the storage is as fast as
//! memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{Client, Direction};
use super::nbd_device::NbdDevice;
use super::pressure::Folder;
use super::server::Server;
use super::{Options, ThroughputRun};
use crate::Error;

/// Bytes written in one run, as in the kernel patch: 512 MiB.
const SIZE: u64 = 512 << 20;

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// `max_buffer_pages`.
    pub max_buffer_pages: u64,
    /// The load.
    pub load: Load,
}

/// The load that writes the whole export.
#[derive(Debug, Clone)]
pub enum Load {
    /// The NBD client of this crate, in batches.
    Client {
        /// Size of a request, in bytes.
        block: u32,
        /// Requests in flight.
        depth: u64,
    },
    /// `dd` through the kernel's NBD client, as in the kernel patch.
    Dd {
        /// A free NBD device such as /dev/nbd0.
        device: PathBuf,
    },
}

/// Makes one run: writes the whole export, like `dd` in the kernel patch.
///
/// # Errors
/// When the server cannot be set up, or the load fails.
pub fn run(options: &Options, parameters: &Parameters) -> Result<ThroughputRun, Error> {
    let folder = Folder::create()?;
    let arguments = [
        "--export".to_owned(),
        format!("ram=mem:,size={SIZE}"),
        "--max-buffer-pages".to_owned(),
        parameters.max_buffer_pages.to_string(),
    ];
    let server = Server::start(&options.thermo_nbd, folder.path(), &arguments, &[])?;
    let duration = match &parameters.load {
        Load::Client { block, depth } => by_client(options, &server, *block, *depth)?,
        Load::Dd { device } => by_dd(&server, device)?,
    };
    drop(server);
    Ok(ThroughputRun {
        max_buffer_pages: parameters.max_buffer_pages,
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        mb_per_second: SIZE as f64 / 1e6 / duration.as_secs_f64(),
    })
}

// Both loads write once before the measured write, so that the storage has allocated its memory.

fn by_client(options: &Options, server: &Server, block: u32, depth: u64) -> Result<Duration, Error> {
    let mut client = Client::connect(server.socket(), "ram")?;
    write_all(options, block, depth, &mut client)?;
    let begin = Instant::now();
    write_all(options, block, depth, &mut client)?;
    Ok(begin.elapsed())
}

fn by_dd(server: &Server, device: &Path) -> Result<Duration, Error> {
    let attached = NbdDevice::attach(device, server.socket(), "ram")?;
    attached.write_zeros(SIZE)?;
    let duration = attached.write_zeros(SIZE)?;
    attached.detach()?;
    Ok(duration)
}

fn write_all(options: &Options, block: u32, depth: u64, client: &mut Client) -> Result<(), Error> {
    let step = u64::from(block) * depth;
    for offset in (0..client.size()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        if options.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        client.batch(Direction::Write, offset, block, depth)?;
    }
    Ok(())
}
