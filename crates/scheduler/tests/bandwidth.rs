//! Stated memory traffic in planning: worked examples.

use scheduler::{Occupancy, plan, plan_together};
use topology::{Bytes, BytesPerSecond, Machine, NodeId, read};
use vm::{MemoryPolicy, NodeUse, Plan, VmSpec};

/// Four nodes of 8 cores, each of whose memory gives so many GB/s.
fn machine(gb_per_second: u64) -> Machine {
    let mut machine = read::from_synthetic("numa:4(memory=64GiB) core:8 pu:1").expect("a machine");
    let given = Bytes(gb_per_second * 1_000_000_000);
    machine.bandwidth.memory = machine.nodes.iter().map(|node| (node.id, given)).collect();
    machine
}

fn spec(name: &str, vcpus: u32, policy: &str) -> VmSpec {
    let text = format!("name = \"{name}\"\nvcpus = {vcpus}\nmemory = \"4 GiB\"\n[policy]\n{policy}\n");
    VmSpec::from_toml(&text, "vm.toml").expect(&text)
}

fn homes(plan: &Plan) -> Vec<String> {
    plan.placement.clients.iter().map(|client| client.home.to_string()).collect()
}

#[test]
fn two_vms_that_stream_do_not_share_a_controller_while_another_is_idle() {
    // Node 0 has VMs of 2 vCPUs on its 8 cores; nodes 1 to 3 have 4 each, so that by cores alone
    // both VMs of 3 vCPUs go to node 0: 5^2 / 8 and 8^2 / 8 against 7^2 / 8.
    let mut occupancy = Occupancy::default();
    for (node, vcpus) in [(0, 0), (1, 4), (2, 4), (3, 4)] {
        occupancy.nodes.insert(NodeId(node), NodeUse { vcpus, ..NodeUse::default() });
    }
    let planned = |policy: &str| {
        let specs = [spec("a", 3, policy), spec("b", 3, policy)];
        let plans = plan_together(&machine(12), &occupancy, &specs).expect("planned");
        plans.iter().flat_map(homes).collect::<Vec<_>>()
    };
    assert_eq!(planned(""), ["0", "0"]);
    assert_eq!(planned("bandwidth = \"low\""), ["0", "0"]);
    // Each draws 3 x 2.84 = 8.5 GB/s, together 17 of 12: (17 - 12) / 2.84 = 1.78 CPUs would wait.
    assert_eq!(planned("bandwidth = \"high\""), ["0", "1"]);
    assert_eq!(planned("bandwidth = \"8.5 GB/s\""), ["0", "1"]);
    // 12 GB/s are enough for two of 6.
    assert_eq!(planned("bandwidth = \"6 GB/s\""), ["0", "0"]);
}

#[test]
fn where_nobody_says_what_memory_gives_traffic_does_not_count() {
    let unknown = read::from_synthetic("numa:4(memory=64GiB) core:8 pu:1").expect("a machine");
    let specs = ["a", "b"].map(|name| spec(name, 3, "bandwidth = \"high\""));
    let plans = plan_together(&unknown, &Occupancy::default(), &specs).expect("planned");
    let because = &plans[0].reasons.iter().find(|reason| reason.choice == "bandwidth: high").expect("a reason").because;
    assert!(because.contains("nobody says what the memory of this machine gives"), "{because}");
    let known = plan(&machine(12), &Occupancy::default(), &specs[0]).expect("planned");
    let because = &known.reasons.iter().find(|reason| reason.choice == "bandwidth: high").expect("a reason").because;
    assert!(because.contains("it draws 8.5 GB/s; node 0 gives 12 GB/s, of which others draw 0 MB/s"), "{because}");
    assert_eq!(known.holdings[&NodeId(0)].traffic, BytesPerSecond(8_533_333_333));
}

#[test]
fn clients_that_stream_live_apart_unless_they_are_to_be_together() {
    // Two clients of 4 vCPUs, each 11.4 GB/s. Both on one node of 18 GB/s: 4.76 GB/s too many, 1.67
    // CPUs wait; on two nodes 8 x 0.06 = 0.48 CPUs are lost to distance.
    let planned = |policy: &str| {
        let policy = format!(
            "virtual_nodes = [{{ vcpus = 4, memory = \"2 GiB\" }}, {{ vcpus = 4, memory = \"2 GiB\" }}]\n{policy}"
        );
        homes(&plan(&machine(18), &Occupancy::default(), &spec("vm", 8, &policy)).expect("planned"))
    };
    assert_eq!(planned(""), ["0", "0"]);
    assert_eq!(planned("bandwidth = \"high\""), ["0", "1"]);
    assert_eq!(planned("bandwidth = \"high\"\nplacement = \"together\""), ["0", "0"]);
    assert_eq!(planned("bandwidth = \"low\"\nplacement = \"apart\""), ["0", "1"]);
    // The words of before.
    assert_eq!(planned("bandwidth = \"high\"\nplacement = \"consolidate\""), ["0", "0"]);
    assert_eq!(planned("placement = \"clients_apart\""), ["0", "1"]);
}

#[test]
fn a_wide_uniform_vm_is_interleaved_but_where_it_waits_for_latency() {
    let planned = |policy: &str| {
        let plan = plan(&machine(18), &Occupancy::default(), &spec("vm", 12, policy)).expect("planned");
        (homes(&plan), plan.placement.clients[0].memory_policy)
    };
    let two = || vec!["0-1".to_owned()];
    assert_eq!(planned("vnuma = false"), (two(), MemoryPolicy::Interleave));
    assert_eq!(planned("vnuma = false\nbandwidth = \"high\""), (two(), MemoryPolicy::Interleave));
    let text = "name = \"vm\"\nvcpus = 12\nmemory = \"4 GiB\"\nbacking.fill = \"on_touch\"\n[policy]\nvnuma = false\n\
                bandwidth = \"low\"\n";
    let low = VmSpec::from_toml(text, "vm.toml").expect(text);
    let low = plan(&machine(18), &Occupancy::default(), &low).expect("planned");
    assert_eq!(low.placement.clients[0].memory_policy, MemoryPolicy::Bind);
}

/// Four nodes that are 20 apart. Each gives 100 GB/s; over the links between 0 and 1 go 2 GB/s each
/// way, over all others 10. A VM without vNUMA of 16 vCPUs lives on two nodes of 8 cores and draws
/// 16 x 2.84 = 45.5 GB/s, a quarter of it, 11.4, each way between them: of 2 GB/s that is 9.4 too
/// many, 2 x 9.4 / 2.84 = 6.6 CPUs wait; of 10 GB/s 2 x 1.4 / 2.84 = 0.97.
#[test]
fn a_home_of_two_nodes_is_where_the_link_between_them_carries_more() {
    let mut narrow = machine(100);
    let nodes: Vec<NodeId> = narrow.nodes.iter().map(|node| node.id).collect();
    for (from, to) in nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to))) {
        let gb = if from.0 + to.0 == 1 { 2 } else { 10 };
        if from != to {
            narrow.bandwidth.links.entry(from).or_default().insert(to, Bytes(gb * 1_000_000_000));
        }
    }
    let on = |machine: &Machine, policy: &str| {
        let plan = plan(machine, &Occupancy::default(), &spec("a", 16, &format!("vnuma = false\n{policy}")));
        let plan = plan.expect("planned");
        (homes(&plan).concat(), plan.lost_milli_cpus)
    };
    // Half of its memory is twice as far: 16 x 0.3 / 2 = 2.4 CPUs in any case.
    assert_eq!(on(&machine(100), "bandwidth = \"high\""), ("0-1".to_owned(), 2400));
    assert_eq!(on(&narrow, ""), ("0-1".to_owned(), 2400));
    assert_eq!(on(&narrow, "bandwidth = \"high\""), ("0,2".to_owned(), 2400 + 968));
    assert_eq!(on(&narrow, "bandwidth = \"high\"\nnode_affinity = \"0-1\""), ("0-1".to_owned(), 2400 + 6593));
}
