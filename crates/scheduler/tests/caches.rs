//! Groups of vCPUs on any machine with caches.

use crate::random::{self, Case};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use topology::{CoreId, LlcId};
use vm::spec::CachePolicy;

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
    fn groups_do_not_change_homes_and_ignore_changes_nothing(case in with_caches()) {
        let Some(plan) = planned(&case) else { return Ok(()) };
        let mut ignoring = case;
        ignoring.spec.shape.policy.cache = CachePolicy::Ignore;
        let ignored = planned(&ignoring).expect("the same homes");
        let mut without = ignoring;
        without.machine.threads.iter_mut().for_each(|thread| thread.llc = None);
        without.occupancy.caches.clear();
        prop_assert_eq!(&ignored, &planned(&without).expect("the same homes"));
        let mut ungrouped = plan.clone();
        ungrouped.placement.clients.iter_mut().for_each(|client| client.groups.clear());
        if plan.topology == ignored.topology {
            prop_assert_eq!(&ungrouped.placement, &ignored.placement);
        }
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
