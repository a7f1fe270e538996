//! Domains that nobody would write: whatever is wrong with them, a cure must leave nothing that an
//! edit can mend, and keep what it does not name.

use judge::Severity;
use proptest::prelude::*;
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use std::fmt::Write;
use topology::{Machine, read};

/// Machines of one node to eight, with nodes, caches and distances of different sizes.
fn machines() -> Vec<Machine> {
    let shipped = |name: &str| read::shipped(name).expect(name).expect(name);
    let synthetic = |text: &str| read::from_synthetic(text).expect(text);
    vec![
        shipped("hp-dl380-g6"),
        shipped("hp-dl980-g7"),
        shipped("epyc-7742-2s-nps4"),
        synthetic("pack:2 [numa(memory=8GB)] l3:2 core:2 pu:2"),
        synthetic("pack:1 [numa(memory=16GB)] l3:1 core:4 pu:1"),
    ]
}

/// What stands in a domain and is none of a cure's business.
const KEPT: &str = "  <devices>\n    <!-- kept: \u{e4} -->\n    <disk  type='file'/>\n  </devices>\n";

#[derive(Clone, Debug)]
struct Drawn {
    machine: usize,
    vcpus: u32,
    gib: u64,
    cells: u32,
    /// How vCPUs are dealt to cells: in a row, or in turn.
    in_turn: bool,
    /// For each vCPU: no pin, or a range of CPUs.
    pins: Vec<Option<(u32, u32)>>,
    cpuset: Option<(u32, u32)>,
    emulator: Option<(u32, u32)>,
    iothreads: u32,
    auto: (bool, bool),
    memory: Option<(usize, u32, u32)>,
    memory_nodes: Vec<Option<(usize, u32)>>,
    /// Divisors of the vCPUs.
    sockets: Option<u32>,
    threads: u32,
    cache: usize,
    distance: Option<u32>,
}

fn range() -> impl Strategy<Value = (u32, u32)> {
    (0..20u32, 0..6u32).prop_map(|(first, more)| (first, first + more))
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let shape = (0..5usize, 1..20u32, 1..50u64, 0..4u32, any::<bool>());
    let pins = (
        prop::collection::vec(prop::option::weighted(0.7, range()), 20),
        prop::option::weighted(0.2, range()),
        prop::option::of(range()),
        0..3u32,
        (prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
    );
    let memory = (
        prop::option::of((0..4usize, 0..3u32, 0..2u32)),
        prop::collection::vec(prop::option::of((0..3usize, 0..3u32)), 4),
    );
    let guest = (prop::option::of(1..5u32), 1..3u32, 0..4usize, prop::option::of(11..40u32));
    (shape, pins, memory, guest).prop_map(|(shape, pins, memory, guest)| Drawn {
        machine: shape.0,
        vcpus: shape.1,
        gib: shape.2,
        cells: shape.3.min(shape.1),
        in_turn: shape.4,
        pins: pins.0,
        cpuset: pins.1,
        emulator: pins.2,
        iothreads: pins.3,
        auto: pins.4,
        memory: memory.0,
        memory_nodes: memory.1,
        sockets: guest.0,
        threads: guest.1,
        cache: guest.2,
        distance: guest.3,
    })
}

const MODES: [&str; 4] = ["strict", "preferred", "interleave", "restrictive"];

fn set((first, last): (u32, u32)) -> String {
    format!("{first}-{last}")
}

/// The domain; writing to a string cannot fail.
fn xml(drawn: &Drawn) -> String {
    let mut text = format!("<domain type='kvm'>\n  <name>drawn</name>\n  <memory unit='GiB'>{}</memory>\n", drawn.gib);
    let placement = if drawn.auto.0 { " placement='auto'".to_owned() } else { String::new() };
    let cpuset = drawn.cpuset.filter(|_| !drawn.auto.0).map(|cpus| format!(" cpuset='{}'", set(cpus)));
    let _ = writeln!(text, "  <vcpu{placement}{}>{}</vcpu>", cpuset.unwrap_or_default(), drawn.vcpus);
    let _ = writeln!(text, "  <iothreads>{}</iothreads>\n  <cputune>", drawn.iothreads);
    for (vcpu, cpus) in (0..drawn.vcpus).zip(&drawn.pins).filter(|_| !drawn.auto.0) {
        if let Some(cpus) = cpus {
            let _ = writeln!(text, "    <vcpupin vcpu='{vcpu}' cpuset='{}'/>", set(*cpus));
        }
    }
    if let Some(cpus) = drawn.emulator {
        let _ = writeln!(text, "    <emulatorpin cpuset='{}'/>", set(cpus));
    }
    text += "  </cputune>\n  <numatune>\n";
    match drawn.memory {
        _ if drawn.auto.1 => text += "    <memory mode='strict' placement='auto'/>\n",
        Some((mode, first, more)) => {
            let _ = writeln!(text, "    <memory mode='{}' nodeset='{first}-{}'/>", MODES[mode], first + more);
        }
        None => {}
    }
    for (cell, node) in (0..drawn.cells).zip(&drawn.memory_nodes) {
        if let Some((mode, node)) = node {
            let _ = writeln!(text, "    <memnode cellid='{cell}' mode='{}' nodeset='{node}'/>", MODES[*mode]);
        }
    }
    text += "  </numatune>\n  <cpu mode='host-model'>\n";
    guest(drawn, &mut text);
    text + "  </cpu>\n" + KEPT + "</domain>\n"
}

fn guest(drawn: &Drawn, text: &mut String) {
    if let Some(sockets) = drawn.sockets.filter(|sockets| drawn.vcpus.is_multiple_of(sockets * drawn.threads)) {
        let cores = drawn.vcpus / sockets / drawn.threads;
        let _ = writeln!(text, "    <topology sockets='{sockets}' cores='{cores}' threads='{}'/>", drawn.threads);
    }
    if let Some(mode) = ["passthrough", "disable", "emulate"].get(drawn.cache) {
        let _ = writeln!(text, "    <cache mode='{mode}'/>");
    }
    if drawn.cells == 0 {
        return;
    }
    *text += "    <numa>\n";
    for cell in 0..drawn.cells {
        let cell_of = |vcpu: u32| if drawn.in_turn { vcpu % drawn.cells } else { vcpu * drawn.cells / drawn.vcpus };
        let vcpus: Vec<String> =
            (0..drawn.vcpus).filter(|&vcpu| cell_of(vcpu) == cell).map(|vcpu| vcpu.to_string()).collect();
        // The first cell has what does not divide evenly.
        let mib = drawn.gib * 1024 / u64::from(drawn.cells);
        let mib = if cell == 0 { drawn.gib * 1024 - mib * u64::from(drawn.cells - 1) } else { mib };
        let _ = write!(text, "      <cell id='{cell}' cpus='{}' memory='{mib}' unit='MiB'", vcpus.join(","));
        match drawn.distance.filter(|_| cell == 0 && drawn.cells > 1) {
            Some(value) => {
                let _ = writeln!(text, "><distances><sibling id='1' value='{value}'/></distances></cell>");
            }
            None => *text += "/>\n",
        }
    }
    *text += "    </numa>\n";
}

properties::properties! {
    #![cases(60)]

    #[test]
    fn whatever_is_wrong_a_cure_leaves_nothing_that_an_edit_mends(drawn in drawn()) {
        let machine = &machines()[drawn.machine];
        let text = xml(&drawn);
        let judge = |text: &str| CheckedDomain::new(machine, &Occupancy::default(), text, "vm.xml").expect("a domain");
        let checked = judge(&text);
        let left = judge(&checked.cured);
        let mended = |finding: &&judge::Finding| {
            finding.severity > Severity::Note && !finding.cure.changes.is_empty()
        };
        let found: Vec<_> = left.findings.iter().filter(mended).collect();
        prop_assert!(found.is_empty(), "{}\n{text}\n{}\n{found:#?}", machine.name, checked.cured);
        prop_assert_eq!(&left.cured, &checked.cured);
        prop_assert!(checked.cured.contains(KEPT), "{}", checked.cured);
        if checked.wrong() == 0 {
            prop_assert_eq!(&checked.cured, &text);
        }
        // The guest's memory is what it was, to the byte.
        prop_assert_eq!(left.vm.memory, checked.vm.memory);
        prop_assert_eq!(left.vm.vcpus, checked.vm.vcpus);
    }
}
