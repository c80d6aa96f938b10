//! The CPU budget, as the user writes it.

use std::thread;

use thermo_engine::budget::CpuShare;

/// Millionths of a CPU in one percent.
const PERCENT: f64 = 10_000.0;
/// Minimum budget, in millionths. With less, one access check takes more than the budget of a second.
const MIN: u32 = 100;

/// Parses percent of one CPU: `1%`, `0.25 %` or `2`. The minimum is 0.01 %, the maximum 100 % for each CPU of
/// this machine.
///
/// # Errors
/// A sentence for the user.
pub fn parse(text: &str) -> Result<CpuShare, String> {
    let cpus =
        thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    parse_for(text, cpus)
}

fn parse_for(text: &str, cpus: u32) -> Result<CpuShare, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let is_decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percent = number.parse::<f64>().ok().filter(|_| is_decimal);
    let percent =
        percent.ok_or_else(|| format!("{text:?} is not a share of a CPU: give percent like 1% or 0.5%"))?;
    let max = u64::from(cpus) * 100;
    if percent > max as f64 {
        return Err(format!(
            "{percent} % is more than this machine has: {cpus} CPU{} {max} %, and monitoring rarely needs more than 5%",
            if cpus == 1 { " is" } else { "s are" }
        ));
    }
    let millionths = (percent * PERCENT).round() as u32;
    if millionths < MIN {
        return Err(format!(
            "{percent} % is too little for an access check: give 0.01% or more, like 1%"
        ));
    }
    Ok(CpuShare(millionths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_accepts_fractions_up_to_all_cpus() {
        for (text, millionths) in [
            ("1%", 10_000),
            ("1", 10_000),
            ("0.25 %", 2_500),
            ("0.01%", 100),
            ("100%", 1_000_000),
            ("400%", 4_000_000),
        ] {
            assert_eq!(parse_for(text, 4), Ok(CpuShare(millionths)), "{text}");
        }
    }

    #[test]
    fn budget_out_of_range_is_refused() {
        for (text, expected) in [
            ("0", "too little for an access check"),
            ("0.00001%", "too little for an access check"),
            ("0.0001%", "too little for an access check"),
            ("401%", "4 CPUs are 400 %"),
            ("-1", "is not a share"),
            ("inf", "is not a share"),
            ("1e3", "is not a share"),
            ("%", "is not a share"),
            ("1 CPU", "is not a share"),
        ] {
            let error = parse_for(text, 4).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = parse_for("101%", 1).expect_err("there is one CPU");
        assert!(error.contains("1 CPU is 100 %"), "{error}");
    }
}
