//! From the text to what is meant, each mistake with its place.

use super::*;

/// The keys as they stand in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    socket: Option<PathBuf>,
    duty: Option<Spanned<String>>,
    poll: Option<Spanned<String>>,
    #[serde(default)]
    app: Vec<Spanned<AppText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppText {
    name: Spanned<String>,
    pid: Option<Spanned<u32>>,
    cgroup: Option<Spanned<String>>,
    unit: Option<Spanned<String>>,
    command: Option<Spanned<String>>,
    profile: Option<Spanned<String>>,
    background: Option<Spanned<String>>,
    prefetch: Option<bool>,
    idle_after: Option<Spanned<String>>,
    idle_touched: Option<Spanned<String>>,
    some_some: Option<Spanned<String>>,
    some_full: Option<Spanned<String>>,
    full_some: Option<Spanned<String>>,
    full_full: Option<Spanned<String>>,
    min_anon_rss: Option<Spanned<String>>,
    min_change: Option<Spanned<String>>,
    swap_low: Option<Spanned<String>>,
}

pub(super) fn parse(text: &str) -> Result<Config, Fault> {
    let file: FileText = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Fault::at_offset(text, offset, error.message().trim_end().replace('\n', ", "))
    })?;
    let reader = Reader { text };
    let duty = reader.value(file.duty.as_ref(), Permille(250))?;
    if duty.0 == 0 || duty.0 > 1000 {
        return Err(reader.fault_at(
            file.duty.as_ref(),
            format!("a duty of {duty} is none: give 1% to 100%"),
        ));
    }
    let poll = reader.value(file.poll.as_ref(), Nanos::secs(2))?;
    if poll < Nanos::millis(10) {
        let message = format!("looking every {poll} would be all that is done: give 10ms or more");
        return Err(reader.fault_at(file.poll.as_ref(), message));
    }
    if file.app.is_empty() {
        return Err(Fault::new(
            1,
            1,
            "no application is described: add [[app]] with a name and a cgroup",
        ));
    }
    let mut claims = Claims::default();
    let mut apps = Vec::with_capacity(file.app.len());
    for app in file.app {
        apps.push(reader.app(app, &mut claims)?);
    }
    Ok(Config {
        socket: file.socket,
        duty,
        poll,
        apps,
    })
}

/// Who claims what, and in which line that stands.
#[derive(Default)]
struct Claims {
    names: BTreeMap<String, usize>,
    targets: Vec<(Target, String, usize)>,
}

struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn fault<T>(&self, part: &Spanned<T>, message: impl Into<String>) -> Fault {
        Fault::at_offset(self.text, part.span().start, message)
    }

    fn fault_at<T>(&self, part: Option<&Spanned<T>>, message: impl Into<String>) -> Fault {
        Fault::at_offset(self.text, part.map_or(0, |part| part.span().start), message)
    }

    fn value<T: FromStr<Err: std::fmt::Display>>(
        &self,
        part: Option<&Spanned<String>>,
        default: T,
    ) -> Result<T, Fault> {
        match part {
            None => Ok(default),
            Some(part) => part
                .get_ref()
                .parse()
                .map_err(|why| self.fault(part, format!("{why}"))),
        }
    }

    fn optional<T: FromStr<Err: std::fmt::Display>>(
        &self,
        part: Option<&Spanned<String>>,
    ) -> Result<Option<T>, Fault> {
        part.map(|part| {
            part.get_ref()
                .parse()
                .map_err(|why| self.fault(part, format!("{why}")))
        })
        .transpose()
    }

    fn app(&self, app: Spanned<AppText>, claims: &mut Claims) -> Result<AppConfig, Fault> {
        let target = self.target(&app)?;
        let place = app.span().start;
        let app = app.into_inner();
        let line = Fault::at_offset(self.text, place, "").line;
        let name = self.name(&app.name, line, claims)?;
        self.claim(&app, &target, &name, line, claims)?;
        let idle_after: Option<Nanos> = self.optional(app.idle_after.as_ref())?;
        if idle_after.is_some_and(|time| time < Nanos::secs(1)) {
            let message = "idle_after below 1s takes every pause for an end: give 1s or more";
            return Err(self.fault_at(app.idle_after.as_ref(), message));
        }
        Ok(AppConfig {
            idle_after,
            idle_touched: self.value(app.idle_touched.as_ref(), Permille(10))?,
            rules: self.rules(&app)?,
            name,
            target,
            line,
        })
    }

    fn name(&self, name: &Spanned<String>, line: usize, claims: &mut Claims) -> Result<String, Fault> {
        let text = name.get_ref();
        if text.is_empty() || text.len() > 80 || text.chars().any(char::is_control) {
            return Err(self.fault(
                name,
                "a name has 1 to 80 characters, none of them a control character",
            ));
        }
        if let Some(first) = claims.names.insert(text.clone(), line) {
            let message =
                format!("{text:?} is described in line {first} already: give this one another name");
            return Err(self.fault(name, message));
        }
        Ok(text.clone())
    }

    fn target(&self, app: &Spanned<AppText>) -> Result<Target, Fault> {
        let whole = app.get_ref();
        let mut found = Vec::new();
        if let Some(pid) = &whole.pid {
            if *pid.get_ref() < 2 {
                return Err(self.fault(pid, format!("process {} is never an application", pid.get_ref())));
            }
            found.push(Target::Pid(*pid.get_ref()));
        }
        if let Some(path) = &whole.cgroup {
            if path.get_ref().trim_matches('/').is_empty() {
                return Err(self.fault(
                    path,
                    "the group at the top holds the whole machine: name one below it",
                ));
            }
            found.push(Target::Cgroup(path.get_ref().clone()));
        }
        found.extend(
            whole
                .unit
                .as_ref()
                .map(|unit| Target::Unit(unit.get_ref().clone())),
        );
        if let Some(pattern) = &whole.command {
            found.push(Target::Command(self.pattern(pattern)?));
        }
        match (found.pop(), found.is_empty()) {
            (Some(target), true) => Ok(target),
            (None, _) => Err(self.fault(
                app,
                "which processes is it? Give one of pid, cgroup, unit, command",
            )),
            _ => Err(self.fault(
                app,
                "it has more than one of pid, cgroup, unit, command: keep one",
            )),
        }
    }

    fn pattern(&self, pattern: &Spanned<String>) -> Result<Regex, Fault> {
        // A regular expression's error draws a picture of several lines; its last line is the sentence.
        Regex::new(pattern.get_ref()).map_err(|error| {
            let told = error.to_string();
            self.fault(pattern, told.lines().last().unwrap_or_default().trim().to_owned())
        })
    }

    /// Memory that two applications claim would be judged by two states at once.
    fn claim(
        &self,
        app: &AppText,
        target: &Target,
        name: &str,
        line: usize,
        claims: &mut Claims,
    ) -> Result<(), Fault> {
        let mut others = claims.targets.iter();
        if let Some((_, other, of)) = others.find(|(other, ..)| overlap(other, target)) {
            let message = format!(
                "application {other:?} (line {of}) claims the processes of {name:?} too: give each its own"
            );
            let part = app.cgroup.as_ref().or(app.unit.as_ref()).or(app.command.as_ref());
            return Err(match (&app.pid, part) {
                (Some(pid), _) => self.fault(pid, message),
                (None, part) => self.fault_at(part, message),
            });
        }
        claims.targets.push((target.clone(), name.to_owned(), line));
        Ok(())
    }

    fn rules(&self, app: &AppText) -> Result<Rules, Fault> {
        let (rules, throttle) = (Rules::default(), Throttle::default());
        let background = match &app.background {
            Some(none) if none.get_ref() == "none" => None,
            given => self.optional(given.as_ref())?,
        };
        Ok(Rules {
            profile: self.value(app.profile.as_ref(), rules.profile)?,
            background,
            prefetch: app.prefetch.unwrap_or(rules.prefetch),
            throttle: Throttle {
                some_some: self.value(app.some_some.as_ref(), throttle.some_some)?,
                some_full: self.value(app.some_full.as_ref(), throttle.some_full)?,
                full_some: self.value(app.full_some.as_ref(), throttle.full_some)?,
                full_full: self.value(app.full_full.as_ref(), throttle.full_full)?,
            },
            min_anon_rss: self.value(app.min_anon_rss.as_ref(), rules.min_anon_rss)?,
            min_change: self.value(app.min_change.as_ref(), rules.min_change)?,
            swap_low: self.value(app.swap_low.as_ref(), rules.swap_low)?,
        })
    }
}

/// Whether two descriptions name the same processes, as far as that can be told without looking: a group holds those
/// below it.
fn overlap(a: &Target, b: &Target) -> bool {
    match (a, b) {
        (Target::Cgroup(a), Target::Cgroup(b)) => {
            let (a, b) = (steps(a), steps(b));
            a.iter().zip(&b).all(|(a, b)| a == b)
        }
        _ => a == b,
    }
}

/// The steps of a path below a mount; of a folder of the usual mount those below it.
fn steps(path: &str) -> Vec<&str> {
    let steps: Vec<&str> = path
        .split('/')
        .filter(|step| !step.is_empty() && *step != ".")
        .collect();
    match &steps[..] {
        ["sys", "fs", "cgroup", "memory" | "unified" | "systemd", rest @ ..]
        | ["sys", "fs", "cgroup", rest @ ..] => rest.to_vec(),
        _ => steps,
    }
}
