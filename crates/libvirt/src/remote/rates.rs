//! What happened between two looks, in CPUs: 1 is one CPU all the time.

use super::{CpuTimes, DomainStats, Look, VcpuStats};
use std::collections::BTreeMap;
use std::time::Duration;
use topology::CpuId;

impl DomainStats {
    /// What these vCPUs used since an earlier count, `seconds` ago; that of the whole domain where
    /// vCPUs are not told apart and these are all.
    pub(super) fn since(
        &self,
        before: &Self,
        vcpus: impl Iterator<Item = u32>,
        all: bool,
        seconds: f64,
    ) -> DomainRates {
        // A counter that went back belongs to another run of the domain.
        let between = |before: Option<Duration>, now: Option<Duration>| now?.checked_sub(before?);
        let pairs: Option<Vec<(&VcpuStats, &VcpuStats)>> =
            vcpus.map(|vcpu| Some((before.by_vcpu.get(&vcpu)?, self.by_vcpu.get(&vcpu)?))).collect();
        let sum = |of: fn(&VcpuStats) -> Option<Duration>| -> Option<Duration> {
            let pairs = pairs.as_ref().filter(|pairs| !pairs.is_empty())?;
            pairs.iter().map(|(before, now)| between(of(before), of(now))).sum()
        };
        let whole = || if all { between(before.cpu_time, self.cpu_time) } else { None };
        let per_second = |time: Duration| time.as_secs_f64() / seconds;
        DomainRates {
            cpu_used: sum(|vcpu| vcpu.time).or_else(whole).map(per_second),
            cpu_waited: sum(|vcpu| vcpu.delay).map(per_second),
        }
    }
}

/// What a domain used and waited for. `None`: its hypervisor does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DomainRates {
    /// CPUs that its vCPUs used; those of the whole domain where they are not told apart.
    pub cpu_used: Option<f64>,
    /// CPUs that its vCPUs waited for, ready to run.
    pub cpu_waited: Option<f64>,
}

impl Look {
    /// Busy share of each CPU since an earlier look, where both know.
    pub(super) fn busy_since(&self, earlier: &Look) -> BTreeMap<CpuId, f64> {
        let rate = |(cpu, now): (&CpuId, &CpuTimes)| Some((*cpu, busy_share(earlier.cpus.get(cpu)?, now)?));
        self.cpus.iter().filter_map(rate).collect()
    }
}

fn busy_share(before: &CpuTimes, now: &CpuTimes) -> Option<f64> {
    let whole = now.whole.checked_sub(before.whole)?.as_secs_f64();
    (whole > 0.0).then_some(now.busy.checked_sub(before.busy)?.as_secs_f64() / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(cpu_ms: u64, vcpus_ms: &[(u64, Option<u64>)]) -> DomainStats {
        let ms = Duration::from_millis;
        let vcpu = |(index, &(time, delay)): (usize, &(u64, Option<u64>))| {
            (index as u32, VcpuStats { time: Some(ms(time)), delay: delay.map(ms) })
        };
        DomainStats {
            cpu_time: Some(ms(cpu_ms)),
            by_vcpu: vcpus_ms.iter().enumerate().map(vcpu).collect(),
            ..DomainStats::default()
        }
    }

    #[test]
    fn a_cpu_is_busy_for_a_share_of_its_own_time() {
        let times = |busy, whole| CpuTimes { busy: Duration::from_secs(busy), whole: Duration::from_secs(whole) };
        assert_eq!(busy_share(&times(10, 100), &times(11, 104)), Some(0.25));
        // Nothing is known of no time, and of a host that was started anew.
        assert_eq!(busy_share(&times(10, 100), &times(10, 100)), None);
        assert_eq!(busy_share(&times(10, 100), &times(1, 2)), None);
    }

    fn domain_rates(before: &DomainStats, now: &DomainStats, seconds: f64) -> DomainRates {
        now.since(before, now.by_vcpu.keys().copied(), true, seconds)
    }

    #[test]
    fn vcpus_count_and_the_rest_of_the_process_does_not() {
        let (before, now) =
            (stats(0, &[(0, Some(0)), (100, Some(0))]), stats(9000, &[(500, Some(200)), (600, Some(50))]));
        // (500 + 500) ms and (200 + 50) ms in 2 s.
        let rates = domain_rates(&before, &now, 2.0);
        assert_eq!(rates, DomainRates { cpu_used: Some(0.5), cpu_waited: Some(0.125) });
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let rates = domain_rates(&stats(0, &[]), &stats(3000, &[]), 2.0);
        assert_eq!(rates, DomainRates { cpu_used: Some(1.5), cpu_waited: None });
        let rates = domain_rates(&stats(0, &[(0, None)]), &stats(0, &[(1000, None)]), 2.0);
        assert_eq!(rates, DomainRates { cpu_used: Some(0.5), cpu_waited: None });
        // A vCPU that was plugged in meanwhile has no beginning; the whole domain has.
        let rates = domain_rates(&stats(0, &[(0, None)]), &stats(1000, &[(1, None), (1, None)]), 2.0);
        assert_eq!(rates.cpu_used, Some(0.5));
        assert_eq!(domain_rates(&stats(5, &[]), &stats(1, &[]), 1.0), DomainRates::default());
    }
}
