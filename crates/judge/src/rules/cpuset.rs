//! The cpuset of a VM that runs. It is its owner's choice: it bounds the home, and is never
//! widened.

use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{NodeView, Scene, named};
use topology::NodeSet;

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(allowed) = scene.vm.allowed.as_ref().filter(|_| scene.running().is_some()) else { return Vec::new() };
    [forbids_home(scene, allowed), wider(scene, allowed)].into_iter().flatten().collect()
}

/// vCPUs that are held to nodes where the cpuset gives them no memory.
fn forbids_home(scene: &Scene<'_>, allowed: &NodeSet) -> Option<Finding> {
    let held = scene.views.iter().filter(|view| view.bound);
    let homes = held.fold(NodeSet::new(), |all, view| all.union(&view.runs_on));
    if homes.is_subset(allowed) {
        return None;
    }
    let sentence = format!("its cpuset allows {}, and its vCPUs live on {}", named(allowed), named(&homes));
    let because = "memory that it touches from now on comes from the nodes that the cpuset allows: it is remote";
    let found = Finding::new("cpuset_forbids_home", Harm::Waits, sentence, because);
    let mut found = found.seen(format!("cpuset.mems and the nodes of cpuset.cpus: {allowed}"));
    if allowed.is_empty() {
        found.cure.advice =
            "its cpuset allows memory only where it has no CPU: start it again in another cgroup".to_owned();
        return Some(found);
    }
    Some(found.cure("bring it to a home that the cpuset allows", &[Aspect::Home]))
}

/// Writing a cpuset again re-targets policies by position.
fn wider(scene: &Scene<'_>, allowed: &NodeSet) -> Option<Finding> {
    let bound = |view: &NodeView<'_>| view.bound_nodes().is_some_and(|nodes| nodes.is_subset(allowed));
    let homes = scene.views.iter().filter_map(NodeView::bound_nodes).fold(NodeSet::new(), |all, home| all.union(home));
    if !scene.views.iter().all(bound) || homes == *allowed || homes.is_empty() {
        return None;
    }
    let sentence =
        format!("its cpuset allows {}, more than {} that its memory is bound to", named(allowed), named(&homes));
    let because =
        "whoever writes that cpuset again re-targets the policy: its first node becomes the first that is allowed";
    Some(Finding::new("cpuset_wider", Harm::Chance, sentence, because).note())
}
