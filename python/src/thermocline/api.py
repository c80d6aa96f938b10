"""The answers of the agent's API, field by field. docs/reference/api.md describes the API.

Times are Unix times in milliseconds, sizes are bytes, rates are bytes a minute, and shares lie between 0 and
1. Later agents may add fields.
"""

from __future__ import annotations

from typing import Literal, TypedDict

SCHEMA = 1
"""The newest version of the answers that this module knows."""

Mode = Literal["observe", "dry-run", "act"]
"""What a policy may do."""


class AgeBytes(TypedDict):
    """Bytes in one range of idle ages: `min_s` inclusive, `max_s` exclusive, `None` for the last one."""

    min_s: int
    max_s: int | None
    bytes: int


class KindAges(TypedDict):
    """Idle ages of one kind of memory."""

    kind: str
    ages: list[AgeBytes]


class NamedBytes(TypedDict):
    """Bytes under a name."""

    name: str
    bytes: int


class Target(TypedDict):
    """All processes of one policy that have one name."""

    name: str
    policy: str
    mode: Mode
    pids: list[int]
    resident_bytes: int
    swap_bytes: int
    unknown_bytes: int
    working_set_bytes: int
    ages: list[AgeBytes]
    kinds: list[KindAges]
    reaccess: list[AgeBytes]
    net_saved_bytes: int
    refault_bytes_per_min: int
    pass_s: float | None
    suspended: str | None
    resumes_at_ms: int | None


class Targets(TypedDict):
    """The targets at one moment."""

    schema: int
    time_ms: int
    targets: list[Target]


class Policy(TypedDict):
    """A policy, its mode, and whether and why it is suspended."""

    name: str
    mode: Mode
    configured_mode: Mode
    matches: str
    does: list[str]
    targets: int
    suspended_targets: int
    processes: int
    paused: bool
    suspended: str | None
    resumes_at_ms: int | None
    guard: list[str]
    error: str | None


class Policies(TypedDict):
    """The policies, in the order of the configuration."""

    schema: int
    policies: list[Policy]


class Decision(TypedDict):
    """Something that the agent did or did not do, and why."""

    number: int
    time_ms: int
    policy: str
    target: str | None
    kind: str
    action: str
    bytes: int
    why: str


class Decisions(TypedDict):
    """Decisions, the newest last."""

    schema: int
    decisions: list[Decision]


class LedgerRow(TypedDict):
    """The sums of one target of one policy."""

    policy: str
    target: str
    acted_bytes: list[NamedBytes]
    skipped_bytes: list[NamedBytes]
    would_act_bytes: list[NamedBytes]
    moved_back_bytes: int
    back_1min_bytes: int
    back_10min_bytes: int
    back_1h_bytes: int
    net_saved_gib_hours: float
    watching_cpu_s: float
    acting_cpu_s: float
    watched_s: float


class Ledger(TypedDict):
    """Sums of each policy and target since `since_ms`. They survive restarts."""

    schema: int
    since_ms: int
    rows: list[LedgerRow]


class Export(TypedDict):
    """Files for the fleet: those that wait, their size, and how many were dropped since the agent started."""

    files: int
    bytes: int
    dropped_files: int


class Status(TypedDict):
    """The agent itself."""

    schema: int
    version: str
    host: str
    started_ms: int
    time_ms: int
    budget_cpu_share: float
    watching_cpu_s: float
    acting_cpu_s: float
    cpu_s: float
    resident_bytes: int
    tracker: str
    ready: bool
    warnings: list[str]
    export: Export | None


class PolicyMatch(TypedDict):
    """Whether a policy matches a process, and why."""

    policy: str
    matches: bool
    why: str


class Explanation(TypedDict):
    """Which policy has a process, and why. Each fact is a name and a value."""

    schema: int
    pid: int
    facts: list[list[str]]
    policies: list[PolicyMatch]
    policy: str | None
    target: str | None
    rule: str


class Point(TypedDict):
    """A target at one moment."""

    time_ms: int
    resident_bytes: int
    swap_bytes: int
    ages: list[AgeBytes]


class Series(TypedDict):
    """A target over time, oldest first."""

    schema: int
    points: list[Point]


class HeatmapRow(TypedDict):
    """A range of addresses. A cell is 0 (idle) to 100 (accessed at every check), or -1 (not known)."""

    pid: int
    start: str
    end: str
    name: str
    heat: list[int]


class Heatmap(TypedDict):
    """How hot each part of a target's memory was over time. `times_ms` are the begins of the columns."""

    schema: int
    times_ms: list[int]
    rows: list[HeatmapRow]


class TargetsEvent(TypedDict):
    """New figures of all targets, about once a second."""

    event: Literal["targets"]
    data: Targets


class PoliciesEvent(TypedDict):
    """The policies, after one has changed."""

    event: Literal["policies"]
    data: Policies


class DecisionEvent(TypedDict):
    """A decision."""

    event: Literal["decision"]
    data: Decision


Event = TargetsEvent | PoliciesEvent | DecisionEvent
"""What changed."""
