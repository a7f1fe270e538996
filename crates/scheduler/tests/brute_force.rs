//! The planner against brute force: every assignment of every set of nodes, scored by code that shares nothing with the planner.

use crate::random;
use crate::random::Case;
use crate::random::cost;
use crate::random::cost::{Home, Scorer};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use scheduler::{Plan, plan, plan_within};
use topology::NodeId;

/// All homes that a client may have: every set of nodes with CPUs enough, in equal parts or as there is room.
fn all_homes(scorer: &Scorer<'_>, client: usize, least: usize) -> Vec<Home> {
    let ids: Vec<NodeId> = scorer.case.machine.nodes.iter().map(|node| node.id).collect();
    let whole: f64 = scorer.clients.iter().map(|client| client.0).sum();
    let everything: f64 = ids.iter().map(|&node| scorer.units(node)).sum();
    let mut homes = Vec::new();
    for mask in 1u32..1 << ids.len() {
        let nodes: Vec<NodeId> =
            ids.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, id)| *id).collect();
        let units: f64 = nodes.iter().map(|&node| scorer.units(node)).sum();
        let holds = units > 0.0 && (whole > everything || units >= scorer.clients[client].0);
        if nodes.len() < least || !holds {
            continue;
        }
        homes.push(Home { nodes: nodes.clone(), equal: true });
        if nodes.len() > 1 && nodes.iter().map(|&node| scorer.available(node)).sum::<f64>() > 0.0 {
            homes.push(Home { nodes, equal: false });
        }
    }
    homes
}

/// The least cost of all assignments without a node that lacks memory; `None` if there is none.
fn least_cost(scorer: &Scorer<'_>, least_home: usize) -> Option<[f64; 9]> {
    let options: Vec<Vec<Home>> =
        (0..scorer.clients.len()).map(|client| all_homes(scorer, client, least_home)).collect();
    let mut best = None;
    extend(scorer, &options, &mut Vec::new(), &mut best);
    best
}

fn extend(scorer: &Scorer<'_>, options: &[Vec<Home>], homes: &mut Vec<Home>, best: &mut Option<[f64; 9]>) {
    if homes.len() == options.len() {
        let cost = scorer.cost(homes);
        if best.is_none_or(|best| cost < best) {
            *best = Some(cost);
        }
        return;
    }
    for home in &options[homes.len()] {
        homes.push(home.clone());
        if home.nodes.iter().all(|&node| scorer.bytes_on(homes, node) <= scorer.available(node)) {
            extend(scorer, options, homes, best);
        }
        homes.pop();
    }
}

/// A uniform VM may ask for more than one node; the planner's sizing says how many.
fn least_home(plan: &Plan) -> usize {
    let uniform = plan.reasons.iter().find(|reason| reason.choice == "one uniform node");
    uniform.map_or(1, |_| plan.reasons[0].choice.trim_start_matches("virtual nodes: ").parse().expect("a number"))
}

/// (cost of the plan, least cost), where the VM fits and is narrow enough for brute force.
fn compare(case: &Case, plan: &Plan) -> Option<([f64; 9], [f64; 9])> {
    let scorer = Scorer::new(case, plan);
    if scorer.clients.len() > 4 {
        return None;
    }
    let least = least_cost(&scorer, least_home(plan))?;
    Some((scorer.cost(&cost::homes(plan)), least))
}

properties::properties! {
    #![cases(200)]

    #[test]
    fn no_set_of_nodes_is_better(case in random::case(1..=3, 16)) {
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec)
            && let Some((cost, least)) = compare(&case, &plan)
        {
            prop_assert!(!Scorer::worse(&cost, &least), "{cost:?} against {least:?}\n{plan:#?}");
        }
    }
}

properties::properties! {
    #![cases(60)]

    #[test]
    fn no_set_of_nodes_is_better_on_four_nodes(case in random::case(4..=4, 12)) {
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec)
            && plan.topology.nodes.len() <= 3
            && let Some((cost, least)) = compare(&case, &plan)
        {
            prop_assert!(!Scorer::worse(&cost, &least), "{cost:?} against {least:?}\n{plan:#?}");
        }
    }
}

/// How often, and in which cost first, the heuristic alone is worse than the exact search; printed for docs/placement.md.
#[test]
fn the_heuristic_comes_close_on_four_nodes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut planned, mut worse, mut moved) = (0, 0, [0; 9]);
    for _ in 0..1000 {
        let case = random::case(4..=4, 16).new_tree(&mut runner).expect("a case").current();
        let exact = plan(&case.machine, &case.occupancy, &case.spec);
        let heuristic = plan_within(&case.machine, &case.occupancy, &case.spec, 0);
        let (Ok(exact), Ok(heuristic)) = (exact, heuristic) else { continue };
        if exact.reasons.iter().any(|reason| reason.choice == "search: not exhaustive") {
            continue;
        }
        let scorer = Scorer::new(&case, &exact);
        let (least, cost) = (scorer.cost(&cost::homes(&exact)), scorer.cost(&cost::homes(&heuristic)));
        assert!(!Scorer::worse(&least, &cost), "the exact search is beaten: {least:?} against {cost:?}");
        planned += 1;
        if Scorer::worse(&cost, &least) {
            worse += 1;
            moved[(0..9).find(|&index| cost[index] > least[index] + 0.01).unwrap_or(8)] += 1;
        }
    }
    println!(
        "heuristic on 4 nodes: {worse} of {planned} plans worse than the optimum; first worse cost, by rank: {moved:?}"
    );
    assert!(planned > 500 && worse * 20 < planned, "{worse} of {planned} are worse");
}
