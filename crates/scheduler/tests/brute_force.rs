//! The planner against brute force: every assignment of every set of nodes, scored by what a user
//! loses, in code that shares nothing with the planner.

use crate::random;
use crate::random::cost::{self, Cost, CpuHome, Scorer};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use scheduler::{plan, plan_within};
use topology::NodeId;
use vm::Plan;

/// All sets of nodes with CPUs whose sizes are in `sizes`.
pub(crate) fn all_homes(scorer: &Scorer<'_>, sizes: std::ops::RangeInclusive<usize>) -> Vec<CpuHome> {
    let ids: Vec<NodeId> = scorer.ids().into_iter().filter(|&node| scorer.threads(node) > 0.0).collect();
    let set = |mask: u32| -> CpuHome {
        ids.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, id)| *id).collect()
    };
    (1u32..1 << ids.len()).map(set).filter(|set| sizes.contains(&set.len())).collect()
}

/// The least cost of all assignments, and the homes.
fn least_cost(scorer: &Scorer<'_>, options: &[Vec<CpuHome>]) -> (Cost, Vec<CpuHome>) {
    type Best = Option<(Cost, Vec<CpuHome>)>;
    fn extend(scorer: &Scorer<'_>, options: &[Vec<CpuHome>], homes: &mut Vec<CpuHome>, best: &mut Best) {
        if homes.len() == options.len() {
            let cost = scorer.cost(homes);
            if best.as_ref().is_none_or(|(best, _)| cost < *best) {
                *best = Some((cost, homes.clone()));
            }
            return;
        }
        for home in &options[homes.len()] {
            homes.push(home.clone());
            extend(scorer, options, homes, best);
            homes.pop();
        }
    }
    let mut best = None;
    extend(scorer, options, &mut Vec::new(), &mut best);
    best.expect("an assignment")
}

/// (cost of the plan, least cost of homes of its sizes), where the VM is narrow enough for brute
/// force.
pub(crate) fn compare(scorer: &Scorer<'_>, plan: &Plan, most_clients: usize) -> Option<(Cost, Cost)> {
    let case = scorer.case;
    let homes = cost::homes(case, plan);
    // Equal parts on homes of several nodes come before everything else; where they fit nowhere
    // else, this is no comparison.
    let wanted: f64 = scorer.clients.iter().map(|client| client.1).sum();
    let roomy = scorer.ids().iter().all(|&node| scorer.available(node) >= wanted * 1_048_576.0);
    if homes.len() > most_clients || (!roomy && homes.iter().any(|home| home.len() > 1)) {
        return None;
    }
    let options: Vec<Vec<CpuHome>> = homes.iter().map(|home| all_homes(scorer, home.len()..=home.len())).collect();
    let (least, least_homes) = least_cost(scorer, &options);
    // Memory away from its vCPUs is never the price of what others may do.
    if scorer.is_away(&least_homes) && homes != least_homes {
        let certain = scorer.for_certain();
        return Some((certain.cost(&homes), least_cost(&certain, &options).0));
    }
    Some((scorer.cost(&homes), least))
}

fn is_exhaustive(plan: &Plan) -> bool {
    plan.reasons.iter().all(|reason| reason.choice != "search: not exhaustive")
}

properties::properties! {
    #![cases(200)]

    #[test]
    fn nobody_loses_less_elsewhere(case in random::case(1..=3, 16)) {
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec)
            && let Some((cost, least)) = compare(&Scorer::new(&case, &plan), &plan, 4)
        {
            prop_assert!(!Scorer::worse(&cost, &least), "{cost:?} against {least:?}\n{plan:#?}");
        }
    }
}

properties::properties! {
    #![cases(60)]

    #[test]
    fn nobody_loses_less_elsewhere_on_four_nodes(case in random::case(4..=4, 12)) {
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec)
            && let Some((cost, least)) = compare(&Scorer::new(&case, &plan), &plan, 3)
        {
            prop_assert!(!Scorer::worse(&cost, &least), "{cost:?} against {least:?}\n{plan:#?}");
        }
    }

    /// What the plan says it loses is what it loses: also that its memory is divided as well as can
    /// be.
    #[test]
    fn what_is_lost_is_told(case in random::case(1..=5, 16)) {
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec) {
            let homes = cost::homes(&case, &plan);
            let cost = Scorer::new(&case, &plan).cost(&homes);
            let (told, lost) = (plan.lost_milli_cpus as f64 / 1000.0, cost[1] + cost[3]);
            let single = homes.iter().all(|home| home.len() == 1);
            prop_assert!(told > lost - 0.02 && (!single || told < lost + 0.02), "{told} told, {lost} lost\n{plan:#?}");
        }
    }

    /// Machines of even nodes with random free memory: no node has more vCPUs than hardware threads
    /// unless the VM is wider than the machine.
    #[test]
    fn vcpus_do_not_pile_up_whatever_is_free(case in random::even_case(2..=6), wide in any::<bool>()) {
        let mut case = case;
        if wide {
            case.spec.shape.vcpus = case.machine.threads.len() as u32;
        }
        if let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec) {
            for (&node, held) in &plan.holdings {
                let threads = case.machine.usable_cpus(node).len() as u32;
                prop_assert!(held.vcpus <= threads, "{} vCPUs on the {threads} threads of node \
                    {node}\n{plan:#?}", held.vcpus);
            }
        }
    }
}

/// What the heuristic alone loses beyond the exact search, in CPUs; printed for docs/placement.md.
#[test]
fn the_heuristic_comes_close_on_four_nodes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut planned, mut worse, mut more_stacked, mut best, mut lost) = (0, 0, 0, 0.0, 0.0);
    for _ in 0..1000 {
        let case = random::case(4..=4, 16).new_tree(&mut runner).expect("a case").current();
        let exact = plan(&case.machine, &case.occupancy, &case.spec);
        let heuristic = plan_within(&case.machine, &case.occupancy, &case.spec, 0);
        let (Ok(exact), Ok(heuristic)) = (exact, heuristic) else { continue };
        // What is free may give the two other shapes.
        if !is_exhaustive(&exact) || exact.topology.nodes != heuristic.topology.nodes {
            continue;
        }
        let scorer = Scorer::new(&case, &exact);
        let (least, cost) = (scorer.cost(&cost::homes(&case, &exact)), scorer.cost(&cost::homes(&case, &heuristic)));
        planned += 1;
        worse += u32::from(Scorer::worse(&cost, &least));
        more_stacked += u32::from(cost[0] > least[0] + 0.13);
        best += least[1] + least[3];
        lost += cost[1] + cost[3];
    }
    println!(
        "heuristic on 4 nodes: {worse} of {planned} plans worse than the exact search, {more_stacked} with more vCPUs \
        than threads; \
         {lost:.1} CPUs lost in all, {best:.1} by the exact search: {:.4} of it",
        lost / best
    );
    assert!(planned > 500 && worse * 10 < planned && more_stacked == 0 && lost < best * 1.02);
}

/// What the rule costs that a client's vCPUs live on as few nodes as hold them: against all sets of
/// nodes for every client.
#[test]
fn homes_of_more_nodes_would_win_little() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut planned, mut least, mut lost) = (0, 0.0, 0.0);
    for _ in 0..300 {
        let case = random::case(3..=3, 12).new_tree(&mut runner).expect("a case").current();
        let Ok(plan) = plan(&case.machine, &case.occupancy, &case.spec) else { continue };
        let scorer = Scorer::new(&case, &plan);
        let homes = cost::homes(&case, &plan);
        if homes.len() > 3 || case.spec.policy.vnuma == Some(false) {
            continue;
        }
        let options = vec![all_homes(&scorer, 1..=3); homes.len()];
        let (cost, of_all) = (scorer.cost(&homes), least_cost(&scorer, &options).0);
        planned += 1;
        lost += cost[1] + cost[3];
        least += of_all[1] + of_all[3];
    }
    println!(
        "homes of few nodes: {lost:.1} CPUs lost in {planned} plans, {least:.1} with any homes: {:.3} of it",
        lost / least
    );
    assert!(planned > 100 && lost < least * 1.25, "{lost} {least}");
}
