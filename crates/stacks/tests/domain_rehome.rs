//! Domains that get other homes: what a fresh emission would say of them, and no other byte.

use qemu::command_line::BootFiles;
use scheduler::{Occupancy, rehome};
use stacks::domain::{parse, rehomed};
use stacks::emit::{Emission, Kind, emit};
use topology::Machine;
use vm::{Accelerator, Plan, VmSpec};

const SPEC: &str = "name = \"db\"\nvcpus = 4\nmax_vcpus = 8\nmemory = \"8 GiB\"\nmax_memory = \"16 GiB\"\n\
    policy.virtual_nodes = [{ vcpus = 2, memory = \"4 GiB\", max_vcpus = 4, max_memory = \"8 GiB\" }, \
    { vcpus = 2, memory = \"4 GiB\", max_vcpus = 4, max_memory = \"8 GiB\" }]\n\
    boot.from = \"disk\"\n[[disk]]\npath = \"/images/a.raw\"\nformat = \"raw\"\n\
    [[disk]]\npath = \"/images/b.raw\"\nformat = \"raw\"\n";

fn machine(text: &str) -> Machine {
    topology::read::from_synthetic(text).expect("a machine")
}

fn text(machine: &Machine, spec: &VmSpec, plan: &Plan) -> String {
    let boot = BootFiles::default();
    let accelerator = &Accelerator::Kvm;
    emit(Kind::Libvirt, &Emission { machine, spec, plan, boot: &boot, accelerator }).expect("a domain")
}

#[test]
fn a_domain_that_moves_says_what_one_that_began_there_would() {
    let spec = VmSpec::from_toml(SPEC, "vm.toml").expect("a spec");
    let here = machine("pack:2 [numa(memory=32GiB)] l3:1 core:8 pu:1");
    let plan = scheduler::plan(&here, &Occupancy::default(), &spec).expect("a plan");
    let began = text(&here, &spec, &plan);
    // One node each, both on one, each over two.
    for elsewhere in [
        "pack:4 [numa(memory=32GiB)] l3:1 core:4 pu:2",
        "pack:1 [numa(memory=64GiB)] core:16 pu:1",
        "pack:8 [numa(memory=6GiB)] l3:1 core:2 pu:1",
    ] {
        let there = machine(elsewhere);
        let moved = rehome(&there, &Occupancy::default(), &spec.shape, &plan.topology, &[]).expect(elsewhere);
        let xml = rehomed(&began, "db", &moved).expect("a domain");
        let (is, fresh) = (parse(&xml, "db").unwrap(), parse(&text(&there, &spec, &moved), "db").unwrap());
        assert_eq!(is.memory_nodes, fresh.memory_nodes, "{elsewhere}");
        assert_eq!((&is.vcpu_pins, &is.emulator_pin), (&fresh.vcpu_pins, &fresh.emulator_pin), "{elsewhere}");
        assert_eq!(is.iothread_pins.keys().count(), 2);
        let homes = |line: &&str| !["memnode", "pin "].iter().any(|word| line.contains(word));
        let rest = |xml: &str| xml.lines().filter(homes).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rest(&xml), rest(&began), "{elsewhere}");
    }
}

/// One that somebody else wrote: bound as a whole, with memory that was plugged in.
#[test]
fn what_bound_a_domain_before_binds_it_no_more() {
    let spec = VmSpec::from_toml(SPEC, "vm.toml").expect("a spec");
    let here = machine("pack:2 [numa(memory=32GiB)] l3:1 core:8 pu:1");
    let plan = scheduler::plan(&here, &Occupancy::default(), &spec).expect("a plan");
    let home = |node: u32| plan.client_of(node).expect("a client").bound_to().to_string();
    let xml = "<domain type='kvm'>
  <name>db</name>
  <memory unit='GiB'>8</memory>
  <vcpu placement='auto' cpuset='40-47' current='4'>8</vcpu>
  <numatune>
    <memory mode='strict' nodeset='7'/>
    <memnode cellid='1' mode='preferred' nodeset='7'/>
  </numatune>
  <cpu mode='host-model'>
    <numa>
      <cell id='0' cpus='0-3' memory='4194304'/>
      <cell id='1' cpus='4-7' memory='4194304'/>
    </numa>
  </cpu>
  <devices>
    <memory model='virtio-mem'>
      <source><nodemask>7</nodemask></source>
      <target><size unit='GiB'>4</size><node>1</node><requested unit='GiB'>1</requested></target>
    </memory>
    <memory model='virtio-mem'>
      <target><size unit='GiB'>4</size><node>0</node><requested unit='GiB'>1</requested></target>
    </memory>
  </devices>
</domain>
";
    let moved = rehomed(xml, "db", &plan).expect("a domain");
    let domain = parse(&moved, "db").unwrap();
    assert!(domain.memory_tune.is_none() && domain.vcpu_cpuset.is_none() && !domain.vcpu_placement_auto, "{moved}");
    assert_eq!(domain.memory_nodes[&1].nodeset.as_ref().map(ToString::to_string), Some(home(1)));
    assert_eq!(domain.memory_nodes[&1].mode, "strict");
    assert!(moved.contains(&format!("<source><nodemask>{}</nodemask></source>", home(1))), "{moved}");
    assert!(!moved.contains("nodeset='7'") && !moved.contains(">7<") && !moved.contains("40-47"), "{moved}");
    // Without cells there is one virtual node, which libvirt binds as a whole.
    let plain = "<domain><name>db</name><memory>1024</memory><vcpu>2</vcpu></domain>";
    let one = VmSpec::from_toml("name = \"db\"\nvcpus = 2\nmemory = \"1 MiB\"\n", "vm.toml").expect("a spec");
    let plan = scheduler::plan(&here, &Occupancy::default(), &one).expect("a plan");
    let domain = parse(&rehomed(plain, "db", &plan).expect("a domain"), "db").unwrap();
    assert_eq!(domain.memory_tune.and_then(|tune| tune.nodeset), Some(plan.client_of(0).unwrap().bound_to()));
    assert_eq!(domain.vcpu_pins.len(), 2);
}
