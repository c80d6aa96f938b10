//! `thermo pagein`: brings back what was paged out.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use thermo_actions::pagein::{PageIn, PageInResult, Stay, Swapped};
use thermo_kernel::file::FileError;
use thermo_kernel::proc::ProcError;
use thermo_kernel::status;
use thermo_targets::{Process, TrackedProcesses};
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::{Bytes, Nanos, Permille, printable};

use super::hint::{run_cancellable, warn};
use crate::args::TargetsOrSystem;
use crate::privileges;
use crate::session::Progress;

/// Bring back what was paged out: read memory of processes in from swap, and verify what came.
///
/// Pages are read as if the program had accessed them, so the program does not wait for them later. Only
/// anonymous memory is brought back; pages of files are read again when the program accesses them. Exit code
/// 1: something stays in swap, with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo pagein --pid 4242
  thermo pagein --cgroup /system.slice/redis.service --json")]
pub struct Pagein {
    #[command(flatten)]
    targets: TargetsOrSystem,

    /// Stop when less than this share of memory is available, of the machine or below the limit of the
    /// control group
    #[arg(long, value_name = "SHARE", default_value = "10%")]
    keep_available: Permille,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A process and its memory in swap.
struct Candidate<'a> {
    process: &'a Process,
    swapped: Swapped,
}

/// The results of all processes.
struct Report {
    /// Process IDs and results, of processes with memory in swap.
    rows: Vec<(u32, PageInResult)>,
    elapsed: Nanos,
}

impl Pagein {
    /// Brings memory back and prints what came.
    pub fn run(self) -> anyhow::Result<Exit> {
        ensure!(
            !self.targets.has_command(),
            "a command that was just started has nothing in swap: give --pid PID, --cgroup PATH, --unit UNIT or --system"
        );
        let targets = self.targets.clone().checked()?;
        let root = Path::new("/");
        let mut processes = TrackedProcesses::new(root, targets.spec(None))?;
        interrupt::listen().context("cannot handle Ctrl-C")?;
        privileges::keep_only(privileges::HINT)?;
        processes.update()?;
        warn(&mut processes);
        let candidates = candidates(root, &processes)?;
        let report = self.bring_back(root, &candidates)?;
        if self.json {
            output::json(&report.json())?;
        } else {
            output::text(&printable(&report.text(processes.processes().len())))?;
        }
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if report.stays() > Bytes::ZERO => Exit::Negative,
            () => Exit::Done,
        })
    }

    fn bring_back(&self, root: &Path, candidates: &[Candidate<'_>]) -> anyhow::Result<Report> {
        let (begin, cancel) = (Instant::now(), std::sync::Arc::default());
        let pagein = PageIn::new(root, self.keep_available, &cancel)?;
        let total: Bytes = candidates.iter().map(|one| one.swapped.bytes()).sum();
        let mut progress = Progress::new();
        let mut before = Bytes::ZERO;
        let rows: Result<Vec<_>, FileError> = run_cancellable(&cancel, || {
            let bring_back = |one: &Candidate<'_>| {
                let mut show =
                    |bytes: Bytes| progress.show_text(&format!("{} of {total} read in", before + bytes));
                let result = pagein.bring_back(one.process, &one.swapped, &mut show)?;
                before += one.swapped.bytes();
                Ok((one.process.pid, result))
            };
            candidates.iter().map(bring_back).collect()
        })?;
        progress.clear();
        Ok(Report {
            rows: rows.context("free memory cannot be read, so nothing more is brought back")?,
            elapsed: Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        })
    }
}

/// The processes with memory in swap. Processes that have ended meanwhile are left out.
fn candidates<'a>(root: &Path, processes: &'a TrackedProcesses) -> anyhow::Result<Vec<Candidate<'a>>> {
    let mut candidates = Vec::new();
    for process in processes.processes().values() {
        // The pagemap of a large address space takes long to read.
        match status::read(root, process.pid) {
            Ok(status) if status.vm_swap > Bytes::ZERO => {}
            Ok(_) => continue,
            Err(error) if error.is_gone() => continue,
            Err(error) => return Err(error.into()),
        }
        match Swapped::find(root, process.pid) {
            Ok(swapped) => candidates.push(Candidate { process, swapped }),
            Err(error) if error.is_gone() => {}
            Err(error @ ProcError::File(FileError::Denied { .. })) => {
                return Err(error).context(
                    "memory of other users' processes needs root (CAP_SYS_NICE, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)",
                );
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(candidates)
}

impl Report {
    fn in_swap(&self) -> Bytes {
        self.rows.iter().map(|(_, result)| result.in_swap).sum()
    }

    fn brought_back(&self) -> Bytes {
        self.rows.iter().map(|(_, result)| result.brought_back).sum()
    }

    /// Bytes that are still in swap.
    fn stays(&self) -> Bytes {
        self.all_stays().map(|(_, bytes)| *bytes).sum()
    }

    fn all_stays(&self) -> impl Iterator<Item = &(Stay, Bytes)> {
        self.rows.iter().flat_map(|(_, result)| &result.stays)
    }

    fn text(&self, nr_processes: usize) -> String {
        if self.in_swap() == Bytes::ZERO {
            let processes = match nr_processes {
                0 => return "there is no process to bring memory back for\n".to_owned(),
                1 => "the process".to_owned(),
                nr => format!("the {nr} processes"),
            };
            return format!("nothing of {processes} is in swap\n");
        }
        let mut text = format!(
            "brought back {} of {} in {}",
            self.brought_back(),
            self.in_swap(),
            self.elapsed
        );
        // Sums by kind; the figures in the text are those of the first.
        let mut sums: Vec<(&Stay, Bytes)> = Vec::new();
        for (why, bytes) in self.all_stays() {
            match sums.iter_mut().find(|(known, _)| known.name() == why.name()) {
                Some((_, sum)) => *sum += *bytes,
                None => sums.push((why, *bytes)),
            }
        }
        for (why, bytes) in sums {
            text.push_str(&format!("; {bytes} stay in swap: {why}"));
        }
        text + "\n"
    }

    fn json(&self) -> Value {
        let stays = |result: &PageInResult| -> Value {
            let one = |(why, bytes): &(Stay, Bytes)| json!({"reason": why.name(), "bytes": bytes.0, "text": why.to_string()});
            result.stays.iter().map(one).collect()
        };
        let row = |(pid, result): &(u32, PageInResult)| {
            json!({
                "pid": pid,
                "bytes_in_swap": result.in_swap.0,
                "bytes_brought_back": result.brought_back.0,
                "stays": stays(result),
            })
        };
        json!({
            "schema": 1,
            "bytes_in_swap": self.in_swap().0,
            "bytes_brought_back": self.brought_back().0,
            "bytes_staying": self.stays().0,
            "elapsed_ns": self.elapsed.0,
            "processes": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(in_swap: u64, brought_back: u64, stays: Vec<(Stay, Bytes)>) -> PageInResult {
        PageInResult {
            in_swap: Bytes::mib(in_swap),
            brought_back: Bytes::mib(brought_back),
            stays,
        }
    }

    fn report(rows: Vec<(u32, PageInResult)>) -> Report {
        Report {
            rows,
            elapsed: Nanos::millis(3100),
        }
    }

    #[test]
    fn text_sums_processes_and_names_reasons() {
        let stay = |mib| vec![(Stay::Unreadable, Bytes::mib(mib))];
        let report = report(vec![(7, result(500, 495, stay(5))), (8, result(20, 17, stay(3)))]);
        assert_eq!(
            report.text(2),
            "brought back 512 MiB of 520 MiB in 3.10 s; 8.00 MiB stay in swap: their mappings may not be read\n"
        );
        let json = report.json();
        assert_eq!(
            (
                &json["bytes_staying"],
                &json["processes"][1]["stays"][0]["reason"]
            ),
            (&(8 << 20).into(), &"unreadable".into())
        );
    }

    #[test]
    fn text_without_swapped_memory_counts_processes() {
        assert_eq!(
            report(Vec::new()).text(0),
            "there is no process to bring memory back for\n"
        );
        assert_eq!(report(Vec::new()).text(1), "nothing of the process is in swap\n");
        assert_eq!(
            report(Vec::new()).text(3),
            "nothing of the 3 processes is in swap\n"
        );
        assert_eq!(report(Vec::new()).stays(), Bytes::ZERO);
    }
}
