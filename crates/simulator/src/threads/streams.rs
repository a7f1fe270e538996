//! What busy cores ask of the stations, all of them together.

use crate::{CoreWork, Group, MachineModel, Profile, StationId};
use std::collections::BTreeMap;
use topology::NodeId;

/// Threads on a controller at which a machine file states `node_bandwidth_gb_per_s`: droop counts
/// doublings from there. Both machines whose bandwidth was calibrated on a published figure had 4
/// threads on each controller then.
pub const REFERENCE_THREADS: f64 = 4.0;

/// The groups of busy cores that all run `profile`. `droop` is the share of a controller's
/// bandwidth that each doubling of the threads that stream through it costs: rows of DRAM that
/// conflict. 0: none.
pub fn groups(model: &MachineModel, profile: &Profile, works: &[(CoreWork, f64)], droop: f64) -> Vec<Group> {
    let mut groups: Vec<Group> = works.iter().map(|(work, cores)| model.group(profile, work, *cores)).collect();
    if droop > 0.0 {
        for (station, slower) in slowed(model, works, droop) {
            for (_, ns) in groups.iter_mut().flat_map(|group| &mut group.demands).filter(|(id, _)| *id == station) {
                *ns *= slower;
            }
        }
        for group in &mut groups {
            group.latency_ns = group.latency_ns.max(group.demands.iter().map(|(_, ns)| ns).sum());
        }
    }
    groups
}

/// By how much each controller's service is longer.
fn slowed(model: &MachineModel, works: &[(CoreWork, f64)], droop: f64) -> Vec<(StationId, f64)> {
    let mut threads: BTreeMap<NodeId, f64> = BTreeMap::new();
    for (work, cores) in works {
        for (node, _) in work.memory.iter().filter(|(_, share)| *share > 0.0) {
            *threads.entry(*node).or_default() += cores * f64::from(work.threads);
        }
    }
    let slower = |threads: f64| 1.0 / (1.0 - droop * (threads / REFERENCE_THREADS).log2().max(0.0)).max(0.05);
    threads.into_iter().filter_map(|(node, threads)| Some((model.controller(node)?, slower(threads)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubling_above_the_reference_costs_the_same_share() {
        let described = topology::read::shipped_described("hp-dl380-g6").expect("shipped").expect("valid");
        let model = MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model");
        let profile = Profile {
            lines_in_flight: 10.0,
            core_ns_per_line: 0.0,
            write_share: 1.0 / 3.0,
            counted_bytes_per_line: 128.0 / 3.0,
        };
        let demand = |cores: f64, threads: u32, droop: f64| -> f64 {
            let work = CoreWork { node: NodeId(0), llc: None, threads, memory: vec![(NodeId(0), 1.0)] };
            groups(&model, &profile, &[(work, cores)], droop)[0].demands[0].1
        };
        // 4 threads are the reference, 8 one doubling: 1 / (1 - 0.0116) = 1.01174.
        assert_eq!(demand(4.0, 1, 0.0116), demand(4.0, 1, 0.0));
        assert!((demand(4.0, 2, 0.0116) / demand(4.0, 2, 0.0) - 1.011_736).abs() < 1e-6);
        assert_eq!(demand(1.0, 1, 0.0116), demand(1.0, 1, 0.0));
    }
}
