//! Domains that start again: homes and sizes of the plan, and all that their owner added.

use qemu::command_line::BootFiles;
use scheduler::{Occupancy, rehome};
use stacks::domain::{parse, planned};
use stacks::emit::{Emission, Kind, emit};
use std::collections::BTreeSet;
use topology::{Bytes, Machine};
use vm::{Accelerator, NodeSize, Plan, VmSpec};

const SPEC: &str = "name = \"db\"\nvcpus = 4\nmax_vcpus = 8\nmemory = \"8 GiB\"\nmax_memory = \"16 GiB\"\n\
    policy.virtual_nodes = [{ vcpus = 2, memory = \"4 GiB\", max_vcpus = 4, max_memory = \"8 GiB\" }, \
    { vcpus = 2, memory = \"4 GiB\", max_vcpus = 4, max_memory = \"8 GiB\" }]\n\
    boot.from = \"disk\"\n[[disk]]\npath = \"/images/a.raw\"\nformat = \"raw\"\n";

fn text(machine: &Machine, spec: &VmSpec, plan: &Plan) -> String {
    let boot = BootFiles::default();
    let accelerator = &Accelerator::Kvm;
    emit(Kind::Libvirt, &Emission { machine, spec, plan, boot: &boot, accelerator }).expect("a domain")
}

fn machine() -> Machine {
    topology::read::from_synthetic("pack:4 [numa(memory=32GiB)] l3:1 core:8 pu:1").expect("a machine")
}

/// With what an owner may add.
fn owned(domain: &str) -> String {
    domain.replace("  </devices>", "    <watchdog model='i6300esb' action='reset'/>\n  </devices>")
}

#[test]
fn a_domain_that_is_as_planned_changes_no_byte() {
    let spec = VmSpec::from_toml(SPEC, "vm.toml").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    let began = text(&machine(), &spec, &plan);
    assert_eq!(planned(&began, "db", &plan).expect("a domain"), began);
}

#[test]
fn a_domain_that_grew_starts_with_what_it_has() {
    let spec = VmSpec::from_toml(SPEC, "vm.toml").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    let began = owned(&text(&machine(), &spec, &plan));
    // Node 1 got its vCPU 6 and 1 GiB: 5 vCPUs, 9 GiB.
    let size = NodeSize { virtual_node: 1, vcpus: BTreeSet::from([4, 5, 6]), memory: Bytes::from_mib(5 << 10) };
    let grown = plan.topology.powered_on_with(&[size]);
    let plan = rehome(&machine(), &Occupancy::default(), &spec.shape, &grown, &[]).expect("a plan");
    let xml = planned(&began, "db", &plan).expect("a domain");
    assert_eq!(parse(&xml, "db").unwrap(), parse(&text(&machine(), &spec, &plan), "db").unwrap(), "{xml}");
    assert!(xml.contains("current=\"5\"") && xml.contains("<memory unit=\"KiB\">9437184</memory>"), "{xml}");
    assert!(xml.contains("<watchdog") && xml.contains("<source file=\"/images/a.raw\"/>"), "{xml}");
}

#[test]
fn a_domain_that_is_sized_anew_has_the_nodes_of_its_plan() {
    let spec = VmSpec::from_toml(SPEC, "vm.toml").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    let began = owned(&text(&machine(), &spec, &plan));
    for (nodes, vcpus) in [(1, "12"), (4, "8")] {
        let node = format!("{{ vcpus = {}, memory = \"2 GiB\" }}", vcpus.parse::<u32>().unwrap() / nodes);
        let all = vec![node; nodes as usize].join(", ");
        let other = format!(
            "name = \"db\"\nvcpus = {vcpus}\nmemory = \"{} GiB\"\npolicy.virtual_nodes = [{all}]\n\
            boot.from = \"disk\"\n[[disk]]\npath = \"/images/a.raw\"\nformat = \"raw\"\n",
            2 * nodes
        );
        let spec = VmSpec::from_toml(&other, "vm.toml").expect("a spec");
        let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
        let xml = planned(&began, "db", &plan).expect("a domain");
        let (is, fresh) = (parse(&xml, "db").unwrap(), parse(&text(&machine(), &spec, &plan), "db").unwrap());
        assert_eq!((is.vcpus, &is.absent, is.memory), (fresh.vcpus, &fresh.absent, fresh.memory), "{xml}");
        assert_eq!((&is.guest, &is.vcpu_pins), (&fresh.guest, &fresh.vcpu_pins), "{xml}");
        assert_eq!(is.memory_nodes, fresh.memory_nodes, "{xml}");
        let of = |domain: &stacks::domain::Domain| {
            domain.cells.iter().map(|cell| (cell.id, cell.vcpus.clone(), cell.memory)).collect::<Vec<_>>()
        };
        assert_eq!(of(&is), of(&fresh), "{xml}");
        assert!(xml.contains("<watchdog"), "{xml}");
    }
}
