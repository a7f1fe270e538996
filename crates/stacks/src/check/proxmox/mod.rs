//! A configuration of Proxmox VE (`/etc/pve/qemu-server/ID.conf`) as a VM that somebody shaped, and
//! cures as `qm set`.
//!
//! **Problem.** What a configuration means is decided by qemu-server: which lines count, which
//! vCPUs are there at the start, what it does not start at all.
//!
//! **Rule.** It is read as qemu-server 9.2 carries it out: `affinity` holds for the whole process,
//! `numaN` counts with `numa: 1` only, without a `numaN` each socket is a virtual node that is
//! bound to nothing, and with `vcpus` the lowest numbers are started. Snapshots (`[name]`) are
//! other VMs; what waits in `[PENDING]` counts from the next start on, and so do all cures. A
//! template is no VM.
//!
//! **Properties.** Every command keeps vCPUs and memory, and with it the VM starts. A second cure
//! changes nothing.
//!
//! **Example.** `hotplug: ...,memory` beside `numa0`: Proxmox refuses that, and the cure takes
//! memory out of `hotplug`.

mod args;
mod conf;
mod cures;
mod dimms;
mod mends;
mod numa;
mod of_numa;
mod of_pages;
mod refusals;
mod settings;
mod shape;
mod text;
mod values;

pub(super) use text::{Kind, kind};

use crate::domain::{DomainError, Problem};
use conf::{Conf, options};
use cures::{Place, command};
use judge::{Aspect, Cure, Finding, Harm, NoTarget, Severity, ShapedNode, ShapedVm};
use scheduler::Occupancy;
use std::collections::{BTreeMap, BTreeSet};
use topology::Machine;
use topology::input::excerpt;
use topology::limits::{MOST_VCPUS, MOST_VIRTUAL_NODES};

/// More is no VM that QEMU starts; less than a number with which arithmetic fails.
const MOST: u64 = 1 << 30;

/// A configuration that was read.
#[derive(Clone, Debug)]
pub(super) struct Configuration {
    conf: Conf,
    vm: ShapedVm,
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// A size is none, or none that QEMU takes: line, key, value and what would be valid.
    pub(super) fn read(text: &str, file: &str) -> Result<Self, DomainError> {
        let conf = text::read(text, file)?;
        for conf in std::iter::once(&conf).chain(conf.next.as_deref()) {
            check_size(conf)?;
        }
        let none = |_: &Conf| BTreeMap::new();
        let (startable, _) = refusals::startable(&conf, &refusals::Known { machine: None, homes: &none });
        let vm = shape::shaped(&startable);
        let vm = if conf.is_on("template") { nothing(&vm.name) } else { vm };
        Ok(Self { conf, vm })
    }

    /// The VM that it starts, or would, were nothing in its way.
    pub(super) fn shaped(&self) -> &ShapedVm {
        &self.vm
    }

    /// Whether it is a template, which is no VM that runs.
    pub(super) fn is_template(&self) -> bool {
        self.conf.is_on("template")
    }

    /// What is wrong with it, each finding with its cure as a `qm set`.
    pub(super) fn check(&self, machine: &Machine, others: &Occupancy) -> Vec<Finding> {
        let place = Place { machine, others };
        if self.is_template() {
            return vec![cures::template(&self.vm, &self.conf)];
        }
        let Some(next) = self.conf.next.as_deref() else { return place.check(&self.conf) };
        let mut findings = place.judge(&self.conf).findings;
        let later = place.check(next);
        findings.iter_mut().for_each(|finding| take_cure(finding, &later));
        let is_new = |finding: &&Finding| findings.iter().all(|now| now.what != finding.what);
        let mut new: Vec<Finding> = later.iter().filter(is_new).cloned().collect();
        new.iter_mut().for_each(|finding| finding.sentence = format!("once it starts again: {}", finding.sentence));
        findings.extend(new);
        findings.push(self.waiting(next));
        findings.sort_by(Finding::order);
        findings
    }

    /// Changes that wait for the next start.
    fn waiting(&self, next: &Conf) -> Finding {
        let changes = self.conf.changes_to(next);
        let words: Vec<String> = changes.iter().map(|change| change.line().replace("# ", "")).collect();
        let sentence = format!("changes wait in [PENDING] for its next start: {}", excerpt(&words.join(", ")));
        let because = "it is judged as it runs; what is cured is the VM that starts next";
        let mut found = Finding::new("changes_wait", Harm::Misled, sentence, because);
        (found.severity, found.vm) = (Severity::Note, Some(self.vm.name.clone()));
        found.cure.advice = format!("`qm pending {}` shows them", self.conf.id());
        found
    }

    /// Lines that bring a VM that exists to its home, with the `qm set` that writes the same, and
    /// what is still wrong with them.
    ///
    /// # Errors
    /// No home can be named; a template.
    pub(super) fn numa_lines(&self, machine: &Machine, others: &Occupancy) -> Result<String, DomainError> {
        if self.is_template() {
            return Err(DomainError::new(&self.conf.file, Problem::Template));
        }
        let (place, vm) = (Place { machine, others }, &self.vm);
        let conf = self.conf.next.as_deref().unwrap_or(&self.conf);
        let cured = place.cured(conf);
        // What the check would not print, since `homenode balance` is to do the rest, is printed
        // here: somebody asks for it.
        let aspects = BTreeSet::from([Aspect::Shape, Aspect::Home, Aspect::Topology, Aspect::Distances]);
        let shaped = shape::shaped(&cured);
        let judgement = judge::definition(machine, others, &shaped);
        let no_home = |error: NoTarget| DomainError::new(&conf.file, error);
        let change = judgement.try_change(&aspects).map_err(no_home)?;
        let gaps = settings::unbound(&change);
        let planned = place.changed(&cured, &aspects).unwrap_or(cured);
        let changes = conf.changes_to(&planned);
        let mut written = format!("# VM {} on {}: ", excerpt(&vm.name), excerpt(&machine.name));
        match command(conf, &changes) {
            None => written += "its configuration has all of its NUMA lines already.\n",
            Some(_) => {
                written += "the NUMA lines that its configuration lacks or has otherwise, and the command that writes \
                    them.\n";
                written += &format!("# qm set {} {}\n", conf.id(), options(&changes));
            }
        }
        let left = place.judge(&planned).findings;
        let left = left.iter().filter(|finding| finding.severity > Severity::Note);
        let mut left: Vec<String> = left.map(|finding| finding.sentence.clone()).chain(gaps).collect();
        left.dedup();
        if self.conf.next.is_some() {
            left.push("changes wait in [PENDING]: only the command replaces them".to_owned());
        }
        written.extend(left.iter().map(|sentence| format!("# WARNING: {sentence}\n")));
        written.extend(changes.iter().map(|setting| setting.line() + "\n"));
        Ok(written)
    }
}

/// A template holds nothing of a machine.
fn nothing(name: &str) -> ShapedVm {
    ShapedVm { name: format!("{name} (template)"), nodes: vec![ShapedNode::default()], ..ShapedVm::default() }
}

/// The cure of the VM that starts next.
fn take_cure(finding: &mut Finding, later: &[Finding]) {
    match later.iter().find(|next| next.what == finding.what) {
        Some(next) => finding.cure = next.cure.clone(),
        None => {
            let advice = "what waits in [PENDING] mends it at the next start".to_owned();
            finding.cure = Cure { advice, ..Cure::default() };
        }
    }
}

fn check_size(conf: &Conf) -> Result<(), DomainError> {
    let wrong = |key: &str, valid: String| {
        let (line, value) = conf.values.get(key).map(|line| (line.line, line.value.clone())).unwrap_or_default();
        Err(DomainError::new(&conf.file, Problem::Proxmox { line, key: key.to_owned(), value, valid }))
    };
    if conf.most_vcpus() > u64::from(MOST_VCPUS) {
        let key = if conf.values.contains_key("cores") { "cores" } else { "sockets" };
        return wrong(key, format!("at most {MOST_VCPUS} vCPUs in all sockets"));
    }
    if conf.is_on("numa") && conf.sockets() > MOST_VIRTUAL_NODES as u64 {
        return wrong("sockets", format!("at most {MOST_VIRTUAL_NODES}, each a virtual node"));
    }
    Ok(())
}
