//! Which processes a policy matches.

use globset::GlobMatcher;

use crate::audience::Audience;
use crate::identity::Identity;
use crate::kubernetes::pod_names::MissingNames;

/// The conditions of a policy. All that are given must hold; of the values of one condition, one suffices.
#[derive(Debug, Clone, Default)]
pub struct MatchRule {
    conditions: Vec<Condition>,
}

/// One condition.
#[derive(Debug, Clone)]
pub struct Condition {
    kind: Kind,
    values: Vec<Value>,
}

/// What a condition looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The systemd unit.
    Unit,
    /// The path of the control group, in any hierarchy.
    Cgroup,
    /// The path of the program.
    Exe,
    /// The kernel's name of the program.
    Command,
    /// The effective user.
    User,
    /// A variable of the environment, `NAME=VALUE`.
    Env,
    /// The container.
    Container,
    /// The namespace of the pod.
    Namespace,
    /// The name of the pod.
    Pod,
    /// A label of the pod, `NAME=VALUE`.
    Label,
    /// The name of the container in its pod.
    ContainerName,
}

/// A value that a condition accepts.
#[derive(Debug, Clone)]
pub struct Value {
    /// As the user wrote it.
    pub text: String,
    /// How it is compared.
    pub test: Test,
}

/// How a value is compared.
#[derive(Debug, Clone)]
pub enum Test {
    /// The text must match a pattern.
    Glob(GlobMatcher),
    /// The number of the user must be this.
    User(u32),
    /// The text must begin with this.
    Prefix(String),
}

impl Kind {
    /// The key in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Cgroup => "cgroup",
            Self::Exe => "exe",
            Self::Command => "command",
            Self::User => "user",
            Self::Env => "env",
            Self::Container => "container",
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::Label => "label",
            Self::ContainerName => "container_name",
        }
    }

    /// What it needs of the kubelet.
    #[must_use]
    pub const fn needs(self) -> MissingNames {
        match self {
            Self::Namespace | Self::Pod | Self::Label => MissingNames::Pod,
            Self::ContainerName => MissingNames::Container,
            Self::Unit
            | Self::Cgroup
            | Self::Exe
            | Self::Command
            | Self::User
            | Self::Env
            | Self::Container => MissingNames::Nothing,
        }
    }

    /// Whether one of many texts of the process is to fit, so that naming the first would say nothing.
    const fn is_of_many(self) -> bool {
        matches!(self, Self::Env | Self::Label)
    }

    /// What the process has.
    fn found(self, identity: &Identity) -> Vec<String> {
        match self {
            Self::Unit => identity.unit().into_iter().collect(),
            Self::Cgroup => identity.cgroups.iter().map(|group| group.path.clone()).collect(),
            Self::Exe => vec![identity.exe.clone()],
            Self::Command => vec![identity.command.clone()],
            Self::User => vec![identity.uid.to_string()],
            Self::Env => identity.environment.clone(),
            Self::Container => identity.container().map(str::to_owned).into_iter().collect(),
            Self::Namespace => identity.pod_fact(|pod| pod.namespace.clone()),
            Self::Pod => identity.pod_fact(|pod| pod.name.clone()),
            Self::Label => identity.labels(),
            Self::ContainerName => identity.container_name().map(str::to_owned).into_iter().collect(),
        }
    }
}

impl Test {
    fn accepts(&self, found: &str) -> bool {
        match self {
            Self::Glob(glob) => glob.is_match(found),
            Self::User(uid) => found.parse() == Ok(*uid),
            Self::Prefix(prefix) => found.starts_with(prefix),
        }
    }
}

impl MatchRule {
    /// A rule of these conditions.
    #[must_use]
    pub const fn new(conditions: Vec<Condition>) -> Self {
        Self { conditions }
    }

    /// Whether the process matches, with the reason.
    ///
    /// # Errors
    /// The reason why it does not match.
    pub fn check(&self, identity: &Identity) -> Result<String, String> {
        self.check_for(identity, Audience::Admin)
    }

    /// Whether the process matches, with the reason as `audience` may see it. That a rule of the
    /// configuration holds is for everybody; what a process has instead is not, where `/proc` refuses it.
    ///
    /// # Errors
    /// The reason why it does not match.
    pub fn check_for(&self, identity: &Identity, audience: Audience) -> Result<String, String> {
        let reasons: Result<Vec<String>, String> = self
            .conditions
            .iter()
            .map(|condition| condition.check(identity, audience))
            .collect();
        reasons.map(|reasons| reasons.join(", "))
    }

    /// The first condition that compares names of the kubelet.
    #[must_use]
    pub fn pod_condition(&self) -> Option<Kind> {
        let mut kinds = self.conditions.iter().map(|condition| condition.kind);
        kinds.find(|kind| kind.needs() != MissingNames::Nothing)
    }

    /// Whether only names that the kubelet has still to say keep the process from matching.
    #[must_use]
    pub fn is_undecided(&self, identity: &Identity) -> bool {
        let mut missing = false;
        let may_hold = self.conditions.iter().all(|condition| {
            let is_unknown = identity.lacks(condition.kind.needs());
            missing |= is_unknown;
            is_unknown || condition.check(identity, Audience::Admin).is_ok()
        });
        missing && may_hold
    }

    /// Whether the rule looks at the user.
    #[must_use]
    pub fn has_user(&self) -> bool {
        self.conditions.iter().any(|one| one.kind == Kind::User)
    }

    /// Names of the environment variables that the rule looks at.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let env = self.conditions.iter().filter(|one| one.kind == Kind::Env);
        let name = |value: &Value| value.text.split('=').next().unwrap_or_default().to_owned();
        env.flat_map(move |condition| condition.values.iter().map(name))
    }

    /// The rule as text: `unit redis.service or nginx.service, user www-data`.
    #[must_use]
    pub fn text(&self) -> String {
        let values = |condition: &Condition| {
            let texts: Vec<&str> = condition.values.iter().map(|value| value.text.as_str()).collect();
            format!("{} {}", condition.kind.name(), texts.join(" or "))
        };
        self.conditions.iter().map(values).collect::<Vec<_>>().join(", ")
    }
}

impl Condition {
    /// A condition on `kind`, which holds if one of `values` fits.
    #[must_use]
    pub const fn new(kind: Kind, values: Vec<Value>) -> Self {
        Self { kind, values }
    }

    fn check(&self, identity: &Identity, audience: Audience) -> Result<String, String> {
        let name = self.kind.name();
        if identity.lacks(self.kind.needs()) {
            return Err(format!("the {name} of its pod is not known yet"));
        }
        let found = self.kind.found(identity);
        let fits = |value: &&Value| found.iter().any(|found| value.test.accepts(found));
        if let Some(value) = self.values.iter().find(fits) {
            return Ok(format!("{name} is {}", value.text));
        }
        match found.first() {
            Some(_) if self.kind == Kind::Exe && audience == Audience::Reader => {
                Err("exe is another program".to_owned())
            }
            Some(found) if !self.kind.is_of_many() && !found.is_empty() => Err(format!("{name} is {found}")),
            _ => Err(format!("it has no such {name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::sync::Arc;

    use globset::Glob;
    use thermo_kernel::cgroup::GroupPath;

    use super::*;
    use crate::kubernetes::path::PodPath;
    use crate::kubernetes::pod_list::Pod;
    use crate::kubernetes::pod_names::PodIdentity;

    fn glob(text: &str) -> Value {
        Value {
            text: text.to_owned(),
            test: Test::Glob(Glob::new(text).unwrap().compile_matcher()),
        }
    }

    fn redis() -> Identity {
        Identity {
            command: "redis-server".to_owned(),
            exe: "/usr/bin/redis-server".to_owned(),
            uid: 101,
            cgroups: vec![GroupPath {
                controllers: String::new(),
                path: "/system.slice/redis.service".to_owned(),
            }],
            environment: vec!["TIER=cache".to_owned()],
            ..Identity::default()
        }
    }

    #[test]
    fn all_conditions_must_hold_and_one_value_of_each() {
        let unit = Condition::new(Kind::Unit, vec![glob("nginx.service"), glob("redis*.service")]);
        let user = |uid| {
            let test = Test::User(uid);
            let text = uid.to_string();
            Condition::new(Kind::User, vec![Value { text, test }])
        };
        let rule = MatchRule::new(vec![unit.clone(), user(101)]);
        assert_eq!(
            rule.check(&redis()).unwrap(),
            "unit is redis*.service, user is 101"
        );
        assert_eq!(rule.text(), "unit nginx.service or redis*.service, user 101");
        let rule = MatchRule::new(vec![unit, user(7)]);
        assert_eq!(rule.check(&redis()).unwrap_err(), "user is 101");
    }

    /// A process of the pod `web-0` in the namespace `shop`.
    fn in_pod(missing: MissingNames) -> Identity {
        let pod = Pod {
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            labels: [
                ("app".to_owned(), "web".to_owned()),
                ("tier".to_owned(), "1".to_owned()),
            ]
            .into(),
            ..Pod::default()
        };
        let path = PodPath {
            uid: String::new(),
            qos: None,
            container: None,
        };
        Identity {
            pod: Some(PodIdentity {
                path,
                pod: (missing != MissingNames::Pod).then(|| Arc::new(pod)),
                container_name: (missing == MissingNames::Nothing).then(|| "server".to_owned()),
                missing,
            }),
            ..redis()
        }
    }

    #[test]
    fn names_of_pods_match_once_they_are_known() {
        for (kind, yes, no, needs_container) in [
            (Kind::Namespace, "sh*", "other", false),
            (Kind::Pod, "web-*", "db-*", false),
            (Kind::Label, "app=web", "app=db", false),
            (Kind::Label, "tier=*", "tiers=*", false),
            (Kind::ContainerName, "server", "proxy", true),
        ] {
            let rule = |text| MatchRule::new(vec![Condition::new(kind, vec![glob(text)])]);
            let known = in_pod(MissingNames::Nothing);
            assert!(
                rule(yes).check(&known).is_ok() && rule(no).check(&known).is_err(),
                "{yes}"
            );
            assert!(!rule(yes).is_undecided(&known) && !rule(no).is_undecided(&known));
            for (missing, is_awaited) in [
                (MissingNames::Pod, true),
                (MissingNames::Container, needs_container),
            ] {
                let identity = in_pod(missing);
                assert_eq!(rule(no).is_undecided(&identity), is_awaited, "{yes} {missing:?}");
                assert_eq!(
                    rule(yes).check(&identity).is_err(),
                    is_awaited,
                    "{yes} {missing:?}"
                );
            }
            assert!(
                rule(yes).check(&redis()).is_err() && !rule(yes).is_undecided(&redis()),
                "no pod"
            );
        }
    }

    #[test]
    fn rule_that_fails_by_what_is_known_is_decided() {
        let namespace = Condition::new(Kind::Namespace, vec![glob("shop")]);
        let rule = |command| {
            let command = Condition::new(Kind::Command, vec![glob(command)]);
            MatchRule::new(vec![namespace.clone(), command])
        };
        let unknown = in_pod(MissingNames::Pod);
        assert!(rule("redis-*").is_undecided(&unknown));
        assert!(!rule("nginx").is_undecided(&unknown));
        let why = rule("redis-*").check(&unknown).unwrap_err();
        assert_eq!(why, "the namespace of its pod is not known yet");
        assert_eq!(rule("nginx").pod_condition(), Some(Kind::Namespace));
    }

    #[test]
    fn each_kind_looks_at_its_fact() {
        for (kind, yes, no) in [
            (Kind::Cgroup, "/system.slice/*", "/user.slice/*"),
            (Kind::Exe, "/usr/bin/*", "/usr/sbin/*"),
            (Kind::Command, "redis-*", "redis"),
            (Kind::Env, "TIER=*", "OTHER=*"),
        ] {
            let rule = |text| MatchRule::new(vec![Condition::new(kind, vec![glob(text)])]);
            assert!(rule(yes).check(&redis()).is_ok(), "{}", kind.name());
            assert!(rule(no).check(&redis()).is_err(), "{}", kind.name());
        }
        let env = MatchRule::new(vec![Condition::new(Kind::Env, vec![glob("TIER=x")])]);
        assert_eq!(env.variables().collect::<Vec<_>>(), ["TIER"]);
        let container = MatchRule::new(vec![Condition::new(Kind::Container, vec![glob("ab*")])]);
        assert_eq!(container.check(&redis()).unwrap_err(), "it has no such container");
    }
}
