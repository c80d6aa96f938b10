//! What the man pages of `thermo-nbd` say beside the help.

use clap::CommandFactory;
use thermo_manual::{FileOf, Program, RelatedPage};

/// What the pages say beside the help.
pub const PROGRAM: Program = Program {
    command: <crate::serve::Cli as CommandFactory>::command,
    statuses: &[
        (
            "0",
            "Success. The server also ends with it after Ctrl-C or SIGTERM.",
        ),
        ("2", "Error or misuse. Standard error has one sentence about it."),
        ("130", "Interrupted by a second Ctrl-C."),
    ],
    files: &[
        FileOf {
            pages: &["thermo-nbd"],
            path: "/run/thermo-nbd.sock",
            meaning: "The socket of the service thermo-nbd.service.",
        },
        FileOf {
            pages: &["thermo-nbd"],
            path: "/var/lib/thermo-nbd/disk.img",
            meaning: "The file that the service serves, as the export disk.",
        },
    ],
    related: &[
        RelatedPage {
            pages: &[],
            name: "thermo",
            section: "7",
        },
        RelatedPage {
            pages: &[],
            name: "nbd-client",
            section: "8",
        },
    ],
};
