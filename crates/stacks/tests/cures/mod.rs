//! Domains as nobody would write them, legal and odd: what a cure makes of them.

mod choices;
mod domain;
mod found;
mod kept;
mod libvirt;
mod text;

use choices::{Choices, numbers};
use judge::{Aspect, Finding, Harm, Severity, ShapedVm};
use libvirt::Verdict;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use topology::{Bytes, Machine, NodeId, read};
use vm::NodeUse;

/// Machines of one node to eight, with nodes, caches and distances of different sizes; one has a
/// node without CPUs.
static MACHINES: LazyLock<Vec<Machine>> = LazyLock::new(|| {
    let shipped = |name: &str| read::shipped(name).expect(name).expect(name);
    let synthetic = |text: &str| read::from_synthetic(text).expect(text);
    let mut far = synthetic("pack:3 [numa(memory=24GB)] l3:1 core:4 pu:2");
    far.threads.retain(|thread| thread.node != NodeId(2));
    vec![
        shipped("hp-dl380-g6"),
        shipped("hp-dl980-g7"),
        shipped("epyc-7742-2s-nps4"),
        synthetic("pack:2 [numa(memory=8GB)] l3:2 core:2 pu:2"),
        synthetic("pack:1 [numa(memory=16GB)] l3:1 core:4 pu:1"),
        far,
    ]
});

/// A domain, and where it is judged.
#[derive(Clone, Debug)]
struct Case {
    machine: usize,
    others: Occupancy,
    text: String,
}

fn case(numbers: &[u16]) -> Case {
    let mut choices = Choices::new(numbers);
    let machine = choices.below(MACHINES.len() as u32) as usize;
    let mut others = Occupancy::default();
    if choices.percent(20) {
        for node in 0..4 {
            let memory = Bytes::from_mib(u64::from(choices.below(24 << 10)));
            others.nodes.insert(NodeId(node), NodeUse { vcpus: choices.below(5), memory, ..NodeUse::default() });
        }
    }
    Case { machine, others, text: domain::domain(&mut choices) }
}

fn cases() -> impl Strategy<Value = Case> {
    numbers().prop_map(|numbers| case(&numbers))
}

/// A kind of failure, and what it is about.
type Failure = (String, String);

/// The same case, judged, cured and judged again.
struct Tried {
    case: Case,
    /// `None`: not taken.
    cured: Option<String>,
    /// Whether vCPUs are in other virtual nodes.
    reshaped: bool,
    failures: Vec<Failure>,
}

/// How many there are of each harm, the worst first; and what they are.
fn to_do(findings: &[Finding]) -> ([usize; 4], Vec<&'static str>) {
    let wrong = || findings.iter().filter(|finding| finding.severity > Severity::Note);
    let of = |harm| wrong().filter(|finding| finding.harm == harm).count();
    ([Harm::Refused, Harm::Waits, Harm::Misled, Harm::Chance].map(of), wrong().map(|finding| finding.what).collect())
}

fn is_curable(finding: &&Finding) -> bool {
    finding.severity > Severity::Note && (!finding.cure.changes.is_empty() || finding.cure.patch.is_some())
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn tried(case: Case) -> Tried {
    let judge = |text: &str| CheckedDomain::new(&MACHINES[case.machine], &case.others, text, "vm.xml");
    let mut failures = Vec::new();
    let checked = match judge(&case.text) {
        Ok(checked) => checked,
        Err(error) => {
            let failures = vec![(format!("not taken: {}", without_numbers(&error.to_string())), error.to_string())];
            return Tried { case, cured: None, reshaped: false, failures };
        }
    };
    let cured = checked.cured.clone();
    let mut reshaped = false;
    match judge(&cured) {
        Err(error) => failures.push(("the cured is not taken".to_owned(), error.to_string())),
        Ok(after) => {
            let vcpus = |vm: &ShapedVm| vm.nodes.iter().map(|node| node.vcpus.clone()).collect::<Vec<_>>();
            // Cut anew, virtual nodes may have the same vCPUs and other shares of the memory.
            let is_cut_anew = |finding: &Finding| finding.cure.changes.contains(&Aspect::Shape);
            reshaped = vcpus(&checked.vm) != vcpus(&after.vm) || checked.findings.iter().any(is_cut_anew);
            if after.cured != cured {
                failures.push(("a second cure changes it".to_owned(), after.cured.clone()));
            }
            let left = after.findings.iter().filter(is_curable);
            failures
                .extend(left.map(|finding| (format!("curable remains: {}", finding.what), finding.sentence.clone())));
            let (had, has) = (to_do(&checked.findings), to_do(&after.findings));
            if has.0 > had.0 {
                failures.push((format!("worse: {:?} became {:?}", had.1, has.1), String::new()));
            }
            if after.vm.memory != checked.vm.memory || after.vm.vcpus != checked.vm.vcpus {
                failures.push((
                    "homenode's own count of memory or vCPUs changes".to_owned(),
                    format!("{:?} {:?}", checked.vm.memory, after.vm.memory),
                ));
            }
        }
    }
    let without = checked.findings.iter().filter(is_curable).filter(|finding| finding.cure.patch.is_none());
    failures.extend(
        without.map(|finding| (format!("curable without a patch: {}", finding.what), finding.sentence.clone())),
    );
    if !checked.findings.iter().any(|finding| is_curable(&finding)) && cured != case.text {
        failures.push(("changed without a cure".to_owned(), String::new()));
    }
    failures.extend(kept::lost(&case.text, &cured).map(|lost| ("bytes that no cure names".to_owned(), lost)));
    failures.extend(printed(&checked.findings));
    Tried { case, cured: Some(cured), reshaped, failures }
}

/// Control characters in what is said.
fn printed(findings: &[Finding]) -> Option<Failure> {
    let mut said = findings.iter().flat_map(|finding| {
        let cure = &finding.cure;
        [&finding.sentence, &finding.seen, &cure.advice].into_iter().chain(&cure.commands).chain(&finding.vm)
    });
    let odd = said.find(|text| text.chars().any(char::is_control))?;
    Some(("a control character is printed".to_owned(), odd.clone()))
}

/// What libvirt finds wrong with cures of what it takes itself.
fn ask_libvirt(all: &mut [Tried]) {
    let texts: Vec<&str> =
        all.iter().flat_map(|tried| [tried.case.text.as_str(), tried.cured.as_deref().unwrap_or("<x/>")]).collect();
    let verdicts = libvirt::verdicts(&texts, domain::NAME);
    for (tried, verdicts) in all.iter_mut().zip(verdicts.chunks(2)) {
        let [before, after] = verdicts else { continue };
        if tried.cured.is_none() {
            // What libvirt refuses too may be refused.
            if before.dumped.is_none() {
                tried.failures.clear();
            }
            continue;
        }
        let found = by_libvirt(before, after, tried.reshaped);
        tried.failures.extend(found);
    }
}

fn by_libvirt(before: &Verdict, after: &Verdict, reshaped: bool) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut add = |what: &str, seen: String| failures.push((what.to_owned(), seen));
    if before.valid && !after.valid {
        add("no longer valid by libvirt's schema", String::new());
    }
    let Some(dumped) = &before.dumped else { return failures };
    let Some(cured) = &after.dumped else {
        add("libvirt refuses the cured", String::new());
        return failures;
    };
    let (had, has) = (libvirt::memory(dumped), libvirt::memory(cured));
    if had.total != has.total {
        add("the guest's memory changes", format!("{had:?} {has:?}"));
    }
    if !reshaped && had.cells != has.cells {
        add("the memory of a cell changes", format!("{had:?} {has:?}"));
    }
    failures
}

/// The cases of a test, which follow from its name.
fn draw(test: &'static str, count: u32) -> impl Iterator<Item = Case> {
    let mut runner = properties::runner(test);
    (0..count).map(move |_| cases().new_tree(&mut runner).expect("a case").current())
}

/// Counts of failures by kind, with the first of each.
fn draw_and_ask_libvirt(test: &'static str, count: u32) -> (BTreeMap<String, (usize, String)>, usize) {
    const BATCH: usize = 200;
    let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut taken = 0;
    let mut drawn = draw(test, count).peekable();
    while drawn.peek().is_some() {
        let mut all: Vec<Tried> = drawn.by_ref().take(BATCH).map(tried).collect();
        ask_libvirt(&mut all);
        for tried in all {
            taken += usize::from(tried.cured.is_some());
            for (what, seen) in tried.failures {
                let (count, first) = found.entry(what).or_default();
                *count += 1;
                let cured = tried.cured.as_deref().unwrap_or_default();
                let text = format!(
                    "{seen}\non {}, others {:?}\n{}\n{cured}",
                    MACHINES[tried.case.machine].name, tried.case.others, tried.case.text
                );
                if first.is_empty() || text.len() < first.len() {
                    *first = text;
                }
            }
        }
    }
    (found, taken)
}

fn assert_none(found: &BTreeMap<String, (usize, String)>) {
    let told: Vec<String> = found.iter().map(|(what, (count, first))| format!("{count} x {what}: {first}")).collect();
    assert!(found.is_empty(), "{}\n{}", counts(found), told.join("\n\n"));
}

fn counts(found: &BTreeMap<String, (usize, String)>) -> String {
    found.iter().map(|(what, (count, _))| format!("{count:8} {what}\n")).collect()
}

properties::properties! {
    #![cases(60)]

    #[test]
    fn whatever_is_wrong_a_cure_leaves_nothing_that_an_edit_mends_and_all_that_it_does_not_name(case in cases()) {
        let tried = tried(case);
        let Some(cured) = tried.cured else { return Ok(()) };
        prop_assert!(tried.failures.is_empty(), "{:#?}\n{}\n{cured}", tried.failures, tried.case.text);
    }
}

#[test]
fn libvirt_takes_what_it_took_before_the_cure_with_the_same_memory() {
    const TEST: &str = "libvirt_takes_what_it_took_before_the_cure_with_the_same_memory";
    if !libvirt::is_here(TEST) {
        return;
    }
    let (found, taken) = draw_and_ask_libvirt(TEST, 150);
    assert!(taken > 120, "{taken}");
    assert_none(&found);
}

/// `HOMENODE_DOMAINS=100000` draws so many.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn many_cured_domains_are_right() {
    const TEST: &str = "many_cured_domains_are_right";
    if !libvirt::is_here(TEST) {
        return;
    }
    let count = std::env::var("HOMENODE_DOMAINS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let (found, taken) = draw_and_ask_libvirt(TEST, count);
    eprintln!("{count} domains drawn, {taken} taken and cured; failures by kind:\n{}", counts(&found));
    assert_none(&found);
}
