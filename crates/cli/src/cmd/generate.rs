//! `thermo gen`: man pages and shell completions, and what the pages say beside the help.

use clap::CommandFactory;
use thermo_manual::{FileOf, Program, RelatedPage};

/// Verbs that monitor or act until they end.
const SESSIONS: &[&str] = &[
    "thermo-record",
    "thermo-run",
    "thermo-schemes-apply",
    "thermo-reclaim",
    "thermo-lru-sort",
];

/// What the pages of `thermo` say beside the help.
pub const PROGRAM: Program = Program {
    command: <super::Cli as CommandFactory>::command,
    statuses: &[
        ("0", "Success."),
        ("1", "A negative answer, for commands that have one."),
        ("2", "Error or misuse. Standard error has one sentence about it."),
        ("130", "Interrupted by Ctrl-C or SIGTERM, after an orderly end."),
    ],
    files: FILES,
    related: RELATED,
};

const FILES: &[FileOf] = &[
    FileOf {
        pages: &["thermo-agent"],
        path: "/etc/thermo/agent.toml",
        meaning: "The configuration of the agent.",
    },
    FileOf {
        pages: &["thermo-agent", "thermo-top"],
        path: "/run/thermo/agent.sock",
        meaning: "The socket of the agent.",
    },
    FileOf {
        pages: &["thermo-agent", "thermo-report", "thermo-advise", "thermo-top"],
        path: "/var/lib/thermo",
        meaning: "The agent's history and ledger.",
    },
    FileOf {
        pages: &["thermo-lifecycle"],
        path: "/run/thermo-lifecycle/lifecycle.sock",
        meaning: "The socket of the daemon, if root runs it. Otherwise it is in the folder \
                  thermo-lifecycle of XDG_RUNTIME_DIR.",
    },
    FileOf {
        pages: &[
            "thermo-record",
            "thermo-run",
            "thermo-report",
            "thermo-export",
            "thermo-forecast",
        ],
        path: "thermo.arrow",
        meaning: "The usual name of a recording. An existing recording is kept once, as thermo.arrow.old.",
    },
    FileOf {
        pages: &["thermo-schemes", "thermo-forecast"],
        path: "/usr/share/thermocline/schemes",
        meaning: "Ready scheme files.",
    },
    FileOf {
        pages: SESSIONS,
        path: "/sys/kernel/btf/vmlinux",
        meaning: "The kernel's types, which the BPF programs need. thermo doctor says if they are missing.",
    },
    FileOf {
        pages: &[
            "thermo-doctor",
            "thermo-schemes-apply",
            "thermo-reclaim",
            "thermo-lru-sort",
            "thermo-fs",
        ],
        path: "/run/thermocline",
        meaning: "Notes of machine settings that are changed for a time; after a kill, thermo doctor --leftovers \
                  reads them. Without root, the folder thermocline of XDG_RUNTIME_DIR.",
    },
];

const RELATED: &[RelatedPage] = &[
    RelatedPage {
        pages: &[],
        name: "thermo",
        section: "7",
    },
    RelatedPage {
        pages: &[
            "thermo-schemes",
            "thermo-forecast",
            "thermo-reclaim",
            "thermo-lru-sort",
            "thermo-agent",
        ],
        name: "thermo-schemes",
        section: "5",
    },
    RelatedPage {
        pages: &["thermo-agent", "thermo-top", "thermo-lifecycle"],
        name: "thermo-agent.toml",
        section: "5",
    },
    RelatedPage {
        pages: &["thermo-reclaim", "thermo-hint", "thermo-lru-sort"],
        name: "process_madvise",
        section: "2",
    },
];
