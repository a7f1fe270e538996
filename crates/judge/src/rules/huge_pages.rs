//! Huge pages that a definition asks for, against the pools of its home.
//!
//! **Problem.** Huge pages come from pools, node by node. A definition that asks for more than its
//! home has free does not start, whatever memory is free besides.
//!
//! **Rule.** Where no size is written, the host's default is meant. What counts of a pool is what
//! is free of it, less what VMs were promised that are judged before this one. A machine of which
//! nobody says what pools it has is not judged.
//!
//! **Example.** Node 1 has 1024 pages of 2 MiB, 266 of them in use: a VM of 2 GiB finds 758 of 1024
//! pages; `echo 1290` makes the rest.

use crate::finding::{Finding, Harm};
use crate::scene::{Scene, named};
use crate::shaped::{HugePages, Part, ShapedVm};
use std::collections::BTreeMap;
use topology::words::count;
use topology::{Bytes, HugePages as Pool, Machine, NodeId, NodeSet};

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Ok(target) = &scene.target else { return Vec::new() };
    let mut found = Vec::new();
    for pages in &scene.vm.huge_pages {
        let Some(page) = size(scene.machine, pages) else { continue };
        let mut needed: BTreeMap<&NodeSet, Bytes> = BTreeMap::new();
        for node in &target.nodes {
            let is_meant = pages.cells.as_ref().is_none_or(|cells| cells.contains(NodeId(node.id)));
            if is_meant && !node.home.is_empty() {
                let sum = needed.entry(&node.home).or_default();
                *sum = sum.saturating_add(node.memory);
            }
        }
        let of_home = |(home, needed)| lacking(scene, pages.size, page, home, needed);
        found.extend(needed.into_iter().filter_map(of_home));
    }
    found
}

/// Size of a page; `None` where the host's default is meant and nobody says what it is.
pub(crate) fn size(machine: &Machine, pages: &HugePages) -> Option<Bytes> {
    let usual = || {
        let has =
            |node: &topology::Node| node.huge_pages.iter().any(|pool| pool.page_size == topology::USUAL_HUGE_PAGE);
        machine.nodes.iter().any(has).then_some(topology::USUAL_HUGE_PAGE)
    };
    pages.size.or(machine.default_huge_page).or_else(usual).filter(|size| size.0 > 0)
}

/// Size of the pages that all of a definition's memory is made of, where it is whole pages and the
/// machine says what pools it has.
pub(crate) fn asked(machine: &Machine, vm: &ShapedVm) -> Option<Bytes> {
    let [pages] = &vm.huge_pages[..] else { return None };
    let page = size(machine, pages).filter(|_| pages.cells.is_none() && vm.running.is_none())?;
    let is_known = machine.nodes.iter().any(|node| !node.huge_pages.is_empty());
    (is_known && vm.nodes.iter().all(|node| node.memory.0.is_multiple_of(page.0))).then_some(page)
}

/// A home whose nodes have fewer pages free than the VM needs there.
fn lacking(scene: &Scene<'_>, written: Option<Bytes>, page: Bytes, home: &NodeSet, memory: Bytes) -> Option<Finding> {
    let nodes: Vec<&topology::Node> = home.iter().filter_map(|node| scene.machine.node(node)).collect();
    let pools: Vec<Pool> = nodes.iter().map(|node| node.pool(page)).collect::<Option<_>>()?;
    let total: u64 = pools.iter().map(|pool| pool.total).sum();
    // What those before it were promised is not free for it. One that runs has its pages: they are
    // compared with the pools.
    let free: u64 = match scene.running() {
        Some(_) => total,
        None => nodes.iter().map(|node| scene.others.free_huge_pages(node, page).0 / page.0).sum(),
    };
    let needed = memory.0.div_ceil(page.0);
    if free >= needed {
        return None;
    }
    let has = match (total, free) {
        (0, _) => format!("has no huge pages of {page}"),
        (total, free) if free == total => format!("has {} of {page}", count(total as usize, "huge page")),
        (total, free) => format!("has {free} of its {total} huge pages of {page} free"),
    };
    let verb = if home.len() == 1 { has } else { has.replacen("has", "have", 1) };
    let sentence = format!("{} {verb}, and the VM needs {needed} there", named(home));
    let because = "huge pages are set aside node by node; QEMU ends when its node has too few";
    let meant = match (written, scene.machine.default_huge_page) {
        (Some(_), _) => String::new(),
        (None, Some(_)) => format!("; no size is written: {page}, the host's default, is meant"),
        (None, None) => format!(
            "; no size is written: the host's default is meant, taken to be {page} as usual for x86 (Hugepagesize in \
            /proc/meminfo says it)"
        ),
    };
    let needed_pages = count(needed as usize, "page");
    let mut one = Finding::new("no_huge_pages", Harm::Refused, sentence, because)
        .at(scene.spots([Part::HugePages]))
        .seen(format!("needed: {needed_pages}, free: {free}, in the pool: {total}{meant}"));
    one.cure.advice = "reserve them on the node, best at boot, before memory is in pieces".to_owned();
    if let [node] = nodes[..] {
        let file = super::pool(node.id, page);
        one.cure.commands = vec![format!("echo {} > {file}", total + needed - free)];
    }
    Some(one)
}
