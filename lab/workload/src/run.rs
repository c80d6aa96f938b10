//! Runs a configuration: maps the regions, then makes the accesses, one phase after the other.
//!
//! Work is drawn by probability in chunks of [`CHUNK`] accesses; between chunks the clock is read, so phases
//! and truth spans end exactly between two accesses and a span never lists what a neighbour touched.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thermo_engine::rng::Rng;
use thermo_units::{AddrRange, Nanos};

use crate::config::{Config, Pattern, Phase, RegionSpec};
use crate::memory::Mapping;
use crate::options::{HintMethod, Mode, Options};
use crate::touched::Touched;
use crate::truth::Truth;

/// Accesses in a piece of work, between two looks at the clock: microseconds, or milliseconds where each has to
/// come from swap.
const CHUNK: usize = 256;

/// The longest sleep of an idle phase, so that it ends in time and can be stopped.
const NAP: Duration = Duration::from_millis(10);

/// Why a configuration could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A region that cannot be mapped.
    #[error("region {name:?} of {sz} bytes cannot be mapped: {source}")]
    Map {
        /// The region.
        name: String,
        /// Its size.
        sz: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// An initial data file that cannot be read.
    #[error("region {name:?} cannot be filled from {}: {source}", file.display())]
    Init {
        /// The region.
        name: String,
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refuses what the options ask for.
    #[error("{call} of region {name:?} failed: {source}")]
    Hint {
        /// The region.
        name: String,
        /// The call.
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Nothing can be printed.
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Accesses made.
    pub nr_accesses: u64,
    /// False when it was stopped before its end.
    pub complete: bool,
}

/// Runs `config` in the calling thread. Tells `truth` what was touched, span by span, when the options give
/// a span. Prints to stdout unless the options say quiet; first, when all regions are mapped and filled,
/// `ready pid=… regions name start-end …`.
///
/// # Errors
/// When a region cannot be mapped or filled, or the system refuses a hint.
pub fn run(config: &Config, options: &Options, truth: &mut dyn FnMut(Truth)) -> Result<Summary, RunError> {
    if options.quiet {
        run_to(config, options, &mut io::sink(), truth)
    } else {
        run_to(config, options, &mut io::stdout(), truth)
    }
}

/// As [`run`], printing to `out`.
///
/// # Errors
/// As [`run`], and those of `out`.
pub fn run_to(
    config: &Config,
    options: &Options,
    out: &mut dyn Write,
    truth: &mut dyn FnMut(Truth),
) -> Result<Summary, RunError> {
    let mut run = Execution::new(config, options, out, truth)?;
    run.say_ready()?;
    let mut complete = true;
    if !options.dry_run {
        'whole: for _ in 0..options.repeat {
            for phase in &config.phases {
                complete = run.phase(phase)?;
                if !complete {
                    break 'whole;
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

/// One region in memory.
struct MappedRegion<'a> {
    spec: &'a RegionSpec,
    mapping: Mapping,
    touched: Touched,
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
            let refused = |source| RunError::Hint {
                name: spec.name.clone(),
                call,
                source,
            };
            mapping.advise(libc::MADV_HUGEPAGE).map_err(refused)?;
        }
        if let Some(file) = &spec.init {
            let refused = |source| RunError::Init {
                name: spec.name.clone(),
                file: file.clone(),
                source,
            };
            let bytes = std::fs::read(file).map_err(refused)?;
            let len = bytes.len().min(mapping.len());
            mapping.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
        }
        let touched = Touched::new(mapping.start(), len);
        Ok(Self {
            spec,
            mapping,
            touched,
        })
    }

    /// A piece of work by `pattern`, a sequential one from `cursor` on, which is moved.
    fn access(&mut self, pattern: &Pattern, mode: Mode, cursor: &mut usize, rng: &mut Rng) {
        if pattern.random {
            return self.access_random(mode, rng);
        }
        let len = self.mapping.len();
        let stride = usize::try_from(pattern.stride).unwrap_or(usize::MAX);
        let mut left = CHUNK;
        while left > 0 {
            let count = (len - *cursor).div_ceil(stride).min(left);
            for step in 0..count {
                self.mapping.touch(*cursor + step * stride, mode);
            }
            self.mark(*cursor, stride, count);
            let next = cursor.saturating_add(count.saturating_mul(stride));
            *cursor = if next < len { next } else { 0 };
            left -= count;
        }
    }

    fn access_random(&mut self, mode: Mode, rng: &mut Rng) {
        let len = self.mapping.len() as u64;
        for _ in 0..CHUNK {
            let offset = usize::try_from(rng.below(len)).unwrap_or(0);
            self.mapping.touch(offset, mode);
            self.touched.mark(offset);
        }
    }

    fn mark(&mut self, cursor: usize, stride: usize, count: usize) {
        const PAGE: usize = 4096;
        if stride <= PAGE {
            self.touched.mark_through(cursor, cursor + (count - 1) * stride);
        } else {
            (0..count).for_each(|step| self.touched.mark(cursor + step * stride));
        }
    }

    /// Tells the system whether the next phase uses it.
    fn hint(&self, method: HintMethod, used: bool) -> Result<(), RunError> {
        let (call, done) = match method {
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
        done.map_err(|source| RunError::Hint {
            name: self.spec.name.clone(),
            call,
            source,
        })
    }
}

struct Execution<'a> {
    options: &'a Options,
    places: Vec<MappedRegion<'a>>,
    /// Indices of `places` by address: the order ranges are told in.
    by_address: Vec<usize>,
    out: &'a mut dyn Write,
    truth: &'a mut dyn FnMut(Truth),
    rng: Rng,
    nr_accesses: u64,
    span_start: u64,
    logged: (u64, u64),
}

impl<'a> Execution<'a> {
    fn new(
        config: &'a Config,
        options: &'a Options,
        out: &'a mut dyn Write,
        truth: &'a mut dyn FnMut(Truth),
    ) -> Result<Self, RunError> {
        let places: Vec<MappedRegion<'_>> = config
            .regions
            .iter()
            .map(|spec| MappedRegion::new(spec, options.huge_pages))
            .collect::<Result<_, _>>()?;
        let mut by_address: Vec<usize> = (0..places.len()).collect();
        by_address.sort_by_key(|index| places[*index].mapping.start());
        let start = now();
        let rng = Rng::new(options.seed);
        Ok(Self {
            options,
            places,
            by_address,
            out,
            truth,
            rng,
            nr_accesses: 0,
            span_start: start,
            logged: (start, 0),
        })
    }

    fn say_ready(&mut self) -> io::Result<()> {
        write!(self.out, "ready pid={} regions", std::process::id())?;
        for MappedRegion { spec, mapping, .. } in &self.places {
            let range = AddrRange::new(mapping.start(), mapping.start() + mapping.len() as u64);
            write!(self.out, " {} {range}", spec.name)?;
        }
        writeln!(self.out)?;
        self.out.flush()
    }

    /// Runs one phase; false when it was stopped.
    fn phase(&mut self, phase: &Phase) -> Result<bool, RunError> {
        for (index, place) in self.places.iter().enumerate() {
            let used = phase.patterns.iter().any(|pattern| pattern.region == index);
            place.hint(self.options.hint, used)?;
        }
        let total: u64 = phase
            .patterns
            .iter()
            .map(|pattern| u64::from(pattern.probability))
            .sum();
        let mut cursors = vec![0; phase.patterns.len()];
        let begin = Instant::now();
        let length = Duration::from_millis(phase.time_ms);
        let mut left = length;
        // The clock is asked after the work: a phase does something even where the machine is very slow.
        while !left.is_zero() {
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if total == 0 {
                std::thread::sleep(left.min(NAP));
            } else {
                self.work(phase, total, &mut cursors);
            }
            self.tell(phase)?;
            left = length.saturating_sub(begin.elapsed());
        }
        Ok(true)
    }

    /// Draws one piece of work and does it.
    fn work(&mut self, phase: &Phase, total: u64, cursors: &mut [usize]) {
        let mut drawn = self.rng.below(total);
        for (pattern, cursor) in phase.patterns.iter().zip(cursors) {
            let probability = u64::from(pattern.probability);
            if drawn < probability {
                let mode = pattern.mode.unwrap_or(self.options.default_mode);
                let place = &mut self.places[pattern.region];
                place.access(pattern, mode, cursor, &mut self.rng);
                self.nr_accesses += CHUNK as u64;
                return;
            }
            drawn -= probability;
        }
    }

    /// Ends the truth span and prints the log line, when it is time for them.
    fn tell(&mut self, phase: &Phase) -> io::Result<()> {
        let now = now();
        if self
            .options
            .truth_span
            .is_some_and(|span| now - self.span_start >= span.0)
        {
            self.end_span(Nanos(now));
        }
        let (since, before) = self.logged;
        if self
            .options
            .log_interval
            .is_some_and(|interval| now - since >= interval.0)
        {
            let (made, us) = (self.nr_accesses - before, (now - since) / 1000);
            let per_ms = made * 1000 / us.max(1);
            writeln!(
                self.out,
                "phase {:?}: {made} accesses in {us} us, {per_ms} a ms",
                phase.name
            )?;
            self.out.flush()?;
            self.logged = (now, self.nr_accesses);
        }
        Ok(())
    }

    fn end_span(&mut self, now: Nanos) {
        if self.options.truth_span.is_none() {
            return;
        }
        let mut ranges = Vec::new();
        for index in &self.by_address {
            self.places[*index].touched.drain(&mut ranges);
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
    crate::memory::monotonic()
}
