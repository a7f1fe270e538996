//! Where the clients of a VM live now: a balancer may have moved them since its placement was
//! written down.
//!
//! **Rule.** The kernel knows: where the vCPUs of a client may run is its home. A client whose
//! threads may use what its placement says is where it was; of any other the nodes of its CPUs are
//! its home, in the same policy. Where nobody can see its threads, the placement holds, and so it
//! does for a client all of whose vCPUs are still to be plugged in.
//!
//! **Example.** A client was placed on node 0; its threads may run on the CPUs of node 2 now. What
//! is added to it goes to node 2.

use crate::{VmObservation, home};
use std::collections::BTreeMap;
use topology::{CpuSet, Machine};
use vm::{Client, Placement};

/// The placement, brought up to what was seen of the VM.
pub fn present_homes(machine: &Machine, seen: &VmObservation, placement: &Placement) -> Placement {
    // One thread runs the vCPUs of all clients: it may use the CPUs of each.
    if seen.clients.len() < placement.clients.len() {
        return placement.clone();
    }
    let clients = placement.clients.iter().map(|client| present(machine, seen, client));
    Placement { clients: clients.collect() }
}

fn present(machine: &Machine, seen: &VmObservation, client: &Client) -> Client {
    // Without virtual nodes there is one client, and what is seen is about it.
    let is_of = |virtual_node: Option<u32>| virtual_node.is_none_or(|node| client.virtual_nodes.contains(&node));
    // Of one without vCPUs only QEMU's own threads are seen, which may use the CPUs of all.
    let own = seen.clients.iter().filter(|seen| is_of(seen.virtual_node) && seen.vcpus > 0);
    let cpus = own.fold(CpuSet::new(), |all, seen| all.union(&seen.cpus));
    let home = home::nodes_of(machine, &cpus);
    let of_placement = home::nodes_of(machine, &client.cpus);
    if home.is_empty() || cpus == client.cpus || (home == of_placement && client.divides_its_cpus()) {
        return client.clone();
    }
    Client { home, cpus, vcpu_cpus: BTreeMap::new(), groups: Vec::new(), ..client.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientObservation, VmKey};
    use vm::MemoryPolicy;

    fn machine() -> Machine {
        topology::read::from_synthetic("pack:3 [numa(memory=8GiB)] core:4 pu:1").unwrap()
    }

    fn client(id: u32, home: &str, cpus: &str) -> Client {
        Client {
            id,
            virtual_nodes: vec![id],
            home: home.parse().unwrap(),
            cpus: cpus.parse().unwrap(),
            memory_policy: MemoryPolicy::Bind,
            vcpu_cpus: BTreeMap::new(),
            groups: Vec::new(),
            far: Vec::new(),
        }
    }

    fn seen(clients: &[(Option<u32>, &str)]) -> VmObservation {
        let client = |&(virtual_node, cpus): &(Option<u32>, &str)| ClientObservation {
            virtual_node,
            vcpus: 4,
            cpus: cpus.parse().unwrap(),
            ..ClientObservation::default()
        };
        VmObservation::of_clients(VmKey::default(), clients.iter().map(client).collect())
    }

    #[test]
    fn a_client_that_was_moved_is_where_its_threads_may_run() {
        let placement = Placement { clients: vec![client(0, "0", "0-3"), client(1, "1", "4-7")] };
        let now = present_homes(&machine(), &seen(&[(Some(0), "8-11"), (Some(1), "4-7")]), &placement);
        assert_eq!(now.clients[0], client(0, "2", "8-11"));
        assert_eq!(now.clients[1], placement.clients[1]);
    }

    #[test]
    fn what_nobody_can_see_is_where_it_was_placed() {
        // Memory of client 0 spills over to node 1, where it has no CPU.
        let placement = Placement { clients: vec![client(0, "0-1", "0-3"), client(1, "1", "4-7")] };
        assert_eq!(present_homes(&machine(), &seen(&[(Some(0), "0-3"), (Some(1), "")]), &placement), placement);
        // Client 1 has no vCPU yet: QEMU may use the CPUs of both.
        let mut none_yet = seen(&[(Some(0), "0-3"), (Some(1), "0-7")]);
        none_yet.clients[1].vcpus = 0;
        assert_eq!(present_homes(&machine(), &none_yet, &placement), placement);
        // One thread for all vCPUs may use the CPUs of both.
        assert_eq!(present_homes(&machine(), &seen(&[(None, "0-7")]), &placement), placement);
    }
}
