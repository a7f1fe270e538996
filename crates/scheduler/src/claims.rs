//! What a VM's word is worth: how much of what it claims counts, by who owns it.
//!
//! **Problem.** What is promised to a VM and not touched yet is missing from everybody else's
//! plans. But every user can start a process that says it is a VM of 100 TiB with 4096 vCPUs.
//!
//! **Rule.** Root, libvirt's system service and whoever looks are believed. A VM of another user
//! ([`VmObservation::stranger`]) counts with what it holds, and with what it claims only as far as
//! it has mapped that, its cgroup's limit and the machine's memory allow it. Of its vCPUs as many
//! count as have a thread, and no more than the machine has CPUs; those of one user together take
//! no more of a node than its hardware threads. The claims of strangers are kept apart by user
//! ([`Claims`]): a VM that does not fit beside them is planned once more without, and its plan says
//! so ([`left_out`]). In the balancer a stranger's claims bind VMs of the same user only.
//!
//! **Properties.** No claim of a stranger turns a plan into a refusal. A node never holds less than
//! what is resident there. Without strangers nothing is different.
//!
//! **Example.** A node has 10 GiB free. User 1001 runs a VM of 64 GiB that has mapped all of it and
//! touched 1 GiB: 63 GiB are claimed there, and nothing seems left. A VM of 8 GiB is planned all
//! the same, with the warning that user 1001's claims were left out; one of 11 GiB is refused.

use crate::holding::holdings;
use crate::{ClientObservation, Occupancy, VmObservation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, Machine, NodeId};

/// Users that a warning names; the others are counted.
const NAMED: usize = 3;

/// What the VMs of one user claim beyond what they hold. Nobody vouches for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The user; `None` where it could not be read.
    pub user: Option<u32>,
    /// Memory that its VMs say they may have.
    pub said: Bytes,
    /// Of that, what they have.
    pub resident: Bytes,
    /// Part of each node's [`vm::NodeUse::memory`] that is only claimed.
    pub by_node: BTreeMap<NodeId, Bytes>,
}

impl Occupancy {
    /// The same without what strangers only claim.
    pub fn without_claims(&self) -> Self {
        let mut nodes = self.nodes.clone();
        for (node, claimed) in self.claims.iter().flat_map(|claims| &claims.by_node) {
            let Some(held) = nodes.get_mut(node) else { continue };
            held.memory = held.memory.saturating_sub(*claimed).max(held.resident);
        }
        Self { nodes, claims: Vec::new(), ..self.clone() }
    }

    /// Adds what VMs of strangers hold and claim, user by user.
    pub(crate) fn hold_strangers(&mut self, strangers: &[&VmObservation], machine: &Machine) {
        let mut by_user = BTreeMap::<Option<u32>, Vec<&VmObservation>>::new();
        for vm in strangers {
            by_user.entry(vm.owner_uid).or_default().push(vm);
        }
        for (user, vms) in by_user {
            let mut held = Self::of_running(holdings(&vms, machine), machine);
            for (node, held) in &mut held.nodes {
                held.vcpus = held.vcpus.min(machine.usable_cpus(*node).len() as u32);
            }
            let said = vms.iter().flat_map(|vm| &vm.clients).map(|client| client.memory_size).sum();
            let resident = held.nodes.values().map(|held| held.resident).sum();
            let by_node =
                held.nodes.iter().map(|(node, held)| (*node, held.memory.saturating_sub(held.resident))).collect();
            self.hold(&held.nodes);
            self.claims.push(Claims { user, said, resident, by_node });
        }
    }

    /// Adds memory to what a user's VMs only claim of a node.
    pub(crate) fn claim(&mut self, user: Option<u32>, node: NodeId, memory: Bytes) {
        let held = self.nodes.entry(node).or_default();
        held.memory = held.memory.saturating_add(memory);
        if let Some(claims) = self.claims.iter_mut().find(|claims| claims.user == user) {
            let claimed = claims.by_node.entry(node).or_default();
            *claimed = claimed.saturating_add(memory);
        }
    }
}

/// What a plan says that was made without the claims of strangers: `claims of others were left out:
/// user 1001's VMs claim 100 TiB and hold 12 MiB`. `None` where nobody claims anything.
pub(crate) fn left_out(claims: &[Claims]) -> Option<String> {
    let mut claims: Vec<&Claims> = claims.iter().filter(|claims| claims.said > claims.resident).collect();
    claims.sort_by_key(|claims| std::cmp::Reverse(claims.said));
    let one = |claims: &&Claims| {
        let user = claims.user.map_or_else(|| "an unknown user".to_owned(), |user| format!("user {user}"));
        format!("{user}'s VMs claim {} and hold {}", claims.said, claims.resident)
    };
    let mut named: Vec<String> = claims.iter().take(NAMED).map(one).collect();
    if claims.len() > NAMED {
        named.push(format!("so do VMs of {} more users", claims.len() - NAMED));
    }
    let all = named.join("; ");
    (!named.is_empty()).then(|| format!("it does not fit beside what others claim: {all}: counted at what they hold"))
}

/// Memory of a client that counts: what is resident, and its part of what counts of its VM's word.
///
/// Example: a VM of two clients of 8 GiB each has mapped 10 GiB; the first has touched 4 GiB: of 12
/// untouched GiB 6 count, so that the first client counts 4 + 2, the second 4.
pub(crate) fn memory(vm: &VmObservation, client: &ClientObservation, machine: &Machine) -> Bytes {
    if !vm.stranger {
        return client.memory_size;
    }
    let resident = |client: &ClientObservation| match (&client.memory, client.resident) {
        (Some(by_node), _) => by_node.values().copied().sum(),
        (None, resident) => resident.unwrap_or_default().min(client.memory_size),
    };
    let untouched = |client: &ClientObservation| client.memory_size.saturating_sub(resident(client)).0;
    let of_machine = machine.nodes.iter().map(|node| node.memory).sum();
    let limit = vm.limits.as_ref().and_then(|limits| limits.memory_max);
    let most = [vm.mapped, limit].into_iter().flatten().fold(of_machine, Bytes::min);
    let open = most.saturating_sub(vm.clients.iter().map(resident).sum()).0;
    let claimed: u128 = vm.clients.iter().map(|client| u128::from(untouched(client))).sum();
    let own = u128::from(untouched(client));
    let part = if claimed <= u128::from(open) { own } else { own * u128::from(open) / claimed };
    resident(client).saturating_add(Bytes(part as u64))
}

/// vCPUs of a client that count on a host with `cpus` hardware threads.
pub(crate) fn vcpus(vm: &VmObservation, client: &ClientObservation, cpus: usize) -> u32 {
    if !vm.stranger {
        return client.vcpus;
    }
    // Under emulation one thread may run all of them, and its memory is where that runs.
    let threads = client.vcpu_threads.unwrap_or(client.vcpus).max(1);
    client.vcpus.min(threads).min(u32::try_from(cpus).unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
