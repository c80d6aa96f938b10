//! What is known of a process, for policies to match.

use std::path::Path;

use thermo_kernel::cgroup::{self, GroupPath};
use thermo_kernel::stat::{self, Image};
use thermo_kernel::{ProcError, proc, status};

use crate::kubernetes::pod_list::Pod;
use crate::kubernetes::pod_names::{MissingNames, PodIdentity};

/// Bytes of the environment that are read at most.
const MAX_ENVIRONMENT: usize = 64 * 1024;
/// Characters of a container's name in target names: as `docker ps` shows it.
const SHORT_ID: usize = 12;

/// Facts that are read only where a policy needs them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Variables of the environment.
    pub variables: Vec<String>,
    /// The effective user.
    pub user: bool,
}

impl Asked {
    /// All but the environment, which a process that does not answer keeps from being read.
    pub(crate) fn without_variables(&self) -> Self {
        Self {
            variables: Vec::new(),
            ..*self
        }
    }
}

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// The process number.
    pub pid: u32,
    /// Start time in clock ticks since boot. With the number it identifies a process.
    pub starttime: u64,
    /// Load addresses of the program, which change with an exec.
    pub image: Image,
    /// The kernel's name of the program, at most 15 bytes.
    pub command: String,
    /// The path of the program; empty without the right to see it.
    pub exe: String,
    /// The effective user; 0 if it was not asked for.
    pub uid: u32,
    /// The control groups.
    pub cgroups: Vec<GroupPath>,
    /// The variables of the environment that a policy asks for, as `NAME=VALUE`.
    pub environment: Vec<String>,
    /// The pod, if it is in one. The owner of the names of pods adds it.
    pub pod: Option<PodIdentity>,
}

impl Identity {
    /// Reads what is known of process `pid`, and what is `asked` for. `None`: it has ended, or is a kernel
    /// thread.
    ///
    /// # Errors
    /// A file of the process cannot be read.
    pub fn read(root: &Path, pid: u32, asked: &Asked) -> Result<Option<Self>, ProcError> {
        match Self::read_existing(root, pid, asked) {
            Err(ProcError::Gone { .. }) => Ok(None),
            result => result,
        }
    }

    fn read_existing(root: &Path, pid: u32, asked: &Asked) -> Result<Option<Self>, ProcError> {
        let stat = stat::read(root, pid)?;
        if stat.is_kernel_thread() || !stat.process_lives() {
            return Ok(None);
        }
        let exe = std::fs::read_link(proc::dir(root, pid).join("exe"));
        let uid = match asked.user {
            true => status::read(root, pid)?.euid,
            false => 0,
        };
        Ok(Some(Self {
            pid,
            starttime: stat.starttime,
            image: stat.image,
            command: stat.comm,
            exe: exe.map_or_else(
                |_| String::new(),
                |path| without_deleted(&path.display().to_string()),
            ),
            uid,
            cgroups: cgroup::paths(root, pid)?,
            environment: environment(root, pid, &asked.variables)?,
            pod: None,
        }))
    }

    /// The systemd unit of the process: the outermost service or scope in the path of its group. Groups
    /// inside may be delegated, and then the unit itself chooses their names. Only below `system.slice` and
    /// `machine.slice`, where root decides. Users name groups of their own as they like, so a user's unit has
    /// the prefix `user@UID/`.
    #[must_use]
    pub fn unit(&self) -> Option<String> {
        let systemd = self
            .cgroups
            .iter()
            .find(|group| group.controllers == "name=systemd")
            .or_else(|| self.cgroups.iter().find(|group| group.is_unified()))?;
        unit_of(&systemd.path)
    }

    /// The container of the process: the 64 hexadecimal digits in the path of its control group.
    #[must_use]
    pub fn container(&self) -> Option<&str> {
        self.cgroups.iter().find_map(|group| container_of(&group.path))
    }

    /// Whether names that are `needed` are not yet reported by the kubelet. [`MissingNames::Pod`] is needed
    /// for namespace, pod and labels, [`MissingNames::Container`] for the container's name.
    #[must_use]
    pub fn lacks(&self, needed: MissingNames) -> bool {
        let missing = self.pod.as_ref().map_or(MissingNames::Nothing, |pod| pod.missing);
        match needed {
            MissingNames::Nothing => false,
            MissingNames::Container => missing != MissingNames::Nothing,
            MissingNames::Pod => missing == MissingNames::Pod,
        }
    }

    /// The names of its pod, if they are known.
    #[must_use]
    pub fn pod_names(&self) -> Option<&Pod> {
        self.pod.as_ref()?.pod.as_deref()
    }

    /// One fact of its pod, or none.
    pub(crate) fn pod_fact(&self, fact: impl Fn(&Pod) -> String) -> Vec<String> {
        self.pod_names().map(fact).into_iter().collect()
    }

    /// The labels of its pod, as `NAME=VALUE`.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let labels = self.pod_names().into_iter().flat_map(|pod| &pod.labels);
        labels.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// The name of its container in its pod, if that is known.
    #[must_use]
    pub fn container_name(&self) -> Option<&str> {
        self.pod.as_ref()?.container_name.as_deref()
    }

    /// The path of the control group that limits memory: version 2, or the memory controller.
    #[must_use]
    pub fn cgroup(&self) -> &str {
        let memory = self.cgroups.iter().find(|group| group.has("memory"));
        let unified = || self.cgroups.iter().find(|group| group.is_unified());
        memory.or_else(unified).map_or("/", |group| &group.path)
    }

    /// The job class of the process: programs that do the same on many machines. The owner of its pod,
    /// otherwise the unit without its instance, otherwise the command.
    #[must_use]
    pub fn workload(&self) -> String {
        if let Some(pod) = self.pod_names() {
            return pod.workload().to_owned();
        }
        let service = self.unit().filter(|unit| unit.ends_with(".service"));
        service.map_or_else(|| self.command.clone(), |unit| template_of(&unit))
    }

    /// The name of the target that the process belongs to, by default: its unit, its container, or its
    /// command.
    #[must_use]
    pub fn default_name(&self) -> String {
        let short = |id: &str| id.get(..SHORT_ID).unwrap_or(id).to_owned();
        let service = self.unit().filter(|unit| unit.ends_with(".service"));
        service
            .or_else(|| self.container().map(short))
            .unwrap_or_else(|| self.command.clone())
    }
}

/// A unit without user and instance: `user@7/postgresql@15-main.service` is `postgresql@.service`.
fn template_of(unit: &str) -> String {
    let unit = unit.rsplit('/').next().unwrap_or(unit);
    let instance = unit.split_once('@').zip(unit.rsplit_once('.'));
    instance.map_or_else(
        || unit.to_owned(),
        |((template, _), (_, kind))| format!("{template}@.{kind}"),
    )
}

/// The path of a program, also after an upgrade has replaced its file.
fn without_deleted(path: &str) -> String {
    path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()
}

/// See [`Identity::unit`].
fn unit_of(path: &str) -> Option<String> {
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    let mut components = path.split('/').filter(|part| !part.is_empty());
    let slice = components.next()?;
    if matches!(slice, "system.slice" | "machine.slice") {
        return components.find(is_unit).map(str::to_owned);
    }
    if slice == "user.slice" {
        let manager = components.find_map(|part| part.strip_prefix("user@")?.strip_suffix(".service"));
        let unit = components.find(is_unit)?;
        return manager.map(|uid| format!("user@{uid}/{unit}"));
    }
    None
}

fn container_of(path: &str) -> Option<&str> {
    let is_id = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    path.rsplit('/').find_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        // `docker-ID.scope`, `cri-containerd-ID.scope`, `ID`.
        part.rsplit(['-', ':']).next().filter(is_id)
    })
}

/// The variables `names` of the environment that the process started with.
fn environment(root: &Path, pid: u32, names: &[String]) -> Result<Vec<String>, ProcError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let text = match proc::text_start(root, pid, "environ", MAX_ENVIRONMENT) {
        // It is read again when the process answers.
        Err(stall @ ProcError::NotAnswering(_)) => return Err(stall),
        // Unreadable: the variables do not match.
        text => text.unwrap_or_default(),
    };
    let is_asked_for = |entry: &&str| {
        let name = entry.split('=').next().unwrap_or_default();
        names.iter().any(|asked| asked == name)
    };
    Ok(text.split('\0').filter(is_asked_for).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_the_outermost_below_a_slice_of_root() {
        for (path, unit) in [
            ("/system.slice/redis.service", Some("redis.service")),
            ("/system.slice/docker-aa.scope/x", Some("docker-aa.scope")),
            ("/system.slice/a.service/b.service", Some("a.service")),
            (
                "/system.slice/docker-ab.scope/redis.service",
                Some("docker-ab.scope"),
            ),
            (
                "/user.slice/user-7.slice/user@7.service/app.slice/x.service",
                Some("user@7/x.service"),
            ),
            ("/user.slice/user-7.slice/session-1.scope", None),
            ("/redis.service", None),
            ("/", None),
        ] {
            assert_eq!(unit_of(path).as_deref(), unit, "{path}");
        }
    }

    #[test]
    fn job_class_has_no_instance() {
        for (unit, class) in [
            ("redis.service", "redis.service"),
            ("postgresql@15-main.service", "postgresql@.service"),
            ("user@7/x@1.service", "x@.service"),
        ] {
            assert_eq!(template_of(unit), class);
        }
    }

    #[test]
    fn container_is_found_in_every_layout() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-podab.slice/cri-containerd-{id}.scope"
            ),
            format!("/kubepods/burstable/pod12/{id}"),
            format!("/kubepods/besteffort/pod12/crio-{id}/sub"),
        ] {
            assert_eq!(container_of(&path), Some(id.as_str()), "{path}");
        }
        assert_eq!(container_of("/docker/abc"), None);
    }

    #[test]
    fn own_process_is_known() {
        let asked = Asked {
            variables: vec!["PATH".to_owned()],
            user: true,
        };
        let identity = Identity::read(Path::new("/"), std::process::id(), &asked);
        let identity = identity.ok().flatten().unwrap_or_default();
        assert!(identity.exe.starts_with('/') && identity.starttime > 0);
        assert!(
            identity
                .environment
                .iter()
                .all(|entry| entry.starts_with("PATH="))
        );
        assert_eq!(
            Identity::read(Path::new("/"), u32::MAX >> 8, &asked).ok(),
            Some(None)
        );
    }
}
