//! `thermo lifecycle run` beside the applications, told of every switch.

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
use crate::group::Group;
use crate::process::{Program, Start, tail};

/// The daemon of a run; it ends with this value.
#[derive(Debug)]
pub(super) struct Daemon {
    program: Program,
    stream: BufReader<UnixStream>,
}

impl Daemon {
    pub(super) fn start(
        plan: &Plan,
        thermo: &Path,
        apps: &Group,
        ours: &Group,
        folder: &Path,
    ) -> Result<Self, String> {
        let (config, socket) = (folder.join("apps.toml"), folder.join("lifecycle.sock"));
        fs::write(&config, description(plan, apps))
            .map_err(|why| format!("cannot write {}: {why}", config.display()))?;
        let words: [&str; 9] = [
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
        let words = words.map(str::to_owned);
        let program = Start {
            words: &words,
            env: &BTreeMap::new(),
            dir: folder,
            doors: &ours.doors(),
            output: &folder.join("thermo.out"),
        }
        .start()
        .map_err(|why| format!("cannot start thermo: {why}"))?;
        Self::connect(program, &socket)
    }

    /// Waits until it listens.
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
                return Err(format!("thermo does not listen: {}", tail(&program.printed())));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Tells it the state of an application, and waits until that was heard.
    pub(super) fn set(&mut self, app: &str, state: &str) -> Result<(), String> {
        let line = format!("{{\"verb\":\"set\",\"app\":\"{app}\",\"state\":\"{state}\"}}\n");
        let mut answer = String::new();
        let exchanged = self
            .stream
            .get_mut()
            .write_all(line.as_bytes())
            .and_then(|()| self.stream.read_line(&mut answer));
        match exchanged {
            Ok(_) if answer.contains("\"ok\":true") => Ok(()),
            Ok(_) => Err(format!("thermo refused {app} {state}: {}", tail(&answer))),
            Err(why) => Err(format!(
                "thermo does not answer: {why}: {}",
                tail(&self.program.printed())
            )),
        }
    }

    pub(super) fn end(mut self) {
        self.program.end(Signal::INT, Duration::from_secs(30));
    }
}

/// The applications of `plan`, whose groups are below `apps`, as the daemon reads them.
fn description(plan: &Plan, apps: &Group) -> String {
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
