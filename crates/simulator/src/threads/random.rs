//! Placements that are not always the best ones: how they lie, and how often.

use super::{Cores, ThreadPolicy};
use crate::traces::Random;
use std::collections::BTreeMap;
use topology::NodeSet;

/// More placements than these are not enumerated: [`SAMPLES`] of them are drawn.
pub const MOST_STATES: usize = 1024;
/// Drawn placements, where there are too many.
pub const SAMPLES: u32 = 256;

/// Busy threads by core ([`Cores::list`]), and how often threads lie like that.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    /// Probability.
    pub weight: f64,
    /// Busy threads of each core. Of cores that share node and cache the busier ones come first:
    /// which of them it is does not matter.
    pub busy: Vec<u32>,
}

/// A kernel without exclusive placement: each thread takes, with probability `random_share`, a
/// uniformly random idle hardware thread, else the one that [`ThreadPolicy::LeastLoadedNode`]
/// gives. Exact where the placements are few, else a sample that `seed` decides. `None` if the
/// nodes have too few hardware threads.
pub fn linux(cores: &Cores, nodes: &NodeSet, threads: u32, random_share: f64, seed: u64) -> Option<Vec<Weighted>> {
    if cores.hardware_threads(nodes) < threads {
        return None;
    }
    let mut states = BTreeMap::from([(cores.idle(), 1.0)]);
    for _ in 0..threads {
        let mut next: BTreeMap<Vec<u32>, f64> = BTreeMap::new();
        for (busy, weight) in &states {
            for (core, probability) in choices(cores, busy, nodes, random_share) {
                let mut busy = busy.clone();
                busy[core] += 1;
                *next.entry(canonical(cores, busy)).or_default() += weight * probability;
            }
        }
        if next.len() > MOST_STATES {
            return Some(sampled(cores, nodes, threads, random_share, seed));
        }
        states = next;
    }
    Some(states.into_iter().map(|(busy, weight)| Weighted { weight, busy }).collect())
}

/// Probability of each core for the next thread.
fn choices(cores: &Cores, busy: &[u32], nodes: &NodeSet, random_share: f64) -> Vec<(usize, f64)> {
    let idle = |index: usize| match nodes.contains(cores.cores[index].node) {
        true => cores.cores[index].hardware_threads.saturating_sub(busy[index]),
        false => 0,
    };
    let all: u32 = (0..busy.len()).map(idle).sum();
    let best = cores.next(busy, nodes, ThreadPolicy::LeastLoadedNode);
    let chance = |index: usize| {
        let random = random_share * f64::from(idle(index)) / f64::from(all.max(1));
        random + if best == Some(index) { 1.0 - random_share } else { 0.0 }
    };
    (0..busy.len()).map(|index| (index, chance(index))).filter(|(_, chance)| *chance > 0.0).collect()
}

/// Cores of the same node and cache are alike: the busier ones first.
fn canonical(cores: &Cores, mut busy: Vec<u32>) -> Vec<u32> {
    let mut begin = 0;
    while begin < busy.len() {
        let place = |index: usize| {
            let core = &cores.cores[index];
            (core.node, core.llc, core.hardware_threads)
        };
        let same = (begin..busy.len()).take_while(|&index| place(index) == place(begin)).count();
        busy[begin..begin + same].sort_unstable_by(|one, other| other.cmp(one));
        begin += same;
    }
    busy
}

fn sampled(cores: &Cores, nodes: &NodeSet, threads: u32, random_share: f64, seed: u64) -> Vec<Weighted> {
    let mut random = Random::new(seed);
    let mut counts: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    for _ in 0..SAMPLES {
        let mut busy = cores.idle();
        for _ in 0..threads {
            let mut left = random.unit();
            let choices = choices(cores, &busy, nodes, random_share);
            let drawn = choices.iter().find(|(_, chance)| {
                left -= chance;
                left < 0.0
            });
            if let Some(&(core, _)) = drawn.or(choices.last()) {
                busy[core] += 1;
            }
        }
        *counts.entry(canonical(cores, busy)).or_default() += 1;
    }
    let weight = |count: u32| f64::from(count) / f64::from(SAMPLES);
    counts.into_iter().map(|(busy, count)| Weighted { weight: weight(count), busy }).collect()
}

/// A guest that knows no nodes: its `threads` run on a uniformly random choice of its vCPUs, of
/// which the hypervisor keeps `vcpus_by_node[i]` on the i-th node. Threads on each node and how
/// often, exactly (hypergeometric); empty if `threads` are too many.
pub fn flat_guest(vcpus_by_node: &[u32], threads: u32) -> Vec<(f64, Vec<u32>)> {
    let Some((&first, rest)) = vcpus_by_node.split_first() else {
        return if threads == 0 { vec![(1.0, Vec::new())] } else { Vec::new() };
    };
    let all: u32 = vcpus_by_node.iter().sum();
    let mut ways = Vec::new();
    for here in 0..=first.min(threads) {
        let weight = chosen(first, here) * chosen(all - first, threads - here) / chosen(all, threads);
        if weight > 0.0 {
            let others = flat_guest(rest, threads - here).into_iter();
            ways.extend(others.map(|(other, nodes)| (weight * other, [vec![here], nodes].concat())));
        }
    }
    ways
}

/// Binomial coefficient; 0 where more are chosen than there are.
fn chosen(of: u32, chosen: u32) -> f64 {
    if chosen > of {
        return 0.0;
    }
    (0..chosen).map(|index| f64::from(of - index) / f64::from(index + 1)).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use topology::NodeId;

    fn dl380() -> (Cores, NodeSet) {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=24GB)] l3:1 core:4 pu:2").expect("a machine");
        (Cores::of(&machine), [NodeId(0), NodeId(1)].into_iter().collect())
    }

    #[test]
    fn two_threads_lie_as_the_arithmetic_says() {
        let (cores, nodes) = dl380();
        let ways = linux(&cores, &nodes, 2, 0.48, 1).expect("room");
        let probability = |wanted: &dyn Fn(&[u32]) -> bool| -> f64 {
            ways.iter().filter(|way| wanted(&way.busy)).map(|way| way.weight).sum()
        };
        // The second thread: 0.48 x 1/15 the sibling, 0.48 x 6/15 the same node, else the other
        // node.
        let sibling = probability(&|busy| busy.contains(&2));
        let same_node = probability(&|busy| !busy.contains(&2) && (busy[1] == 1 || busy[5] == 1));
        assert!((sibling - 0.48 / 15.0).abs() < 1e-12, "{sibling}");
        assert!((same_node - 0.48 * 6.0 / 15.0).abs() < 1e-12, "{same_node}");
        assert!((ways.iter().map(|way| way.weight).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn without_randomness_there_is_one_placement_and_all_threads_fill_the_machine() {
        let (cores, nodes) = dl380();
        assert_eq!(linux(&cores, &nodes, 8, 0.0, 1).expect("room").len(), 1);
        let full = linux(&cores, &nodes, 16, 0.48, 1).expect("room");
        assert_eq!((full.len(), full[0].busy.clone()), (1, vec![2; 8]));
        assert_eq!(linux(&cores, &nodes, 17, 0.48, 1), None);
    }

    #[test]
    fn a_sample_is_the_same_for_the_same_seed_and_close_to_the_exact_one() {
        let (cores, nodes) = dl380();
        let one = sampled(&cores, &nodes, 8, 0.48, 7);
        assert_eq!(one, sampled(&cores, &nodes, 8, 0.48, 7));
        let siblings = |ways: &[Weighted]| -> f64 {
            ways.iter().map(|way| way.weight * way.busy.iter().filter(|&&busy| busy == 2).count() as f64).sum()
        };
        let exact = linux(&cores, &nodes, 8, 0.48, 7).expect("room");
        // Standard error of the mean of 256 draws of a count between 0 and 4: below 0.06.
        assert!((siblings(&one) - siblings(&exact)).abs() < 0.25, "{} {}", siblings(&one), siblings(&exact));
    }

    #[test]
    fn many_nodes_are_sampled() {
        let machine = topology::read::from_synthetic("pack:8 [numa(memory=8GB)] l3:1 core:8 pu:2").expect("a machine");
        let cores = Cores::of(&machine);
        let ways = linux(&cores, &machine.node_ids(), 32, 0.48, 1).expect("room");
        assert!(ways.len() <= SAMPLES as usize);
        assert!((ways.iter().map(|way| way.weight).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(ways.iter().all(|way| way.busy.iter().sum::<u32>() == 32));
    }

    #[test]
    fn a_flat_guest_is_hypergeometric() {
        // 2 threads on 8 vCPUs, 4 on each of two nodes: 2 * C(4,2)/C(8,2) = 12/28 on one node,
        // 16/28 one on each.
        let ways = flat_guest(&[4, 4], 2);
        let of = |nodes: [u32; 2]| ways.iter().find(|(_, way)| *way == nodes).map(|(weight, _)| *weight);
        assert!((of([1, 1]).expect("a way") - 16.0 / 28.0).abs() < 1e-12);
        assert!((of([2, 0]).expect("a way") - 6.0 / 28.0).abs() < 1e-12);
        assert!((ways.iter().map(|(weight, _)| weight).sum::<f64>() - 1.0).abs() < 1e-12);
    }

    properties::properties! {
        #![cases(48)]
        #[test]
        fn weights_sum_to_one_and_every_thread_has_a_hardware_thread(
            (nodes, cores, smt) in (1_u32..4, 1_u32..5, 1_u32..3), share in 0.0..=1.0, wanted in 0_u32..30
        ) {
            let machine = format!("pack:{nodes} [numa(memory=8GB)] l3:1 core:{cores} pu:{smt}");
            let machine = topology::read::from_synthetic(&machine).expect("a machine");
            let cores = Cores::of(&machine);
            let room = cores.hardware_threads(&machine.node_ids());
            match linux(&cores, &machine.node_ids(), wanted, share, 1) {
                None => prop_assert!(wanted > room),
                Some(ways) => {
                    prop_assert!((ways.iter().map(|way| way.weight).sum::<f64>() - 1.0).abs() < 1e-9);
                    for way in &ways {
                        prop_assert_eq!(way.busy.iter().sum::<u32>(), wanted);
                        let fits = |(core, &busy): (&crate::threads::Core, &u32)| busy <= core.hardware_threads;
                        prop_assert!(cores.list().iter().zip(&way.busy).all(fits));
                    }
                }
            }
        }
    }
}
