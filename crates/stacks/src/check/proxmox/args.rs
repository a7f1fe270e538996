//! Distances between virtual nodes, which Proxmox has no option for: `args` hands QEMU its own.

use super::conf::{Conf, Setting};
use super::refusals::{Known, Refusal};
use super::shape::shaped;
use judge::{Change, ShapedNode, ShapedVm};
use std::collections::BTreeSet;

/// Distances that `args` hands to QEMU: `-numa dist,src=0,dst=1,val=21`.
pub(super) fn distances(conf: &Conf) -> Vec<(u32, u32, u32)> {
    let of = |word: &str| {
        let field = |name: &str| {
            word.split(',').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
        };
        word.starts_with("dist,").then(|| Some((field("src")?, field("dst")?, field("val")?))).flatten()
    };
    conf.get("args").unwrap_or_default().split_whitespace().filter_map(of).collect()
}

/// QEMU takes distances of virtual nodes only that are there, and then of all pairs.
pub(super) fn distances_of_others(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let told = distances(conf);
    if told.is_empty() {
        return None;
    }
    let nodes: BTreeSet<u32> = match conf.is_on("numa") {
        true => shaped(conf).nodes.iter().map(|node| node.id).collect(),
        false => BTreeSet::new(),
    };
    let is_there = |id: &u32| nodes.contains(id);
    let missing = told.iter().flat_map(|(from, to, _)| [from, to]).find(|id| !is_there(id));
    let has = |one: u32, other: u32| {
        told.iter().any(|&(from, to, _)| (from, to) == (one, other) || (to, from) == (one, other))
    };
    let pairs = nodes.iter().flat_map(|&one| nodes.range(one + 1..).map(move |&other| (one, other)));
    let lacking = pairs.into_iter().find(|&(one, other)| !has(one, other));
    let (sentence, says) = match (missing, lacking) {
        (Some(id), _) => (
            format!("`args` has a distance of virtual node {id}, which it does not have"),
            "QEMU: Source/Destination NUMA node is missing. Please use '-numa node' option to declare it first."
                .to_owned(),
        ),
        (None, Some((one, other))) => (
            format!("`args` has distances of its virtual nodes, and none between {one} and {other}"),
            format!("QEMU: The distance between node {one} and {other} is missing"),
        ),
        (None, None) => return None,
    };
    Some(Refusal {
        sentence,
        says,
        spots: conf.spots(["args", "numa"]).into_iter().chain(conf.numa_spots()).collect(),
        advice: "take the distances out of `args`: the guest then takes all others for 20".to_owned(),
        settings: vec![setting(&without(conf))],
    })
}

fn setting(words: &[String]) -> Setting {
    if words.is_empty() { Setting::gone("args") } else { Setting::new("args", words.join(" ")) }
}

/// The words of `args` but those of distances: they are what somebody wrote there.
fn without(conf: &Conf) -> Vec<String> {
    let words: Vec<&str> = conf.get("args").unwrap_or_default().split(' ').filter(|word| !word.is_empty()).collect();
    let is = |index: usize, what: &str| words.get(index).is_some_and(|word| word.starts_with(what));
    let kept = (0..words.len()).filter(|&index| {
        let option = is(index, "-numa") && is(index + 1, "dist,");
        let value = is(index, "dist,") && index > 0 && is(index - 1, "-numa");
        !option && !value
    });
    kept.map(|index| words[index].to_owned()).collect()
}

/// `args` with the distances of a change, where the guest is told others.
pub(super) fn told_anew(change: &Change<'_>, conf: &Conf) -> Option<Setting> {
    let (vm, target) = (change.vm(), change.target);
    let count = target.nodes.len();
    let others = target.reshaped && vm.nodes.len() != count;
    let now = if others { assumed(count) } else { told(vm) };
    if change.changes_distances() && differs(&now, &target.distances) {
        let row = |(from, row): (usize, &Vec<u32>)| {
            let of = move |(to, value): (usize, &u32)| format!("-numa dist,src={from},dst={to},val={value}");
            row.iter().enumerate().map(of).collect::<Vec<_>>()
        };
        let told = target.distances.iter().enumerate().flat_map(row);
        return Some(setting(&without(conf).into_iter().chain(told).collect::<Vec<_>>()));
    }
    (others && !distances(conf).is_empty()).then(|| setting(&without(conf)))
}

/// What the guest is told: 10 and 20 where nothing is written.
fn told(vm: &ShapedVm) -> Vec<Vec<u32>> {
    let value = |from: &ShapedNode, to: &ShapedNode| match from.id == to.id {
        true => 10,
        false => from.distances.get(&to.id).or_else(|| to.distances.get(&from.id)).copied().unwrap_or(20),
    };
    vm.nodes.iter().map(|from| vm.nodes.iter().map(|to| value(from, to)).collect()).collect()
}

/// What a guest assumes that is told nothing.
fn assumed(count: usize) -> Vec<Vec<u32>> {
    (0..count).map(|from| (0..count).map(|to| if from == to { 10 } else { 20 }).collect()).collect()
}

/// Whether a distance is another one by more than a tenth: for less, `args`, which only root may
/// change, is too much.
fn differs(told: &[Vec<u32>], right: &[Vec<u32>]) -> bool {
    let far = |(told, right): (&u32, &u32)| told.abs_diff(*right) * 10 > *right.max(told);
    told.iter().zip(right).any(|(told, right)| told.iter().zip(right).any(far))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::proxmox::text;

    #[test]
    fn what_somebody_wrote_in_args_stays() {
        let args =
            "args: -cpu host,+x -numa dist,src=0,dst=1,val=21 -device a,b='$(c)' -numa dist,src=1,dst=0,val=21\n";
        let conf = text::read(args, "1.conf").expect("a configuration");
        assert_eq!(without(&conf).join(" "), "-cpu host,+x -device a,b='$(c)'");
        assert_eq!(distances(&conf), [(0, 1, 21), (1, 0, 21)]);
    }

    #[test]
    fn a_tenth_is_no_difference() {
        let of = |value: u32| vec![vec![10, value], vec![value, 10]];
        assert!(!differs(&of(20), &of(21)) && !differs(&of(20), &of(22)) && differs(&of(20), &of(32)));
    }
}
