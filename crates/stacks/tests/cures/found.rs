//! Domains whose cures were wrong once, as short as they get.

use super::{Case, Tried, ask_libvirt, libvirt, tried};
use scheduler::Occupancy;
use std::fmt::Write as _;
use topology::{Bytes, NodeId};
use vm::NodeUse;

const TWO_NODES: usize = 0;
const EIGHT_NODES: usize = 1;
const SMALL_NODES: usize = 3;
const ONE_NODE: usize = 4;
const NODE_WITHOUT_CPUS: usize = 5;

/// What was wrong, the index of the machine, GiB that others hold of each node, and all of the
/// domain but its name and its `<os>`.
const FOUND: &[(&str, usize, [u64; 3], &str)] = &[
    (
        "a vCPU's number with a blank: a second pin of it, which libvirt refuses",
        TWO_NODES,
        [0; 3],
        "<memory unit='GiB'>2</memory><vcpu>2</vcpu><cputune>\
         <vcpupin vcpu=' 0' cpuset='0'/><vcpupin vcpu='01' cpuset='0'/></cputune>",
    ),
    ("without <vcpu>: one with pins alone, which libvirt refuses", TWO_NODES, [0; 3], "<memory unit='GiB'>2</memory>"),
    (
        "cells without ids: made anew, with an empty `cpus` and without their caches",
        TWO_NODES,
        [0; 3],
        "<memory unit='GiB'>2</memory><vcpu>4</vcpu><cpu><topology sockets='1' cores='4' threads='1'/><numa>\
         <cell cpus='0-1' memory='1' unit='GiB'/><!-- kept -->\
         <cell cpus='2-3' memory='1' unit='GiB' discard='yes'>\
         <cache level='3' associativity='direct' policy='writeback'>\
         <size value='8' unit='MiB'/><line value='64' unit='B'/></cache></cell></numa></cpu>",
    ),
    (
        "a cell of less than a MiB, cut anew: more memory",
        EIGHT_NODES,
        [0; 3],
        "<memory unit='GiB'>8</memory><vcpu>4</vcpu><cpu><topology sockets='1' cores='4' threads='1'/><numa>\
         <cell cpus='0,2' memory='943' unit='k'/><cell cpus='1,3' memory='8388608' unit='k'/></numa></cpu>",
    ),
    (
        "cells that are not whole MiB, cut anew: less memory once QEMU has rounded them up",
        TWO_NODES,
        [0; 3],
        "<memory unit='GiB'>30</memory><vcpu>8</vcpu><cpu><numa><cell id='0' cpus='0-6' memory='29360129' unit='KiB'/>\
         <cell id='1' cpus='7' memory='2097153' unit='KiB'/></numa></cpu>",
    ),
    (
        "memory with a comment in it: not taken",
        ONE_NODE,
        [0; 3],
        "<memory unit='GiB'><!-- was 1 -->2</memory><vcpu>2</vcpu>",
    ),
    (
        "it floats, and no home has room beside others: bound to memory that others hold",
        TWO_NODES,
        [22, 22, 0],
        "<memory unit='GiB'>4</memory><vcpu>2</vcpu>",
    ),
    (
        "13 vCPUs that float, and one node has room for the memory: bound to its 8 hardware threads",
        TWO_NODES,
        [1, 22, 0],
        "<memory unit='MiB'>2</memory><vcpu>13</vcpu>\
         <numatune><memory mode='strict' nodeset='0'/></numatune>",
    ),
    (
        "18 vCPUs on a machine of 16 hardware threads: 9 bound to 8",
        NODE_WITHOUT_CPUS,
        [0; 3],
        "<memory unit='GiB'>8</memory><vcpu>18</vcpu>",
    ),
    (
        "told of threads, and wide: one home for all, then another one for each",
        TWO_NODES,
        [0; 3],
        "<memory unit='GiB'>28</memory><vcpu>6</vcpu><cputune>\
         <vcpupin vcpu='0' cpuset='17-21'/><vcpupin vcpu='4' cpuset='10'/></cputune>\
         <cpu><topology sockets='1' cores='3' threads='2'/></cpu>",
    ),
    (
        "sockets of a cure without threads: other homes the second time",
        SMALL_NODES,
        [0; 3],
        "<memory unit='GiB'>15</memory><vcpu>10</vcpu><numatune>\
         <memory mode='restrictive' nodeset='0-1'/>\
         <memnode cellid='0' mode='restrictive' nodeset='0'/></numatune>\
         <cpu><topology sockets='1' cores='5' threads='2'/><numa><cell id='0' cpus='0-2' memory='2' unit='GiB'/>\
         <cell id='1' cpus='3-4' memory='6554186' unit='KiB'/>\
         <cell id='2' cpus='5-7' memory='2' unit='MiB'/>\
         <cell id='3' cpus='8-9' memory='6554187' unit='KiB'/></numa></cpu>",
    ),
    (
        "a cache over virtual nodes that no sockets fit into: called curable",
        EIGHT_NODES,
        [0; 3],
        "<vcpu>8</vcpu><cpu><topology sockets='1' cores='8' threads='1'/><numa><cell id='0' cpus='0,5,7' memory='0'/>\
         <cell id='1' cpus='1,3' memory='1572864'/></numa></cpu>",
    ),
    (
        "memory beyond whole MiB, in huge pages: more than its node has",
        NODE_WITHOUT_CPUS,
        [0; 3],
        "<memory unit='KB'>46173851</memory><memoryBacking><hugepages>\
         <page size='2048' unit='KiB'/></hugepages></memoryBacking><vcpu>14</vcpu>",
    ),
    (
        "a device of memory without a node: counted twice with the cells of a cure",
        TWO_NODES,
        [0; 3],
        "<maxMemory slots='4' unit='GiB'>64</maxMemory><memory unit='GiB'>30</memory><vcpu>8</vcpu><devices>\
         <memory model='dimm'><target><size unit='GiB'>1</size></target></memory></devices>",
    ),
];

fn case((_, machine, taken, inside): &(&str, usize, [u64; 3], &str)) -> Case {
    let mut others = Occupancy::default();
    for (node, gib) in taken.iter().enumerate() {
        let held = NodeUse { vcpus: 0, memory: Bytes(gib << 30), resident: Bytes(0), ..NodeUse::default() };
        others.nodes.insert(NodeId(node as u32), held);
    }
    let text = format!("<domain type='test'>\n<name>drawn</name>{inside}<os><type>hvm</type></os>\n</domain>\n");
    Case { machine: *machine, others, text }
}

#[test]
fn what_was_wrong_once_is_right() {
    let mut all: Vec<Tried> = FOUND.iter().map(case).map(tried).collect();
    if libvirt::is_here("what_was_wrong_once_is_right: libvirt's part") {
        ask_libvirt(&mut all);
    }
    let mut told = String::new();
    for ((what, ..), tried) in FOUND.iter().zip(&all).filter(|(_, tried)| !tried.failures.is_empty()) {
        let _ = writeln!(told, "{what}: {:#?}\n{}\n{:?}", tried.failures, tried.case.text, tried.cured);
    }
    assert!(told.is_empty(), "{told}");
}
