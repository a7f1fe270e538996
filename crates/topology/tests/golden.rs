//! Captured machines, odd ones among them: what is read of each is compared with a snapshot that a
//! person has read.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use topology::{Id, IdSet, Machine, read};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn machine(name: &str) -> Machine {
    let archive = fs::read(golden().join(format!("{name}.tar.gz"))).expect(name);
    read::from_archive(&archive, name).expect(name)
}

fn or_none<T: Id>(set: &IdSet<T>) -> String {
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

/// The machine in lines that a person can check.
fn described(machine: &Machine) -> String {
    let mut text = format!("{} | {}\n", machine.name, machine.cpu_model.as_deref().unwrap_or("CPU model unknown"));
    for node in &machine.nodes {
        let cpus: topology::CpuSet = machine.threads.iter().filter(|t| t.node == node.id).map(|t| t.id).collect();
        let free = node.free.map_or_else(|| "?".to_owned(), |free| free.0.to_string());
        let _ = write!(text, "node {}: CPUs {}; memory {}, free {free}", node.id, or_none(&cpus), node.memory.0);
        for pool in node.huge_pages.iter().filter(|pool| pool.total > 0) {
            let _ = write!(text, "; {} x {}, {} free", pool.total, pool.page_size, pool.free);
        }
        text.push_str(if node.allowed { "\n" } else { "; not allowed\n" });
    }
    for llc in &machine.llcs {
        let cpus: topology::CpuSet = machine.threads.iter().filter(|t| t.llc == Some(llc.id)).map(|t| t.id).collect();
        let size = llc.size.map_or_else(|| "?".to_owned(), |size| size.to_string());
        let _ = writeln!(text, "LLC {}: L{} {size}, CPUs {cpus}", llc.id, llc.level);
    }
    for thread in &machine.threads {
        let capacity = thread.capacity.map(|capacity| format!(" capacity {capacity}")).unwrap_or_default();
        let online = if thread.online { "" } else { " offline" };
        let allowed = if thread.allowed { "" } else { " not allowed" };
        let _ = writeln!(
            text,
            "CPU {}: socket {} core {}{capacity}{online}{allowed}",
            thread.id, thread.socket, thread.core
        );
    }
    for (node, row) in machine.distances.nodes().iter().zip(machine.distances.rows()) {
        let _ = writeln!(text, "distances of {node}: {row:?}");
    }
    for note in &machine.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

macro_rules! golden {
    ($($test:ident: $name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];
        $(
            #[test]
            fn $test() {
                insta::assert_snapshot!($name, described(&machine($name)));
            }
        )*
    };
}

golden! {
    ballooned_one_node: "ballooned-one-node",
    cpuless_and_memory_only: "cpuless-and-memory-only",
    offline_by_maxcpus: "offline-by-maxcpus",
    smt_off_by_nosmt: "smt-off-by-nosmt",
    smt_partly_off: "smt-partly-off",
    snc2_llc_over_two_nodes: "snc2-llc-over-two-nodes",
    nps4_two_ccx_a_node: "nps4-two-ccx-a-node",
    eight_sockets: "eight-sockets",
    cgroup_allows_part: "cgroup-allows-part",
    sparse_node_ids: "sparse-node-ids",
    no_node_directory: "no-node-directory",
    arm_big_little: "arm-big-little",
    x86_hybrid: "x86-hybrid",
}

#[test]
fn every_golden_machine_has_a_test_and_is_small() {
    const LARGEST: u64 = 100 << 10;
    for entry in fs::read_dir(golden()).expect("golden").filter_map(Result::ok) {
        let file = entry.file_name().into_string().expect("a name");
        if let Some(name) = file.strip_suffix(".tar.gz") {
            assert!(NAMES.contains(&name), "{name} is not tested");
            assert!(entry.metadata().expect(name).len() < LARGEST, "{name}");
        }
    }
}

/// Unpacks an archive's files below a directory.
fn unpack(name: &str, directory: &Path) {
    let archive = fs::File::open(golden().join(format!("{name}.tar.gz"))).expect(name);
    tar::Archive::new(flate2::read::GzDecoder::new(archive)).unpack(directory).expect(name);
}

#[test]
fn a_capture_of_an_unpacked_capture_reads_the_same() {
    for name in NAMES {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().join(name);
        unpack(name, &root);
        let expected = machine(name);
        assert_eq!(read::from_root(&root).expect(name), expected, "{name} as a directory");
        let again = read::capture(&root).expect(name);
        assert_eq!(read::from_archive(&again, name).expect(name), expected, "{name} captured again");
    }
}

#[test]
fn a_sys_tree_alone_is_enough() {
    let directory = tempfile::tempdir().expect("a directory");
    unpack("eight-sockets", directory.path());
    let whole = machine("eight-sockets");
    let sys = read::from_root(&directory.path().join("sys")).expect("sys");
    assert_eq!(sys.threads, whole.threads);
    assert_eq!(sys.nodes, whole.nodes);
    assert_eq!(sys.cpu_model, None);
}

#[test]
fn this_host_reads_and_replays() {
    let live = read::live().expect("this host");
    let replayed =
        read::from_archive(&read::capture(Path::new("/")).expect("a capture"), &live.name).expect("replayed");
    assert_eq!(replayed.threads, live.threads);
    assert_eq!(replayed.llcs, live.llcs);
    assert_eq!(replayed.node_ids(), live.node_ids());
    assert_eq!(replayed.distances, live.distances);
}

#[test]
fn a_directory_without_a_machine_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = read::from_root(directory.path()).expect_err("empty").to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
    assert!(error.contains("sys/devices/system/cpu"), "{error}");
}

#[test]
fn a_file_that_the_kernel_cannot_have_written_is_named() {
    let cases = [
        ("sys/devices/system/cpu/online", "0-x", "`0-x`"),
        ("sys/devices/system/cpu/online", "0-4000000000", "4000000000"),
        ("sys/devices/system/node/node1/cpulist", "-", "node1/cpulist"),
        ("sys/devices/system/node/node1/distance", "10 far", "10 far"),
        ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: much kB", "much"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "first", "physical_package_id"),
    ];
    for (file, text, named) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        unpack("offline-by-maxcpus", directory.path());
        fs::write(directory.path().join(file), text).expect(file);
        let error = read::from_root(directory.path()).expect_err(file).to_string();
        assert!(error.contains(file) && error.contains(named) && error.contains("expected"), "{error}");
    }
}
