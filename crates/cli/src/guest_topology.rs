//! Whether what a guest was told of its machine is true where it lives: what only QEMU's command line and the placement together show.

use crate::text::count;
use linux::drift::Severity;
use scheduler::{Action, ClientId, VmKey};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuId, CpuSet, Id, IdSet, LlcId, Machine, NodeSet};
use vm::qemu::VcpuTopology;

/// A VM as its guest sees it, and where it lives.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    /// Which.
    pub(crate) vm: VmKey,
    /// What `-smp` says.
    pub(crate) smp: &'a VcpuTopology,
    /// Its virtual nodes; one without a number for a guest that sees none.
    pub(crate) nodes: Vec<GuestNode>,
    /// CPUs that each vCPU may run on, by index.
    pub(crate) affinity: BTreeMap<u32, CpuSet>,
}

/// A virtual node.
#[derive(Debug)]
pub(crate) struct GuestNode {
    /// The client that it is.
    pub(crate) client: ClientId,
    /// Its number in the guest.
    pub(crate) number: Option<u32>,
    /// Its vCPUs.
    pub(crate) vcpus: Vec<u32>,
    /// Its memory.
    pub(crate) memory: Bytes,
    /// Its home, where one was decided.
    pub(crate) home: Option<NodeSet>,
}

/// Something that the guest believes and that is not so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Untruth {
    /// What it is, as a word for programs.
    pub(crate) what: &'static str,
    /// What it is, as a sentence.
    pub(crate) sentence: String,
    /// What was read.
    pub(crate) evidence: String,
    /// How much it matters.
    pub(crate) severity: Severity,
    /// What would mend it.
    pub(crate) advice: String,
    /// What a program can do about it.
    pub(crate) action: Option<Action>,
}

/// Everything that is not so, in the order of this file.
pub(crate) fn examine(machine: &Machine, guest: &Guest) -> Vec<Untruth> {
    let mut found = too_few_cpus(machine, guest);
    found.extend(cache_over_nodes(guest));
    found.extend(straddling_nodes(machine, guest));
    found.extend(one_cache_of_several(machine, guest));
    found.extend(threads_that_are_none(machine, guest));
    found
}

fn list(numbers: impl IntoIterator<Item = u32>) -> IdSet<CpuId> {
    numbers.into_iter().map(CpuId::from_number).collect()
}

fn smp(shape: &VcpuTopology) -> String {
    let VcpuTopology { vcpus, sockets, dies, cores, threads, .. } = shape;
    format!("-smp: {vcpus} vCPUs as {sockets} sockets x {dies} dies x {cores} cores x {threads} threads")
}

/// vCPUs that the guest takes to share a last-level cache: those of a virtual die.
fn dies(shape: &VcpuTopology) -> Vec<BTreeSet<u32>> {
    let per_die = (shape.cores * shape.threads).max(1);
    let all: Vec<u32> = (0..shape.vcpus).collect();
    all.chunks(per_die as usize).map(|chunk| chunk.iter().copied().collect()).collect()
}

/// vCPUs that share fewer CPUs than they are, while their node has more.
fn too_few_cpus(machine: &Machine, guest: &Guest) -> Vec<Untruth> {
    let mut found = Vec::new();
    for node in &guest.nodes {
        let cpus = union(guest, &node.vcpus.iter().copied().collect());
        let home: NodeSet = cpus.iter().filter_map(|cpu| Some(machine.thread(cpu)?.node)).collect();
        let whole: CpuSet = home.iter().flat_map(|id| machine.usable_cpus(id).iter().collect::<Vec<_>>()).collect();
        if cpus.is_empty() || cpus.len() >= node.vcpus.len() || whole.len() <= cpus.len() {
            continue;
        }
        let (vcpus, on) = (list(node.vcpus.iter().copied()), if home.len() == 1 { "node" } else { "nodes" });
        let action =
            Action::Bind { vm: guest.vm.clone(), client: node.client, home: home.clone(), cpus: whole.clone() };
        found.push(Untruth {
            what: "too_few_cpus",
            sentence: format!("its {} vCPUs share {}", node.vcpus.len(), count(cpus.len(), "CPU")),
            evidence: format!("the threads of vCPUs {vcpus} may run on CPUs {cpus} of CPUs {whole} of {on} {home}"),
            severity: Severity::Warning,
            advice: format!("let them run on all CPUs of {on} {home}, {whole} (--fix does)"),
            action: Some(action),
        });
    }
    found
}

/// A virtual die whose vCPUs are of several virtual nodes: guests on AMD models warn, those on Intel models see one cache for both nodes.
fn cache_over_nodes(guest: &Guest) -> Vec<Untruth> {
    let numbered = |vcpu: &u32| guest.nodes.iter().find(|node| node.vcpus.contains(vcpu))?.number;
    let mut found = Vec::new();
    for die in dies(guest.smp) {
        let nodes: BTreeSet<u32> = die.iter().filter_map(numbered).collect();
        if nodes.len() > 1 {
            let (vcpus, nodes) = (list(die), list(nodes));
            found.push(Untruth {
                what: "virtual_cache_over_nodes",
                sentence: format!("its guest sees one last-level cache over its virtual nodes {nodes}"),
                evidence: format!("{}; vCPUs {vcpus} are one die, of virtual nodes {nodes}", smp(guest.smp)),
                severity: Severity::Warning,
                advice: "start it with one virtual socket a virtual node (-smp sockets=, -numa cpu,socket-id=), as `homenode run` does".into(),
                action: None,
            });
        }
    }
    found
}

/// A virtual node that is larger than any node of the host, or whose home is several.
fn straddling_nodes(machine: &Machine, guest: &Guest) -> Vec<Untruth> {
    if machine.nodes.len() < 2 {
        return Vec::new();
    }
    let cores = machine.nodes.iter().map(|node| machine.usable_cores(node.id).len()).max().unwrap_or(0);
    let memory = machine.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    let mut found = Vec::new();
    for node in &guest.nodes {
        let mut reasons = Vec::new();
        if node.vcpus.len() > cores {
            reasons.push(format!("{} vCPUs, a node of this host has {}", node.vcpus.len(), count(cores, "core")));
        }
        if node.memory > memory {
            reasons.push(format!("{} of memory, a node of this host has {memory}", node.memory));
        }
        if let Some(home) = node.home.as_ref().filter(|home| home.len() > 1) {
            reasons.push(format!("its home is nodes {home}"));
        }
        if reasons.is_empty() {
            continue;
        }
        let sentence = match node.number {
            None => "its guest sees one NUMA node where it lives on several".to_owned(),
            Some(number) => format!("its virtual node {number} lies over several nodes of the host"),
        };
        let advice = "start it with more virtual nodes: `homenode plan` sizes them".to_owned();
        let (what, evidence) = ("straddling_virtual_node", reasons.join("; "));
        found.push(Untruth { what, sentence, evidence, severity: Severity::Warning, advice, action: None });
    }
    found
}

/// A virtual die whose vCPUs may run under several last-level caches of the host.
fn one_cache_of_several(machine: &Machine, guest: &Guest) -> Vec<Untruth> {
    let mut found = Vec::new();
    for die in dies(guest.smp).into_iter().filter(|die| die.len() > 1) {
        let cpus = union(guest, &die);
        let caches: IdSet<LlcId> = cpus.iter().filter_map(|cpu| machine.thread(cpu)?.llc).collect();
        if caches.len() > 1 {
            let vcpus = list(die);
            found.push(Untruth {
                what: "virtual_cache_over_caches",
                sentence: format!(
                    "its guest takes vCPUs {vcpus} to share a last-level cache, and they may run under {}",
                    caches.len()
                ),
                evidence: format!("{}; CPUs {cpus} are under caches {caches}", smp(guest.smp)),
                severity: Severity::Note,
                advice: "if its programs share much data, start it with one virtual socket or die a cache".into(),
                action: None,
            });
        }
    }
    found
}

fn union(guest: &Guest, vcpus: &BTreeSet<u32>) -> CpuSet {
    vcpus.iter().filter_map(|vcpu| guest.affinity.get(vcpu)).fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// Virtual threads of a core that may run on different cores; or virtual cores that are threads of one core.
fn threads_that_are_none(machine: &Machine, guest: &Guest) -> Vec<Untruth> {
    let cores_of = |cpus: &CpuSet| -> BTreeSet<u32> {
        cpus.iter().filter_map(|cpu| Some(machine.thread(cpu)?.core.number())).collect()
    };
    if guest.smp.threads > 1 {
        let all: Vec<u32> = (0..guest.smp.vcpus).collect();
        let apart =
            |core: &&[u32]| core.len() > 1 && cores_of(&union(guest, &core.iter().copied().collect())).len() > 1;
        let Some(first) = all.chunks(guest.smp.threads as usize).find(apart) else { return Vec::new() };
        let (vcpus, cpus) = (list(first.iter().copied()), union(guest, &first.iter().copied().collect()));
        return vec![Untruth {
            what: "virtual_threads_on_cores",
            sentence: "its guest takes vCPUs for hardware threads of one core, and they may run on different cores"
                .into(),
            evidence: format!("{}; vCPUs {vcpus} may run on CPUs {cpus}", smp(guest.smp)),
            severity: Severity::Note,
            advice: "start it with threads=1, unless each virtual core is bound to one core of the host".into(),
            action: None,
        }];
    }
    let mut by_core = BTreeMap::<u32, Vec<u32>>::new();
    for (&vcpu, cpus) in guest.affinity.iter().filter(|(_, cpus)| cpus.len() == 1) {
        for core in cores_of(cpus) {
            by_core.entry(core).or_default().push(vcpu);
        }
    }
    let shared = by_core.into_values().find(|vcpus| {
        let cpus: BTreeSet<CpuSet> = vcpus.iter().filter_map(|vcpu| guest.affinity.get(vcpu).cloned()).collect();
        cpus.len() > 1
    });
    let Some(vcpus) = shared else { return Vec::new() };
    let set: BTreeSet<u32> = vcpus.iter().copied().collect();
    vec![Untruth {
        what: "virtual_cores_on_threads",
        sentence: "its guest takes vCPUs for cores, and they are bound to hardware threads of one core".into(),
        evidence: format!("{}; vCPUs {} are bound to CPUs {}", smp(guest.smp), list(vcpus), union(guest, &set)),
        severity: Severity::Note,
        advice: "bind them to the node's CPUs, or start it with threads=2".into(),
        action: None,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::read;

    fn shape(vcpus: u32, sockets: u32, cores: u32, threads: u32) -> VcpuTopology {
        VcpuTopology { vcpus, most: vcpus, sockets, dies: 1, cores, threads }
    }

    fn guest<'a>(smp: &'a VcpuTopology, nodes: &[&[u32]], affinity: &[&str]) -> Guest<'a> {
        let numbered = nodes.len() > 1;
        let node = |(number, vcpus): (usize, &&[u32])| GuestNode {
            client: ClientId(number as u32),
            number: numbered.then_some(number as u32),
            vcpus: vcpus.to_vec(),
            memory: Bytes::GIB,
            home: None,
        };
        let affinity = affinity.iter().enumerate().map(|(vcpu, cpus)| (vcpu as u32, cpus.parse().unwrap()));
        let vm = VmKey { name: "a".into(), pid: 1, started: 1 };
        Guest { vm, smp, nodes: nodes.iter().enumerate().map(node).collect(), affinity: affinity.collect() }
    }

    /// Two nodes of 4 GiB, each two caches of two cores of two threads: CPUs 0-7 and 8-15.
    fn machine() -> Machine {
        read::from_synthetic("pack:2 [numa(memory=4GB)] l3:2 core:2 pu:2").unwrap()
    }

    fn whats(guest: &Guest) -> Vec<&'static str> {
        examine(&machine(), guest).iter().map(|untruth| untruth.what).collect()
    }

    #[test]
    fn one_socket_for_two_nodes_is_a_cache_over_nodes_and_two_sockets_are_right() {
        let affinity = ["0-3", "0-3", "8-11", "8-11"];
        let nodes: [&[u32]; 2] = [&[0, 1], &[2, 3]];
        let (one, two) = (shape(4, 1, 4, 1), shape(4, 2, 2, 1));
        assert_eq!(whats(&guest(&one, &nodes, &affinity)), ["virtual_cache_over_nodes", "virtual_cache_over_caches"]);
        assert_eq!(whats(&guest(&two, &nodes, &affinity)), [""; 0]);
    }

    #[test]
    fn a_node_that_fits_nowhere_straddles() {
        let smp = shape(5, 5, 1, 1); // a node of the host has 4 cores
        let wide = guest(&smp, &[&[0, 1, 2, 3, 4]], &["0-15"; 5]);
        assert_eq!(whats(&wide), ["straddling_virtual_node"]);
        let smp = shape(1, 1, 1, 1);
        let mut fat = guest(&smp, &[&[0]], &["0-15"]);
        assert_eq!(whats(&fat), [""; 0]);
        fat.nodes[0].memory = Bytes::from_mib(5 << 10);
        assert_eq!(whats(&fat), ["straddling_virtual_node"]);
        fat.nodes[0].memory = Bytes::GIB;
        fat.nodes[0].home = Some("0-1".parse().unwrap());
        assert_eq!(whats(&fat), ["straddling_virtual_node"]);
    }

    #[test]
    fn threads_and_cores_are_told_apart() {
        let (threads, cores) = (shape(2, 1, 1, 2), shape(2, 2, 1, 1));
        let one: [&[u32]; 1] = [&[0, 1]];
        // CPUs 0 and 1 are one core, 2 is the next.
        assert_eq!(whats(&guest(&threads, &one, &["0-1", "0-1"])), [""; 0]);
        assert_eq!(whats(&guest(&threads, &one, &["0-2", "0-2"])), ["virtual_threads_on_cores"]);
        assert_eq!(whats(&guest(&cores, &one, &["0", "1"])), ["virtual_cores_on_threads"]);
        assert_eq!(whats(&guest(&cores, &one, &["0", "2"])), [""; 0]);
        assert_eq!(whats(&guest(&cores, &one, &["0", "0"])), ["too_few_cpus"]);
    }

    #[test]
    fn vcpus_that_share_a_cpu_get_the_whole_node() {
        let smp = shape(2, 2, 1, 1);
        let found = examine(&machine(), &guest(&smp, &[&[0, 1]], &["9", "9"]));
        let Some(Action::Bind { home, cpus, .. }) = &found[0].action else { panic!("{found:?}") };
        assert_eq!((home.to_string(), cpus.to_string()), ("1".into(), "8-15".into()));
        // As many CPUs as vCPUs are enough.
        assert_eq!(whats(&guest(&smp, &[&[0, 1]], &["8", "10"])), [""; 0]);
    }
}
