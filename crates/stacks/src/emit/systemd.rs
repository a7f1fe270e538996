//! A systemd slice that holds a QEMU process at its home (systemd.resource-control(5)).

use super::common::{groups_lost, heading, one_cpu_each, one_set_of_cpus, several_cpu_sets};
use super::{Emission, EmitError, Loss};
use topology::words::quoted;
use vm::{MemoryPolicy, Plan};

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    let plan = emission.plan;
    let slice = slice_name(&plan.vm);
    let mut unit = format!("[Unit]\nDescription=NUMA home of VM {}\n\n[Slice]\n", plan.vm);
    unit += &format!("AllowedCPUs={}\n", one_set_of_cpus(plan).union(&plan.left_to_qemu));
    if let Some(nodes) = memory_nodes(plan) {
        unit += &format!("AllowedMemoryNodes={nodes}\n");
    }
    Ok(format!("{}\n{unit}", heading(emission, &usage(plan, &slice), &losses(plan))))
}

/// Nodes that hold all of the VM's memory; none where a client's memory may lie anywhere.
fn memory_nodes(plan: &Plan) -> Option<String> {
    let free = |policy| matches!(policy, MemoryPolicy::Default | MemoryPolicy::Preferred);
    let anywhere = plan.placement.clients.iter().any(|client| free(client.memory_policy));
    (!anywhere).then(|| plan.homes().to_string())
}

/// In a slice's name `-` leads to a parent slice; `systemd-escape` writes `\x2d` for one that does
/// not.
fn slice_name(vm: &str) -> String {
    format!("homenode-{}.slice", vm.replace('-', "\\x2d"))
}

fn usage(plan: &Plan, slice: &str) -> Vec<String> {
    let (file, slice) = (slice, quoted(slice));
    let mut usage = vec![
        format!("/etc/systemd/system/{file}, for systemd 244 or newer with the unified cgroup hierarchy (v2). Then:"),
        "  systemctl daemon-reload".to_owned(),
        format!("  systemd-run --slice={slice} --scope qemu-system-x86_64 ..."),
        "QEMU runs as root then; systemd-run's --uid=USER gives it another user.".to_owned(),
    ];
    if let (true, Some(nodes)) = (is_interleaved(plan), memory_nodes(plan)) {
        usage.push("As a service, which can have a memory policy (a slice and a scope cannot):".to_owned());
        usage.push(format!(
            "  systemd-run --slice={slice} -p NUMAPolicy=interleave -p NUMAMask={nodes} qemu-system-x86_64 ..."
        ));
    }
    usage
}

fn is_interleaved(plan: &Plan) -> bool {
    plan.placement.clients.iter().any(|client| client.memory_policy == MemoryPolicy::Interleave)
}

fn losses(plan: &Plan) -> Vec<Loss> {
    let mut losses = Vec::new();
    if plan.topology.exposed {
        losses.push(Loss::new(
            format!("A slice does not know what runs in it, nor the {} virtual nodes.", plan.topology.nodes.len()),
            "QEMU must be told of them itself: start the command of `homenode plan --emit qemu` in the slice.",
        ));
    }
    if several_cpu_sets(plan) {
        losses.push(Loss::new(
            "A slice has one set of CPUs and one of nodes for all that runs in it.",
            "Unless QEMU's own options bind memory, vCPUs and memory mix over all homes, half of it remote with two: \
            `homenode balance` brings vCPUs home.",
        ));
    }
    if one_cpu_each(plan) {
        losses.push(Loss::new(
            "A slice binds no single thread, and the plan has one CPU for each vCPU.",
            "vCPUs change places among these CPUs, and QEMU's own threads run there too.",
        ));
    }
    losses.extend(groups_lost(plan, "A slice"));
    if is_interleaved(plan) {
        losses.push(Loss::new(
            "Slices and scopes have no memory policy: NUMAPolicy= and NUMAMask= are settings of services.",
            "Memory lies where the vCPU that touches it first runs, unless QEMU's options or a service interleave it.",
        ));
    }
    if memory_nodes(plan).is_some() {
        losses.push(Loss::new(
            "AllowedMemoryNodes= cannot be changed safely while the VM runs.",
            "The kernel moves pages while the change is written, and re-targets policies by position: after a \
            widening, memory that was bound to node 1 may be bound to node 0.",
        ));
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_does_not_make_a_parent_slice() {
        assert_eq!(slice_name("web-1.a_b"), "homenode-web\\x2d1.a_b.slice");
    }
}
