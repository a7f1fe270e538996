//! No CPU and no byte is lost or counted twice.

use super::{Checker, Client, Found, Step};
use scheduler::{Action, Observation};
use std::collections::BTreeMap;
use topology::NodeId;

/// Rounding of sums of CPU time, in CPUs.
const ROUNDING: f64 = 1e-6;

type Memory = BTreeMap<(Client, NodeId), u64>;

fn memory(observation: &Observation) -> Memory {
    let mut memory = Memory::new();
    for vm in &observation.vms {
        for client in &vm.clients {
            for (&node, bytes) in client.memory.iter().flatten() {
                memory.insert(((vm.vm.clone(), client.id), node), bytes.0);
            }
        }
    }
    memory
}

fn by_client(memory: &Memory) -> BTreeMap<&Client, u64> {
    let mut sums = BTreeMap::new();
    for ((client, _), bytes) in memory {
        *sums.entry(client).or_default() += bytes;
    }
    sums
}

impl Checker {
    pub(super) fn conservation(&mut self, step: &Step<'_>, found: &mut Found) {
        self.bytes_of_nodes(step.before, found);
        self.bytes_of_nodes(step.after, found);
        bytes_of_actions(step, found);
        if let Some(last) = &self.last {
            bytes_of_time(last, step.before, found);
            cpus(last, step.before, self.moved_last, found);
        }
        let moved = |outcome: &(Action, Result<scheduler::Done, _>)| outcome.1.as_ref().map_or(0, |done| done.moved.0);
        self.moved_last = step.actions.iter().map(moved).sum();
    }

    /// What VMs have of a node and what is free are always the same in all.
    fn bytes_of_nodes(&mut self, observation: &Observation, found: &mut Found) {
        let mut held: BTreeMap<NodeId, u64> = BTreeMap::new();
        for ((_, node), bytes) in memory(observation) {
            *held.entry(node).or_default() += bytes;
        }
        for (&id, node) in &observation.nodes {
            let Some(free) = node.memory_free else { continue };
            let now = held.remove(&id).unwrap_or_default() + free.0;
            let total = *self.totals.entry(id).or_insert(now);
            found.unless(now == total, "bytes of a node", || {
                format!("node {id}: {now} B held and free, {total} B before")
            });
        }
        found.unless(held.values().all(|bytes| *bytes == 0), "bytes of a node", || {
            format!("nodes that are gone hold {held:?}")
        });
    }
}

/// An action moves what it says, within what was asked, and nothing else.
fn bytes_of_actions(step: &Step<'_>, found: &mut Found) {
    let mut expected = memory(step.before);
    for (action, outcome) in step.actions {
        let (Action::MoveMemory { vm, client, from, to, at_most }, Ok(done)) = (action, outcome) else { continue };
        found.unless(done.moved <= *at_most, "at most so much", || {
            format!("{}: {} of {at_most} moved", vm.name, done.moved)
        });
        let client = (vm.clone(), *client);
        let source = expected.entry((client.clone(), *from)).or_default();
        found.unless(*source >= done.moved.0, "bytes of an action", || {
            format!("{}: more moved than there was", vm.name)
        });
        *source = source.saturating_sub(done.moved.0);
        *expected.entry((client, *to)).or_default() += done.moved.0;
    }
    let is_there: BTreeMap<Client, u64> =
        by_client(&memory(step.after)).into_iter().map(|(client, sum)| (client.clone(), sum)).collect();
    // A VM that ended meanwhile took its memory with it.
    expected.retain(|(client, _), bytes| *bytes > 0 && is_there.contains_key(client));
    let after = memory(step.after);
    found.unless(expected == after, "bytes of an action", || {
        let wrong = expected.iter().find(|(key, bytes)| after.get(key) != Some(bytes));
        format!("memory is not where the actions put it: {wrong:?}")
    });
}

/// A VM's memory never shrinks by itself, nor grows beyond its size.
fn bytes_of_time(last: &Observation, now: &Observation, found: &mut Found) {
    let (before, after) = (memory(last), memory(now));
    let sums = by_client(&after);
    for (client, bytes) in by_client(&before) {
        let later = sums.get(client);
        let name = &client.0.name;
        found.unless(later.is_none_or(|later| *later >= bytes), "memory of a VM", || {
            format!("{name}: {bytes} B, then {later:?}")
        });
    }
    for vm in &now.vms {
        for client in &vm.clients {
            let resident: u64 = client.memory.iter().flatten().map(|(_, bytes)| bytes.0).sum();
            let size = client.memory_size.0;
            found.unless(resident <= size, "memory of a VM", || format!("{}: {resident} B of {size} B", vm.vm.name));
        }
    }
}

/// CPUs used by VMs are those used on nodes, and no more than there are.
fn cpus(last: &Observation, now: &Observation, moved: u64, found: &mut Found) {
    let (mut by_nodes, mut all_known) = (0.0, true);
    for (id, node) in &now.nodes {
        let online = node.cpus.len().max(last.nodes.get(id).map_or(0, |last| last.cpus.len())) as f64;
        let Some(used) = node.cpu_used else {
            all_known = false;
            continue;
        };
        found.unless(used <= online + ROUNDING, "CPUs of a node", || format!("node {id}: {used} of {online} used"));
        by_nodes += used;
    }
    let mut by_vms = 0.0;
    for vm in &now.vms {
        for client in &vm.clients {
            let (Some(used), Some(waited)) = (client.cpu_used, client.cpu_waited) else {
                all_known = false;
                continue;
            };
            let wanted = used + waited;
            let vcpus = f64::from(client.vcpus);
            let name = &vm.vm.name;
            found.unless(used >= 0.0 && waited >= -ROUNDING && wanted <= vcpus + ROUNDING, "CPUs of a client", || {
                format!("{name}: used {used}, waited {waited}, {vcpus} vCPUs")
            });
            by_vms += used;
        }
    }
    let same_nodes = last.nodes.keys().eq(now.nodes.keys());
    if all_known && same_nodes {
        found.unless(by_vms <= by_nodes + ROUNDING * 1e3, "CPUs counted twice", || {
            format!("VMs {by_vms}, nodes {by_nodes}")
        });
        let same_vms = last.vms.iter().map(|vm| &vm.vm).eq(now.vms.iter().map(|vm| &vm.vm));
        if moved == 0 && same_vms {
            // The kernel may still copy what moved earlier, with one CPU.
            found
                .unless(by_nodes <= by_vms + 1.0 + ROUNDING, "CPUs lost", || format!("VMs {by_vms}, nodes {by_nodes}"));
        }
    }
}
