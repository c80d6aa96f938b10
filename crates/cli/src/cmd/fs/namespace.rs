//! A command in mounts of its own, with our control files where the kernel's would be.
//!
//! A tmpfs covers `/sys/kernel/mm`, whether the kernel has DAMON or not: in it lie the kernel's other folders as they
//! are, ours as `damon`, and `.thermo` with the command's HOME, the programs that stand in for others and the socket
//! that one of them reads. So is `/sys/module`, for the modules; and with the early layout `/sys/kernel/debug` instead,
//! for the tool looks there only when there is nothing in sysfs. All of it lives in this mount namespace, which ends with
//! its last process; nothing is left to clean up, however we end.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use anyhow::Context as _;
use rustix::mount::{MountFlags, mount, mount_bind};
use thermo_damonfs::{Engine, Modules, Mounted, TRACED_EVENTS};
use thermo_kernel::namespace;
use thermo_targets::TargetSpec;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

use super::overlay_mount::{cover, mounted_at};
use super::{Layout, events, path_shims};
use crate::{launch, session};

const MM: &str = "/sys/kernel/mm";
const DEBUG: &str = "/sys/kernel/debug";
const MODULE: &str = "/sys/module";
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];
const OURS: &str = "/sys/kernel/mm/.thermo";
const TRACING: &str = "/sys/kernel/tracing";

/// Runs `command` and ends as it does.
///
/// Modules act on `reach`; none: on nobody.
pub fn run(
    command: &[OsString],
    layout: Layout,
    engine: &Arc<Engine>,
    reach: Option<TargetSpec>,
) -> anyhow::Result<Exit> {
    launch::check(command)?;
    let path_before = env::var_os("PATH").unwrap_or_default();
    namespace::private_mounts().context("cannot have mounts of our own (it takes CAP_SYS_ADMIN)")?;
    let place = make_room(layout)?;
    let ours = Path::new(OURS);
    let mounted = [
        super::mount(&place, layout.files(engine)?)?,
        show_modules(ours, Modules::new(Arc::clone(engine), reach))?,
    ];
    let bin = path_shims::install(ours).context("cannot put what stands in for perf and pgrep in place")?;
    events::serve(&ours.join("events"), engine.trace())
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

fn run_in(
    mounted: &[Mounted],
    command: &[OsString],
    environment: &[(&str, OsString)],
) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot listen to Ctrl-C")?;
    let child = launch::launch_in(command, environment)?;
    let status = session::wait_for(child)?;
    mounted.iter().for_each(|mounted| mounted.files().stop_all());
    Ok(Exit::As(status))
}

/// Makes a folder of ours among the kernel's, and returns it. With the early layout there is none in sysfs, not even
/// the kernel's own.
fn make_room(layout: Layout) -> anyhow::Result<PathBuf> {
    let cover = |folder: &Path, ours: &[&str]| {
        cover(folder, ours).with_context(|| format!("cannot cover {}", folder.display()))
    };
    cover(Path::new(MM), &["damon", ".thermo"])?;
    fs::create_dir(Path::new(OURS).join("home"))?;
    fs::set_permissions(OURS, fs::Permissions::from_mode(0o700))?;
    let sysfs = Path::new(MM).join("damon");
    if layout == Layout::Sysfs {
        return Ok(sysfs);
    }
    fs::remove_dir(sysfs)?;
    let debugfs = debugfs()?;
    cover(&debugfs, &["damon"])?;
    Ok(debugfs.join("damon"))
}

/// Where debugfs is; tools look for it among the mounts, so there has to be one.
fn debugfs() -> anyhow::Result<PathBuf> {
    if let Some(debugfs) = mounted_at("debugfs")? {
        return Ok(debugfs);
    }
    mount(
        "debugfs",
        DEBUG,
        "debugfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        None,
    )
    .with_context(|| format!("cannot mount debugfs at {DEBUG}, where the early layout lies"))?;
    Ok(PathBuf::from(DEBUG))
}

/// Puts the modules among the kernel's.
fn show_modules(ours: &Path, modules: Arc<Modules>) -> anyhow::Result<Mounted> {
    let shown = ours.join("module");
    fs::create_dir(&shown)?;
    let mounted = super::mount(&shown, modules)?;
    cover(Path::new(MODULE), &MODULES).with_context(|| format!("cannot cover {MODULE}"))?;
    for name in MODULES {
        mount_bind(shown.join(name), Path::new(MODULE).join(name))?;
    }
    Ok(mounted)
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
