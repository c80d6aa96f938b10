//! Readers of the API learn nothing of a process of root that `/proc` refuses them.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use thermo_agent::api::{Heatmap, HeatmapRow};
use thermo_agent::audience::Audience;
use thermo_agent::config::Config;
use thermo_agent::kubernetes::pod_names::PodNames;
use thermo_agent::service::explain_process;

const NOBODY: u32 = 65534;

/// What user nobody reads with this program; `None` if it is refused.
fn as_nobody(program: &str, file: &str) -> Option<String> {
    let path = format!("/proc/{}/{file}", std::process::id());
    let output = Command::new(program)
        .arg(path)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// The mappings of this process, as rows with their addresses.
fn rows() -> Vec<HeatmapRow> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let row = |line: &str| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        HeatmapRow {
            pid: std::process::id(),
            start: format!("0x{start}"),
            end: format!("0x{end}"),
            name: rest.split_whitespace().skip(4).collect::<Vec<_>>().join(" "),
            heat: Vec::new(),
        }
    };
    maps.lines().map(row).collect()
}

#[test]
fn readers_get_what_proc_gives_to_other_users_and_no_more() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: only root can ask as another user");
        return;
    }
    for (program, file) in [("cat", "maps"), ("readlink", "exe"), ("cat", "environ")] {
        assert_eq!(as_nobody(program, file), None, "/proc gives {file} to everybody");
    }
    let text = "[[policy]]\nname = \"other\"\nmatch = { exe = \"/no/such\" }\n\
                [[policy]]\nname = \"env\"\nmatch = { env = \"PATH=/no/such\" }\n";
    let config = Config::parse(text, Path::new("/")).unwrap();
    let explain = |audience| {
        let asked = (std::process::id(), audience);
        let explanation = explain_process(Path::new("/"), &config, &PodNames::default(), asked).unwrap();
        (serde_json::to_string(&explanation).unwrap(), explanation)
    };
    let exe = fs::read_link("/proc/self/exe").unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap();
    let (all, (told, explanation)) = (explain(Audience::Admin).0, explain(Audience::Reader));
    assert!(all.contains(&exe), "{all}");
    assert!(!told.contains(&exe) && !told.contains(&path), "{told}");
    // The rest is what everybody may read.
    let command = as_nobody("cat", "comm").unwrap();
    let group = as_nobody("cat", "cgroup").unwrap();
    for (name, value) in &explanation.facts {
        let is_public = match name.as_str() {
            "command" => command.trim_end() == value,
            "uid" => as_nobody("cat", "status")
                .unwrap()
                .contains(&format!("\t{value}\t")),
            _ => group.contains(value.as_str()),
        };
        assert!(is_public, "{name} {value}");
    }
    let map = Heatmap {
        rows: rows(),
        ..Heatmap::default()
    };
    let told = map.clone().told_to(Audience::Reader).rows;
    for (row, told) in map.rows.iter().zip(&told) {
        let start = u64::from_str_radix(told.start.trim_start_matches("0x"), 16).unwrap();
        let size = |row: &HeatmapRow| {
            let ends = [&row.start, &row.end].map(|text| u64::from_str_radix(&text[2..], 16).unwrap());
            ends[1] - ends[0]
        };
        assert!(start < 1 << 32 && size(row) == size(told), "{row:?} {told:?}");
        assert!(!told.name.contains('/'), "{told:?}");
    }
}
