//! Memory of a VM that runs of which nobody knows where it is, that cannot move, or that has no
//! room to move to.

use crate::finding::{Finding, Harm};
use crate::scene::{NodeView, Scene};
use crate::shaped::Running;
use scheduler::{ClientObservation, Mobility, home};
use topology::Bytes;

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(running) = scene.running() else { return Vec::new() };
    if scene.machine.nodes.len() < 2 {
        return Vec::new();
    }
    let clients = || scene.views.iter().zip(&running.seen.clients);
    let mut found: Vec<Finding> = clients().filter_map(|(view, client)| unknown(scene, view, client)).collect();
    found.extend(fixed(scene, running));
    found.extend((0..scene.views.len()).filter_map(|index| no_free_huge_pages(scene, running, index)));
    found
}

fn unknown(scene: &Scene<'_>, view: &NodeView<'_>, client: &ClientObservation) -> Option<Finding> {
    if client.memory.is_some() {
        return None;
    }
    let sentence = format!("where the memory of {} is cannot be told", view.called(scene.vm));
    let because = "it is not moved, and whether it is local nobody knows";
    let found = Finding::new("memory_unknown", Harm::Chance, sentence, because);
    Some(found.seen(client.memory_unknown_because.clone().unwrap_or_else(|| "the host does not say".to_owned())))
}

/// Memory that is away and cannot follow.
fn fixed(scene: &Scene<'_>, running: &Running) -> Option<Finding> {
    let Mobility::MemoryFixed { because } = &running.seen.mobility else { return None };
    let target = scene.target.as_ref().ok()?;
    let away = |(view, node): (&NodeView<'_>, &crate::TargetNode)| {
        view.node.resident.as_ref().is_some_and(|resident| !home::is_at_home(resident, &node.home))
    };
    if target.reshaped || !scene.views.iter().zip(&target.nodes).any(away) {
        return None;
    }
    let why = "memory that devices reach by itself, or that is locked, stays on its node until the VM ends";
    let sentence = "its memory is pinned: it cannot follow the VM home".to_owned();
    let mut found = Finding::new("memory_pinned", Harm::Chance, sentence, why).seen(because.clone());
    found.cure.advice = "start it again bound to its home".to_owned();
    Some(found)
}

/// Huge pages of a pool move only to free pages of their size.
fn no_free_huge_pages(scene: &Scene<'_>, running: &Running, index: usize) -> Option<Finding> {
    let (client, target) = (running.seen.clients.get(index)?, scene.target.as_ref().ok()?);
    let size = client.huge_page_size?;
    let home = &target.nodes.get(index).filter(|_| !target.reshaped)?.home;
    let needed = home::away(client.memory.as_ref()?, home);
    let free_on = |node| scene.host?.nodes.get(&node)?.huge_pages_free.get(&size.0).copied();
    let free: Bytes = home.iter().filter_map(free_on).sum();
    let node = home.first().filter(|_| needed > free)?;
    let pages = needed.saturating_sub(free).0.div_ceil(size.0.max(1));
    let sentence = format!("node {node} lacks huge pages of {size} for it: {needed} needed, {free} free");
    let because = "its memory cannot come home before they are there";
    let mut found = Finding::new("no_free_huge_pages", Harm::Chance, sentence, because);
    found.cure.advice = format!("add {pages} pages to {}", super::pool(node, size));
    Some(found)
}
