//! A share of CPU time, as a user writes it.

use std::thread;

use thermo_engine::budget::CpuShare;

/// Millionths of a CPU in one percent.
const PERCENT: f64 = 10_000.0;
/// The least that is a budget, in millionths: a single look takes more than a second has of less.
const LEAST: u32 = 100;

/// Reads percent of one CPU: `1%`, `0.25 %`, a bare `2`; a hundredth percent or more, and no more than this machine has.
///
/// # Errors
/// A sentence.
pub fn parse(text: &str) -> Result<CpuShare, String> {
    let cpus =
        thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    read(text, cpus)
}

fn read(text: &str, cpus: u32) -> Result<CpuShare, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent = number.parse::<f64>().ok().filter(|_| plain);
    let percent =
        percent.ok_or_else(|| format!("{text:?} is not a share of a CPU: write it like 1% or 0.5%"))?;
    let most = u64::from(cpus) * 100;
    if percent > most as f64 {
        return Err(format!(
            "{percent} % is more than there is: {cpus} CPU{} {most} %, and looking rarely needs more than 5%",
            if cpus == 1 { " is" } else { "s are" }
        ));
    }
    // At most 100 % of as many CPUs as fit.
    let millionths = (percent * PERCENT).round() as u32;
    if millionths < LEAST {
        return Err(format!(
            "{percent} % leaves no time to look: give 0.01% or more, like 1%"
        ));
    }
    Ok(CpuShare(millionths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_with_fractions_up_to_all_cpus() {
        for (text, millionths) in [
            ("1%", 10_000),
            ("1", 10_000),
            ("0.25 %", 2_500),
            ("0.01%", 100),
            ("100%", 1_000_000),
            ("400%", 4_000_000),
        ] {
            assert_eq!(read(text, 4), Ok(CpuShare(millionths)), "{text}");
        }
    }

    #[test]
    fn what_is_no_budget_is_told_so() {
        for (text, says) in [
            ("0", "leaves no time to look"),
            ("0.00001%", "leaves no time to look"),
            ("0.0001%", "leaves no time to look"),
            ("401%", "4 CPUs are 400 %"),
            ("-1", "is not a share"),
            ("inf", "is not a share"),
            ("1e3", "is not a share"),
            ("%", "is not a share"),
            ("1 CPU", "is not a share"),
        ] {
            let error = read(text, 4).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = read("101%", 1).expect_err("there is one");
        assert!(error.contains("1 CPU is 100 %"), "{error}");
    }
}
