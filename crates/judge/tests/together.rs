//! Definitions that are solved together.

use judge::{Binding, ShapedNode, ShapedVm, together};
use scheduler::Occupancy;
use topology::{Bytes, read};
use vm::qemu::GuestCpus;

#[test]
fn copies_of_a_domain_share_the_machine() {
    // 2 nodes of 512 GiB; 12 copies of 64 GiB that all name node 0: 8 of them fill it (8 * 64 =
    // 512).
    let machine = read::from_synthetic("pack:2 [numa(memory=512GiB)] l3:1 core:32 pu:2").expect("a machine");
    let binding = Some(Binding { mode: "strict".to_owned(), nodes: "0".parse().expect("a set") });
    let memory = Bytes(64 << 30);
    let node = ShapedNode { vcpus: "0-3".parse().expect("vCPUs"), memory, binding, ..ShapedNode::default() };
    let pins = (0..4).map(|vcpu| (vcpu, "0-63".parse().expect("CPUs"))).collect();
    let guest = GuestCpus { sockets: 1, dies: 1, cores: 4, threads: 1, ..GuestCpus::default() };
    let one = ShapedVm { vcpus: 4, memory, guest, nodes: vec![node], pins, ..ShapedVm::default() };
    let vms: Vec<ShapedVm> = (0..12).map(|id| ShapedVm { name: format!("vm{id}"), ..one.clone() }).collect();
    let beside = together(&machine, &Occupancy::default(), &vms);
    let homes: Vec<String> = beside.iter().map(|beside| beside.homes.to_string()).collect();
    assert_eq!(homes.iter().filter(|home| *home == "0").count(), 8, "{homes:?}");
    assert_eq!(homes.iter().filter(|home| *home == "1").count(), 4, "{homes:?}");
    let found = |index: usize| {
        let findings = judge::definition(&machine, &beside[index].others, &vms[index]).findings;
        findings.iter().any(|finding| finding.what == "no_room_beside_others" && !finding.cure.changes.is_empty())
    };
    let full: Vec<bool> = (0..12).map(found).collect();
    assert_eq!(full.iter().filter(|full| **full).count(), 4, "{full:?}");
}
