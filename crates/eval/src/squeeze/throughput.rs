//! What the worst squeezing costs: no free page is ever kept, on storage that is as fast as memory.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::client::{Client, Way};
use super::pressure::Folder;
use super::server::Server;
use super::{Setting, Throughput};
use crate::Error;

/// What one run moves, as in the patch: 512 MiB; here as often as needed to take a while.
const SIZE: u64 = 512 << 20;

/// How to run it.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// `max_buffer_pages`.
    pub max_buffer_pages: u64,
    /// One request.
    pub block: u32,
    /// Requests in flight.
    pub depth: u64,
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
    let server = Server::start(&setting.thermo, folder.path(), &arguments, &[])?;
    let mut client = Client::connect(server.socket(), "ram")?;
    // Once unmeasured: afterwards the storage has its memory.
    write_all(setting, shape, &mut client)?;
    let begin = Instant::now();
    write_all(setting, shape, &mut client)?;
    let seconds = begin.elapsed().as_secs_f64();
    drop((client, server));
    Ok(Throughput {
        max_buffer_pages: shape.max_buffer_pages,
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        mb_per_second: SIZE as f64 / 1e6 / seconds,
    })
}

fn write_all(setting: &Setting, shape: &Shape, client: &mut Client) -> Result<(), Error> {
    let step = u64::from(shape.block) * shape.depth;
    for offset in (0..client.size()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        if setting.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        client.batch(Way::Write, offset, shape.block, shape.depth)?;
    }
    Ok(())
}
