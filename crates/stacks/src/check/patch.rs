//! Cures of a domain as patches of its XML.

use super::finding::{Aspect, Finding, Severity};
use super::vm::ShapedVm;
use crate::domain::{self, DomainError};
use scheduler::Occupancy;
use std::collections::{BTreeMap, BTreeSet};
use topology::Machine;

/// A domain that was judged.
#[derive(Clone, Debug)]
pub struct CheckedDomain {
    /// What it says.
    pub vm: ShapedVm,
    /// What is wrong with it, worst first, each with a patch where an edit cures it.
    pub findings: Vec<Finding>,
    /// The XML with the cures of all problems; notes are left as they are. All that no cure names is byte for byte as it was.
    pub cured: String,
}

impl CheckedDomain {
    /// Judges a domain for a machine. `file` is what patches and errors call the text.
    ///
    /// # Errors
    /// Those of [`domain::parse`].
    pub fn new(machine: &Machine, occupancy: &Occupancy, text: &str, file: &str) -> Result<Self, DomainError> {
        let vm = ShapedVm::from_domain(&domain::parse(text, file)?, text);
        let scene = super::scene(machine, occupancy, &vm);
        let mut findings = super::judge(&scene);
        let mut all = BTreeSet::new();
        // Findings often have one cure.
        let mut patches: BTreeMap<BTreeSet<Aspect>, Option<String>> = BTreeMap::new();
        for finding in &mut findings {
            let changes = &finding.cure.changes;
            if finding.severity == Severity::Problem {
                all.extend(changes.iter().copied());
            }
            if !patches.contains_key(changes) {
                let cured = domain::apply(text, file, &super::edits_of(&scene, changes))?;
                patches.insert(changes.clone(), (cured != text).then(|| patch(file, text, &cured)));
            }
            finding.cure.patch = patches.get(changes).cloned().flatten();
        }
        let cured = domain::apply(text, file, &super::edits_of(&scene, &whole(all)))?;
        Ok(Self { findings, cured, vm })
    }

    /// Whether anything needs to be done.
    pub fn problems(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Problem).count()
    }
}

/// Other virtual nodes bring homes, sockets and distances of their own.
fn whole(changes: BTreeSet<Aspect>) -> BTreeSet<Aspect> {
    if !changes.contains(&Aspect::Shape) {
        return changes;
    }
    changes.into_iter().chain([Aspect::Home, Aspect::Distances, Aspect::Topology]).collect()
}

/// A unified diff.
fn patch(file: &str, before: &str, after: &str) -> String {
    let name = |side: char| format!("{side}/{}", file.rsplit('/').next().unwrap_or(file));
    let diff = similar::TextDiff::from_lines(before, after);
    diff.unified_diff().context_radius(1).header(&name('a'), &name('b')).to_string()
}
