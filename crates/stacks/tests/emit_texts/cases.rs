//! VMs of several shapes, on machines that are not here.

use ::qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::emit::{Emission, Kind, emit};
use topology::{Bytes, Machine, read};
use vm::spec::Boot;
use vm::{Accelerator, Plan, TcgThreads, VmSpec};

/// A VM, where it is to live, and what it boots.
pub(crate) struct Case {
    pub(crate) machine: Machine,
    pub(crate) spec: VmSpec,
    pub(crate) plan: Plan,
    pub(crate) boot: BootFiles,
    pub(crate) accelerator: Accelerator,
}

impl Case {
    pub(crate) fn new(machine: Machine, spec: &str) -> Self {
        let spec = VmSpec::from_toml(spec, "vm.toml").expect("a spec");
        let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
        let boot = boot(&spec);
        Self { machine, spec, plan, boot, accelerator: Accelerator::Kvm }
    }

    pub(crate) fn text(&self, kind: Kind) -> Result<String, String> {
        let Self { machine, spec, plan, boot, accelerator } = self;
        emit(kind, &Emission { machine, spec, plan, boot, accelerator }).map_err(|error| error.to_string())
    }
}

/// What would be booted, with the tiny guest's files at made-up places.
fn boot(spec: &VmSpec) -> BootFiles {
    match &spec.boot {
        Boot::TinyGuest { .. } => BootFiles {
            kernel: Some("/guest/vmlinuz".into()),
            initrd: Some("/tmp/guest.cpio".into()),
            command_line: "console=ttyS0 panic=-1".into(),
            flash: None,
        },
        Boot::Kernel { kernel, initrd, command_line } => BootFiles {
            kernel: Some(kernel.clone()),
            initrd: initrd.clone(),
            command_line: format!("console=ttyS0 {command_line}"),
            flash: None,
        },
        Boot::Disk { .. } | Boot::Definition => BootFiles::default(),
    }
}

pub(crate) fn shipped(name: &str) -> Machine {
    read::shipped(name).expect("a shipped machine").expect("a machine")
}

pub(crate) fn synthetic(text: &str) -> Machine {
    read::from_synthetic(text).expect("a machine")
}

/// 8 and 4 cores, 32 and 16 GiB.
fn uneven() -> Machine {
    let mut machine = synthetic("pack:2 [numa(memory=32GiB)] core:8 pu:1");
    machine.threads.retain(|thread| thread.id.0 < 12);
    machine.nodes[1].memory = Bytes::from_mib(16 << 10);
    machine
}

const DEVICES: &str = r#"
name = "web_1"
vcpus = 4
memory = "4 GiB"
boot.from = "disk"
console = { to = "file", path = "/var/log/it's web.log" }
[[disk]]
path = "/images/100 % odd & 'it'.qcow2"
format = "qcow2"
[[disk]]
path = "/dev/vg/data"
format = "raw"
read_only = true
[[network]]
kind = "user"
forward = [{ host = 2222, guest = 22 }]
[[network]]
kind = "user"
"#;

const UEFI: &str = r#"
name = "uefi"
vcpus = 4
memory = "4 GiB"
boot = { from = "disk", firmware = "uefi" }
[[disk]]
path = "/images/cloud.qcow2"
format = "qcow2"
"#;

/// All shapes by name.
pub(crate) fn all() -> Vec<(&'static str, Case)> {
    vec![
        ("narrow", Case::new(shipped("xeon-8480-2s"), "name = \"narrow\"\nvcpus = 4\nmemory = \"8 GiB\"\n")),
        ("wide", Case::new(shipped("hp-dl380-g6"), "name = \"wide\"\nvcpus = 8\nmemory = \"16 GiB\"\n")),
        ("four-nodes", Case::new(shipped("dell-r910"), "name = \"four.nodes\"\nvcpus = 32\nmemory = \"64 GiB\"\n")),
        ("uneven", Case::new(uneven(), "name = \"uneven\"\nvcpus = 12\nmemory = \"48 GiB\"\n")),
        (
            "interleaved",
            Case::new(
                shipped("hp-dl380-g6"),
                "name = \"flat\"\nvcpus = 8\nmemory = \"30 GiB\"\n[policy]\nvnuma = false\n",
            ),
        ),
        (
            "memory-only-home",
            Case::new(
                synthetic("pack:2 [numa(memory=8GiB)] [numa(memory=16GiB)] core:2 pu:1"),
                "name = \"expander\"\nvcpus = 2\nmemory = \"24 GiB\"\npolicy.far_memory = \"when_full\"\n",
            ),
        ),
        (
            "unbound",
            Case::new(
                shipped("hp-dl380-g6"),
                "name = \"unbound\"\nvcpus = 8\nmemory = \"4 GiB\"\n[policy]\nmemory = \"default\"\n",
            ),
        ),
    ]
}

/// VMs of several widths on every machine that comes with homenode, named after both.
pub(crate) fn everywhere() -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for name in read::shipped_names() {
        for vcpus in [1, 3, 16, 17, 60, 130] {
            let case = Case::new(shipped(name), &format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"9 GiB\"\n"));
            cases.push((format!("{vcpus} vCPUs on {name}"), case));
        }
    }
    assert!(cases.len() >= 50);
    cases
}

/// The VM with disks and networks, whose names are odd.
pub(crate) fn devices() -> Case {
    Case::new(shipped("hp-dl380-g6"), DEVICES)
}

/// A kernel with a command line that a shell would take apart.
pub(crate) fn kernel() -> Case {
    let boot = r#"boot = { from = "kernel", kernel = "/boot/my kernel", initrd = "/boot/i,1", command_line = "root=/dev/vda \"x y\" 'it' $HOME `id` 50%" }"#;
    Case::new(shipped("hp-dl380-g6"), &format!("name = \"kernel\"\nvcpus = 2\nmemory = \"1 GiB\"\n{boot}\n"))
}

/// A line's end in each place where a spec can have one; no stack may print it.
pub(crate) fn with_line_ends() -> Vec<(&'static str, Case)> {
    let mut disk = devices();
    disk.spec.disks[0].path = "/images/a\nargs: -evil".into();
    let mut console = devices();
    console.spec.console = vm::spec::Console::File { path: "/a\nb".into() };
    let (mut file, mut initrd, mut line) = (kernel(), kernel(), kernel());
    file.boot.kernel = Some("/k\nb".into());
    initrd.boot.initrd = Some("/i\nb".into());
    line.boot.command_line = "a\nb".into();
    vec![
        ("disk[0].path", disk),
        ("console.path", console),
        ("boot.kernel", file),
        ("boot.initrd", initrd),
        ("boot.command_line", line),
    ]
}

/// Software emulation, with a thread for each vCPU or one for all.
pub(crate) fn emulation(threads: TcgThreads) -> Accelerator {
    Accelerator::Tcg { threads, because: "/dev/kvm cannot be opened".to_owned() }
}

/// `text` without its comments and empty lines.
pub(crate) fn without_comments(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect()
}

/// A VM that UEFI boots.
pub(crate) fn uefi() -> Case {
    Case::new(shipped("hp-dl380-g6"), UEFI)
}
