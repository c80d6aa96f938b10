//! Many devices in a cgroup under memory pressure.
//!
//! The cgroup contains the server and a neighbour: a process that keeps accessing its memory. Its memory and
//! the buffers of all devices do not fit together. Each device in turn gets a burst of large reads, like the
//! bursts of I/O of virtual machines. Without squeezing, each pool keeps the buffers of its burst, and the
//! neighbour is swapped out and in. With squeezing, the buffers are freed. The storage is one file on tmpfs,
//! written outside of the cgroup, so that it is not charged to the cgroup.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thermo_kernel::vmstat;
use thermo_units::Bytes;

use super::client::{Client, Direction};
use super::server::Server;
use super::{DEFAULT_PAGES, Options, PressureRun};
use crate::Error;
use crate::cgroup::{Cgroup, Hierarchies};
use crate::swap::Swap;

/// Size of a request, in bytes.
const BLOCK: u32 = 256 << 10;
/// Requests in a burst: together as large as the maximum of a pool.
const BURST: u64 = 16;
/// Maximum free memory of a pool, in bytes.
const POOL: u64 = DEFAULT_PAGES * 4096;
/// Size of the file that all devices serve, in bytes.
const STORAGE: u64 = 64 << 20;
/// Memory of the server without its pools, and of its sockets in the kernel.
const MARGIN: Bytes = Bytes::mib(24);

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Parameters {
    /// Number of devices.
    pub devices: usize,
    /// `buffer_squeeze_duration_ms`; 0 means no squeezing.
    pub duration_ms: u64,
    /// Bursts for each device.
    pub rounds: usize,
    /// Memory of the neighbour.
    pub neighbour: Bytes,
}

impl Parameters {
    /// The memory limit of the cgroup: enough for the neighbour and a sixteenth of the maximum of all pools.
    fn limit(&self) -> Bytes {
        self.neighbour + MARGIN + Bytes(POOL * self.devices as u64 / 16)
    }
}

/// Makes one run.
///
/// # Errors
/// When swap, cgroup or server cannot be set up, or the load fails.
pub fn run(options: &Options, parameters: &Parameters) -> Result<PressureRun, Error> {
    let swap = Swap::create(parameters.neighbour + Bytes(POOL * parameters.devices as u64))?;
    let group = Cgroup::create(
        &Hierarchies::detect()?,
        &format!("thermo-squeeze-{}", std::process::id()),
    )?;
    group.set_memory_limit(parameters.limit().0)?;
    let folder = Folder::create()?;
    let storage = folder.storage()?;
    let server = Server::start(
        &options.thermo_nbd,
        folder.path(),
        &arguments(parameters, &storage),
        &group.procs_files(),
    )?;
    let neighbour = Neighbour::start(parameters.neighbour, &group)?;
    let mut clients = (0..parameters.devices)
        .map(|number| Client::connect(server.socket(), &format!("d{number}")))
        .collect::<Result<Vec<_>, _>>()?;
    neighbour.wait_until_resident()?;

    let before = swap_counters()?;
    let mut requests = 0;
    for round in 0..parameters.rounds {
        for (number, client) in clients.iter_mut().enumerate() {
            if options.stop.load(Ordering::Relaxed) {
                break;
            }
            let offset =
                ((round * parameters.devices + number) as u64 * u64::from(BLOCK) * BURST) % client.size();
            client.batch(Direction::Read, offset, BLOCK, BURST)?;
            requests += BURST;
        }
    }
    let after = swap_counters()?;
    let peak_bytes = server.status()?["peak_bytes"].as_u64().unwrap_or_default();
    drop((clients, neighbour, server, group, swap));
    Ok(PressureRun {
        devices: parameters.devices,
        duration_ms: parameters.duration_ms,
        pswpin: after.0 - before.0,
        pswpout: after.1 - before.1,
        requests,
        peak_bytes,
    })
}

/// Arguments of the server. Its budget allows every pool its maximum: before the patch pools had no other
/// limit.
fn arguments(parameters: &Parameters, storage: &Path) -> Vec<String> {
    let budget = (POOL + (1 << 20)) * parameters.devices as u64 + (64 << 20);
    let mut arguments: Vec<String> = vec![
        "--budget".into(),
        budget.to_string(),
        "--max-buffer-pages".into(),
        DEFAULT_PAGES.to_string(),
        "--buffer-squeeze-duration-ms".into(),
        parameters.duration_ms.to_string(),
    ];
    for number in 0..parameters.devices {
        arguments.push("--export".into());
        arguments.push(format!("d{number}={},ro", storage.display()));
    }
    arguments
}

/// Pages swapped in and out on this machine since boot.
fn swap_counters() -> Result<(u64, u64), Error> {
    let vmstat = vmstat::read(Path::new("/")).map_err(|error| Error::Squeeze(error.to_string()))?;
    let get = |name| vmstat.get(name).unwrap_or_default();
    Ok((get("pswpin"), get("pswpout")))
}

/// A process that keeps accessing its memory: this program, run with the argument [`NEIGHBOUR`].
#[derive(Debug)]
struct Neighbour {
    child: Child,
    marker: std::path::PathBuf,
}

/// The hidden subcommand that runs the neighbour.
pub const NEIGHBOUR: &str = "squeeze-neighbour";

impl Neighbour {
    fn start(size: Bytes, group: &Cgroup) -> Result<Self, Error> {
        let marker = std::env::temp_dir().join(format!("thermo-neighbour-{}", std::process::id()));
        drop(std::fs::remove_file(&marker));
        let failed = |error: std::io::Error| Error::Squeeze(format!("cannot start the neighbour: {error}"));
        let executable = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(executable);
        command.args([NEIGHBOUR, &size.0.to_string()]).arg(&marker);
        let child = command.stdin(Stdio::null()).spawn().map_err(failed)?;
        let neighbour = Self { child, marker };
        for file in group.procs_files() {
            std::fs::write(&file, neighbour.child.id().to_string()).map_err(failed)?;
        }
        Ok(neighbour)
    }

    /// Waits until all its memory is charged to the cgroup, which must precede counting.
    fn wait_until_resident(&self) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.marker.exists() {
            if Instant::now() > deadline {
                return Err(Error::Squeeze(
                    "the neighbour did not allocate its memory within 120 s".into(),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        drop(std::fs::remove_file(&self.marker));
    }
}

/// Runs the neighbour: accesses `size` bytes page by page, in a loop, until it is killed. Creates the file
/// `marker` after the first pass, when all its memory is allocated.
///
/// # Errors
/// When the marker cannot be created.
pub fn run_neighbour(size: usize, marker: &Path) -> std::io::Result<()> {
    // Wait until the parent has moved this process to the cgroup.
    std::thread::sleep(Duration::from_millis(200));
    let mut memory = vec![0_u8; size];
    let mut round = 0_u8;
    loop {
        for page in memory.chunks_mut(4096) {
            // Vary the bytes: zram stores a page of one repeated word as a pattern, which takes no memory.
            for (at, word) in page.chunks_mut(8).enumerate() {
                word[0] = word[0].wrapping_add((at % 251) as u8 ^ round);
            }
        }
        if round == 0 {
            std::fs::write(marker, "")?;
        }
        round = round.wrapping_add(1);
        // Leave CPU time to other processes.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder on tmpfs. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn create() -> Result<Self, Error> {
        let path = Path::new("/dev/shm").join(format!("thermo-squeeze-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path)
            .map_err(|error| Error::Squeeze(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn storage(&self) -> Result<std::path::PathBuf, Error> {
        let path = self.0.join("storage");
        let write = || {
            let file = File::create(&path)?;
            let block = vec![7; BLOCK as usize];
            for at in (0..STORAGE).step_by(BLOCK as usize) {
                file.write_all_at(&block, at)?;
            }
            Ok::<_, std::io::Error>(())
        };
        write().map_err(|error| Error::Squeeze(format!("cannot write {}: {error}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
