//! Divides the CPU budget.

use thermo_engine::budget::CpuShare;
use thermo_kernel::clock;

use super::Agent;

impl Agent {
    /// Divides what this thread leaves of the budget among the policies, by resident memory.
    pub(super) fn divide_budget(&mut self) {
        let lifetime = clock::monotonic().saturating_sub(self.started);
        let own_share = u128::from(self.own.0) * 1_000_000 / u128::from(lifetime.0.max(1));
        let own_share = u64::try_from(own_share).unwrap_or(u64::MAX);
        let budget = u64::from(self.config.budget.0);
        // Half at least is for watching.
        let rest = budget.saturating_sub(own_share.min(budget / 2));
        let running = self.policies.iter().filter(|policy| policy.is_running()).count() as u64;
        let resident: u64 = self.policies.iter().map(|policy| policy.resident().0).sum();
        for policy in self.policies.iter_mut().filter(|policy| policy.is_running()) {
            // A tenth is divided equally, so that a policy with new targets gets something.
            let equal = rest / 10 / running.max(1);
            let by_size = u128::from(rest - rest / 10) * u128::from(policy.resident().0);
            let by_size = by_size.checked_div(u128::from(resident)).unwrap_or(0);
            let share = equal + u64::try_from(by_size).unwrap_or(0);
            let share = match resident {
                0 => rest / running.max(1),
                _ => share,
            };
            policy.set_share(CpuShare(u32::try_from(share).unwrap_or(u32::MAX).max(10)));
        }
    }
}
