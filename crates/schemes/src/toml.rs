//! TOML: one `[[scheme]]` table per scheme, with every feature. The writer omits defaults.

use std::fmt::Write;

use thermo_engine::Scheme;
use thermo_engine::scheme::{
    AccessPattern, AutoAge, CoreFilterKind, Destination, Filters, Goal, GoalTuner, OpsFilterKind, Quota,
    Watermarks, Weights,
};
use thermo_units::Nanos;
use thermo_units::text::ParseError;

use crate::damo::{NODE_ELIGIBLE, metric_fields, target_nid, tuner, watermark_metric};
use crate::tree::{Fields, parse_toml};
use crate::vocabulary::TOML;
use crate::{exact, read};

/// Parses the schemes of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Scheme>, ParseError> {
    let mut fields = Fields::new(text, parse_toml(text)?, "the file")?;
    let Some(list) = fields.take("scheme") else {
        fields.finish("the file", &["[[scheme]]"])?;
        return Ok(Vec::new());
    };
    fields.finish("the file", &["[[scheme]]"])?;
    read::schemes(text, list.list(text, "scheme (write [[scheme]])")?, &TOML)
}

/// Prints schemes as TOML.
#[must_use]
pub fn print(schemes: &[Scheme]) -> String {
    schemes.iter().map(scheme).collect::<Vec<_>>().join("\n")
}

fn scheme(scheme: &Scheme) -> String {
    let mut lines = Lines("[[scheme]]\n".to_owned());
    lines.add("action", &text(scheme.action.name()));
    destinations(&mut lines, &scheme.destinations);
    pattern(&mut lines, &scheme.pattern);
    if let Some(AutoAge { max_refaults }) = scheme.auto_age {
        lines.add("min_age", &text("auto"));
        lines.add("max_refaults", &text(&max_refaults.to_string()));
    }
    if let Some(interval) = scheme.apply_interval {
        lines.add("apply_interval", &text(&exact::nanos_text(interval)));
    }
    if scheme.max_nr_snapshots != 0 {
        lines.add("max_nr_snapshots", &number(scheme.max_nr_snapshots));
    }
    filters(&mut lines, &scheme.filters);
    quota(&mut lines, &scheme.quota);
    watermarks(&mut lines, &scheme.watermarks);
    lines.0
}

fn destinations(lines: &mut Lines, destinations: &[Destination]) {
    if let Some(nid) = target_nid(destinations) {
        lines.add("target_nid", &nid.to_string());
    } else if !destinations.is_empty() {
        let dest = |dest: &Destination| format!("{{ id = {}, weight = {} }}", dest.nid, dest.weight);
        let dests: Vec<String> = destinations.iter().map(dest).collect();
        lines.add("dests", &format!("[{}]", dests.join(", ")));
    }
}

struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name} = {value}");
    }
}

/// A string in quotes.
fn text(value: &str) -> String {
    ::toml::Value::from(value).to_string()
}

/// A number; as a string if it exceeds TOML's 63 bits.
fn number(n: u64) -> String {
    i64::try_from(n).map_or_else(|_| text(&n.to_string()), |n| n.to_string())
}

fn pair(min: &str, max: &str) -> String {
    format!("[{}, {}]", text(min), text(max))
}

fn pattern(lines: &mut Lines, AccessPattern { sz, nr_accesses, age }: &AccessPattern) {
    let any = AccessPattern::default();
    if *sz != any.sz {
        lines.add(
            "sz",
            &pair(&exact::bytes_text(sz.min), &exact::bytes_text(sz.max)),
        );
    }
    if *nr_accesses != any.nr_accesses {
        lines.add(
            "nr_accesses",
            &pair(
                &exact::rate_text(nr_accesses.min),
                &exact::rate_text(nr_accesses.max),
            ),
        );
    }
    if *age != any.age {
        lines.add("age", &pair(&exact::age_text(age.min), &exact::age_text(age.max)));
    }
}

fn quota(lines: &mut Lines, quota: &Quota) {
    if *quota == Quota::default() {
        return;
    }
    lines.0.push_str("\n[scheme.quota]\n");
    if quota.time != Nanos::ZERO {
        lines.add("time", &text(&exact::nanos_text(quota.time)));
    }
    if quota.sz.0 != 0 {
        lines.add("sz", &text(&exact::bytes_text(quota.sz)));
    }
    lines.add("reset_interval", &text(&exact::nanos_text(quota.reset_interval)));
    if quota.weights != Weights::default() {
        let Weights { sz, nr_accesses, age } = quota.weights;
        lines.add(
            "weights",
            &format!("{{ sz = {sz}, nr_accesses = {nr_accesses}, age = {age} }}"),
        );
    }
    if quota.tuner != GoalTuner::default() {
        lines.add("tuner", &text(tuner(quota.tuner)));
    }
    if !quota.goals.is_empty() {
        let goals: Vec<String> = quota.goals.iter().map(goal).collect();
        lines.add("goals", &format!("[\n    {},\n]", goals.join(",\n    ")));
    }
}

fn goal(goal: &Goal) -> String {
    match goal {
        Goal::UserInput { target, current } => {
            let (target, current) = (number(*target), number(*current));
            format!("{{ metric = \"user_input\", target_value = {target}, current_value = {current} }}")
        }
        Goal::NodeEligibleMem { nid, target } => {
            let target = number(*target);
            format!("{{ metric = \"{NODE_ELIGIBLE}\", target_value = {target}, nid = {nid} }}")
        }
        Goal::Metric { metric, target } => {
            let (name, nid, path) = metric_fields(metric);
            let nid = nid.map(|nid| format!(", nid = {nid}")).unwrap_or_default();
            let path = path
                .map(|path| format!(", path = {}", text(path)))
                .unwrap_or_default();
            format!(
                "{{ metric = \"{name}\", target_value = {}{nid}{path} }}",
                number(*target)
            )
        }
    }
}

fn watermarks(lines: &mut Lines, watermarks: &Watermarks) {
    if *watermarks == Watermarks::default() {
        return;
    }
    lines.0.push_str("\n[scheme.watermarks]\n");
    lines.add("metric", &text(watermark_metric(watermarks.metric)));
    lines.add("interval", &text(&exact::nanos_text(watermarks.interval)));
    for (name, share) in [
        ("high", watermarks.high),
        ("mid", watermarks.mid),
        ("low", watermarks.low),
    ] {
        lines.add(name, &text(&exact::permille_text(share)));
    }
}

fn filters(lines: &mut Lines, Filters { core, ops }: &Filters) {
    let of = |rest: &str, matching: bool, allow: bool| {
        format!("{{ {rest}, matching = {matching}, allow = {allow} }}")
    };
    let core = core.iter().map(|filter| {
        let rest = match &filter.kind {
            CoreFilterKind::Addr(range) => {
                let (start, end) = (text(&range.start.to_string()), text(&range.end.to_string()));
                format!("type = \"addr\", address_range = {{ start = {start}, end = {end} }}")
            }
            CoreFilterKind::Target(target) => format!("type = \"target\", damon_target_idx = {}", target.0),
        };
        of(&rest, filter.matching, filter.allow)
    });
    let ops = ops
        .iter()
        .map(|filter| of(&ops_filter(&filter.kind), filter.matching, filter.allow));
    let all: Vec<String> = core.chain(ops).collect();
    if !all.is_empty() {
        lines.add("filters", &format!("[\n    {},\n]", all.join(",\n    ")));
    }
}

fn ops_filter(kind: &OpsFilterKind) -> String {
    match kind {
        OpsFilterKind::Anon => "type = \"anon\"".to_owned(),
        OpsFilterKind::Young => "type = \"young\"".to_owned(),
        OpsFilterKind::Active => "type = \"active\"".to_owned(),
        OpsFilterKind::Unmapped => "type = \"unmapped\"".to_owned(),
        OpsFilterKind::Memcg(path) => format!("type = \"memcg\", memcg_path = {}", text(path)),
        OpsFilterKind::HugepageSize { min, max } => {
            format!(
                "type = \"hugepage_size\", hugepage_size = {}",
                pair(&exact::bytes_text(*min), &exact::bytes_text(*max))
            )
        }
    }
}
