//! One configuration on one modelled machine: where its threads run and whose memory they use.

use super::ModelledError;
use super::settings::ModelledMemory;
use crate::experiment::{Configuration, Experiment};
use crate::figure::{Figure, Provenance};
use crate::point::Point;
use crate::resolve::{ResolvedConfiguration, ResolvedVm};
use simulator::events::RunError;
use simulator::threads::memory::{Memory, shares};
use simulator::threads::random::{flat_guest, linux};
use simulator::threads::{Arrangement, Cores, Thread, ThreadPolicy, works};
use simulator::workload::WorkloadProfile;
use simulator::{MachineModel, SolveError};
use topology::{Machine, NodeId, NodeSet};
use vm::{Client, MemoryPolicy};
use workloads::workload::{Pinning, Quantity};

/// Ways in which the threads of flat guests may lie that are enumerated; above, each guest spreads
/// them evenly.
const MOST_WAYS: usize = 512;

/// One configuration on one modelled machine.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The configuration, as written.
    pub configuration: &'a Configuration,
    /// Its VMs with their plans, and its points.
    pub resolved: &'a ResolvedConfiguration,
    /// The machine.
    pub machine: &'a Machine,
    /// Its model.
    pub model: &'a MachineModel,
    /// Profiles of the workload: one with the kernels, or one for each application, in the order of
    /// the experiment.
    pub profiles: &'a [WorkloadProfile],
    /// Decides what is drawn where placements are too many to enumerate.
    pub seed: u64,
}

/// Threads of one part of a VM, and where they may run.
struct Part {
    nodes: NodeSet,
    policy: ThreadPolicy,
    memory: Memory,
    memory_nodes: Vec<NodeId>,
    threads: u32,
}

impl Setting<'_> {
    /// How `threads` threads over all VMs, or natively, lie on the cores: each way with its weight.
    ///
    /// # Errors
    /// There are too few hardware threads where the configuration may run.
    pub fn arrangements(&self, threads: u32) -> Result<Vec<Arrangement>, ModelledError> {
        let cores = self.cores();
        if self.resolved.vms.is_empty() {
            return self.native(&cores, threads);
        }
        let each = threads / self.resolved.participants();
        let mut ways = vec![(1.0, Vec::new())];
        for vm in &self.resolved.vms {
            let of_vm = self.vm_ways(vm, each);
            let of_vm = if ways.len() * of_vm.len() > MOST_WAYS { vec![(1.0, self.even(vm, each))] } else { of_vm };
            ways = ways
                .iter()
                .flat_map(|(weight, parts): &(f64, Vec<Part>)| {
                    let one = move |(other, more): &(f64, Vec<Part>)| {
                        (weight * other, parts.iter().chain(more).map(Part::again).collect())
                    };
                    of_vm.iter().map(one).collect::<Vec<_>>()
                })
                .collect();
        }
        ways.into_iter().map(|(weight, parts)| self.laid(&cores, weight, &parts, threads)).collect()
    }

    /// The cores that threads can run on.
    pub fn cores(&self) -> Cores {
        let cores = Cores::of(self.machine);
        if self.configuration.has_smt_on_the_model() { cores } else { cores.without_smt() }
    }

    fn laid(&self, cores: &Cores, weight: f64, parts: &[Part], threads: u32) -> Result<Arrangement, ModelledError> {
        let mut busy = cores.idle();
        let mut all = Vec::new();
        // VMs that live on the same nodes share them.
        let there = |nodes: &NodeSet| {
            parts.iter().filter(|part| part.nodes.is_subset(nodes)).map(|part| part.threads).sum::<u32>()
        };
        for part in parts {
            let chosen = cores
                .place(&mut busy, &part.nodes, part.policy, part.threads)
                .ok_or_else(|| self.too_many(cores, threads, &part.nodes, there(&part.nodes)))?;
            all.extend(chosen.into_iter().map(|core| {
                let node = cores.list()[core].node;
                Thread { core, memory: shares(part.memory, node, &part.memory_nodes) }
            }));
        }
        Ok(Arrangement { weight, works: works(cores, &all) })
    }

    fn native(&self, cores: &Cores, threads: u32) -> Result<Vec<Arrangement>, ModelledError> {
        let nodes = self.machine.node_ids();
        let all: Vec<NodeId> = nodes.iter().collect();
        let memory = self.memory(Memory::Local);
        let random = self.experiment.native_os.random_thread_share.as_ref().map_or(0.0, |share| share.value);
        let too_many = || self.too_many(cores, threads, &nodes, threads);
        let policy = match self.experiment.pinning {
            Pinning::None => {
                let ways = linux(cores, &nodes, threads, random, self.seed).ok_or_else(too_many)?;
                let way = |way: simulator::threads::random::Weighted| Arrangement {
                    weight: way.weight,
                    works: works(cores, &spread_out(cores, &way.busy, memory, &all)),
                };
                return Ok(ways.into_iter().map(way).collect());
            }
            Pinning::Compact => ThreadPolicy::FillNode,
            Pinning::Scatter => ThreadPolicy::LeastLoadedNode,
            Pinning::OnePerLlc => ThreadPolicy::LeastLoadedLlc,
        };
        let part = Part { nodes, policy, memory, memory_nodes: all, threads };
        Ok(vec![self.laid(cores, 1.0, &[part], threads)?])
    }

    /// Threads of a VM over its clients. A guest that knows its nodes spreads them as the
    /// experiment pins them; one that does not takes any of its vCPUs.
    fn vm_ways(&self, vm: &ResolvedVm, threads: u32) -> Vec<(f64, Vec<Part>)> {
        let clients = &vm.plan.placement.clients;
        let home: Vec<NodeId> = clients[0].home.iter().collect();
        if vm.plan.topology.exposed || clients.len() > 1 || home.len() < 2 || threads == vm.spec.vcpus {
            return vec![(1.0, self.even(vm, threads))];
        }
        let by_node: Vec<u32> = (0..home.len() as u32)
            .map(|index| vm.spec.vcpus / home.len() as u32 + u32::from(index < vm.spec.vcpus % home.len() as u32))
            .collect();
        let ways: usize = by_node.iter().map(|&vcpus| vcpus.min(threads) as usize + 1).product();
        if ways > MOST_WAYS * 8 {
            return vec![(1.0, self.even(vm, threads))];
        }
        let part = |(&node, &threads): (&NodeId, &u32)| Part {
            nodes: [node].into_iter().collect(),
            threads,
            ..self.part(vm, &clients[0], 0)
        };
        let way = |(weight, on_nodes): (f64, Vec<u32>)| (weight, home.iter().zip(&on_nodes).map(part).collect());
        flat_guest(&by_node, threads).into_iter().map(way).collect()
    }

    fn even(&self, vm: &ResolvedVm, threads: u32) -> Vec<Part> {
        let clients = &vm.plan.placement.clients;
        let vcpus: Vec<u32> = clients.iter().map(|client| vcpus(vm, client)).collect();
        let each = match self.experiment.pinning {
            Pinning::Compact => filled(&vcpus, threads),
            _ => levelled(&vcpus, threads),
        };
        let parts = clients.iter().zip(each).filter(|&(_, threads)| threads > 0);
        parts.map(|(client, threads)| self.part(vm, client, threads)).collect()
    }

    fn part(&self, vm: &ResolvedVm, client: &Client, threads: u32) -> Part {
        let home: Vec<NodeId> = client.home.iter().collect();
        let policy = match self.experiment.pinning {
            Pinning::OnePerLlc => ThreadPolicy::LeastLoadedLlc,
            _ => ThreadPolicy::LeastLoadedNode,
        };
        // vCPUs of a home of several nodes wander over it, away from where their memory was touched
        // first.
        let by_policy = match client.memory_policy {
            _ if home.len() > 1 => Memory::Interleaved,
            MemoryPolicy::Bind | MemoryPolicy::Interleave | MemoryPolicy::Preferred | MemoryPolicy::Default => {
                Memory::Local
            }
        };
        let memory = self.memory(by_policy);
        let everywhere: Vec<NodeId> = self.machine.nodes.iter().map(|node| node.id).collect();
        let of_vm = || vm.plan.placement.clients.iter().flat_map(|client| client.home.iter()).collect();
        let memory_nodes = match (self.configuration.modelled.memory, memory) {
            (None, _) => home,
            (_, Memory::Remote) => everywhere,
            _ => of_vm(),
        };
        Part { nodes: client.home.clone(), policy, memory, memory_nodes, threads }
    }

    /// What the configuration says of the memory, or else the rule.
    fn memory(&self, by_rule: Memory) -> Memory {
        match self.configuration.modelled.memory {
            None => by_rule,
            Some(ModelledMemory::Local) => Memory::Local,
            Some(ModelledMemory::Interleaved | ModelledMemory::RandomPages) => Memory::Interleaved,
            Some(ModelledMemory::Remote) => Memory::Remote,
        }
    }

    /// A figure of this configuration, without its cross-check yet.
    pub(crate) fn figure(&self, point: &Point, quantity: Quantity, value: f64) -> Figure {
        let (configuration, point) = (self.configuration.name.clone(), point.clone());
        let provenance = Provenance::Modelled { cross_check: None };
        Figure { configuration, point, quantity, value, spread: None, provenance }
    }

    /// That `figure` cannot be computed.
    pub fn unsolved(&self, figure: &str, reason: SolveError) -> ModelledError {
        ModelledError::Solve { configuration: self.configuration.name.clone(), figure: figure.to_owned(), reason }
    }

    /// That the run over phases which gives `figure` cannot go on.
    pub(crate) fn unfinished(&self, figure: &str, reason: RunError) -> ModelledError {
        let configuration = self.configuration.name.clone();
        ModelledError::Run { configuration, figure: figure.to_owned(), reason: Box::new(reason) }
    }

    /// Row-conflict droop: the configuration's, or else the machine's; 0 without either.
    pub fn droop(&self) -> f64 {
        let own = self.configuration.modelled.row_conflict_droop.as_ref();
        own.or(self.model.rates().row_conflict_droop.as_ref()).map_or(0.0, |droop| droop.value)
    }

    /// That of `threads` threads `there` have to run on `nodes`, and cannot.
    pub(crate) fn too_many(&self, cores: &Cores, threads: u32, nodes: &NodeSet, there: u32) -> ModelledError {
        ModelledError::Threads {
            configuration: self.configuration.name.clone(),
            threads,
            nodes: nodes.clone(),
            there,
            machine: self.machine.name.clone(),
            has: cores.hardware_threads(nodes),
        }
    }
}

impl Part {
    fn again(&self) -> Self {
        Self { nodes: self.nodes.clone(), memory_nodes: self.memory_nodes.clone(), ..*self }
    }
}

/// Threads of counted cores, all with the same rule of memory.
fn spread_out(cores: &Cores, busy: &[u32], memory: Memory, nodes: &[NodeId]) -> Vec<Thread> {
    let of_core = |(core, &busy): (usize, &u32)| {
        let memory = shares(memory, cores.list()[core].node, nodes);
        (0..busy).map(move |_| Thread { core, memory: memory.clone() })
    };
    busy.iter().enumerate().flat_map(of_core).collect()
}

fn vcpus(vm: &ResolvedVm, client: &Client) -> u32 {
    let nodes = vm.plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
    nodes.map(|node| node.present().count() as u32).sum()
}

/// One thread after the other to the part with the most idle vCPUs, in proportion to its size; the
/// first of equals.
fn levelled(vcpus: &[u32], threads: u32) -> Vec<u32> {
    let mut each = vec![0; vcpus.len()];
    for _ in 0..threads {
        let share = |index: &usize| f64::from(each[*index] + 1) / f64::from(vcpus[*index].max(1));
        let Some(next) = (0..vcpus.len()).min_by(|one, other| share(one).total_cmp(&share(other))) else { break };
        each[next] += 1;
    }
    each
}

/// The first part until its vCPUs are busy, then the next.
fn filled(vcpus: &[u32], threads: u32) -> Vec<u32> {
    let mut left = threads;
    let mut each: Vec<u32> = vcpus
        .iter()
        .map(|&vcpus| {
            let here = vcpus.min(left);
            left -= here;
            here
        })
        .collect();
    if let Some(last) = each.last_mut() {
        *last += left;
    }
    each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_levelled_or_filled_by_vcpus() {
        assert_eq!(levelled(&[4, 4], 5), [3, 2]);
        assert_eq!(levelled(&[4, 8], 6), [2, 4]);
        assert_eq!(filled(&[4, 4], 5), [4, 1]);
    }
}
