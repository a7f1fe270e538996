//! Definitions of VMs: libvirt's domains, read, edited and cured, and Proxmox VE's configurations.

use crate::{LONGEST_INPUT, read_or_printed, text};
use scheduler::Occupancy;
use stacks::check::{CheckedDomain, Definition};
use stacks::domain::{self, Edit, Step};
use std::sync::OnceLock;
use topology::{Machine, read};

/// A domain.
pub(crate) fn read(input: &[u8]) {
    read_or_printed(domain::parse(&text(input), "vm.xml"));
}

/// Edits, a line each, and after an empty line the domain that they change.
///
/// ```text
/// set cputune/vcpupin[vcpu=0] cpuset 0-3
/// unset vcpu placement
/// text memory 1048576
/// remove numatune/memnode
///
/// <domain>...
/// ```
pub(crate) fn edit(input: &[u8]) {
    let input = text(input);
    let (lines, domain) = input.split_once("\n\n").unwrap_or(("", &input));
    let edits: Vec<Edit> = lines.lines().take(64).filter_map(edit_of).collect();
    let Some(edited) = read_or_printed(domain::apply(domain, "vm.xml", &edits)) else { return };
    // One edit alone is done when it is done; of several, one may undo what another one does.
    if let [_] = &edits[..] {
        assert_eq!(domain::apply(&edited, "vm.xml", &edits).expect("a domain"), edited, "{edits:?}");
    }
}

/// The domain behind each kind of edit.
pub(crate) fn with_edits(domain: &[u8]) -> Vec<u8> {
    let mut input = b"set cputune/vcpupin[vcpu=0] cpuset 0-3\nunset vcpu placement\ntext memory 1048576\nremove \
        numatune/memnode\n\n"
        .to_vec();
    input.extend(domain);
    input
}

fn edit_of(line: &str) -> Option<Edit> {
    let mut words = line.splitn(4, ' ');
    let (what, path) = (words.next()?, words.next()?);
    let at: Vec<Step> = path.split('/').filter(|step| !step.is_empty()).take(16).map(step_of).collect();
    let mut word = || words.next().unwrap_or_default().to_owned();
    Some(match what {
        "set" => Edit::SetAttribute { at, name: word(), value: word() },
        "unset" => Edit::RemoveAttribute { at, name: word() },
        "text" => Edit::SetText { at, text: word() },
        "remove" => Edit::Remove { at },
        _ => return None,
    })
}

/// `vcpupin`, `vcpupin[vcpu=0]`.
fn step_of(step: &str) -> Step {
    let key = step.strip_suffix(']').and_then(|step| step.split_once('['));
    match key.and_then(|(element, key)| Some((element, key.split_once('=')?))) {
        Some((element, (key, value))) => Step::keyed(element, key, value),
        None => Step::new(step),
    }
}

/// A domain that is judged and cured, for a machine that its length chooses.
pub(crate) fn cure(input: &[u8]) {
    let text = text(input);
    let machines = machines();
    let machine = &machines[text.len() % machines.len()];
    let judge = |text: &str| CheckedDomain::new(machine, &Occupancy::default(), text, "vm.xml");
    let Some(checked) = read_or_printed(judge(&text)) else { return };
    if checked.wrong() == 0 {
        assert_eq!(checked.cured, text, "nothing is wrong, and nothing is changed");
    }
    let again = judge(&checked.cured).unwrap_or_else(|error| panic!("{error}: {}", checked.cured));
    assert_eq!(again.cured, checked.cured, "a second cure changes nothing");
    assert!(again.wrong() <= checked.wrong(), "{:#?}\n{}", again.findings, checked.cured);
    let keeps = |vm: &CheckedDomain| (vm.vm.name.clone(), vm.vm.memory, vm.vm.vcpus);
    assert_eq!(keeps(&again), keeps(&checked), "{}", checked.cured);
}

/// A configuration of Proxmox VE.
pub(crate) fn proxmox(input: &[u8]) {
    let text = text(input);
    let Some(definition) = read_or_printed(Definition::read(text.clone().into_owned(), "100.conf".to_owned())) else {
        return;
    };
    let (machines, none) = (machines(), Occupancy::default());
    let machine = &machines[text.len() % machines.len()];
    read_or_printed(definition.check(machine, &none));
    if let Some(lines) = read_or_printed(definition.proxmox_numa_lines(machine, &none)) {
        assert!(lines.len() <= LONGEST_INPUT, "{} bytes of lines", lines.len());
    }
}

/// Machines of one node to eight, with nodes, caches and distances of different sizes.
fn machines() -> &'static [Machine] {
    static MACHINES: OnceLock<Vec<Machine>> = OnceLock::new();
    let shipped = |name: &str| read::shipped(name).expect(name).expect(name);
    let synthetic = |text: &str| read::from_synthetic(text).expect(text);
    MACHINES.get_or_init(|| {
        vec![
            shipped("hp-dl380-g6"),
            shipped("hp-dl980-g7"),
            shipped("epyc-7742-2s-nps4"),
            synthetic("pack:2 [numa(memory=8GB)] l3:2 core:2 pu:2"),
            synthetic("pack:1 [numa(memory=16GB)] l3:1 core:4 pu:1"),
        ]
    })
}
