//! What is wrong with definitions, worst first, with what was assumed of the machine.

use crate::accepted_file::AcceptedReport;
use crate::check_subjects::Unread;
use crate::findings_groups::{Whose, groups, right, verdicts};
use crate::findings_view::{Reach, add, paragraphs, tally};
use crate::text::count;
use judge::{Finding, Overcommit, ShapedVm};
use scheduler::Occupancy;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use topology::words::named;
use topology::{Bytes, Machine, NodeId, NodeSet};

/// What `--json` prints. A change that breaks readers raises `version`.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    pub(crate) machine: &'a str,
    /// What was assumed of each node.
    pub(crate) nodes: Vec<Assumed>,
    pub(crate) vms: Vec<Checked>,
    /// What could not be judged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unread: Vec<Unread>,
    /// Where they want more memory together than there is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) overcommitted: Vec<TooMuch>,
    /// What became of the decisions of `--accepted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accepted: Option<AcceptedReport>,
    /// Findings that need doing: all but notes and what was accepted.
    pub(crate) wrong: usize,
    /// Those of all VMs.
    pub(crate) findings: &'a [Finding],
}

/// VMs that want more memory together than there is.
#[derive(Serialize)]
pub(crate) struct TooMuch {
    /// Their names.
    pub(crate) vms: Vec<String>,
    #[serde(flatten)]
    pub(crate) what: Overcommit,
}

impl TooMuch {
    /// `these 40 VMs are bound to node 7 and want 852 GiB; it has 377 GiB, ...`
    fn sentence(&self, machine: &str, of_all: usize) -> String {
        let Overcommit { nodes, machine: is_machine, wanted, memory, held, .. } = &self.what;
        let who = if self.vms.len() == of_all { format!("these {of_all} VMs") } else { count(self.vms.len(), "VM") };
        let (bound, has) = match is_machine {
            true => (String::new(), format!("{machine} has")),
            false => {
                let has = if nodes.len() == 1 { "it has" } else { "they have together" };
                (format!(" that is bound to {}", named("node", nodes)), has.to_owned())
            }
        };
        let (wanted, memory) = wanted.told_apart(*memory);
        let held = if held.0 > 0 { format!(", of which VMs that run hold {held}") } else { String::new() };
        let lacking = self.what.lacking();
        let named = if self.vms.len() < of_all { format!(": {}", self.vms.join(", ")) } else { String::new() };
        format!("{who} want {wanted} of memory{bound}; {has} {memory}{held}: {lacking} too much{named}")
    }
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
    /// Its findings that need doing.
    pub(crate) wrong: usize,
    /// Its process, where that was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u32>,
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
    pub(crate) fn new(vm: &ShapedVm, source: String, homes: NodeSet) -> Self {
        Self {
            vm: vm.name.clone(),
            source,
            vcpus: vm.present(),
            max_vcpus: (!vm.absent.is_empty()).then_some(vm.vcpus),
            max_memory: (vm.most_memory() > vm.present_memory()).then(|| vm.most_memory()),
            memory: vm.present_memory(),
            virtual_nodes: if vm.vnuma { vm.nodes.len() } else { 0 },
            homes,
            wrong: 0,
            process: vm.running.as_ref().map(|running| running.seen.vm.pid),
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
        format!("{noun} {set}: {cores}, {threads}, {}{each}; {held}", node.memory)
    };
    let mut text = String::new();
    groups.iter().for_each(|group| add(&mut text, "  ", &line(group)));
    text
}

/// Each cure counts on the others': one VM alone would be sent where others go too.
const STEPS: &str = "`--json` has the patch and the commands of each finding, with all homes solved together. \
    `homenode check` of one VM alone does not know of the others.";

/// What was judged, a paragraph a finding, then what it comes to. Of several VMs a table comes
/// first, and what several have stands once.
pub(crate) fn text(report: &Report<'_>, only_summary: bool) -> String {
    let mut text = String::new();
    let one = report.vms.len() + report.unread.len() == 1;
    // Writing to a string cannot fail.
    match &report.vms[..] {
        [vm] => _ = writeln!(text, "{}", vm.line(report.machine)),
        several => _ = writeln!(text, "{} on {}", count(several.len(), "VM"), report.machine),
    }
    text += "assumed:\n";
    text += &assumption(&report.nodes);
    for unread in &report.unread {
        add(&mut text, "NOT READ  ", &unread.problem);
    }
    for much in &report.overcommitted {
        add(&mut text, "TOO MUCH  ", &much.sentence(report.machine, report.vms.len()));
    }
    if one && !only_summary {
        text += &paragraphs(report.findings, Reach::Here);
    } else {
        text.push('\n');
        text += &verdicts(report.findings, Some(&|vm| report.home_of(vm)));
        text += &right(&report.without_findings());
        if !only_summary {
            text += &groups(report.findings, Reach::Here, STEPS);
        }
    }
    text.push('\n');
    if let Some(accepted) = &report.accepted {
        text += &accepted.text();
    }
    let accepted = report.accepted.as_ref().map(AcceptedReport::tally).unwrap_or_default();
    let _ = match tally(report.findings).as_str() {
        "" => writeln!(text, "Nothing is wrong{accepted}."),
        tally => writeln!(text, "{tally}{accepted}."),
    };
    text
}

impl Report<'_> {
    fn home_of(&self, vm: &Whose) -> String {
        let found = self.vms.iter().find(|one| Some(&one.vm) == vm.0.as_ref() && one.process == vm.1);
        match found.map(|one| &one.homes) {
            Some(homes) if !homes.is_empty() => homes.to_string(),
            _ => "-".to_owned(),
        }
    }

    fn without_findings(&self) -> Vec<&str> {
        let counts = self.findings.iter().filter(|finding| finding.accepted.is_none());
        let found: BTreeSet<Whose> = counts.map(crate::findings_groups::of).collect();
        let is_right = |one: &&Checked| !found.contains(&(Some(one.vm.clone()), one.process));
        self.vms.iter().filter(is_right).map(|one| one.vm.as_str()).collect()
    }
}
