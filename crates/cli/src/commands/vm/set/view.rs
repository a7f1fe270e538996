//! What `homenode vm set` says.

use crate::text::{lines, table};
use scheduler::growth::Growth;
use serde::Serialize;
use std::fmt::Write;
use topology::{Bytes, CpuId, CpuSet, NodeSet};
use vm::life::State;
use vm::{NodeSize, Placement};

/// The plan, and, once it is done, what came of it.
#[derive(Serialize)]
pub(super) struct Answer {
    vm: String,
    state: State,
    /// Only the plan: nothing was done.
    dry_run: bool,
    /// What each virtual node has and gets.
    nodes: Vec<Change>,
    plug: Vec<u32>,
    unplug: Vec<u32>,
    /// What the owner should know before it is done.
    pub(super) warnings: Vec<String>,
    /// What the guest has not done in its time.
    pub(super) undone: Vec<String>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Change {
    virtual_node: u32,
    vcpus_before: CpuSet,
    vcpus: CpuSet,
    memory_before: Bytes,
    memory: Bytes,
    /// Where its client lives now: where what is added goes. Empty while the VM does not run.
    home: NodeSet,
    cpus: CpuSet,
}

fn vcpus(size: &NodeSize) -> CpuSet {
    size.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect()
}

impl Answer {
    /// Of a VM that does not run.
    pub(super) fn at_rest(vm: &str, state: State, dry_run: bool, before: &[NodeSize], after: &[NodeSize]) -> Self {
        let placement = Placement { clients: Vec::new() };
        Self::live(vm, state, dry_run, (before, after), &Growth::default(), &placement)
    }

    /// Of a VM that runs.
    pub(super) fn live(
        vm: &str,
        state: State,
        dry_run: bool,
        (before, after): (&[NodeSize], &[NodeSize]),
        growth: &Growth,
        placement: &Placement,
    ) -> Self {
        Self {
            vm: vm.to_owned(),
            state,
            dry_run,
            nodes: changes(before, after, placement),
            plug: growth.plug.clone(),
            unplug: growth.unplug.clone(),
            warnings: Vec::new(),
            undone: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// It is done: what each virtual node has now.
    pub(super) fn is_done(
        &mut self,
        reached: &[NodeSize],
        placement: &Placement,
        undone: Vec<String>,
        notes: Vec<String>,
    ) {
        let before: Vec<NodeSize> = self.nodes.iter().map(Change::before).collect();
        self.nodes = changes(&before, reached, placement);
        (self.undone, self.notes) = (undone, notes);
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let runs = matches!(self.state, State::Running | State::Paused);
        let when = if runs { "" } else { " at its next power-on" };
        let would = if self.dry_run { "would have" } else { "has" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "VM {} {would}{when}:", self.vm);
        if self.nodes.is_empty() {
            text.push_str("what its spec says: it gets its virtual nodes at its first power-on\n");
        } else {
            let mut table = table(["Virtual node", "vCPUs", "Memory", "Home nodes"], &[0]);
            for node in &self.nodes {
                table.add_row([
                    node.virtual_node.to_string(),
                    changed(&node.vcpus_before, &node.vcpus),
                    changed(&node.memory_before, &node.memory),
                    if runs { node.home.to_string() } else { crate::cells::dash() },
                ]);
            }
            let _ = writeln!(text, "{}", lines(&table));
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        for said in self.notes.iter().chain(&self.undone) {
            let _ = writeln!(text, "{said}");
        }
        text
    }
}

impl Change {
    fn before(&self) -> NodeSize {
        let vcpus = self.vcpus_before.iter().map(|vcpu| vcpu.0).collect();
        NodeSize { virtual_node: self.virtual_node, vcpus, memory: self.memory_before }
    }
}

fn changes(before: &[NodeSize], after: &[NodeSize], placement: &Placement) -> Vec<Change> {
    let change = |(before, after): (&NodeSize, &NodeSize)| {
        let client = placement.clients.iter().find(|client| client.virtual_nodes.contains(&before.virtual_node));
        Change {
            virtual_node: before.virtual_node,
            vcpus_before: vcpus(before),
            vcpus: vcpus(after),
            memory_before: before.memory,
            memory: after.memory,
            home: client.map(|client| client.home.clone()).unwrap_or_default(),
            cpus: client.map(|client| client.cpus.clone()).unwrap_or_default(),
        }
    };
    before.iter().zip(after).map(change).collect()
}

fn changed<T: PartialEq + ToString>(before: &T, after: &T) -> String {
    if before == after { after.to_string() } else { format!("{} -> {}", before.to_string(), after.to_string()) }
}
