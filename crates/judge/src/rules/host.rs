//! What is wrong with the host as a whole: memory that was promised twice, and settings of its
//! kernel that cost its VMs something. Silent where they do not matter.

use super::{list, promised};
use crate::finding::{Finding, Harm};
use scheduler::{ClientObservation, HostSettings, LlcBalancing, Observation, VmObservation, home};
use std::collections::BTreeMap;
use topology::{Bytes, LlcId, Machine, NodeId};

/// Less memory than this gains nothing that anybody would measure from huge pages.
const WORTH_HUGE_PAGES: Bytes = Bytes::GIB;

/// What is wrong with the host that VMs run on.
pub(crate) fn findings(machine: &Machine, host: &Observation) -> Vec<Finding> {
    let mut found = promised::findings(machine, host);
    let Some(settings) = host.settings.as_ref().filter(|_| !host.vms.is_empty()) else { return found };
    found.extend(super::interleaving::numa_off(machine));
    let several = machine.nodes.iter().filter(|node| node.memory > Bytes(0)).count() > 1;
    let across =
        if several { [ksm(settings), zone_reclaim(settings), tiers(machine, settings)] } else { [None, None, None] };
    found.extend(across.into_iter().flatten());
    found.extend([no_huge_pages(host, settings), one_cache(machine, host, settings)].into_iter().flatten());
    found
}

fn warning(what: &'static str, sentence: &str, because: &'static str, command: &str) -> Finding {
    let mut found = Finding::new(what, Harm::Chance, sentence.to_owned(), because);
    found.cure.advice = command.to_owned();
    found
}

fn ksm(settings: &HostSettings) -> Option<Finding> {
    let merges = settings.ksm_runs == Some(true) && settings.ksm_merges_across_nodes == Some(true);
    merges.then(|| {
        warning(
            "ksm_across_nodes",
            "the kernel merges equal pages of VMs on different nodes (KSM)",
            "a merged page lies on one node: for the VMs of the others it is remote, and no move brings it home",
            "echo 2 > /sys/kernel/mm/ksm/run; echo 0 > /sys/kernel/mm/ksm/merge_across_nodes; echo 1 > \
            /sys/kernel/mm/ksm/run",
        )
        .seen("/sys/kernel/mm/ksm: run 1, merge_across_nodes 1")
    })
}

fn zone_reclaim(settings: &HostSettings) -> Option<Finding> {
    let mode = settings.zone_reclaim_mode.filter(|mode| *mode != 0)?;
    let found = warning(
        "zone_reclaim",
        "a node without free memory gives up its file cache before it asks another node",
        "threads that touch memory stop while the kernel searches their node for pages to give up, though other nodes \
        have free ones",
        "sysctl vm.zone_reclaim_mode=0",
    );
    Some(found.seen(format!("vm.zone_reclaim_mode {mode}")))
}

/// Memory of several tiers: only where a node has memory and no CPU.
fn tiers(machine: &Machine, settings: &HostSettings) -> Option<Finding> {
    let with_cpus = home::nodes_with_cpus(machine);
    let slow = machine.nodes.iter().any(|node| node.memory > Bytes(0) && !with_cpus.contains(node.id));
    let promotes = settings.numa_balancing.is_some_and(|mode| mode & 2 != 0);
    let mut seen = Vec::new();
    if promotes {
        seen.push("kernel.numa_balancing 2".to_owned());
    }
    if settings.demotion_enabled == Some(true) {
        seen.push("/sys/kernel/mm/numa/demotion_enabled true".to_owned());
    }
    if !slow || seen.is_empty() {
        return None;
    }
    let found = warning(
        "memory_tiers",
        "the kernel moves cold memory to nodes without CPUs, and hot memory back",
        "it does so whatever a cpuset allows: memory of a VM may leave the nodes that were chosen for it",
        "echo false > /sys/kernel/mm/numa/demotion_enabled; sysctl kernel.numa_balancing=0, where VMs are to stay on \
        their nodes",
    );
    Some(found.seen(list(&seen)))
}

fn no_huge_pages(host: &Observation, settings: &HostSettings) -> Option<Finding> {
    let ordinary = |client: &&ClientObservation| client.huge_page_size.is_none();
    let clients = host.vms.iter().flat_map(|vm| &vm.clients).filter(ordinary);
    let memory: Bytes = clients.map(|client| client.memory_size).sum();
    if settings.transparent_huge_pages.as_deref() != Some("never") || memory < WORTH_HUGE_PAGES {
        return None;
    }
    let found = warning(
        "no_transparent_huge_pages",
        "VMs get their memory in pages of 4 KiB only",
        "each miss of the TLB walks two page tables, the guest's and the host's: large pages make that rare",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (QEMU asks for them)",
    );
    Some(found.seen(format!("/sys/kernel/mm/transparent_hugepage/enabled: never; {memory} of VMs in ordinary pages")))
}

/// Cache-aware scheduling (Linux 7.2) takes all threads of a QEMU for one group. Vcpus that are
/// bound to caches stay there, and a narrow VM of one client gets what `policy.cache = "pack"` is.
fn one_cache(machine: &Machine, host: &Observation, settings: &HostSettings) -> Option<Finding> {
    let says = settings.llc_balancing.filter(|says| *says != LlcBalancing::Off)?;
    let largest = largest_of_several(machine)?;
    let drawn = |vm: &&VmObservation| {
        let vcpus: usize = vm.clients.iter().map(|client| client.vcpus as usize).sum();
        let divided = vm.clients.iter().all(|client| !client.groups.is_empty());
        !divided && (vm.clients.len() > 1 || vcpus > largest)
    };
    let names: Vec<String> = host.vms.iter().filter(drawn).map(|vm| vm.vm.name.clone()).collect();
    if names.is_empty() {
        return None;
    }
    if says == LlcBalancing::Unreadable {
        let sentence = format!(
            "whether the kernel draws all busy vCPUs of a VM under one last-level cache cannot be read: {}",
            list(&names)
        );
        let because = "kernels from 7.2 on can, by default, and what they are set to is in debugfs";
        let mut found = Finding::new("llc_balancing_unknown", Harm::Misled, sentence, because).note();
        found.cure.advice =
            "look as root, where debugfs is mounted (mount -t debugfs debugfs /sys/kernel/debug)".to_owned();
        return Some(found);
    }
    let sentence = format!("the kernel draws all busy vCPUs of a VM under one last-level cache: {}", list(&names));
    let because = "all virtual nodes of a VM have one such cache, and a VM that is wider than a cache is drawn together \
        while few of its vCPUs are busy; that its memory is larger than the cache the kernel does not see where memory \
        is bound to nodes. Affinity still holds vCPUs on their nodes";
    let mut found = Finding::new("llc_balancing", Harm::Misled, sentence, because).note();
    found = found.seen("/sys/kernel/debug/sched/llc_balancing/enabled 1");
    found.cure.advice =
        "policy.cache = \"own\" or \"pack\" from its next start on: vCPUs that are bound to caches stay \
        there; or, for all of the host, echo 0 > /sys/kernel/debug/sched/llc_balancing/enabled"
            .to_owned();
    Some(found)
}

/// Hardware threads under the largest last-level cache of those nodes that have several: elsewhere
/// the home decides.
fn largest_of_several(machine: &Machine) -> Option<usize> {
    let mut of_node: BTreeMap<NodeId, BTreeMap<LlcId, usize>> = BTreeMap::new();
    for thread in &machine.threads {
        let Some(llc) = thread.llc else { continue };
        *of_node.entry(thread.node).or_default().entry(llc).or_default() += 1;
    }
    of_node.into_values().filter(|caches| caches.len() > 1).flat_map(BTreeMap::into_values).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{GroupObservation, VcpuGroup, VmKey};

    fn found(machine: &str, settings: HostSettings, clients: &[u64]) -> Vec<&'static str> {
        let machine = topology::read::from_synthetic(machine).expect("a machine");
        let client =
            |&gib: &u64| ClientObservation { vcpus: 2, memory_size: Bytes(gib << 30), ..ClientObservation::default() };
        let vm = VmKey { name: "web".into(), pid: 7, started: 1 };
        let vms = vec![VmObservation::of_clients(vm, clients.iter().map(client).collect())];
        let host = Observation { vms, settings: Some(settings), ..Observation::default() };
        findings(&machine, &host).into_iter().map(|finding| finding.what).collect()
    }

    const TWO: &str = "pack:2 [numa(memory=8GB)] l3:1 core:2 pu:1";
    const ONE: &str = "pack:1 [numa(memory=8GB)] l3:2 core:2 pu:1";

    #[test]
    fn vcpus_that_are_bound_to_caches_stay_there() {
        let machine = topology::read::from_synthetic(ONE).expect("a machine");
        let group = |vcpu: u32| GroupObservation {
            group: VcpuGroup { vcpus: vec![vcpu], cpus: "0-1".parse().expect("a set") },
            ..GroupObservation::default()
        };
        let client = |groups| ClientObservation { vcpus: 2, groups, ..ClientObservation::default() };
        let of = |groups: [Vec<GroupObservation>; 2]| {
            let vm = VmKey { name: "web".into(), pid: 7, started: 1 };
            let vms = vec![VmObservation::of_clients(vm, groups.map(client).into())];
            let settings = HostSettings { llc_balancing: Some(LlcBalancing::On), ..HostSettings::default() };
            one_cache(&machine, &Observation { vms, ..Observation::default() }, &settings).is_some()
        };
        assert!(of([vec![group(0)], Vec::new()]));
        assert!(!of([vec![group(0)], vec![group(2)]]));
    }

    #[test]
    fn settings_matter_between_nodes_only() {
        let set = || HostSettings {
            ksm_runs: Some(true),
            ksm_merges_across_nodes: Some(true),
            zone_reclaim_mode: Some(1),
            numa_balancing: Some(2),
            demotion_enabled: Some(true),
            ..HostSettings::default()
        };
        assert_eq!(found(TWO, set(), &[1]), ["ksm_across_nodes", "zone_reclaim"]); // no node without CPUs: no tiers
        assert_eq!(found(ONE, set(), &[1]), [""; 0]);
        let off = HostSettings { ksm_runs: Some(false), zone_reclaim_mode: Some(0), ..set() };
        assert_eq!(found(TWO, off, &[1]), [""; 0]);
        // What could not be read leads to nothing.
        assert_eq!(found(TWO, HostSettings::default(), &[1]), [""; 0]);
    }

    #[test]
    fn tiers_need_a_node_without_cpus() {
        let mut machine = topology::read::from_synthetic(TWO).expect("a machine");
        machine.threads.retain(|thread| thread.node.0 == 0);
        let tiered = |mode, demotes| {
            let settings =
                HostSettings { numa_balancing: Some(mode), demotion_enabled: Some(demotes), ..HostSettings::default() };
            tiers(&machine, &settings).map(|finding| finding.what)
        };
        assert_eq!(
            (tiered(1, false), tiered(2, false), tiered(0, true)),
            (None, Some("memory_tiers"), Some("memory_tiers"))
        );
    }

    #[test]
    fn huge_pages_and_caches_matter_to_large_vms_only() {
        let never = || HostSettings { transparent_huge_pages: Some("never".into()), ..HostSettings::default() };
        assert_eq!(found(ONE, never(), &[1]), ["no_transparent_huge_pages"]);
        assert_eq!(found(ONE, never(), &[0]), [""; 0]); // less than 1 GiB
        let gathers = || HostSettings { llc_balancing: Some(LlcBalancing::On), ..HostSettings::default() };
        // 2 vCPUs under a cache of 2 threads; two clients of 2.
        assert_eq!(found(ONE, gathers(), &[1]), [""; 0]);
        assert_eq!(found(ONE, gathers(), &[1, 1]), ["llc_balancing"]);
        // A cache for each node: the home decides. Set to 0; an old kernel; nobody may look.
        assert_eq!(found(TWO, gathers(), &[1, 1]), [""; 0]);
        let set = |says| found(ONE, HostSettings { llc_balancing: says, ..HostSettings::default() }, &[1, 1]);
        assert_eq!((set(Some(LlcBalancing::Off)), set(None)), (vec![], vec![]));
        assert_eq!(set(Some(LlcBalancing::Unreadable)), ["llc_balancing_unknown"]);
    }
}
