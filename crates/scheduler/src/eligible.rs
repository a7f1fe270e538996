//! Which CPUs of a machine a VM is planned on.
//!
//! **Problem.** "All CPUs of the home" is untrue where some are isolated, and where some are weaker
//! cores: the kernel never runs a floating vCPU on the first, and a guest whose vCPUs are unlike
//! waits for the slowest.
//!
//! **Rule.** A latency-sensitive VM whose vCPUs are bound one by one has isolated CPUs, where there
//! are enough for all of them; every other VM has none ([`Machine::usable_threads`]). On a machine
//! with cores of several kinds a VM has those of the kind that is worth most to it, by capacity: a
//! vCPU that shares its core adds a fifth of one. All kinds together are worth what the weakest
//! core makes of each vCPU, and are taken where one kind is worth less than that. With
//! `policy.cache = "own"` the caches decide.
//!
//! **Example.** 8 P cores of 1024 with two threads, 16 E cores of 672: 8 vCPUs get the P cores
//! (8 x 1024), 16 the E cores (16 x 672; 8 x 1024 and 8 second threads are less), 20 get both.

use crate::Occupancy;
use std::collections::BTreeSet;
use topology::words::count;
use topology::{CoreKind, CpuSet, HardwareThread, Machine, NodeSet};
use vm::spec::{CachePolicy, VcpuBinding};
use vm::{Reason, Shape};

/// Parts of a core of which the second hardware thread of a busy one adds one.
const PARTS: u64 = 5;

/// The CPUs of a machine that a VM is planned on.
pub(crate) struct Eligible {
    /// The machine with no others.
    pub(crate) machine: Machine,
    /// What is held of them.
    pub(crate) occupancy: Occupancy,
    /// Why these.
    pub(crate) reason: Option<Reason>,
    /// What the user should know of them.
    pub(crate) warning: Option<String>,
}

/// The CPUs for a VM; `None`: all that are usable.
pub(crate) fn eligible(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Option<Eligible> {
    on_isolated(machine, occupancy, shape).or_else(|| on_one_kind(machine, occupancy, shape))
}

/// What is held of the CPUs that are not isolated: vCPUs that are bound to isolated ones take no
/// time of others.
pub(crate) fn beside_isolated(machine: &Machine, occupancy: &Occupancy) -> Occupancy {
    let isolated = machine.isolated_cpus();
    let apart = occupancy.bound_cpus.intersection(&isolated);
    let mut occupancy = occupancy.clone();
    for (&node, held) in &mut occupancy.nodes {
        let there = machine.bindable_cpus(node).intersection(&apart).len() as u32;
        held.vcpus = held.vcpus.saturating_sub(there);
        held.always_busy = held.always_busy.min(held.vcpus);
    }
    occupancy.bound_cpus = occupancy.bound_cpus.difference(&isolated);
    occupancy
}

fn on_isolated(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Option<Eligible> {
    let policy = &shape.policy;
    if machine.isolated.is_empty() || policy.vcpu_binding != VcpuBinding::Core || !policy.latency_sensitive {
        return None;
    }
    let isolated = machine.isolated_cpus();
    let nodes = allowed(machine, shape);
    let of_nodes = nodes.iter().fold(CpuSet::new(), |all, node| all.union(&machine.bindable_cpus(node)));
    let free = of_nodes.intersection(&isolated).difference(&occupancy.bound_cpus);
    let vcpus = shape.most_vcpus() as usize;
    if free.len() < vcpus {
        let warning = format!(
            "{} of {} isolated CPUs are free, and it has {}: it is planned on CPUs that the kernel gives to others too",
            free.len(),
            isolated.len(),
            count(vcpus, "vCPU")
        );
        let occupancy = beside_isolated(machine, occupancy);
        return Some(Eligible { machine: machine.clone(), occupancy, reason: None, warning: Some(warning) });
    }
    let mut held = occupancy.clone();
    for (&node, held) in &mut held.nodes {
        let there = machine.bindable_cpus(node).intersection(&isolated).intersection(&occupancy.bound_cpus).len();
        (held.vcpus, held.always_busy) = (there as u32, there as u32);
    }
    let reason = Reason {
        choice: format!("isolated CPUs: of {isolated}"),
        because: "it waits for latency, and on isolated CPUs (isolcpus) the kernel puts nothing beside it".to_owned(),
    };
    Some(Eligible { machine: machine.with_only(&isolated), occupancy: held, reason: Some(reason), warning: None })
}

/// Nodes that the policy names, or all.
fn allowed(machine: &Machine, shape: &Shape) -> NodeSet {
    shape.policy.node_affinity.clone().unwrap_or_else(|| machine.node_ids())
}

fn on_one_kind(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> Option<Eligible> {
    let kinds = machine.core_kinds();
    if kinds.len() < 2 || shape.policy.cache == CachePolicy::Own {
        return None;
    }
    let occupancy = beside_isolated(machine, occupancy);
    let nodes = allowed(machine, shape);
    let taken =
        if shape.policy.vcpu_binding == VcpuBinding::Core { occupancy.bound_cpus.clone() } else { CpuSet::new() };
    let vcpus = u64::from(shape.most_vcpus());
    let is_free = |thread: &&HardwareThread| nodes.contains(thread.node) && !taken.contains(thread.id);
    let worth = |cpus: &CpuSet, capacity: u32| {
        let free: Vec<_> = machine.usable_threads().filter(is_free).filter(|thread| cpus.contains(thread.id)).collect();
        let cores = free.iter().map(|thread| thread.core).collect::<BTreeSet<_>>().len() as u64;
        let fifths = vcpus.min(cores) * PARTS + vcpus.saturating_sub(cores);
        if free.len() as u64 >= vcpus { fifths * u64::from(capacity) } else { 0 }
    };
    let all = kinds.iter().fold(CpuSet::new(), |all, kind| all.union(&kind.cpus));
    let weakest = kinds.iter().map(|kind| kind.capacity).min().unwrap_or_default();
    let mixed = worth(&all, weakest);
    let of_kind = |kind: &CoreKind| worth(&kind.cpus, kind.capacity);
    let most = kinds.iter().map(of_kind).max().filter(|&most| most > 0 && most >= mixed);
    let listed = || kinds.iter().map(words).collect::<Vec<_>>().join(", ");
    let Some(kind) = most.and_then(|most| kinds.iter().find(|kind| of_kind(kind) == most)) else {
        let warning = format!(
            "no kind of core is enough for its {}: they will be unlike, and the guest is not told ({})",
            count(vcpus as usize, "vCPU"),
            listed()
        );
        return Some(Eligible { machine: machine.clone(), occupancy, reason: None, warning: Some(warning) });
    };
    let reason = Reason {
        choice: format!("cores of one kind: {}", words(kind)),
        because: format!(
            "a guest takes its vCPUs to be alike, and a thread that lands on a weaker core holds up the others; the \
            machine has {}",
            listed()
        ),
    };
    Some(Eligible { machine: machine.with_only(&kind.cpus), occupancy, reason: Some(reason), warning: None })
}

/// `8 cores of capacity 1024 (CPUs 0-15)`.
fn words(kind: &CoreKind) -> String {
    format!("{} of capacity {} (CPUs {})", count(kind.cores, "core"), kind.capacity, kind.cpus)
}

#[cfg(test)]
mod tests {
    use crate::{Occupancy, plan};
    use topology::{Bytes, Machine};
    use vm::{Plan, Shape};

    fn shape(vcpus: u32) -> Shape {
        Shape { name: "a".to_owned(), vcpus, memory: Bytes::from_mib(256), ..Shape::default() }
    }

    fn bound(vcpus: u32) -> Shape {
        let mut shape = shape(vcpus);
        shape.policy.vcpu_binding = vm::spec::VcpuBinding::Core;
        shape.policy.latency_sensitive = true;
        shape
    }

    fn cpus_of(plan: &Plan) -> String {
        let bound = plan.bound_cpus();
        if bound.is_empty() { plan.cpus().to_string() } else { bound.to_string() }
    }

    #[test]
    fn what_waits_for_latency_gets_isolated_cpus_and_others_get_none() {
        let machine = topology::read::from_synthetic("numa:1(memory=4GiB) core:8 pu:1(isolated_cpus=4-6)");
        let machine = machine.expect("a machine");
        let mut occupancy = Occupancy::default();
        let other = plan(&machine, &occupancy, &shape(2)).expect("a plan");
        assert_eq!(cpus_of(&other), "0-3,7");
        occupancy.reserve(&other);
        let first = plan(&machine, &occupancy, &bound(2)).expect("a plan");
        assert_eq!(cpus_of(&first), "4-5");
        assert!(first.warnings.is_empty(), "{:?}", first.warnings);
        occupancy.reserve(&first);
        // One isolated CPU is left; bound VMs that do not wait for latency have none.
        let second = plan(&machine, &occupancy, &bound(2)).expect("a plan");
        assert_eq!(cpus_of(&second), "0-1");
        assert!(
            second.warnings.iter().any(|warning| warning.contains("1 of 3 isolated CPUs")),
            "{:?}",
            second.warnings
        );
        assert_eq!(cpus_of(&plan(&machine, &occupancy, &bound(1)).expect("a plan")), "6");
        let mut plain = bound(1);
        plain.policy.latency_sensitive = false;
        assert_eq!(cpus_of(&plan(&machine, &occupancy, &plain).expect("a plan")), "0");
    }

    #[test]
    fn vcpus_on_isolated_cpus_crowd_nobody() {
        let machine = topology::read::from_synthetic("numa:2(memory=4GiB) core:4 pu:1(isolated_cpus=2-3)");
        let machine = machine.expect("a machine");
        let mut occupancy = Occupancy::default();
        occupancy.reserve(&plan(&machine, &occupancy, &bound(2)).expect("a plan"));
        let mut beside = shape(2);
        beside.policy.node_affinity = Some("0".parse().expect("a set"));
        let plan = plan(&machine, &occupancy, &beside).expect("a plan");
        assert_eq!((cpus_of(&plan).as_str(), plan.lost_milli_cpus), ("0-1", 0));
    }

    /// 2 P cores of two threads (CPUs 0-3) and 4 E cores of 600 (CPUs 4-7).
    fn hybrid() -> Machine {
        let text = "sockets = 1\nmemory_per_node = \"32 GiB\"\ncpu_numbering = \"threads-first\"\n[[llc]]\ncores = 2\n\
            threads_per_core = 2\n[[llc]]\ncores = 4\ncore_capacity = 600\n";
        topology::read::from_toml(text, "m.toml").expect("a machine")
    }

    #[test]
    fn a_guest_has_cores_of_one_kind_that_is_worth_most() {
        let of = |vcpus| plan(&hybrid(), &Occupancy::default(), &shape(vcpus)).expect("a plan");
        // 2 x 1024; 3: 2048 and a second thread of 205 against 3 x 600 or 4 x 600.
        assert_eq!((cpus_of(&of(2)), cpus_of(&of(3))), ("0-3".into(), "0-3".into()));
        // 4 x 600 against 2048 and two second threads, 409.
        assert_eq!(cpus_of(&of(4)), "0-3");
        // 5 x 600 on all six cores; no kind has so many CPUs.
        let unlike = of(5);
        assert_eq!(cpus_of(&unlike), "0-7");
        assert!(unlike.warnings.iter().any(|warning| warning.contains("unlike")), "{:?}", unlike.warnings);
    }
}
