//! The system that a guest runs, as far as it matters for what it is told of its sockets.
//!
//! **Problem.** A desktop Windows works with two sockets at most, whatever it is told of: of 16
//! vCPUs in 16 sockets 14 do nothing.
//!
//! **Rule.** What names the system says which it is: libosinfo's metadata, Proxmox VE's `ostype`.
//! Enlightenments of Hyper-V alone say that it is a Windows of some kind, which counts as a desktop
//! until somebody says that it is a server. Sockets beyond what the system uses become cores.
//!
//! **Properties.** vCPUs and threads of a core stay. No socket, and no die of one, lies in two
//! virtual nodes.
//!
//! **Example.** 16 sockets of 1 core become 1 socket of 16 cores; with two virtual nodes of 8
//! vCPUs, 2 sockets of 8; with four of 4, 2 sockets of 2 dies of 4.
//!
//! Source: Microsoft's limits of Windows 10 and 11 (Pro: 2 sockets) and of Windows Server (64).

use crate::shape;
use crate::shaped::ShapedVm;
use vm::qemu::GuestCpus;

/// The system that a guest runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GuestSystem {
    /// Nobody says.
    #[default]
    Unknown,
    /// A Windows; whether a desktop or a server, nobody says.
    Windows,
    /// A Windows for desktops: 7, 8, 10, 11.
    WindowsDesktop,
    /// A Windows Server.
    WindowsServer,
    /// Another system.
    Other,
}

impl GuestSystem {
    /// Most sockets that it works with; `None`: all that there are.
    pub fn most_sockets(self) -> Option<u32> {
        match self {
            Self::Windows | Self::WindowsDesktop => Some(2),
            Self::WindowsServer => Some(64),
            Self::Unknown | Self::Other => None,
        }
    }
}

/// Sockets in which vCPUs are that the VM starts with, or has.
pub(crate) fn sockets_in_use(vm: &ShapedVm) -> u32 {
    let GuestCpus { dies, cores, threads, .. } = vm.guest;
    let per_socket = (dies.max(1) * cores.max(1) * threads.max(1)).max(1);
    let there = vm.numbers().difference(&vm.absent);
    let mut sockets: Vec<u32> = there.iter().map(|vcpu| vcpu.0 / per_socket).collect();
    sockets.dedup();
    sockets.len() as u32
}

/// The guest's CPUs in no more sockets than its system uses; `None` where they are, or where its
/// virtual nodes leave no room for larger ones.
pub(crate) fn in_few_sockets(vm: &ShapedVm, told: GuestCpus) -> Option<GuestCpus> {
    let most = vm.guest_system.most_sockets().filter(|&most| told.sockets > most)?;
    let group = shape::largest_socket(vm);
    let groups = vm.vcpus / group.max(1);
    if !vm.vcpus.is_multiple_of(group.max(1)) || (group == 1 && groups > most) {
        return None;
    }
    let sockets = (1..=most).rev().find(|&sockets| groups.is_multiple_of(sockets))?;
    let threads = if group.is_multiple_of(told.threads.max(1)) { told.threads.max(1) } else { 1 };
    Some(GuestCpus { sockets, dies: groups / sockets, cores: group / threads, threads, caches: told.caches })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaped::ShapedNode;

    fn vm(system: GuestSystem, nodes: &[&str], told: GuestCpus) -> ShapedVm {
        let node = |(id, vcpus): (usize, &&str)| {
            let vcpus = vcpus.parse().expect("a set");
            ShapedNode { id: id as u32, vcpus, ..ShapedNode::default() }
        };
        let nodes: Vec<ShapedNode> = nodes.iter().enumerate().map(node).collect();
        let vcpus = nodes.iter().map(|node| node.vcpus.len() as u32).sum();
        let vnuma = nodes.len() > 1;
        ShapedVm { guest_system: system, vcpus, guest: told, vnuma, nodes, ..ShapedVm::default() }
    }

    fn cpus(sockets: u32, dies: u32, cores: u32, threads: u32) -> GuestCpus {
        GuestCpus { sockets, dies, cores, threads, ..GuestCpus::default() }
    }

    #[test]
    fn sockets_become_cores_and_stay_within_virtual_nodes() {
        let few = |system, nodes: &[&str], told| in_few_sockets(&vm(system, nodes, told), told);
        let desktop = GuestSystem::WindowsDesktop;
        let (each, halves) = (cpus(16, 1, 1, 1), ["0-7", "8-15"]);
        assert_eq!(few(desktop, &["0-15"], each), Some(cpus(1, 1, 16, 1)));
        assert_eq!(few(GuestSystem::Windows, &halves, each), Some(cpus(2, 1, 8, 1)));
        assert_eq!(few(desktop, &["0-3", "4-7", "8-11", "12-15"], each), Some(cpus(2, 2, 4, 1)));
        assert_eq!(few(desktop, &["0-3", "4-7", "8-11"], cpus(12, 1, 1, 1)), Some(cpus(1, 3, 4, 1)));
        assert_eq!(few(desktop, &halves, cpus(4, 1, 2, 2)), Some(cpus(2, 1, 4, 2)));
        // Nothing to change, or nothing that could be: sockets are all alike.
        assert_eq!(few(desktop, &["0-15"], cpus(2, 1, 8, 1)), None);
        assert_eq!(few(desktop, &["0-2", "3-6"], cpus(7, 1, 1, 1)), None);
        for system in [GuestSystem::WindowsServer, GuestSystem::Unknown, GuestSystem::Other] {
            assert_eq!(few(system, &["0-15"], each), None, "{system:?}");
        }
    }

    #[test]
    fn sockets_of_vcpus_that_are_plugged_in_later_are_not_in_use() {
        let all = vm(GuestSystem::Windows, &["0-15"], cpus(4, 1, 4, 1));
        let absent = "6-15".parse().expect("a set");
        assert_eq!((sockets_in_use(&all), sockets_in_use(&ShapedVm { absent, ..all })), (4, 2));
    }
}
