//! Hosts as `/sys` and `/proc` show them on machines that few have: each tree is written by hand in
//! the format of the kernel.

use std::path::Path;
use tempfile::TempDir;
use topology::{Bytes, CpuId, CpuSet, Machine, MemoryKind, NodeId, SocketId, read};

/// Files below a directory; what `edit` adds comes over what [`Host::new`] wrote.
struct Host(TempDir);

impl Host {
    /// `nodes` of two CPUs and 4 GiB each, one socket a node, no caches.
    fn new(nodes: u32) -> Self {
        let host = Self(tempfile::tempdir().expect("a directory"));
        let cpus = nodes * 2;
        host.write("sys/devices/system/cpu/online", &format!("0-{}", cpus - 1));
        for node in 0..nodes {
            let directory = format!("sys/devices/system/node/node{node}");
            host.write(&format!("{directory}/cpulist"), &format!("{}-{}", node * 2, node * 2 + 1));
            host.memory(node, 4);
            let row: Vec<String> = (0..nodes).map(|to| if to == node { "10" } else { "21" }.to_owned()).collect();
            host.write(&format!("{directory}/distance"), &row.join(" "));
            for cpu in [node * 2, node * 2 + 1] {
                host.cpu(cpu, "physical_package_id", &node.to_string());
                host.cpu(cpu, "core_siblings_list", &format!("{}-{}", node * 2, node * 2 + 1));
                host.cpu(cpu, "thread_siblings_list", &cpu.to_string());
            }
        }
        host
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.0.path().join(path);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("created");
        std::fs::write(file, format!("{text}\n")).expect("written");
    }

    fn cpu(&self, cpu: u32, file: &str, text: &str) {
        self.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}"), text);
    }

    fn memory(&self, node: u32, gib: u64) {
        let text = format!("Node {node} MemTotal: {} kB\nNode {node} MemFree: {} kB", gib << 20, gib << 19);
        self.write(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.0.path().join(path)).expect(path);
    }

    /// The machine, which must be the same from a capture of it.
    fn read(&self) -> Machine {
        let machine = read::from_root(self.0.path()).expect("a machine");
        let capture = read::capture(self.0.path()).expect("a capture");
        assert_eq!(read::from_archive(&capture, &machine.name).expect("captured"), machine);
        machine
    }
}

fn cpus(machine: &Machine, belong: impl Fn(&topology::HardwareThread) -> bool) -> String {
    machine.threads.iter().filter(|thread| belong(thread)).map(|thread| thread.id).collect::<CpuSet>().to_string()
}

fn says(machine: &Machine, words: &str) -> bool {
    machine.notes.iter().any(|note| note.contains(words))
}

/// POWER9 with two V100: their memory is nodes 254 and 255, which NVIDIA's driver says in `/proc`.
#[test]
fn memory_of_gpus_is_not_ram() {
    let host = Host::new(2);
    for (node, gpu) in [(255, "0004:04:00.0"), (254, "0035:03:00.0")] {
        host.write(&format!("sys/devices/system/node/node{node}/cpulist"), "");
        host.memory(node, 15);
        host.write(
            &format!("proc/driver/nvidia/gpus/{gpu}/numa_status"),
            &format!("Node:      {node}\nStatus:    online"),
        );
    }
    // The memory of a GPU that is no node, as on x86.
    host.write("proc/driver/nvidia/gpus/0036:03:00.0/numa_status", "Node:      -1\nStatus:    disabled");
    for node in [0, 1, 254, 255] {
        host.write(&format!("sys/devices/system/node/node{node}/distance"), "10 40 80 80");
    }
    host.write("proc/cpuinfo", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800MHz");
    let machine = host.read();
    let gpu = machine.node(NodeId(255)).expect("it is listed");
    assert_eq!((gpu.memory, gpu.free), (Bytes(0), None));
    assert_eq!(gpu.memory_kind, MemoryKind::Gpu { size: Bytes(15 << 30) });
    assert_eq!(
        machine.node(NodeId(1)).map(|node| (node.memory, node.memory_kind)),
        Some((Bytes(4 << 30), MemoryKind::Ram))
    );
    assert!(says(&machine, "Nodes 254-255 are memory of GPUs"), "{:?}", machine.notes);
    assert_eq!(machine.cpu_model.as_deref(), Some("POWER9, altivec supported"));
}

/// Grace Hopper: one socket with LPDDR, the GPU's HBM as node 1, and nodes for MIG that have
/// nothing.
#[test]
fn a_grace_superchip_has_one_node_of_ram() {
    let host = Host::new(1);
    for node in 1..9 {
        host.write(&format!("sys/devices/system/node/node{node}/cpulist"), "");
        host.memory(node, if node == 1 { 96 } else { 0 });
    }
    host.write("proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:      1\nStatus:    online");
    host.write("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f");
    let machine = host.read();
    let ram: Vec<u32> = machine.nodes.iter().filter(|node| node.memory > Bytes(0)).map(|node| node.id.0).collect();
    assert_eq!(ram, [0]);
    assert_eq!(machine.cpu_model.as_deref(), Some("ARM Neoverse-V2 (implementer 0x41, part 0xd4f)"));
}

#[test]
fn s390_has_neither_nodes_nor_its_bogomips_as_a_name() {
    let host = Host::new(1);
    std::fs::remove_dir_all(host.0.path().join("sys/devices/system/node")).expect("removed");
    let cpuinfo = "vendor_id       : IBM/S390\n# processors    : 2\nbogomips per cpu: 20325.00\nprocessor 0: version = \
        00,  identification = 0A1B2C,  machine = 2964";
    host.write("proc/cpuinfo", cpuinfo);
    host.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB");
    let machine = host.read();
    assert_eq!(machine.cpu_model.as_deref(), Some("IBM/S390 machine 2964"));
    assert_eq!(machine.nodes[0].memory, Bytes(8 << 30));
    // The identification is the serial number.
    let capture = read::capture(host.0.path()).expect("a capture");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(capture.as_slice()), &mut text).expect("text");
    assert!(text.contains("2964") && !text.contains("0A1B2C"));
}

#[test]
fn loongarch_and_risc_v_say_what_they_are() {
    let host = Host::new(2);
    host.write(
        "proc/cpuinfo",
        "system type\t: generic-loongson-machine\nprocessor\t: 0\nModel Name\t: Loongson-3C6000/S",
    );
    assert_eq!(host.read().cpu_model.as_deref(), Some("Loongson-3C6000/S"));
    host.write(
        "proc/cpuinfo",
        "processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdcv\nmmu\t\t: sv39\nmvendorid\t: 0x5b7\nmarchid\t\t: 0x0",
    );
    assert_eq!(host.read().cpu_model.as_deref(), Some("RISC-V vendor 0x5b7, architecture 0x0"));
}

/// Captures of the years before `Cpus_allowed_list` name a cpuset, whose files lie below its mount
/// point.
#[test]
fn the_cpuset_of_an_old_capture_is_read() {
    let cases = [
        ("none /dev/cpuset cpuset rw 0 0", "dev/cpuset/jobs/12", "cpus", "mems"),
        ("none /dev/cpuset cgroup rw,relatime,cpuset,noprefix 0 0", "dev/cpuset/jobs/12", "cpus", "mems"),
        (
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0",
            "sys/fs/cgroup/cpuset/jobs/12",
            "cpuset.cpus",
            "cpuset.mems",
        ),
        (
            "none /cgroup/unified cgroup2 rw 0 0",
            "cgroup/unified/jobs/12",
            "cpuset.cpus.effective",
            "cpuset.mems.effective",
        ),
    ];
    for (mount, directory, cpus_file, nodes_file) in cases {
        let host = Host::new(2);
        host.write("proc/self/cpuset", "/jobs/12");
        host.write("proc/mounts", &format!("sysfs /sys sysfs rw 0 0\nserver:/secret /home nfs rw 0 0\n{mount}"));
        host.write(&format!("{directory}/{cpus_file}"), "1,2-3");
        host.write(&format!("{directory}/{nodes_file}"), "1");
        let machine = host.read();
        assert_eq!(cpus(&machine, |thread| thread.allowed), "1-3", "{mount}");
        assert_eq!(machine.nodes.iter().map(|node| node.allowed).collect::<Vec<_>>(), [false, true], "{mount}");
    }
    let host = Host::new(2);
    host.write("proc/self/cpuset", "/jobs/12");
    let machine = host.read();
    assert_eq!(cpus(&machine, |thread| thread.allowed), "0-3");
    assert!(says(&machine, "in the cpuset /jobs/12, and the capture does not say"), "{:?}", machine.notes);
}

#[test]
fn entries_of_nodes_name_their_cpus_where_lists_are_missing() {
    let host = Host::new(2);
    for node in 0..2 {
        let directory = format!("sys/devices/system/node/node{node}");
        host.remove(&format!("{directory}/cpulist"));
        // Node 0 has CPUs 1 and 3, node 1 has 0 and 2.
        for cpu in [1 - node, 3 - node] {
            host.write(&format!("{directory}/cpu{cpu}/online"), "1");
        }
    }
    let of_node = |machine: &Machine, node| cpus(machine, |thread| thread.node == NodeId(node));
    let machine = host.read();
    assert_eq!([of_node(&machine, 0), of_node(&machine, 1)], ["1,3", "0,2"]);
    // Some gatherers leave out the CPUs' own directories.
    std::fs::remove_dir_all(host.0.path().join("sys/devices/system/cpu")).expect("removed");
    let machine = host.read();
    assert_eq!([of_node(&machine, 0), of_node(&machine, 1)], ["1,3", "0,2"]);
}

/// Node 0 is offline or left out: its CPUs are not node 1's, and the machine's memory is not all of
/// node 1.
#[test]
fn cpus_of_a_node_that_is_not_listed_are_not_used() {
    let host = Host::new(2);
    std::fs::remove_dir_all(host.0.path().join("sys/devices/system/node/node0")).expect("removed");
    for cpu in 0..4 {
        host.write(&format!("sys/devices/system/cpu/cpu{cpu}/node{}/online", cpu / 2), "1");
    }
    host.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB");
    let machine = host.read();
    assert_eq!(cpus(&machine, |_| true), "2-3");
    assert_eq!(machine.nodes[0].memory, Bytes(4 << 30));
    assert!(says(&machine, "CPUs 0-1 are on no node that Linux lists: they are not used"), "{:?}", machine.notes);
}

#[test]
fn memory_that_no_file_tells_is_unknown() {
    let host = Host::new(2);
    host.remove("sys/devices/system/node/node1/meminfo");
    // In total there are 8 GiB; what is on node 1 may be the rest, or less.
    host.write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB");
    let machine = host.read();
    let kinds: Vec<_> = machine.nodes.iter().map(|node| (node.memory, node.memory_kind)).collect();
    assert_eq!(kinds, [(Bytes(4 << 30), MemoryKind::Ram), (Bytes(0), MemoryKind::Unknown)]);
    assert!(machine.memory_is_known());
    assert!(says(&machine, "Memory of nodes 1 is unknown"), "{:?}", machine.notes);
    host.remove("sys/devices/system/node/node0/meminfo");
    assert!(!host.read().memory_is_known());
}

/// A VM that grew by a balloon: `/proc/meminfo` knows, the node's own file does not. Whoever looks
/// again must see the same.
#[test]
fn free_memory_is_the_same_whoever_looks() {
    let host = Host::new(1);
    host.write("proc/meminfo", "MemTotal: 20971520 kB\nMemFree: 1 kB\nMemAvailable: 16777216 kB");
    let machine = host.read();
    assert_eq!((machine.nodes[0].memory, machine.nodes[0].free), (Bytes(20 << 30), Some(Bytes(16 << 30))));
    let again = |host: &Host, machine: &Machine| read::free_memory(host.0.path(), machine);
    assert_eq!(again(&host, &machine)[&NodeId(0)], Bytes(16 << 30));
    // Two nodes: 2 GiB free and 1 GiB of page cache and slabs on the second; nothing is known of
    // the first.
    let host = Host::new(2);
    host.remove("sys/devices/system/node/node0/meminfo");
    let meminfo = "Node 1 MemTotal: 8388608 kB\nNode 1 MemFree: 2097152 kB\nNode 1 Active(file): 524288 kB\nNode 1 \
        Inactive(file): 262144 kB\nNode 1 SReclaimable: 262144 kB";
    host.write("sys/devices/system/node/node1/meminfo", meminfo);
    let machine = host.read();
    assert_eq!(machine.nodes[1].free, Some(Bytes(3 << 30)));
    assert_eq!(again(&host, &machine), [(NodeId(1), Bytes(3 << 30))].into());
}

/// A hybrid processor in a capture without its PMUs: two strong cores (one of them favoured), two
/// weak ones.
#[test]
fn cores_of_a_hybrid_are_told_apart_by_their_performance() {
    let host = Host::new(2);
    host.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel name\t: a hybrid");
    for (cpu, performance) in [(0, "64"), (1, "67"), (2, "39"), (3, "39")] {
        host.write(&format!("sys/devices/system/cpu/cpu{cpu}/acpi_cppc/highest_perf"), performance);
    }
    let capacities = |machine: &Machine| machine.threads.iter().map(|thread| thread.capacity).collect::<Vec<_>>();
    // 39 / 67 x 1024 = 596.06, rounded up.
    assert_eq!(capacities(&host.read()), [Some(1024), Some(1024), Some(597), Some(597)]);
    assert!(says(&host.read(), "CPUs 2-3 are the weaker ones"));
    // On AMD the same figures are ranks of cores of one kind; and this PMU is only there where all
    // cores are alike.
    host.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\nmodel name\t: with preferred cores");
    assert_eq!(capacities(&host.read()), [None; 4]);
    host.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel name\t: not a hybrid");
    host.write("sys/devices/cpu/type", "4");
    assert_eq!(capacities(&host.read()), [None; 4]);
}

#[test]
fn sockets_are_told_apart_by_their_cpus_and_count_from_zero() {
    let host = Host::new(2);
    // arm with ACPI: the offset of the socket's entry in the firmware's table.
    for (cpu, number) in [(0, "983040"), (1, "983040"), (2, "983041"), (3, "983041")] {
        host.cpu(cpu, "physical_package_id", number);
    }
    let machine = host.read();
    assert_eq!(cpus(&machine, |thread| thread.socket == SocketId(1)), "2-3");
    assert!(says(&machine, "numbered up to 983041 by the firmware"), "{:?}", machine.notes);
    // Itanium: every socket calls itself 0.
    (0..4).for_each(|cpu| host.cpu(cpu, "physical_package_id", "0"));
    let machine = host.read();
    assert_eq!(cpus(&machine, |thread| thread.socket == SocketId(1)), "2-3");
    assert!(says(&machine, "no number of its own for the socket of CPU 2"), "{:?}", machine.notes);
}

#[test]
fn a_cache_that_lists_nobody_is_its_cores() {
    let host = Host::new(1);
    for cpu in 0..2 {
        host.cpu(cpu, "thread_siblings_list", "0-1");
        let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index0");
        host.write(&format!("{cache}/level"), "3");
        host.write(&format!("{cache}/size"), "9216K");
        host.write(&format!("{cache}/shared_cpu_map"), "00000000");
    }
    let machine = host.read();
    assert_eq!(
        (machine.llcs.len(), machine.thread(CpuId(1)).and_then(|thread| thread.llc)),
        (1, machine.threads[0].llc)
    );
}

/// Some gatherers pad each file with zeros to the size that `/sys` says it has.
#[test]
fn files_of_an_archive_may_be_padded_with_zeros() {
    let host = Host::new(2);
    let expected = host.read();
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |path: &Path| {
        let mut bytes = std::fs::read(path).expect("a file");
        bytes.resize(4096, 0);
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        let name = path.strip_prefix(host.0.path()).expect("below it");
        archive.append_data(&mut header, Path::new("host").join(name), bytes.as_slice()).expect("added");
    };
    let mut directories = vec![host.0.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { directories.push(path) } else { add(&path) }
        }
    }
    let archive = archive.into_inner().expect("an archive");
    assert_eq!(read::from_archive(&archive, &expected.name).expect("a machine"), expected);
}

/// hwloc's tests hold a tree in which every CPU has the list of CPU 0's cache, and the right mask.
#[test]
fn a_cache_that_does_not_list_its_own_cpu_is_told_by_its_mask() {
    let host = Host::new(2);
    for cpu in 0..4 {
        let cache = format!("sys/devices/system/cpu/cpu{cpu}/cache/index3");
        host.write(&format!("{cache}/level"), "3");
        host.write(&format!("{cache}/shared_cpu_list"), "0-1");
        host.write(&format!("{cache}/shared_cpu_map"), if cpu < 2 { "00000003" } else { "0000000c" });
    }
    let machine = host.read();
    assert_eq!(machine.llcs.len(), 2);
    assert_eq!(cpus(&machine, |thread| thread.llc == Some(machine.llcs[1].id)), "2-3");
}

#[test]
fn isolated_cpus_are_left_out_and_can_be_bound_to() {
    let host = Host::new(2);
    host.write("sys/devices/system/cpu/isolated", "1-2");
    host.write("sys/devices/system/cpu/nohz_full", "2");
    // What isolated partitions of cpusets have, the kernel says apart (since 6.7).
    host.write("sys/fs/cgroup/cpuset.cpus.isolated", "3");
    let machine = host.read();
    assert_eq!((machine.isolated.to_string(), machine.nohz_full.to_string()), ("1-3".to_owned(), "2".to_owned()));
    let node = |id| machine.usable_cpus(NodeId(id)).to_string();
    assert_eq!((node(0), node(1), machine.bindable_cpus(NodeId(1)).to_string()), ("0".into(), "".into(), "2-3".into()));
    // None: an empty line, and what a kernel without nohz_full= prints.
    host.write("sys/devices/system/cpu/isolated", "");
    host.write("sys/devices/system/cpu/nohz_full", "  (null)");
    host.remove("sys/fs/cgroup/cpuset.cpus.isolated");
    assert!(host.read().isolated.is_empty() && host.read().nohz_full.is_empty());
    host.write("sys/devices/system/cpu/isolated", "none");
    let error = read::from_root(host.0.path()).expect_err("no list").to_string();
    assert!(error.contains("cpu/isolated") && error.contains("0-3,8"), "{error}");
}

#[test]
fn who_may_use_isolated_cpus_only_has_those() {
    let host = Host::new(2);
    host.write("sys/devices/system/cpu/isolated", "2-3");
    host.write("proc/self/status", "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1");
    let machine = host.read();
    assert_eq!(machine.usable_cpus(NodeId(1)).to_string(), "2-3");
    assert!(machine.notes.iter().any(|note| note.contains("CPUs 2-3 are isolated")), "{:?}", machine.notes);
}

/// The kernel starts every process on the other CPUs alone (seen under 6.1 with isolcpus=2-3).
#[test]
fn isolated_cpus_are_denied_to_nobody_by_the_affinity_that_all_processes_have() {
    let host = Host::new(2);
    host.write("sys/devices/system/cpu/isolated", "2");
    host.write("proc/self/status", "Cpus_allowed_list:\t0-1,3\nMems_allowed_list:\t0-1");
    let machine = host.read();
    assert_eq!(machine.isolated_cpus().to_string(), "2");
    assert_eq!(machine.bindable_cpus(NodeId(1)).to_string(), "2-3");
    // Somebody who may use fewer of the others was confined.
    host.write("proc/self/status", "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0-1");
    assert!(host.read().isolated_cpus().is_empty());
}

#[test]
fn sockets_that_are_one_node_are_said() {
    let says = |machine: &Machine| machine.node_of_several_sockets() == Some((NodeId(0), 2));
    let host = Host::new(1);
    host.write("sys/devices/system/cpu/online", "0-3");
    host.write("sys/devices/system/node/node0/cpulist", "0-3");
    for cpu in 0..4 {
        host.cpu(cpu, "physical_package_id", &(cpu / 2).to_string());
        host.cpu(cpu, "core_siblings_list", if cpu < 2 { "0-1" } else { "2-3" });
        host.cpu(cpu, "thread_siblings_list", &cpu.to_string());
    }
    assert!(says(&host.read()), "{:?}", host.read().notes);
    assert!(!says(&Host::new(2).read()));
    // A VM with a socket for each vCPU.
    assert!(!says(&read::from_synthetic("pack:4 core:1 pu:1").expect("a machine")));
    assert!(says(&read::from_synthetic("pack:2 core:2 pu:1").expect("a machine")));
}

#[test]
fn described_machines_state_isolated_cpus() {
    let text = |more: &str| format!("sockets = 1\ncores_per_llc = 4\nmemory_per_node = \"4 GiB\"\n{more}\n");
    let machine = read::from_toml(&text("isolated_cpus = \"1,3\""), "m.toml").expect("a machine");
    assert_eq!(machine.usable_cpus(NodeId(0)).to_string(), "0,2");
    for wrong in ["1-4", "0-3", "all"] {
        let error = read::from_toml(&text(&format!("isolated_cpus = \"{wrong}\"")), "m.toml").expect_err(wrong);
        let error = error.to_string();
        assert!(error.contains("isolated_cpus") && error.contains("some of its CPUs 0-3"), "{error}");
    }
    let error = read::from_synthetic("core:4 pu:1(isolated_cpus=9)").expect_err("no such CPU").to_string();
    assert!(error.contains("isolated_cpus=9") && error.contains("0-3"), "{error}");
    assert!(read::from_synthetic("core:4(isolated_cpus=1) pu:1").is_err());
}
