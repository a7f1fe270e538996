//! What is wrong with definitions, worst first, with what was assumed of the machine.

use crate::findings_view::{Reach, paragraphs, tally};
use crate::text::count;
use judge::{Finding, ShapedVm};
use scheduler::Occupancy;
use serde::Serialize;
use std::fmt::Write;
use topology::{Bytes, Machine, NodeId, NodeSet};

/// What `--json` prints. A change that breaks readers raises `version`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) machine: &'a str,
    /// What was assumed of each node.
    pub(crate) nodes: Vec<Assumed>,
    pub(crate) vms: Vec<Checked>,
    /// Findings that need doing: all but notes.
    pub(crate) wrong: usize,
    /// Those of all VMs.
    pub(crate) findings: &'a [Finding],
}

/// A VM that was judged.
#[derive(Serialize)]
pub(crate) struct Checked {
    pub(crate) vm: String,
    /// A file, `NAME.xml` for a domain that libvirt has, `standard input`, or `process N`.
    pub(crate) source: String,
    /// vCPUs that it starts with, or has.
    pub(crate) vcpus: u32,
    /// vCPUs that it may have, where those are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_vcpus: Option<u32>,
    /// Memory that it starts with, or has.
    pub(crate) memory: Bytes,
    /// Memory that it may have, where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_memory: Option<Bytes>,
    pub(crate) virtual_nodes: usize,
    /// Where it lives once it is cured; empty where no home can be named.
    pub(crate) homes: NodeSet,
    pub(crate) wrong: usize,
}

/// What was assumed of a node.
#[derive(Clone, Serialize)]
pub(crate) struct Assumed {
    pub(crate) node: NodeId,
    pub(crate) cores: usize,
    pub(crate) threads: usize,
    pub(crate) memory: Bytes,
    /// vCPUs and memory of VMs that run there.
    pub(crate) held_vcpus: u32,
    pub(crate) held_memory: Bytes,
}

impl Checked {
    pub(crate) fn new(vm: &ShapedVm, source: String, homes: NodeSet, findings: &[Finding]) -> Self {
        Self {
            vm: vm.name.clone(),
            source,
            vcpus: vm.present(),
            max_vcpus: (!vm.absent.is_empty()).then_some(vm.vcpus),
            max_memory: (vm.most_memory() > vm.present_memory()).then(|| vm.most_memory()),
            memory: vm.present_memory(),
            virtual_nodes: if vm.vnuma { vm.nodes.len() } else { 0 },
            homes,
            wrong: judge::wrong(findings),
        }
    }

    fn line(&self, machine: &str) -> String {
        let shape = match self.virtual_nodes {
            0 => "no vNUMA".to_owned(),
            several => count(several, "virtual node"),
        };
        let cpus = match self.max_vcpus {
            Some(most) => format!("{} of {}", self.vcpus, count(most as usize, "vCPU")),
            None => count(self.vcpus as usize, "vCPU"),
        };
        let memory = match self.max_memory {
            Some(most) => format!("{} of {most}", self.memory),
            None => self.memory.to_string(),
        };
        format!("{} on {machine}: {cpus}, {memory}, {shape} ({})", self.vm, self.source)
    }
}

/// Every node as it was assumed to be.
pub(crate) fn assumed(machine: &Machine, running: &Occupancy) -> Vec<Assumed> {
    let of = |node: &topology::Node| Assumed {
        node: node.id,
        cores: machine.usable_cores(node.id).len(),
        threads: machine.usable_cpus(node.id).len(),
        memory: node.memory,
        held_vcpus: running.of(node.id).vcpus,
        held_memory: running.of(node.id).memory,
    };
    machine.nodes.iter().map(of).collect()
}

/// `nodes 0-1: 4 cores, 8 hardware threads, 24 GiB each, empty`; nodes that are alike in one line.
fn assumption(nodes: &[Assumed]) -> String {
    let key = |node: &Assumed| (node.cores, node.threads, node.memory, node.held_vcpus, node.held_memory);
    let mut groups: Vec<(NodeSet, &Assumed)> = Vec::new();
    for node in nodes {
        match groups.iter_mut().find(|(_, first)| key(first) == key(node)) {
            Some((set, _)) => {
                set.insert(node.node);
            }
            None => groups.push(([node.node].into_iter().collect(), node)),
        };
    }
    let line = |(set, node): &(NodeSet, &Assumed)| {
        let (noun, each) = if set.len() == 1 { ("node", "") } else { ("nodes", " each") };
        let held = match (node.held_vcpus, node.held_memory) {
            (0, Bytes(0)) => "no VM runs there".to_owned(),
            (vcpus, memory) => format!("VMs that run hold {} and {memory}", count(vcpus as usize, "vCPU")),
        };
        let (cores, threads) = (count(node.cores, "core"), count(node.threads, "hardware thread"));
        format!("  {noun} {set}: {cores}, {threads}, {}{each}; {held}\n", node.memory)
    };
    groups.iter().map(line).collect()
}

/// What was judged, a paragraph a finding, then what it comes to.
pub(crate) fn text(report: &Report<'_>) -> String {
    let mut text = String::new();
    for vm in &report.vms {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", vm.line(report.machine));
    }
    text += "assumed:\n";
    text += &assumption(&report.nodes);
    text += &paragraphs(report.findings, Reach::Here);
    text.push('\n');
    if report.vms.len() > 1 {
        text += "Homes, solved together:\n";
        for vm in &report.vms {
            let home = if vm.homes.is_empty() { "none".to_owned() } else { vm.homes.to_string() };
            let _ = writeln!(text, "  {}: {} and {}, node {home}", vm.vm, count(vm.vcpus as usize, "vCPU"), vm.memory);
        }
        text.push('\n');
    }
    let _ = match report.findings.len() {
        0 => writeln!(text, "Nothing is wrong."),
        _ => writeln!(text, "{}.", tally(report.findings)),
    };
    text
}
