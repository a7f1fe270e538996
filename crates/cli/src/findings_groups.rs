//! Findings of several VMs: a table of the VMs first, then each kind of finding once, with its VMs.
//!
//! **Problem.** 40 VMs that lack the same thing say it 40 times; nobody reads to the end.
//!
//! **Rule.** A row for each VM that has a problem or a warning, worst first, with its worst one and
//! what curing that would gain; VMs with notes only in a sentence. Then findings of one kind,
//! severity and reason once: that which costs most as the example, the VMs by name. What only one
//! VM has is shown whole.
//!
//! **Example.** 40 domains that float: 40 rows, and one paragraph.

use crate::findings_view::{Reach, add, advice, cured_above, head, paragraph, whose};
use crate::text::{count, lines, table_of};
use judge::{Cost, Finding, Harm, Repair, Severity};
use scheduler::Action;
use std::collections::{BTreeMap, BTreeSet};

/// VMs that a finding names; `--json` has all.
const NAMED: usize = 60;

/// A VM: its name, and its process where it runs.
pub(crate) type Whose = (Option<String>, Option<u32>);

/// Which VM a finding is of.
pub(crate) fn of(finding: &Finding) -> Whose {
    (finding.vm.clone(), finding.process)
}

/// Where a VM lives once it is cured, in words.
pub(crate) type HomeOf<'a> = &'a dyn Fn(&Whose) -> String;

/// A row for each VM with a problem or a warning, worst first; then those with notes only. `home`:
/// where each lives once it is cured, where that is to be shown.
pub(crate) fn verdicts(findings: &[Finding], home: Option<HomeOf<'_>>) -> String {
    let mut rows: Vec<(Whose, Vec<&Finding>)> = Vec::new();
    // A fleet has thousands: each is looked up once.
    let mut known = BTreeMap::<Whose, usize>::new();
    for finding in findings.iter().filter(|finding| finding.accepted.is_none()) {
        let index = *known.entry(of(finding)).or_insert_with(|| {
            rows.push((of(finding), Vec::new()));
            rows.len() - 1
        });
        rows[index].1.push(finding);
    }
    let header = ["VM", "Verdict", "Worst finding", "Gain"].into_iter().chain(home.map(|_| "Home"));
    let mut table = table_of(header.map(str::to_owned).collect(), &[]);
    let (shown, meant): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, found)| found[0].severity > Severity::Note);
    for (vm, found) in &shown {
        let worst = found[0];
        let more = found.iter().skip(1).filter(|other| other.severity > Severity::Note).count();
        let more = if more > 0 { format!(", {more} more") } else { String::new() };
        let cells = [
            vm.0.clone().unwrap_or_else(|| "(this host)".to_owned()),
            head(worst.severity).trim_end().to_owned(),
            format!("{}{more}", worst.what),
            gain(worst),
        ];
        table.add_row(cells.into_iter().chain(home.map(|home| home(vm))));
    }
    let text = if shown.is_empty() { String::new() } else { lines(&table) + "\n" };
    let meant: Vec<&str> = meant.iter().filter_map(|(vm, _)| vm.0.as_deref()).collect();
    text + &sentence(&meant, "notes only")
}

/// What the cure of a finding gains, by its estimate.
fn gain(finding: &Finding) -> String {
    match (finding.harm, &finding.cost) {
        (Harm::Refused, _) => "it starts".to_owned(),
        (_, Some(Cost::MemoryLatency { factor, .. })) => format!("≈ {factor:.2} x memory"),
        (_, Some(Cost::AgainstTold { factor, .. })) => format!("≈ {factor:.2} x as told"),
        (_, Some(Cost::CpuTime { factor })) => format!("≈ {factor:.2} x CPU time"),
        (_, None) => "-".to_owned(),
    }
}

/// Findings that say the same of several VMs, or one.
struct Group<'a>(Vec<&'a Finding>);

impl Group<'_> {
    fn vms(&self) -> Vec<Whose> {
        let mut seen = BTreeSet::new();
        self.0.iter().map(|finding| of(finding)).filter(|vm| seen.insert(vm.clone())).collect()
    }
}

/// A paragraph for each kind of finding. `steps`: where patches and commands of those stand that
/// are not shown whole.
pub(crate) fn groups(findings: &[Finding], reach: Reach, steps: &str) -> String {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.accepted.is_none()) {
        let same = |group: &&mut Group<'_>| {
            let first = group.0[0];
            (first.what, first.severity, first.because) == (finding.what, finding.severity, finding.because)
                && finding.vm.is_some()
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.0.push(finding),
            None => groups.push(Group(vec![finding])),
        }
    }
    let (mut text, mut number, mut whole, mut untold) = (String::new(), 0, Vec::new(), false);
    for group in &groups {
        let vms = group.vms();
        if vms.len() > 1 {
            (text, number) = (text + "\n", number + 1);
            several(&mut text, number, group, &vms, reach);
            untold |= group.0.iter().any(|finding| has_steps(finding));
            continue;
        }
        for finding in &group.0 {
            (text, number) = (text + "\n", number + 1);
            let shown: Vec<&Finding> = whole.iter().map(|(_, finding)| *finding).collect();
            let earlier = cured_above(&shown, finding).map(|index| whole[index].0);
            paragraph(&mut text, number, finding, earlier, reach);
            whole.push((number, finding));
        }
    }
    if untold {
        text.push('\n');
        add(&mut text, "", steps);
    }
    text
}

fn has_steps(finding: &Finding) -> bool {
    finding.severity > Severity::Note && (finding.cure.patch.is_some() || !finding.cure.commands.is_empty())
}

fn several(text: &mut String, number: usize, group: &Group<'_>, vms: &[Whose], reach: Reach) {
    let worst = group.0[0];
    let head = format!("{} {number}  ", head(worst.severity));
    add(text, &head, &format!("{}: {}", count(vms.len(), "VM"), worst.what));
    add(text, "  VMs:    ", &names(vms));
    let same = group.0.iter().all(|other| other.sentence == worst.sentence);
    let (label, said) = if same {
        ("  each:   ", worst.sentence.clone())
    } else {
        ("  worst:  ", format!("{}: {}", whose(worst), worst.sentence))
    };
    add(text, label, &said);
    if let Some(cost) = &worst.cost {
        let least =
            group.0.iter().filter_map(|finding| finding.cost).map(|cost| cost.factor()).fold(f64::MAX, f64::min);
        let least =
            if cost.factor() - least > 0.005 { format!("; the least of them {least:.2}") } else { String::new() };
        add(text, "  costs:  ", &format!("{cost}{least}"));
    }
    add(text, "  why:    ", worst.because);
    if worst.severity == Severity::Note {
        return;
    }
    for (advice, count_of) in advices(group) {
        let of = if count_of < group.0.len() { format!(" ({} of {})", count_of, group.0.len()) } else { String::new() };
        add(text, "  cure:   ", &format!("{advice}{of}"));
    }
    if let Some(does) = repairs(group) {
        add(text, reach.label(), &does);
    }
}

/// Names of VMs, as many as are read.
fn names(vms: &[Whose]) -> String {
    let named: Vec<String> = vms.iter().take(NAMED).filter_map(|(name, _)| name.clone()).collect();
    let more = vms.len() - named.len();
    if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") }
}

/// The cures in words, each once, with how many findings have it.
fn advices(group: &Group<'_>) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    for advice in group.0.iter().map(|finding| advice(finding)).filter(|advice| !advice.trim().is_empty()) {
        match all.iter_mut().find(|(known, _)| *known == advice) {
            Some((_, number)) => *number += 1,
            None => all.push((advice, 1)),
        }
    }
    all.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    all
}

/// `bind vCPUs of 12 VMs, move memory of 3 VMs`: what repairing would do.
fn repairs(group: &Group<'_>) -> Option<String> {
    let having = |is: fn(&Repair) -> bool| {
        let has = |finding: &&&Finding| finding.cure.repairs.iter().any(is);
        group.0.iter().filter(has).map(|finding| of(finding)).collect::<BTreeSet<_>>().len()
    };
    let kinds: [(usize, &str); 3] = [
        (having(|repair| matches!(repair, Repair::Act { action: Action::Bind { .. } })), "bind vCPUs of"),
        (having(|repair| matches!(repair, Repair::Act { action: Action::MoveMemory { .. } })), "move memory of"),
        (having(|repair| matches!(repair, Repair::Confine { .. })), "confine"),
    ];
    let each = kinds.iter().filter(|(number, _)| *number > 0);
    let words: Vec<String> = each.map(|(number, does)| format!("{does} {}", count(*number, "VM"))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// VMs without a finding, in one sentence; nothing where there is none.
pub(crate) fn right(names: &[&str]) -> String {
    sentence(names, "nothing wrong")
}

/// `2 VMs have notes only: a, b`; nothing where there are none.
fn sentence(names: &[&str], what: &str) -> String {
    let mut text = String::new();
    if !names.is_empty() {
        let shown: Vec<&str> = names.iter().take(NAMED).copied().collect();
        let more = names.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let has = if names.len() == 1 { "has" } else { "have" };
        add(&mut text, "", &format!("{} {has} {what}: {}{more}", count(names.len(), "VM"), shown.join(", ")));
    }
    text
}
