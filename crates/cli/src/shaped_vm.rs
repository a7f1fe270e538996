//! A running QEMU as a VM that somebody shaped: its command line, where its threads may run, and the policy of its memory.

use judge::{Binding, GuestCpus, HugePages, Part, ProcessFacts, ShapedNode, ShapedVm, Spot, Spots};
use linux::vm::{RunningVm, ThreadKind, VmClient};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeSet};
use vm::qemu::{Backend, BackendKind, CommandLine, GuestCaches, NumaNode};

/// A VM as its process shows it. `host` is this host: a thread that may use all of it is not bound.
pub(crate) fn shaped(host: &Machine, vm: &RunningVm, arguments: &[String]) -> ShapedVm {
    let command = CommandLine::parse(arguments);
    let nodes = nodes(vm, &command);
    let most = command.vcpus.most.max(1);
    let bound = |thread: u32| bound(host, thread);
    let pins = vm.threads.vcpus.iter().filter_map(|vcpu| Some((vcpu.index, bound(vcpu.thread_id)?))).collect();
    let iothreads = numbered_iothreads(vm);
    let guest = GuestCpus {
        sockets: command.vcpus.sockets,
        dies: command.vcpus.dies.max(1),
        cores: command.vcpus.cores,
        threads: command.vcpus.threads.max(1),
        caches: GuestCaches::of(arguments),
    };
    ShapedVm {
        name: vm.key.name.clone(),
        vcpus: most,
        memory: nodes.iter().map(|node| node.memory).sum(),
        guest,
        vnuma: command.nodes.len() > 1,
        huge_pages: huge_pages(&command),
        spots: spots(vm, &command),
        process: Some(process(vm, &command)),
        pins,
        emulator: bound(vm.key.pid),
        iothreads: iothreads.iter().map(|(&id, &thread)| (id, bound(thread))).collect(),
        nodes,
        ..ShapedVm::default()
    }
}

/// CPUs that a thread is bound to; `None` where it may use all, or where that cannot be read.
fn bound(host: &Machine, thread: u32) -> Option<CpuSet> {
    let cpus = linux::sys::affinity(thread).ok()?;
    let all: CpuSet = host.usable_threads().map(|thread| thread.id).collect();
    (!all.is_subset(&cpus)).then_some(cpus)
}

fn nodes(vm: &RunningVm, command: &CommandLine) -> Vec<ShapedNode> {
    if command.nodes.len() < 2 {
        let backend = command
            .main_backend
            .as_deref()
            .or_else(|| command.nodes.values().next().and_then(|node| node.backends.first()).map(String::as_str));
        let client = vm.clients.first();
        let memory = client.map(|client| client.memory_size).or(command.memory).unwrap_or_default();
        let vcpus = (0..command.vcpus.most.max(1)).map(CpuId).collect();
        let binding = backend.and_then(|id| told(command.backend(id)?)).or_else(|| seen(vm, client?));
        return vec![ShapedNode { vcpus, memory, own_binding: true, binding, ..ShapedNode::default() }];
    }
    command.nodes.values().map(|node| virtual_node(vm, command, node)).collect()
}

fn virtual_node(vm: &RunningVm, command: &CommandLine, node: &NumaNode) -> ShapedNode {
    let backends: Vec<&Backend> = node.backends.iter().filter_map(|id| command.backend(id)).collect();
    let sizes = backends.iter().map(|backend| backend.size).sum::<Bytes>();
    let client = vm.clients.iter().find(|client| client.virtual_node == Some(node.id));
    ShapedNode {
        id: node.id,
        vcpus: node.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect(),
        memory: sizes.saturating_add(node.memory.unwrap_or_default()),
        binding: backends.first().and_then(|backend| told(backend)).or_else(|| seen(vm, client?)),
        own_binding: true,
        distances: node.distances.clone(),
    }
}

/// What QEMU was told: `host-nodes` and `policy`, in libvirt's words.
fn told(backend: &Backend) -> Option<Binding> {
    let mode = match backend.policy.as_deref()? {
        "bind" => "strict",
        "preferred" => "preferred",
        "interleave" => "interleave",
        _ => return None,
    };
    let nodes = backend.host_nodes.clone();
    (!nodes.is_empty()).then(|| Binding { mode: mode.to_owned(), nodes })
}

/// What the kernel applies (`numactl` before QEMU, a cgroup's own): the policy that all mappings have in common.
fn seen(vm: &RunningVm, client: &VmClient) -> Option<Binding> {
    let mut policies: Vec<String> = Vec::new();
    for region in &client.regions {
        let mappings = linux::memory::mappings(vm.key.pid, &region.addresses).ok().flatten()?;
        policies.extend(mappings.into_iter().map(|mapping| mapping.policy));
    }
    policies.dedup();
    let [policy] = &policies[..] else { return None };
    let (kind, nodes) = policy.split_once(':')?;
    let kind = kind.split(['=', ' ']).next().unwrap_or(kind);
    let mode = match kind {
        "bind" => "strict",
        "prefer" | "prefer (many)" => "preferred",
        "interleave" | "weighted interleave" => "interleave",
        _ => return None,
    };
    let nodes: NodeSet = nodes.parse().ok()?;
    (!nodes.is_empty()).then(|| Binding { mode: mode.to_owned(), nodes })
}

fn huge_pages(command: &CommandLine) -> Vec<HugePages> {
    let node_of = |id: &str| command.nodes.values().find(|node| node.backends.iter().any(|backend| backend == id));
    let pages = |backend: &Backend| {
        let size = backend.huge_page_size?;
        matches!(backend.kind, BackendKind::Memfd { huge: true }).then(|| HugePages {
            size: Some(size),
            cells: node_of(&backend.id).map(|node| [topology::NodeId(node.id)].into_iter().collect()),
        })
    };
    command.backends.iter().filter_map(pages).collect()
}

/// Threads of iothreads, numbered in their order.
fn numbered_iothreads(vm: &RunningVm) -> BTreeMap<u32, u32> {
    let io =
        vm.threads.others.iter().filter(|(_, name, kind)| *kind == ThreadKind::Io && !name.contains("mon_iothread"));
    (1..).zip(io.map(|(id, ..)| *id)).collect()
}

fn process(vm: &RunningVm, command: &CommandLine) -> ProcessFacts {
    let own = |kind: &ThreadKind| matches!(kind, ThreadKind::Main | ThreadKind::Worker);
    let kind = |backend: &Backend| match backend.kind {
        BackendKind::Anonymous => "memory-backend-ram",
        BackendKind::Memfd { .. } => "memory-backend-memfd",
        BackendKind::File { .. } => "memory-backend-file",
    };
    let of_node = |node: &NumaNode| {
        let backend = command.backend(node.backends.first()?)?;
        Some((node.id, (kind(backend).to_owned(), backend.id.clone())))
    };
    let mut backends: BTreeMap<u32, (String, String)> = command.nodes.values().filter_map(of_node).collect();
    if let Some(backend) = command.main_backend.as_deref().and_then(|id| command.backend(id)) {
        backends.insert(0, (kind(backend).to_owned(), backend.id.clone()));
    }
    ProcessFacts {
        pid: vm.key.pid,
        vcpu_threads: vm.threads.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.thread_id)).collect(),
        emulator_threads: vm.threads.others.iter().filter(|(.., kind)| own(kind)).map(|(id, ..)| *id).collect(),
        iothreads: numbered_iothreads(vm),
        backends,
    }
}

fn spots(vm: &RunningVm, command: &CommandLine) -> Spots {
    let mut spots = BTreeMap::new();
    let mut add = |part: Part, at: String| {
        spots.insert(part, Spot { at, line: None });
    };
    for (part, option) in [
        (Part::Vcpus, "-smp"),
        (Part::Topology, "-smp"),
        (Part::Memory, "-m"),
        (Part::Cache, "-cpu"),
        (Part::HugePages, "-object memory-backend"),
    ] {
        add(part, option.to_owned());
    }
    for vcpu in &vm.threads.vcpus {
        add(Part::VcpuPin(vcpu.index), format!("thread {} (vCPU {})", vcpu.thread_id, vcpu.index));
    }
    add(Part::Emulator, format!("process {}", vm.key.pid));
    for (id, thread) in numbered_iothreads(vm) {
        add(Part::Iothread(id), format!("thread {thread} (iothread)"));
    }
    for node in command.nodes.values() {
        add(Part::Cell(node.id), format!("-numa node,nodeid={}", node.id));
        if !node.distances.is_empty() {
            add(Part::Distances(node.id), format!("-numa dist,src={}", node.id));
        }
        if let Some(backend) = node.backends.first() {
            add(Part::MemoryNode(node.id), format!("-object id={backend}"));
        }
    }
    if let Some(backend) = &command.main_backend {
        add(Part::MemoryNode(0), format!("-object id={backend}"));
    }
    Spots(spots)
}
