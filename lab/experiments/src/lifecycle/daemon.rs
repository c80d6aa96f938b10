//! Runs `thermo lifecycle run` and sends it every change of an application's state.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::plan::Plan;
use crate::cgroup::Cgroup;
use crate::process::{Program, ProgramSpec, last_lines};

/// The daemon of a run. Dropping it ends the daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    program: Program,
    stream: BufReader<UnixStream>,
}

impl Daemon {
    pub(super) fn start(
        plan: &Plan,
        thermo: &Path,
        apps: &Cgroup,
        thermo_group: &Cgroup,
        folder: &Path,
    ) -> Result<Self, String> {
        let (config, socket) = (folder.join("apps.toml"), folder.join("lifecycle.sock"));
        fs::write(&config, daemon_config(plan, apps))
            .map_err(|error| format!("cannot write {}: {error}", config.display()))?;
        let argv: [&str; 9] = [
            &thermo.display().to_string(),
            "lifecycle",
            "run",
            &config.display().to_string(),
            "--json",
            "--silent-after",
            "1h",
            "--socket",
            &socket.display().to_string(),
        ];
        let argv = argv.map(str::to_owned);
        let program = ProgramSpec {
            argv: &argv,
            env: &BTreeMap::new(),
            dir: folder,
            procs_files: &thermo_group.procs_files(),
            output: &folder.join("thermo.out"),
        }
        .start()
        .map_err(|error| format!("cannot start thermo: {error}"))?;
        Self::connect(program, &socket)
    }

    /// Waits until the daemon accepts a connection.
    fn connect(mut program: Program, socket: &Path) -> Result<Self, String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(stream) = UnixStream::connect(socket) {
                let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
                let stream = BufReader::new(stream);
                return Ok(Self { program, stream });
            }
            let ended = program.wait(Duration::ZERO).is_ok_and(|status| status.is_some());
            if ended || Instant::now() > deadline {
                return Err(format!(
                    "thermo does not accept connections: {}",
                    last_lines(&program.printed())
                ));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Sends the state of an application and waits for the reply.
    pub(super) fn set(&mut self, app: &str, state: &str) -> Result<(), String> {
        let request = format!("{{\"verb\":\"set\",\"app\":\"{app}\",\"state\":\"{state}\"}}\n");
        let mut reply = String::new();
        let exchanged = self
            .stream
            .get_mut()
            .write_all(request.as_bytes())
            .and_then(|()| self.stream.read_line(&mut reply));
        match exchanged {
            Ok(_) if reply.contains("\"ok\":true") => Ok(()),
            Ok(_) => Err(format!(
                "thermo rejected state {state} of {app}: {}",
                last_lines(&reply)
            )),
            Err(error) => Err(format!(
                "thermo does not reply: {error}: {}",
                last_lines(&self.program.printed())
            )),
        }
    }

    pub(super) fn end(mut self) {
        self.program.end(Signal::INT, Duration::from_secs(30));
    }
}

/// The daemon's configuration file for the applications of `plan`, whose cgroups are children of `apps`.
fn daemon_config(plan: &Plan, apps: &Cgroup) -> String {
    let mut text = format!("duty = \"{}\"\n", plan.duty);
    for app in &plan.apps {
        let group = apps.path().join(&app.name);
        let _ = writeln!(
            text,
            "[[app]]\nname = \"{}\"\ncgroup = \"{}\"\n{}",
            app.name,
            group.display(),
            plan.rules
        );
    }
    text
}
