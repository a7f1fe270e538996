//! Latency-sensitive VMs: they count with all of their vCPUs.
//!
//! **Problem.** Such a VM must have a CPU when its moment comes. Two that are bound to the same
//! CPUs, or more of them on a node than that has hardware threads, wait for each other.
//!
//! **Rule.** Of one that runs a note says that it is one, and why. Of one that is defined its pins
//! say it: each vCPU has one CPU of its own. CPUs to which another VM is bound that has no others
//! are shared; else the vCPUs of such VMs on its nodes are counted against their hardware threads.
//! It is a problem where they run, and a warning where so many are paused that nobody waits. The
//! cure is what somebody can do: the balancer moves no VM that somebody pinned.
//!
//! **Example.** Two of them with 6 vCPUs each on a node of 8 hardware threads: 4 too many.

use crate::finding::{Cost, Finding, Harm};
use crate::scene::Scene;
use crate::shaped::ShapedVm;
use scheduler::balance::Next;
use scheduler::{Occupancy, RunState};
use topology::words::named;
use topology::{CpuId, CpuSet, Machine, NodeId, NodeSet};

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    if scene.running().is_none() {
        return pinned_cpus(scene.machine, scene.vm).and_then(|_| crowded(scene)).into_iter().collect();
    }
    let Some(seen) = scene.running().map(|running| &running.seen).filter(|seen| seen.counts_full()) else {
        return Vec::new();
    };
    let because = "nobody is placed on CPUs that it may need, whether it runs or idles";
    let sentence = "it is latency-sensitive: all of its vCPUs count as busy".to_owned();
    let note = Finding::new("latency_sensitive", Harm::Chance, sentence, because).note();
    let note = note.seen(seen.latency_sensitive.clone().unwrap_or_default());
    std::iter::once(note).chain(crowded(scene)).collect()
}

/// CPUs of its vCPUs, where each has one, no two the same.
fn single_cpus(machine: &Machine, vm: &ShapedVm) -> Option<CpuSet> {
    let usable =
        |cpu: &CpuId| machine.thread(*cpu).is_some_and(|thread| machine.usable_cpus(thread.node).contains(*cpu));
    let one = |vcpu: CpuId| {
        let cpus: CpuSet = vm.pins.get(&vcpu.0)?.iter().filter(usable).collect();
        cpus.first().filter(|_| cpus.len() == 1)
    };
    let there = vm.numbers().difference(&vm.absent);
    let cpus: CpuSet = there.iter().map(one).collect::<Option<_>>()?;
    (cpus.len() == there.len() && !cpus.is_empty()).then_some(cpus)
}

/// Whether it is latency-sensitive by its pins, as for one that runs: a whole node of one CPU is a
/// home like any other.
fn pinned_cpus(machine: &Machine, vm: &ShapedVm) -> Option<CpuSet> {
    let large = |node: NodeId| machine.usable_cpus(node).len() > 1;
    single_cpus(machine, vm).filter(|cpus| scheduler::home::nodes_of(machine, cpus).iter().all(large))
}

/// Counts a definition that is latency-sensitive by its pins with all of its vCPUs.
pub(crate) fn hold(ledger: &mut Occupancy, machine: &Machine, vm: &ShapedVm) {
    let Some(cpus) = pinned_cpus(machine, vm) else { return };
    for node in cpus.iter().filter_map(|cpu| machine.thread(cpu)).map(|thread| thread.node) {
        ledger.nodes.entry(node).or_default().always_busy += 1;
    }
}

/// What is crowded: where, so many vCPUs of such VMs on so many hardware threads.
struct Crowd {
    nodes: NodeSet,
    sentence: String,
    factor: f64,
}

fn crowded(scene: &Scene<'_>) -> Option<Finding> {
    let crowd = shared_cpus(scene).or_else(|| full_node(scene))?;
    let because = "when they are all awake, some wait for a CPU that others have";
    let waits = awake(scene, &crowd.nodes);
    let harm = if waits { Harm::Waits } else { Harm::Chance };
    let mut found = Finding::new("latency_sensitive_crowded", harm, crowd.sentence.clone(), because);
    if waits {
        found = found.costs(Cost::CpuTime { factor: crowd.factor });
    } else {
        found = found.seen("those that are paused wait for nothing until they go on");
    }
    if let Some(cpus) = single_cpus(scene.machine, scene.vm) {
        found = found.at(scene.pin_spots(&scene.views[0]).into_iter().take(1));
        pin_elsewhere(scene, &mut found, &cpus);
    } else {
        found.cure.advice = elsewhere(scene, &crowd.nodes);
    }
    Some(found)
}

/// CPUs to which others are bound that have no others: whoever is awake second waits.
fn shared_cpus(scene: &Scene<'_>) -> Option<Crowd> {
    let own = single_cpus(scene.machine, scene.vm)?;
    let shared = own.intersection(&taken(scene));
    let nodes = scene.nodes_of(&own);
    let sentence = format!("another VM is bound to {} too, and has no other CPU for them", super::cpus(&shared));
    (!shared.is_empty()).then_some(Crowd { nodes, sentence, factor: 2.0 })
}

/// CPUs that other latency-sensitive VMs have one each of. Where nobody shows these VMs, those of
/// nodes where there are some.
fn taken(scene: &Scene<'_>) -> CpuSet {
    let (Some(running), Some(host)) = (scene.running(), scene.host) else {
        let sensitive = |cpu: &CpuId| {
            let node = scene.machine.thread(*cpu).map(|thread| thread.node);
            node.is_some_and(|node| scene.others.of(node).always_busy > 0)
        };
        return scene.others.bound_cpus.iter().filter(sensitive).collect();
    };
    let others = host.vms.iter().filter(|seen| seen.vm != running.seen.vm && seen.counts_full());
    let pins = others.flat_map(|seen| &seen.clients).flat_map(|client| client.vcpu_cpus.values());
    pins.filter(|cpus| cpus.len() == 1).flat_map(CpuSet::iter).collect()
}

/// More vCPUs that may all run at once than hardware threads, at the home of one of its clients.
fn full_node(scene: &Scene<'_>) -> Option<Crowd> {
    let of = |view: &crate::scene::NodeView<'_>| {
        let others: u32 = view.runs_on.iter().map(|node| scene.others.of(node).always_busy).sum();
        let beside = scene.views.iter().filter(|other| !other.runs_on.intersection(&view.runs_on).is_empty());
        let own: usize = beside.map(|other| scene.vm.present_of(other.node)).sum();
        let threads: usize = view.runs_on.iter().map(|node| scene.machine.usable_cpus(node).len()).sum();
        let all = own + others as usize;
        // What it lacks alone is a finding of its own.
        (all > threads && threads > 0 && others > 0).then(|| (view.runs_on.clone(), all, threads))
    };
    let (nodes, vcpus, threads) = scene.views.iter().find_map(of)?;
    let sentence = format!(
        "{} {} {threads} hardware threads, and latency-sensitive VMs have {vcpus} vCPUs there",
        named("node", &nodes),
        if nodes.len() == 1 { "has" } else { "have" }
    );
    Some(Crowd { nodes, sentence, factor: vcpus as f64 / threads as f64 })
}

/// Whether it runs, and another such VM on these nodes; what nobody says is taken to run.
fn awake(scene: &Scene<'_>, nodes: &NodeSet) -> bool {
    let (Some(running), Some(host)) = (scene.running(), scene.host) else { return true };
    let runs = |seen: &scheduler::VmObservation| seen.state != Some(RunState::Paused);
    let there = |seen: &scheduler::VmObservation| {
        let cpus = seen.clients.iter().fold(CpuSet::new(), |all, client| all.union(&client.cpus));
        !scene.nodes_of(&cpus).intersection(nodes).is_empty()
    };
    let other = |seen: &&scheduler::VmObservation| seen.vm != running.seen.vm && seen.counts_full() && there(seen);
    runs(&running.seen) && host.vms.iter().filter(other).any(runs)
}

/// Of one whose vCPUs somebody pinned: other CPUs, one each, and the commands where libvirt has it.
fn pin_elsewhere(scene: &Scene<'_>, found: &mut Finding, own: &CpuSet) {
    const WHO: &str = "`homenode balance` leaves a VM where it is that somebody pinned";
    let kept = own.difference(&scene.others.bound_cpus);
    let free = |node: NodeId| {
        let cpus = scene.machine.usable_cpus(node);
        let here = kept.intersection(&cpus);
        let taken = scene.others.bound_cpus.union(&here);
        here.iter().chain(cpus.difference(&taken).iter()).take(own.len()).collect::<CpuSet>()
    };
    let homes = scene.nodes_of(own);
    let others = scene.cpu_nodes.difference(&homes);
    // Its memory is where it runs.
    let enough =
        homes.iter().chain(others.iter()).map(|node| (node, free(node))).find(|(_, cpus)| cpus.len() == own.len());
    let Some((node, cpus)) = enough else {
        found.cure.advice = format!("no node has CPUs left for it: start one of them on another host ({WHO})");
        return;
    };
    let (far, them) = if homes.contains(node) { ("", "CPUs") } else { (", and its memory there", "CPUs") };
    found.cure.advice =
        format!("pin it to {them} {cpus} of node {node}, one each, which no other VM has to itself{far} ({WHO})");
    let libvirt = scene.vm.xml.is_some() || scene.running().is_some_and(|one| one.seen.manager == vm::Manager::Libvirt);
    if libvirt && !scene.running().is_some_and(|running| running.seen.stranger) {
        let each: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
        found.cure.commands = vec![crate::commands::pin_each(&scene.vm.name, &each.join(" "))];
    }
}

/// Of one that may be moved: who does it.
fn elsewhere(scene: &Scene<'_>, nodes: &NodeSet) -> String {
    let nexts = || scene.views.iter().filter_map(|view| view.node.home.as_ref());
    if let Some(Next::Left { because }) = nexts().map(|home| &home.next).find(|next| matches!(next, Next::Left { .. }))
    {
        return format!("start one of them elsewhere (`homenode balance` leaves it where it is: {because})");
    }
    if nexts().any(|home| matches!(home.next, Next::Goes { .. })) {
        return "let the balancer move it: `homenode balance` does so now".to_owned();
    }
    let vcpus = scene.vm.present();
    let left = |node: &NodeId| {
        let threads = scene.machine.usable_cpus(*node).len() as u32;
        !nodes.contains(*node) && threads.saturating_sub(scene.others.of(*node).always_busy) >= vcpus
    };
    let node = scene.cpu_nodes.iter().find(left);
    match node {
        Some(node) => format!("start it on node {node}, where so many hardware threads are left"),
        None => "no other node has so many hardware threads left: start one of them on another host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use scheduler::{ClientId, ClientObservation, NodeObservation, Observation, VmKey, VmObservation};
    use std::collections::BTreeMap;
    use topology::Bytes;

    fn machine() -> Machine {
        topology::read::from_synthetic("numa:2(memory=8GiB) core:8 pu:1").expect("a machine")
    }

    /// A VM at home on node 0, its vCPUs on all CPUs of that, or one on each from `first` on.
    fn vm(index: u32, vcpus: u32, sensitive: bool, first: Option<u32>) -> VmObservation {
        let cpus = machine().usable_cpus(NodeId(0));
        let own = |vcpu: u32| first.map_or_else(|| cpus.clone(), |first| [CpuId(first + vcpu)].into_iter().collect());
        let vcpu_cpus: BTreeMap<u32, CpuSet> = (0..vcpus).map(|vcpu| (vcpu, own(vcpu))).collect();
        let client = ClientObservation {
            id: ClientId(0),
            vcpus,
            cpus: vcpu_cpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus)),
            vcpu_cpus,
            memory: Some(BTreeMap::from([(NodeId(0), Bytes::GIB)])),
            memory_size: Bytes::GIB,
            ..ClientObservation::default()
        };
        let key = VmKey { name: format!("vm{index}"), pid: 10 + index, started: 1 };
        let latency_sensitive = sensitive.then(|| "its rule says so".to_owned());
        VmObservation { latency_sensitive, ..VmObservation::of_clients(key, vec![client]) }
    }

    fn host(vms: [VmObservation; 2]) -> Observation {
        let nodes = [0, 1].map(|node| {
            let seen = NodeObservation {
                cpus: machine().usable_cpus(NodeId(node)),
                cpu_used: None,
                memory_free: Some(Bytes::GIB),
                huge_pages_free: BTreeMap::new(),
            };
            (NodeId(node), seen)
        });
        Observation { nodes: nodes.into(), vms: vms.into(), ..Observation::default() }
    }

    /// What is found of the first.
    fn of_first(host: &Observation) -> Vec<Finding> {
        let found = crate::running_vm(&machine(), host, &host.vms[0].vm, &crate::Known::default());
        found.into_iter().filter(|finding| finding.what.starts_with("latency")).collect()
    }

    fn crowd(host: &Observation) -> Option<Finding> {
        of_first(host).into_iter().find(|finding| finding.what == "latency_sensitive_crowded")
    }

    #[test]
    fn more_that_may_wake_up_than_hardware_threads_are_found() {
        let found = |vcpus: [u32; 2], sensitive: [bool; 2]| -> Vec<&str> {
            let vms = [0, 1].map(|index| vm(index as u32, vcpus[index], sensitive[index], None));
            of_first(&host(vms)).iter().map(|finding| finding.what).collect()
        };
        assert_eq!(found([6, 6], [false, true]), Vec::<&str>::new());
        assert_eq!(found([6, 6], [true, false]), ["latency_sensitive"]);
        assert_eq!(found([6, 2], [true, true]), ["latency_sensitive"]);
        let mut both = found([6, 3], [true, true]);
        both.sort_unstable();
        assert_eq!(both, ["latency_sensitive", "latency_sensitive_crowded"]);
    }

    #[test]
    fn the_cure_is_what_somebody_can_do() {
        // Pinned, the balancer leaves them alone: whoever pinned one names other CPUs.
        let pinned = |first: u32| host([vm(0, 4, true, Some(0)), vm(1, 4, true, Some(first))]);
        let found = crowd(&pinned(2)).expect("CPUs 2 and 3 are shared");
        assert_eq!(found.severity, Severity::Problem);
        assert!(found.sentence.contains("CPUs 2-3"), "{}", found.sentence);
        let advice = &found.cure.advice;
        assert!(advice.contains("CPUs 0-1,6-7 of node 0") && advice.contains("leaves a VM where it is"), "{advice}");
        assert_eq!(crowd(&pinned(4)), None, "each has CPUs of its own");
        // A VM that floats over its node is no such VM.
        assert_eq!(crowd(&host([vm(0, 4, true, Some(0)), vm(1, 8, false, None)])), None);
        let floating = crowd(&host([vm(0, 6, true, None), vm(1, 6, true, None)])).expect("4 too many");
        assert!(floating.cure.advice.contains("node 1"), "{}", floating.cure.advice);
        // Six and six on the same six: node 0 has too few others, node 1 has them.
        let far = crowd(&host([vm(0, 6, true, Some(0)), vm(1, 6, true, Some(0))])).expect("all are shared");
        assert!(far.cure.advice.contains("CPUs 8-13 of node 1, one each") && far.cure.advice.contains("its memory"));
    }

    #[test]
    fn of_those_that_are_paused_nobody_waits() {
        let mut seen = host([vm(0, 4, true, Some(0)), vm(1, 4, true, Some(0))]);
        for paused in [&[0, 1][..], &[0], &[1]] {
            seen.vms.iter_mut().for_each(|vm| vm.state = Some(RunState::Running));
            paused.iter().for_each(|&index: &usize| seen.vms[index].state = Some(RunState::Paused));
            let found = crowd(&seen).expect("the same kind");
            assert_eq!((found.severity, found.cost), (Severity::Warning, None), "{paused:?}");
            assert!(found.cure.advice.contains("pin it to CPUs"), "{}", found.cure.advice);
        }
    }

    #[test]
    fn a_definition_says_the_same_as_the_vm_that_runs() {
        let seen = host([vm(0, 4, true, Some(0)), vm(1, 4, true, Some(0))]);
        let running = crowd(&seen).expect("it runs");
        let mut defined = ShapedVm::of_running(&machine(), &seen.vms[0], &crate::Known::default());
        (defined.running, defined.xml) = (None, Some(crate::XmlFacts::default()));
        let others = Occupancy::of_vms(&seen.vms[1..], &machine());
        let machine = machine();
        let found = crate::definition(&machine, &others, &defined).findings;
        let found = found.iter().find(|finding| finding.what == running.what).expect("the same kind");
        assert_eq!((found.severity, &found.sentence), (running.severity, &running.sentence));
        assert_eq!(found.cure.advice, running.cure.advice);
        let command = "vcpu=0; for cpu in 4 5 6 7; do virsh vcpupin vm0 $vcpu $cpu --live; vcpu=$((vcpu + 1)); done";
        assert_eq!(found.cure.commands, [command]);
    }
}
