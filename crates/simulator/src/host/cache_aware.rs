//! Linux 7.2's cache-aware scheduling, plainly: all threads of one process are drawn to one
//! last-level cache. A whole QEMU is one process.

use super::SimulatedHost;
use super::rules::CacheAware;
use super::state::VmState;
use super::threads::Ground;
use topology::Bytes;

impl SimulatedHost {
    /// One tick of it.
    pub(crate) fn draw_to_caches(&mut self) {
        let Some(rule) = self.rules.cache_aware.clone() else { return };
        let caches: Vec<Option<Bytes>> = self.places.iter().map(|place| self.model.llc_size(place.llc)).collect();
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let mut loads = ground.loads(&self.vms);
        for vm in self.vms.values_mut() {
            let preferred = most_used(vm, self.places.len());
            let preferred = preferred.filter(|&place| {
                let fits =
                    caches[place].is_some_and(|size| footprint(vm) as f64 <= rule.footprint_part * size.0 as f64);
                fits && vm.demand() <= self.places[place].cores()
            });
            for client in &mut vm.clients {
                client.preferred = preferred;
                let (Some(to), one) = (preferred, client.load_of_thread()) else { continue };
                for set in client.sets.iter_mut().filter(|set| one > 0.0 && set.room[to] > 0) {
                    for from in 0..self.places.len() {
                        while from != to && set.at[from] > 0 && may_come(ground, &rule, &loads.place, (from, to), one) {
                            set.at[from] -= 1;
                            set.at[to] += 1;
                            loads.add(ground, from, -one);
                            loads.add(ground, to, one);
                        }
                    }
                }
            }
        }
    }
}

/// The place with most of its busy threads.
fn most_used(vm: &VmState, places: usize) -> Option<usize> {
    let busy = |place: usize| -> f64 {
        let of = |client: &super::state::ClientState| {
            client.load_of_thread() * f64::from(client.sets.iter().map(|set| set.at[place]).sum::<u32>())
        };
        vm.clients.iter().map(of).sum()
    };
    let most =
        (0..places).map(|place| (busy(place), place)).reduce(|best, one| if one.0 > best.0 { one } else { best });
    most.filter(|(load, _)| *load > 0.0).map(|(_, place)| place)
}

fn footprint(vm: &VmState) -> u64 {
    vm.clients.iter().map(|client| client.footprint).sum()
}

/// Whether one more thread may come: the cache stays half empty, or not much fuller than the one
/// that it leaves.
fn may_come(ground: Ground<'_>, rule: &CacheAware, loads: &[f64], (from, to): (usize, usize), one: f64) -> bool {
    let level = |place: usize, more: f64| (loads[place] + more) / ground.places[place].online.len().max(1) as f64;
    level(to, one) <= rule.most_busy || level(to, one) <= rule.imbalance * level(from, -one)
}
