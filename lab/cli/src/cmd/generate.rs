//! What the man pages of `thermo-lab` say beside the help.

use clap::CommandFactory;
use thermo_manual::{FileOf, Program, RelatedPage};

/// What the pages say beside the help.
pub const PROGRAM: Program = Program {
    command: <super::Cli as CommandFactory>::command,
    statuses: &[
        ("0", "Success."),
        ("1", "A run failed."),
        ("2", "Error or misuse. Standard error has one sentence about it."),
        ("130", "Interrupted by Ctrl-C or SIGTERM, after an orderly end."),
    ],
    files: &[FileOf {
        pages: &["thermo-lab"],
        path: "workloads/experiments, /usr/share/thermo-lab/workloads/experiments",
        meaning: "Experiment files. The current directory comes first.",
    }],
    related: &[
        RelatedPage {
            pages: &[],
            name: "thermo",
            section: "1",
        },
        RelatedPage {
            pages: &[],
            name: "thermo",
            section: "7",
        },
    ],
};
