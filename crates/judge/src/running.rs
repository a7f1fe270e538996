//! A VM that runs as a [`ShapedVm`]: what the host shows of it, in the words of a definition.

use crate::shaped::{Binding, HugePages, Part, Running, ShapedNode, ShapedVm, Spot, Spots};
use scheduler::balance::{Home, Homes};
use scheduler::{
    ClientObservation, Observation, Occupancy, OtherThread, OtherThreadKind, SchedulingClass, VmKey, VmObservation,
};
use std::collections::BTreeMap;
use topology::{CpuId, CpuSet, Machine, NodeId, NodeSet};
use vm::qemu::GuestCpus;

/// Where a manager believes that each vCPU of a VM may run.
pub type Believed = BTreeMap<VmKey, BTreeMap<u32, CpuSet>>;

/// What is known of the VMs of a host beyond what it shows.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Where they live and should live ([`scheduler::balance::homes`]): no rule here names another
    /// home for a VM that runs.
    pub homes: Homes,
    /// What managers believe of pins.
    pub believed: Believed,
}

impl ShapedVm {
    /// A VM of an observation that [`examine`](scheduler::Observe::examine) made.
    pub fn of_running(machine: &Machine, seen: &VmObservation, known: &Known) -> Self {
        let all = machine.schedulable();
        // A thread that may use the whole machine is not bound.
        let bound = |cpus: &CpuSet| (!all.floats(cpus)).then(|| cpus.clone());
        let numbered = numbered(seen);
        let vnuma = seen.clients.len() > 1;
        let node = |(client, vcpus): (&ClientObservation, &BTreeMap<u32, CpuSet>)| {
            let home = known.homes.get(&(seen.vm.clone(), client.id)).cloned();
            node(seen, client, vcpus.keys().map(|&vcpu| CpuId(vcpu)).collect(), home)
        };
        let nodes: Vec<ShapedNode> = seen.clients.iter().zip(&numbered).map(node).collect();
        let pins = numbered.iter().flatten().filter_map(|(&vcpu, cpus)| Some((vcpu, bound(cpus)?))).collect();
        let vcpus = nodes.iter().map(|node| node.vcpus.len() as u32).sum();
        let threads = |kind: OtherThreadKind| seen.other_threads.iter().filter(move |thread| thread.kind == kind);
        let cpus = |thread: &OtherThread| thread.cpus.as_ref().and_then(bound);
        let main = threads(OtherThreadKind::Main).find(|thread| thread.cpus.is_some());
        // Of a thread that nobody looked at nothing is said: as if it ran beside the vCPUs.
        let beside = || nodes_cpus(seen).filter(|cpus| !all.floats(cpus));
        let works_for = |thread: &OtherThread| seen.clients.iter().position(|client| Some(client.id) == thread.client);
        let known_cpus = |thread: &&OtherThread| thread.cpus.is_some();
        Self {
            name: seen.vm.name.clone(),
            real_time: real_time(seen, &numbered),
            vcpus,
            memory: nodes.iter().map(|node| node.memory).sum(),
            guest: guest(seen, vcpus),
            guest_unknown: seen.guest.is_none(),
            vnuma,
            huge_pages: huge_pages(seen),
            spots: spots(seen),
            emulator: main.map_or_else(beside, cpus),
            iothreads: (1..).zip(threads(OtherThreadKind::Io).filter(known_cpus).map(cpus)).collect(),
            vhost: threads(OtherThreadKind::Vhost)
                .filter(known_cpus)
                .map(|thread| (works_for(thread), cpus(thread)))
                .collect(),
            helpers: helpers(seen, cpus),
            allowed: allowed(machine, seen),
            running: Some(Running { seen: seen.clone(), believed: known.believed.get(&seen.vm).cloned() }),
            pins,
            nodes,
            ..Self::default()
        }
    }
}

/// Its vCPUs, where their threads have a real-time class.
fn real_time(seen: &VmObservation, numbered: &[BTreeMap<u32, CpuSet>]) -> CpuSet {
    let class = seen.limits.as_ref().and_then(|limits| limits.class);
    let vcpus = numbered.iter().flat_map(|vcpus| vcpus.keys().map(|&vcpu| CpuId(vcpu)));
    if class == Some(SchedulingClass::RealTime) { vcpus.collect() } else { CpuSet::new() }
}

/// Processes that work for a VM, each with the CPUs of one of its threads: those that differ are
/// shown apart.
fn helpers(seen: &VmObservation, cpus: impl Fn(&OtherThread) -> Option<CpuSet>) -> Vec<(String, Option<CpuSet>)> {
    let is_one = |thread: &&OtherThread| thread.kind == OtherThreadKind::Helper && thread.cpus.is_some();
    let mut all: Vec<(String, Option<CpuSet>)> = Vec::new();
    for thread in seen.other_threads.iter().filter(is_one) {
        let one = (thread.name.clone(), cpus(thread));
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

/// CPUs that all vCPUs may use together.
fn nodes_cpus(seen: &VmObservation) -> Option<CpuSet> {
    seen.clients.iter().map(|client| client.cpus.clone()).reduce(|one, other| one.union(&other))
}

/// vCPUs of each client and where they may run. Where they are not known one by one they are
/// numbered in a row.
fn numbered(seen: &VmObservation) -> Vec<BTreeMap<u32, CpuSet>> {
    let each_known = seen.clients.iter().all(|client| client.vcpu_cpus.len() == client.vcpus as usize);
    let mut next = 0;
    let of = |client: &ClientObservation| {
        if each_known {
            return client.vcpu_cpus.clone();
        }
        let first = next;
        next += client.vcpus;
        (first..next).map(|vcpu| (vcpu, client.cpus.clone())).collect()
    };
    seen.clients.iter().map(of).collect()
}

fn node(seen: &VmObservation, client: &ClientObservation, vcpus: CpuSet, home: Option<Home>) -> ShapedNode {
    let id = client.virtual_node.unwrap_or_default();
    let distances = seen.guest.as_ref().and_then(|guest| guest.distances.get(&id));
    ShapedNode {
        id,
        vcpus,
        memory: client.memory_size.saturating_sub(client.far_memory()),
        binding: binding(client),
        own_binding: true,
        spread: !client.spread_nodes.is_empty(),
        distances: distances.cloned().unwrap_or_default(),
        resident: client.near_memory().map(std::borrow::Cow::into_owned),
        home,
        ..ShapedNode::default()
    }
}

/// The policy that all ranges of a client's memory have; nodes of several are taken together.
fn binding(client: &ClientObservation) -> Option<Binding> {
    let of = |mode: &str, nodes: &NodeSet| Binding { mode: mode.to_owned(), nodes: nodes.clone() };
    let chosen = || match &client.spread_nodes {
        spread if !spread.is_empty() => Some(of("interleave", spread)),
        _ => client.chosen_nodes.as_ref().map(|nodes| of("strict", nodes)),
    };
    let Some(policies) = client.policies.as_ref().filter(|policies| !policies.is_empty()) else { return chosen() };
    let words = policies.first()?.policy.split([':', '=', ' ']).next()?;
    let mode = match words {
        "bind" => "strict",
        "prefer" => "preferred",
        "interleave" | "weighted" => "interleave",
        _ => return None,
    };
    let nodes: Vec<&NodeSet> = policies.iter().map(|policy| policy.nodes.as_ref()).collect::<Option<_>>()?;
    let nodes = nodes.into_iter().fold(NodeSet::new(), |all, nodes| all.union(nodes));
    // Where a part lies far on purpose its home is the rest.
    let nodes = nodes.difference(&client.far_nodes);
    (!nodes.is_empty()).then(|| Binding { mode: mode.to_owned(), nodes })
}

fn guest(seen: &VmObservation, vcpus: u32) -> GuestCpus {
    match seen.guest.as_ref().map(|guest| guest.cpus) {
        Some(cpus) => GuestCpus { dies: cpus.dies.max(1), threads: cpus.threads.max(1), ..cpus },
        None => GuestCpus { sockets: vcpus, dies: 1, cores: 1, threads: 1, caches: GuestCpus::default().caches },
    }
}

fn huge_pages(seen: &VmObservation) -> Vec<HugePages> {
    let of = |client: &ClientObservation| {
        let cells = client.virtual_node.map(|node| [NodeId(node)].into_iter().collect());
        client.huge_page_size.map(|size| HugePages { size: Some(size), cells })
    };
    seen.clients.iter().filter_map(of).collect()
}

/// Nodes whose memory and CPUs its cpuset allows, and its node affinity names. A cpuset is its
/// owner's choice, and never widened.
fn allowed(machine: &Machine, seen: &VmObservation) -> Option<NodeSet> {
    let usable = machine.node_ids();
    let allowed = usable.intersection(seen.allowed(machine)?.as_ref());
    (allowed != usable).then_some(allowed)
}

fn spots(seen: &VmObservation) -> Spots {
    let mut spots = BTreeMap::new();
    let mut add = |part: Part, at: String| {
        spots.insert(part, Spot { at, line: None });
    };
    let options = [(Part::Vcpus, "-smp"), (Part::Topology, "-smp"), (Part::Memory, "-m"), (Part::Cache, "-cpu")];
    for (part, option) in options {
        add(part, option.to_owned());
    }
    for client in &seen.clients {
        let id = client.virtual_node.unwrap_or_default();
        add(Part::Cell(id), format!("-numa node,nodeid={id}"));
        add(Part::Distances(id), format!("-numa dist,src={id}"));
        for vcpu in client.vcpu_cpus.keys() {
            add(Part::VcpuPin(*vcpu), format!("vCPU {vcpu} of process {}", seen.vm.pid));
        }
    }
    add(Part::Emulator, format!("process {}", seen.vm.pid));
    Spots(spots)
}

/// What the others on the host hold.
pub(crate) fn others(machine: &Machine, host: &Observation, vm: &VmKey) -> Occupancy {
    Occupancy::of_vms(host.vms.iter().filter(|other| other.vm != *vm), machine)
}
