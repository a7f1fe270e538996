//! What a VM takes of the host beside its guest's memory, and what is left to others.
//!
//! **Problem.** A guest's memory is bound to its nodes and filled at once. Where it fills a node to
//! the brim, the kernel kills QEMU as soon as QEMU, or anybody else on that node, wants one page
//! more.
//!
//! **Rule.** Besides the guest's memory, QEMU's own ([`own_memory`]) must fit, and [`headroom`]
//! stays free.
//!
//! **Example.** A VM of one vCPU and 975 MiB takes 975 + 96 + 1 + 3.8 MiB. On a node of 1 GiB, 16
//! MiB stay free: of 995 MiB that are free there, a guest can have about 878.

use crate::QemuError;
use crate::reservation::Reserved;
use linux::LinuxError;
use linux::room::Room;
use scheduler::Occupancy;
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId};
use vm::{NodeUse, Plan, Shape};

/// Measured with QEMU 7.2: 73 MiB once a guest of one vCPU has booted under emulation, 28 MiB
/// before; and room for translated code to grow.
const BASE: Bytes = Bytes::from_mib(96);
/// A vCPU's stack and state. Measured: 92 MiB in all with 8 vCPUs.
const OF_A_VCPU: Bytes = Bytes::MIB;
/// Page tables of QEMU and of the nested paging: 8 bytes each for 4 KiB.
const OF_THE_GUESTS_MEMORY: u64 = 256;
/// Part of a node that others on the host keep, and the most that they keep.
const HEADROOM_PART: u64 = 64;
const MOST_HEADROOM: Bytes = Bytes::from_mib(512);

/// Memory that QEMU takes for itself, beside the guest's: an upper bound for a guest that has
/// booted.
pub fn own_memory(vcpus: u32, guest: Bytes) -> Bytes {
    let of_vcpus = Bytes(OF_A_VCPU.0.saturating_mul(u64::from(vcpus)));
    BASE.saturating_add(of_vcpus).saturating_add(Bytes(guest.0 / OF_THE_GUESTS_MEMORY))
}

/// Memory of a node, or of a host, with `memory` in all that VMs leave to everybody else.
pub fn headroom(memory: Bytes) -> Bytes {
    Bytes(memory.0 / HEADROOM_PART).min(MOST_HEADROOM)
}

/// Sets aside on each node what a VM of this shape takes there beside its guest's memory, so that
/// its plan leaves room for it.
pub fn set_aside(occupancy: &mut Occupancy, machine: &Machine, shape: &Shape) {
    let own = own_memory(shape.vcpus, shape.memory);
    let aside = |bytes: Bytes| NodeUse { memory: bytes, ..NodeUse::default() };
    let nodes = machine.nodes.iter().filter(|node| node.memory > Bytes(0));
    occupancy.hold(&nodes.map(|node| (node.id, aside(own.saturating_add(headroom(node.memory))))).collect());
}

/// Sets aside on each node what VMs leave there to everybody else.
pub fn leave_to_others(occupancy: &mut Occupancy, machine: &Machine) {
    let aside = |bytes: Bytes| NodeUse { memory: bytes, ..NodeUse::default() };
    occupancy.hold(&machine.nodes.iter().map(|node| (node.id, aside(headroom(node.memory)))).collect());
}

/// Memory of a plan's guest, and QEMU's own beside it.
fn of(plan: &Plan) -> (Bytes, Bytes) {
    let nodes = &plan.topology.nodes;
    let guest: Bytes = nodes.iter().map(|node| node.memory).sum();
    let vcpus: usize = nodes.iter().map(|node| node.present().count()).sum();
    (guest, own_memory(u32::try_from(vcpus).unwrap_or(u32::MAX), guest))
}

/// What of the host's memory is taken when VMs of a plan start: the part of [`of`] that is filled,
/// and QEMU's own.
fn taken(plan: &Plan) -> (Bytes, Bytes) {
    let (guest, own) = of(plan);
    (plan.backing.filled_at_start(guest), own)
}

/// What a planned VM will hold of each node: its guest's memory as planned, and QEMU's own in equal
/// parts on its homes.
pub(crate) fn reserved(plan: &Plan) -> Reserved {
    let mut holdings: BTreeMap<NodeId, NodeUse> = plan.holdings.clone();
    let (filled, own) = taken(plan);
    let part = own.0.div_ceil(holdings.len().max(1) as u64);
    holdings.values_mut().for_each(|held| held.memory = held.memory.saturating_add(Bytes(part)));
    Reserved {
        vm: plan.vm.clone(),
        holdings,
        taken: Some(filled.saturating_add(own)),
        huge_pages: plan.backing.huge_pages,
        bound_cpus: plan.bound_cpus(),
        caches: plan.vcpus_by_cache(),
    }
}

/// Whether what VMs with these plans take at their start fits into the host's memory now, beside
/// the `unfilled` memory of others that are being started: where there is none, the kernel kills
/// somebody. Memory that is taken on touch counts as nothing, and so do huge pages, which the host
/// set aside before.
///
/// # Errors
/// They do not fit, or the host does not say.
pub(crate) fn check(plans: &[&Plan], unfilled: Bytes) -> Result<(), QemuError> {
    check_in(plans, unfilled, linux::room::available)
}

fn check_in(
    plans: &[&Plan],
    unfilled: Bytes,
    room: impl FnOnce() -> Result<Room, LinuxError>,
) -> Result<(), QemuError> {
    let vm = plans.iter().map(|plan| plan.vm.as_str()).collect::<Vec<_>>().join(", ");
    let room = room().map_err(QemuError::host(&vm))?;
    let sum = |part: fn((Bytes, Bytes)) -> Bytes| plans.iter().map(|plan| part(taken(plan))).sum::<Bytes>();
    let (guest, own, headroom) = (sum(|of| of.0), sum(|of| of.1), headroom(room.total));
    let needed = [guest, own, headroom, unfilled].into_iter().fold(Bytes(0), Bytes::saturating_add);
    if needed <= room.available {
        return Ok(());
    }
    Err(QemuError::Memory { vm, needed, guest, own, headroom, unfilled, room })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    const MIB: fn(u64) -> Bytes = Bytes::from_mib;

    fn room(available: Bytes) -> impl FnOnce() -> Result<Room, LinuxError> {
        move || Ok(Room { total: MIB(1024), available, limited_by: None })
    }

    #[test]
    fn what_only_just_fits_is_refused_and_each_part_is_named() {
        // 975 + 96 + 1 + 975/256 (3.8) + 1024/64 (16) = 1091.8 MiB.
        let plan = samples::plan("a", 1, 1, 975);
        let text = check_in(&[&plan], Bytes(0), room(MIB(995))).unwrap_err().to_string();
        for part in ["VM a", "975 MiB", "995 MiB", "16 MiB", "QEMU itself"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(check_in(&[&plan], Bytes(0), room(MIB(1091))).is_err());
        assert!(check_in(&[&plan], Bytes(0), room(MIB(1092))).is_ok());
        let text = check_in(&[&plan], MIB(1), room(MIB(1092))).unwrap_err().to_string();
        assert!(text.contains("1 MiB for VMs that are being started"), "{text}");
    }

    #[test]
    fn what_is_not_filled_at_the_start_is_not_asked_of_the_host() {
        // 100 MiB are free: QEMU itself takes 96 + 1 + 1000/256 (3.9), of which 16 stay free.
        let mut plan = samples::plan("a", 1, 1, 1000);
        assert!(check_in(&[&plan], Bytes(0), room(MIB(117))).is_err());
        plan.backing.fill = vm::spec::Fill::OnTouch;
        assert!(check_in(&[&plan], Bytes(0), room(MIB(117))).is_ok());
        assert!(check_in(&[&plan], Bytes(0), room(MIB(116))).is_err());
        assert_eq!(reserved(&plan).to_fill().mib(), 100);
        plan.backing = vm::spec::Backing { huge_pages: Some(MIB(2)), ..Default::default() };
        assert!(check_in(&[&plan], Bytes(0), room(MIB(117))).is_ok());
    }

    #[test]
    fn a_limit_of_a_cgroup_is_named() {
        let limited = Room { total: MIB(100), available: MIB(90), limited_by: Some("/sys/fs/cgroup/job".into()) };
        let text = check_in(&[&samples::plan("a", 1, 1, 64)], Bytes(0), || Ok(limited)).unwrap_err().to_string();
        assert!(text.contains("/sys/fs/cgroup/job"), "{text}");
    }

    #[test]
    fn a_node_keeps_room_for_qemu_and_for_others() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=1GiB)] core:2 pu:1").unwrap();
        let mut spec = samples::spec("a", 1, 975);
        let mut occupancy = Occupancy::default();
        set_aside(&mut occupancy, &machine, &spec);
        // 975 MiB would leave 49 of 1024: QEMU itself needs 100.8, others keep 16.
        assert_eq!(occupancy.free_memory(&machine.nodes[0]).mib(), 907); // 1024 - 96 - 1 - 3.8 - 16
        let plan = scheduler::plan(&machine, &occupancy, &spec).unwrap();
        assert_eq!(plan.placement.clients.iter().map(|client| client.home.len()).sum::<usize>(), 2);
        spec.shape.memory = MIB(900);
        let plan = scheduler::plan(&machine, &occupancy, &spec).unwrap();
        assert_eq!(plan.placement.clients[0].home.to_string(), "0");
        // 900 + 96 + 1 + 900/256
        assert_eq!(reserved(&plan).memory().mib(), 1000);
        assert_eq!(reserved(&plan).to_fill().mib(), 1000);
    }
}
