//! Runs a command in its own mount namespace, with our control files in place of the kernel's.
//!
//! A tmpfs is mounted over `/sys/kernel/mm`, whether the kernel has DAMON or not. It has the kernel's other
//! directories (bind mounts), our control files as `damon`, and `.thermo` with the command's HOME, the
//! replacements of perf, pgrep, pidof and ps, and the socket of events. Another tmpfs over `/sys/module` has
//! the modules. With the debugfs layout, `damon` is in a tmpfs over `/sys/kernel/debug` instead, because
//! tools try debugfs only when sysfs has no DAMON. The mounts exist only in this namespace, which ends with
//! its last process, so nothing is left to clean up.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use anyhow::Context as _;
use rustix::mount::{MountFlags, mount, mount_bind};
use thermo_damonfs::{Engine, ModuleFiles, Mounted, TRACED_EVENTS};
use thermo_kernel::namespace;
use thermo_targets::TargetSpec;
use thermo_term::exit::Exit;
use thermo_term::interrupt;

use super::overlay_mount::{mounted_at, overlay};
use super::{Layout, events, path_shims};
use crate::{launch, privileges, session};

const MM: &str = "/sys/kernel/mm";
const DEBUG: &str = "/sys/kernel/debug";
const MODULE: &str = "/sys/module";
const MODULES: [&str; 3] = ["damon_reclaim", "damon_lru_sort", "damon_stat"];
const PRIVATE_DIR: &str = "/sys/kernel/mm/.thermo";
const TRACING: &str = "/sys/kernel/tracing";

/// Runs `command` and returns its exit status. Modules act on `module_targets` only.
pub fn run(
    command: &[OsString],
    layout: Layout,
    engine: &Arc<Engine>,
    module_targets: Option<TargetSpec>,
) -> anyhow::Result<Exit> {
    launch::check(command)?;
    let old_path = env::var_os("PATH").unwrap_or_default();
    namespace::unshare_mounts().context("cannot create a mount namespace (it needs CAP_SYS_ADMIN)")?;
    let mount_point = create_mount_point(layout)?;
    let private_dir = Path::new(PRIVATE_DIR);
    // The threads keep only what they need; the command gets what the caller has.
    let mounted = privileges::start_threads_with(privileges::FS, || {
        let mounted = [
            super::mount(&mount_point, layout.files(engine)?)?,
            mount_modules(private_dir, ModuleFiles::new(Arc::clone(engine), module_targets))?,
        ];
        events::serve(&private_dir.join("events"), engine.trace())
            .context("cannot serve events to the replacement of perf")?;
        Ok(mounted)
    })?;
    let bin = path_shims::install(private_dir)
        .context("cannot install the replacements of perf, pgrep, pidof and ps")?;
    if let Err(error) = provide_tracefs(private_dir) {
        thermo_kernel::message!(
            "thermo: tracefs is not available ({error}), and damo needs it: damo may refuse to run"
        );
    }
    let mut path = OsString::from(&bin);
    path.push(":");
    path.push(old_path);
    let environment = [
        ("HOME", private_dir.join("home").into_os_string()),
        ("PATH", path),
    ];
    run_command(&mounted, command, &environment)
}

fn run_command(
    mounted: &[Mounted],
    command: &[OsString],
    environment: &[(&str, OsString)],
) -> anyhow::Result<Exit> {
    interrupt::listen().context("cannot handle Ctrl-C")?;
    let child = launch::launch_in_environment(command, environment)?;
    privileges::keep_only(privileges::FS)?;
    let status = session::wait_for(child)?;
    mounted.iter().for_each(|mounted| mounted.files().stop_all());
    Ok(Exit::ChildStatus(status))
}

/// Creates the mount point of the control files among the kernel's directories. With the debugfs layout sysfs
/// has no `damon` at all.
fn create_mount_point(layout: Layout) -> anyhow::Result<PathBuf> {
    let overlay = |dir: &Path, added: &[&str]| {
        overlay(dir, added).with_context(|| format!("cannot mount a tmpfs over {}", dir.display()))
    };
    overlay(Path::new(MM), &["damon", ".thermo"])?;
    fs::create_dir(Path::new(PRIVATE_DIR).join("home"))?;
    fs::set_permissions(PRIVATE_DIR, fs::Permissions::from_mode(0o700))?;
    let sysfs = Path::new(MM).join("damon");
    if layout == Layout::Sysfs {
        return Ok(sysfs);
    }
    fs::remove_dir(sysfs)?;
    let debugfs = mount_debugfs()?;
    overlay(&debugfs, &["damon"])?;
    Ok(debugfs.join("damon"))
}

/// The mount point of debugfs, which is mounted if necessary: tools search the mounts for it.
fn mount_debugfs() -> anyhow::Result<PathBuf> {
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
    .with_context(|| format!("cannot mount debugfs at {DEBUG}, which the debugfs layout needs"))?;
    Ok(PathBuf::from(DEBUG))
}

/// Mounts our modules among the kernel's.
fn mount_modules(private_dir: &Path, modules: Arc<ModuleFiles>) -> anyhow::Result<Mounted> {
    let dir = private_dir.join("module");
    fs::create_dir(&dir)?;
    let mounted = super::mount(&dir, modules)?;
    overlay(Path::new(MODULE), &MODULES).with_context(|| format!("cannot mount a tmpfs over {MODULE}"))?;
    for name in MODULES {
        mount_bind(dir.join(name), Path::new(MODULE).join(name))?;
    }
    Ok(mounted)
}

/// Mounts tracefs if necessary, and adds the events of our engine to its list of events. Tools read nothing
/// else there.
fn provide_tracefs(private_dir: &Path) -> io::Result<()> {
    let mount_point = mounted_at("tracefs")?;
    let tracefs = mount_point.unwrap_or_else(|| PathBuf::from(TRACING));
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
    let all: Vec<&str> = others.chain(TRACED_EVENTS).collect();
    let list = private_dir.join("available_events");
    fs::write(&list, all.join("\n") + "\n")?;
    Ok(mount_bind(&list, &events)?)
}
