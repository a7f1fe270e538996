//! Command lines of the kinds that scripts have, read from outside and compared with what QEMU says
//! itself (QMP): vCPUs and their places, memory, virtual nodes, the name.
//!
//! Each QEMU waits before its first instruction and takes 16 to 128 MiB that it never touches.

use linux::Root;
use linux::vm::RunningVm;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use topology::Bytes;

/// Names the newer QEMU (`scripts/newer-qemu`).
const NEWER: &str = "HOMENODE_NEWER_QEMU";
/// QEMUs at once.
const AT_ONCE: usize = 4;

/// A line with the QEMUs that take it.
struct Line(&'static str, Taken);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// By 7.2 and by later ones.
    ByAll,
    /// Before 8.0 only.
    Before,
    /// Since 9.0 only.
    Since,
}
use Taken::{Before, ByAll, Since};

/// Files that lines name, in the directory that QEMU is started in.
const FILES: [(&str, &str); 9] = [
    (
        "all.cfg",
        "# made by hand\n\n[memory]\n  size = \"96\"\n  maxmem = \"1G\"\n  slots = \"2\"\n[smp-opts]\n  cpus = \"4\"\n  \
        sockets = \"2\"\n  cores = \"2\"\n[name]\n  guest = \"from a file\"\n[machine]\n  type = \"q35\"\n",
    ),
    (
        "nodes.cfg",
        "[object \"m0\"]\n  qom-type = \"memory-backend-ram\"\n  size = \"32M\"\n[object \"m1\"]\n  \
        qom-type = \"memory-backend-memfd\"\n  size = \"16777216\"\n  host-nodes.0 = \"0\"\n  policy = \"bind\"\n[numa]\n  \
        type = \"node\"\n  nodeid = \"0\"\n  cpus = \"0-1\"\n  memdev = \"m0\"\n[numa]\n  type = \"node\"\n  nodeid = \"1\"\n  \
        cpus = \"2-3\"\n  memdev = \"m1\"\n[numa]\n  type = \"dist\"\n  src = \"0\"\n  dst = \"1\"\n  val = \"21\"\n",
    ),
    ("machine.cfg", "[machine]\n type = \"pc\"\n smp.cpus = \"3\"\n memory.size = \"40M\"\n"),
    (
        "twice.cfg",
        "[memory]\nsize = \"32\"\n[memory]\n size = \"48\"\n[smp-opts]\n cpus = \"2\"\n[smp-opts]\n cpus = \"3\"\n",
    ),
    (
        "backend.cfg",
        "[object]\n qom-type = \"memory-backend-ram\"\n id = \"ram\"\n size = \"32M\"\n[machine]\n \
        memory-backend = \"ram\"\n",
    ),
    (
        "dimm.cfg",
        "[object \"d\"]\n qom-type = \"memory-backend-ram\"\n size = \"128M\"\n[device \"dimm0\"]\n driver = \
        \"pc-dimm\"\n memdev = \"d\"\n",
    ),
    ("name.cfg", "[name]\n guest = \"quiet\"\n debug-threads = \"on\" # names\n"),
    ("dos.cfg", "[memory]\n size = \"24\"\r\n"),
    ("small.cfg", "[memory]\n size = \"0x1000000\"\n"),
];

const TWO: &str = "-object memory-backend-ram,id=a,size=32M -object memory-backend-ram,id=b,size=16M -m 48";

/// The lines; `TWO` stands for the objects of two nodes.
const LINES: &[Line] = &[
    // Sizes.
    Line("-m 64", ByAll),
    Line("-m 64M", ByAll),
    Line("-m 64m", ByAll),
    Line("-m 0.0625G", ByAll),
    Line("-m 1.5M", ByAll),
    Line("-m 48.3M", ByAll),
    Line("-m 65536K", ByAll),
    Line("-m 67108864B", ByAll),
    Line("-m size=0.03125g", ByAll),
    Line("-m 010", ByAll),
    Line("-m 1.M", ByAll),
    Line("-m 0x200000a", ByAll),
    Line("-m 0x40", Before),
    Line("-m 0x20M", Before),
    Line("-m .0625G", Since),
    Line("-m 0", ByAll),
    Line("-smp 1", ByAll),
    // The last counts, or all together do.
    Line("-m 32 -m 64", ByAll),
    Line("-m size=32 -m slots=3,maxmem=1G -m 48", ByAll),
    Line("-m 32,maxmem=67108864,slots=1", ByAll),
    Line("-m 64 -M q35,memory.size=32M", ByAll),
    Line("-M q35,memory.size=0x2000000", ByAll),
    Line("-machine q35,memory.size=33554432,memory.max-size=1G,memory.slots=1", ByAll),
    Line("-M q35,memory.size=16M -M memory.size=24M", ByAll),
    Line("-m 32 -name a -name b", ByAll),
    Line("-m 32 -name guest=a,,b,process=x -name debug-threads=on", ByAll),
    Line("-m 32 -name b,debug-threads=on", ByAll),
    Line("-m 32 -uuid 00000000-0000-0000-0000-000000000001 -uuid 00000000-0000-0000-0000-000000000002", ByAll),
    Line("-m 32 -smp 2 -smp 4", ByAll),
    Line("-m 32 -smp 2,sockets=2 -smp 4", ByAll),
    Line("-m 32 -smp 4,maxcpus=8 -smp cpus=2", ByAll),
    Line("-m 32 -smp 2 -M q35,smp.cpus=4", ByAll),
    Line("-m 32 -M q35,smp.cpus=4 -smp 2", ByAll),
    Line("-m 32 -M q35,smp.cpus=4,smp.sockets=2", ByAll),
    Line("-m 32 -M q35 -M smp.cpus=3 -M pc", ByAll),
    // What is left out.
    Line("-m 32 --smp 3", ByAll),
    Line("--m 32 --name dashes --smp cpus=2", ByAll),
    Line("-m 32 -smp 0x4", ByAll),
    Line("-m 32 -smp 010", ByAll),
    Line("-m 32 -smp 8 -M pc-q35-6.1", ByAll),
    Line("-m 32 -smp 8 -M pc-i440fx-6.2", ByAll),
    Line("-m 32 -smp 12,cores=3 -M pc-i440fx-5.2", ByAll),
    Line("-m 32 -smp maxcpus=8", ByAll),
    Line("-m 32 -smp 2,maxcpus=8,threads=2", ByAll),
    Line("-m 32 -smp 12,sockets=2,threads=2", ByAll),
    Line("-m 32 -smp 1,cores=2,sockets=2,maxcpus=4", ByAll),
    Line("-m 32 -smp sockets=2,cores=3", ByAll),
    Line("-m 32 -smp 8,dies=2", ByAll),
    Line("-m 32 -smp 8,sockets=1,dies=2,cores=2,threads=2", ByAll),
    Line("-m 32 -smp 8,modules=2", Since),
    Line("-m 32 -smp 16,sockets=2,dies=2,modules=2,cores=2,threads=1", Since),
    Line("-m 32 -smp 0", Before),
    Line("-m 32 -smp 2,maxcpus=4 -device qemu64-x86_64-cpu,id=c,socket-id=0,core-id=2,thread-id=0", ByAll),
    Line(
        "-m 32 -smp 2,maxcpus=4 -device {\"driver\":\"qemu64-x86_64-cpu\",\"socket-id\":0,\"core-id\":3,\"thread-id\":0}",
        ByAll,
    ),
    // What takes the next word, and what does not.
    Line("-m 32 -pidfile -smp -smp 2", ByAll),
    Line("-snapshot -m 32 -no-reboot -smp 2 -no-shutdown", ByAll),
    Line("-mem-prealloc -m 16 -usb -smp 2", ByAll),
    Line("-m 32 -mem-path . -smp 2", ByAll),
    // Virtual nodes.
    Line("TWO -smp 4 -numa node,cpus=0-1,memdev=a -numa node,cpus=2-3,memdev=b", ByAll),
    Line("TWO -smp 4 -numa node,cpus=0,cpus=0x3,memdev=a -numa node,cpus=1-2,memdev=b", ByAll),
    Line("TWO -smp 4 -numa node,nodeid=1,cpus=0-1,memdev=a -numa node,nodeid=0,memdev=b", ByAll),
    Line("TWO -smp 4 -numa node,cpus=1,memdev=a -numa node,memdev=b", ByAll),
    Line("TWO -smp 4,sockets=2 -numa node,memdev=a -numa node,memdev=b", ByAll),
    Line(
        "TWO -smp 4,sockets=2 -numa node,memdev=a -numa node,memdev=b -numa cpu,node-id=1,socket-id=0 \
        -numa cpu,node-id=0,socket-id=1",
        ByAll,
    ),
    Line(
        "TWO -smp 4,sockets=2 -numa node,memdev=a -numa node,memdev=b -numa cpu,node-id=1,socket-id=0,core-id=0x1 \
        -numa cpu,node-id=0,socket-id=1",
        ByAll,
    ),
    Line("TWO -smp 2,maxcpus=4 -numa node,cpus=0-1,memdev=a -numa node,cpus=2-3,memdev=b", ByAll),
    Line("TWO -numa node,memdev=a -numa node,memdev=b,cpus=0", ByAll),
    Line("-m 70 -smp 2 -M pc-i440fx-5.0 -numa node,mem=0x20 -numa node,mem=38M,cpus=0-1", ByAll),
    Line("-m 64 -smp 2 -M pc-q35-5.0 -numa node,mem=0.03125G,cpus=0 -numa node,mem=32,cpus=1", ByAll),
    Line("-m 32 -M q35,memory-backend=a -object memory-backend-memfd,id=a,size=16M,size=32M", ByAll),
    Line("-machine memory-backend=a -object memory-backend-ram,id=a,size=33554432", ByAll),
    Line(
        "-object {\"qom-type\":\"memory-backend-ram\",\"id\":\"a\",\"size\":33554432} -m 32 -numa node,memdev=a",
        ByAll,
    ),
    Line(
        "-object {\"qom-type\":\"memory-backend-ram\",\"id\":\"a\",\"size\":16777216,\"host-nodes\":[0],\"policy\":\"bind\"} \
        -object memory-backend-ram,id=b,size=16M -m 32 -smp 2 -numa node,memdev=b,cpus=1 -numa node,memdev=a,cpus=0",
        ByAll,
    ),
    // Memory devices.
    Line("-m 32,slots=2,maxmem=1G -object memory-backend-ram,id=d,size=128M -device pc-dimm,memdev=d,id=dimm0", ByAll),
    Line(
        "-m 32,slots=2,maxmem=1G -object memory-backend-ram,id=d,size=128M -device \
        {\"driver\":\"pc-dimm\",\"memdev\":\"d\",\"id\":\"dimm0\"}",
        ByAll,
    ),
    Line(
        "TWO,slots=2,maxmem=1G -smp 2 -numa node,memdev=a -numa node,memdev=b,cpus=0-1 -object \
        memory-backend-ram,id=d,size=128M -device pc-dimm,memdev=d,id=dimm0,node=0 -set device.dimm0.node=1",
        ByAll,
    ),
    Line(
        "TWO,slots=2,maxmem=1G -smp 2 -numa node,memdev=a -numa node,memdev=b,cpus=0-1 -object \
        memory-backend-ram,id=d,size=128M -device pc-dimm,memdev=d,node=0,node=0x1",
        ByAll,
    ),
    // Files.
    Line("-readconfig all.cfg", ByAll),
    Line("-readconfig all.cfg -m 64 -name later -smp 8", ByAll),
    Line("-m 16 -smp 2 -readconfig all.cfg", ByAll),
    Line("-smp 4 -m 48 -readconfig nodes.cfg", ByAll),
    Line("-readconfig all.cfg -m 48 -readconfig nodes.cfg", ByAll),
    Line("-readconfig machine.cfg", ByAll),
    Line("-readconfig twice.cfg", ByAll),
    Line("-m 32 -readconfig backend.cfg", ByAll),
    Line("-m 32,slots=1,maxmem=1G -readconfig dimm.cfg", ByAll),
    Line("-m 32 -smp 2 -readconfig name.cfg", ByAll),
    Line("-readconfig dos.cfg", ByAll),
    Line("-readconfig small.cfg -m 16", ByAll),
];

/// What is known of a VM, by whomever.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    name: Option<String>,
    vcpus: BTreeSet<u32>,
    /// Sockets, dies, cores in a die, threads.
    shape: Vec<u32>,
    /// Memory and vCPUs of each virtual node, plugged devices with it; one without a number where
    /// there are not several.
    nodes: BTreeMap<Option<u32>, (Bytes, BTreeSet<u32>)>,
    may_get_vcpus: bool,
}

/// A QEMU that waits, and its monitor.
pub(crate) struct Vm {
    pub(crate) child: Child,
    write: ChildStdin,
    read: BufReader<ChildStdout>,
}

impl Drop for Vm {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Vm {
    pub(crate) fn start(qemu: &Path, directory: &Path, line: &str) -> Self {
        let mut command = Command::new(qemu);
        command.args("-S -nodefaults -display none -accel tcg,thread=multi -no-user-config -qmp stdio".split(' '));
        let line = line.replace("TWO", TWO);
        command.args(line.split_whitespace().filter(|word| !word.is_empty())).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("QEMU");
        let (write, read) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let mut vm = Self { child, write, read: BufReader::new(read) };
        let mut greeting = String::new();
        vm.read.read_line(&mut greeting).expect("a greeting");
        assert!(greeting.contains("QMP"), "QEMU did not take: {line}");
        vm.ask("qmp_capabilities", &json!({}));
        vm
    }

    pub(crate) fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        writeln!(self.write, "{}", json!({ "execute": command, "arguments": arguments })).expect("asked");
        loop {
            let mut line = String::new();
            self.read.read_line(&mut line).expect("an answer");
            let mut answer: Value = serde_json::from_str(&line).expect("JSON");
            if answer.get("event").is_none() {
                assert!(answer.get("error").is_none(), "{command}: {answer}");
                return answer["return"].take();
            }
        }
    }

    /// What QEMU says.
    fn says(&mut self) -> Known {
        let name = self.ask("query-name", &json!({}))["name"].as_str().map(str::to_owned);
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        let smp = self.ask("qom-get", &json!({ "path": "/machine", "property": "smp" }));
        let part = |key: &str| number(&smp[key]).unwrap_or(1);
        let shape = vec![
            part("drawers") * part("books") * part("sockets"),
            part("dies"),
            part("clusters") * part("modules") * part("cores"),
            part("threads"),
        ];
        // A vCPU's number is its place in the order of all that there may be.
        let cpus = self.ask("query-cpus-fast", &json!({}));
        let mut places: Vec<(Vec<Option<u64>>, bool, Option<u32>)> = Vec::new();
        for slot in self.ask("query-hotpluggable-cpus", &json!({})).as_array().expect("slots") {
            let parts = ["socket-id", "die-id", "module-id", "core-id", "thread-id"];
            let place = parts.map(|part| slot["props"][part].as_u64()).to_vec();
            places.push((place, slot.get("qom-path").is_some(), number(&slot["props"]["node-id"])));
        }
        places.sort();
        let present = || (0..).zip(&places).filter(|(_, (_, present, _))| *present);
        let vcpus: BTreeSet<u32> = present().map(|(index, _)| index).collect();
        assert_eq!(vcpus.len(), cpus.as_array().expect("vCPUs").len());
        let info = self.ask("human-monitor-command", &json!({ "command-line": "info numa" }));
        let sizes = memory_of_nodes(info.as_str().expect("a text"));
        let mut nodes = BTreeMap::new();
        if sizes.len() < 2 {
            let memory = self.ask("query-memory-size-summary", &json!({}));
            let all = ["base-memory", "plugged-memory"].iter().filter_map(|key| memory[*key].as_u64()).sum();
            nodes.insert(None, (Bytes(all), vcpus.clone()));
        } else {
            for (node, size) in sizes {
                let own = present().filter(|(_, (.., at))| *at == Some(node)).map(|(index, _)| index).collect();
                nodes.insert(Some(node), (size, own));
            }
        }
        Known { name, may_get_vcpus: places.len() > vcpus.len(), vcpus, shape, nodes }
    }
}

/// `node 1 size: 32 MB`, whole MiB, plugged ones with it.
fn memory_of_nodes(info: &str) -> Vec<(u32, Bytes)> {
    let size = |line: &str| {
        let (node, size) = line.strip_prefix("node ")?.split_once(" size: ")?;
        Some((node.parse().ok()?, Bytes::from_mib(size.split_whitespace().next()?.parse().ok()?)))
    };
    info.lines().filter_map(size).collect()
}

/// What is seen from outside.
fn seen(pid: u32) -> Known {
    let vm = RunningVm::examine(&Root::default(), pid).expect("a process").expect("a VM");
    assert_eq!(vm.unread, None);
    let name = Some(vm.key.name.clone()).filter(|name| *name != format!("pid {pid}"));
    let cpus = vm.guest.cpus;
    let clients = vm.clients.iter();
    let of = |client: &linux::vm::VmClient| {
        (client.virtual_node, (client.fixed_memory, client.vcpus.iter().copied().collect::<BTreeSet<u32>>()))
    };
    Known {
        name,
        vcpus: clients.clone().flat_map(|client| client.vcpus.iter().copied()).collect(),
        shape: vec![cpus.sockets, cpus.dies, cpus.cores, cpus.threads],
        nodes: clients.map(of).collect(),
        may_get_vcpus: vm.may_get_vcpus,
    }
}

fn compare(qemu: &Path, skipped: Taken) {
    let place = tempfile::tempdir().expect("a directory");
    for (name, text) in FILES {
        std::fs::write(place.path().join(name), text).expect("a file");
    }
    let lines: Vec<&Line> = LINES.iter().filter(|line| line.1 != skipped).collect();
    let next = AtomicUsize::new(0);
    let one = || {
        while let Some(Line(line, _)) = lines.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut vm = Vm::start(qemu, place.path(), line);
            assert_eq!(seen(vm.child.id()), vm.says(), "{line}");
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(one))));
}

#[test]
fn command_lines_are_read_as_qemu_reads_them() {
    if crate::common::no_qemu("command_lines_are_read_as_qemu_reads_them") {
        return;
    }
    compare(Path::new("qemu-system-x86_64"), Since);
}

#[test]
fn command_lines_are_read_as_a_newer_qemu_reads_them() {
    let Some(newer) = std::env::var_os(NEWER) else {
        return eprintln!("SKIPPED command_lines_are_read_as_a_newer_qemu_reads_them: {NEWER} is not set");
    };
    compare(Path::new(&newer), Before);
}
