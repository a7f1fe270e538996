//! What qemu-server, or QEMU by its arguments, refuses at the start, and what mends that.
//!
//! **Problem.** A configuration that does not start is no VM with a home to judge; and a cure that
//! is right for a VM may be what its configuration does not start with.
//!
//! **Rule.** Each rule is one of qemu-server 9.2's (`config` and `hugepages_topology` of Memory.pm,
//! `config_to_command` of QemuServer.pm) or of QEMU's (`numa_complete_configuration`), quotes what
//! it says, and mends it so that the VM keeps its vCPUs, its memory and the homes that somebody
//! chose. The first in the order of the rules comes first; the next looks at what that made.
//!
//! **Properties.** What is left is refused by a rule without a cure only. vCPUs and memory are the
//! same before and after.
//!
//! **Example.** `memory: 16384` and two `numaN` of 4096 each: 8192 for each of them.

use super::conf::{Conf, Setting};
use super::{args, dimms, of_numa, of_pages};
use judge::Spot;
use std::collections::BTreeMap;
use topology::{Machine, NodeSet};

/// Why a VM does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// What is wrong, as a sentence.
    pub(super) sentence: String,
    /// What Proxmox says, or with `QEMU: ` before it QEMU.
    pub(super) says: String,
    pub(super) spots: Vec<Spot>,
    /// What mends it, in words.
    pub(super) advice: String,
    /// Empty where no line mends it.
    pub(super) settings: Vec<Setting>,
}

/// What rules know beside the configuration.
pub(super) struct Known<'a> {
    /// `None`: no machine is asked about.
    pub(super) machine: Option<&'a Machine>,
    /// Homes for virtual nodes that name none, by number.
    pub(super) homes: &'a dyn Fn(&Conf) -> BTreeMap<u32, NodeSet>,
}

type Rule = fn(&Conf, &Known<'_>) -> Option<Refusal>;

/// In the order in which they are mended.
const RULES: [Rule; 16] = [
    memory_hotplug,
    too_many_vcpus_at_start,
    of_pages::without_numa,
    of_numa::numbers_with_gaps,
    of_numa::without_memory,
    of_numa::sum_differs,
    of_numa::vcpus_that_are_none,
    of_numa::without_policy,
    of_numa::several_ranges,
    of_pages::one_host_node_each,
    of_pages::sockets_without_host_node,
    of_numa::memory_of_sockets,
    of_pages::whole_pages,
    of_numa::no_such_host_node,
    args::distances_of_others,
    more_vcpus_than_cpus,
];

/// The configuration with everything mended that keeps it from starting, and what that was.
pub(super) fn startable(conf: &Conf, known: &Known<'_>) -> (Conf, Vec<Refusal>) {
    let (mut conf, mut refusals) = (conf.clone(), Vec::new());
    for rule in RULES {
        if let Some(refusal) = rule(&conf, known) {
            conf = conf.with(&refusal.settings);
            refusals.push(refusal);
        }
    }
    (conf, refusals)
}

/// `hotplug: memory` with what it does not go with: it is taken out, unless NUMA is all that it
/// lacks.
fn memory_hotplug(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let says = dimms::refused(conf)?;
    let numa = [Setting::new("numa", 1)];
    let (advice, settings) = match dimms::refused(&conf.with(&numa)) {
        None => ("switch NUMA on", numa.to_vec()),
        Some(_) => {
            ("take memory out of `hotplug`: the VM then has all of its memory from the start", vec![without(conf)])
        }
    };
    let custom = !conf.numa_nodes().is_empty();
    let sentence = match custom {
        true => {
            "memory can be plugged in (`hotplug: memory`), and virtual nodes are written (`numaN`): they exclude each \
            other"
        }
        false => {
            "memory can be plugged in (`hotplug: memory`), and the rest of its configuration does not go with that"
        }
    };
    let spots = conf.spots(["hotplug", "memory", "numa"]).into_iter().chain(conf.numa_spots()).collect();
    Some(Refusal { sentence: sentence.to_owned(), says, spots, advice: advice.to_owned(), settings })
}

/// `hotplug` without memory.
pub(super) fn without(conf: &Conf) -> Setting {
    let mut features = conf.hotplug();
    features.remove("memory");
    Setting::new("hotplug", super::values::hotplug_text(&features))
}

fn too_many_vcpus_at_start(conf: &Conf, _: &Known<'_>) -> Option<Refusal> {
    let (started, most) = (conf.get("vcpus").and_then(super::values::whole)?, conf.most_vcpus());
    (started > most).then(|| Refusal {
        sentence: format!("it is to start with {started} vCPUs (`vcpus`), and has {most} (sockets x cores)"),
        says: "QEMU: Invalid CPU topology: maxcpus must be equal to or greater than smp".to_owned(),
        spots: conf.spots(["vcpus", "sockets", "cores"]),
        advice: format!("take the line out: it then starts with all {most}"),
        settings: vec![Setting::gone("vcpus")],
    })
}

fn more_vcpus_than_cpus(conf: &Conf, known: &Known<'_>) -> Option<Refusal> {
    let machine = known.machine?;
    let cpus = machine.threads.iter().filter(|thread| thread.online).count() as u64;
    let most = conf.most_vcpus();
    (cpus > 0 && most > cpus).then(|| Refusal {
        sentence: format!("it has {most} vCPUs (sockets x cores), and {} has {cpus} CPUs", machine.name),
        says: format!("MAX {cpus} vcpus allowed per VM on this node"),
        spots: conf.spots(["sockets", "cores", "vcpus"]),
        advice: format!("give it {cpus} vCPUs at most, `vcpus` that may come among them, or another host"),
        settings: Vec::new(),
    })
}
