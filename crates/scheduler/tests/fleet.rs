//! Many VMs on one or several machines.

use scheduler::{Beside, Fit, FleetMachine, FleetPlan, Occupancy, plan_fleet};
use topology::{Bytes, Machine, NodeId, read};
use vm::{NodeUse, VmSpec};

fn machine(name: &str, synthetic: &str) -> Machine {
    Machine { name: name.to_owned(), ..read::from_synthetic(synthetic).expect(synthetic) }
}

fn spec(name: &str, vcpus: u32, memory_gib: u64) -> VmSpec {
    let text = format!("name = \"{name}\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

fn planned(machines: &[Machine], specs: &[VmSpec]) -> FleetPlan {
    planned_beside(machines, &vec![Occupancy::default(); machines.len()], specs)
}

fn planned_beside(machines: &[Machine], held: &[Occupancy], specs: &[VmSpec]) -> FleetPlan {
    let machines: Vec<FleetMachine<'_>> =
        machines.iter().zip(held).map(|(machine, occupancy)| FleetMachine { machine, occupancy }).collect();
    plan_fleet(&machines, specs, &Beside { guest: &|_| Bytes(0), node: &|_| Bytes(0) })
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

/// vCPUs and GiB that others hold of nodes, in the order of the nodes.
fn held(by_node: &[(u32, u64)]) -> Occupancy {
    let of = |(node, &(vcpus, gib)): (usize, &(u32, u64))| {
        (NodeId(node as u32), NodeUse { vcpus, memory: Bytes(gib << 30), ..NodeUse::default() })
    };
    Occupancy { nodes: by_node.iter().enumerate().map(of).collect(), ..Occupancy::default() }
}

#[test]
fn no_memory_is_remote_while_another_node_or_machine_has_it() {
    // Distance 21. Node 0 has 8 idle cores and no memory, node 1 has the memory and 8 vCPUs of
    // others on 8 cores: 8 x 0.3 x 1.1 = 2.64 CPUs would be lost to remote memory, 8 x 0.7 / 2 =
    // 2.8 to shared cores if the others are busy half of the time.
    let host = || machine("host", "pack:2 [numa(memory=64GiB)] core:8 pu:2");
    let far = |mut machine: Machine| {
        let nodes = vec![NodeId(0), NodeId(1)];
        machine.distances = topology::Distances::new(nodes, vec![vec![10, 21], vec![21, 10]]).expect("distances");
        machine
    };
    let beside = held(&[(0, 64), (8, 16)]);
    let plan = planned_beside(&[far(host())], std::slice::from_ref(&beside), &[spec("vm", 8, 32)]);
    assert_eq!((plan.vms[0].fit, plan.vms[0].remote_permille), (Fit::OneNode, Some(0)), "{:#?}", plan.vms[0]);
    // The first machine has no node with both; the second has, and its cores have vCPUs already.
    let full = held(&[(0, 64), (16, 60)]);
    let machines = [far(host()), far(Machine { name: "other".to_owned(), ..host() })];
    let half = held(&[(8, 32), (8, 32)]);
    let plan = planned_beside(&machines, &[held(&[(0, 64), (0, 31)]), half], &[spec("vm", 8, 32)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].fit), (Some(0), Fit::OneNode));
    let plan = planned_beside(&machines, &[held(&[(0, 60), (0, 36)]), held(&[(8, 32), (8, 32)])], &[spec("vm", 8, 32)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].remote_permille), (Some(1), Some(0)), "{:#?}", plan.vms[0]);
    // Nowhere else: then it is said how much.
    let plan = planned_beside(&machines[..1], &[full], &[spec("vm", 8, 4)]);
    assert_eq!(plan.vms[0].fit, Fit::OneNode, "{:#?}", plan.vms[0]);
    let plan = planned_beside(&machines[..1], &[held(&[(0, 62), (0, 40)])], &[spec("vm", 1, 25)]);
    assert_eq!(plan.vms[0].fit, Fit::Interleaved);
    assert!(plan.vms[0].remote_permille.is_some_and(|remote| remote > 0 && remote < 200), "{:#?}", plan.vms[0]);
}

#[test]
fn a_vm_is_not_cut_for_cores_that_others_may_use() {
    // 4 vCPUs and 100 GiB: four nodes of 32 GiB on the first machine, one of 128 GiB on the second,
    // whose 8 cores have 8 vCPUs already, on 16 hardware threads.
    let machines = [
        machine("many", "pack:4 [numa(memory=32GiB)] core:8 pu:2"),
        machine("large", "numa:1(memory=128GiB) core:8 pu:2"),
    ];
    let free = Occupancy::default();
    let plan = planned_beside(&machines, &[free.clone(), held(&[(8, 16)])], &[spec("vm", 4, 100)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].fit), (Some(1), Fit::OneNode), "{:#?}", plan.vms[0]);
    // Where it would wait for hardware threads it is.
    let plan = planned_beside(&machines, &[free, held(&[(16, 16)])], &[spec("vm", 4, 100)]);
    assert_eq!((plan.vms[0].machine, plan.vms[0].fit), (Some(0), Fit::SeveralNodes));
}

#[test]
fn hypervisors_and_hosts_keep_what_they_need() {
    // Nodes of 32 GiB, of which VMs leave 1; 1 GiB beside each guest: 30 GiB for one guest, or 14
    // for each of two.
    let machines = [machine("a", "numa:1(memory=32GiB) core:8 pu:1")];
    let gib = Bytes(1 << 30);
    let needs = Beside { guest: &|_| gib, node: &|_| gib };
    let fits = |memory: &[u64]| -> Vec<Fit> {
        let empty = Occupancy::default();
        let specs: Vec<VmSpec> = memory.iter().enumerate().map(|(i, gib)| spec(&format!("vm{i}"), 1, *gib)).collect();
        let plan = plan_fleet(&[FleetMachine { machine: &machines[0], occupancy: &empty }], &specs, &needs);
        let kept: Bytes = plan.beside[0].values().copied().sum();
        let placed = plan.vms.iter().filter(|vm| vm.plan.is_some()).count() as u64;
        assert_eq!(kept, Bytes((1 + placed) << 30));
        self::fits(&plan)
    };
    assert_eq!(fits(&[30]), [Fit::OneNode]);
    assert_eq!(fits(&[31]), [Fit::NotAtAll]);
    assert_eq!(fits(&[15, 14]), [Fit::OneNode; 2]);
    assert_eq!(fits(&[15, 15]), [Fit::OneNode, Fit::NotAtAll]);
}
