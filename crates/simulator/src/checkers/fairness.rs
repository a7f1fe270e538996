//! No VM starves: over a window it gets a part of what the whole host's CPUs, divided fairly, would
//! give it.

use super::{Checker, Found, Step};
use scheduler::Observation;

/// What a VM got and should have got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    seconds: f64,
    got: f64,
    entitled: f64,
}

/// Level of filling at which all claims take what there is: CPUs for each unit of weight, found by
/// halving.
fn level(claims: &[(f64, f64)], capacity: f64) -> f64 {
    let taken = |level: f64| claims.iter().map(|(demand, weight)| demand.min(level * weight)).sum::<f64>();
    let (mut low, mut high) = (0.0, claims.iter().map(|(demand, weight)| demand / weight).fold(0.0, f64::max));
    if taken(high) <= capacity {
        return high;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if taken(middle) > capacity { high = middle } else { low = middle }
    }
    low
}

impl Checker {
    pub(super) fn fairness(&mut self, step: &Step<'_>, found: &mut Found) {
        let now = step.before;
        let seconds = self.last.as_ref().map_or(0.0, |last| (now.at.0 - last.at.0) as f64 / 1000.0);
        let limits = self.limits.clone();
        self.windows.retain(|key, _| now.vms.iter().any(|vm| vm.vm == *key));
        for (key, got, entitled) in entitlements(now) {
            let window = self.windows.entry(key.clone()).or_default();
            window.seconds += seconds;
            window.got += got * seconds;
            window.entitled += entitled * seconds;
            if window.seconds < limits.window_s {
                continue;
            }
            let Window { got, entitled, .. } = std::mem::take(window);
            found.unless(got >= limits.least_part * entitled, "starved", || {
                format!("{}: {got:.1} CPU s of {entitled:.1} in {:.0} s", key.name, limits.window_s)
            });
        }
    }
}

/// CPUs that each VM got, and that it is entitled to.
fn entitlements(now: &Observation) -> Vec<(scheduler::VmKey, f64, f64)> {
    let known =
        now.vms.iter().filter(|vm| vm.clients.iter().all(|one| one.cpu_used.is_some() && one.cpu_waited.is_some()));
    let sum = |vm: &scheduler::VmObservation, of: fn(&scheduler::ClientObservation) -> Option<f64>| -> f64 {
        vm.clients.iter().filter_map(of).sum()
    };
    let vms: Vec<_> = known
        .map(|vm| {
            let (used, waited) = (sum(vm, |one| one.cpu_used), sum(vm, |one| one.cpu_waited));
            (vm.vm.clone(), used, used + waited, f64::from(vm.shares.max(1)))
        })
        .collect();
    let capacity: f64 = now.nodes.values().map(|node| node.cpus.len() as f64).sum();
    let claims: Vec<(f64, f64)> = vms.iter().map(|(_, _, demand, weight)| (*demand, *weight)).collect();
    let level = level(&claims, capacity);
    vms.into_iter().map(|(key, used, demand, weight)| (key, used, demand.min(level * weight))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_fills_all_to_one_level() {
        // 6 CPUs; weights 1, 1, 2 that want 1, 5, 5: the first gets 1, the others 5/3 a weight.
        let claims = [(1.0, 1.0), (5.0, 1.0), (5.0, 2.0)];
        assert!((level(&claims, 6.0) - 5.0 / 3.0).abs() < 1e-9);
        assert_eq!(level(&claims, 100.0), 5.0);
    }
}
