//! Why vCPUs are under these caches, in words.

use super::under::Under;
use std::collections::BTreeSet;
use topology::words::count;
use vm::spec::CachePolicy;
use vm::{CacheGroup, Plan, Reason, Shape};

/// Adds the reasons for the groups of a plan, and what its user should know of them.
pub(super) fn explain(shape: &Shape, plan: &mut Plan, under: &Under) {
    let policy = shape.policy.cache;
    let groups: Vec<&CacheGroup> = plan.placement.clients.iter().flat_map(|client| &client.groups).collect();
    let taken = groups.iter().map(|group| group.llc).collect::<BTreeSet<_>>().len();
    let sizes: BTreeSet<usize> = groups.iter().map(|group| group.vcpus.len()).collect();
    if let (Some(least), Some(most)) = (sizes.first(), sizes.last()) {
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let which = match policy {
            CachePolicy::Pack => "policy.cache = \"pack\": as few last-level caches as hold the vCPUs",
            CachePolicy::Own => "policy.cache = \"own\": a last-level cache for each as far as there are",
            _ if shape.policy.cores_per_socket.is_none() => {
                "each virtual node fits under one cache, as its guest is told, and the kernel takes all for one process"
            }
            _ => "policy.cores_per_socket tells the guest of caches, and each of its sockets keeps to one",
        };
        let choice = format!("cache groups: {} of {size} vCPUs, on {}", groups.len(), count(taken, "cache"));
        let because = format!("{which}; of those choices the one with the fewest bound vCPUs a core");
        plan.reasons.push(Reason { choice, because });
    }
    if policy != CachePolicy::Auto {
        let own_share = policy == CachePolicy::Own && taken < groups.len();
        let shared = own_share.then(|| shared(groups.len(), taken));
        plan.warnings.extend(shared);
        if under.untold {
            plan.warnings.push(untold(policy, plan.topology.cores_per_socket));
        }
        if !under.undivided.is_empty() {
            plan.warnings.push(undivided(policy, &under.undivided));
        }
    }
    if let (Some(asked), Some(most)) = (shape.policy.cores_per_socket, under.too_wide) {
        plan.warnings.push(too_wide(shape, asked, most));
    }
}

fn shared(groups: usize, caches: usize) -> String {
    format!(
        "policy.cache = \"own\": its {groups} groups of vCPUs have {} between them, so that some share one",
        count(caches, "last-level cache")
    )
}

fn untold(policy: CachePolicy, socket: u32) -> String {
    format!(
        "policy.cache = \"{}\": its guest is not told of these groups: virtual sockets of {socket} vCPUs do not \
         match them, so it takes vCPUs under several caches to share one",
        policy.word()
    )
}

fn undivided(policy: CachePolicy, clients: &[usize]) -> String {
    let clients: Vec<String> = clients.iter().map(usize::to_string).collect();
    format!(
        "policy.cache = \"{}\" divides nothing where a home has one last-level cache, or caches that are not \
         known: clients {}",
        policy.word(),
        clients.join(", ")
    )
}

fn too_wide(shape: &Shape, asked: u32, most: u32) -> String {
    format!(
        "policy.cores_per_socket = {asked}: the guest takes the vCPUs of a virtual socket to share a last-level \
         cache; none of its home has more than {}, so that its vCPUs may run under several",
        count(most as usize, if shape.policy.prefer_ht { "hardware thread" } else { "core" })
    )
}
