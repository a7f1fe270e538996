//! Groups of vCPUs on any machine with caches.

use crate::brute_force::all_homes;
use crate::random::cost::{self, CpuHome, Scorer};
use crate::random::{self, Case};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CoreId, LlcId};
use vm::spec::{CachePolicy, Spread};

/// A random case whose nodes have caches of so many cores, some with vCPUs bound to them.
fn with_caches() -> impl Strategy<Value = Case> {
    let policy = prop_oneof![
        Just(CachePolicy::Auto),
        Just(CachePolicy::Pack),
        Just(CachePolicy::Own),
        Just(CachePolicy::Ignore)
    ];
    let loads = prop::collection::vec(0u32..8, 1..6);
    (random::case(1..=4, 24), 1u32..5, policy, loads).prop_map(|(mut case, cores, policy, loads)| {
        let mut of_node: BTreeMap<u32, BTreeSet<CoreId>> = BTreeMap::new();
        case.machine.threads.iter().for_each(|thread| {
            of_node.entry(thread.node.0).or_default().insert(thread.core);
        });
        for thread in &mut case.machine.threads {
            let core = of_node[&thread.node.0].iter().position(|&core| core == thread.core).expect("its core");
            thread.llc = Some(LlcId(thread.node.0 * 100 + core as u32 / cores));
        }
        case.occupancy.caches = loads.iter().enumerate().map(|(llc, &vcpus)| (LlcId(llc as u32), vcpus)).collect();
        case.spec.shape.policy.cache = policy;
        case
    })
}

fn planned(case: &Case) -> Option<vm::Plan> {
    scheduler::plan(&case.machine, &case.occupancy, &case.spec).ok()
}

properties::properties! {
    #![cases(128)]

    #[test]
    fn each_vcpu_is_in_one_group_of_one_cache_of_its_home(case in with_caches()) {
        let Some(plan) = planned(&case) else { return Ok(()) };
        for client in &plan.placement.clients {
            let nodes = plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
            let vcpus: Vec<u32> = nodes.flat_map(|node| node.vcpus.clone()).collect();
            let grouped: Vec<u32> = client.groups.iter().flat_map(|group| group.vcpus.clone()).collect();
            prop_assert!(client.groups.is_empty() || grouped == vcpus, "{:?} of {:?}", grouped, vcpus);
            for group in &client.groups {
                let of_cache = case.machine.usable_threads().filter(|thread| thread.llc == Some(group.llc));
                let of_home = of_cache.map(|thread| thread.id).filter(|cpu| client.cpus.contains(*cpu));
                prop_assert_eq!(&group.cpus, &of_home.collect());
                prop_assert!(!group.vcpus.is_empty() && !group.cpus.is_empty());
            }
        }
    }

    #[test]
    fn who_ignores_caches_has_the_homes_of_a_machine_without(case in with_caches()) {
        let mut ignoring = case;
        ignoring.spec.shape.policy.cache = CachePolicy::Ignore;
        let Some(ignored) = planned(&ignoring) else { return Ok(()) };
        let mut without = ignoring;
        without.machine.threads.iter_mut().for_each(|thread| thread.llc = None);
        without.occupancy.caches.clear();
        prop_assert_eq!(&ignored, &planned(&without).expect("the same homes"));
    }

    #[test]
    fn a_cache_has_no_more_vcpus_than_cores_where_that_can_be(case in with_caches()) {
        let mut alone = case;
        alone.occupancy = scheduler::Occupancy::default();
        let Some(plan) = planned(&alone) else { return Ok(()) };
        let units = |llc: LlcId| {
            let threads = alone.machine.usable_threads().filter(|thread| thread.llc == Some(llc));
            match alone.spec.policy.prefer_ht {
                true => threads.count(),
                false => threads.map(|thread| thread.core).collect::<BTreeSet<_>>().len(),
            }
        };
        for client in &plan.placement.clients {
            let size = client.groups.iter().map(|group| group.vcpus.len()).max().unwrap_or(0);
            let caches: BTreeSet<LlcId> = alone.machine.usable_threads()
                .filter(|thread| client.cpus.contains(thread.id)).filter_map(|thread| thread.llc).collect();
            let room: usize = caches.iter().map(|&llc| units(llc) / size.max(1)).sum();
            // Clients of one node do not fit it together.
            let shared = plan.placement.clients.iter().any(|other| other.id != client.id && other.cpus == client.cpus);
            if room < client.groups.len() || shared {
                continue;
            }
            for llc in caches {
                let bound = client.groups.iter().filter(|group| group.llc == llc).map(|group| group.vcpus.len());
                prop_assert!(bound.sum::<usize>() <= units(llc), "cache {}", llc);
            }
        }
    }

    #[test]
    fn own_groups_share_no_cache_where_each_can_have_one(case in with_caches()) {
        let mut own = case;
        own.spec.shape.policy.cache = CachePolicy::Own;
        let Some(plan) = planned(&own) else { return Ok(()) };
        for client in &plan.placement.clients {
            let taken: BTreeSet<LlcId> = client.groups.iter().map(|group| group.llc).collect();
            let size = client.groups.iter().map(|group| group.vcpus.len()).max().unwrap_or(0);
            let cores = |llc: LlcId| {
                let threads = own.machine.usable_threads().filter(|thread| thread.llc == Some(llc));
                threads.map(|thread| thread.core).collect::<BTreeSet<_>>().len()
            };
            let of_home: BTreeSet<LlcId> = own.machine.usable_threads()
                .filter(|thread| client.cpus.contains(thread.id)).filter_map(|thread| thread.llc).collect();
            if of_home.iter().filter(|&&llc| cores(llc) >= size).count() >= client.groups.len() {
                prop_assert_eq!(taken.len(), client.groups.len());
            }
        }
    }
}

/// Of the caches of these nodes: their cores (hardware threads with `prefer_ht`).
fn caches_of(case: &Case, home: &CpuHome) -> BTreeMap<LlcId, f64> {
    let mut found: BTreeMap<LlcId, BTreeSet<u32>> = BTreeMap::new();
    for thread in case.machine.usable_threads().filter(|thread| home.contains(&thread.node)) {
        let unit = if case.spec.policy.prefer_ht { thread.id.0 } else { thread.core.0 };
        found.entry(thread.llc.expect("its cache")).or_default().insert(unit);
    }
    found.into_iter().map(|(llc, units)| (llc, units.len() as f64)).collect()
}

/// CPUs lost under the caches, by the balancer's figures: crowding 0.2 d^2 / C, and who waits.
fn lost_under(units: &BTreeMap<LlcId, f64>, bound: &BTreeMap<LlcId, u32>) -> f64 {
    let lost = |(llc, units): (&LlcId, &f64)| {
        let vcpus = f64::from(bound.get(llc).copied().unwrap_or(0));
        0.2 * vcpus * vcpus / units + (vcpus - units).max(0.0)
    };
    units.iter().map(lost).sum()
}

/// The least that is lost under caches by any way to put the groups, client by client, under those
/// of the clients' homes; `None` where there are too many ways to try. With `own` of those ways in
/// which most caches that hold a group have one.
fn least_under(case: &Case, groups: &[(Vec<LlcId>, u32)], all: &BTreeMap<LlcId, f64>) -> Option<f64> {
    let ways: usize = groups.iter().fold(1, |ways, (caches, _)| ways.saturating_mul(caches.len()));
    if ways > 1000 {
        return None;
    }
    let own = case.spec.policy.cache == CachePolicy::Own;
    let under = |way: usize| {
        let (mut rest, mut bound, mut taken) = (way, case.occupancy.caches.clone(), BTreeSet::new());
        for (caches, vcpus) in groups {
            let llc = caches[rest % caches.len()];
            *bound.entry(llc).or_default() += vcpus;
            taken.extend((all[&llc] >= f64::from(*vcpus)).then_some(llc));
            rest /= caches.len();
        }
        (if own { groups.len() - taken.len() } else { 0 }, lost_under(all, &bound))
    };
    let least = (0..ways).map(under).min_by(|one, other| one.partial_cmp(other).expect("numbers"));
    least.map(|(_, lost)| lost)
}

/// vCPUs beyond hardware threads, which come first, and CPUs that are lost.
type Loses = (f64, f64);

fn loses_less(one: &Loses, other: &Loses) -> bool {
    if (one.0 - other.0).abs() > 0.01 { one.0 < other.0 } else { one.1 < other.1 }
}

/// What is lost by the plan; the least with its homes, by any caches for its groups; the least by
/// any homes too.
fn against_all(case: &Case, plan: &vm::Plan) -> Option<[Loses; 3]> {
    let homes = cost::homes(case, plan);
    let single = homes.iter().all(|home| home.len() == 1);
    let divided = plan.placement.clients.iter().all(|client| !client.groups.is_empty());
    if !single || !divided || homes.len() > 3 {
        return None;
    }
    let scorer = Scorer::new(case, plan);
    let every: CpuHome = scorer.ids();
    let all = caches_of(case, &every);
    let total = |homes: &[CpuHome], under: f64| {
        let [stacked, lost, unused, apart] = scorer.cost(homes);
        (stacked, lost + unused + apart + under)
    };
    let mut bound = case.occupancy.caches.clone();
    for (llc, vcpus) in plan.vcpus_by_cache() {
        *bound.entry(llc).or_default() += vcpus;
    }
    let before = lost_under(&all, &case.occupancy.caches);
    let lost = total(&homes, lost_under(&all, &bound) - before);
    let options = all_homes(&scorer, 1..=1);
    let ways = options.len().pow(homes.len() as u32);
    let (mut at_home, mut least) = (lost, lost);
    for way in 0..ways {
        let there: Vec<CpuHome> = (0..homes.len())
            .map(|client| options[way / options.len().pow(client as u32) % options.len()].clone())
            .collect();
        let groups = plan.placement.clients.iter().zip(&there).flat_map(|(client, home)| {
            let caches: Vec<LlcId> = caches_of(case, home).into_keys().collect();
            client.groups.iter().map(move |group| (caches.clone(), group.vcpus.len() as u32))
        });
        let groups: Vec<_> = groups.collect();
        let here = total(&there, least_under(case, &groups, &all)? - before);
        if there == homes && loses_less(&here, &at_home) {
            at_home = here;
        }
        // Memory away from its vCPUs is no way where it can be at home.
        let is_way = scorer.is_away(&homes) || !scorer.is_away(&there);
        if is_way && loses_less(&here, &least) {
            least = here;
        }
    }
    Some([lost, at_home, least])
}

/// A case where vCPUs that are bound to caches are some of those that a node holds, and only what
/// is lost decides.
fn decided_by_loss(round: usize, mut case: Case) -> Case {
    // `pack` is asked to crowd.
    case.spec.shape.policy.cache = [CachePolicy::Auto, CachePolicy::Own][round % 2];
    case.spec.shape.policy.placement = Spread::Auto;
    // Little memory, so that it seldom lies on nodes without the vCPUs, which are not compared.
    case.spec.shape.memory = case.spec.memory.min(Bytes::from_mib(1024));
    case.occupancy.caches.clear();
    for (node, held) in &case.occupancy.nodes {
        let caches: Vec<LlcId> = caches_of(&case, &vec![*node]).into_keys().collect();
        for vcpu in 0..held.vcpus / 2 {
            if let Some(llc) = caches.get(vcpu as usize % caches.len().max(1)) {
                *case.occupancy.caches.entry(*llc).or_default() += 1;
            }
        }
    }
    case
}

/// Homes and caches are chosen together. What that loses against the best by all ways, in all and
/// at worst.
#[test]
fn homes_and_caches_lose_little_more_than_the_best_of_all_ways() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut sums, mut plans, mut worst) = ([0.0; 3], 0, 1.0f64);
    for round in 0..2000 {
        let case = decided_by_loss(round, with_caches().new_tree(&mut runner).expect("a case").current());
        let Some(plan) = planned(&case) else { continue };
        let Some(costs) = against_all(&case, &plan) else { continue };
        plans += 1;
        (0..3).for_each(|which| sums[which] += costs[which].1);
        // Costs are compared in hundredths.
        let ratio = costs[0].1 / (costs[2].1 + 0.012);
        assert!((costs[0].0 - costs[2].0).abs() <= 0.01, "{costs:?} {plan:#?}");
        worst = worst.max(ratio);
    }
    let [lost, at_home, least] = sums;
    println!(
        "{plans} plans lose {lost:.1} CPUs; with the best caches at their homes {at_home:.1}; of all {least:.1}; the \
         worst loses {worst:.3} times the best"
    );
    assert!(plans > 200, "{plans}");
    assert!(worst <= 1.01, "{worst}");
}
