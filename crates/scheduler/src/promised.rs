//! Memory that VMs were promised of a node, for those who look: `top` and the judge.
//!
//! **Problem.** Memory that a guest takes when it touches it (`backing.fill = "on_touch"`, and most
//! VMs of libvirt) may be promised twice.
//!
//! **Rule.** What VMs and starts hold of a node by [`Occupancy`], less the VMs of which nobody can
//! say to which node their memory comes: those that keep to CPUs of several nodes, with memory that
//! is bound to none.
//!
//! **Example.** A VM of 16 GiB on node 1 that has touched 3 GiB is promised 16 GiB of node 1. One
//! that floats over all nodes is promised nothing of any.

use crate::{Holding, Observation, Occupancy, VmObservation, home};
use topology::Machine;

/// What VMs and starts were promised of each node.
pub fn promised(machine: &Machine, observation: &Observation) -> Occupancy {
    let mut occupancy = Occupancy::of_vms(observation.vms.iter().filter(|vm| keeps_to_nodes(machine, vm)), machine);
    occupancy.hold(&observation.reserved);
    occupancy
}

/// Whether it is known to which node the memory of each client comes.
pub fn keeps_to_nodes(machine: &Machine, vm: &VmObservation) -> bool {
    vm.clients.iter().all(|client| {
        !Holding::of(vm, client, machine).memory_weights.is_empty() || home::nodes_of(machine, &client.cpus).len() < 2
    })
}
