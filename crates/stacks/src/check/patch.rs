//! Cures of a domain as patches of its XML.

use super::edits::edits;
use super::movable::is_static;
use super::{refusals, shaped};
use crate::domain::{self, DomainError};
use judge::{Aspect, Finding, Judgement, Severity, ShapedVm};
use scheduler::Occupancy;
use std::collections::{BTreeMap, BTreeSet};
use topology::Machine;

/// Cures one after the other: more than two were never seen to be needed.
const MOST_CURES: usize = 4;

/// What a cure says that fixes a home for good.
const STATIC: &str = "static: <memory mode='strict'> confines the VM, so that nobody moves its memory later, `homenode balance` \
    included; `--movable` beside --cured writes one that it may move";

/// A domain that was judged.
#[derive(Clone, Debug)]
pub struct CheckedDomain {
    /// What it says.
    pub vm: ShapedVm,
    /// What is wrong with it, worst first, each with a patch where an edit cures it.
    pub findings: Vec<Finding>,
    /// The XML with the cures of all problems and warnings; notes are left as they are. All that no
    /// cure names is byte for byte as it was.
    pub cured: String,
}

impl CheckedDomain {
    /// Judges a domain for a machine. `file` is what patches and errors call the text.
    ///
    /// # Errors
    /// Those of [`domain::parse`].
    pub fn new(machine: &Machine, occupancy: &Occupancy, text: &str, file: &str) -> Result<Self, DomainError> {
        let mut checked = Self::once(machine, occupancy, text, file)?;
        // What a cure changes may show what it hid: a home that others fill is wide, and a VM that
        // is wide wants virtual nodes. So that a second cure changes nothing, it is part of the
        // first.
        for _ in 1..MOST_CURES {
            let after = Self::once(machine, occupancy, &checked.cured, file)?;
            if after.cured == checked.cured {
                break;
            }
            checked.cured = after.cured;
        }
        Ok(checked)
    }

    fn once(machine: &Machine, occupancy: &Occupancy, text: &str, file: &str) -> Result<Self, DomainError> {
        // What libvirt refuses comes first: all else is judged as if it were mended.
        let own = shaped(&domain::parse(text, file)?, text);
        let mended = refusals::mended(text, file)?;
        let vm = ShapedVm { spots: own.spots, ..shaped(&domain::parse(&mended, file)?, &mended) };
        let judgement = judge::definition(machine, occupancy, &vm);
        let mut findings = judgement.findings.clone();
        let cured = |changes: &BTreeSet<Aspect>| cured(&judgement, changes, &mended, file);
        let mut all = BTreeSet::new();
        let (was_static, mut said) = (is_static(&mended, file)?, false);
        // Findings often have one cure.
        let mut patches: BTreeMap<BTreeSet<Aspect>, (Option<String>, bool)> = BTreeMap::new();
        for finding in &mut findings {
            let changes = &finding.cure.changes;
            if finding.severity > Severity::Note {
                all.extend(changes.iter().copied());
            }
            if !patches.contains_key(changes) {
                let cured = cured(changes)?;
                let places = changes.iter().any(|aspect| matches!(aspect, Aspect::Home | Aspect::Pins | Aspect::Shape));
                let is_static = places && cured != mended && !was_static && is_static(&cured, file)?;
                patches.insert(changes.clone(), ((cured != mended).then(|| patch(file, text, &cured)), is_static));
            }
            let (patch, is_static) = patches.get(changes).cloned().unwrap_or_default();
            finding.cure.patch = patch;
            // Once: the cures of a report are one.
            if is_static && !std::mem::replace(&mut said, true) {
                finding.cure.advice = format!("{} ({STATIC})", finding.cure.advice);
            }
            if finding.cure.patch.is_none() && !changes.is_empty() {
                finding.cure.changes.clear();
                finding.cure.advice = format!("{} (no edit of the domain does)", finding.cure.advice);
            }
        }
        findings.splice(0..0, refused(text, file, &vm.name)?);
        findings.sort_by(Finding::order);
        let cured = cured(&whole(all))?;
        Ok(Self { findings, cured, vm })
    }

    /// What libvirt itself refuses in a text, in its words and with its place.
    ///
    /// # Errors
    /// Those of [`domain::parse`].
    pub fn refused(text: &str, file: &str) -> Result<Vec<Finding>, DomainError> {
        refused(text, file, &domain::parse(text, file)?.name)
    }

    /// How much is to be done: findings that are no notes.
    pub fn wrong(&self) -> usize {
        judge::wrong(&self.findings)
    }
}

/// What libvirt refuses, each with the patch that mends it alone.
fn refused(text: &str, file: &str, name: &str) -> Result<Vec<Finding>, DomainError> {
    let each = refusals::refusals(text, file)?.into_iter().map(|refusal| {
        let mut finding = refusal.finding(name);
        let mended = domain::apply(text, file, refusal.edits())?;
        finding.cure.patch = (mended != text).then(|| patch(file, text, &mended));
        Ok(finding)
    });
    each.collect()
}

/// The text with some changes.
fn cured(judgement: &Judgement<'_>, changes: &BTreeSet<Aspect>, text: &str, file: &str) -> Result<String, DomainError> {
    let Some(change) = judgement.change(changes) else { return Ok(text.to_owned()) };
    let edited = domain::apply(text, file, &edits(&change))?;
    domain::with_devices_at_home(&edited, file, |node| change.home_of(node).cloned())
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
