//! What the man page of `thermo-upload` says beside the help.

use clap::CommandFactory;
use thermo_manual::{FileOf, Program, RelatedPage};

/// What the pages say beside the help.
pub const PROGRAM: Program = Program {
    command: <crate::Cli as CommandFactory>::command,
    statuses: &[
        ("0", "Success."),
        (
            "1",
            "With --once: some files could not be moved. Standard error says why.",
        ),
        ("2", "Error or misuse. Standard error has one sentence about it."),
        ("130", "Interrupted by a second Ctrl-C."),
    ],
    files: &[
        FileOf {
            pages: &["thermo-upload"],
            path: "/var/lib/thermo/export",
            meaning: "Files of the agent that wait.",
        },
        FileOf {
            pages: &["thermo-upload"],
            path: "/etc/thermo/upload.env",
            meaning: "Store and keys of the service thermo-upload.service.",
        },
    ],
    related: &[
        RelatedPage {
            pages: &[],
            name: "thermo-agent",
            section: "1",
        },
        RelatedPage {
            pages: &[],
            name: "thermo-agent.toml",
            section: "5",
        },
    ],
};
