//! `[[policy]]`: which processes, and what is done.

use std::collections::BTreeMap;

use globset::GlobBuilder;
use thermo_actions::{PageoutLimits, preset};
use thermo_engine::scheme::AutoAge;
use thermo_engine::{Action, Scheme};
use thermo_units::text::{self, ParseError};
use thermo_units::{Nanos, Permille, SharePerMinute};
use toml::Spanned;

use super::file;
use super::parse::Source;
use super::{PLACEHOLDERS, PolicyConfig, TargetName};
use crate::api::Mode;
use crate::guard::Bounds;
use crate::kubernetes::pod_names::MissingNames;
use crate::lifecycle::config::user_id;
use crate::matching::{Condition, Kind, MatchRule, Test, Value};

/// Schemes that give programs huge pages where memory is used, and take them away where it is idle.
const HUGE_PAGES: &str = include_str!("../../../../schemes/ethp-tuned.damos");
/// The way out for names of pods without a kubelet.
const ADD_KUBERNETES: &str = "known in Kubernetes only: add [kubernetes]";
const PRESETS: &str = "reclaim, lru-sort, huge-pages or tier";

/// How long memory that was moved stays, as with `thermo tier`.
const COOL_DOWN: Nanos = Nanos::secs(60);

fn is_preset(file: &file::Policy, name: &str) -> bool {
    file.preset
        .as_ref()
        .is_some_and(|preset| preset.get_ref() == name)
}

impl Source<'_> {
    /// The policies, in their order.
    pub(super) fn policies(
        &self,
        files: Vec<Spanned<file::Policy>>,
        defaults: Bounds,
    ) -> Result<Vec<PolicyConfig>, ParseError> {
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let mut rules: BTreeMap<String, (String, usize)> = BTreeMap::new();
        let mut policies = Vec::with_capacity(files.len());
        for file in files {
            let file = file.into_inner();
            let (at_name, at_rule) = (file.name.clone(), file.matches.span());
            let policy = self.policy(file, defaults)?;
            let line = self.error(&at_name, "").line;
            if let Some(first) = names.insert(policy.name.clone(), line) {
                let message = format!(
                    "a policy {:?} is in line {first} already: choose another name",
                    policy.name
                );
                return Err(self.error(&at_name, message));
            }
            let (name, rule) = (policy.name.clone(), policy.rule.text());
            if let Some((first, first_line)) = rules.insert(rule, (name.clone(), line)) {
                let message = format!(
                    "policy {name:?} matches the same processes as {first:?} (line {first_line}), which has them \
                     all: remove one of the two"
                );
                return Err(ParseError::at_offset(self.text, at_rule.start, message));
            }
            policies.push(policy);
        }
        Ok(policies)
    }

    fn policy(&self, file: file::Policy, defaults: Bounds) -> Result<PolicyConfig, ParseError> {
        let name = file.name.get_ref();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) || name.starts_with('.') {
            let message = "a policy's name has letters, digits, '-', '_' and '.', and at most 64 of them";
            return Err(self.error(&file.name, message));
        }
        let mode = self.mode(file.mode.as_ref())?;
        let schemes = self.schemes(&file)?;
        if let Some(at) = file
            .mode
            .as_ref()
            .filter(|_| mode != Mode::Observe && schemes.is_empty())
        {
            let message = format!(
                "mode {} needs something to do: add preset = \"reclaim\", or schemes = \"FILE\"",
                mode.name()
            );
            return Err(self.error(at, message));
        }
        let bounds = self.bounds(&file.guard, defaults)?;
        let is_tier = is_preset(&file, "tier");
        Ok(PolicyConfig {
            name: name.clone(),
            limits: PageoutLimits {
                swap_floor: bounds.min_free_swap,
                min_net: self.value(file.min_net.as_ref(), Permille(100))?,
                ..PageoutLimits::default()
            },
            target_name: self.target_name(file.target_name.as_ref())?,
            rule: self.rule(file.matches)?,
            mode,
            cool_down: self.value(
                file.cool_down.as_ref(),
                if is_tier { COOL_DOWN } else { Nanos::ZERO },
            )?,
            schemes,
            bounds,
        })
    }

    fn mode(&self, given: Option<&Spanned<String>>) -> Result<Mode, ParseError> {
        let Some(given) = given else {
            return Ok(Mode::Observe);
        };
        let modes = [Mode::Observe, Mode::DryRun, Mode::Act];
        let found = modes.into_iter().find(|mode| mode.name() == given.get_ref());
        found.ok_or_else(|| {
            let message = format!("{:?} is not a mode: use observe, dry-run or act", given.get_ref());
            self.error(given, message)
        })
    }

    fn schemes(&self, file: &file::Policy) -> Result<Vec<Scheme>, ParseError> {
        let is_reclaim = is_preset(file, "reclaim");
        let for_reclaim = [&file.min_age, &file.max_refaults].into_iter().flatten().next();
        if let Some(at) = for_reclaim.filter(|_| !is_reclaim) {
            let message = "min_age and max_refaults belong to preset = \"reclaim\": add it, or write them into the scheme file";
            return Err(self.error(at, message));
        }
        let nodes = [&file.fast, &file.slow].into_iter().flatten().map(Spanned::span);
        let texts = [&file.fast_used, &file.cool_down]
            .into_iter()
            .flatten()
            .map(Spanned::span);
        if let Some(at) = nodes.chain(texts).next().filter(|_| !is_preset(file, "tier")) {
            let message = "fast, slow, fast_used and cool_down belong to preset = \"tier\": add it, or write a scheme file";
            return Err(ParseError::at_offset(self.text, at.start, message));
        }
        match (&file.preset, &file.schemes) {
            (None, None) => Ok(Vec::new()),
            (Some(preset), Some(_)) => Err(self.error(preset, "give a preset or a scheme file, not both")),
            (None, Some(path)) => self.scheme_file(path),
            (Some(preset), None) => match preset.get_ref().as_str() {
                "reclaim" => self.reclaim(file).map(|scheme| vec![scheme]),
                "lru-sort" => Ok(preset::LruSort::default().schemes().into()),
                "tier" => self.tier(file, preset),
                "huge-pages" => thermo_schemes::parse("ethp.damos", HUGE_PAGES),
                other => {
                    let message = format!("{other:?} is not a preset: use {PRESETS}");
                    Err(self.error(preset, message))
                }
            },
        }
    }

    /// Memory tiers between two nodes.
    fn tier(&self, file: &file::Policy, at: &Spanned<String>) -> Result<Vec<Scheme>, ParseError> {
        let (Some(fast), Some(slow)) = (&file.fast, &file.slow) else {
            let message = "preset tier needs its memory nodes: add fast = 0 and slow = 1, for example";
            return Err(self.error(at, message));
        };
        let base = preset::Tier::default();
        let tier = preset::Tier {
            fast: *fast.get_ref(),
            slow: *slow.get_ref(),
            fast_used: self.value(file.fast_used.as_ref(), base.fast_used)?,
            ..base
        };
        tier.check().map_err(|error| self.error(at, error.to_string()))?;
        Ok(tier.schemes().into())
    }

    fn scheme_file(&self, path: &Spanned<String>) -> Result<Vec<Scheme>, ParseError> {
        let file = self.folder.join(path.get_ref());
        let text = text::read_file(&file)
            .map_err(|error| self.error(path, format!("cannot read {}: {error}", file.display())))?;
        let name = file.display().to_string();
        thermo_schemes::parse(&name, &text).map_err(|error| self.error(path, error.in_file(&name)))
    }

    /// Proactive reclaim that is always active: the guard holds it back, not watermarks.
    fn reclaim(&self, file: &file::Policy) -> Result<Scheme, ParseError> {
        let is_auto = file.min_age.as_ref().is_none_or(|age| age.get_ref() == "auto");
        if let Some(at) = file.max_refaults.as_ref().filter(|_| !is_auto) {
            let message =
                "max_refaults is the bound of an automatic age: give min_age = \"auto\", or leave it out";
            return Err(self.error(at, message));
        }
        let default: SharePerMinute = AutoAge::default().max_refaults;
        let max_refaults = self.value(file.max_refaults.as_ref(), default)?;
        let base = preset::Reclaim::default();
        let min_age = match &file.min_age {
            Some(age) if !is_auto => self.value(Some(age), base.min_age)?,
            _ => base.min_age,
        };
        let mut scheme = preset::Reclaim {
            min_age,
            auto_age: is_auto.then_some(AutoAge { max_refaults }),
            ..base
        }
        .scheme();
        scheme.watermarks = thermo_engine::scheme::Watermarks::default();
        debug_assert_eq!(scheme.action, Action::Pageout);
        Ok(scheme)
    }

    fn target_name(&self, given: Option<&Spanned<String>>) -> Result<TargetName, ParseError> {
        let Some(given) = given else {
            return Ok(TargetName::default());
        };
        let known = PLACEHOLDERS.map(|(name, _)| name);
        let rest = known
            .iter()
            .fold(given.get_ref().clone(), |text, name| text.replace(name, ""));
        if rest.contains(['{', '}']) || given.get_ref().is_empty() {
            let message = format!("a target's name is a text with {}", known.join(", "));
            return Err(self.error(given, message));
        }
        let name = TargetName(Some(given.get_ref().clone()));
        if name.needs() != MissingNames::Nothing && !self.knows_pods {
            return Err(self.error(given, format!("the names of pods are {ADD_KUBERNETES}")));
        }
        Ok(name)
    }

    fn rule(&self, given: Spanned<file::Match>) -> Result<MatchRule, ParseError> {
        let span = given.span();
        let file = given.into_inner();
        let keys = [
            (Kind::Unit, file.unit),
            (Kind::Cgroup, file.cgroup),
            (Kind::Exe, file.exe),
            (Kind::Command, file.command),
            (Kind::User, file.user),
            (Kind::Env, file.env),
            (Kind::Container, file.container),
            (Kind::Namespace, file.namespace),
            (Kind::Pod, file.pod),
            (Kind::Label, file.label),
            (Kind::ContainerName, file.container_name),
        ];
        let mut conditions = Vec::new();
        for (kind, texts) in keys {
            let Some(texts) = texts else { continue };
            let one = |text: &String| match_value(kind, text).map_err(|error| self.error(&texts, error));
            let values: Result<Vec<Value>, ParseError> = texts.get_ref().as_slice().iter().map(one).collect();
            conditions.push(Condition::new(kind, values?));
        }
        if conditions.is_empty() {
            let message = "a policy matches something: give unit, cgroup, exe, command, user, env, container, \
                           namespace, pod, label or container_name";
            return Err(ParseError::at_offset(self.text, span.start, message));
        }
        let rule = MatchRule::new(conditions);
        if let Some(kind) = rule.pod_condition().filter(|_| !self.knows_pods) {
            let message = format!("{} is {ADD_KUBERNETES}", kind.name());
            return Err(ParseError::at_offset(self.text, span.start, message));
        }
        Ok(rule)
    }
}

fn match_value(kind: Kind, text: &str) -> Result<Value, String> {
    let test = match kind {
        Kind::User => Test::User(user(text)?),
        Kind::Container => Test::Prefix(text.to_owned()),
        Kind::Label if text.is_empty() || text.starts_with('=') => {
            return Err("give a label as NAME=VALUE, or NAME for any value".to_owned());
        }
        Kind::Env | Kind::Label if !text.contains('=') => Test::Prefix(format!("{text}=")),
        Kind::Unit if !text.contains('.') => glob(&format!("{text}.service"))?,
        _ => glob(text)?,
    };
    let text = text.to_owned();
    Ok(Value { text, test })
}

/// A pattern in which `*` does not match a slash, and `**` does.
fn glob(pattern: &str) -> Result<Test, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = glob.map_err(|error| format!("{error}: write a name, or a pattern with *"))?;
    Ok(Test::Glob(glob.compile_matcher()))
}

fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    let passwd = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| format!("cannot read /etc/passwd: {error}. Give the user ID"))?;
    user_id(&passwd, text).ok_or_else(|| format!("no user {text:?} in /etc/passwd: give the user ID"))
}
