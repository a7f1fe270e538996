//! Distances that the guest is told, and how far off they must be to mislead it.

use judge::Severity;
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use topology::{Distances, Machine, NodeId, read};

/// Two nodes of 8 cores, so far apart.
fn machine(distance: u32) -> Machine {
    let mut machine = read::from_synthetic("pack:2 [numa(memory=64GiB)] l3:1 core:8 pu:1").expect("a machine");
    let nodes = [NodeId(0), NodeId(1)];
    let rows = vec![vec![Distances::LOCAL, distance], vec![distance, Distances::LOCAL]];
    machine.distances = Distances::new(nodes.to_vec(), rows).expect("a table");
    machine
}

/// A domain of two cells at home, as KubeVirt and Nova write it.
fn domain(told: Option<u32>) -> String {
    let cell = |id: u32| {
        let other = told.map(|told| format!("<distances><sibling id='{}' value='{told}'/></distances>", 1 - id));
        let cpus = format!("{}-{}", 8 * id, 8 * id + 7);
        format!("<cell id='{id}' cpus='{cpus}' memory='16' unit='GiB'>{}</cell>", other.unwrap_or_default())
    };
    let pin = |vcpu: u32| format!("<vcpupin vcpu='{vcpu}' cpuset='{}'/>", if vcpu < 8 { "0-7" } else { "8-15" });
    let pins: String = (0..16).map(pin).collect();
    let node = |id: u32| format!("<memnode cellid='{id}' mode='strict' nodeset='{id}'/>");
    format!(
        "<domain type='kvm'><name>two</name><memory unit='GiB'>32</memory><vcpu>16</vcpu><cputune>{pins}<emulatorpin \
         cpuset='0-15'/></cputune><numatune>{}{}</numatune><cpu><topology sockets='2' cores='8' \
         threads='1'/><numa>{}{}</numa></cpu></domain>",
        node(0),
        node(1),
        cell(0),
        cell(1)
    )
}

#[test]
fn a_distance_that_is_nearly_told_is_a_note() {
    let severity = |told: Option<u32>, real: u32| {
        let machine = machine(real);
        let checked = CheckedDomain::new(&machine, &Occupancy::default(), &domain(told), "vm.xml").expect("a domain");
        let distances = ["no_distances", "wrong_distances"];
        checked.findings.iter().find(|found| distances.contains(&found.what)).map(|found| found.severity)
    };
    assert_eq!(severity(None, 20), None);
    assert_eq!((severity(None, 21), severity(Some(20), 21)), (Some(Severity::Note), Some(Severity::Note)));
    assert_eq!((severity(None, 32), severity(Some(20), 32)), (Some(Severity::Warning), Some(Severity::Warning)));
    assert_eq!(severity(None, 12), Some(Severity::Warning));
    assert_eq!(severity(Some(32), 32), None);
}
