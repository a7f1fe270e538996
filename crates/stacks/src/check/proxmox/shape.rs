//! The VM that a configuration starts.

use super::args::distances;
use super::conf::{Conf, MOST_NUMA, numa_key};
use super::dimms::dimms;
use super::numa::NumaNode;
use judge::{Binding, GuestSystem, HugePages, Part, ShapedNode, ShapedVm, Spots};
use topology::{Bytes, CpuId, CpuSet};
use vm::qemu::GuestCpus;

/// The VM that a configuration starts, or would, were nothing in its way.
pub(super) fn shaped(conf: &Conf) -> ShapedVm {
    let (sockets, cores) = (conf.sockets() as u32, conf.cores() as u32);
    let vcpus = conf.most_vcpus() as u32;
    let mut nodes = nodes(conf);
    for (from, to, value) in distances(conf) {
        if let Some(node) = nodes.iter_mut().find(|node| node.id == from) {
            node.distances.insert(to, value);
        }
    }
    let affinity = conf.affinity();
    ShapedVm {
        name: conf.get("name").map_or_else(|| format!("VM {}", conf.id()), str::to_owned),
        vcpus,
        absent: (conf.vcpus() as u32..vcpus).map(CpuId).collect(),
        memory: conf.memory(),
        guest: GuestCpus { sockets, dies: 1, cores, threads: 1, ..GuestCpus::default() },
        vnuma: nodes.len() > 1,
        pins: affinity.iter().flat_map(|cpus| (0..vcpus).map(|vcpu| (vcpu, cpus.clone()))).collect(),
        emulator: affinity,
        huge_pages: page_size(conf).map(|size| HugePages { size: Some(size), cells: None }).into_iter().collect(),
        spots: spots(conf, vcpus),
        guest_system: guest_system(conf),
        nodes,
        ..ShapedVm::default()
    }
}

/// The system of its guest: those of `win7` and later are a desktop's or a server's.
fn guest_system(conf: &Conf) -> GuestSystem {
    match conf.get("ostype").unwrap_or_default() {
        "wxp" | "wvista" => GuestSystem::WindowsDesktop,
        "w2k3" | "w2k8" => GuestSystem::WindowsServer,
        "l24" | "l26" | "solaris" => GuestSystem::Other,
        other if other == "w2k" || other.starts_with("win") => GuestSystem::Windows,
        _ => GuestSystem::Unknown,
    }
}

/// Huge pages: of `any`, 1 GiB where each virtual node is made of such, else 2 MiB
/// (`hugepages_size` of Memory.pm).
fn page_size(conf: &Conf) -> Option<Bytes> {
    match conf.huge_pages()? {
        "any" => {
            let whole = nodes(conf).iter().all(|node| node.memory.0.is_multiple_of(Bytes::GIB.0));
            Some(if whole { Bytes::GIB } else { Bytes::from_mib(2) })
        }
        size => size.parse().ok().map(Bytes::from_mib),
    }
}

fn nodes(conf: &Conf) -> Vec<ShapedNode> {
    let numa = conf.is_on("numa");
    let told = if numa { conf.numa_nodes() } else { Default::default() };
    if !told.is_empty() {
        return custom(conf, told.into_iter().collect());
    }
    let count = if numa { conf.sockets() as u32 } else { 1 };
    let each = conf.most_vcpus() as u32 / count.max(1);
    let memory = memory_of_sockets(conf, count);
    let node = |(id, memory): (u32, Bytes)| {
        let vcpus = (id * each..(id + 1) * each).map(CpuId).collect();
        ShapedNode { id, vcpus, memory, own_binding: true, ..ShapedNode::default() }
    };
    (0..count).zip(memory).map(node).collect()
}

/// Memory of each virtual node where each socket is one: in equal parts; with memory hot-plug the
/// first part so, and the rest in DIMMs, one for each node in turn.
fn memory_of_sockets(conf: &Conf, count: u32) -> Vec<Bytes> {
    let count = count.max(1);
    let (fixed, dimms) = match dimms(conf) {
        Some(dimms) => (dimms.fixed_mib, dimms.each_mib),
        None => (conf.memory_mib(), Vec::new()),
    };
    let mut memory = vec![Bytes::from_mib(fixed).0 / u64::from(count); count as usize];
    // A bank has 32 DIMMs, whose first is that of the first node.
    for (index, mib) in dimms.into_iter().enumerate() {
        memory[index % 32 % count as usize] += Bytes::from_mib(mib).0;
    }
    memory.into_iter().map(Bytes).collect()
}

/// `numaN`. QEMU puts vCPUs that none of them names where their socket's number, counted round,
/// leads (`x86_get_default_cpu_node_id`).
fn custom(conf: &Conf, told: Vec<(u32, NumaNode)>) -> Vec<ShapedNode> {
    let count = told.len() as u64;
    let all: CpuSet = (0..conf.most_vcpus() as u32).map(CpuId).collect();
    let named = told.iter().fold(CpuSet::new(), |sum, (_, node)| sum.union(&node.cpus));
    let rest = all.difference(&named);
    let lands = |vcpu: CpuId, index: u64| u64::from(vcpu.0) / conf.cores() % count == index;
    let node = |(index, (id, told)): (u64, (u32, NumaNode))| {
        let more: CpuSet = rest.iter().filter(|&vcpu| lands(vcpu, index)).collect();
        let mode = match told.policy.as_deref() {
            Some("interleave") => "interleave",
            Some("preferred") => "preferred",
            _ => "strict",
        };
        ShapedNode {
            id,
            vcpus: told.cpus.intersection(&all).union(&more),
            memory: told.memory.unwrap_or_default(),
            binding: told.hostnodes.map(|host| Binding { mode: mode.to_owned(), nodes: host.nodes }),
            own_binding: true,
            ..ShapedNode::default()
        }
    };
    (0..).zip(told).map(node).collect()
}

fn spots(conf: &Conf, vcpus: u32) -> Spots {
    let cells = (0..MOST_NUMA).flat_map(|id| {
        let key = numa_key(id);
        [(Part::Cell(id), key.clone()), (Part::MemoryNode(id), key)]
    });
    let keys = [
        (Part::Memory, "memory"),
        (Part::Vcpus, "cores"),
        (Part::Topology, "sockets"),
        (Part::Emulator, "affinity"),
        (Part::HugePages, "hugepages"),
    ];
    let all = keys.map(|(part, key)| (part, key.to_owned())).into_iter().chain(cells);
    let pins = (0..vcpus).map(|vcpu| (Part::VcpuPin(vcpu), "affinity".to_owned()));
    Spots(all.chain(pins).filter_map(|(part, key)| Some((part, conf.spot(&key)?))).collect())
}
