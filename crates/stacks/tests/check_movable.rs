//! Static cures, and such that the balancer may move: which is said, and the other can be had.

use scheduler::Occupancy;
use stacks::check::{CheckedDomain, movable};
use stacks::domain;
use topology::read;

fn judged(text: &str) -> CheckedDomain {
    let machine = read::shipped("hp-dl380-g6").expect("a machine").expect("a machine");
    CheckedDomain::new(&machine, &Occupancy::default(), text, "vm.xml").expect("a domain")
}

fn domain_of(inside: &str) -> String {
    format!(
        "<domain type='kvm'>\n  <name>x</name>\n  <memory unit='GiB'>4</memory>\n  <vcpu>4</vcpu>\n{inside}</domain>\n"
    )
}

#[test]
fn a_cure_that_nobody_can_move_says_so_and_the_other_one_prefers_the_same_home() {
    let checked = judged(&domain_of(""));
    let floats = checked.findings.iter().find(|finding| finding.what == "floats").expect("the finding");
    assert!(
        floats.cure.advice.contains("static") && floats.cure.advice.contains("--movable"),
        "{}",
        floats.cure.advice
    );
    let tune = |text: &str| domain::parse(text, "cured").expect("a domain").memory_tune.expect("a policy");
    let (fixed, free) = (tune(&checked.cured), movable(&checked.cured, "cured").expect("a domain"));
    assert_eq!((fixed.mode.as_str(), tune(&free).mode.as_str()), ("strict", "preferred"));
    assert_eq!(fixed.nodeset, tune(&free).nodeset);
    // It is right as it is: a cure leaves it movable.
    let left = judged(&free);
    assert!(left.wrong() == 0 && left.cured == free, "{free}\n{:#?}", left.findings);
    assert_eq!(movable(&free, "free").expect("a domain"), free);
}

#[test]
fn cells_are_bound_by_themselves_and_the_vm_is_not_confined() {
    let numa = "  <cpu>\n    <topology sockets='2' cores='2' threads='1'/>\n    <numa>\n      <cell cpus='0-1' memory='2' \
                unit='GiB'/>\n      <cell cpus='2-3' memory='2' unit='GiB'/>\n    </numa>\n  </cpu>\n";
    let tune = "  <numatune>\n    <memory mode='strict' nodeset='0-1'/>\n    <memnode cellid='0' mode='strict' \
                nodeset='0'/>\n  </numatune>\n";
    let free = movable(&domain_of(&format!("{tune}{numa}")), "vm.xml").expect("a domain");
    let domain = domain::parse(&free, "free").expect("a domain");
    let bound: Vec<(u32, String)> =
        domain.memory_nodes.iter().filter_map(|(&id, tune)| Some((id, tune.nodeset.as_ref()?.to_string()))).collect();
    assert_eq!(domain.memory_tune, None, "{free}");
    assert_eq!(bound, [(0, "0".to_owned()), (1, "0-1".to_owned())], "{free}");
    // Movable cures say nothing: `homenode balance` does with them as with its own.
    let floating = judged(&domain_of(numa));
    assert!(floating.wrong() > 0);
    assert!(
        floating.findings.iter().all(|finding| !finding.cure.advice.contains("static")),
        "{:#?}",
        floating.findings
    );
}
