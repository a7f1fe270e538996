//! The same machines as `lstopo` (package hwloc-nox) sees them: its XML is read and compared with
//! what homenode makes of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use topology::{Bytes, CpuId, LlcId, Machine, NodeId, SocketId, read};

/// lstopo's XML of its `arguments`; `None`, with a line that says so, where there is no lstopo.
fn lstopo(test: &str, arguments: &[&str]) -> Option<Result<String, String>> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("machine.xml");
    let output = Command::new("lstopo").args(arguments).args(["--of", "xml"]).arg(&file).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED {test}: lstopo is not installed (package hwloc-nox)");
        return None;
    };
    let failed = |_| String::from_utf8_lossy(&output.stderr).into_owned();
    Some(std::fs::read_to_string(&file).map_err(failed))
}

/// What does not depend on how cores and caches are numbered.
#[derive(Debug, PartialEq)]
struct Shape {
    cores: BTreeSet<Vec<CpuId>>,
    caches: BTreeSet<(Vec<CpuId>, u8, Option<Bytes>)>,
    places: Vec<(CpuId, SocketId, NodeId)>,
    distances: Vec<Vec<u32>>,
}

fn shape(machine: &Machine) -> Shape {
    let mut cores = BTreeMap::<_, Vec<CpuId>>::new();
    let mut caches = BTreeMap::<LlcId, Vec<CpuId>>::new();
    let mut places = Vec::new();
    for thread in machine.threads.iter().filter(|thread| thread.online && thread.allowed) {
        cores.entry(thread.core).or_default().push(thread.id);
        if let Some(llc) = thread.llc {
            caches.entry(llc).or_default().push(thread.id);
        }
        places.push((thread.id, thread.socket, thread.node));
    }
    let cache = |(id, cpus): (LlcId, Vec<CpuId>)| {
        let llc = machine.llcs.iter().find(|llc| llc.id == id).expect("a cache that threads name");
        (cpus, llc.level, llc.size)
    };
    Shape {
        cores: cores.into_values().collect(),
        caches: caches.into_iter().map(cache).collect(),
        places,
        distances: machine.distances.rows().to_vec(),
    }
}

#[test]
fn synthetic_strings_are_read_as_hwloc_reads_them() {
    let strings = [
        "pack:2 [numa(memory=48GiB)] l3:2(size=32MiB) core:4 pu:2",
        "[numa(memory=1GiB)] pack:2 [numa(memory=2GB)] [numa(memory=3GiB)] die:2 l2:2 core:3 pu:1",
        "group:3 numa:2(memory=4GiB) pack:1 l3:2 l2:1(size=1MB) l1:1 core:2 pu:2(indexes=numa:l3)",
        "numa:2(memory=1GiB indexes=1,0) core:2 pu:2(indexes=2*4:1*2)",
        "pack:3 core:2 pu:2(indexes=core:pack)",
        "socket:2 node:2(memory=512MiB) l4:1 l3:1 core:1 pu:3(indexes=0,11,1,10,2,9,3,8,4,7,5,6)",
        "l2:4(size=1000kB) core:1 pu:1",
        // Both must refuse these.
        "pack:2 numa:2 [numa] pu:1",
        "pack:2 core:2",
        "pack:2 pack:2 pu:1",
        "pack:0 pu:1",
        "pack:2 pu:2(indexes=0,1,1,2)x",
    ];
    for text in strings {
        let Some(theirs) = lstopo("synthetic_strings_are_read_as_hwloc_reads_them", &["-i", text]) else { return };
        match (read::from_synthetic(text), theirs) {
            (Ok(ours), Ok(xml)) => {
                let theirs = read::from_hwloc_xml(&xml, text).expect(text);
                assert_eq!(shape(&ours), shape(&theirs), "{text}");
                assert_eq!(ours.nodes.len(), theirs.nodes.len(), "{text}");
                assert!(
                    ours.nodes.iter().zip(&theirs.nodes).all(|(a, b)| (a.id, a.memory) == (b.id, b.memory)),
                    "{text}"
                );
            }
            (Err(_), Err(_)) => {}
            (ours, theirs) => {
                panic!("{text}: homenode {:?}, hwloc {:?}", ours.map(|_| "reads"), theirs.map(|_| "reads"))
            }
        }
    }
}

#[test]
fn this_host_is_read_as_hwloc_reads_it() {
    let Some(xml) = lstopo("this_host_is_read_as_hwloc_reads_it", &[]) else { return };
    let theirs = read::from_hwloc_xml(&xml.expect("lstopo reads this host"), "this host").expect("hwloc's XML");
    let ours = read::live().expect("this host");
    let (ours, theirs) = (shape(&ours), shape(&theirs));
    assert_eq!((ours.cores, ours.caches), (theirs.cores, theirs.caches));
    assert_eq!(ours.places, theirs.places);
}

#[test]
fn captured_machines_are_read_as_hwloc_reads_them() {
    // hwloc wants the masks of nodes too, which homenode's captures leave out; caches, cores and
    // sockets it finds.
    for name in ["nps4-two-ccx-a-node", "smt-partly-off", "offline-by-maxcpus"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.tar.gz"));
        let archive = std::fs::read(golden).expect(name);
        let ours = read::from_archive(&archive, name).expect(name);
        let directory = tempfile::tempdir().expect("a directory");
        write_whole_tree(&ours, directory.path());
        // The tree has masks only, as kernels before 2.6.26 write them.
        let again = read::from_root(directory.path()).expect(name);
        assert_eq!(shape(&again), shape(&ours), "{name} from masks");
        let root = directory.path().to_str().expect("a path");
        let Some(xml) = lstopo("captured_machines_are_read_as_hwloc_reads_them", &["-i", root]) else { return };
        let theirs = read::from_hwloc_xml(&xml.expect(name), name).expect(name);
        assert_eq!(shape(&ours), shape(&theirs), "{name}");
    }
}

/// Writes a machine as a complete `/sys`, with the masks that hwloc reads.
fn write_whole_tree(machine: &Machine, root: &Path) {
    let write = |path: String, text: String| {
        let file = root.join("sys/devices/system").join(path);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("created");
        std::fs::write(file, text + "\n").expect("written");
    };
    let online: Vec<_> = machine.threads.iter().filter(|thread| thread.online).collect();
    let mask = |like: &dyn Fn(&topology::HardwareThread) -> bool| {
        let bits = online.iter().filter(|thread| like(thread)).fold(0_u32, |bits, thread| bits | 1 << thread.id.0);
        format!("{bits:08x}")
    };
    // hwloc takes a directory without `proc` for no machine.
    std::fs::create_dir_all(root.join("proc")).expect("created");
    let cpus: topology::CpuSet = online.iter().map(|thread| thread.id).collect();
    write("cpu/online".to_owned(), cpus.to_string());
    for thread in &online {
        let cpu = format!("cpu/cpu{}", thread.id);
        write(format!("{cpu}/topology/physical_package_id"), thread.socket.to_string());
        write(format!("{cpu}/topology/core_id"), thread.core.to_string());
        write(format!("{cpu}/topology/thread_siblings"), mask(&|other| other.core == thread.core));
        write(format!("{cpu}/topology/core_siblings"), mask(&|other| other.socket == thread.socket));
        let Some(llc) = machine.llcs.iter().find(|llc| Some(llc.id) == thread.llc) else { continue };
        write(format!("{cpu}/cache/index0/level"), llc.level.to_string());
        write(format!("{cpu}/cache/index0/type"), "Unified".to_owned());
        write(format!("{cpu}/cache/index0/size"), format!("{}K", llc.size.unwrap_or_default().0 >> 10));
        write(format!("{cpu}/cache/index0/shared_cpu_map"), mask(&|other| other.llc == thread.llc));
    }
    write("node/online".to_owned(), machine.node_ids().to_string());
    for (node, row) in machine.nodes.iter().zip(machine.distances.rows()) {
        let row: Vec<String> = row.iter().map(u32::to_string).collect();
        write(format!("node/node{}/cpumap", node.id), mask(&|thread| thread.node == node.id));
        write(format!("node/node{}/distance", node.id), row.join(" "));
        write(
            format!("node/node{}/meminfo", node.id),
            format!("Node {} MemTotal: {} kB", node.id, node.memory.0 >> 10),
        );
    }
}
