//! Whether a VM's virtual nodes and sockets can be right on a machine at all.

use crate::scene::NodeView;
use crate::shaped::{ShapedNode, ShapedVm};
use scheduler::home;
use topology::{CpuId, CpuSet, LlcId, Machine};
use vm::Plan;
use vm::qemu::GuestCaches;
use vm::qemu::GuestCpus;

/// What is to be done about a VM's virtual nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// They can stay.
    Sound,
    /// One is larger than any node of the machine, and others would fit.
    TooLarge,
    /// No virtual socket can be cut so that it lies in one of them: their vCPUs are not in a row.
    Scattered,
}

/// Whether the guest is told of threads, also once its sockets are whole.
pub(crate) fn told_of_threads(machine: &Machine, vm: &ShapedVm) -> bool {
    vm.guest.threads > 1 && whole_sockets(machine, vm).threads > 1
}

/// Whether it is sized by hardware threads: the guest is told of them, or somebody said so of a VM
/// that runs (`prefer_ht`).
pub(crate) fn prefers_threads(machine: &Machine, vm: &ShapedVm) -> bool {
    vm.running.as_ref().is_some_and(|running| running.seen.prefer_ht) || told_of_threads(machine, vm)
}

/// Whether hardware threads count, not cores: it is sized by them, or somebody put each part of it
/// on one node that holds it so.
pub(crate) fn counts_threads(machine: &Machine, vm: &ShapedVm, views: &[NodeView<'_>]) -> bool {
    prefers_threads(machine, vm)
        || (!views.is_empty() && views.iter().all(|view| view.bound && view.runs_on.len() == 1))
}

/// Whether some node of the machine holds what is there of the virtual node.
pub(crate) fn holds(machine: &Machine, vm: &ShapedVm, node: &ShapedNode, by_threads: bool) -> bool {
    let (vcpus, memory) = (vm.present_of(node), node.present_memory());
    machine.nodes.iter().any(|host| home::fits(machine, host.id, vcpus, memory, by_threads))
}

pub(crate) fn fit(machine: &Machine, vm: &ShapedVm, views: &[NodeView<'_>], ideal: &Plan) -> Fit {
    let by_threads = counts_threads(machine, vm, views);
    let too_large = vm.nodes.iter().any(|node| !holds(machine, vm, node, by_threads));
    let better = has_homes(machine, ideal) || ideal.topology.nodes.len() > vm.nodes.len();
    let has_all = vm.nodes.iter().all(|node| !node.vcpus.is_empty() && node.memory.0 > 0);
    if too_large && has_all && better && ideal.topology.exposed {
        return Fit::TooLarge;
    }
    let scattered = vm.vnuma && vm.nodes.len() > 1 && !blocks_lie_in_nodes(vm, common_divisor(vm)) && has_all;
    // Where each vCPU has a socket of its own nothing can be cut.
    if scattered && would_cross(machine, vm) { Fit::Scattered } else { Fit::Sound }
}

/// Whether each virtual node of a plan has one home, with a core for each vCPU.
fn has_homes(machine: &Machine, plan: &Plan) -> bool {
    let cores = |home: &topology::NodeSet| home.iter().map(|node| machine.usable_cores(node).len()).sum::<usize>();
    let mut placed = plan.topology.nodes.iter().zip(&plan.placement.clients);
    placed.all(|(node, client)| client.home.len() == 1 && cores(&client.home) >= node.vcpus.len())
}

/// A group of vCPUs that the guest takes to share a last-level cache, and that lies in several
/// virtual nodes. `host_cache_threads`: hardware threads under a cache of the machine.
pub(crate) fn crossing(vm: &ShapedVm, host_cache_threads: usize) -> Option<CpuSet> {
    if !vm.vnuma || vm.nodes.len() < 2 || vm.guest.caches == GuestCaches::Disabled {
        return None;
    }
    let lies_in_one = |group: &CpuSet| vm.nodes.iter().any(|node| group.is_subset(&node.vcpus));
    vm.cache_groups(host_cache_threads).into_iter().find(|group| !lies_in_one(group))
}

/// Whether a cache lies in several virtual nodes, or would, were the guest told of one for each
/// die.
pub(crate) fn would_cross(machine: &Machine, vm: &ShapedVm) -> bool {
    let guest = GuestCpus { caches: GuestCaches::OnePerDie, ..vm.guest };
    crossing(vm, cache_threads(machine, vm)).is_some()
        || crossing(&ShapedVm { guest, ..vm.clone() }, usize::MAX).is_some()
}

/// Hardware threads under the largest last-level cache; all that the VM has where the machine does
/// not say.
pub(crate) fn cache_threads(machine: &Machine, vm: &ShapedVm) -> usize {
    let of = |llc: LlcId| machine.threads.iter().filter(|thread| thread.llc == Some(llc)).count();
    let most = machine.llcs.iter().map(|llc| of(llc.id)).max();
    most.filter(|&threads| threads > 0).unwrap_or(vm.vcpus as usize)
}

/// The guest's CPUs in sockets of which none lies in two virtual nodes; as they are where that
/// holds already.
pub(crate) fn whole_sockets(machine: &Machine, vm: &ShapedVm) -> GuestCpus {
    let told = vm.guest;
    let per_socket = common_divisor(vm);
    if !would_cross(machine, vm) || !blocks_lie_in_nodes(vm, per_socket) {
        return told;
    }
    let threads = if per_socket.is_multiple_of(told.threads.max(1)) { told.threads.max(1) } else { 1 };
    GuestCpus { sockets: vm.vcpus / per_socket, dies: 1, cores: per_socket / threads, threads, caches: told.caches }
}

/// vCPUs of the largest socket of which each lies in one virtual node. Sockets are all alike: nodes
/// of 3 and 4 vCPUs take sockets of one.
pub(crate) fn largest_socket(vm: &ShapedVm) -> u32 {
    let size = common_divisor(vm);
    if blocks_lie_in_nodes(vm, size) { size } else { 1 }
}

/// The largest number of vCPUs that divides all virtual nodes.
fn common_divisor(vm: &ShapedVm) -> u32 {
    let sizes = vm.nodes.iter().map(|node| node.vcpus.len() as u32).filter(|&size| size > 0);
    scheduler::common_divisor(sizes).max(1)
}

fn blocks_lie_in_nodes(vm: &ShapedVm, size: u32) -> bool {
    // Of a VM that runs no vCPU of a block may be there.
    let numbers = vm.numbers();
    let beyond = numbers.iter().next_back().map_or(0, |last| last.0 + 1);
    (0..beyond).step_by(size.max(1) as usize).all(|start| {
        let block = (start..(start + size).min(beyond)).map(CpuId);
        let block: CpuSet = block.filter(|&vcpu| numbers.contains(vcpu)).collect();
        vm.nodes.iter().any(|node| block.is_subset(&node.vcpus))
    })
}
