//! Threads that are bound or scheduled and do not exist, and limits of their time.

use super::{Refusal, at, first, keyed, number, set, steps};
use crate::domain::{self, Domain, Edit};
use roxmltree::Node;
use std::collections::BTreeSet;
use topology::{CpuId, CpuSet};

/// Microseconds of a period, and of a quota.
const PERIOD: std::ops::RangeInclusive<i64> = 1_000..=1_000_000;
const QUOTA: std::ops::RangeInclusive<i64> = 1_000..=17_592_186_044_415;

pub(super) fn refusals(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let wanted = wanted(root, domain);
    let mut found: Vec<Refusal> = wanted.iter().map(|refusal| refusal.0.clone()).collect();
    let most = wanted.iter().map(|refusal| refusal.1).max().unwrap_or_default();
    let numbers: BTreeSet<u32> = (1..=most).collect();
    found.extend(pins(root, domain, &numbers));
    found.extend(iothread_schedulers(root, domain, &numbers));
    found.extend(vcpu_schedulers(root, domain));
    found.extend(emulator(root));
    found.extend(times(root));
    found
}

/// Devices whose iothread is not defined: with the number of that.
fn wanted(root: Node<'_, '_>, domain: &Domain) -> Vec<(Refusal, u32)> {
    let kinds = [("disk", "Disk", "iothreadid"), ("controller", "controller", "iothreadid")];
    let mut found = Vec::new();
    for (kind, called, list) in kinds {
        for driver in at(root, &format!("devices/{kind}/driver")) {
            let Some(id) = number::<u32>(driver, "iothread").filter(|id| !domain.iothreads.contains(id)) else {
                continue;
            };
            let says = format!("{called} iothread '{id}' not defined in {list}");
            let refusal = Refusal::new(
                format!("a {kind} is to be served by iothread {id}, which the domain does not have"),
                says,
            );
            let refusal = refusal.at(format!("devices/{kind}/driver"), driver);
            found.push((refusal.mend("define its iothreads", define(domain, id)), id));
        }
    }
    found
}

/// As many iothreads as make one of this number: libvirt gives the lowest numbers that are left.
fn define(domain: &Domain, id: u32) -> Option<Edit> {
    let numbers: BTreeSet<u32> = domain.iothreads.iter().copied().chain(1..=id).collect();
    let few = id > 0 && numbers.len() <= topology::limits::MOST_IOTHREADS as usize;
    few.then(|| Edit::SetText { at: steps("iothreads"), text: numbers.len().to_string() })
}

/// Pins of iothreads that the domain does not have.
fn pins(root: Node<'_, '_>, domain: &Domain, defined: &BTreeSet<u32>) -> Vec<Refusal> {
    let mut found = Vec::new();
    for pin in at(root, "cputune/iothreadpin") {
        let Some(id) = number::<u32>(pin, "iothread") else { continue };
        if domain.iothreads.contains(&id) || defined.contains(&id) {
            continue;
        }
        let path = format!("cputune/iothreadpin[@iothread='{id}']");
        let refusal = Refusal::new(format!("iothread {id} has CPUs, and the domain does not have it"), cannot_find(id));
        let advice = "take the pin away: no device asks for that iothread (else write <iothreads> and name it in the \
            device's <driver iothread=...>)";
        let remove = Edit::Remove {
            at: keyed("cputune/iothreadpin", "iothread", pin.attribute("iothread").unwrap_or_default()),
        };
        found.push(refusal.at(path, pin).mend(advice, [remove]));
    }
    found
}

fn cannot_find(id: u32) -> String {
    format!("Cannot find 'iothread' : {id}")
}

/// Scheduling classes of iothreads that the domain does not have.
fn iothread_schedulers(root: Node<'_, '_>, domain: &Domain, defined: &BTreeSet<u32>) -> Vec<Refusal> {
    let exists = |id: &u32| domain.iothreads.contains(id) || defined.contains(id);
    let mut found = Vec::new();
    for element in at(root, "cputune/iothreadsched") {
        let Some((text, ids)) = listed(element, "iothreads") else { continue };
        let Some(lacks) = ids.iter().map(|id| id.0).find(|id| !exists(id)) else { continue };
        let rest = ids.iter().filter(|id| exists(&id.0)).collect();
        let sentence = format!("iothread {lacks} has a scheduling class, and the domain does not have it");
        let refusal = Refusal::new(sentence, cannot_find(lacks)).at("cputune/iothreadsched", element);
        found.push(refusal.mend("leave it out", only(element, "iothreads", text, &rest)));
    }
    found
}

/// Scheduling classes of vCPUs that it cannot have, or that have one already.
fn vcpu_schedulers(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let (mut seen, mut found) = (CpuSet::new(), Vec::new());
    for element in at(root, "cputune/vcpusched") {
        let Some((text, vcpus)) = listed(element, "vcpus") else { continue };
        let beyond = vcpus.iter().find(|vcpu| vcpu.0 >= domain.vcpus);
        let twice = vcpus.intersection(&seen).first();
        let rest: CpuSet = vcpus.difference(&seen).iter().filter(|vcpu| vcpu.0 < domain.vcpus).collect();
        seen = seen.union(&vcpus);
        let (sentence, says) = match (beyond, twice) {
            (Some(beyond), _) => (
                format!("vCPU {beyond} has a scheduling class, and there is no such vCPU"),
                format!("vCPU '{beyond}' is not present in domain definition"),
            ),
            (None, Some(twice)) => (
                format!("vCPU {twice} has two scheduling classes"),
                "'vcpusched' attributes 'vcpus' must not overlap".to_owned(),
            ),
            (None, None) => continue,
        };
        let refusal = Refusal::new(sentence, says).at("cputune/vcpusched", element);
        found.push(refusal.mend("leave it out", only(element, "vcpus", text, &rest)));
    }
    found
}

/// A list of numbers in an attribute, and its text.
fn listed<'a>(element: Node<'a, '_>, name: &str) -> Option<(&'a str, CpuSet)> {
    let text = element.attribute(name)?;
    Some((text, domain::list::<CpuId>(text)?))
}

/// The element with the rest of its list; none where nothing is left of it.
fn only(element: Node<'_, '_>, name: &str, text: &str, rest: &CpuSet) -> Vec<Edit> {
    let path = format!("cputune/{}", element.tag_name().name());
    let at = || keyed(&path, name, text);
    if rest.is_empty() {
        return vec![Edit::Remove { at: at() }];
    }
    // What tells an element from its siblings is not changed: it is made anew.
    let more = element.attributes().filter(|attribute| attribute.name() != name);
    let made =
        |attribute: roxmltree::Attribute<'_, '_>| set(keyed(&path, name, rest), attribute.name(), attribute.value());
    std::iter::once(Edit::Remove { at: at() }).chain(more.map(made)).collect()
}

fn emulator(root: Node<'_, '_>) -> Option<Refusal> {
    let pins = at(root, "cputune/emulatorpin");
    let second = pins.get(1)?;
    let refusal = Refusal::new("CPUs of the emulator are written twice", "only one emulatorpin is supported");
    Some(refusal.at("cputune/emulatorpin", *second).mend("leave one of them", []))
}

/// Times of the kernel's CPU controller that are too short or too long.
fn times(root: Node<'_, '_>) -> Vec<Refusal> {
    let mut found = Vec::new();
    let whose = ["", "global_", "emulator_", "iothread_"];
    for (name, range) in whose.iter().flat_map(|who| [(format!("{who}period"), PERIOD), (format!("{who}quota"), QUOTA)])
    {
        let Some(element) = first(root, &format!("cputune/{name}")) else { continue };
        let Ok(value) = super::text_of(element).trim().parse::<i64>() else { continue };
        // 0 and less: no limit.
        if value <= 0 || range.contains(&value) {
            continue;
        }
        let says = format!("Value of cputune '{name}' must be in range [{}, {}]", range.start(), range.end());
        let refusal =
            Refusal::new(format!("{name} is {value} microseconds"), says).at(format!("cputune/{name}"), element);
        found.push(refusal.mend(format!("from {} to {}", range.start(), range.end()), []));
    }
    found
}
