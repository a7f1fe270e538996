//! What a VM that may grow has on its command line beyond what it starts with. Without growth there
//! is nothing of it.
//!
//! **vCPUs.** `-smp N,maxcpus=M` starts the first N. A virtual node must have its first ones, so
//! `-smp` has one, and the others that are there at power-on are devices, as those that are plugged
//! in later are. `-numa node,cpus=` names all that there may be.
//!
//! **Memory.** Devices take addresses between `size` and `maxmem`. A virtual node whose home moves
//! gets a new device for what is left of its growth, beside the one that it has: so there are
//! addresses for twice the growth.
//!
//! **Ports.** A q35 machine takes new PCI devices on its root ports only: virtio-mem is one.

use topology::Bytes;
use vm::manifest::DevicePlace;
use vm::qemu::{Backend, BackendKind, VcpuTopology, policy_word};
use vm::spec::Fill;
use vm::{Added, MemoryDeviceKind, Plan, VirtualTopology};

/// Places for DIMMs, each of which also has a GiB of addresses, for its alignment.
const DIMM_SLOTS: u32 = 32;
/// Functions of a PCI slot.
const FUNCTIONS: usize = 8;
/// Most root ports: they fill this many slots of 32, from the last but one down; disks and network
/// cards fill them from the first up.
const MOST_PORTS: usize = 4 * FUNCTIONS;
/// How the ids of root ports begin.
const PORT: &str = "hotplug";
/// The last PCI slot that is free: the one after it has the machine's own bridges.
const LAST_SLOT: usize = 0x1e;

/// All vCPUs that there may be, as `-smp` counts them.
pub(crate) fn vcpu_topology(topology: &VirtualTopology) -> VcpuTopology {
    let most = topology.nodes.iter().map(|node| node.vcpus.len()).sum::<usize>() as u32;
    let vcpus = if grows_vcpus(topology) { 1 } else { most };
    let VirtualTopology { sockets, dies_per_socket: dies, threads_per_core: threads, .. } = *topology;
    VcpuTopology { vcpus, most, sockets, dies, clusters: 1, cores: topology.cores_per_socket / dies.max(1), threads }
}

fn grows_vcpus(topology: &VirtualTopology) -> bool {
    topology.nodes.iter().any(|node| !node.absent.is_empty())
}

/// Memory that may be plugged in, on all virtual nodes.
fn growth(topology: &VirtualTopology) -> Bytes {
    topology.nodes.iter().map(|node| node.growth).sum()
}

/// The vCPUs that are there at power-on, but the first, as devices. `model` is the value of `-cpu`.
pub(super) fn vcpu_devices(topology: &VirtualTopology, model: &str) -> impl Iterator<Item = String> {
    let shape = vcpu_topology(topology);
    let driver = format!("{}-x86_64-cpu", model.split(',').next().unwrap_or(model));
    let present = topology.nodes.iter().flat_map(|node| node.present());
    present.filter(move |&vcpu| vcpu >= shape.vcpus).map(move |vcpu| shape.device(&driver, vcpu))
}

/// The vCPUs that were plugged in since power-on, as devices, in the order in which they were.
pub(super) fn plugged_vcpus(added: &Added, topology: &VirtualTopology, model: &str) -> impl Iterator<Item = String> {
    let shape = vcpu_topology(topology);
    let driver = format!("{}-x86_64-cpu", model.split(',').next().unwrap_or(model));
    added.vcpus.iter().map(move |&vcpu| shape.device(&driver, vcpu))
}

/// Memory that was plugged in since power-on, bound to where it belongs now: backends and devices,
/// in the order in which they were plugged, each at its place. Where that is not known, the first
/// virtio-mem device has the first port, and so on, and QEMU chooses the addresses.
pub(super) fn plugged_memory(added: &Added, places: &[DevicePlace], plan: &Plan, numa: bool) -> Vec<(String, String)> {
    let mut ports = 0..;
    let mut both = Vec::new();
    for device in &added.memory {
        let client = plan.client_of(device.virtual_node);
        let bound = client.and_then(|client| Some((client, policy_word(client.memory_policy)?)));
        let huge = plan.backing.huge_pages;
        let filled = huge.is_some() || (bound.is_some() && plan.backing.fill == Fill::AtStart);
        let by_kernel = bound.filter(|_| numa);
        let is_dimm = device.kind == MemoryDeviceKind::Dimm;
        let backend = Backend {
            id: device.backend(),
            kind: huge.map_or(BackendKind::Anonymous, |_| BackendKind::Memfd { huge: true }),
            size: device.size,
            huge_page_size: huge,
            host_nodes: by_kernel.map(|(client, _)| client.bound_to()).unwrap_or_default(),
            policy: by_kernel.map(|(_, policy)| policy.to_owned()),
            prealloc: is_dimm && filled,
            prealloc_threads: None,
        };
        let (id, memdev, node) = (&device.id, device.backend(), device.virtual_node);
        let place = places.iter().find(|place| place.id == device.id);
        let at = |name: &str| place.map(|place| format!(",{name}={:#x}", place.address)).unwrap_or_default();
        let common = format!("id={id},memdev={memdev},node={node}");
        both.push(if is_dimm {
            (backend.option(), format!("pc-dimm,{common}{}", at("addr")))
        } else {
            // What the guest has not taken costs nothing.
            let object = backend.option() + ",reserve=off";
            let next = ports.next().unwrap_or_default();
            let bus = port_id(place.and_then(|place| place.port).unwrap_or(next));
            let (asked, filled) = (device.requested.0, if filled { "on" } else { "off" });
            let memaddr = at("memaddr");
            (object, format!("virtio-mem-pci,{common}{memaddr},bus={bus},requested-size={asked},prealloc={filled}"))
        });
    }
    both
}

/// The value of `-m` where memory may be plugged in.
pub(super) fn memory(topology: &VirtualTopology) -> Option<String> {
    let growth = growth(topology).mib();
    let size: u64 = topology.nodes.iter().map(|node| node.memory.mib()).sum();
    (growth > 0).then(|| format!("size={size}M,slots={DIMM_SLOTS},maxmem={}M", size + 2 * growth))
}

/// The bus that a memory device is plugged into.
pub(crate) fn port_id(number: u32) -> String {
    format!("{PORT}{number}")
}

/// The number of a bus that memory devices are plugged into.
pub(crate) fn port_number(id: &str) -> Option<u32> {
    id.strip_prefix(PORT)?.parse().ok()
}

/// How many there are: each virtual node that may grow has two, as far as there are places.
pub(crate) fn port_count(topology: &VirtualTopology) -> usize {
    let nodes = topology.nodes.iter().filter(|node| node.growth.0 > 0).count();
    (2 * nodes).min(MOST_PORTS)
}

/// How many disks and network cards there is a PCI slot for: the machine has slots 1 to
/// [`LAST_SLOT`], less those of the root ports and one for the link to the agent.
pub(crate) fn device_places(topology: &VirtualTopology) -> usize {
    LAST_SLOT - port_count(topology).div_ceil(FUNCTIONS) - 1
}

/// Root ports for memory devices that are plugged in later.
pub(super) fn ports(topology: &VirtualTopology) -> impl Iterator<Item = String> {
    (0..port_count(topology)).map(|number| {
        let (slot, function) = (LAST_SLOT - number / FUNCTIONS, number % FUNCTIONS);
        // What is plugged in has no I/O ports, of which there are too few for many bridges.
        format!(
            "pcie-root-port,id={},bus=pcie.0,addr={slot:x}.{function},multifunction=on,chassis={},slot={},io-reserve=0",
            port_id(number as u32),
            number + 1,
            number + 1
        )
    })
}
