//! Parses and checks the configuration. Every error has a line and column. [`KEYS`] lists the keys of an
//! application.

use std::sync::OnceLock;

use regex::Regex;
use toml::de::{DeTable, DeValue};

use super::*;

/// Stores the value of one key.
type StoreValue = fn(&mut AppBuilder, &Value<'_>) -> Result<(), ParseError>;

/// The keys of an application.
const KEYS: [(&str, StoreValue); 18] = [
    ("name", AppBuilder::set_name),
    ("pid", AppBuilder::add_pid),
    ("cgroup", AppBuilder::add_cgroup),
    ("unit", AppBuilder::add_unit),
    ("command", AppBuilder::add_command),
    ("user", |app, value| {
        app.user = Some((value.user()?, value.offset()));
        Ok(())
    }),
    ("profile", |app, value| value.store(&mut app.rules.profile)),
    ("background", AppBuilder::set_background),
    ("prefetch", |app, value| {
        app.rules.prefetch = value.boolean()?;
        Ok(())
    }),
    ("idle_after", AppBuilder::set_idle_after),
    ("idle_touched", |app, value| value.store(&mut app.idle_touched)),
    ("some_some", |app, value| {
        value.store(&mut app.rules.min_intervals.some_some)
    }),
    ("some_full", |app, value| {
        value.store(&mut app.rules.min_intervals.some_full)
    }),
    ("full_some", |app, value| {
        value.store(&mut app.rules.min_intervals.full_some)
    }),
    ("full_full", |app, value| {
        value.store(&mut app.rules.min_intervals.full_full)
    }),
    ("min_anon_rss", |app, value| {
        value.store(&mut app.rules.min_anon_rss)
    }),
    ("min_change", |app, value| value.store(&mut app.rules.min_change)),
    ("swap_low", |app, value| value.store(&mut app.rules.swap_low)),
];

pub(super) fn parse(text: &str) -> Result<Config, ParseError> {
    let table =
        DeTable::parse(text).map_err(|error| ParseError::from_parser(text, error.span(), error.message()))?;

    let mut config = Config {
        socket: None,
        duty: Permille(250),
        poll: Nanos::secs(2),
        apps: Vec::new(),
    };
    let mut previous = PreviousApps::default();
    for (key, value) in table.into_inner() {
        let value = Value { text, value: &value };
        match &**key.get_ref() {
            "socket" => config.socket = Some(value.string()?.into()),
            "duty" => config.duty = value.duty()?,
            "poll" => config.poll = value.poll()?,
            "app" => {
                let apps = value.array()?.iter();
                let apps = apps.map(|value| previous.parse_next(&Value { text, value }));
                config.apps = apps.collect::<Result<_, _>>()?;
            }
            _ => return Err(unknown_key(text, &key, &["socket", "duty", "poll", "app"])),
        }
    }
    if config.apps.is_empty() {
        return Err(ParseError::new(
            1,
            1,
            "the configuration has no application: add [[app]] with a name and a cgroup",
        ));
    }
    Ok(config)
}

fn unknown_key<T: AsRef<str>>(text: &str, key: &Spanned<T>, known: &[&str]) -> ParseError {
    let (key, at) = (key.get_ref().as_ref(), key.span().start);
    let message = format!("unknown field `{key}`, expected one of {}", known.join(", "));
    ParseError::at_offset(text, at, message)
}

/// A value with its position in the text.
struct Value<'a> {
    text: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    fn offset(&self) -> usize {
        self.value.span().start
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError::at_offset(self.text, self.offset(), message)
    }

    fn type_error(&self, expected: &str) -> ParseError {
        let found = self.value.get_ref().type_str();
        self.error(format!("invalid type: {found}, expected {expected}"))
    }

    fn string(&self) -> Result<&'a str, ParseError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.type_error("a string")),
        }
    }

    fn boolean(&self) -> Result<bool, ParseError> {
        match self.value.get_ref() {
            DeValue::Boolean(boolean) => Ok(*boolean),
            _ => Err(self.type_error("a boolean")),
        }
    }

    fn array(&self) -> Result<&'a [Spanned<DeValue<'a>>], ParseError> {
        match self.value.get_ref() {
            DeValue::Array(values) => Ok(values),
            _ => Err(self.type_error("an array")),
        }
    }

    fn number(&self, expected: &str) -> Result<u32, ParseError> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.ok_or_else(|| self.type_error(expected))
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ParseError> {
        self.string()?
            .parse()
            .map_err(|error| self.error(format!("{error}")))
    }

    fn store<T: FromStr<Err: std::fmt::Display>>(&self, field: &mut T) -> Result<(), ParseError> {
        *field = self.parse()?;
        Ok(())
    }

    fn regex(&self) -> Result<Regex, ParseError> {
        Regex::new(self.string()?).map_err(|error| self.error(ParseError::regex_message(&error)))
    }

    /// A user ID, or a name in `/etc/passwd`.
    fn user(&self) -> Result<u32, ParseError> {
        let DeValue::String(name) = self.value.get_ref() else {
            return self.number("a user ID or name");
        };
        let passwd = std::fs::read_to_string("/etc/passwd")
            .map_err(|error| self.error(format!("cannot read /etc/passwd: {error}. Give the user ID")))?;
        user_id(&passwd, name)
            .ok_or_else(|| self.error(format!("no user {name:?} in /etc/passwd: give the user ID")))
    }

    fn duty(&self) -> Result<Permille, ParseError> {
        let duty: Permille = self.parse()?;
        if duty.0 == 0 || duty.0 > 1000 {
            return Err(self.error(format!("duty {duty} is out of range: give 0.1% to 100%")));
        }
        Ok(duty)
    }

    fn poll(&self) -> Result<Nanos, ParseError> {
        let poll: Nanos = self.parse()?;
        if poll < Nanos::millis(10) {
            return Err(self.error(format!("poll {poll} is too short: give 10ms or more")));
        }
        Ok(poll)
    }
}

/// The keys of an application read so far.
struct AppBuilder {
    name: Option<(String, usize)>,
    /// The target of each target key, with its offset in the text.
    targets: Vec<(Target, usize)>,
    /// The value of `user`, with its offset in the text.
    user: Option<(u32, usize)>,
    rules: Rules,
    idle_after: Option<Nanos>,
    idle_touched: Permille,
}

impl AppBuilder {
    fn read(app: &Value<'_>) -> Result<Self, ParseError> {
        let DeValue::Table(table) = app.value.get_ref() else {
            return Err(app.type_error("a table [[app]]"));
        };
        let mut builder = Self {
            name: None,
            targets: Vec::new(),
            user: None,
            rules: Rules::default(),
            idle_after: None,
            idle_touched: Permille(10),
        };
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let Some((_, store)) = KEYS.iter().find(|(known, _)| *known == name) else {
                return Err(unknown_key(app.text, key, &KEYS.map(|(known, _)| known)));
            };
            let text = app.text;
            store(&mut builder, &Value { text, value })?;
        }
        Ok(builder)
    }

    fn set_name(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let text = value.string()?;
        if text.is_empty() || text.len() > 80 || text.chars().any(char::is_control) {
            return Err(value.error("a name must have 1 to 80 bytes and no control characters"));
        }
        self.name = Some((text.to_owned(), value.offset()));
        Ok(())
    }

    fn add_pid(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let pid = value.number("a process ID")?;
        if pid < 2 {
            return Err(value.error(format!(
                "process {pid} cannot be an application: give a process ID of 2 or more"
            )));
        }
        self.add_target(value, Target::Pid(pid))
    }

    fn add_cgroup(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let path = value.string()?;
        if path.trim_matches('/').is_empty() {
            return Err(value.error("the root group contains the whole machine: give a group below it"));
        }
        self.add_target(value, Target::Cgroup(path.to_owned()))
    }

    fn add_unit(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let unit = value.string()?.to_owned();
        let uid = own_uid();
        self.add_target(value, Target::Unit { unit, uid })
    }

    fn add_command(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let (pattern, uid) = (value.regex()?, own_uid());
        self.add_target(value, Target::Command(CommandTarget { pattern, uid }))
    }

    fn add_target(&mut self, value: &Value<'_>, target: Target) -> Result<(), ParseError> {
        self.targets.push((target, value.offset()));
        Ok(())
    }

    fn set_background(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let is_none = value.string()? == "none";
        self.rules.background = if is_none { None } else { Some(value.parse()?) };
        Ok(())
    }

    fn set_idle_after(&mut self, value: &Value<'_>) -> Result<(), ParseError> {
        let time: Nanos = value.parse()?;
        if time < Nanos::secs(1) {
            return Err(value.error(format!("idle_after {time} is too short: give 1s or more")));
        }
        self.idle_after = Some(time);
        Ok(())
    }

    /// The target with its offset. An application must have exactly one.
    fn target(&mut self, app: &Value<'_>) -> Result<(Target, usize), ParseError> {
        let mut target = match (self.targets.pop(), self.targets.is_empty()) {
            (Some(target), true) => target,
            (None, _) => {
                return Err(
                    app.error("the application has no target: give one of pid, cgroup, unit, command")
                );
            }
            _ => {
                let message = "the application has more than one of pid, cgroup, unit, command: keep one";
                return Err(app.error(message));
            }
        };
        match (&mut target.0, self.user) {
            (_, None) => {}
            (Target::Command(CommandTarget { uid, .. }) | Target::Unit { uid, .. }, Some((user, _))) => {
                *uid = user;
            }
            (_, Some((_, offset))) => {
                let message = "user applies to unit and command only: remove it";
                return Err(ParseError::at_offset(app.text, offset, message));
            }
        }
        Ok(target)
    }
}

/// The ID of the user `name` in the text of `/etc/passwd`.
pub(crate) fn user_id(passwd: &str, name: &str) -> Option<u32> {
    let mut users = passwd.lines().map(|line| line.split(':'));
    users.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

/// Names and targets of the applications parsed before, with the lines where those begin.
#[derive(Default)]
struct PreviousApps {
    names: BTreeMap<String, usize>,
    targets: Vec<(Target, String, usize)>,
}

impl PreviousApps {
    /// Parses the next application. Its name and its target must not be those of a previous one.
    fn parse_next(&mut self, app: &Value<'_>) -> Result<AppConfig, ParseError> {
        let mut builder = AppBuilder::read(app)?;
        let (target, target_offset) = builder.target(app)?;
        let line = app.error("").line;
        let (name, name_offset) = builder.name.ok_or_else(|| app.error("missing field `name`"))?;
        if let Some(first) = self.names.insert(name.clone(), line) {
            let message = format!("an application {name:?} is in line {first} already: choose another name");
            return Err(ParseError::at_offset(app.text, name_offset, message));
        }
        // The same memory would be subject to the states of two applications.
        let mut others = self.targets.iter();
        if let Some((_, other, other_line)) = others.find(|(other, ..)| overlaps(other, &target)) {
            let message = format!(
                "application {other:?} (line {other_line}) claims the processes of {name:?} too: give each its own"
            );
            return Err(ParseError::at_offset(app.text, target_offset, message));
        }
        self.targets.push((target.clone(), name.clone(), line));
        Ok(AppConfig {
            name,
            target,
            rules: builder.rules,
            idle_after: builder.idle_after,
            idle_touched: builder.idle_touched,
            line,
        })
    }
}

/// Whether two targets have processes in common, as far as the text shows. A control group contains its
/// descendants.
fn overlaps(a: &Target, b: &Target) -> bool {
    match (a, b) {
        (Target::Cgroup(a), Target::Cgroup(b)) => {
            let (a, b) = (group_components(a), group_components(b));
            a.iter().zip(&b).all(|(a, b)| a == b)
        }
        _ => a == b,
    }
}

/// The components of the path of a group, relative to the mount point if the path begins with the usual one.
fn group_components(path: &str) -> Vec<&str> {
    let components: Vec<&str> = path
        .split('/')
        .filter(|component| !component.is_empty() && *component != ".")
        .collect();
    match &components[..] {
        ["sys", "fs", "cgroup", "memory" | "unified" | "systemd", rest @ ..]
        | ["sys", "fs", "cgroup", rest @ ..] => rest.to_vec(),
        _ => components,
    }
}

/// The user that owns targets where none is named: the one that started this process. The process may run as
/// another user when it reads the configuration again.
fn own_uid() -> u32 {
    static OWN_UID: OnceLock<u32> = OnceLock::new();
    *OWN_UID.get_or_init(|| rustix::process::geteuid().as_raw())
}
