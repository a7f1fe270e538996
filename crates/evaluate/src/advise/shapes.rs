//! The shapes that are compared.

use crate::applications;
use crate::experiment::{Configuration, Experiment, Runs, Vms};
use crate::modelled::ModelledError;
use crate::vcpus::Vcpus;
use serde::Serialize;
use simulator::workload::WorkloadProfile;
use std::collections::BTreeSet;
use topology::{Bytes, Machine};
use vm::spec::{Policy, Spread};
use vm::{MemoryPolicy, VmSpec};
use workloads::Section;
use workloads::choice::Choice;
use workloads::stream::Stream;
use workloads::workload::Pinning;

/// One way to run the VM's work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// Its name: `one VM, vNUMA`.
    pub name: String,
    /// What a VM spec says for it: `policy.prefer_ht = true`.
    pub written_as: String,
    /// VMs at the same time.
    pub vms: u32,
    /// vCPUs of each.
    pub vcpus: u32,
    /// Memory of each.
    pub memory: Bytes,
    /// How they are sized and placed.
    pub policy: Policy,
    /// Threads or processes over all VMs.
    pub threads: u32,
    /// Whether threads are spread over the last-level caches, one after the other, before a second
    /// one comes to any.
    pub one_per_llc: bool,
}

impl Shape {
    /// The shape as an experiment with one configuration.
    pub(super) fn experiment(&self, profile: &WorkloadProfile) -> Result<Experiment, ModelledError> {
        let is_application = profile.application.is_some();
        let text = format!(
            "name = \"advise\"\ntitle = \"advise\"\nworkload = \"{}\"\nconfiguration = []\n",
            if is_application { "application" } else { "stream" }
        );
        let mut experiment: Experiment = toml::from_str(&text)
            .map_err(|error| ModelledError::Field { field: "experiment".to_owned(), problem: error.to_string() })?;
        experiment.threads = Choice::Fixed(vec![self.threads]);
        experiment.replace_section(Section::new(Stream { elements: Choice::Fixed(1_000_000), ..Stream::default() }));
        experiment.pinning = if self.one_per_llc { Pinning::OnePerLlc } else { Pinning::Scatter };
        experiment.application = is_application.then(|| applications::Section {
            profiles: vec![profile.name.clone()],
            ..applications::Section::default()
        });
        experiment.configurations = vec![Configuration {
            name: self.name.clone(),
            runs: Runs::Vms,
            vms: Vms::Count(self.vms),
            min_vms: None,
            vcpus: Choice::Fixed(Vcpus::Count(self.vcpus)),
            memory: Choice::Fixed(self.memory),
            policy: self.policy.clone(),
            switches: None,
            card: None,
            ranks_per_vm: None,
            smt: None,
            machine: None,
            modelled: Default::default(),
        }];
        Ok(experiment)
    }
}

/// All shapes of a VM on a machine; `threads` over all VMs, or else one for each vCPU.
pub(super) fn shapes(spec: &VmSpec, machine: &Machine, threads: Option<u32>) -> Vec<Shape> {
    let threads = threads.unwrap_or(spec.vcpus);
    let kept = Policy { node_affinity: spec.policy.node_affinity.clone(), ..Policy::default() };
    let wide = |name: &str, written_as: &str, policy: Policy| Shape {
        name: name.to_owned(),
        written_as: written_as.to_owned(),
        vms: 1,
        vcpus: spec.vcpus,
        memory: spec.memory,
        policy,
        threads,
        one_per_llc: false,
    };
    let mut shapes = vec![
        wide("as written", "the spec as it is", spec.policy.clone()),
        wide("one VM, vNUMA", "no policy", kept.clone()),
        wide("one VM, prefer_ht", "policy.prefer_ht = true", Policy { prefer_ht: true, ..kept.clone() }),
        wide(
            "one VM, most_virtual_nodes",
            "policy.placement = \"most_virtual_nodes\"",
            Policy { placement: Spread::MostVirtualNodes, ..kept.clone() },
        ),
        wide(
            "one VM, together",
            "policy.placement = \"together\"",
            Policy { placement: Spread::Together, ..kept.clone() },
        ),
        wide("one VM, apart", "policy.placement = \"apart\"", Policy { placement: Spread::Apart, ..kept.clone() }),
        wide(
            "one VM, no vNUMA",
            "policy.vnuma = false, policy.memory = \"interleave\"",
            Policy { vnuma: Some(false), memory: Some(MemoryPolicy::Interleave), ..kept.clone() },
        ),
    ];
    let (cores, nodes) = cores_and_nodes(machine);
    let llcs = machine.llcs.len().max(nodes as usize) as u32;
    for (of, parts) in [("node", nodes), ("last-level cache", llcs)] {
        let cores_each = (cores / parts).max(1);
        let vms = spec.vcpus.div_ceil(cores_each).min(parts);
        let is_another = vms > 1 && (of == "node" || llcs > nodes);
        if is_another && spec.vcpus.is_multiple_of(vms) && threads.is_multiple_of(vms) {
            // With more vCPUs than cores each would be split over nodes.
            let prefer_ht = spec.vcpus / vms > cores / nodes;
            let with = if prefer_ht { ", policy.prefer_ht = true" } else { "" };
            shapes.push(Shape {
                vms,
                vcpus: spec.vcpus / vms,
                memory: Bytes::from_mib((spec.memory.mib() / u64::from(vms)).max(1)),
                ..wide(
                    &format!("{vms} VMs, one per {of}"),
                    &format!("{vms} VMs of {} vCPUs{with}", spec.vcpus / vms),
                    Policy { prefer_ht, ..kept.clone() },
                )
            });
        }
    }
    if llcs > nodes {
        shapes.extend(fewer_threads(spec, &kept, cores / llcs, threads));
    }
    shapes
}

/// Work on fewer threads than vCPUs, so that those of a last-level cache do not contend for its
/// port.
fn fewer_threads(spec: &VmSpec, policy: &Policy, cores_per_llc: u32, threads: u32) -> Vec<Shape> {
    let llcs_in_use = spec.vcpus.div_ceil(cores_per_llc.max(1));
    let with = |per_llc: u32| Shape {
        name: format!("one VM, {per_llc} {} per last-level cache", if per_llc == 1 { "thread" } else { "threads" }),
        written_as: format!("no policy; {} threads in the guest", per_llc * llcs_in_use),
        vms: 1,
        vcpus: spec.vcpus,
        memory: spec.memory,
        policy: policy.clone(),
        threads: per_llc * llcs_in_use,
        one_per_llc: true,
    };
    let counts = (0..8).map(|power| 1 << power).take_while(|&per_llc| per_llc < cores_per_llc);
    counts.map(with).filter(|shape| shape.threads < threads).collect()
}

fn cores_and_nodes(machine: &Machine) -> (u32, u32) {
    let cores: BTreeSet<_> = machine.usable_threads().map(|thread| thread.core).collect();
    let nodes: BTreeSet<_> = machine.usable_threads().map(|thread| thread.node).collect();
    (cores.len() as u32, nodes.len().max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(vcpus: u32) -> VmSpec {
        toml::from_str(&format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"64 GiB\"")).expect("a spec")
    }

    fn shapes_on(machine: &str, vcpus: u32) -> Vec<Shape> {
        let machine = topology::read::shipped(machine).expect("shipped").expect("valid");
        shapes(&spec(vcpus), &machine, None)
    }

    #[test]
    fn a_wide_vm_is_also_tried_as_several() {
        // Rome, NPS4: 128 cores on 8 nodes and 32 last-level caches: 16 cores a node, 4 a cache.
        let shapes = shapes_on("epyc-7742-2s-nps4", 128);
        let find = |name: &str| shapes.iter().find(|shape| shape.name == name).unwrap_or_else(|| panic!("{name}"));
        let per_node = find("8 VMs, one per node");
        assert_eq!((per_node.vcpus, per_node.memory), (16, Bytes::from_mib(8192)));
        assert_eq!(find("32 VMs, one per last-level cache").vcpus, 4);
        // 128 vCPUs fill 32 caches.
        assert_eq!(find("one VM, 1 thread per last-level cache").threads, 32);
        assert_eq!(find("one VM, 2 threads per last-level cache").threads, 64);
    }

    #[test]
    fn several_vms_with_more_vcpus_than_cores_stay_whole() {
        // 16 vCPUs on 2 nodes of 4 cores: 8 vCPUs a VM are more than 4 cores.
        let shapes = shapes_on("hp-dl380-g6", 16);
        let split = shapes.iter().find(|shape| shape.vms == 2).expect("one per node");
        assert!(split.policy.prefer_ht && split.written_as == "2 VMs of 8 vCPUs, policy.prefer_ht = true", "{split:?}");
    }

    #[test]
    fn a_vm_that_fits_on_a_node_is_not_split() {
        let shapes = shapes_on("hp-dl380-g6", 4);
        assert!(shapes.iter().all(|shape| shape.vms == 1 && !shape.one_per_llc), "{shapes:#?}");
    }
}
