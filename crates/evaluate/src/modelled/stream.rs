//! STREAM and the NUMA matrix on the model.

use super::settings::ModelledMemory;
use super::{ModelledError, Setting, pages};
use crate::figure::{Figure, bandwidth, latency, share};
use crate::resolve::ResolvedVm;
use simulator::threads::memory::{Memory, shares};
use simulator::threads::streams::groups;
use simulator::threads::{Arrangement, Thread, ThreadPolicy, works};
use simulator::{CoreWork, Profile, RateSolver, SolveError};
use std::collections::BTreeMap;
use topology::{NodeId, NodeSet};
use workloads::chase::LATENCY;

/// Name of the figure that says how much of the memory traffic is remote.
pub const REMOTE_SHARE: &str = "remote share";

/// How busy each station is, 0 to 1, in the order of `MachineModel::stations`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Load {
    /// The configuration.
    pub configuration: String,
    /// The kernel.
    pub figure: String,
    /// Threads over all VMs.
    pub threads: u32,
    /// Share of time that each station serves.
    pub utilisation: Vec<f64>,
    /// Busy hardware threads on each node.
    pub threads_by_node: BTreeMap<NodeId, f64>,
}

/// Busy hardware threads on each node.
pub(crate) fn threads_by_node(works: &[(CoreWork, f64)], weight: f64, by_node: &mut BTreeMap<NodeId, f64>) {
    for (work, cores) in works {
        *by_node.entry(work.node).or_default() += weight * cores * f64::from(work.threads);
    }
}

/// Figures of all points, and how busy the machine is with the most threads and the first kernel.
///
/// # Errors
/// The machine lacks threads for a point, or rates cannot be computed.
pub(crate) fn stream(
    setting: &Setting,
    solver: &mut dyn RateSolver,
) -> Result<(Vec<Figure>, Option<Load>), ModelledError> {
    let mut figures = Vec::new();
    let mut load = None;
    let kernels = &setting.profiles[0].kernels;
    for point in &setting.resolved.points {
        let Some(threads) = point.width() else { continue };
        let arrangements = setting.arrangements(threads)?;
        for (index, kernel) in kernels.iter().enumerate() {
            let unsolved = |reason| setting.unsolved(&format!("{} with {point}", kernel.name), reason);
            let (mut mb_per_s, utilisation) =
                rate(setting, solver, &arrangements, &kernel.profile()).map_err(unsolved)?;
            if setting.configuration.modelled.memory == Some(ModelledMemory::RandomPages) {
                mb_per_s = pages::rate(setting, solver, &arrangements, &kernel.profile())
                    .map_err(|reason| setting.unfinished(&kernel.name, reason))?;
            }
            figures.push(setting.figure(point, bandwidth(&kernel.name), mb_per_s));
            if index == 0 {
                let configuration = setting.configuration.name.clone();
                let mut by_node = BTreeMap::new();
                for arrangement in &arrangements {
                    threads_by_node(&arrangement.works, arrangement.weight, &mut by_node);
                }
                let figure = kernel.name.clone();
                load = Some(Load { configuration, figure, threads, utilisation, threads_by_node: by_node });
            }
        }
        figures.push(setting.figure(point, share(REMOTE_SHARE), remote_share(&arrangements)));
    }
    Ok((figures, load))
}

/// MB/s of a kernel and how busy each station is, averaged over the arrangements: threads wander
/// among them during a run.
pub(crate) fn rate(
    setting: &Setting,
    solver: &mut dyn RateSolver,
    arrangements: &[Arrangement],
    profile: &Profile,
) -> Result<(f64, Vec<f64>), SolveError> {
    let stations = setting.model.stations().len();
    let mut lines_per_ns = 0.0;
    let mut utilisation = vec![0.0; stations];
    for arrangement in arrangements {
        let groups = groups(setting.model, profile, &arrangement.works, setting.droop());
        let solution = solver.solve(stations, &groups)?;
        let lines: f64 = groups.iter().zip(&solution.lines_per_ns).map(|(group, rate)| group.actors * rate).sum();
        lines_per_ns += arrangement.weight * lines;
        for (all, one) in utilisation.iter_mut().zip(&solution.utilisation) {
            *all += arrangement.weight * one;
        }
    }
    Ok((1000.0 * lines_per_ns * profile.counted_bytes_per_line, utilisation))
}

fn remote_share(arrangements: &[Arrangement]) -> f64 {
    let remote = |work: &CoreWork| -> f64 {
        work.memory.iter().filter(|(node, _)| *node != work.node).fold(0.0, |all, (_, share)| all + share)
    };
    let of_one = |arrangement: &Arrangement| {
        let threads = |(work, cores): &(CoreWork, f64)| cores * f64::from(work.threads);
        let all: f64 = arrangement.works.iter().map(threads).sum();
        arrangement.works.iter().fold(0.0, |sum, entry| sum + threads(entry) * remote(&entry.0)) / all
    };
    arrangements.iter().fold(0.0, |all, arrangement| all + arrangement.weight * of_one(arrangement))
}

/// Latency and Triad bandwidth (the profile's last kernel) of each pair of nodes.
///
/// # Errors
/// Rates cannot be computed.
pub(crate) fn matrix(setting: &Setting, solver: &mut dyn RateSolver) -> Result<Vec<Figure>, ModelledError> {
    let mut figures = Vec::new();
    let vm = setting.resolved.vms.first();
    for point in &setting.resolved.points {
        let Some((cpu_node, memory_node)) = point.pair() else { continue };
        match point.workload.as_str() {
            "chase" => {
                let (from, to) = (home(vm, cpu_node), home(vm, memory_node));
                let pairs = from.iter().flat_map(|cpu| to.iter().map(move |memory| (cpu, memory)));
                let all: Vec<f64> = pairs.map(|(cpu, memory)| setting.model.latency_ns(cpu, memory)).collect();
                let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
                figures.push(setting.figure(point, latency(LATENCY), mean));
            }
            "stream" => {
                let memory: Vec<NodeId> = home(vm, memory_node).iter().collect();
                let arrangement = node_at_work(setting, &home(vm, cpu_node), &memory, point.threads)?;
                let Some(kernel) = setting.profiles[0].kernels.last() else { continue };
                let (mb_per_s, _) = rate(setting, solver, &[arrangement], &kernel.profile())
                    .map_err(|reason| setting.unsolved(&format!("{}, {point}", kernel.name), reason))?;
                figures.push(setting.figure(point, bandwidth(&kernel.name), mb_per_s));
            }
            _ => {}
        }
    }
    Ok(figures)
}

/// Machine nodes of a participant's node.
fn home(vm: Option<&ResolvedVm>, node: u32) -> NodeSet {
    let of_client = |vm: &ResolvedVm| {
        let mut clients = vm.plan.placement.clients.iter();
        clients.find(|client| client.virtual_nodes.contains(&node)).map(|client| client.home.clone())
    };
    vm.and_then(of_client).unwrap_or_else(|| [NodeId(node)].into_iter().collect())
}

fn node_at_work(
    setting: &Setting,
    cpus: &NodeSet,
    memory: &[NodeId],
    threads: u32,
) -> Result<Arrangement, ModelledError> {
    let cores = setting.cores();
    let chosen = cores
        .place(&mut cores.idle(), cpus, ThreadPolicy::LeastLoadedNode, threads)
        .ok_or_else(|| setting.too_many(&cores, threads, cpus, threads))?;
    let thread = |core: usize| {
        let node = cores.list()[core].node;
        // Memory bound to these nodes, whether or not the thread is on one of them.
        let memory = match memory {
            [one] => vec![(*one, 1.0)],
            several => shares(Memory::Interleaved, node, several),
        };
        Thread { core, memory }
    };
    let all: Vec<Thread> = chosen.into_iter().map(thread).collect();
    Ok(Arrangement { weight: 1.0, works: works(&cores, &all) })
}
