//! Runs a configuration: maps the regions, then accesses them, one phase after the other.
//!
//! Accesses are made in chunks of [`CHUNK`]. Each chunk uses one pattern, drawn by probability. The clock is
//! read between chunks, so phases and truth spans end between two accesses, and a span never contains
//! accesses of the next.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thermo_engine::rng::Rng;
use thermo_units::{AddrRange, Nanos};

use crate::accessed_pages::AccessedPages;
use crate::config::{Config, Pattern, Phase, RegionSpec};
use crate::memory::Mapping;
use crate::options::{HintMethod, Mode, Options};
use crate::truth::Truth;

/// Accesses between two reads of the clock. A chunk takes microseconds, or milliseconds when every page is in
/// swap.
const CHUNK: usize = 256;

/// Maximum sleep of an idle phase, so that the phase ends in time and can be stopped.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A region cannot be mapped.
    #[error("cannot map region {name:?} of {sz} bytes: {source}")]
    Map {
        /// The region.
        name: String,
        /// Size in bytes.
        sz: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// An initial data file cannot be read.
    #[error("cannot fill region {name:?} from {}: {source}", file.display())]
    Init {
        /// The region.
        name: String,
        /// The file.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call that the options ask for failed.
    #[error("{call} of region {name:?} failed: {source}")]
    Hint {
        /// The region.
        name: String,
        /// The system call.
        call: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// Result of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of accesses.
    pub nr_accesses: u64,
    /// False when the run was stopped early.
    pub complete: bool,
}

/// Runs `config` in the calling thread. Calls `truth` with the accessed ranges of each span when the options
/// set `truth_span`. Prints to stdout unless the options set `quiet`. The first line, printed when all
/// regions are mapped and filled, is `ready pid=PID regions NAME START-END ...`.
///
/// # Errors
/// When a region cannot be mapped or filled, or a hint fails.
pub fn run(config: &Config, options: &Options, truth: &mut dyn FnMut(Truth)) -> Result<Summary, RunError> {
    if options.quiet {
        run_to(config, options, &mut io::sink(), truth)
    } else {
        run_to(config, options, &mut io::stdout(), truth)
    }
}

/// Like [`run`], but prints to `out`.
///
/// # Errors
/// Those of [`run`], and when `out` fails.
pub fn run_to(
    config: &Config,
    options: &Options,
    out: &mut dyn Write,
    truth: &mut dyn FnMut(Truth),
) -> Result<Summary, RunError> {
    let mut run = Execution::new(config, options, out, truth)?;
    run.print_ready()?;
    let mut complete = true;
    if !options.dry_run {
        'repeats: for _ in 0..options.repeat {
            for phase in &config.phases {
                complete = run.phase(phase)?;
                if !complete {
                    break 'repeats;
                }
            }
        }
        run.end_span(Nanos(now()));
    }
    Ok(Summary {
        nr_accesses: run.nr_accesses,
        complete,
    })
}

/// A mapped region.
struct MappedRegion<'a> {
    spec: &'a RegionSpec,
    mapping: Mapping,
    accessed: AccessedPages,
}

/// Copies the first bytes of `file` to `memory`. The rest of `memory` stays as it is if the file is shorter.
fn fill(mut memory: &mut [u8], file: &Path) -> io::Result<()> {
    let max = memory.len() as u64;
    io::copy(&mut File::open(file)?.take(max), &mut memory)?;
    Ok(())
}

impl<'a> MappedRegion<'a> {
    fn new(spec: &'a RegionSpec, huge_pages: bool) -> Result<Self, RunError> {
        let failed = |source| RunError::Map {
            name: spec.name.clone(),
            sz: spec.sz,
            source,
        };
        let len = usize::try_from(spec.sz).map_err(|error| failed(io::Error::other(error)))?;
        let mut mapping = Mapping::new(len).map_err(failed)?;
        if huge_pages {
            let call = "madvise(MADV_HUGEPAGE)";
            let failed = |source| RunError::Hint {
                name: spec.name.clone(),
                call,
                source,
            };
            mapping.advise(libc::MADV_HUGEPAGE).map_err(failed)?;
        }
        if let Some(file) = &spec.init {
            let failed = |source| RunError::Init {
                name: spec.name.clone(),
                file: file.clone(),
                source,
            };
            fill(mapping.bytes_mut(), file).map_err(failed)?;
        }
        let accessed = AccessedPages::new(mapping.start(), len);
        Ok(Self {
            spec,
            mapping,
            accessed,
        })
    }

    /// Makes one chunk of accesses by `pattern`. Sequential patterns start at `cursor` and advance it.
    fn access(&mut self, pattern: &Pattern, mode: Mode, cursor: &mut usize, rng: &mut Rng) {
        if pattern.random {
            return self.access_random(mode, rng);
        }
        let len = self.mapping.len();
        let stride = usize::try_from(pattern.stride).unwrap_or(usize::MAX);
        let mut remaining = CHUNK;
        while remaining > 0 {
            let count = (len - *cursor).div_ceil(stride).min(remaining);
            for step in 0..count {
                self.mapping.touch(*cursor + step * stride, mode);
            }
            self.set_accessed(*cursor, stride, count);
            let next = cursor.saturating_add(count.saturating_mul(stride));
            *cursor = if next < len { next } else { 0 };
            remaining -= count;
        }
    }

    fn access_random(&mut self, mode: Mode, rng: &mut Rng) {
        let len = self.mapping.len() as u64;
        for _ in 0..CHUNK {
            let offset = usize::try_from(rng.below(len)).unwrap_or(0);
            self.mapping.touch(offset, mode);
            self.accessed.set(offset);
        }
    }

    fn set_accessed(&mut self, cursor: usize, stride: usize, count: usize) {
        const PAGE: usize = 4096;
        if stride <= PAGE {
            self.accessed.set_through(cursor, cursor + (count - 1) * stride);
        } else {
            (0..count).for_each(|step| self.accessed.set(cursor + step * stride));
        }
    }

    /// Informs the kernel whether the next phase uses this region.
    fn hint(&self, method: HintMethod, used: bool) -> Result<(), RunError> {
        let (call, result) = match method {
            HintMethod::None => return Ok(()),
            HintMethod::Madvise if used => {
                ("madvise(MADV_WILLNEED)", self.mapping.advise(libc::MADV_WILLNEED))
            }
            HintMethod::Madvise => ("madvise(MADV_COLD)", self.mapping.advise(libc::MADV_COLD)),
            HintMethod::Mlock => (
                if used { "mlock()" } else { "munlock()" },
                self.mapping.lock(used),
            ),
        };
        result.map_err(|source| RunError::Hint {
            name: self.spec.name.clone(),
            call,
            source,
        })
    }
}

struct Execution<'a> {
    options: &'a Options,
    regions: Vec<MappedRegion<'a>>,
    /// Indices of `regions` by address: the order of ranges in truth records.
    by_address: Vec<usize>,
    out: &'a mut dyn Write,
    truth: &'a mut dyn FnMut(Truth),
    rng: Rng,
    nr_accesses: u64,
    /// Start of the current truth span, in nanoseconds.
    span_start: u64,
    /// Time in nanoseconds and number of accesses at the last log line.
    last_log: (u64, u64),
}

impl<'a> Execution<'a> {
    fn new(
        config: &'a Config,
        options: &'a Options,
        out: &'a mut dyn Write,
        truth: &'a mut dyn FnMut(Truth),
    ) -> Result<Self, RunError> {
        let regions: Vec<MappedRegion<'_>> = config
            .regions
            .iter()
            .map(|spec| MappedRegion::new(spec, options.huge_pages))
            .collect::<Result<_, _>>()?;
        let mut by_address: Vec<usize> = (0..regions.len()).collect();
        by_address.sort_by_key(|index| regions[*index].mapping.start());
        let start = now();
        let rng = Rng::new(options.seed);
        Ok(Self {
            options,
            regions,
            by_address,
            out,
            truth,
            rng,
            nr_accesses: 0,
            span_start: start,
            last_log: (start, 0),
        })
    }

    fn print_ready(&mut self) -> io::Result<()> {
        write!(self.out, "ready pid={} regions", std::process::id())?;
        for MappedRegion { spec, mapping, .. } in &self.regions {
            let range = AddrRange::new(mapping.start(), mapping.start() + mapping.len() as u64);
            write!(self.out, " {} {range}", spec.name)?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }

    /// Runs one phase. Returns false when it was stopped.
    fn phase(&mut self, phase: &Phase) -> Result<bool, RunError> {
        for (index, region) in self.regions.iter().enumerate() {
            let used = phase.patterns.iter().any(|pattern| pattern.region == index);
            region.hint(self.options.hint, used)?;
        }
        let total_weight: u64 = phase
            .patterns
            .iter()
            .map(|pattern| u64::from(pattern.probability))
            .sum();
        let mut cursors = vec![0; phase.patterns.len()];
        let begin = Instant::now();
        let length = Duration::from_millis(phase.time_ms);
        let mut remaining = length;
        // The clock is read after a chunk, so that every phase makes accesses even on a very slow machine.
        while !remaining.is_zero() {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if total_weight == 0 {
                std::thread::sleep(remaining.min(MAX_SLEEP));
            } else {
                self.access_chunk(phase, total_weight, &mut cursors);
            }
            self.report(phase)?;
            remaining = length.saturating_sub(begin.elapsed());
        }
        Ok(true)
    }

    /// Draws a pattern and makes one chunk of accesses.
    fn access_chunk(&mut self, phase: &Phase, total_weight: u64, cursors: &mut [usize]) {
        let mut drawn = self.rng.below(total_weight);
        for (pattern, cursor) in phase.patterns.iter().zip(cursors) {
            let probability = u64::from(pattern.probability);
            if drawn < probability {
                let mode = pattern.mode.unwrap_or(self.options.default_mode);
                let region = &mut self.regions[pattern.region];
                region.access(pattern, mode, cursor, &mut self.rng);
                self.nr_accesses += CHUNK as u64;
                return;
            }
            drawn -= probability;
        }
    }

    /// Ends the truth span and prints a log line when each is due.
    fn report(&mut self, phase: &Phase) -> io::Result<()> {
        let now = now();
        if self
            .options
            .truth_span
            .is_some_and(|span| now - self.span_start >= span.0)
        {
            self.end_span(Nanos(now));
        }
        let (since, before) = self.last_log;
        if self
            .options
            .log_interval
            .is_some_and(|interval| now - since >= interval.0)
        {
            let (accesses, us) = (self.nr_accesses - before, (now - since) / 1000);
            let per_ms = accesses * 1000 / us.max(1);
            writeln!(
                self.out,
                "phase {:?}: {accesses} accesses in {us} us, {per_ms} a ms",
                phase.name
            )?;
            self.out.flush()?;
            self.last_log = (now, self.nr_accesses);
        }
        Ok(())
    }

    fn end_span(&mut self, now: Nanos) {
        if self.options.truth_span.is_none() {
            return;
        }
        let mut ranges = Vec::new();
        for index in &self.by_address {
            self.regions[*index].accessed.drain(&mut ranges);
        }
        let start = Nanos(std::mem::replace(&mut self.span_start, now.0));
        (self.truth)(Truth {
            start,
            end: now,
            pid: std::process::id(),
            ranges,
        });
    }
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
fn now() -> u64 {
    crate::memory::monotonic_ns()
}
