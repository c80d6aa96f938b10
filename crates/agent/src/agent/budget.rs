//! Divides the CPU budget.

use thermo_engine::budget::CpuShare;
use thermo_units::Nanos;

use super::Agent;
use crate::budget_division::divide;
use crate::policy::Policy;

impl Agent {
    /// Divides what this thread leaves of the budget among the policies. `time`: since the last call.
    pub(super) fn divide_budget(&mut self, time: Nanos) {
        let own = self.own.saturating_sub(self.own_counted);
        self.own_counted = self.own;
        self.own_share.add(own, time);
        let budget = self.config.budget.0;
        // Half at least is for watching.
        let rest = CpuShare(budget - self.own_share.share().0.min(budget / 2));
        let running = || self.policies.iter().filter(|policy| policy.is_running());
        let needs: Vec<_> = running().map(Policy::need).collect();
        let shares = divide(rest, &needs);
        let running = self.policies.iter_mut().filter(|policy| policy.is_running());
        for (policy, share) in running.zip(shares) {
            policy.set_share(share);
        }
    }
}
