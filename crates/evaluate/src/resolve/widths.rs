//! What is measured of a configuration: its numbers of threads, or its pairs of nodes.

use super::{ResolveError, ResolvedVm};
use crate::experiment::{APPLICATION, Configuration, Experiment};
use crate::point::Point;
use topology::{Bytes, Machine};
use workloads::Section;
use workloads::choice::Choice;
use workloads::command;
use workloads::workload::Over;

/// The list, or 1, 2, 4, ... and all hardware threads.
pub(super) fn counts(threads: &Choice<Vec<u32>>, hardware_threads: u32) -> Vec<u32> {
    match threads {
        Choice::Fixed(threads) => threads.clone(),
        Choice::Auto => {
            let powers = (0..31).map(|power| 1u32 << power).take_while(|&count| count < hardware_threads);
            powers.chain([hardware_threads]).collect()
        }
    }
}

/// What is measured of a configuration with these VMs.
///
/// # Errors
/// None of the numbers of threads can be shared out over its VMs.
pub(super) fn points(
    experiment: &Experiment,
    configuration: &Configuration,
    vms: &[ResolvedVm],
    threads: &[u32],
    machine: &Machine,
) -> Result<Vec<Point>, ResolveError> {
    let suitable = |section: &Section| {
        let ranks = configuration.ranks_per_vm.and_then(|ranks| ranks.fixed().copied());
        let of_rank = experiment.parameters::<command::Section>().threads_per_rank.unwrap_or(1);
        let suits = |count: &&u32| {
            let each = **count / vms.len().max(1) as u32;
            section.suits(each) && ranks.is_none_or(|ranks| each == ranks * of_rank)
        };
        threads.iter().filter(suits).copied().collect::<Vec<u32>>()
    };
    let mut points = Vec::new();
    for (section, over) in experiment.parts() {
        match over {
            Over::Threads => {
                points.extend(width_points(section.name(), configuration, vms, &suitable(section), machine)?)
            }
            Over::NodePairs => points.extend(pair_points(section.name(), machine, vms)),
        }
    }
    if experiment.is_application() && points.is_empty() {
        points = width_points(APPLICATION, configuration, vms, threads, machine)?;
    }
    Ok(points)
}

fn width_points(
    workload: &str,
    configuration: &Configuration,
    vms: &[ResolvedVm],
    threads: &[u32],
    machine: &Machine,
) -> Result<Vec<Point>, ResolveError> {
    // Natively without SMT: as many as there are cores.
    let cores = (configuration.smt == Some(false)).then(|| machine.usable_threads().count() as u32);
    let participants = vms.len().max(1) as u32;
    let vcpus: Option<u32> = vms.iter().map(|vm| vm.spec.vcpus).min();
    let most = vcpus.or(cores);
    let fits =
        |&&count: &&u32| count.is_multiple_of(participants) && most.is_none_or(|most| count / participants <= most);
    let points: Vec<Point> =
        threads.iter().filter(fits).map(|&threads| Point::over_threads(workload, threads)).collect();
    if points.is_empty() {
        return Err(ResolveError::NoPoint {
            configuration: configuration.name.clone(),
            threads: format!("{threads:?}"),
            reason: match (vcpus, cores) {
                (None, Some(cores)) => format!("without SMT there are {cores} hardware threads"),
                _ => {
                    let vcpus = vcpus.unwrap_or(0);
                    format!("{participants} VMs of {vcpus} vCPUs each need a multiple of {participants}")
                }
            },
        });
    }
    Ok(points)
}

/// Each (CPU node, memory node) pair, as the participant numbers its nodes.
fn pair_points(workload: &str, machine: &Machine, vms: &[ResolvedVm]) -> Vec<Point> {
    let nodes: Vec<(u32, u32, bool)> = match vms.first() {
        None => machine
            .nodes
            .iter()
            .map(|node| (node.id.0, machine.usable_cpus(node.id).len() as u32, node.memory > Bytes(0) && node.allowed))
            .collect(),
        Some(vm) => {
            let virtual_nodes = vm.plan.topology.nodes.iter();
            virtual_nodes.map(|node| (node.id, node.present().count() as u32, node.memory > Bytes(0))).collect()
        }
    };
    let mut points = Vec::new();
    for &(cpu_node, threads, _) in nodes.iter().filter(|node| node.1 > 0) {
        for &(memory_node, _, _) in nodes.iter().filter(|node| node.2) {
            points.push(Point::of_pair(workload, cpu_node, memory_node, threads));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_thread_counts_end_with_all_hardware_threads() {
        assert_eq!(counts(&Choice::Auto, 16), [1, 2, 4, 8, 16]);
        assert_eq!(counts(&Choice::Auto, 12), [1, 2, 4, 8, 12]);
        assert_eq!(counts(&Choice::Auto, 1), [1]);
        assert_eq!(counts(&Choice::Fixed(vec![3]), 16), [3]);
    }
}
