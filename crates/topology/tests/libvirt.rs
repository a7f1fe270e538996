//! libvirt's capabilities: files of several versions, against what other readers make of the same
//! machines.

use std::fs;
use std::path::{Path, PathBuf};
use topology::{Bytes, CpuId, CpuSet, LlcId, Machine, NodeId, SocketId, read};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn capabilities(name: &str) -> Machine {
    let text = fs::read_to_string(golden().join(format!("libvirt/{name}.xml"))).expect(name);
    read::from_xml(&text, &format!("{name}.xml")).expect(name)
}

fn cpus(machine: &Machine, belong: impl Fn(&topology::HardwareThread) -> bool) -> String {
    machine.threads.iter().filter(|thread| belong(thread)).map(|thread| thread.id).collect::<CpuSet>().to_string()
}

#[test]
fn hwloc_xml_and_capabilities_of_one_machine_agree() {
    let file = golden().join("xml/two-llcs-a-node.xml");
    let theirs = read::from_hwloc_xml(&fs::read_to_string(file).expect("XML"), "two-llcs-a-node.xml").expect("hwloc");
    let ours = capabilities("two-llcs-a-node");
    assert_eq!(ours.threads, theirs.threads);
    assert_eq!(ours.llcs, theirs.llcs);
    assert_eq!(ours.distances, theirs.distances);
    assert_eq!(ours.name, theirs.name);
    assert!(ours.nodes.iter().zip(&theirs.nodes).all(|(a, b)| (a.id, a.memory, a.free) == (b.id, b.memory, b.free)));
    assert_eq!(ours.notes, [] as [&str; 0]);
    // lstopo writes no distances of a synthetic machine.
    assert!(theirs.notes[0].starts_with("No complete and valid table of distances"), "{:?}", theirs.notes);
    assert_eq!(ours.cpu_model.as_deref(), Some("AMD EPYC-Rome"));
}

#[test]
fn a_session_of_libvirt_9_on_one_node() {
    let machine = capabilities("libvirt-9.0-one-node");
    assert_eq!(machine.nodes.len(), 1);
    assert_eq!(machine.nodes[0].memory, Bytes::from_kib(19_884_248));
    let sizes: Vec<_> = machine.nodes[0].huge_pages.iter().map(|pool| (pool.page_size, pool.total)).collect();
    assert_eq!(sizes, [(Bytes(2 << 20), 0), (Bytes(1 << 30), 0)]);
    assert_eq!(machine.llcs.len(), 1);
    assert_eq!((machine.llcs[0].level, machine.llcs[0].size), (3, Some(Bytes(32 << 20))));
    assert_eq!(machine.threads_per_core(), 1);
    assert_eq!(machine.distances.rows(), [[10]]);
    assert_eq!(machine.notes, [] as [&str; 0]);
}

#[test]
fn the_test_driver_of_libvirt_9() {
    let machine = capabilities("libvirt-9.0-test-driver");
    assert_eq!(cpus(&machine, |thread| thread.node == NodeId(1) && thread.socket == SocketId(1)), "8-15");
    assert_eq!(machine.nodes[1].memory, Bytes(4 << 30));
    assert!(machine.llcs.is_empty() && machine.threads.iter().all(|thread| thread.llc.is_none()));
    // core_id starts anew in each socket; siblings tell the cores apart.
    assert_eq!(machine.usable_cores(NodeId(0)).union(&machine.usable_cores(NodeId(1))).len(), 16);
    assert!(machine.notes.iter().any(|note| note.contains("names no cache")), "{:?}", machine.notes);
    assert!(machine.notes.iter().any(|note| note.contains("table of distances")), "{:?}", machine.notes);
    assert_eq!(machine.cpu_model.as_deref(), Some("i686"));
}

#[test]
fn nodes_without_cpus_and_cpus_that_are_offline() {
    let machine = capabilities("libvirt-10-memory-only-offline");
    assert_eq!(machine.node_ids().to_string(), "0-1,4");
    assert_eq!(cpus(&machine, |thread| thread.node == NodeId(4)), "");
    assert_eq!(machine.node(NodeId(4)).map(|node| node.memory), Some(Bytes(128 << 30)));
    assert_eq!(cpus(&machine, |thread| !thread.online), "3,7");
    assert_eq!(machine.usable_cpus(NodeId(1)).to_string(), "4-6");
    assert_eq!(machine.thread(CpuId(7)).map(|thread| (thread.socket, thread.llc)), Some((SocketId(1), None)));
    assert_eq!(cpus(&machine, |thread| thread.llc == Some(LlcId(1))), "4-6");
    assert_eq!(machine.threads_per_core(), 2);
    assert_eq!(machine.distances.rows(), [[10, 21, 17], [21, 10, 28], [17, 28, 10]]);
    let pools: Vec<_> = machine.nodes[0].huge_pages.iter().map(|pool| (pool.page_size, pool.total)).collect();
    assert_eq!(pools, [(Bytes(2 << 20), 1024), (Bytes(1 << 30), 4)]);
    assert!(machine.notes.iter().any(|note| note.contains("Offline: CPUs 3,7")), "{:?}", machine.notes);
}

#[test]
fn old_libvirt_names_neither_caches_nor_distances() {
    let machine = capabilities("libvirt-1.2-no-caches");
    assert_eq!(machine.usable_cpus(NodeId(1)).to_string(), "1,3,5,7");
    assert_eq!(machine.usable_cores(NodeId(0)).len(), 2);
    assert_eq!(machine.thread(CpuId(6)).map(|thread| thread.core), machine.thread(CpuId(2)).map(|thread| thread.core));
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 20);
    assert!(machine.llcs.is_empty());
}
