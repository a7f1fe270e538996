//! Where the processes of an application run in a configuration, and whose memory they use.

use crate::modelled::{ModelledError, Setting};
use crate::resolve::ResolvedVm;
use simulator::application::{BusyCores, OtherVms, Team, local_share};
use simulator::threads::memory::{Memory, shares};
use simulator::threads::{Cores, Thread, ThreadPolicy, works};
use simulator::workload::{Application, Binding};
use std::collections::BTreeSet;
use topology::{NodeId, NodeSet};
use vm::{Client, MemoryPolicy};

/// The team of `processes` processes over all VMs, or natively.
///
/// # Errors
/// There are too few hardware threads, or nobody knows what a message between VMs costs.
pub(super) fn team(setting: &Setting, application: &Application, processes: u32) -> Result<Team, ModelledError> {
    let cores = Cores::of(setting.machine);
    let threads = match setting.resolved.vms.as_slice() {
        [] => native(setting, application.binding.value, &cores, processes)?,
        vms => in_vms(setting, vms, application.binding.value, &cores, processes)?,
    };
    let caches: BTreeSet<_> = threads.iter().map(|thread| place(&cores, thread)).collect();
    let all: BTreeSet<_> = cores.list().iter().map(|core| (core.node, core.llc)).collect();
    let works = works(&cores, &threads);
    let count = |wanted: fn(u32) -> bool| works.iter().filter(|(work, _)| wanted(work.threads)).map(|(_, n)| n).sum();
    let best = BusyCores { single: count(|threads| threads < 2), double: count(|threads| threads >= 2) };
    Ok(Team {
        processes,
        busy: if setting.resolved.vms.is_empty() {
            native_cores(setting, &cores, processes).unwrap_or(best)
        } else {
            best
        },
        works,
        llc_share: caches.len() as f64 / all.len().max(1) as f64,
        is_virtual: !setting.resolved.vms.is_empty(),
        others: others(setting, application)?,
    })
}

fn place(cores: &Cores, thread: &Thread) -> (NodeId, Option<topology::LlcId>) {
    let core = &cores.list()[thread.core];
    (core.node, core.llc)
}

fn native(setting: &Setting, binding: Binding, cores: &Cores, processes: u32) -> Result<Vec<Thread>, ModelledError> {
    let nodes = setting.machine.node_ids();
    let all: Vec<NodeId> = nodes.iter().collect();
    let placed = cores.place(&mut cores.idle(), &nodes, ThreadPolicy::LeastLoadedNode, processes);
    let chosen = placed.ok_or_else(|| setting.too_many(cores, processes, &nodes, processes))?;
    let all_cores = cores.list().len() as f64;
    let busy = native_cores(setting, cores, processes);
    let busy_cores = busy.map_or(f64::from(processes).min(all_cores), |busy| busy.single + busy.double);
    let local = local_share(binding, busy_cores, all_cores, all.len() as u32);
    Ok(on(cores, chosen, Memory::LocalShare(local), &all))
}

/// Mean over what the kernel does natively; `None` where its cores have no second hardware thread
/// in use.
fn native_cores(setting: &Setting, cores: &Cores, processes: u32) -> Option<BusyCores> {
    let random = setting.experiment.native_os.random_thread_share.as_ref().filter(|_| smt(setting))?;
    let threads_per_core = cores.list().iter().map(|core| core.hardware_threads).max()?;
    BusyCores::random(cores.list().len() as u32, threads_per_core, processes, random.value)
}

fn smt(setting: &Setting) -> bool {
    setting.configuration.has_smt_on_the_model()
}

/// Whether a native run without second hardware threads lacks cores for so many processes: it has
/// no figure then, as a VM with fewer vCPUs.
pub(super) fn is_too_wide_without_smt(setting: &Setting, processes: u32) -> bool {
    !smt(setting) && processes > Cores::of(setting.machine).list().len() as u32
}

fn in_vms(
    setting: &Setting,
    vms: &[ResolvedVm],
    binding: Binding,
    cores: &Cores,
    processes: u32,
) -> Result<Vec<Thread>, ModelledError> {
    let each = processes / vms.len() as u32;
    // VMs that live on the same nodes share them.
    let there = |nodes: &NodeSet| {
        let of_vm = |vm: &ResolvedVm| {
            let counts = vm.plan.placement.clients.iter().zip(levelled(vm, each));
            counts.filter(|(client, _)| client.home.is_subset(nodes)).map(|(_, count)| count).sum::<u32>()
        };
        vms.iter().map(of_vm).sum::<u32>()
    };
    let mut busy = cores.idle();
    let mut threads = Vec::new();
    for vm in vms {
        let clients = &vm.plan.placement.clients;
        let nodes: Vec<NodeId> =
            clients.iter().flat_map(|client| client.home.iter()).collect::<NodeSet>().iter().collect();
        let local = local_share(binding, f64::from(each), f64::from(vm.spec.vcpus), nodes.len() as u32);
        for (client, count) in clients.iter().zip(levelled(vm, each)) {
            let home = &client.home;
            let chosen = cores
                .place(&mut busy, home, ThreadPolicy::LeastLoadedNode, count)
                .ok_or_else(|| setting.too_many(cores, processes, home, there(home)))?;
            threads.extend(on(cores, chosen, memory(vm, client, local), &nodes));
        }
    }
    Ok(threads)
}

/// A guest that knows its nodes has its memory where it was first touched; one that does not, over
/// the whole home.
fn memory(vm: &ResolvedVm, client: &Client, local: f64) -> Memory {
    let is_flat = !vm.plan.topology.exposed && client.home.len() > 1;
    if is_flat || client.memory_policy == MemoryPolicy::Interleave {
        Memory::Interleaved
    } else {
        Memory::LocalShare(local)
    }
}

fn on(cores: &Cores, chosen: Vec<usize>, memory: Memory, nodes: &[NodeId]) -> Vec<Thread> {
    let thread = |core: usize| Thread { core, memory: shares(memory, cores.list()[core].node, nodes) };
    chosen.into_iter().map(thread).collect()
}

/// Processes of a VM on each of its clients, in proportion to their vCPUs.
fn levelled(vm: &ResolvedVm, processes: u32) -> Vec<u32> {
    let nodes = &vm.plan.topology.nodes;
    let vcpus = |client: &Client| -> u32 {
        let of_client = nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        of_client.map(|node| node.present().count() as u32).sum::<u32>().max(1)
    };
    let vcpus: Vec<u32> = vm.plan.placement.clients.iter().map(vcpus).collect();
    let mut each = vec![0; vcpus.len()];
    for _ in 0..processes {
        let load = |&index: &usize| f64::from(each[index] + 1) / f64::from(vcpus[index]);
        if let Some(next) = (0..vcpus.len()).min_by(|one, other| load(one).total_cmp(&load(other))) {
            each[next] += 1;
        }
    }
    each
}

/// Where the other VMs are that each process exchanges messages with.
fn others(setting: &Setting, application: &Application) -> Result<OtherVms, ModelledError> {
    let vms = setting.resolved.vms.len() as u32;
    if application.messages.is_none() || vms < 2 {
        return Ok(OtherVms::default());
    }
    let switches = setting.configuration.switches.as_ref().map_or(1, |switches| switches.among(vms));
    let field = |name: &str| format!("configuration \"{}\": {name}", setting.configuration.name);
    if switches > vms {
        let problem = format!("it is {switches}, and there are {vms} VMs: write 1 to {vms}");
        return Err(ModelledError::Field { field: field("switches"), problem });
    }
    if setting.model.rates().network.is_none() {
        let (configuration, machine) = (setting.configuration.name.clone(), setting.machine.name.clone());
        return Err(ModelledError::NoNetwork { configuration, vms, machine });
    }
    Ok(OtherVms::of(vms, switches))
}
