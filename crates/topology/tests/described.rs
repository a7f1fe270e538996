//! Machines that are described: hwloc's XML against the synthetic strings that it was made from,
//! and properties.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use topology::{CpuId, Machine, read};

/// Files in `tests/golden/xml` and the strings that `lstopo` made them from.
const XML: [(&str, &str); 5] = [
    ("two-llcs-a-node", "pack:2 [numa(memory=48GiB)] l3:2(size=32MiB) core:4 pu:2"),
    ("hwloc1-two-llcs-a-node", "pack:2 [numa(memory=48GiB)] l3:2(size=32MiB) core:4 pu:2"),
    ("two-nodes-a-socket", "pack:2 numa:2(memory=16GiB) l3:1 core:2 pu:2(indexes=2*8:1*2)"),
    ("hwloc1-two-nodes-a-socket", "pack:2 numa:2(memory=16GiB) l3:1 core:2 pu:2(indexes=2*8:1*2)"),
    ("memory-only-nodes", "[numa(memory=64GiB)] pack:2 [numa(memory=8GiB)] [numa(memory=16GiB)] l2:2 core:2 pu:1"),
];

/// The CPUs of each core, in order: cores may be numbered differently.
fn cores(machine: &Machine) -> BTreeSet<Vec<CpuId>> {
    let mut cores = BTreeMap::<_, Vec<CpuId>>::new();
    for thread in &machine.threads {
        cores.entry(thread.core).or_default().push(thread.id);
    }
    cores.into_values().collect()
}

#[test]
fn hwloc_xml_and_the_string_it_was_made_from_read_the_same() {
    for (name, text) in XML {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/xml/{name}.xml"));
        let xml = read::from_hwloc_xml(&fs::read_to_string(file).expect(name), name).expect(name);
        let synthetic = read::from_synthetic(text).expect(text);
        assert_eq!(xml.nodes, synthetic.nodes, "{name}");
        assert_eq!(xml.llcs, synthetic.llcs, "{name}");
        assert_eq!(cores(&xml), cores(&synthetic), "{name}");
        let places = |machine: &Machine| -> Vec<_> {
            machine.threads.iter().map(|thread| (thread.id, thread.socket, thread.node, thread.llc)).collect()
        };
        assert_eq!(places(&xml), places(&synthetic), "{name}");
    }
}

#[test]
fn distances_of_both_formats_of_hwloc() {
    let objects = "<object type=\"Machine\"><object type=\"Package\" os_index=\"0\">
        <object type=\"NUMANode\" os_index=\"3\" local_memory=\"1024\"/><object type=\"PU\" os_index=\"0\"/></object>
        <object type=\"Package\" os_index=\"1\"><object type=\"NUMANode\" os_index=\"1\"/><object type=\"PU\" \
        os_index=\"1\"/></object></object>";
    let newer = format!(
        "<topology version=\"2.0\">{objects}<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\"><indexes>3 1 \
        </indexes><u64values>10 21 22 10 </u64values></distances2></topology>"
    );
    let machine = read::from_hwloc_xml(&newer, "newer").expect("newer");
    // Nodes in rising order: from 1 to 3 is the second row's first value, 22.
    assert_eq!(machine.distances.rows(), [[10, 22], [21, 10]]);
    assert_eq!(machine.thread(CpuId(0)).expect("CPU 0").node.0, 3);

    let older = objects.replacen(
        "<object type=\"Machine\">",
        "<object type=\"Machine\"><distances nbobjs=\"2\" latency_base=\"10\"><latency value=\"1.0\"/><latency \
        value=\"2.1\"/><latency value=\"2.2\"/><latency value=\"1.0\"/></distances>",
        1,
    );
    let machine = read::from_hwloc_xml(&format!("<topology>{older}</topology>"), "older").expect("older");
    assert_eq!(machine.distances.rows(), [[10, 22], [21, 10]]);
}

/// A synthetic string with its number of hardware threads, cores, caches and nodes.
fn synthetic() -> impl Strategy<Value = (String, [usize; 4])> {
    (1..4_usize, 1..4_usize, 1..4_usize, 1..5_usize, 1..4_usize, any::<bool>(), 0..3_usize).prop_map(
        |(sockets, nodes, caches, cores, threads, nodes_as_level, extra)| {
            let memory = " [numa(memory=2GiB)]".repeat(extra);
            let node_level =
                if nodes_as_level && extra == 0 { format!("numa:{nodes}") } else { format!("group:{nodes} [numa]") };
            let text = format!("pack:{sockets}{memory} {node_level} l3:{caches} core:{cores} pu:{threads}");
            let all = [threads, cores, caches, nodes, sockets];
            let number = |outer: usize| all[outer..].iter().product::<usize>();
            (text, [number(0), number(1), number(2), number(3) + extra * sockets])
        },
    )
}

properties::properties! {
    #![cases(200)]

    #[test]
    fn every_thread_is_in_one_core_one_cache_and_one_node((text, [threads, cores, caches, nodes]) in synthetic()) {
        let machine = read::from_synthetic(&text).expect("valid");
        prop_assert_eq!(machine.threads.len(), threads);
        prop_assert_eq!(machine.threads.iter().map(|t| t.core).collect::<BTreeSet<_>>().len(), cores);
        prop_assert_eq!(machine.threads.iter().map(|t| t.llc).collect::<BTreeSet<_>>().len(), caches);
        prop_assert_eq!(machine.llcs.len(), caches);
        prop_assert_eq!(machine.nodes.len(), nodes);
        prop_assert_eq!(machine.distances.rows().len(), nodes);
        prop_assert!(machine.distances.rows().iter().all(|row| row.len() == nodes));
        prop_assert!(machine.threads.windows(2).all(|pair| pair[0].id < pair[1].id));
        prop_assert!(machine.nodes.windows(2).all(|pair| pair[0].id < pair[1].id));
        // A node's CPUs, added up, are all CPUs; no core and no cache lies in two nodes.
        let by_node: usize = machine.nodes.iter().map(|node| machine.usable_cpus(node.id).len()).sum();
        prop_assert_eq!(by_node, threads);
        let homes: BTreeSet<_> = machine.threads.iter().map(|t| (t.core, t.llc, t.node, t.socket)).collect();
        prop_assert_eq!(homes.len(), cores);
    }

    #[test]
    fn numbering_changes_names_and_nothing_else((text, [threads, ..]) in synthetic(), seed in any::<u64>()) {
        // A permutation: multiply by a number that shares no factor with the count.
        let step = (1..=threads as u64).rev().map(|n| n + seed % 7).find(|&n| gcd(n, threads as u64) == 1).unwrap_or(1);
        let indexes: Vec<String> = (0..threads as u64).map(|n| (n * step % threads as u64).to_string()).collect();
        let renumbered = read::from_synthetic(&format!("{text}(indexes={})", indexes.join(","))).expect("valid");
        let plain = read::from_synthetic(&text).expect("valid");
        for (old, new) in indexes.iter().enumerate() {
            let new = CpuId(new.parse().expect("a number"));
            let (old, new) = (plain.thread(CpuId(old as u32)).expect("old"), renumbered.thread(new).expect("new"));
            prop_assert_eq!((old.core, old.llc, old.node, old.socket), (new.core, new.llc, new.node, new.socket));
        }
    }

    #[test]
    fn any_text_is_read_or_refused_and_never_more(text in "\\PC{0,60}") {
        let _ = read::from_synthetic(&text);
        let _ = read::from_toml(&text, "file.toml");
        let _ = read::from_hwloc_xml(&text, "file.xml");
        let _ = read::from_archive(text.as_bytes(), "file.tar.gz");
    }

    #[test]
    fn words_of_the_grammar_in_any_order_are_read_or_refused(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..8)
    ) {
        if let Ok(machine) = read::from_synthetic(&words.join(" ")) {
            prop_assert!(!machine.threads.is_empty());
            prop_assert!(!machine.nodes.is_empty());
        }
    }

    #[test]
    fn json_round_trips((text, _) in synthetic()) {
        let machine = read::from_synthetic(&text).expect("valid");
        let json = serde_json::to_string(&machine).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Machine>(&json).expect("a machine"), machine);
    }
}

const WORDS: [&str; 14] = [
    "pack:2",
    "numa:2",
    "[numa]",
    "[numa(memory=3GB)]",
    "l3:2",
    "l2:1(size=1MiB)",
    "core:2",
    "pu:2",
    "pu:4(indexes=2*2:1*2)",
    "die:2",
    "group:3",
    "[",
    "l1i:1",
    "core:2(indexes=1,0)",
];

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
