//! Who else used the machine's CPUs during a repetition.

/// Clock tick of `/proc/stat` and `/proc/PID/stat`: `USER_HZ` is 100 on all architectures that we
/// know.
const TICK_SECONDS: f64 = 0.01;
/// Ticks that a difference of two readings may be wrong by: each reading rounds down.
const TICKS_UNSURE: f64 = 2.0;

/// CPU time at one moment, in seconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Wall clock.
    pub at: f64,
    /// Of all CPUs: not idle.
    pub busy: f64,
    /// Of all CPUs: taken by a hypervisor below.
    pub steal: f64,
    /// Of homenode, its VMs and its native agents.
    pub own: f64,
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disturbance {
    /// CPU time of other processes, in per cent of one CPU; what ticks cannot tell from zero is
    /// zero.
    pub other_cpu_percent: f64,
    /// CPU time stolen by a hypervisor below, in per cent of one CPU.
    pub steal_percent: f64,
    /// CPU time of homenode, its VMs and its agents, in per cent of one CPU.
    pub own_cpu_percent: f64,
}

impl Disturbance {
    /// From the readings before and after a repetition.
    pub fn between(before: &Reading, after: &Reading) -> Self {
        let wall = (after.at - before.at).max(TICK_SECONDS);
        let other = (after.busy - before.busy) - (after.own - before.own);
        let sure = (other - TICKS_UNSURE * TICK_SECONDS).max(0.0);
        Self {
            other_cpu_percent: 100.0 * sure / wall,
            steal_percent: 100.0 * (after.steal - before.steal).max(0.0) / wall,
            own_cpu_percent: 100.0 * (after.own - before.own).max(0.0) / wall,
        }
    }

    /// Whether the repetition is rejected.
    pub fn rejects(&self, limit_percent: f64) -> bool {
        self.other_cpu_percent > limit_percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_is_busy_and_not_ours() {
        // 2 s of wall clock. Busy 4 s, ours 3.5 s: others 0.5 s, less two ticks 0.48 s = 24 % of a
        // CPU. Steal 0.1 s = 5 %.
        let before = Reading { at: 10.0, busy: 100.0, steal: 1.0, own: 50.0 };
        let after = Reading { at: 12.0, busy: 104.0, steal: 1.1, own: 53.5 };
        let seen = Disturbance::between(&before, &after);
        assert!((seen.other_cpu_percent - 24.0).abs() < 1e-6, "{seen:?}");
        assert!((seen.steal_percent - 5.0).abs() < 1e-6, "{seen:?}");
        assert!((seen.own_cpu_percent - 175.0).abs() < 1e-6, "{seen:?}");
        assert!(seen.rejects(8.0) && !seen.rejects(24.5));
    }

    #[test]
    fn a_tick_in_a_short_repetition_rejects_nothing() {
        // 20 ms of wall clock, others 20 ms: two ticks, which rounding alone can make.
        let before = Reading::default();
        let after = Reading { at: 0.02, busy: 0.06, steal: 0.0, own: 0.04 };
        assert_eq!(Disturbance::between(&before, &after).other_cpu_percent, 0.0);
    }

    #[test]
    fn ours_can_never_be_less_than_nothing_of_others() {
        let after = Reading { at: 1.0, busy: 1.0, steal: 0.0, own: 1.03 };
        assert_eq!(Disturbance::between(&Reading::default(), &after).other_cpu_percent, 0.0);
    }
}
