//! What is wrong with a configuration, and the one `qm set` that mends what lines can mend.
//!
//! **Problem.** A cure may be what the VM does not start with, or what changes nothing: Proxmox
//! binds no single vCPU, and `affinity` with all CPUs of the host binds none.
//!
//! **Rule.** A change is printed only after it was tried: with it the VM starts by qemu-server's
//! rules, has the vCPUs and the memory that it had, and is judged better: no more problems, no more
//! problems and warnings, and less of one of them. What remains is said with what
//! mends it, `homenode balance` on that host. All problems and warnings that lines mend have one
//! command; a note's is that with its own change beside it.
//!
//! **Properties.** The command leaves nothing that another one of them would mend.

use super::conf::{Conf, Setting, options};
use super::mends::{LEFT_OUT, Mend, mended};
use super::refusals::{Known, Refusal, startable};
use super::settings::{settings, unbound};
use super::shape::shaped;
use judge::{Aspect, Finding, Harm, Severity, ShapedVm};
use scheduler::Occupancy;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Machine, NodeSet};
use vm::qemu::GuestCpus;

/// Changes one after the other: more than three were never seen to be needed.
const MOST_ROUNDS: usize = 6;
/// What Proxmox cannot be told, and what does it.
const NO_SINGLE_VCPU: &str = "Proxmox binds no single vCPU (`affinity` is one set of CPUs for the whole VM), so that no line \
    mends this: `homenode balance` on that host brings each to its home";
const ONE_CPU_EACH: &str = "Proxmox binds no single vCPU, and no balancer takes one off isolated CPUs: a hookscript can \
    (taskset -cp CPU THREAD for each vCPU, after each start); or leave these CPUs out of isolcpus";
/// What is then left to do.
const THEN_BALANCE: &str =
    "`homenode balance` on that host then brings each vCPU to its home, which no line of Proxmox does";
/// Findings of where vCPUs run and memory lies.
const OF_PLACE: [&str; 5] =
    ["memory_away", "vcpus_leave_memory", "memory_wider_than_vcpus", "straddles_nodes", "floats"];
/// What is lost with the memory that can be plugged in.
const NO_HOTPLUG: &str = "`memory` goes out of `hotplug`, since Proxmox starts no VM that has it with homes (`numaN`): its \
    memory no longer grows while it runs";
const LESS: f64 = 0.01;

/// Where a configuration is judged.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) machine: &'a Machine,
    pub(super) others: &'a Occupancy,
}

/// A configuration that was judged.
pub(super) struct Judged {
    /// With everything mended that keeps it from starting as it was meant.
    pub(super) base: Conf,
    /// What is wrong, worst first; without cures.
    pub(super) findings: Vec<Finding>,
}

impl Place<'_> {
    /// Homes of virtual nodes, by number.
    fn homes(&self, conf: &Conf) -> BTreeMap<u32, NodeSet> {
        let vm = shaped(conf);
        let judgement = judge::definition(self.machine, self.others, &vm);
        let aspects = BTreeSet::from([Aspect::Home]);
        let target = judgement.change(&aspects).map(|change| change.target.clone());
        let nodes = target.into_iter().filter(|target| !target.reshaped).flat_map(|target| target.nodes);
        nodes.map(|node| (node.id, node.home)).collect()
    }

    fn startable(&self, conf: &Conf) -> (Conf, Vec<Refusal>) {
        let homes = |conf: &Conf| self.homes(conf);
        startable(conf, &Known { machine: Some(self.machine), homes: &homes })
    }

    /// What is wrong with a configuration.
    pub(super) fn judge(&self, conf: &Conf) -> Judged {
        let (start, refusals) = self.startable(conf);
        let startable = |conf: &Conf| self.startable(conf).0;
        let (base, mends) = mended(&start, &conf.left_out, Some(self.machine), &startable);
        let vm = shaped(&start);
        let judged = self.findings(&vm);
        let own = refusals.into_iter().map(refused).chain(mends.into_iter().map(otherwise));
        let mut findings: Vec<Finding> = own.map(|finding| Finding { vm: Some(vm.name.clone()), ..finding }).collect();
        for finding in judged.into_iter().map(reserved_at_start) {
            match findings.iter_mut().find(|own| own.what == finding.what) {
                Some(own) => own.cost = finding.cost,
                None => findings.push(finding),
            }
        }
        findings.sort_by(Finding::order);
        Judged { base, findings }
    }

    /// What the judge finds. Where it would give a VM other sockets it says nothing of its homes,
    /// which come along with those elsewhere; not with Proxmox.
    fn findings(&self, vm: &ShapedVm) -> Vec<Finding> {
        let mut findings = judge::definition(self.machine, self.others, vm).findings;
        let guest = GuestCpus { sockets: vm.vcpus, cores: 1, ..vm.guest };
        if vm.vnuma && vm.guest != guest {
            let single = ShapedVm { guest, ..vm.clone() };
            let places = judge::definition(self.machine, self.others, &single).findings.into_iter();
            let places = places.filter(|finding| OF_PLACE.contains(&finding.what));
            let new: Vec<Finding> =
                places.filter(|place| findings.iter().all(|found| found.what != place.what)).collect();
            findings.extend(new);
        }
        findings
    }

    /// The configuration with all that lines can mend of its problems and warnings.
    pub(super) fn cured(&self, conf: &Conf) -> Conf {
        let mut cured = self.startable(conf).0;
        let mut now = self.judge(&cured);
        for _ in 0..MOST_ROUNDS {
            let Some((better, judged)) = self.better(&cured, &now) else { break };
            (cured, now) = (better, judged);
        }
        cured
    }

    /// A change that makes it better: what was likely meant, with all that is then wrong mended or
    /// by itself; else all that is wrong now, or one finding's change.
    fn better(&self, conf: &Conf, now: &Judged) -> Option<(Conf, Judged)> {
        let tried = |next: Conf| {
            let judged = self.judge(&next);
            (next != *conf && keeps(conf, &next) && is_better(&judged.findings, &now.findings))
                .then_some((next, judged))
        };
        if now.base != *conf {
            let meant = self.judge(&now.base);
            let whole = self.changed(&now.base, &aspects(&meant.findings));
            if let Some(better) = whole.and_then(tried).or_else(|| tried(now.base.clone())) {
                return Some(better);
            }
        }
        let each = now.findings.iter().filter(|finding| finding.severity > Severity::Note);
        let each: Vec<BTreeSet<Aspect>> = each.map(|finding| finding.cure.changes.clone()).collect();
        let (mut seen, all) = (BTreeSet::new(), aspects(&now.findings));
        let tries = std::iter::once(all).chain(each).filter(|aspects| seen.insert(aspects.clone()));
        tries.filter_map(|aspects| self.changed(conf, &aspects)).find_map(tried)
    }

    /// The configuration with some aspects as they would be right; `None` where that is no other
    /// one, or one that Proxmox does not start so.
    pub(super) fn changed(&self, conf: &Conf, aspects: &BTreeSet<Aspect>) -> Option<Conf> {
        if aspects.is_empty() {
            return None;
        }
        let vm = shaped(conf);
        let judgement = judge::definition(self.machine, self.others, &vm);
        let change = judgement.change(aspects)?;
        let (next, _) = self.startable(&conf.with(&settings(&change, conf)));
        (next != *conf && keeps(conf, &next)).then_some(next)
    }

    /// What is wrong with a configuration, each finding with its cure.
    pub(super) fn check(&self, conf: &Conf) -> Vec<Finding> {
        let now = self.judge(conf);
        let cured = self.cured(conf);
        let after = self.judge(&cured).findings;
        let mut findings = now.findings;
        let command = |to: &Conf| command(conf, &conf.changes_to(to));
        let whole = command(&cured);
        for finding in &mut findings {
            let note = finding.severity == Severity::Note;
            // A line that Proxmox cannot read, and nobody can guess, only goes.
            let dropped = finding.what == LEFT_OUT && !finding.cure.restart;
            let gone = is_less(finding, &after) && !dropped;
            let commands = match &whole {
                Some(command) if gone && !note => Some(vec![command.clone()]),
                _ if !note || finding.cure.changes.is_empty() => None,
                _ => self.of_note(&cured, finding).and_then(|to| command(&to)).map(|command| vec![command]),
            };
            match commands {
                Some(commands) => {
                    let gaps = self.gaps(conf, finding);
                    if !gaps.is_empty() {
                        finding.cure.advice = gaps.join("; ");
                    }
                    if after.iter().any(|left| OF_PLACE[..4].contains(&left.what)) && finding.what != "start_refused" {
                        finding.cure.advice = format!("{}; {THEN_BALANCE}", finding.cure.advice);
                    }
                    let hotplug = super::dimms::is_on(conf) && !super::dimms::is_on(&cured);
                    if hotplug && finding.what != "start_refused" {
                        finding.cure.advice = format!("{}; {NO_HOTPLUG}", finding.cure.advice);
                    }
                    finding.cure.commands = commands;
                    finding.cure.restart = true;
                }
                None => self.explain(conf, finding),
            }
        }
        findings
    }

    /// The cured configuration with what a note would have otherwise, too.
    fn of_note(&self, cured: &Conf, note: &Finding) -> Option<Conf> {
        let next = self.changed(cured, &note.cure.changes)?;
        let (before, after) = (self.judge(cured).findings, self.judge(&next).findings);
        let no_worse = weight(&after).0 <= weight(&before).0 && weight(&after).1 <= weight(&before).1;
        (no_worse && after.iter().all(|finding| finding.what != note.what)).then_some(next)
    }

    /// Homes that Proxmox cannot bind virtual nodes to.
    fn gaps(&self, conf: &Conf, finding: &Finding) -> Vec<String> {
        let vm = shaped(conf);
        let judgement = judge::definition(self.machine, self.others, &vm);
        judgement.change(&finding.cure.changes).map(|change| unbound(&change)).unwrap_or_default()
    }

    /// Whether each vCPU is to have a CPU of its own.
    fn binds_each_vcpu(&self, conf: &Conf, finding: &Finding) -> bool {
        let vm = shaped(conf);
        let judgement = judge::definition(self.machine, self.others, &vm);
        judgement.change(&finding.cure.changes).is_some_and(|change| change.binds_each_vcpu())
    }

    /// Says why no line mends a finding that another stack's lines would.
    fn explain(&self, conf: &Conf, finding: &mut Finding) {
        finding.cure.restart = false;
        if finding.cure.changes.is_empty() {
            return;
        }
        let (gaps, single) = (self.gaps(conf, finding), self.binds_each_vcpu(conf, finding));
        let places = [Aspect::Home, Aspect::Pins, Aspect::Shape, Aspect::OtherThreads]
            .map(|aspect| finding.cure.changes.contains(&aspect));
        let reshapes = finding.cure.changes.contains(&Aspect::Shape);
        finding.cure.changes.clear();
        finding.cure.commands.clear();
        if !gaps.is_empty() {
            finding.cure.advice = gaps.join("; ");
        } else if single {
            finding.cure.advice = ONE_CPU_EACH.to_owned();
        } else if reshapes {
            finding.cure.advice = format!(
                "{}: {NO_SINGLE_VCPU}. `homenode plan {} --emit proxmox` prints the virtual nodes for a host where it runs",
                finding.cure.advice,
                conf.choice()
            );
        } else if places.contains(&true) {
            finding.cure.advice = NO_SINGLE_VCPU.to_owned();
        } else {
            finding.cure.advice = format!("{} (no line of Proxmox does)", finding.cure.advice);
        }
    }
}

/// The `qm set` of some settings.
pub(super) fn command(conf: &Conf, settings: &[Setting]) -> Option<String> {
    (!settings.is_empty()).then(|| format!("qm set {} {}", conf.id(), options(settings)))
}

/// Whether a VM has the vCPUs and the memory that it had.
pub(super) fn keeps(before: &Conf, after: &Conf) -> bool {
    let sizes = |conf: &Conf| (conf.most_vcpus(), conf.vcpus(), conf.memory_mib());
    sizes(before) == sizes(after)
}

/// Problems, and problems and warnings.
fn weight(findings: &[Finding]) -> (usize, usize) {
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    (problems, judge::wrong(findings))
}

fn is_better(after: &[Finding], before: &[Finding]) -> bool {
    let (after, before) = (weight(after), weight(before));
    after.0 <= before.0 && after.1 <= before.1 && after != before
}

/// Whether less of a finding is left.
fn is_less(finding: &Finding, after: &[Finding]) -> bool {
    let factor = |finding: &Finding| finding.cost.map_or(1.0, |cost| cost.factor());
    let same = after.iter().find(|left| left.what == finding.what && left.severity == finding.severity);
    same.is_none_or(|left| left.sentence != finding.sentence && factor(left) < factor(finding) - LESS)
}

/// Changes of all problems and warnings.
fn aspects(findings: &[Finding]) -> BTreeSet<Aspect> {
    let needed = findings.iter().filter(|finding| finding.severity > Severity::Note);
    needed.flat_map(|finding| finding.cure.changes.iter().copied()).collect()
}

fn refused(refusal: Refusal) -> Finding {
    let because = "Proxmox does not start such a VM, or QEMU ends at once";
    let mut finding = Finding::new("start_refused", Harm::Refused, refusal.sentence, because);
    finding.seen = match refusal.says.strip_prefix("QEMU: ") {
        Some(says) => format!("QEMU says: {says}"),
        None => format!("Proxmox says: {}", refusal.says),
    };
    (finding.spots, finding.cure.advice) = (refusal.spots, refusal.advice);
    finding
}

fn otherwise(mend: Mend) -> Finding {
    let mut finding = Finding::new(mend.what, mend.harm, mend.sentence, mend.because);
    if mend.is_note {
        finding.severity = Severity::Note;
    }
    (finding.spots, finding.cure.advice) = (mend.spots, mend.advice);
    finding.cure.restart = !mend.settings.is_empty();
    finding
}

/// Proxmox sets huge pages aside by itself when a VM starts (`hugepages_allocate`).
fn reserved_at_start(mut finding: Finding) -> Finding {
    if finding.what == "no_huge_pages" {
        finding.severity = Severity::Note;
        finding.because = "Proxmox sets the pages that lack aside itself when the VM starts, and does not start it where \
            the node's memory is in pieces";
        finding.cure.advice = "nothing, if it starts; set them aside at boot where it does not".to_owned();
    }
    finding
}

/// A template: Proxmox starts it to back it up only, with disks and one vCPU.
pub(super) fn template(vm: &ShapedVm, conf: &Conf) -> Finding {
    let sentence = "it is a template, which never runs as a VM: it was not judged".to_owned();
    let because = "Proxmox starts a template to back it up only, with its disks and one vCPU, whatever else is written";
    let mut finding = Finding::new("template", Harm::Misled, sentence, because);
    finding.severity = Severity::Note;
    (finding.vm, finding.spots) = (Some(vm.name.clone()), conf.spots(["template"]));
    finding.cure.advice = "check its clones: they have its lines".to_owned();
    finding
}
