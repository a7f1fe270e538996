//! Distances between virtual nodes that are not those of their homes.
//!
//! **Rule.** A pair that is told within a fifth of what it is misleads nobody: 20 for 21, which
//! most stacks cannot even say, is a note; 20 for 32, or 20 for 12, is a warning.

use crate::finding::{Aspect, Cost, Finding, Harm};
use crate::scene::Scene;
use crate::shaped::Part;
use scheduler::told::{self, Pair};
use topology::Distances;

const BECAUSE: &str =
    "the guest's kernel and its programs choose near nodes by these numbers, and reclaim memory of near nodes first";

pub(crate) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let vm = scene.vm;
    let Ok(target) = &scene.target else { return Vec::new() };
    if !vm.vnuma || vm.nodes.len() < 2 || target.reshaped {
        return Vec::new();
    }
    let told = told(scene);
    let written = written(scene);
    let spots = scene.spots(vm.nodes.iter().map(|node| Part::Distances(node.id)));
    let rows = |table: &[Vec<u32>]| {
        let row = |row: &Vec<u32>| row.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        table.iter().map(row).collect::<Vec<_>>().join(" / ")
    };
    let seen = format!("the guest is told {}; the machine's are {}", rows(&told), rows(&target.distances));
    let changes = &[Aspect::Distances];
    if asymmetric(&told) && !asymmetric(&target.distances) {
        let sentence = "the way between two of its virtual nodes has one length there and another one back".to_owned();
        let found = Finding::new("asymmetric_distances", Harm::Misled, sentence, BECAUSE).seen(seen).at(spots);
        return vec![costing(scene, found).cure("tell it the machine's", changes)];
    }
    // Where the homes are left to chance the distances are cured with them.
    let placed = scene.views.iter().zip(&target.nodes).all(|(view, node)| view.runs_on.is_subset(&node.home));
    if !placed || told == target.distances || same_homes_only(scene, &told) {
        return Vec::new();
    }
    let (what, sentence) = match written {
        false => ("no_distances", "its guest is not told how far its virtual nodes are from each other".to_owned()),
        true => ("wrong_distances", "its guest is told other distances than those between its homes".to_owned()),
    };
    let seen = if written { seen } else { format!("{seen}; what is not written is 10 and 20") };
    let misleading = misleading(scene, &told).filter(|_| written);
    let seen = misleading.as_ref().map_or(seen.clone(), |pairs| format!("{pairs} ({seen})"));
    let cells = scene.spots(vm.nodes.iter().map(|node| Part::Cell(node.id)));
    let found = costing(scene, Finding::new(what, Harm::Misled, sentence, BECAUSE).seen(seen));
    let cure = match (misleading, scene.running()) {
        (Some(_), Some(_)) => {
            "tell it the machine's, or bring it to homes that are as far apart as it was told: `homenode balance` does \
             that where it wins more than moving the memory costs"
        }
        (Some(_), None) => "tell it the machine's, or give it homes that are as far apart as it is told",
        (None, _) => "tell it the machine's",
    };
    let found = found.at(if written { spots } else { cells }).cure(cure, changes);
    vec![if is_near(&told, &target.distances) { found.note() } else { found }]
}

/// Whether every pair is told within a fifth of what it is.
fn is_near(told: &[Vec<u32>], real: &[Vec<u32>]) -> bool {
    let pairs = || told.iter().flatten().zip(real.iter().flatten());
    pairs().all(|(&told, &real)| told.max(real) * 5 < told.min(real) * 6)
}

/// A finding with what the distances cost where the VM lives now.
fn costing(scene: &Scene<'_>, found: Finding) -> Finding {
    match scene.against_told(&told(scene)) {
        Some(cost) => found.costs(cost),
        None => found,
    }
}

/// What it costs now that the guest is misled; `None` where it is told nothing, or nothing is
/// farther than told.
pub(crate) fn misled(scene: &Scene<'_>) -> Option<Cost> {
    let cost = scene.against_told(&told(scene)).filter(|_| scene.vm.vnuma && written(scene))?;
    matches!(cost, Cost::AgainstTold { longer_share, .. } if longer_share > 0.0).then_some(cost)
}

fn written(scene: &Scene<'_>) -> bool {
    scene.vm.nodes.iter().any(|node| !node.distances.is_empty())
}

/// The pairs that are farther than the guest is told.
fn misleading(scene: &Scene<'_>, told: &[Vec<u32>]) -> Option<String> {
    let target = scene.target.as_ref().ok()?;
    let nodes: Vec<u32> = scene.vm.nodes.iter().map(|node| node.id).collect();
    told::misleading(Pair::all(&nodes, told, &target.distances))
}

/// What the guest is told.
pub(crate) fn told(scene: &Scene<'_>) -> Vec<Vec<u32>> {
    let nodes: Vec<u32> = scene.vm.nodes.iter().map(|node| node.id).collect();
    let of = |id: u32| scene.vm.nodes.iter().find(|node| node.id == id);
    told::table(&nodes, |from, to| of(from)?.distances.get(&to).copied())
}

fn asymmetric(table: &[Vec<u32>]) -> bool {
    (0..table.len()).any(|i| (0..i).any(|j| table[i][j] != table[j][i]))
}

/// Whether all that differs is between virtual nodes with one home, where any small distance will
/// do.
fn same_homes_only(scene: &Scene<'_>, told: &[Vec<u32>]) -> bool {
    let Ok(target) = &scene.target else { return true };
    let nodes = &target.nodes;
    let differs = |i: usize, j: usize| told[i][j] != target.distances[i][j];
    let excused = |i: usize, j: usize| nodes[i].home == nodes[j].home && told[i][j] <= Distances::REMOTE;
    (0..nodes.len()).all(|i| (0..nodes.len()).all(|j| !differs(i, j) || excused(i, j)))
}
