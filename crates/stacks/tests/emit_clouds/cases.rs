//! VMs of several shapes, each on a machine that is not here.

use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use topology::{Machine, read};
use vm::{Accelerator, Plan, VmSpec};

const TWO_NODES: &str = "pack:2 [numa(memory=64GiB)] l3:1 core:8 pu:1";
const TWO_NODES_SMT: &str = "pack:2 [numa(memory=24GiB)] l3:1 core:4 pu:2";

/// The name of a snapshot, the machine, the spec.
pub(crate) const CASES: [(&str, &str, &str); 8] = [
    ("narrow", TWO_NODES, "name = \"small\"\nvcpus = 4\nmemory = \"8 GiB\"\n"),
    ("wide", TWO_NODES, "name = \"wide\"\nvcpus = 14\nmemory = \"16 GiB\"\n"),
    ("uneven", TWO_NODES, UNEVEN),
    ("prefer_ht", TWO_NODES_SMT, "name = \"ht\"\nvcpus = 7\nmemory = \"4 GiB\"\n[policy]\nprefer_ht = true\n"),
    ("cores_of_smt", TWO_NODES_SMT, "name = \"cores\"\nvcpus = 8\nmemory = \"4 GiB\"\n"),
    ("interleave", TWO_NODES, "name = \"flat\"\nvcpus = 16\nmemory = \"16 GiB\"\n[policy]\nvnuma = false\n"),
    ("devices", TWO_NODES, DEVICES),
    ("kernel", TWO_NODES, KERNEL),
];

const UNEVEN: &str = r#"
name = "uneven"
vcpus = 6
memory = "6145 MiB"
[policy]
node_affinity = "0-1"
virtual_nodes = [{ vcpus = 2, memory = "2049 MiB" }, { vcpus = 4, memory = "4 GiB" }]
"#;

const DEVICES: &str = r#"
name = "Web_Server.1"
vcpus = 2
memory = "2 GiB"
boot.from = "disk"
console = { to = "file", path = "/var/log/it's web.log" }
[[disk]]
path = "/images/100 % odd & 'it' $HOME.qcow2"
format = "qcow2"
[[disk]]
path = "/images/data.raw"
format = "raw"
read_only = true
[[disk]]
path = "/images/scratch.raw"
format = "raw"
snapshot = true
[[network]]
kind = "user"
forward = [{ host = 2222, guest = 22 }, { host = 8080, guest = 80 }]
[[network]]
kind = "user"
"#;

const KERNEL: &str = r#"
name = "1e3"
vcpus = 2
memory = "1 GiB"
[boot]
from = "kernel"
kernel = "/boot/vmlinuz it's"
initrd = "/boot/initrd.img"
command_line = "root=/dev/vda: quiet #x \"y\" 'z' no"
[[network]]
kind = "user"
"#;

/// A case as `emit` takes it.
pub(crate) struct Case {
    pub(crate) machine: Machine,
    pub(crate) spec: VmSpec,
    pub(crate) plan: Plan,
}

impl Case {
    /// A machine in hwloc's synthetic grammar and a spec in TOML.
    pub(crate) fn new(machine: &str, spec: &str) -> Self {
        let machine = read::from_synthetic(machine).expect("a machine");
        let spec = VmSpec::from_toml(spec, "vm.toml").expect("a spec");
        let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
        Self { machine, spec, plan }
    }

    pub(crate) fn text(&self, kind: Kind) -> String {
        let Self { machine, spec, plan } = self;
        let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
        emit(kind, &Emission { machine, spec, plan, boot: &boot, accelerator: &accelerator }).expect("a text")
    }
}

/// What is emitted for a machine in hwloc's synthetic grammar and a spec in TOML.
pub(crate) fn emitted(kind: Kind, machine: &str, spec: &str) -> String {
    Case::new(machine, spec).text(kind)
}
