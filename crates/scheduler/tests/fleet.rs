//! Many VMs on one or several machines.

use scheduler::{Fit, FleetMachine, FleetPlan, Occupancy, plan_fleet};
use topology::{Bytes, Machine, NodeId, read};
use vm::VmSpec;

fn machine(name: &str, synthetic: &str) -> Machine {
    Machine { name: name.to_owned(), ..read::from_synthetic(synthetic).expect(synthetic) }
}

fn spec(name: &str, vcpus: u32, memory_gib: u64) -> VmSpec {
    let text = format!("name = \"{name}\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

fn planned(machines: &[Machine], specs: &[VmSpec]) -> FleetPlan {
    let empty = Occupancy::default();
    let machines: Vec<FleetMachine<'_>> =
        machines.iter().map(|machine| FleetMachine { machine, occupancy: &empty }).collect();
    plan_fleet(&machines, specs)
}

fn fits(plan: &FleetPlan) -> Vec<Fit> {
    plan.vms.iter().map(|vm| vm.fit).collect()
}

#[test]
fn twelve_vms_that_each_fit_do_not_all_get_node_0() {
    // 12 x 64 GiB on 4 nodes of 192 GiB: three a node.
    let machines = [machine("host", "pack:4 [numa(memory=192GiB)] core:16 pu:2")];
    let specs: Vec<VmSpec> = (0..12).map(|index| spec(&format!("vm{index}"), 4, 64)).collect();
    let plan = planned(&machines, &specs);
    assert_eq!(fits(&plan), [Fit::OneNode; 12]);
    for node in 0..4 {
        assert_eq!(plan.occupancies[0].of(NodeId(node)).memory, Bytes((3 * 64) << 30), "node {node}");
    }
}

#[test]
fn each_vm_is_told_how_well_it_fits_and_why_not() {
    // Two nodes of 8 cores and 32 GiB.
    let machines = [machine("host", "pack:2 [numa(memory=32GiB)] core:8 pu:1")];
    // Large ones choose first: `wide` takes 24 GiB and 6 cores of both nodes, `small` fits beside
    // it, `long` never fits.
    let plan = planned(&machines, &[spec("small", 2, 4), spec("wide", 12, 48), spec("long", 1, 100)]);
    assert_eq!(fits(&plan), [Fit::OneNode, Fit::SeveralNodes, Fit::NotAtAll]);
    assert_eq!((plan.vms[2].machine, plan.vms[2].options[0].fit), (None, Fit::NotAtAll));
    let refusal = plan.vms[2].options[0].refusal.as_deref().expect("a reason");
    assert!(refusal.contains("VM `long` needs 100 GiB"), "{refusal}");
    // One vCPU with more memory than a node has lies on both.
    assert_eq!(fits(&planned(&machines, &[spec("long", 1, 40)])), [Fit::Interleaved]);
}

#[test]
fn machines_are_filled_one_after_the_other_and_a_better_fit_wins() {
    let one = "numa:1(memory=32GiB) core:8 pu:1";
    let machines = [machine("a", one), machine("b", one)];
    // 20 on a, 16 on b; 10 fits both (12 and 16 are free): the fuller one, so that 16 GiB stay
    // together.
    let plan = planned(&machines, &[spec("ten", 1, 10), spec("twenty", 2, 20), spec("sixteen", 2, 16)]);
    assert_eq!(plan.vms.iter().map(|vm| vm.machine).collect::<Vec<_>>(), [Some(0), Some(0), Some(1)]);
    // 12 vCPUs are two virtual nodes on the first machine and one on the second.
    let machines = [
        machine("small", "pack:2 [numa(memory=32GiB)] core:8 pu:1"),
        machine("large", "numa:1(memory=64GiB) core:16 pu:1"),
    ];
    let plan = planned(&machines, &[spec("wide", 12, 24)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].fit), (Some(1), Fit::OneNode));
    let options: Vec<(&str, Fit)> =
        plan.vms[0].options.iter().map(|option| (option.machine.as_str(), option.fit)).collect();
    assert_eq!(options, [("small", Fit::SeveralNodes), ("large", Fit::OneNode)]);
}

#[test]
fn one_node_is_no_reason_to_wait_for_cpus() {
    // `few`: 2 hardware threads, and all the memory on one node. 8 vCPUs would be 6 too many there;
    // on `two` 4 + 4 have a core each.
    let machines =
        [machine("few", "numa:1(memory=64GiB) core:2 pu:1"), machine("two", "pack:2 [numa(memory=32GiB)] core:4 pu:2")];
    let plan = planned(&machines, &[spec("wide", 8, 8)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].fit), (Some(1), Fit::SeveralNodes));
    // `one` has 8 cores on one node, `two` 4 + 4. The first VM takes `one`. The second would wait
    // there for half of its CPUs if the first is busy.
    let machines = [machine("one", "numa:1(memory=64GiB) core:8 pu:1"), machines[1].clone()];
    let plan = planned(&machines, &[spec("first", 8, 8), spec("second", 8, 8)]);
    assert_eq!(plan.vms.iter().map(|vm| vm.machine).collect::<Vec<_>>(), [Some(0), Some(1)]);
}
