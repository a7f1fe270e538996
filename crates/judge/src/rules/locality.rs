//! Memory that is not where the vCPUs are, or that is left to chance.

use super::list;
use crate::finding::{Aspect, Finding, Harm};
use crate::scene::{NodeView, Scene, named};
use crate::shaped::{Part, Spot};
use scheduler::home;
use topology::{Bytes, NodeId, NodeSet};

/// How the memory of a virtual node lies to its vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lies {
    /// The vCPUs run on nodes without memory: all of it is elsewhere, wherever.
    NoMemory,
    /// Elsewhere altogether.
    Away,
    /// At the home that somebody decided on, where the vCPUs are not.
    VcpusAway,
    /// On some of the nodes where the vCPUs run.
    VcpusWider,
    /// Also on nodes where they do not.
    MemoryWider,
    /// Where they run, which is several nodes.
    Straddles,
    /// On several nodes because somebody interleaved it, also on some where they do not run.
    Interleaved,
    /// Anywhere, as the vCPUs.
    Floats,
    /// Wherever it is touched first, though the vCPUs have one node.
    Unbound,
}

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let judged: Vec<(Lies, &NodeView<'_>)> =
        scene.views.iter().enumerate().filter_map(|(index, view)| Some((lies(scene, index, view)?, view))).collect();
    let kinds = [
        Lies::NoMemory,
        Lies::Away,
        Lies::VcpusAway,
        Lies::VcpusWider,
        Lies::MemoryWider,
        Lies::Straddles,
        Lies::Interleaved,
        Lies::Floats,
        Lies::Unbound,
    ];
    let of = |kind| judged.iter().filter(move |(lies, _)| *lies == kind).map(|(_, view)| *view).collect::<Vec<_>>();
    kinds.into_iter().filter_map(|kind| finding(scene, kind, &of(kind))).collect()
}

/// How it lies; `None` where nothing is wrong with that.
fn lies(scene: &Scene<'_>, index: usize, view: &NodeView<'_>) -> Option<Lies> {
    let with_memory = scene.nodes_with_memory();
    let one_node = with_memory.len() < 2 && view.runs_on.is_subset(&with_memory);
    // Where no vCPU of it is there yet nothing runs away from its memory (`growth`).
    if one_node || scene.vm.present_of(view.node) == 0 || view.runs_on.is_empty() {
        return None;
    }
    let reshaped = scene.target.as_ref().is_ok_and(|target| target.reshaped);
    let unbound = view.node.binding.is_none();
    let settled = view.bound && view.node.lies_on(&view.runs_on);
    let kind = match view.memory_nodes() {
        _ if view.runs_on.intersection(&with_memory).is_empty() && !with_memory.is_empty() => Lies::NoMemory,
        None if scene.vm.auto.vcpus || scene.vm.auto.memory => return None,
        memory if left_home(view, memory) => Lies::VcpusAway,
        _ if unbound && !view.bound && view.runs_on.len() > 1 => Lies::Floats,
        // What lies at home already needs no policy to come there.
        _ if unbound && settled => return None,
        None if view.runs_on.len() == 1 => Lies::Unbound,
        None => Lies::Floats,
        Some(nodes) if nodes.intersection(&view.runs_on).is_empty() => Lies::Away,
        Some(nodes) if unbound && nodes.is_subset(&view.runs_on) && view.runs_on.len() == 1 => Lies::Unbound,
        Some(_) if scene.vm.auto.vcpus => return None,
        Some(nodes) if *nodes == view.runs_on && nodes.len() == 1 => return None,
        // Somebody wants the bandwidth of all of them.
        Some(nodes) if view.spread_over().is_some() && *nodes == view.runs_on => return None,
        Some(nodes) if view.spread_over().is_some() && view.runs_on.is_subset(nodes) => Lies::Interleaved,
        Some(nodes) if *nodes == view.runs_on => Lies::Straddles,
        Some(nodes) if view.runs_on.is_subset(nodes) => Lies::MemoryWider,
        Some(_) => Lies::VcpusWider,
    };
    // A VM that gets other virtual nodes gets other homes with them. Where it lies apart from its
    // vCPUs now is said all the same: its width is not what makes it remote.
    let away = matches!(kind, Lies::NoMemory | Lies::Away | Lies::VcpusAway);
    if reshaped && !away && kind != Lies::VcpusWider {
        return None;
    }
    let home = scene.target.as_ref().ok().and_then(|target| target.nodes.get(index)).map(|node| &node.home);
    let several = |home: &NodeSet| {
        let lies_there = kind == Lies::Floats || view.memory_nodes().is_none_or(|nodes| nodes == home);
        home.len() > 1 && view.runs_on.is_subset(home) && lies_there
    };
    // No home of fewer nodes would hold it.
    if !away && kind != Lies::Interleaved && home.is_some_and(several) {
        return None;
    }
    Some(kind)
}

/// Whether none of its vCPUs may run at the home that somebody decided on, and its memory is there
/// or unknown.
fn left_home(view: &NodeView<'_>, memory: Option<&NodeSet>) -> bool {
    view.node.decided().is_some_and(|home| {
        view.runs_on.intersection(home).is_empty() && memory.is_none_or(|nodes| nodes.is_subset(home))
    })
}

fn finding(scene: &Scene<'_>, kind: Lies, views: &[&NodeView<'_>]) -> Option<Finding> {
    let first = *views.first()?;
    let vm = scene.vm;
    let ids: Vec<String> = views.iter().map(|view| view.node.id.to_string()).collect();
    let who = if ids.len() == 1 { first.called(vm) } else { format!("virtual nodes {}", list(&ids)) };
    let seen: Vec<String> = views.iter().map(|view| seen(scene, view)).collect();
    let cost = scene.locality(views.iter().copied()).filter(|cost| cost.factor() > 1.0);
    let (what, harm, mut sentence, because) = words(kind, &who, first, views.len() == 1);
    if let Some(said) = pages(kind, views) {
        sentence = said;
    }
    let note = kind == Lies::Interleaved || (kind == Lies::Unbound && !vm.vnuma);
    let spots = views.iter().flat_map(|view| places(scene, kind, view));
    let mut found = Finding::new(what, harm, sentence, because).seen(seen.join("; ")).at(spots);
    if let Some(cost) = cost {
        found = found.costs(cost);
    }
    if note {
        found = found.note();
    }
    if kind == Lies::Interleaved {
        let one = named(&first.runs_on);
        found.cure.advice = format!("it stays, as somebody chose: bound to {one} all of it would be local");
        return Some(found);
    }
    let advice = match kind {
        Lies::NoMemory => "give it a home that has memory",
        Lies::VcpusAway => "bind the vCPUs to its home again",
        Lies::Away => "bring memory and vCPUs to one home",
        Lies::VcpusWider | Lies::Floats => "bind vCPUs and memory to one home",
        Lies::MemoryWider | Lies::Straddles | Lies::Interleaved => "keep vCPUs and memory on one home",
        Lies::Unbound => "bind the memory to the node of its vCPUs",
    };
    Some(found.cure(advice, &[Aspect::Home]))
}

/// How much memory is away, where that is known.
fn pages(kind: Lies, views: &[&NodeView<'_>]) -> Option<String> {
    if !matches!(kind, Lies::Away | Lies::MemoryWider) {
        return None;
    }
    let (mut away, mut total, mut nodes) = (Bytes(0), Bytes(0), NodeSet::new());
    for view in views {
        let resident = view.node.resident.as_ref().filter(|resident| resident.values().any(|bytes| bytes.0 > 0))?;
        away = away.saturating_add(home::away(resident, &view.runs_on));
        total = total.saturating_add(resident.values().copied().sum());
        nodes = nodes.union(&home::nodes_of_memory(resident).difference(&view.runs_on));
    }
    Some(format!("{away} of {total} of its memory are away from home, on {}", named(&nodes)))
}

fn seen(scene: &Scene<'_>, view: &NodeView<'_>) -> String {
    let cpus = match view.bound {
        true => format!("CPUs {} of {}", view.cpus, named(&view.runs_on)),
        false => format!("all CPUs, {}", named(&view.runs_on)),
    };
    let memory = match &view.node.binding {
        Some(binding) => format!("memory {} on {}", binding.mode, named(&binding.nodes)),
        None => "memory not bound".to_owned(),
    };
    let on = |(node, bytes): (&NodeId, &Bytes)| format!("{bytes} on node {node}");
    let resident: Vec<String> = view.node.resident.iter().flatten().map(on).collect();
    let resident = if resident.is_empty() { String::new() } else { format!(", {}", resident.join(", ")) };
    format!("{}: vCPUs on {cpus}; {memory}{resident}", view.called(scene.vm))
}

fn places(scene: &Scene<'_>, kind: Lies, view: &NodeView<'_>) -> Vec<Spot> {
    let mut spots = if kind == Lies::Unbound { Vec::new() } else { scene.memory_spots(view) };
    if view.bound {
        spots.extend(scene.pin_spots(view));
    }
    if kind == Lies::Unbound && scene.vm.vnuma {
        spots.extend(scene.spots([Part::Cell(view.node.id)]));
    }
    if spots.is_empty() {
        spots.extend(scene.spots([Part::Vcpus]));
    }
    spots
}

fn words(kind: Lies, who: &str, first: &NodeView<'_>, single: bool) -> (&'static str, Harm, String, &'static str) {
    let their = if single { "its" } else { "their" };
    let bound = first.node.binding.as_ref();
    let mode = bound.map_or("bound", |binding| if binding.mode == "interleave" { "interleaved" } else { "bound" });
    let nodes = bound.map(|binding| if single { named(&binding.nodes) } else { "several nodes".to_owned() });
    let nodes = nodes.unwrap_or_default();
    match kind {
        Lies::NoMemory => (
            "home_without_memory",
            Harm::Waits,
            format!("{their} vCPUs run on {}, which has no memory: all of it is remote", named(&first.runs_on)),
            "every access goes over the links between the nodes; a processor without DIMMs of its own computes with \
            those of another",
        ),
        Lies::Away => (
            "memory_away",
            Harm::Waits,
            match single {
                true => {
                    format!("the memory of {who} is bound to {nodes}, and its vCPUs run on {}", named(&first.runs_on))
                }
                false => format!("the memory of {who} is bound to other nodes than those where their vCPUs run"),
            },
            "every access goes over the links between the nodes: it takes longer, and the links carry less than a \
            node's own memory",
        ),
        Lies::VcpusAway => (
            "vcpus_away",
            Harm::Waits,
            format!("{their} vCPUs may run on {}, away from home", named(&first.runs_on)),
            "the memory is at home: every access goes over the links between the nodes",
        ),
        Lies::VcpusWider => (
            "vcpus_leave_memory",
            Harm::Waits,
            format!("the memory of {who} is {mode}, and {their} vCPUs run on other nodes too"),
            "bound memory stays, and the kernel moves vCPUs wherever a CPU is idle: how much is remote changes from \
            moment to moment",
        ),
        Lies::MemoryWider => (
            "memory_wider_than_vcpus",
            Harm::Waits,
            format!("the memory of {who} lies also on nodes where {their} vCPUs do not run"),
            "what lies on the other nodes is remote for ever, though the node of the vCPUs would hold all of it",
        ),
        Lies::Straddles => (
            "straddles_nodes",
            Harm::Waits,
            format!("{who} lives on several nodes, and one would hold each"),
            "any vCPU may use any page, so that accesses are remote as often as there are other nodes",
        ),
        Lies::Interleaved => (
            "memory_interleaved",
            Harm::Chance,
            format!(
                "the memory of {who} is interleaved over {nodes}, and {their} vCPUs run on {}",
                named(&first.runs_on)
            ),
            "it has the bandwidth of all of these nodes, and what lies where no vCPU runs is remote",
        ),
        Lies::Floats => (
            "floats",
            Harm::Chance,
            format!(
                "nothing keeps {who} at a home: {their} vCPUs may run anywhere, and memory comes from wherever they \
                happen to"
            ),
            "memory stays on the node that first touched it while the vCPUs move on; how much is remote is chance, and \
            changes",
        ),
        Lies::Unbound => (
            "memory_unbound",
            Harm::Chance,
            format!("the memory of {who} is not bound, though {their} vCPUs have a node"),
            "memory comes from the node of the thread that touches it first, which may be QEMU's own, and from other \
            nodes when that one is full",
        ),
    }
}
