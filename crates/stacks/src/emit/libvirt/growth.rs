//! What a domain says of a VM that may grow.

use super::super::common::may_grow;
use super::xml::Element;
use super::{Emission, Loss, kib, memory};
use topology::{CpuId, CpuSet};
use vm::{Plan, VmSpec};

/// Places for memory devices, as of `homenode run`.
pub(crate) const MEMORY_SLOTS: u32 = 32;

/// All memory that the VM may have.
pub(super) fn most_memory(plan: &Plan) -> Option<Element> {
    let growth = plan.topology.nodes.iter().map(|node| node.growth).sum();
    let most = memory(plan).saturating_add(growth);
    (most > memory(plan)).then(|| kib("maxMemory", most).with("slots", MEMORY_SLOTS))
}

/// Places for memory devices that are plugged in later, two for each virtual node that may grow, as
/// of `homenode run`: libvirt itself leaves one, and plugs no second device in. The devices of the
/// start take the first ones.
pub(super) fn ports(spec: &VmSpec, plan: &Plan) -> Vec<Element> {
    let nodes = plan.topology.nodes.iter().filter(|node| node.growth.0 > 0).count();
    if nodes == 0 {
        return Vec::new();
    }
    // The port of homenode's agent has a controller of its own.
    let at_start = spec.disks.len() + spec.networks.len() + 1;
    let root = Element::new("controller").with("type", "pci").with("index", 0).with("model", "pcie-root");
    let port =
        |index| Element::new("controller").with("type", "pci").with("index", index).with("model", "pcie-root-port");
    std::iter::once(root).chain((1..=at_start + 2 * nodes).map(port)).collect()
}

/// Which vCPUs are there at power-on. QEMU starts with the first ones of the first node; libvirt
/// plugs in the others before the guest runs.
pub(super) fn vcpus(plan: &Plan) -> Option<Element> {
    let nodes = &plan.topology.nodes;
    if nodes.iter().all(|node| node.absent.is_empty()) {
        return None;
    }
    let each = nodes
        .iter()
        .enumerate()
        .flat_map(|(index, node)| node.vcpus.iter().map(move |vcpu| (*vcpu, !node.absent.contains(vcpu), index > 0)));
    let mut each: Vec<(u32, bool, bool)> = each.collect();
    each.sort_unstable();
    let yes = |holds: bool| if holds { "yes" } else { "no" };
    let vcpu = |(id, enabled, later): (u32, bool, bool)| {
        let element = Element::new("vcpu").with("id", id).with("enabled", yes(enabled));
        element.with("hotpluggable", yes(later || !enabled))
    };
    Some(Element::holding("vcpus", each.into_iter().map(vcpu)))
}

/// libvirt grows a VM when it is told to, and node by node.
pub(super) fn loss(emission: &Emission<'_>) -> Option<Loss> {
    let plan = emission.plan;
    let next: CpuSet =
        plan.topology.nodes.iter().filter_map(|node| node.absent.first()).map(|&vcpu| CpuId(vcpu)).collect();
    may_grow(plan).then(|| {
        let told = || format!("`virsh setvcpu` plugs in the one that it is told: first {next}, one for each node. ");
        let which = if next.is_empty() { String::new() } else { told() };
        Loss::new(
            "libvirt does not choose the virtual nodes that grow: `virsh setvcpus` takes the lowest numbers first.",
            format!("A guest's nodes become uneven. {which}Memory is added by a <memory> device that names its node."),
        )
    })
}
