//! What libvirt refuses in domains as people write them, without libvirt:
//! `crates/cli/tests/refused.rs` asks it.

use judge::{Finding, Severity};
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use stacks::domain;
use topology::read;

fn judged(text: &str) -> CheckedDomain {
    let machine = read::shipped("hp-dl380-g6").expect("a machine").expect("a machine");
    CheckedDomain::new(&machine, &Occupancy::default(), text, "vm.xml").expect("a domain")
}

fn kinds(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.what).collect()
}

/// OpenNebula: a topology for the vCPUs that are there, of more that may come.
#[test]
fn no_advice_is_given_on_a_topology_that_cannot_be() {
    let text = "<domain type='kvm'>\n  <name>one-77</name>\n  <memory unit='GiB'>2</memory>\n  <vcpu \
                current='2'>6</vcpu>\n  <cpu mode='host-passthrough'>\n    <topology sockets='1' cores='1' \
                threads='2'/>\n  </cpu>\n</domain>\n";
    let checked = judged(text);
    let first = checked.findings.first().expect("a finding");
    assert_eq!((first.what, first.severity), ("start_refused", Severity::Problem), "{:#?}", checked.findings);
    assert_eq!(first.seen, "libvirt says: CPU topology doesn't match maximum vcpu count");
    assert_eq!(first.spots.iter().map(ToString::to_string).collect::<Vec<_>>(), ["cpu/topology (line 6)"]);
    let patch = first.cure.patch.as_deref().expect("a patch");
    assert!(patch.contains("+    <topology sockets='3' cores='1' threads='2'/>"), "{patch}");
    // Every other patch is one of a domain that can be.
    for finding in checked.findings.iter().filter_map(|finding| finding.cure.patch.as_ref()) {
        assert!(finding.contains("sockets='3'") || finding.contains("sockets='6'"), "{finding}");
    }
    let guest = domain::parse(&checked.cured, "cured").expect("a domain").guest;
    assert_eq!(guest.sockets * guest.dies * guest.cores * guest.threads, 6, "{}", checked.cured);
    let left = judged(&checked.cured);
    assert!(left.wrong() == 0 && left.cured == checked.cured, "{:#?}", left.findings);
}

/// A tuning guide pins an iothread that nobody defined.
#[test]
fn a_pin_of_no_iothread_goes_and_all_else_stays() {
    let pin = "    <iothreadpin iothread='1' cpuset='4-7'/>\n";
    let text = format!(
        "<domain type='kvm'>\n  <name>win10</name>\n  <memory unit='GiB'>4</memory>\n  <vcpu \
         cpuset='0-3,8-11'>4</vcpu>\n  <cputune>\n{pin}  </cputune>\n  <numatune>\n    <memory mode='strict' \
         nodeset='0'/>\n  </numatune>\n</domain>\n"
    );
    let checked = judged(&text);
    assert!(kinds(&checked.findings).contains(&"start_refused"), "{:#?}", checked.findings);
    assert!(!checked.cured.contains("iothreadpin"), "{}", checked.cured);
    assert!(!kinds(&judged(&checked.cured).findings).contains(&"start_refused"));
}

/// libvirt 9.6 and later makes the cell itself: a warning, and the cell is written.
#[test]
fn memory_that_can_be_plugged_in_gets_a_cell() {
    let text = "<domain type='kvm'>\n  <name>hotmem</name>\n  <maxMemory slots='16' unit='GiB'>20</maxMemory>\n  <memory \
                unit='GiB'>8</memory>\n  <vcpu>4</vcpu>\n</domain>\n";
    let checked = judged(text);
    let refused = checked.findings.iter().find(|finding| finding.what == "start_refused").expect("the finding");
    assert_eq!(refused.severity, Severity::Warning);
    assert!(refused.seen.contains("(before libvirt 9.6)"), "{}", refused.seen);
    let cured = domain::parse(&checked.cured, "cured").expect("a domain");
    let cells: Vec<(String, u64)> =
        cured.cells.iter().map(|cell| (cell.vcpus.to_string(), cell.memory.mib())).collect();
    assert_eq!(cells, [("0-3".to_owned(), 8192)], "{}", checked.cured);
    assert_eq!(cured.memory_nodes.len(), 1, "{}", checked.cured);
    assert_eq!(judged(&checked.cured).wrong(), 0);
}

/// vCPUs that numad places, and cells with nodes of their own.
#[test]
fn cells_with_nodes_and_vcpus_that_numad_places_exclude_each_other() {
    let text = "<domain type='kvm'><name>x</name><vcpu placement='auto'>4</vcpu><numatune><memnode cellid='0' \
                mode='strict' nodeset='0'/></numatune><cpu><numa><cell id='0' cpus='0-3' memory='2' \
                unit='GiB'/></numa></cpu></domain>";
    let checked = judged(text);
    assert!(kinds(&checked.findings).contains(&"automatic_with_memnode"), "{:#?}", checked.findings);
    let cured = domain::parse(&checked.cured, "cured").expect("a domain");
    assert!(!cured.vcpu_placement_auto && cured.memory_tune.is_none(), "{}", checked.cured);
    assert_eq!(judged(&checked.cured).wrong(), 0, "{}", checked.cured);
}
