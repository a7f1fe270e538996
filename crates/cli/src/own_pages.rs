//! Huge pages that a VM holds whose definition is judged.
//!
//! **Problem.** A VM that runs has taken its pages out of what is free of the pools. Its
//! definition, held against what is free, would seem to lack them.
//!
//! **Rule.** What VMs hold that are judged themselves counts as free for them.

use scheduler::Observation;
use topology::Machine;

/// Counts the pages of these VMs as free again.
pub(crate) fn give_back(machine: &mut Machine, running: &Observation, is_judged: impl Fn(&str) -> bool) {
    let judged = running.vms.iter().filter(|seen| is_judged(&seen.vm.name));
    for client in judged.flat_map(|seen| &seen.clients) {
        let Some(page) = client.huge_page_size.filter(|page| page.0 > 0) else { continue };
        for (&at, bytes) in client.memory.iter().flatten() {
            let node = machine.nodes.iter_mut().find(|node| node.id == at);
            let pools = node.into_iter().flat_map(|node| &mut node.huge_pages);
            for pool in pools.filter(|pool| pool.page_size == page) {
                pool.free = pool.free.saturating_add(bytes.0 / page.0).min(pool.total);
            }
        }
    }
}
