//! Field names and default units of damo's JSON and of our TOML.

use crate::quantity::Bare;

/// The field names of a format, and the units of its bare numbers.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    /// The table of the access pattern; `None`: its fields are in the scheme itself.
    pub(crate) access_pattern: Option<&'static str>,
    pub(crate) sz: &'static str,
    /// The fields that name the units of bare rates and ages, if the format has them.
    pub(crate) units: Option<[&'static str; 2]>,
    pub(crate) rate: Bare,
    pub(crate) age: Bare,
    /// Whether the format has `min_age = "auto"` and `max_refaults`.
    pub(crate) auto_age: bool,
    pub(crate) apply_interval: (&'static str, Bare),
    pub(crate) quota: &'static str,
    pub(crate) quota_time: (&'static str, Bare),
    pub(crate) quota_sz: &'static str,
    pub(crate) reset_interval: (&'static str, Bare),
    /// Whether a limit requires a window. damo's default window never ends.
    pub(crate) window_required: bool,
    pub(crate) tuner: &'static str,
    pub(crate) weights: [&'static str; 3],
    pub(crate) watermarks_interval: (&'static str, Bare),
    pub(crate) watermarks: [&'static str; 3],
    pub(crate) share: Bare,
    pub(crate) filter_type: &'static str,
    /// Names, comments and results that stand next to the settings.
    pub(crate) ignored: &'static [&'static str],
}

pub(crate) const DAMO: Vocabulary = Vocabulary {
    access_pattern: Some("access_pattern"),
    sz: "sz_bytes",
    units: Some(["nr_accesses_unit", "age_unit"]),
    rate: Bare("%"),
    age: Bare("us"),
    auto_age: false,
    apply_interval: ("apply_interval_us", Bare("us")),
    quota: "quotas",
    quota_time: ("time_ms", Bare("ms")),
    quota_sz: "sz_bytes",
    reset_interval: ("reset_interval_ms", Bare("ms")),
    window_required: false,
    tuner: "goal_tuner",
    weights: ["sz_permil", "nr_accesses_permil", "age_permil"],
    watermarks_interval: ("interval_us", Bare("us")),
    watermarks: ["high_permil", "mid_permil", "low_permil"],
    share: Bare("permil"),
    filter_type: "filter_type",
    ignored: &[
        "name",
        "comments",
        "stats",
        "tried_regions",
        "tried_bytes",
        "effective_sz_bytes",
    ],
};

pub(crate) const TOML: Vocabulary = Vocabulary {
    access_pattern: None,
    sz: "sz",
    units: None,
    rate: Bare(""),
    age: Bare(""),
    auto_age: true,
    apply_interval: ("apply_interval", Bare("")),
    quota: "quota",
    quota_time: ("time", Bare("")),
    quota_sz: "sz",
    reset_interval: ("reset_interval", Bare("")),
    window_required: true,
    tuner: "tuner",
    weights: ["sz", "nr_accesses", "age"],
    watermarks_interval: ("interval", Bare("")),
    watermarks: ["high", "mid", "low"],
    share: Bare(""),
    filter_type: "type",
    ignored: &[],
};
