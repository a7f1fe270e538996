//! Why a fixed virtual topology lies as it does, in words.

use crate::told::{self, Pair};
use topology::NodeSet;
use vm::{Plan, Reason};

/// Reasons of the map, before those of the homes.
pub(crate) fn reasons(plan: &Plan) -> Vec<Reason> {
    let count = plan.topology.nodes.len();
    let fixed = Reason {
        choice: format!("virtual nodes: {count}, unchanged"),
        because: "they are fixed since the first power-on: only their homes are chosen".to_owned(),
    };
    [Some(fixed), Some(map(plan)), likeness(plan), Some(locality(plan))].into_iter().flatten().collect()
}

/// Which virtual node lies where, those of one home together.
fn map(plan: &Plan) -> Reason {
    let mut homes: Vec<(&NodeSet, Vec<u32>)> = Vec::new();
    for client in &plan.placement.clients {
        match homes.iter_mut().find(|(home, _)| **home == client.home) {
            Some((_, virtual_nodes)) => virtual_nodes.extend(&client.virtual_nodes),
            None => homes.push((&client.home, client.virtual_nodes.clone())),
        }
    }
    let of = |(home, virtual_nodes): &(&NodeSet, Vec<u32>)| {
        let list: Vec<String> = virtual_nodes.iter().map(u32::to_string).collect();
        format!("{} on {home}", list.join(", "))
    };
    let shared = homes.len() < plan.placement.clients.len();
    let wide = homes.iter().any(|(home, _)| home.len() > 1);
    let because = match (shared, wide) {
        (false, false) => "one to one: each virtual node has a machine node of its own",
        (true, false) => "several virtual nodes share a machine node: less is lost than apart",
        (false, true) => "one to several: a virtual node that no single machine node holds lies on near ones",
        (true, true) => "some virtual nodes share a machine node, others need several",
    };
    let told: Vec<String> = homes.iter().map(of).collect();
    Reason { choice: format!("map: {}", told.join("; ")), because: because.to_owned() }
}

/// How much the real distances are like those that the guest was told.
fn likeness(plan: &Plan) -> Option<Reason> {
    let pairs = pairs(plan);
    let farther = pairs.iter().filter(|pair| pair.real > pair.told).max_by_key(|pair| pair.excess_permille());
    let nearer = pairs.iter().filter(|pair| pair.real < pair.told).count();
    pairs.first()?;
    let (choice, because) = match (farther, nearer) {
        (None, 0) => ("as the guest was told", "every pair of virtual nodes is as far apart as it was told".to_owned()),
        (None, count) => (
            "no farther than told",
            format!(
                "pairs of virtual nodes that are nearer than told: {count} of {}; that costs the guest nothing",
                pairs.len()
            ),
        ),
        (Some(worst), _) => {
            ("farther than told", format!("no better map costs less; the worst pair: {}", worst.text()))
        }
    };
    Some(Reason { choice: format!("distances: {choice}"), because })
}

/// How much of its own memory each virtual node has local.
fn locality(plan: &Plan) -> Reason {
    let percent = |permille: u32| f64::from(permille) / 10.0;
    let all = &plan.expected.local_permille;
    let (least, most) = (all.iter().min().copied().unwrap_or(0), all.iter().max().copied().unwrap_or(0));
    let choice = match least == most {
        true => format!("expected locality: {} %", percent(least)),
        false => format!("expected locality: {} to {} %", percent(least), percent(most)),
    };
    let because = "of a virtual node's accesses to its own memory, if its vCPUs touch all of it evenly".to_owned();
    Reason { choice, because }
}

/// A warning of pairs that are much farther than the guest was told.
pub(crate) fn misleading(plan: &Plan) -> Option<String> {
    let pairs = told::misleading(pairs(plan))?;
    Some(format!("the guest was told distances that mislead it here: {pairs}"))
}

/// All pairs of different virtual nodes, where the guest was told of them.
fn pairs(plan: &Plan) -> Vec<Pair> {
    if !plan.topology.exposed {
        return Vec::new();
    }
    let nodes: Vec<u32> = plan.topology.nodes.iter().map(|node| node.id).collect();
    Pair::all(&nodes, &plan.topology.distances, &plan.expected.distances)
}
