//! Many devices in a group that is short of memory.
//!
//! The group holds the server and a neighbour: memory that is used round and round and, together with the buffers of
//! all devices, does not fit. Every device in turn gets a burst of large reads, as guests do I/O in bursts. Without
//! squeezing each pool keeps what the burst left, and the neighbour is swapped out and in; with it the buffers go.
//! Storage is one file on tmpfs that was written outside of the group, so that it counts against nobody in it.

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
use super::{DEFAULT_PAGES, Setting, Swapping};
use crate::Error;
use crate::group::{Group, Hierarchies};
use crate::swap::Swap;

/// One request of a burst.
const BLOCK: u32 = 256 << 10;
/// Requests of a burst: as much as a pool may keep.
const BURST: u64 = 16;
/// What a device can hold free.
const POOL: u64 = DEFAULT_PAGES * 4096;
/// All devices serve this much of one file.
const STORAGE: u64 = 64 << 20;
/// The server itself, and what the kernel needs for its sockets.
const MARGIN: Bytes = Bytes::mib(24);

/// How to run it.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Devices.
    pub devices: usize,
    /// `buffer_squeeze_duration_ms`; 0: no squeezing.
    pub duration_ms: u64,
    /// Rounds over all devices.
    pub rounds: usize,
    /// What the neighbour uses.
    pub neighbour: Bytes,
}

impl Shape {
    /// The group's limit: the neighbour fits, and a sixteenth of what the pools may keep.
    fn limit(&self) -> Bytes {
        self.neighbour + MARGIN + Bytes(POOL * self.devices as u64 / 16)
    }
}

/// Runs it once.
///
/// # Errors
/// When swap, the group or the server cannot be set up, or the load breaks off.
pub fn run(setting: &Setting, shape: &Shape) -> Result<Swapping, Error> {
    let swap = Swap::make(shape.neighbour + Bytes(POOL * shape.devices as u64))?;
    let group = Group::create(
        &Hierarchies::of_this_host()?,
        &format!("thermo-squeeze-{}", std::process::id()),
    )?;
    group.limit(shape.limit().0)?;
    let folder = Folder::make()?;
    let storage = folder.storage()?;
    let server = Server::start(
        &setting.thermo_nbd,
        folder.path(),
        &arguments(shape, &storage),
        &group.doors(),
    )?;
    let neighbour = Neighbour::start(shape.neighbour, &group)?;
    let mut clients = (0..shape.devices)
        .map(|number| Client::connect(server.socket(), &format!("d{number}")))
        .collect::<Result<Vec<_>, _>>()?;
    neighbour.wait_until_it_is_in()?;

    let before = swapped()?;
    let mut requests = 0;
    for round in 0..shape.rounds {
        for (number, client) in clients.iter_mut().enumerate() {
            if setting.stop.load(Ordering::Relaxed) {
                break;
            }
            let offset = ((round * shape.devices + number) as u64 * u64::from(BLOCK) * BURST) % client.size();
            client.batch(Direction::Read, offset, BLOCK, BURST)?;
            requests += BURST;
        }
    }
    let after = swapped()?;
    let peak_bytes = server.status()?["peak_bytes"].as_u64().unwrap_or_default();
    drop((clients, neighbour, server, group, swap));
    Ok(Swapping {
        devices: shape.devices,
        duration_ms: shape.duration_ms,
        pswpin: after.0 - before.0,
        pswpout: after.1 - before.1,
        requests,
        peak_bytes,
    })
}

// Before the patch nothing but the limit of each pool held them back: so much is the budget.
fn arguments(shape: &Shape, storage: &Path) -> Vec<String> {
    let budget = (POOL + (1 << 20)) * shape.devices as u64 + (64 << 20);
    let mut arguments: Vec<String> = vec![
        "--budget".into(),
        budget.to_string(),
        "--max-buffer-pages".into(),
        DEFAULT_PAGES.to_string(),
        "--buffer-squeeze-duration-ms".into(),
        shape.duration_ms.to_string(),
    ];
    for number in 0..shape.devices {
        arguments.push("--export".into());
        arguments.push(format!("d{number}={},ro", storage.display()));
    }
    arguments
}

// Pages swapped in and out on this machine.
fn swapped() -> Result<(u64, u64), Error> {
    let read = vmstat::read(Path::new("/")).map_err(|error| Error::Squeeze(error.to_string()))?;
    let get = |name| read.get(name).unwrap_or_default();
    Ok((get("pswpin"), get("pswpout")))
}

/// A process that uses memory round and round: this program again, told to.
#[derive(Debug)]
struct Neighbour {
    child: Child,
    marker: std::path::PathBuf,
}

/// Argument by which the command knows that it is the neighbour.
pub const NEIGHBOUR: &str = "squeeze-neighbour";

impl Neighbour {
    fn start(size: Bytes, group: &Group) -> Result<Self, Error> {
        let marker = std::env::temp_dir().join(format!("thermo-neighbour-{}", std::process::id()));
        drop(std::fs::remove_file(&marker));
        let wrong = |error: std::io::Error| Error::Squeeze(format!("the neighbour does not start: {error}"));
        let ourselves = std::env::current_exe().map_err(wrong)?;
        let mut command = Command::new(ourselves);
        command.args([NEIGHBOUR, &size.0.to_string()]).arg(&marker);
        let child = command.stdin(Stdio::null()).spawn().map_err(wrong)?;
        let neighbour = Self { child, marker };
        for door in group.doors() {
            std::fs::write(&door, neighbour.child.id().to_string()).map_err(wrong)?;
        }
        Ok(neighbour)
    }

    // Its memory must be charged to the group before anything is counted.
    fn wait_until_it_is_in(&self) -> Result<(), Error> {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.marker.exists() {
            if Instant::now() > deadline {
                return Err(Error::Squeeze(
                    "the neighbour did not get its memory within 120 s".into(),
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

/// Is the neighbour: uses `size` bytes a page at a time, round and round, until it is killed. Says that it has
/// them all by making the file `marker`.
///
/// # Errors
/// The marker cannot be made.
pub fn be_neighbour(size: usize, marker: &Path) -> std::io::Result<()> {
    // The one who started us moves us to the group first.
    std::thread::sleep(Duration::from_millis(200));
    let mut memory = vec![0_u8; size];
    let mut round = 0_u8;
    loop {
        for page in memory.chunks_mut(4096) {
            // Not all alike, or zram would keep nothing but a pattern.
            for (at, word) in page.chunks_mut(8).enumerate() {
                word[0] = word[0].wrapping_add((at % 251) as u8 ^ round);
            }
        }
        if round == 0 {
            std::fs::write(marker, "")?;
        }
        round = round.wrapping_add(1);
        // The rest of the machine wants something to do too.
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder on tmpfs, removed when dropped.
#[derive(Debug)]
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn make() -> Result<Self, Error> {
        let path = Path::new("/dev/shm").join(format!("thermo-squeeze-{}", std::process::id()));
        drop(std::fs::remove_dir_all(&path));
        std::fs::create_dir(&path)
            .map_err(|error| Error::Squeeze(format!("cannot make {}: {error}", path.display())))?;
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
