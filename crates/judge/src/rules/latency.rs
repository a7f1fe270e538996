//! Latency-sensitive VMs that run: they count with all of their vCPUs.
//!
//! **Rule.** Of such a VM a note says that it is one, and why. Where the vCPUs of such VMs at its
//! home are more than the home has hardware threads, it waits for a CPU when its moment comes.
//!
//! **Example.** Two of them with 6 vCPUs each on a node of 8 hardware threads: 4 too many.

use crate::finding::{Cost, Finding, Harm};
use crate::scene::Scene;
use topology::words::named;

pub(super) fn findings(scene: &Scene<'_>) -> Vec<Finding> {
    let Some(seen) = scene.running().map(|running| &running.seen).filter(|seen| seen.counts_full()) else {
        return Vec::new();
    };
    let because = "nobody is placed on CPUs that it may need, whether it runs or idles";
    let sentence = "it is latency-sensitive: all of its vCPUs count as busy".to_owned();
    let note = Finding::new("latency_sensitive", Harm::Chance, sentence, because).note();
    let note = note.seen(seen.latency_sensitive.clone().unwrap_or_default());
    std::iter::once(note).chain(crowded(scene)).collect()
}

/// More vCPUs that may all run at once than hardware threads, at the home of one of its clients.
fn crowded(scene: &Scene<'_>) -> Option<Finding> {
    let of = |view: &crate::scene::NodeView<'_>| {
        let others: u32 = view.runs_on.iter().map(|node| scene.others.of(node).always_busy).sum();
        let beside = scene.views.iter().filter(|other| !other.runs_on.intersection(&view.runs_on).is_empty());
        let own: usize = beside.map(|other| other.node.vcpus.len()).sum();
        let threads: usize = view.runs_on.iter().map(|node| scene.machine.usable_cpus(node).len()).sum();
        let all = own + others as usize;
        (all > threads && threads > 0).then(|| (view.runs_on.clone(), all, threads))
    };
    let (nodes, vcpus, threads) = scene.views.iter().find_map(of)?;
    let sentence = format!(
        "{} {} {threads} hardware threads, and latency-sensitive VMs have {vcpus} vCPUs there",
        named("node", &nodes),
        if nodes.len() == 1 { "has" } else { "have" }
    );
    let because = "when they are all awake, some wait for a CPU that others have";
    let mut found = Finding::new("latency_sensitive_crowded", Harm::Waits, sentence, because);
    found = found.costs(Cost::CpuTime { factor: vcpus as f64 / threads as f64 });
    found.cure.advice = "start one of them elsewhere, or let the balancer move it".to_owned();
    Some(found)
}

#[cfg(test)]
mod tests {
    use scheduler::{ClientId, ClientObservation, NodeObservation, Observation, VmKey, VmObservation};
    use std::collections::BTreeMap;
    use topology::{Bytes, NodeId};

    /// Two VMs of so many vCPUs each at home on node 0 of two nodes of 8 CPUs.
    fn found(vcpus: [u32; 2], sensitive: [bool; 2]) -> Vec<&'static str> {
        let machine = topology::read::from_synthetic("numa:2(memory=8GiB) core:8 pu:1").expect("a machine");
        let cpus = machine.usable_cpus(NodeId(0));
        let vm = |index: usize| {
            let client = ClientObservation {
                id: ClientId(0),
                vcpus: vcpus[index],
                cpus: cpus.clone(),
                vcpu_cpus: (0..vcpus[index]).map(|vcpu| (vcpu, cpus.clone())).collect(),
                memory: Some(BTreeMap::from([(NodeId(0), Bytes::GIB)])),
                memory_size: Bytes::GIB,
                ..ClientObservation::default()
            };
            let key = VmKey { name: format!("vm{index}"), pid: 10 + index as u32, started: 1 };
            let latency_sensitive = sensitive[index].then(|| "its rule says so".to_owned());
            VmObservation { latency_sensitive, ..VmObservation::of_clients(key, vec![client]) }
        };
        let nodes = [0, 1].map(|node| {
            let seen = NodeObservation {
                cpus: machine.usable_cpus(NodeId(node)),
                cpu_used: None,
                memory_free: Some(Bytes::GIB),
                huge_pages_free: BTreeMap::new(),
            };
            (NodeId(node), seen)
        });
        let host = Observation { nodes: nodes.into(), vms: vec![vm(0), vm(1)], ..Observation::default() };
        let found = crate::running_vm(&machine, &host, &host.vms[0].vm, &crate::Known::default());
        found.iter().map(|finding| finding.what).filter(|what| what.starts_with("latency")).collect()
    }

    #[test]
    fn more_that_may_wake_up_than_hardware_threads_are_found() {
        assert_eq!(found([6, 6], [false, true]), Vec::<&str>::new());
        assert_eq!(found([6, 6], [true, false]), ["latency_sensitive"]);
        assert_eq!(found([6, 2], [true, true]), ["latency_sensitive"]);
        let mut both = found([6, 3], [true, true]);
        both.sort_unstable();
        assert_eq!(both, ["latency_sensitive", "latency_sensitive_crowded"]);
    }
}
