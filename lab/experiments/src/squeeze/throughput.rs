//! What the worst squeezing costs: no free page is ever kept, on storage that is as fast as memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{Client, Direction};
use super::kernel::Attached;
use super::pressure::Folder;
use super::server::Server;
use super::{Setting, Throughput};
use crate::Error;

/// What one run moves, as in the patch: 512 MiB; here as often as needed to take a while.
const SIZE: u64 = 512 << 20;

/// How to run it.
#[derive(Debug, Clone)]
pub struct Shape {
    /// `max_buffer_pages`.
    pub max_buffer_pages: u64,
    /// Who writes.
    pub load: Load,
}

/// Who writes the whole export.
#[derive(Debug, Clone)]
pub enum Load {
    /// A client of ours, in batches.
    Client {
        /// One request.
        block: u32,
        /// Requests in flight.
        depth: u64,
    },
    /// The patch's `dd`, through the kernel's NBD client and this device of it.
    Dd {
        /// Such as /dev/nbd0, attached to nothing.
        device: PathBuf,
    },
}

/// Runs it once: writes the whole export, as the patch's `dd` did.
///
/// # Errors
/// When the server cannot be set up, or the load breaks off.
pub fn run(setting: &Setting, shape: &Shape) -> Result<Throughput, Error> {
    let folder = Folder::make()?;
    let arguments = [
        "--export".to_owned(),
        format!("ram=mem:,size={SIZE}"),
        "--max-buffer-pages".to_owned(),
        shape.max_buffer_pages.to_string(),
    ];
    let server = Server::start(&setting.thermo_nbd, folder.path(), &arguments, &[])?;
    let took = match &shape.load {
        Load::Client { block, depth } => by_client(setting, &server, *block, *depth)?,
        Load::Dd { device } => by_dd(&server, device)?,
    };
    drop(server);
    Ok(Throughput {
        max_buffer_pages: shape.max_buffer_pages,
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        mb_per_second: SIZE as f64 / 1e6 / took.as_secs_f64(),
    })
}

// Each is done once unmeasured: afterwards the storage has its memory.

fn by_client(setting: &Setting, server: &Server, block: u32, depth: u64) -> Result<Duration, Error> {
    let mut client = Client::connect(server.socket(), "ram")?;
    write_all(setting, block, depth, &mut client)?;
    let begin = Instant::now();
    write_all(setting, block, depth, &mut client)?;
    Ok(begin.elapsed())
}

fn by_dd(server: &Server, device: &Path) -> Result<Duration, Error> {
    let attached = Attached::attach(device, server.socket(), "ram")?;
    attached.write_zeros(SIZE)?;
    let took = attached.write_zeros(SIZE)?;
    attached.detach()?;
    Ok(took)
}

fn write_all(setting: &Setting, block: u32, depth: u64, client: &mut Client) -> Result<(), Error> {
    let step = u64::from(block) * depth;
    for offset in (0..client.size()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        if setting.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        client.batch(Direction::Write, offset, block, depth)?;
    }
    Ok(())
}
