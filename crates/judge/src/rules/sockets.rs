//! Sockets that the guest's system does not use.

use crate::finding::{Aspect, Finding, Harm};
use crate::guest_system::{self, GuestSystem};
use crate::scene::Scene;
use crate::shaped::Part;
use topology::words::count;

const LICENSED: &str = "vCPUs in sockets beyond that are listed and do no work: the limit is of the licence, and cores \
    of a socket are not limited";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    unused(scene).into_iter().collect()
}

/// More sockets than the system uses: a note where only vCPUs are in them that come later.
fn unused(scene: &Scene<'_>) -> Option<Finding> {
    let vm = scene.vm;
    let most = vm.guest_system.most_sockets().filter(|&most| vm.guest.sockets > most && !vm.guest_unknown)?;
    let in_use = guest_system::sockets_in_use(vm);
    let who = match vm.guest_system {
        GuestSystem::WindowsServer => "a Windows Server",
        GuestSystem::WindowsDesktop => "a desktop Windows",
        _ => "a Windows (unless it is a Server)",
    };
    let told = vm.guest.sockets;
    let sentence =
        format!("its guest is {who}, which uses {}, and it is told of {told}", count(most as usize, "socket"));
    let used = most * vm.vcpus / told.max(1);
    let seen = format!("{used} of {} are in the sockets that it uses", count(vm.vcpus as usize, "vCPU"));
    let found = Finding::new("sockets_unused", Harm::Misled, sentence, LICENSED).seen(seen);
    let found = found.at(scene.spots([Part::Topology, Part::Vcpus]).into_iter().take(1));
    let found = if in_use > most { found } else { found.note() };
    let target = scene.target.as_ref().ok()?;
    let then = target.guest.sockets;
    if then > most || target.guest == vm.guest {
        let mut found = found;
        found.cure.advice =
            "give it virtual nodes with an equal number of vCPUs, so that larger sockets fit into them \
            (QEMU's sockets are all alike)"
                .to_owned();
        return Some(found);
    }
    let advice = format!("tell it of {}: the other vCPUs become cores of them", count(then as usize, "socket"));
    Some(found.cure(advice, &[Aspect::Topology]))
}
