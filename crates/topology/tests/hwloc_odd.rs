//! hwloc's XML as containers, old programs and hybrids make it: documents written by hand in
//! hwloc's format.

use topology::{Bytes, CpuSet, Machine, MemoryKind, SocketId, read};

fn machine(objects: &str, after: &str) -> Machine {
    let text = format!(
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\">{objects}</object>{after}</topology>"
    );
    read::from_xml(&text, "odd.xml").expect(&text)
}

fn node(id: u32, cpuset: &str) -> String {
    format!("<object type=\"NUMANode\" os_index=\"{id}\" cpuset=\"{cpuset}\" local_memory=\"1073741824\"/>")
}

/// Cores of one hardware thread.
fn cores(cpus: std::ops::Range<u32>) -> String {
    let core = |cpu: u32| {
        format!("<object type=\"Core\" os_index=\"{cpu}\"><object type=\"PU\" os_index=\"{cpu}\"/></object>")
    };
    cpus.map(core).collect()
}

fn package(id: u32, inside: &str) -> String {
    format!("<object type=\"Package\" os_index=\"{id}\">{inside}</object>")
}

fn cpus(machine: &Machine, belong: impl Fn(&topology::HardwareThread) -> bool) -> String {
    machine.threads.iter().filter(|thread| belong(thread)).map(|thread| thread.id).collect::<CpuSet>().to_string()
}

fn says(machine: &Machine, words: &str) -> bool {
    machine.notes.iter().any(|note| note.contains(words))
}

/// A container may use memory of node 1 only, and hwloc leaves node 0 out, but not the CPUs of its
/// socket.
#[test]
fn cpus_without_a_node_are_not_anothers() {
    let machine = machine(&(package(0, &cores(0..2)) + &package(1, &(node(1, "0xc") + &cores(2..4)))), "");
    assert_eq!(cpus(&machine, |_| true), "2-3");
    assert!(says(&machine, "CPUs 0-1 are on no NUMA node that it has"), "{:?}", machine.notes);
}

#[test]
fn a_nodes_own_cpus_count_more_than_its_place() {
    // Both nodes hang on the machine; each says which CPUs are its own.
    let machine = machine(&(node(0, "0x3") + &node(1, "0xc") + &package(0, &cores(0..4))), "");
    assert_eq!(cpus(&machine, |thread| thread.node == topology::NodeId(1)), "2-3");
}

#[test]
fn where_no_thread_is_on_a_node_it_is_no_machine() {
    let text = format!(
        "<topology><object type=\"Machine\">{}{}{}</object></topology>",
        node(4, "0x30"),
        node(5, "0xc0"),
        cores(0..2)
    );
    let error = read::from_xml(&text, "odd.xml").expect_err("no CPU left").to_string();
    assert!(error.contains("odd.xml") && error.contains("on a NUMA node that it has"), "{error}");
}

#[test]
fn missing_distances_are_said() {
    let two = package(0, &(node(0, "0x3") + &cores(0..2))) + &package(1, &(node(1, "0xc") + &cores(2..4)));
    assert!(says(&machine(&two, ""), "No complete and valid table of distances"));
    let table = "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\"><indexes length=\"3\">0 1</indexes><u64values \
        length=\"11\">10 21 21 10</u64values></distances2>";
    let whole = machine(&two, table);
    assert_eq!((whole.distances.rows(), whole.notes.len()), ([[10, 21], [21, 10]].map(Vec::from).as_slice(), 0));
}

#[test]
fn kinds_of_core_have_their_capacity() {
    let one = package(0, &(node(0, "0xf") + &cores(0..4)));
    let kind = |cpus: &str, infos: &[(&str, &str)]| {
        let infos: String =
            infos.iter().map(|(name, value)| format!("<info name=\"{name}\" value=\"{value}\"/>")).collect();
        format!("<cpukind cpuset=\"{cpus}\" forced_efficiency=\"0\">{infos}</cpukind>")
    };
    let capacities =
        |after: String| machine(&one, &after).threads.iter().map(|thread| thread.capacity).collect::<Vec<_>>();
    let linux = kind("0x3", &[("LinuxCapacity", "718")]) + &kind("0xc", &[("LinuxCapacity", "997")]);
    // 718 / 997 x 1024 = 737.4, rounded up.
    assert_eq!(capacities(linux), [Some(738), Some(738), Some(1024), Some(1024)]);
    let clocks = kind("0x3", &[("CoreType", "IntelCore"), ("FrequencyMaxMHz", "4000")])
        + &kind("0xc", &[("CoreType", "IntelAtom"), ("FrequencyMaxMHz", "3000")]);
    assert_eq!(capacities(clocks), [Some(1024), Some(1024), Some(768), Some(768)]);
    let names = kind("0xc", &[("CoreType", "IntelAtom")]) + &kind("0x3", &[("CoreType", "IntelCore")]);
    assert_eq!(capacities(names), [Some(1024), Some(1024), Some(512), Some(512)]);
    assert_eq!(capacities(kind("0xf", &[("FrequencyMaxMHz", "4000")])), [None; 4]);
}

#[test]
fn sockets_that_are_missing_or_named_alike_stay_apart() {
    let partial = machine(&(node(0, "0xf") + &package(0, &cores(0..2)) + &cores(2..4)), "");
    assert_eq!(cpus(&partial, |thread| thread.socket == SocketId(1)), "2-3");
    assert!(says(&partial, "CPUs 2-3 are in no socket that is given"), "{:?}", partial.notes);
    let alike = machine(&(node(0, "0xf") + &package(0, &cores(0..2)) + &package(0, &cores(2..4))), "");
    assert_eq!(cpus(&alike, |thread| thread.socket == SocketId(1)), "2-3");
}

#[test]
fn memory_of_a_gpu_and_memory_that_is_not_given() {
    let gpu = node(1, "0x0").replace(" local", " subtype=\"GPUMemory\" local");
    let machine_with_gpu = machine(&(node(0, "0x3") + &gpu + &package(0, &cores(0..2))), "");
    let kinds: Vec<_> = machine_with_gpu.nodes.iter().map(|node| (node.memory, node.memory_kind)).collect();
    assert_eq!(kinds, [(Bytes(1 << 30), MemoryKind::Ram), (Bytes(0), MemoryKind::Gpu { size: Bytes(1 << 30) })]);
    let unknown = machine(
        &node(0, "0x3").replace("local_memory=\"1073741824\"", "").replace("/>", &format!("/>{}", cores(0..2))),
        "",
    );
    assert!(!unknown.memory_is_known());
    assert!(says(&unknown, "does not say how much memory"), "{:?}", unknown.notes);
}

fn distances(values: &str) -> String {
    format!(
        "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" indexing=\"os\"><indexes>0 \
        1</indexes><u64values>{values}</u64values></distances2>"
    )
}

/// hwloc keeps several tables, some made by users and some of broken firmware.
#[test]
fn the_first_plausible_table_of_distances_is_taken() {
    let objects = package(0, &(node(0, "0x3") + &cores(0..2))) + &package(1, &(node(1, "0xc") + &cores(2..4)));
    // Under 10; the other node nearer than the own one; as ACPI has it.
    let (small, crossed, right) = (distances("1 2 2 1"), distances("17 10 10 17"), distances("10 21 21 10"));
    let read = machine(&objects, &(small.clone() + &crossed + &right));
    assert_eq!(read.distances.rows(), [[10, 21], [21, 10]]);
    let read = machine(&objects, &(small + &crossed));
    assert_eq!(read.distances.rows(), [[10, 20], [20, 10]]);
    assert!(says(&read, "No complete and valid table of distances"), "{:?}", read.notes);
}
