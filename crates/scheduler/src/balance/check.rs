//! Whether a policy makes sense: each value with what would be valid.

use super::BalancePolicy;
use topology::Bytes;

/// A value of a policy that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: valid is {valid}")]
pub struct PolicyError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What would be valid, in words.
    pub valid: &'static str,
}

impl BalancePolicy {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), PolicyError> {
        let bad = |field, value: String, valid| PolicyError { field, value, valid };
        if !(100..=60_000).contains(&self.period_ms) {
            return Err(bad("period_ms", self.period_ms.to_string(), "100 to 60000 milliseconds"));
        }
        let percents = [
            ("imbalance_percent", self.imbalance_percent),
            ("gain_percent", self.gain_percent),
            ("thrash_percent", self.thrash_percent),
            ("owed_prevents_percent", self.owed_prevents_percent),
            ("fairness_percent", self.fairness_percent),
            ("core_cap_percent", self.core_cap_percent),
            ("controller_full_percent", self.controller_full_percent),
            ("idle_vcpu_percent", self.idle_vcpu_percent),
            ("cache_imbalance_percent", self.cache_imbalance_percent),
            ("shared_loss_percent", self.shared_loss_percent),
            ("smt_yield_percent", self.smt_yield_percent),
            ("stall_percent", self.stall_percent),
            ("sibling_percent", self.sibling_percent),
            ("communication_percent", self.communication_percent),
            ("device_percent", self.device_percent),
            ("follow_least_percent", self.follow_least_percent),
            ("headroom_percent", self.headroom_percent),
        ];
        if let Some((field, value)) = percents.into_iter().find(|(_, value)| !(0.0..=100.0).contains(value)) {
            return Err(bad(field, value.to_string(), "0 to 100 percent"));
        }
        if !(1.0..=100.0).contains(&self.newest_percent) {
            return Err(bad("newest_percent", self.newest_percent.to_string(), "1 to 100 percent"));
        }
        let parts = [("pressure_halves", self.pressure_halves), ("pressure_stops", self.pressure_stops)];
        if let Some((field, value)) = parts.into_iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return Err(bad(field, value.to_string(), "0 to 1"));
        }
        let not_negative = [
            ("locality_weight", self.locality_weight),
            ("least_gain_cpus", self.least_gain_cpus),
            ("cache_gain_cpus", self.cache_gain_cpus),
            ("backlog_seconds", self.backlog_seconds),
            ("payback_seconds", self.payback_seconds),
            ("local_latency_ns", self.local_latency_ns),
        ];
        let negative = |value: f64| !value.is_finite() || value < 0.0;
        if let Some((field, value)) = not_negative.into_iter().find(|(_, value)| negative(*value)) {
            return Err(bad(field, value.to_string(), "0 or more"));
        }
        if !self.loads_at_once.is_finite() || self.loads_at_once < 1.0 {
            return Err(bad("loads_at_once", self.loads_at_once.to_string(), "1 or more"));
        }
        let amounts = [
            ("move_bytes_per_second", self.move_bytes_per_second),
            ("copy_bytes_per_cpu_second", self.copy_bytes_per_cpu_second),
            ("chunk", self.chunk),
        ];
        if let Some((field, value)) = amounts.into_iter().find(|(_, value)| *value < Bytes::MIB) {
            return Err(bad(field, value.to_string(), "1 MiB or more; move_memory = false moves none"));
        }
        let counts = [("retry_periods", self.retry_periods), ("give_up_after", self.give_up_after)];
        if let Some((field, value)) = counts.into_iter().find(|(_, value)| *value == 0) {
            return Err(bad(field, value.to_string(), "1 or more"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_policies_are_valid() {
        assert_eq!(BalancePolicy::default().check(), Ok(()));
        assert_eq!(BalancePolicy::esxi_defaults().check(), Ok(()));
    }

    #[test]
    fn a_value_out_of_range_is_named() {
        let policy = BalancePolicy { thrash_percent: 150.0, ..BalancePolicy::default() };
        assert_eq!(policy.check().unwrap_err().to_string(), "thrash_percent = 150: valid is 0 to 100 percent");
        let policy = BalancePolicy { payback_seconds: f64::NAN, ..BalancePolicy::default() };
        assert_eq!(policy.check().unwrap_err().field, "payback_seconds");
        let policy = BalancePolicy { period_ms: 0, ..BalancePolicy::default() };
        assert_eq!(policy.check().unwrap_err().field, "period_ms");
    }
}
