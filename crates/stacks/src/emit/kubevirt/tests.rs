//! What is written is what was meant, whatever the spec holds.

use super::super::Emission;
use super::object::VirtualMachine;
use super::{text, virtual_machine};
use ::qemu::command_line::BootFiles;
use proptest::prelude::*;
use scheduler::Occupancy;
use topology::read;
use vm::spec::{Boot, Disk, DiskFormat, Network, PortForward};
use vm::{Accelerator, VmSpec};

/// One node; two without and with SMT.
const MACHINES: [&str; 3] = [
    "pack:1 [numa(memory=64GiB)] core:8 pu:1",
    "pack:2 [numa(memory=64GiB)] core:8 pu:1",
    "pack:2 [numa(memory=64GiB)] core:4 pu:2",
];

/// Calls `judge` with the spec's plan on the machine.
fn with_emission<T>(machine: &str, spec: &VmSpec, judge: impl FnOnce(&Emission<'_>) -> T) -> T {
    let machine = read::from_synthetic(machine).expect("a machine");
    let plan = scheduler::plan(&machine, &Occupancy::default(), spec).expect("a plan");
    let (boot, accelerator) = (BootFiles::default(), Accelerator::Kvm);
    judge(&Emission { machine: &machine, spec, plan: &plan, boot: &boot, accelerator: &accelerator })
}

/// A spec, read from TOML.
fn spec(lines: &str) -> VmSpec {
    VmSpec::from_toml(lines, "vm.toml").expect("a spec")
}

fn object(machine: &str, spec: &VmSpec) -> VirtualMachine {
    with_emission(machine, spec, |emission| virtual_machine(emission).expect("an object").0)
}

#[test]
fn a_cpu_for_qemu_s_own_threads_is_asked_for_where_one_is_left() {
    let narrow = |vcpus: u32| spec(&format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"4 GiB\"\n"));
    assert!(object(MACHINES[1], &narrow(7)).spec.template.spec.domain.cpu.isolate_emulator_thread);
    assert!(!object(MACHINES[1], &narrow(8)).spec.template.spec.domain.cpu.isolate_emulator_thread);
    let wide = object(MACHINES[1], &narrow(12)).spec.template.spec.domain.cpu;
    assert!(wide.dedicated_cpu_placement && wide.numa.is_some() && !wide.isolate_emulator_thread);
}

#[test]
fn memory_that_is_not_bound_asks_for_nothing() {
    for policy in ["vnuma = false", "memory = \"default\"\nmax_vcpus_per_node = 8"] {
        let vcpus = if policy.starts_with("vnuma") { 16 } else { 8 };
        let spec = spec(&format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"4 GiB\"\n[policy]\n{policy}\n"));
        let domain = object(MACHINES[1], &spec).spec.template.spec.domain;
        assert!(!domain.cpu.dedicated_cpu_placement && domain.cpu.numa.is_none(), "{policy}");
        assert_eq!(domain.memory.hugepages, None, "{policy}");
    }
}

#[test]
fn no_more_pages_are_asked_of_a_node_than_it_has() {
    // 6 vCPUs and 100 GiB: two virtual nodes of 50 GiB on nodes of 64, and the kubelet takes one
    // node for 6 CPUs.
    let large = spec("name = \"vm\"\nvcpus = 6\nmemory = \"100 GiB\"\n");
    let domain = object(MACHINES[1], &large).spec.template.spec.domain;
    assert!(!domain.cpu.dedicated_cpu_placement && domain.cpu.numa.is_none() && domain.memory.hugepages.is_none());
    let said = with_emission(MACHINES[1], &large, |emission| text(emission).expect("a text"));
    assert!(said.contains("1, with 100 GiB in huge pages on each") && !said.contains("nr_hugepages"), "{said}");
    // 12 vCPUs take two nodes, and half of the memory on each.
    let wide = spec("name = \"vm\"\nvcpus = 12\nmemory = \"100 GiB\"\n");
    let said = with_emission(MACHINES[1], &wide, |emission| text(emission).expect("a text"));
    assert!(said.contains("25600 of 2Mi on each node"), "{said}");
}

#[test]
fn memory_is_whole_pages() {
    let memory = |mib: u64| object(MACHINES[0], &spec(&format!("name = \"vm\"\nvcpus = 2\nmemory = \"{mib} MiB\"\n")));
    let guest = |mib: u64| memory(mib).spec.template.spec.domain.memory.guest;
    assert_eq!((guest(1023).as_str(), guest(1022).as_str(), guest(2048).as_str()), ("1Gi", "1022Mi", "2Gi"));
}

#[test]
fn a_file_name_that_would_end_a_comment_is_refused() {
    let mut spec = spec("name = \"vm\"\nvcpus = 2\nmemory = \"1 GiB\"\n");
    spec.disks.push(Disk { path: "/a\nkind: Pod".into(), format: DiskFormat::Raw, snapshot: false, read_only: false });
    let refused = with_emission(MACHINES[0], &spec, |emission| text(emission).unwrap_err().to_string());
    assert!(refused.starts_with("disk[0].path = "), "{refused}");
}

prop_compose! {
    fn disk()(path in "[^\\p{Cc}\0]{1,60}", snapshot: bool, read_only: bool) -> Disk {
        Disk { path: path.into(), format: DiskFormat::Raw, snapshot, read_only }
    }
}

prop_compose! {
    fn any_spec()(
        name in "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}",
        vcpus in 1u32..=16,
        mib in 16u64..=65_536,
        boot in prop_oneof![
            Just(Boot::BIOS_DISK),
            Just(Boot::default()),
            ("[^\\p{Cc}]{1,40}", "[^\\p{Cc}]{0,80}").prop_map(|(kernel, command_line)| Boot::Kernel { kernel: kernel.into(), initrd: None, command_line }),
        ],
        disks in prop::collection::vec(disk(), 0..4),
        ports in prop::collection::vec((1u16.., 1u16..), 0..3),
        cards in 0usize..3,
    ) -> VmSpec {
        let mut spec = spec(&format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{mib} MiB\"\n"));
        spec.shape.name = name;
        spec.boot = boot;
        spec.disks = disks;
        let forward: Vec<PortForward> = ports.into_iter().map(|(host, guest)| PortForward { host, guest }).collect();
        spec.networks = vec![Network::User { forward }; cards];
        spec
    }
}

properties::properties! {
    #![cases(64)]
    #[test]
    fn what_is_written_reads_back_the_same(spec in any_spec(), machine in prop::sample::select(&MACHINES[..])) {
        with_emission(machine, &spec, |emission| {
            let (meant, _) = virtual_machine(emission).expect("an object");
            let text = text(emission).expect("a text");
            let read: VirtualMachine = serde_saphyr::from_str(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, meant);
            Ok(())
        })?;
    }
}
