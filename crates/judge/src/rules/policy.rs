//! Policies of memory that disagree with where the memory is, in a VM that runs.

use crate::finding::{Finding, Harm, Repair};
use crate::scene::{NodeView, Scene, named};
use crate::shaped::Running;
use scheduler::{Backing, ClientObservation, PolicyOfMemory, home, rebound};
use topology::{Bytes, NodeSet};

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(running) = scene.running() else { return Vec::new() };
    let of = |(view, client)| elsewhere(scene, running, view, client);
    scene.views.iter().zip(&running.seen.clients).filter_map(of).collect()
}

/// Whether memory lies where its policy would not put it, or will come where its home is not: not
/// where somebody chose several nodes, of which its home is one (`decided` is `None`).
fn is_stale(policy: &PolicyOfMemory, decided: Option<&NodeSet>) -> bool {
    let lies_on = home::nodes_of_memory(&policy.resident);
    let resident: Bytes = policy.resident.values().copied().sum();
    let untouched = policy.absent.0 > policy.absent.saturating_add(resident).0 / 20;
    policy.nodes.as_ref().is_some_and(|nodes| {
        !lies_on.is_subset(nodes) || (untouched && decided.is_some_and(|home| !nodes.is_subset(home)))
    })
}

/// The first range whose policy is stale.
fn elsewhere(scene: &Scene<'_>, running: &Running, view: &NodeView<'_>, client: &ClientObservation) -> Option<Finding> {
    let policies = client.policies.as_ref()?;
    let decided = view.node.decided();
    let meant = decided.filter(|_| client.kept_nodes().is_none());
    let stale = policies.iter().find(|policy| is_stale(policy, meant))?;
    let absent: Bytes = policies.iter().map(|policy| policy.absent).sum();
    let lies_on = home::nodes_of_memory(&stale.resident);
    let (is, home) = match decided {
        Some(home) if lies_on.is_empty() => ("its home is", home.clone()),
        _ => ("its memory is on", lies_on),
    };
    let sentence =
        format!("the memory policy of {} is {}, and {is} {}", view.called(scene.vm), stale.policy, named(&home));
    let because = "memory that is touched from now on goes where the policy says, away from the rest; only QEMU itself \
        can change it";
    let found = Finding::new("policy_elsewhere", Harm::Chance, sentence, because);
    let mut found = found.seen(format!("numa_maps: {}; {absent} not touched yet", words(policies)));
    match confinement(scene, running) {
        Ok(nodes) => {
            found.cure.advice = format!("write {nodes} to the cpuset.mems of its own cgroup, which rebinds its policy");
            found.cure.repairs.push(Repair::Confine { vm: running.seen.vm.clone(), nodes });
        }
        Err(why) => found.cure.advice = format!("start it again with host-nodes={home} ({why})"),
    }
    Some(found)
}

/// The kernel's words, the first few ranges.
fn words(policies: &[PolicyOfMemory]) -> String {
    let of = |policy: &PolicyOfMemory| {
        let on = policy.resident.iter().map(|(node, bytes)| format!("{bytes} on node {node}"));
        format!("{} {}", policy.policy, on.collect::<Vec<_>>().join(" "))
    };
    policies.iter().take(3).map(of).collect::<Vec<_>>().join("; ")
}

/// Why a cpuset cannot bring a policy home.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum NotConfined {
    #[error("its cgroup is left alone")]
    LeftAlone,
    #[error("its cgroup holds other processes too")]
    Shared,
    #[error("its cpuset allows {}, and must not be widened", named(.0))]
    Narrow(NodeSet),
    #[error("a cpuset never rebinds the policy of a memory file")]
    MemoryFile,
    #[error("nobody decided on its home")]
    Undecided,
    #[error("confined to {} the kernel would make {bound} into {after}", named(nodes))]
    Elsewhere { nodes: NodeSet, bound: NodeSet, after: NodeSet },
}

/// The nodes to confine the VM's own cgroup to, where the kernel's way to rebind policies comes out
/// right for every client.
fn confinement(scene: &Scene<'_>, running: &Running) -> Result<NodeSet, NotConfined> {
    let limits = running.seen.limits.as_ref().filter(|limits| limits.cgroup.is_some()).ok_or(NotConfined::LeftAlone)?;
    if !limits.cgroup_is_its_own {
        return Err(NotConfined::Shared);
    }
    let homes: Vec<&NodeSet> = scene.vm.nodes.iter().filter_map(crate::shaped::ShapedNode::decided).collect();
    if homes.len() < scene.vm.nodes.len() {
        return Err(NotConfined::Undecided);
    }
    let nodes = homes.iter().fold(NodeSet::new(), |all, home| all.union(home));
    let allowed = limits.memory_nodes.clone().unwrap_or_else(|| scene.machine.node_ids());
    if !nodes.is_subset(&allowed) {
        return Err(NotConfined::Narrow(allowed));
    }
    for (client, home) in running.seen.clients.iter().zip(homes) {
        for policy in client.policies.iter().flatten() {
            let Some(bound) = &policy.nodes else { continue };
            let shared = policy.backing == Backing::SharedMemory;
            if shared && nodes.len() > 1 {
                return Err(NotConfined::MemoryFile);
            }
            let after = rebound(bound, &allowed, &nodes);
            if !shared && !after.is_subset(home) {
                return Err(NotConfined::Elsewhere { nodes, bound: bound.clone(), after });
            }
        }
    }
    Ok(nodes)
}
