//! What is wrong with VMs and what would mend it, worst first.

use crate::guest_topology::Untruth;
use crate::text::{WIDTH, count, wrapped};
use linux::drift::{Cure, Disagreement, Finding, Severity};
use scheduler::{Action, ActionError, Done, VmKey};
use serde::Serialize;
use std::fmt::Write;
use topology::NodeSet;

/// Something that is wrong: with the placement, or with what the guest was told.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Found {
    /// What the host shows.
    Drift(Finding),
    /// What the guest believes.
    Guest {
        /// Whose guest.
        vm: VmKey,
        /// What.
        #[serde(flatten)]
        untruth: Untruth,
    },
    /// What the program that manages it believes.
    Manager {
        /// Whose.
        vm: VmKey,
        /// What.
        #[serde(flatten)]
        untruth: Untruth,
    },
}

/// A repair that was tried.
#[derive(Debug, Serialize)]
pub(crate) struct Repair {
    /// What it was to mend.
    pub(crate) finding: Found,
    /// What it did; `None` where it failed.
    pub(crate) done: Option<Done>,
    /// Why it failed.
    pub(crate) error: Option<ActionError>,
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// VMs that were looked at.
    pub(crate) vms: usize,
    /// What was tried, with `--fix`.
    pub(crate) repairs: Vec<Repair>,
    /// What is wrong, after the repairs; worst first.
    pub(crate) findings: Vec<Found>,
}

impl Found {
    /// The VM; `None` for the host.
    pub(crate) fn vm(&self) -> Option<&VmKey> {
        match self {
            Self::Drift(finding) => finding.vm.as_ref(),
            Self::Guest { vm, .. } | Self::Manager { vm, .. } => Some(vm),
        }
    }

    /// How much it matters.
    pub(crate) fn severity(&self) -> Severity {
        match self {
            Self::Drift(finding) => finding.severity,
            Self::Guest { untruth, .. } | Self::Manager { untruth, .. } => untruth.severity,
        }
    }

    /// What a program can do about it.
    pub(crate) fn by_program(&self) -> Option<Cure> {
        match self {
            Self::Drift(finding) => finding.cure.clone().filter(|cure| !matches!(cure, Cure::ByHand { .. })),
            Self::Guest { untruth, .. } | Self::Manager { untruth, .. } => {
                untruth.action.clone().map(|action| Cure::Act { action })
            }
        }
    }

    fn whose(&self) -> String {
        let client = match self {
            Self::Drift(finding) => finding.client,
            Self::Guest { .. } | Self::Manager { .. } => None,
        };
        match (self.vm(), client) {
            (None, _) => "this host".to_owned(),
            (Some(vm), None) => format!("VM {}", vm.name),
            (Some(vm), Some(client)) => format!("VM {}, client {}", vm.name, client.0),
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Drift(finding) => disagreement(&finding.disagreement),
            Self::Guest { untruth, .. } | Self::Manager { untruth, .. } => untruth.sentence.clone(),
        }
    }

    fn evidence(&self) -> &str {
        match self {
            Self::Drift(finding) => &finding.evidence,
            Self::Guest { untruth, .. } | Self::Manager { untruth, .. } => &untruth.evidence,
        }
    }

    fn cure(&self) -> Option<String> {
        match self {
            Self::Drift(finding) => finding.cure.as_ref().map(cure),
            Self::Guest { untruth, .. } | Self::Manager { untruth, .. } => Some(untruth.advice.clone()),
        }
    }
}

impl View {
    /// Findings that need doing: all but notes.
    pub(crate) fn wrong(&self) -> usize {
        self.findings.iter().filter(|found| found.severity() > Severity::Note).count()
    }
}

/// A paragraph a finding.
pub(crate) fn text(view: &View) -> String {
    let mut text = String::new();
    for repair in &view.repairs {
        let whose = repair.finding.whose();
        let result = match (&repair.done, &repair.error) {
            (Some(done), _) => did(&repair.finding, done),
            (None, Some(error)) => format!("not repaired: {error}"),
            (None, None) => continue,
        };
        add(&mut text, "REPAIR   ", &format!("{whose}: {result}"));
    }
    for found in &view.findings {
        let head = match found.severity() {
            Severity::Problem => "PROBLEM  ",
            Severity::Warning => "WARNING  ",
            Severity::Note => "NOTE     ",
        };
        add(&mut text, head, &format!("{}: {}", found.whose(), found.sentence()));
        add(&mut text, "  seen:  ", found.evidence());
        if let Some(cure) = found.cure() {
            add(&mut text, "  cure:  ", &cure);
        }
    }
    let (vms, wrong) = (count(view.vms, "VM"), view.wrong());
    let notes = count(view.findings.len() - wrong, "note");
    // Writing to a string cannot fail.
    let _ = match (view.vms, wrong) {
        (0, 0) => writeln!(text, "No VM runs that this user can see."),
        (_, 0) => writeln!(text, "Looked at {vms}: nothing is wrong; {notes}."),
        _ => writeln!(text, "Looked at {vms}: {}, {notes}.", count(wrong, "finding")),
    };
    text
}

fn add(text: &mut String, head: &str, words: &str) {
    let blank = " ".repeat(head.len());
    for (index, line) in wrapped(words, WIDTH - head.len()).into_iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if index == 0 { head } else { &blank });
    }
}

fn did(found: &Found, done: &Done) -> String {
    let what = found.by_program().as_ref().map(cure_done).unwrap_or_default();
    let left = match &done.because {
        Some(why) if done.left.0 > 0 => format!("; {} were left: {why}", done.left),
        None if done.left.0 > 0 => format!("; {} were left", done.left),
        Some(said) => format!("; {said}"),
        _ => String::new(),
    };
    let moved = if done.moved.0 > 0 { format!(": {} moved", done.moved) } else { String::new() };
    format!("{what}{moved}{left}")
}

fn nodes(set: &NodeSet) -> String {
    if set.len() == 1 { format!("node {set}") } else { format!("nodes {set}") }
}

fn cure_done(cure: &Cure) -> String {
    match cure {
        Cure::Act { action: Action::Bind { home, cpus, .. } } => format!("bound to CPUs {cpus} of {}", nodes(home)),
        Cure::Act { action: Action::MoveMemory { from, to, .. } } => format!("memory: node {from} -> node {to}"),
        Cure::Confine { nodes: set, .. } => format!("confined to the memory of {}", nodes(set)),
        Cure::ByHand { advice } => advice.clone(),
    }
}

fn cure(cure: &Cure) -> String {
    match cure {
        Cure::Act { action: Action::Bind { home, cpus, .. } } => {
            format!("bind its vCPUs to CPUs {cpus} of {} (--fix does)", nodes(home))
        }
        Cure::Act { action: Action::MoveMemory { from, to, at_most, .. } } => {
            format!("move up to {at_most} from node {from} to node {to} (--fix does)")
        }
        Cure::Confine { nodes: set, .. } => {
            format!("write {set} to the cpuset.mems of its own cgroup, which rebinds its policy (--fix does)")
        }
        Cure::ByHand { advice } => advice.clone(),
    }
}

fn disagreement(what: &Disagreement) -> String {
    match what {
        Disagreement::PagesAway { on, away, resident } => {
            format!("{away} of {resident} of its memory are away from home, on node {on}")
        }
        Disagreement::PolicyElsewhere { policy } => {
            format!("its memory policy {policy} sends pages that are touched from now on away from home")
        }
        Disagreement::NoPolicy => {
            "its memory has no policy: pages go where a thread happens to run, and the kernel may move them".to_owned()
        }
        Disagreement::CpusetNarrower { allowed } => format!("its cgroup allows only {} of its home", nodes(allowed)),
        Disagreement::CpusetWider { allowed } => format!(
            "its cgroup confines it to {}, more than its home, while its policy binds memory: writing that cpuset again re-targets the policy",
            nodes(allowed)
        ),
        Disagreement::AffinityAway { allowed } => format!("its vCPUs may run on {}, away from home", nodes(allowed)),
        Disagreement::AutoNumaFights => "the kernel's automatic NUMA balancing moves its memory too".to_owned(),
        Disagreement::MemfdFaultsElsewhere { policy, absent } => format!(
            "{absent} of shared memory are not touched yet; its policy {policy} sends them away from home, and no cpuset changes that"
        ),
        Disagreement::HugePagesMissing { node, page_size, needed, free } => {
            format!("node {node} lacks huge pages of {page_size} for it: {needed} needed, {free} free")
        }
        Disagreement::Pinned => "its memory is pinned: it cannot follow".to_owned(),
        Disagreement::Unreadable => "it could not be examined".to_owned(),
    }
}
