//! Divides one CPU budget among policies: what one leaves unused goes to those that use theirs up.

use thermo_engine::budget::CpuShare;
use thermo_units::Nanos;

/// Time constant of [`RecentShare`].
const MEAN_TIME: Nanos = Nanos::secs(15);
/// A policy that does not use its share up keeps this part of it at least: the pace of some work follows from
/// the share, whatever is used of it.
const KEPT_PART: u64 = 4;

/// The share of a CPU that something used in the last seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecentShare {
    /// In millionths.
    mean: f64,
}

impl RecentShare {
    /// Adds `cost`, spent within `time`.
    pub fn add(&mut self, cost: Nanos, time: Nanos) {
        let share = cost.as_secs_f64() / time.as_secs_f64().max(1e-3) * 1e6;
        let weight = (time.as_secs_f64() / MEAN_TIME.as_secs_f64()).min(1.0);
        self.mean += (share - self.mean) * weight;
    }

    /// The share.
    #[must_use]
    pub fn share(self) -> CpuShare {
        // A float becomes the nearest integer that there is.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates"
        )]
        CpuShare(self.mean.ceil() as u32)
    }
}

/// What a policy needs of the budget.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Resident memory: by it the budget is divided.
    pub resident: u64,
    /// What it used in the last seconds.
    pub used: CpuShare,
    /// Whether it waits for its budget: it would use more.
    pub wants_more: bool,
}

/// Divides `total`. Each policy has a share of its own, by resident memory. One that leaves most of it unused
/// lends a part to those that want more, and has it back with the next division after it wants more itself.
/// The shares never sum to more than `total`.
#[must_use]
pub fn divide(total: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
    let own = own_shares(u64::from(total.0), needs);
    let kept = |(own, need): (&u64, &Need)| match need.wants_more {
        true => *own,
        false => {
            let used = u64::from(need.used.0);
            (used + used / 4).max(own / KEPT_PART).min(*own)
        }
    };
    let kept: Vec<u64> = own.iter().zip(needs).map(kept).collect();
    let lent = own.iter().sum::<u64>() - kept.iter().sum::<u64>();
    let asking = || own.iter().zip(needs).filter(|(_, need)| need.wants_more);
    let all_asking: u64 = asking().map(|(own, _)| own).sum();
    if asking().next().is_none() {
        // What nobody wants stays where it is, for the work of the next moment.
        return own.into_iter().map(share).collect();
    }
    let granted = own
        .iter()
        .zip(needs)
        .zip(kept)
        .map(|((own, need), kept)| match need.wants_more {
            true => kept + part(lent, *own, all_asking),
            false => kept,
        });
    granted.map(share).collect()
}

/// The share of each policy of `total`: a tenth is divided equally, so that a policy with new targets gets
/// something, and the rest by resident memory.
fn own_shares(total: u64, needs: &[Need]) -> Vec<u64> {
    let resident: u64 = needs
        .iter()
        .map(|need| need.resident)
        .fold(0, u64::saturating_add);
    let count = needs.len() as u64;
    let equal = if resident == 0 { total } else { total / 10 };
    let by_size = |need: &Need| part(total - equal, need.resident, resident);
    let own = needs.iter().map(|need| part(equal, 1, count) + by_size(need));
    own.collect()
}

/// `amount` × `share` / `all`, or nothing of nothing.
fn part(amount: u64, share: u64, all: u64) -> u64 {
    let part = (u128::from(amount) * u128::from(share)).checked_div(u128::from(all));
    part.and_then(|part| u64::try_from(part).ok()).unwrap_or(0)
}

fn share(share: u64) -> CpuShare {
    CpuShare(u32::try_from(share).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: CpuShare = CpuShare(10_000);

    fn need(resident: u64, used: u32, wants_more: bool) -> Need {
        Need {
            resident,
            used: CpuShare(used),
            wants_more,
        }
    }

    fn divided(needs: &[Need]) -> Vec<u32> {
        divide(TOTAL, needs).into_iter().map(|share| share.0).collect()
    }

    #[test]
    fn unused_part_goes_to_those_that_want_more() {
        // By size: 500 + 2250 and 500 + 6750.
        assert_eq!(divided(&[need(1, 0, true), need(3, 0, true)]), [2750, 7250]);
        // The second uses 2000 and keeps 2500.
        assert_eq!(divided(&[need(1, 0, true), need(3, 2000, false)]), [7500, 2500]);
        // It keeps a quarter of its own in any case.
        assert_eq!(divided(&[need(1, 0, true), need(3, 0, false)]), [8188, 1812]);
        // As soon as it wants more, it has its own again.
        assert_eq!(divided(&[need(1, 7500, true), need(3, 1812, true)]), [2750, 7250]);
        // Nobody wants more.
        assert_eq!(divided(&[need(1, 9, false), need(3, 9, false)]), [2750, 7250]);
    }

    #[test]
    fn policies_without_memory_get_equal_shares() {
        assert_eq!(divided(&[need(0, 0, true), need(0, 0, true)]), [5000, 5000]);
        assert!(divided(&[]).is_empty());
    }

    #[test]
    fn recent_share_forgets_a_start_within_a_minute() {
        let mut recent = RecentShare::default();
        recent.add(Nanos::millis(150), Nanos::secs(1));
        assert!(recent.share() >= TOTAL, "{:?}", recent.share());
        for _ in 0..60 {
            recent.add(Nanos::millis(2), Nanos::secs(1));
        }
        assert!((2000..2200).contains(&recent.share().0), "{:?}", recent.share());
    }

    proptest! {
        #[test]
        fn sum_is_within_the_total_and_those_in_need_have_their_own(
            total in 0..=1_000_000_u32,
            needs in prop::collection::vec((0..=u64::MAX / 64, any::<u32>(), any::<bool>()), 0..64),
        ) {
            let needs: Vec<Need> = needs.into_iter().map(|(size, used, more)| need(size, used, more)).collect();
            let shares = divide(CpuShare(total), &needs);
            prop_assert!(shares.iter().map(|share| u64::from(share.0)).sum::<u64>() <= u64::from(total));
            let own = own_shares(u64::from(total), &needs);
            for ((share, own), need) in shares.iter().zip(own).zip(&needs) {
                let share = u64::from(share.0);
                prop_assert!(!need.wants_more || share >= own);
                prop_assert!(share >= own.min(u64::from(need.used.0)) && share >= own / KEPT_PART);
            }
        }

        #[test]
        fn nothing_is_left_while_one_wants_more(
            needs in prop::collection::vec((1..1_u64 << 40, 0..2_000_u32, any::<bool>()), 1..20),
        ) {
            let needs: Vec<Need> = needs.into_iter().map(|(size, used, more)| need(size, used, more)).collect();
            let sum: u32 = divided(&needs).into_iter().sum();
            // Each division may lose one millionth to rounding.
            prop_assert!(sum + 4 * 20 >= TOTAL.0, "{}", sum);
        }
    }
}
