//! From the text to what is meant, each mistake with its place. Every key stands once, in [`KEYS`].

use toml::de::{DeTable, DeValue};

use super::*;

/// What a key of an application does with what it is given.
type Take = fn(&mut Draft, &Given<'_>) -> Result<(), ParseError>;

/// The keys of an application.
const KEYS: [(&str, Take); 17] = [
    ("name", Draft::take_name),
    ("pid", Draft::take_pid),
    ("cgroup", Draft::take_cgroup),
    ("unit", |app, given| {
        app.aim(given, Target::Unit(given.text()?.to_owned()))
    }),
    ("command", |app, given| {
        app.aim(given, Target::Command(given.pattern()?))
    }),
    ("profile", |app, given| given.set(&mut app.rules.profile)),
    ("background", Draft::take_background),
    ("prefetch", |app, given| {
        app.rules.prefetch = given.flag()?;
        Ok(())
    }),
    ("idle_after", Draft::take_idle_after),
    ("idle_touched", |app, given| given.set(&mut app.idle_touched)),
    ("some_some", |app, given| {
        given.set(&mut app.rules.throttle.some_some)
    }),
    ("some_full", |app, given| {
        given.set(&mut app.rules.throttle.some_full)
    }),
    ("full_some", |app, given| {
        given.set(&mut app.rules.throttle.full_some)
    }),
    ("full_full", |app, given| {
        given.set(&mut app.rules.throttle.full_full)
    }),
    ("min_anon_rss", |app, given| {
        given.set(&mut app.rules.min_anon_rss)
    }),
    ("min_change", |app, given| given.set(&mut app.rules.min_change)),
    ("swap_low", |app, given| given.set(&mut app.rules.swap_low)),
];

pub(super) fn parse(text: &str) -> Result<Config, ParseError> {
    let table =
        DeTable::parse(text).map_err(|error| ParseError::of_parser(text, error.span(), error.message()))?;
    let mut config = Config {
        socket: None,
        duty: Permille(250),
        poll: Nanos::secs(2),
        apps: Vec::new(),
    };
    let mut claims = Claims::default();
    for (key, value) in table.into_inner() {
        let given = Given { text, value: &value };
        match &**key.get_ref() {
            "socket" => config.socket = Some(given.text()?.into()),
            "duty" => config.duty = given.duty()?,
            "poll" => config.poll = given.poll()?,
            "app" => {
                let apps = given.list()?.iter();
                let apps = apps.map(|value| claims.admit(&Given { text, value }));
                config.apps = apps.collect::<Result<_, _>>()?;
            }
            _ => return Err(unknown(text, &key, &["socket", "duty", "poll", "app"])),
        }
    }
    if config.apps.is_empty() {
        return Err(ParseError::new(
            1,
            1,
            "no application is described: add [[app]] with a name and a cgroup",
        ));
    }
    Ok(config)
}

fn unknown<T: AsRef<str>>(text: &str, key: &Spanned<T>, known: &[&str]) -> ParseError {
    let (key, at) = (key.get_ref().as_ref(), key.span().start);
    let message = format!("unknown field `{key}`, expected one of {}", known.join(", "));
    ParseError::at_offset(text, at, message)
}

/// A value and where it stands.
struct Given<'a> {
    text: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Given<'a> {
    fn at(&self) -> usize {
        self.value.span().start
    }

    fn fault(&self, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(self.text, self.at(), message)
    }

    fn is_no(&self, what: &str) -> ParseError {
        let there = self.value.get_ref().type_str();
        self.fault(format!("invalid type: {there}, expected {what}"))
    }

    fn text(&self) -> Result<&'a str, ParseError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.is_no("a string")),
        }
    }

    fn flag(&self) -> Result<bool, ParseError> {
        match self.value.get_ref() {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.is_no("a boolean")),
        }
    }

    fn list(&self) -> Result<&'a [Spanned<DeValue<'a>>], ParseError> {
        match self.value.get_ref() {
            DeValue::Array(values) => Ok(values),
            _ => Err(self.is_no("a sequence")),
        }
    }

    fn number(&self) -> Result<u32, ParseError> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.ok_or_else(|| self.is_no("the number of a process"))
    }

    fn word<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ParseError> {
        self.text()?.parse().map_err(|why| self.fault(format!("{why}")))
    }

    fn set<T: FromStr<Err: std::fmt::Display>>(&self, place: &mut T) -> Result<(), ParseError> {
        *place = self.word()?;
        Ok(())
    }

    fn pattern(&self) -> Result<Regex, ParseError> {
        Regex::new(self.text()?).map_err(|error| self.fault(ParseError::sentence_of_pattern(&error)))
    }

    fn duty(&self) -> Result<Permille, ParseError> {
        let duty: Permille = self.word()?;
        if duty.0 == 0 || duty.0 > 1000 {
            return Err(self.fault(format!("a duty of {duty} is none: give 1% to 100%")));
        }
        Ok(duty)
    }

    fn poll(&self) -> Result<Nanos, ParseError> {
        let poll: Nanos = self.word()?;
        if poll < Nanos::millis(10) {
            return Err(self.fault(format!(
                "looking every {poll} would be all that is done: give 10ms or more"
            )));
        }
        Ok(poll)
    }
}

/// An application as far as it was read.
struct Draft {
    name: Option<(String, usize)>,
    /// Which processes it is, by each key that says so, and where that stands.
    targets: Vec<(Target, usize)>,
    rules: Rules,
    idle_after: Option<Nanos>,
    idle_touched: Permille,
}

impl Draft {
    fn read(given: &Given<'_>) -> Result<Self, ParseError> {
        let DeValue::Table(table) = given.value.get_ref() else {
            return Err(given.is_no("a table [[app]]"));
        };
        let mut draft = Self {
            name: None,
            targets: Vec::new(),
            rules: Rules::default(),
            idle_after: None,
            idle_touched: Permille(10),
        };
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let Some((_, take)) = KEYS.iter().find(|(known, _)| *known == name) else {
                return Err(unknown(given.text, key, &KEYS.map(|(known, _)| known)));
            };
            let text = given.text;
            take(&mut draft, &Given { text, value })?;
        }
        Ok(draft)
    }

    fn take_name(&mut self, given: &Given<'_>) -> Result<(), ParseError> {
        let text = given.text()?;
        if text.is_empty() || text.len() > 80 || text.chars().any(char::is_control) {
            return Err(given.fault("a name has 1 to 80 characters, none of them a control character"));
        }
        self.name = Some((text.to_owned(), given.at()));
        Ok(())
    }

    fn take_pid(&mut self, given: &Given<'_>) -> Result<(), ParseError> {
        let pid = given.number()?;
        if pid < 2 {
            return Err(given.fault(format!("process {pid} is never an application")));
        }
        self.aim(given, Target::Pid(pid))
    }

    fn take_cgroup(&mut self, given: &Given<'_>) -> Result<(), ParseError> {
        let path = given.text()?;
        if path.trim_matches('/').is_empty() {
            return Err(given.fault("the group at the top holds the whole machine: name one below it"));
        }
        self.aim(given, Target::Cgroup(path.to_owned()))
    }

    fn aim(&mut self, given: &Given<'_>, target: Target) -> Result<(), ParseError> {
        self.targets.push((target, given.at()));
        Ok(())
    }

    fn take_background(&mut self, given: &Given<'_>) -> Result<(), ParseError> {
        let is_none = given.text()? == "none";
        self.rules.background = if is_none { None } else { Some(given.word()?) };
        Ok(())
    }

    fn take_idle_after(&mut self, given: &Given<'_>) -> Result<(), ParseError> {
        let time: Nanos = given.word()?;
        if time < Nanos::secs(1) {
            return Err(given.fault("idle_after below 1s takes every pause for an end: give 1s or more"));
        }
        self.idle_after = Some(time);
        Ok(())
    }

    /// The one target there must be.
    fn target(&mut self, whole: &Given<'_>) -> Result<(Target, usize), ParseError> {
        match (self.targets.pop(), self.targets.is_empty()) {
            (Some(target), true) => Ok(target),
            (None, _) => Err(whole.fault("which processes is it? Give one of pid, cgroup, unit, command")),
            _ => Err(whole.fault("it has more than one of pid, cgroup, unit, command: keep one")),
        }
    }
}

/// Who claims what, and in which line that stands.
#[derive(Default)]
struct Claims {
    names: BTreeMap<String, usize>,
    targets: Vec<(Target, String, usize)>,
}

impl Claims {
    /// Reads an application that claims nothing of those before it.
    fn admit(&mut self, given: &Given<'_>) -> Result<AppConfig, ParseError> {
        let mut draft = Draft::read(given)?;
        let (target, place) = draft.target(given)?;
        let line = given.fault("").line;
        let (name, at) = draft.name.ok_or_else(|| given.fault("missing field `name`"))?;
        if let Some(first) = self.names.insert(name.clone(), line) {
            let message =
                format!("{name:?} is described in line {first} already: give this one another name");
            return Err(ParseError::at_offset(given.text, at, message));
        }
        // Memory that two applications claim would be judged by two states at once.
        let mut others = self.targets.iter();
        if let Some((_, other, of)) = others.find(|(other, ..)| overlap(other, &target)) {
            let message = format!(
                "application {other:?} (line {of}) claims the processes of {name:?} too: give each its own"
            );
            return Err(ParseError::at_offset(given.text, place, message));
        }
        self.targets.push((target.clone(), name.clone(), line));
        Ok(AppConfig {
            name,
            target,
            rules: draft.rules,
            idle_after: draft.idle_after,
            idle_touched: draft.idle_touched,
            line,
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
