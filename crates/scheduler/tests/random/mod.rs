//! Random machines, occupancies and specs.

pub(crate) mod cost;

use proptest::prelude::*;
use scheduler::Occupancy;
use topology::{
    Bandwidths, Bytes, BytesPerSecond, CoreId, CpuId, Distances, HardwareThread, Machine, MemoryKind, Node, NodeId,
    SocketId,
};
use vm::{NodeUse, VmSpec};

/// A machine with what runs there, and a VM for it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) machine: Machine,
    pub(crate) occupancy: Occupancy,
    pub(crate) spec: VmSpec,
}

/// One node: number, cores, threads per core, memory in MiB, free memory where known, what is held.
#[derive(Clone, Debug)]
struct RandomNode {
    id: u32,
    cores: u32,
    smt: u32,
    memory_mib: u64,
    free_mib: Option<u64>,
    held: NodeUse,
    /// GB/s that its memory gives, where that is known.
    gives: Option<u64>,
}

fn node() -> impl Strategy<Value = RandomNode> {
    let even = Just((4u32, 2u32, 8192u64));
    let any = (prop_oneof![4 => 1u32..=8, 1 => Just(0)], 1u32..=2, prop_oneof![9 => 512u64..=16_384, 1 => Just(0)]);
    let traffic = (prop::option::of(4u64..30), 0u64..10);
    (prop_oneof![even, any], 0u32..4, prop::option::of(0u64..=16_384), 0u32..6, 0u64..4096, 0u64..4096, traffic)
        .prop_map(|((cores, smt, memory_mib), gap, free, vcpus, memory, resident, (gives, drawn))| RandomNode {
            id: gap,
            cores,
            smt,
            memory_mib,
            free_mib: free.map(|free| free.min(memory_mib)),
            held: NodeUse {
                vcpus,
                memory: Bytes::from_mib(memory),
                resident: Bytes::from_mib(resident.min(memory)),
                traffic: BytesPerSecond(drawn * 1_000_000_000),
                ..NodeUse::default()
            },
            gives,
        })
}

/// A machine of `nodes` nodes; node numbers are sparse, at least one node has CPUs.
pub(crate) fn machine(nodes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = (Machine, Occupancy)> {
    let distances = prop::collection::vec(11u32..=40, 16);
    (prop::collection::vec(node(), nodes), distances, any::<bool>()).prop_map(|(mut nodes, distances, flat)| {
        let mut next = 0;
        for node in &mut nodes {
            node.id += next;
            next = node.id + 1;
        }
        if nodes.iter().all(|node| node.cores == 0) {
            nodes[0].cores = 2;
        }
        build(&nodes, &distances, flat)
    })
}

fn build(nodes: &[RandomNode], distances: &[u32], flat: bool) -> (Machine, Occupancy) {
    let mut threads = Vec::new();
    let mut cores = 0;
    for node in nodes {
        for core in cores..cores + node.cores {
            for _ in 0..node.smt {
                threads.push(HardwareThread {
                    id: CpuId(threads.len() as u32),
                    core: CoreId(core),
                    llc: None,
                    node: NodeId(node.id),
                    socket: SocketId(node.id),
                    online: true,
                    allowed: true,
                    capacity: None,
                });
            }
        }
        cores += node.cores;
    }
    let ids: Vec<NodeId> = nodes.iter().map(|node| NodeId(node.id)).collect();
    let entry = |i: usize, j: usize| if i == j { 10 } else { distances[(i * 4 + j) % 16] };
    let rows = (0..ids.len()).map(|i| (0..ids.len()).map(|j| entry(i, j)).collect()).collect();
    let gives = |node: &RandomNode| Some((NodeId(node.id), Bytes(node.gives? * 1_000_000_000)));
    let machine = Machine {
        name: "random".to_owned(),
        cpu_model: None,
        nodes: nodes
            .iter()
            .map(|node| Node {
                id: NodeId(node.id),
                memory: Bytes::from_mib(node.memory_mib),
                memory_kind: MemoryKind::Ram,
                free: node.free_mib.map(Bytes::from_mib),
                huge_pages: Vec::new(),
                allowed: true,
            })
            .collect(),
        llcs: Vec::new(),
        threads,
        distances: if flat { Distances::flat(ids) } else { Distances::new(ids, rows).expect("square") },
        cards: Default::default(),
        bandwidth: Bandwidths { memory: nodes.iter().filter_map(gives).collect(), ..Bandwidths::default() },
        isolated: Default::default(),
        nohz_full: Default::default(),
        default_huge_page: None,
        notes: Vec::new(),
    };
    let nodes = nodes.iter().map(|node| (NodeId(node.id), node.held)).collect();
    (machine, Occupancy { nodes, ..Occupancy::default() })
}

/// A VM whose policy is random too.
pub(crate) fn spec(most_vcpus: u32) -> impl Strategy<Value = VmSpec> {
    let cap = prop::option::weighted(0.2, 1u32..=6);
    let vnuma = prop::option::weighted(0.2, any::<bool>());
    let placement = prop_oneof![
        3 => Just("auto"),
        1 => Just("together"),
        1 => Just("apart"),
        1 => Just("most_virtual_nodes"),
    ];
    let placement = (placement, prop_oneof![2 => Just("auto"), 1 => Just("high"), 1 => Just("7 GB/s")]);
    (1u32..=most_vcpus, 4u64..=30_000, any::<bool>(), placement, cap, vnuma, any::<prop::sample::Index>()).prop_map(
        |(vcpus, memory_mib, prefer_ht, (placement, bandwidth), cap, vnuma, socket)| {
            let divisors: Vec<u32> = (1..=vcpus).filter(|d| vcpus.is_multiple_of(*d)).collect();
            let per_socket = socket.index(divisors.len() * 2);
            let mut policy = format!("prefer_ht = {prefer_ht}\nfar_memory = \"when_full\"\n");
            policy += &format!("placement = \"{placement}\"\nbandwidth = \"{bandwidth}\"\n");
            if let Some(cap) = cap.filter(|cap| u64::from(vcpus.div_ceil(*cap)) <= memory_mib) {
                policy += &format!("max_vcpus_per_node = {cap}\n");
            }
            if let Some(vnuma) = vnuma {
                policy += &format!("vnuma = {vnuma}\n");
            }
            if let Some(size) = divisors.get(per_socket) {
                policy += &format!("cores_per_socket = {size}\n");
            }
            let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_mib} MiB\"\n[policy]\n{policy}");
            VmSpec::from_toml(&text, "vm.toml").expect(&text)
        },
    )
}

/// A machine of even nodes, each with some of its memory free, and a VM that is sized by rule and
/// holds no more vCPUs than there are hardware threads.
pub(crate) fn even_case(nodes: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Case> {
    let free = prop::collection::vec(0u64..=16_384, nodes);
    (free, 1u32..=8, 1u32..=2, any::<prop::sample::Index>(), 8u64..=60_000).prop_map(
        |(free, cores, smt, vcpus, memory)| {
            let node = |(index, free_mib): (usize, u64)| RandomNode {
                id: index as u32,
                cores,
                smt,
                memory_mib: 16_384,
                free_mib: Some(free_mib),
                held: NodeUse::default(),
                gives: None,
            };
            let nodes: Vec<RandomNode> = free.into_iter().enumerate().map(node).collect();
            let (machine, occupancy) = build(&nodes, &[21; 16], false);
            let vcpus = vcpus.index(machine.threads.len()) + 1;
            let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory} MiB\"\n");
            Case { machine, occupancy, spec: VmSpec::from_toml(&text, "vm.toml").expect(&text) }
        },
    )
}

/// A machine of `nodes` nodes and a VM of at most `most_vcpus` vCPUs.
pub(crate) fn case(nodes: std::ops::RangeInclusive<usize>, most_vcpus: u32) -> impl Strategy<Value = Case> {
    (machine(nodes), spec(most_vcpus)).prop_map(|((machine, occupancy), spec)| Case { machine, occupancy, spec })
}
