//! Domains for libvirt: as text, to libvirt's own schema, and through libvirt itself (its `test`
//! driver, which needs no daemon).

use proptest::prelude::*;
use qemu::command_line::BootFiles;
use scheduler::Occupancy;
use stacks::check::CheckedDomain;
use stacks::domain::{Domain, Edit, MemoryTune, apply, parse};
use stacks::emit::{Emission, Kind, emit};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use topology::{Bytes, CpuId, CpuSet, Machine, NodeSet};
use vm::{Accelerator, MemoryPolicy, Plan, TcgThreads, VmSpec};

/// What is asked for, and where.
struct Case {
    name: &'static str,
    /// A file of `machines/`, or a synthetic string.
    machine: &'static str,
    /// The spec but for its name.
    spec: &'static str,
    accelerator: Accelerator,
}

/// Two sockets of 4 cores and 8 hardware threads, 24 GiB each: the shape of the HP DL380 G6.
const TWO_SOCKETS: &str = "pack:2 [numa(memory=24GiB)] l3:1 core:4 pu:2";

const DISKS: &str = "vcpus = 8\nmemory = \"16 GiB\"\nboot.from = \"disk\"\n\
    [[disk]]\npath = \"/images/root, the first.qcow2\"\nformat = \"qcow2\"\nsnapshot = true\n\
    [[disk]]\npath = \"/images/<data>&.raw\"\nformat = \"raw\"\nread_only = true\nsnapshot = true\n\
    [[disk]]\npath = \"/images/more--.raw\"\nformat = \"raw\"\n\
    [[network]]\nkind = \"user\"\nforward = [{ host = 2222, guest = 22 }]\n\
    [[network]]\nkind = \"user\"\n[console]\nto = \"file\"\npath = \"/var/log/console.log\"\n";

fn tcg(threads: TcgThreads) -> Accelerator {
    Accelerator::Tcg { threads, because: "this is a test --".to_owned() }
}

fn cases() -> Vec<Case> {
    let case = |name, machine, spec| Case { name, machine, spec, accelerator: Accelerator::Kvm };
    let on_tcg = |name, machine, spec, threads| Case { name, machine, spec, accelerator: tcg(threads) };
    vec![
        on_tcg("small", TWO_SOCKETS, "vcpus = 2\nmemory = \"1 GiB\"\n", TcgThreads::Multi),
        case("wide", TWO_SOCKETS, "vcpus = 8\nmemory = \"16 GiB\"\n"),
        case("disks", TWO_SOCKETS, DISKS),
        case("uniform", TWO_SOCKETS, "vcpus = 8\nmemory = \"30 GiB\"\npolicy.vnuma = false\n"),
        case("interleaved", TWO_SOCKETS, "vcpus = 8\nmemory = \"30 GiB\"\npolicy.memory = \"interleave\"\n"),
        case("unbound", TWO_SOCKETS, "vcpus = 8\nmemory = \"16 GiB\"\npolicy.memory = \"default\"\n"),
        case("lazy", TWO_SOCKETS, "vcpus = 8\nmemory = \"16 GiB\"\nbacking.fill = \"on_touch\"\n"),
        case("core", TWO_SOCKETS, "vcpus = 8\nmemory = \"16 GiB\"\npolicy.vcpu_binding = \"core\"\n"),
        case("one-node", "machines/epyc-9654-2s-nps4.toml", "vcpus = 4\nmemory = \"8 GiB\"\npolicy.vnuma = true\n"),
        case(
            "eight",
            "machines/hp-dl980-g7.toml",
            "vcpus = 64\nmemory = \"64 GiB\"\npolicy.placement = \"most_virtual_nodes\"\n",
        ),
        case(
            "sockets",
            "machines/epyc-7742-2s-nps4.toml",
            "vcpus = 32\nmemory = \"64 GiB\"\npolicy.cores_per_socket = 4\n",
        ),
        case(
            "largest",
            "machines/epyc-9654-2s-nps4.toml",
            "vcpus = 384\nmemory = \"256 GiB\"\npolicy.prefer_ht = true\n",
        ),
        on_tcg("emulated", "machines/xeon-8480-2s-snc4.toml", "vcpus = 40\nmemory = \"40 GiB\"\n", TcgThreads::Single),
        case(
            "uneven",
            TWO_SOCKETS,
            "vcpus = 3\nmemory = \"3 GiB\"\npolicy.virtual_nodes = [{ vcpus = 1, memory = \"2 GiB\" }, \
            { vcpus = 2, memory = \"1 GiB\" }]\n",
        ),
        case("growing", TWO_SOCKETS, "vcpus = 3\nmax_vcpus = 8\nmemory = \"4 GiB\"\nmax_memory = \"20 GiB\"\n"),
    ]
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn machine(case: &Case) -> Machine {
    if !case.machine.starts_with("machines/") {
        return topology::read::from_synthetic(case.machine).expect("a machine");
    }
    let text = std::fs::read_to_string(root().join(case.machine)).expect("a machine file");
    topology::read::from_toml(&text, case.machine).expect("a machine")
}

/// What is planned, and the domain.
struct Planned {
    spec: VmSpec,
    plan: Plan,
    text: String,
}

fn planned(case: &Case) -> Planned {
    let machine = machine(case);
    let spec = VmSpec::from_toml(&format!("name = \"{}\"\n{}", case.name, case.spec), "vm.toml").expect("valid");
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("valid");
    let text = domain(&machine, &spec, &plan, &boot_of(&spec), &case.accelerator).expect("valid");
    Planned { spec, plan, text }
}

fn boot_of(spec: &VmSpec) -> BootFiles {
    if spec.boot.is_disk() {
        return BootFiles::default();
    }
    let command_line = "console=ttyS0 odd=\"a <b> & 'c'\" --".to_owned();
    BootFiles {
        kernel: Some("/boot/vmlinuz".into()),
        initrd: Some("/tmp/my guest.cpio".into()),
        command_line,
        flash: None,
    }
}

fn domain(
    machine: &Machine,
    spec: &VmSpec,
    plan: &Plan,
    boot: &BootFiles,
    accelerator: &Accelerator,
) -> Result<String, String> {
    emit(Kind::Libvirt, &Emission { machine, spec, plan, boot, accelerator }).map_err(|error| error.to_string())
}

#[test]
fn domains_look_as_a_person_would_write_them() {
    for case in cases().iter().filter(|case| ["small", "disks", "uneven", "growing"].contains(&case.name)) {
        insta::assert_snapshot!(case.name, planned(case).text);
    }
}

/// Asserts that the domain says what the plan does.
fn says(domain: &Domain, spec: &VmSpec, plan: &Plan, what: &str) {
    assert_eq!(domain.name, spec.name, "{what}");
    assert_eq!((domain.vcpus, domain.memory), (spec.most_vcpus(), spec.memory), "{what}");
    let clients = &plan.placement.clients;
    for client in clients {
        let nodes = plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        for vcpu in nodes.flat_map(|node| &node.vcpus) {
            assert_eq!(domain.vcpu_pins.get(vcpu), Some(&client.cpus_of(*vcpu)), "{what}: vCPU {vcpu}");
        }
    }
    assert_eq!(domain.vcpu_pins.len(), spec.most_vcpus() as usize, "{what}");
    let all = clients.iter().fold(CpuSet::new(), |all, client| all.union(&client.cpus));
    assert_eq!(domain.emulator_pin, Some(all), "{what}");
    assert_eq!(domain.iothreads.len(), spec.disks.len().min(clients.len()), "{what}");
    assert_eq!(domain.iothread_pins.len(), domain.iothreads.len(), "{what}");
    let sockets = (domain.guest.sockets, domain.guest.cores, domain.guest.threads);
    assert_eq!(sockets, (plan.topology.sockets, plan.topology.cores_per_socket, 1), "{what}");
    says_of_memory(domain, plan, what);
}

fn tune(mode: &str, nodes: &NodeSet) -> MemoryTune {
    MemoryTune { mode: mode.to_owned(), nodeset: Some(nodes.clone()), auto: false }
}

fn says_of_memory(domain: &Domain, plan: &Plan, what: &str) {
    let clients = &plan.placement.clients;
    let mode = match clients[0].memory_policy {
        MemoryPolicy::Bind => Some("strict"),
        MemoryPolicy::Interleave => Some("interleave"),
        MemoryPolicy::Preferred => Some("preferred"),
        MemoryPolicy::Default => None,
    };
    // For the whole process nothing: the VM's cgroup would then keep its memory from other homes.
    assert_eq!(domain.memory_tune, None, "{what}");
    let celled = plan.topology.exposed || mode.is_some();
    let nodes = if celled { plan.topology.nodes.as_slice() } else { &[] };
    assert_eq!(domain.cells.len(), nodes.len(), "{what}");
    for (cell, node) in domain.cells.iter().zip(nodes) {
        assert_eq!((cell.id, cell.memory), (node.id, node.memory), "{what}");
        assert_eq!(cell.vcpus, node.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect(), "{what}");
        let row = plan.topology.distances.get(node.id as usize).filter(|_| plan.topology.exposed);
        assert_eq!(cell.distances, (0..).zip(row.cloned().unwrap_or_default()).collect(), "{what}");
        let client = clients.iter().find(|client| client.virtual_nodes.contains(&node.id)).expect("a client");
        assert_eq!(domain.memory_nodes.get(&node.id), mode.map(|mode| tune(mode, &client.home)).as_ref(), "{what}");
    }
}

#[test]
fn domains_say_what_the_plan_says() {
    for case in cases() {
        let Planned { spec, plan, text } = planned(&case);
        let domain = parse(&text, case.name).expect("valid");
        says(&domain, &spec, &plan, case.name);
        let kvm = case.accelerator.is_hardware();
        assert_eq!(domain.kind, if kvm { "kvm" } else { "qemu" });
        assert_eq!(domain.cpu_mode.as_deref(), Some(if kvm { "host-passthrough" } else { "maximum" }));
        let losses = text.matches("NOT EXPRESSED").count();
        let expected = match case.name {
            "small" | "disks" | "growing" => 2,
            "emulated" => 3,
            _ => 1,
        };
        assert_eq!(losses, expected, "{text}");
    }
}

/// QEMU ends if libvirt asks it to fill memory with threads on CPUs that the VM's cgroup does not
/// have, or that do not exist.
#[test]
fn memory_of_a_home_without_cpus_is_not_filled_at_the_start() {
    let case = &cases()[1];
    let mut machine = machine(case);
    let spec = "name = \"far\"\nvcpus = 2\nmemory = \"1 GiB\"\npolicy.node_affinity = \"0\"\n";
    let spec = VmSpec::from_toml(spec, "vm.toml").expect("valid");
    let mut plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("valid");
    let emitted = |machine: &Machine, plan: &Plan| {
        domain(machine, &spec, plan, &boot_of(&spec), &Accelerator::Kvm).expect("valid")
    };
    let near = emitted(&machine, &plan);
    assert!(near.contains("<allocation mode=\"immediate\"") && !near.contains("libvirt fills no memory"), "{near}");
    machine.threads.retain(|thread| thread.node.0 == 0);
    plan.placement.clients[0].home = "1".parse().expect("valid");
    let far = emitted(&machine, &plan);
    assert!(
        !far.contains("memoryBacking") && far.contains("NOT EXPRESSED: libvirt fills no memory on node 1"),
        "{far}"
    );
    let domain = parse(&far, "far").expect("valid");
    assert_eq!(domain.vcpu_pins[&0], "0-7".parse().expect("valid"));
    assert_eq!(domain.memory_nodes[&0], tune("strict", &"1".parse().expect("valid")));
}

/// What homenode writes, homenode approves of, but for what the spec insists on: no policy, no
/// nodes, nodes of its own.
#[test]
fn domains_are_right_to_homenode_check() {
    for case in cases().iter().filter(|case| !["unbound", "uniform", "uneven"].contains(&case.name)) {
        let text = planned(case).text;
        let checked = CheckedDomain::new(&machine(case), &Occupancy::default(), &text, case.name).expect("valid");
        assert_eq!(checked.wrong(), 0, "{}: {:#?}\n{text}", case.name, checked.findings);
    }
}

#[test]
fn what_libvirt_cannot_start_is_refused_by_field() {
    let case = &cases()[2];
    let (machine, planned) = (machine(case), planned(case));
    let emitted = |spec: &VmSpec, plan: &Plan, boot: &BootFiles| domain(&machine, spec, plan, boot, &Accelerator::Kvm);
    let none = BootFiles::default();

    let mut spec = planned.spec.clone();
    spec.disks[1].path = "data.raw".into();
    let refused = emitted(&spec, &planned.plan, &none).unwrap_err();
    assert!(refused.starts_with("disk[1].path = \"data.raw\": libvirt starts QEMU in another directory"), "{refused}");
    spec.disks[1].path = "/data\u{ffff}".into();
    assert!(emitted(&spec, &planned.plan, &none).is_err());
    let boot = BootFiles { kernel: Some("vmlinuz".into()), ..BootFiles::default() };
    assert!(emitted(&planned.spec, &planned.plan, &boot).unwrap_err().starts_with("boot.kernel = \"vmlinuz\""));
    let mut plan = planned.plan.clone();
    plan.topology.nodes[1].memory = Bytes(0);
    assert!(emitted(&planned.spec, &plan, &none).unwrap_err().contains("virtual_nodes[1]: libvirt starts no VM"));
}

fn lacks(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("SKIPPED {test}: no {program} in PATH");
    }
    !found
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn domains_are_valid_to_libvirts_schema() {
    let name = "domains_are_valid_to_libvirts_schema";
    if lacks(name, "virt-xml-validate") || lacks(name, "xmllint") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for case in cases() {
        let file = directory.path().join(format!("{}.xml", case.name));
        std::fs::write(&file, planned(&case).text).expect("a file");
        let output = Command::new("virt-xml-validate").arg(&file).arg("domain").output().expect("it starts");
        assert!(output.status.success(), "{}: {}", case.name, said(&output));
    }
    // It does say no.
    let file = directory.path().join("wrong.xml");
    let wrong = planned(&cases()[0]).text.replace("emulatorpin", "emulatorpins");
    std::fs::write(&file, wrong).expect("a file");
    assert!(!Command::new("virt-xml-validate").arg(&file).arg("domain").output().expect("it starts").status.success());
}

/// A host of libvirt's `test` driver with the CPUs of the machine, at which the domain is defined
/// and started; its `dumpxml` then.
fn through_libvirt(case: &Case, text: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let (node, file) = (directory.path().join("node.xml"), directory.path().join("domain.xml"));
    let machine = machine(case);
    let cpus = machine.threads.len();
    let host = format!(
        "<node><cpu><mhz>2000</mhz><model>x</model><active>{cpus}</active><nodes>1</nodes><sockets>1</sockets>\
         <cores>{cpus}</cores><threads>1</threads></cpu><memory>4000000000</memory></node>"
    );
    std::fs::write(&node, host).expect("a file");
    std::fs::write(&file, text).expect("a file");
    let name = case.name;
    let commands = format!("define --validate {}; start {name}; dumpxml {name}", file.display());
    let uri = format!("test://{}", node.display());
    let output = Command::new("virsh").args(["--quiet", "--connect", &uri, &commands]).output().expect("it starts");
    let said = said(&output);
    assert!(output.status.success(), "{name}: {said}");
    let (first, last) = (said.find("<domain").expect(&said), said.find("</domain>").expect(&said));
    said[first..last + "</domain>".len()].to_owned()
}

#[test]
fn libvirt_keeps_all_of_a_domain_and_starts_it() {
    if lacks("libvirt_keeps_all_of_a_domain_and_starts_it", "virsh") {
        return;
    }
    for case in cases() {
        let Planned { spec, plan, text } = planned(&case);
        // The test driver takes no other type.
        let of_test = Edit::SetAttribute { at: vec![], name: "type".to_owned(), value: "test".to_owned() };
        let dumped = through_libvirt(&case, &apply(&text, case.name, &[of_test]).expect("valid"));
        assert!(dumped.contains("<domain type='test' id='"), "it runs: {dumped}");
        says(&parse(&dumped, case.name).expect("valid"), &spec, &plan, case.name);
    }
}

properties::properties! {
    #![cases(64)]
    /// Any VM on any of the machines: the domain says what the plan does, and is read back.
    #[test]
    fn any_plan_is_said_whole(which in 0..12_usize, vcpus in 1..40_u32, gib in 1..24_u64, expose in any::<Option<bool>>()) {
        let case = &cases()[which];
        let machine = machine(case);
        let vnuma = expose.map(|expose| format!("policy.vnuma = {expose}\n")).unwrap_or_default();
        let spec = format!("name = \"any\"\nvcpus = {vcpus}\nmemory = \"{gib} GiB\"\n{vnuma}");
        let spec = VmSpec::from_toml(&spec, "vm.toml").unwrap();
        let Ok(plan) = scheduler::plan(&machine, &Occupancy::default(), &spec) else { return Ok(()) };
        let text = domain(&machine, &spec, &plan, &boot_of(&spec), &case.accelerator).unwrap();
        says(&parse(&text, "any").unwrap(), &spec, &plan, "any");
    }
}
