//! A command in mounts of its own, with our control files where the kernel's would be.
//!
//! A tmpfs covers `/sys/kernel/mm`, whether the kernel has DAMON or not: in it lie the kernel's other folders as they
//! are, ours as `damon`, and `.thermo` with the command's HOME, the stand-in for perf and the socket it reads. All of
//! it lives in this mount namespace, which ends with its last process; nothing is left to clean up, however we end.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{env, io};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive};
use thermo_damonfs::{Looks, Mounted, TRACED_EVENTS};
use thermo_sys::namespace;

use super::events;
use crate::exit::Exit;
use crate::{interrupt, launch, session};

const MM: &str = "/sys/kernel/mm";
const DAMON: &str = "/sys/kernel/mm/damon";
const OURS: &str = "/sys/kernel/mm/.thermo";
const TRACING: &str = "/sys/kernel/tracing";

/// Runs `command` and ends as it does.
pub fn run(command: &[OsString], looks: Looks) -> anyhow::Result<Exit> {
    launch::check(command)?;
    let path_before = env::var_os("PATH").unwrap_or_default();
    namespace::private_mounts().context("cannot have mounts of our own (it takes CAP_SYS_ADMIN)")?;
    cover().with_context(|| format!("cannot cover {MM}"))?;
    let mounted = super::mount(Path::new(DAMON), looks)?;
    let ours = Path::new(OURS);
    let bin = perf_stand_in(ours).context("cannot put the stand-in for perf in place")?;
    events::serve(&ours.join("events"), mounted.control().engine().trace())
        .context("cannot serve events to the stand-in for perf")?;
    if let Err(error) = answer_tracefs(ours) {
        eprintln!("thermo: there is no tracefs here ({error}), which damo asks for: it may refuse to work");
    }
    let mut path = OsString::from(&bin);
    path.push(":");
    path.push(path_before);
    let environment = [("HOME", ours.join("home").into_os_string()), ("PATH", path)];
    run_in(&mounted, command, &environment)
}

fn run_in(mounted: &Mounted, command: &[OsString], environment: &[(&str, OsString)]) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot listen to Ctrl-C")?;
    let child = launch::launch_in(command, environment)?;
    let status = session::wait_for(child)?;
    mounted.control().stop_all();
    Ok(Exit::As(status))
}

/// Covers `/sys/kernel/mm` by a tmpfs with the same in it, and room for ours.
fn cover() -> io::Result<()> {
    let handle = rustix::fs::open(
        MM,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    // By this name it is found also when it is covered.
    let real = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let names: Vec<OsString> = fs::read_dir(&real)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    mount(
        "thermo",
        MM,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        c"mode=0755,size=64m",
    )?;
    for name in names.iter().filter(|name| *name != "damon") {
        let (from, to) = (real.join(name), Path::new(MM).join(name));
        if from.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::write(&to, "")?;
        }
        mount_bind_recursive(&from, &to)?;
    }
    fs::create_dir(DAMON)?;
    fs::create_dir_all(Path::new(OURS).join("home"))?;
    fs::set_permissions(OURS, fs::Permissions::from_mode(0o700))
}

/// A program called `perf` that is ours; its folder comes first in the command's PATH.
fn perf_stand_in(ours: &Path) -> io::Result<PathBuf> {
    let bin = ours.join("bin");
    fs::create_dir(&bin)?;
    let thermo = env::current_exe()?;
    let quoted = thermo.to_string_lossy().replace('\'', r"'\''");
    let script = format!("#!/bin/sh\nexec '{quoted}' fs --as-perf {OURS}/events -- \"$@\"\n");
    let perf = bin.join("perf");
    fs::write(&perf, script)?;
    fs::set_permissions(&perf, fs::Permissions::from_mode(0o755))?;
    Ok(bin)
}

/// Sees to it that there is a tracefs, and that its list of events has those of our engine. Which events a kernel has
/// is all that is asked of it.
fn answer_tracefs(ours: &Path) -> io::Result<()> {
    let there = mounted_at("tracefs")?;
    let tracefs = there.unwrap_or_else(|| PathBuf::from(TRACING));
    let events = tracefs.join("available_events");
    if !events.exists() {
        mount(
            "tracefs",
            &tracefs,
            "tracefs",
            MountFlags::NOSUID | MountFlags::NODEV,
            None,
        )?;
    }
    let known = match fs::read_to_string(&events) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        read => read.unwrap_or_default(),
    };
    let others = known.lines().filter(|line| !line.starts_with("damon:"));
    let listed: Vec<&str> = others.chain(TRACED_EVENTS).collect();
    let answer = ours.join("available_events");
    fs::write(&answer, listed.join("\n") + "\n")?;
    Ok(mount_bind(&answer, &events)?)
}

/// Where the first file system of this kind is mounted.
fn mounted_at(kind: &str) -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.get(2) == Some(&kind));
    Ok(found.and_then(|fields| fields.get(1).map(PathBuf::from)))
}
