//! Time and quality of plans on machines of 8 to 128 nodes: `cargo run --release -p scheduler
//! --example plan_speed`, or `-- caches` for the machines with that in their names.
//!
//! Quality: what the plan loses, and what the slow search loses that has 100 times as many steps;
//! their ratio is 1 where no better plan was found. Arrivals (`scheduler::rehome`): the map costs
//! what it loses and what it is charged for distances that the guest was not told.
#![allow(clippy::disallowed_methods, reason = "it measures the pure crate from outside")]

use scheduler::{EXACT_STEPS, Occupancy, plan, plan_within, rehome, rehome_within};
use std::time::Instant;
use topology::{Bytes, Distances, Machine, read};
use vm::{Plan, VirtualNode, VirtualTopology, VmSpec};

/// A machine; what is free on node n of it; name.
struct Case {
    name: &'static str,
    synthetic: &'static str,
    /// Whether nodes have random parts of their memory free.
    uneven: bool,
    vms: &'static [(u32, u64, &'static str)],
}

const REPETITIONS: u32 = 5;
/// Arrivals are short, so that another program that runs now and then shows more.
const ARRIVAL_REPETITIONS: u32 = 20;

const CASES: [Case; 6] = [
    Case {
        name: "2 x NPS 4, 32 caches of 4 cores",
        synthetic: "pack:2 numa:4(memory=128GiB) l3:4 core:4 pu:2",
        uneven: false,
        vms: &[
            (128, 512, "cache = \"ignore\""),
            (128, 512, "cores_per_socket = 4"),
            (128, 512, "cache = \"pack\""),
            (128, 512, "cache = \"own\""),
            (32, 64, "cache = \"own\""),
        ],
    },
    Case {
        name: "8 nodes, 512 threads",
        synthetic: "pack:2 numa:4(memory=128GiB) l3:4 core:8 pu:2",
        uneven: false,
        vms: &[
            (2, 4, ""),
            (64, 64, ""),
            (256, 512, ""),
            (256, 512, "placement = \"most_virtual_nodes\""),
            (8, 600, ""),
            (250, 800, "max_vcpus_per_node = 10"),
            (256, 512, "max_vcpus_per_node = 2"),
            (256, 900, "vnuma = false"),
        ],
    },
    Case {
        name: "8 nodes, 512 threads, random free memory",
        synthetic: "pack:2 numa:4(memory=128GiB) l3:4 core:8 pu:2",
        uneven: true,
        vms: &[(64, 64, ""), (256, 400, ""), (512, 400, ""), (250, 400, "max_vcpus_per_node = 10")],
    },
    Case {
        name: "64 nodes, 1024 threads",
        synthetic: "pack:16 numa:4(memory=64GiB) l3:1 core:8 pu:2",
        uneven: false,
        vms: &[
            (2, 4, ""),
            (24, 24, ""),
            (128, 256, ""),
            (128, 256, "max_vcpus_per_node = 2"),
            (512, 1024, ""),
            (1024, 2048, "max_vcpus_per_node = 8"),
            (24, 2048, ""),
            (100, 3000, "vnuma = false"),
        ],
    },
    Case {
        name: "64 nodes, 1024 threads, random free memory",
        synthetic: "pack:16 numa:4(memory=64GiB) l3:1 core:8 pu:2",
        uneven: true,
        vms: &[(128, 256, ""), (128, 1500, ""), (512, 1700, ""), (1024, 1700, "max_vcpus_per_node = 8")],
    },
    Case {
        name: "128 nodes, 4096 threads, random free memory",
        synthetic: "pack:32 numa:4(memory=64GiB) l3:1 core:16 pu:2",
        uneven: true,
        vms: &[
            (2, 4, ""),
            (128, 256, ""),
            (2048, 1024, ""),
            (4096, 3400, ""),
            (4096, 2048, "max_vcpus_per_node = 32"),
            (4000, 3000, "vnuma = false"),
        ],
    },
];

/// With an argument: only the machines whose names contain it, without arrivals.
fn main() {
    let only = std::env::args().nth(1);
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only))) {
        let machine = machine(case);
        println!("{}: {}", case.name, case.synthetic);
        for (vcpus, memory_gib, policy) in case.vms {
            let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n[policy]\n{policy}\n");
            measure(&machine, &VmSpec::from_toml(&text, "vm.toml").expect("a spec"), policy);
        }
    }
    if only.is_some() {
        return;
    }
    for case in CASES.iter().filter(|case| case.name.starts_with("8 nodes")) {
        println!("arrival on {}", case.name);
        ARRIVALS.iter().for_each(|arrival| arrive(&machine(case), arrival));
    }
    for case in CASES.iter().filter(|case| case.name.starts_with("64 nodes")) {
        println!("arrival on {}", case.name);
        LARGE_ARRIVALS.iter().for_each(|arrival| arrive(&machine(case), arrival));
    }
}

/// A VM that arrives.
struct Arrival {
    name: &'static str,
    /// Virtual nodes, vCPUs and GiB of each.
    nodes: (u32, u32, u64),
    /// What the guest was told from virtual node i to j.
    told: fn(u32, u32) -> u32,
}

/// Told by the machine of [`machine`], its nodes in another order.
fn shuffled(i: u32, j: u32) -> u32 {
    let (i, j) = (i * 5 % 8, j * 5 % 8);
    if i / 4 == j / 4 { 12 } else { 22 }
}

fn pairs(i: u32, j: u32) -> u32 {
    if i / 2 == j / 2 { 12 } else { 32 }
}

fn ring(i: u32, j: u32) -> u32 {
    let away = i.abs_diff(j);
    10 + 6 * away.min(8 - away)
}

fn flat(_: u32, _: u32) -> u32 {
    20
}

const ARRIVALS: [Arrival; 9] = [
    Arrival { name: "one to one, as told", nodes: (8, 32, 64), told: shuffled },
    Arrival { name: "one to one, told pairs", nodes: (8, 32, 64), told: pairs },
    Arrival { name: "one to one, told a ring", nodes: (8, 32, 64), told: ring },
    Arrival { name: "4 of 8 nodes, told a ring", nodes: (4, 32, 64), told: ring },
    Arrival { name: "small nodes, told a ring", nodes: (8, 2, 4), told: ring },
    Arrival { name: "2 of 8 nodes", nodes: (2, 32, 64), told: flat },
    Arrival { name: "4 to 8, pairs", nodes: (4, 64, 120), told: pairs },
    Arrival { name: "2 to 8, fours", nodes: (2, 128, 240), told: flat },
    Arrival { name: "16 to 8, told a ring of 8", nodes: (16, 16, 32), told: |i, j| ring(i / 2, j / 2).max(11) },
];

const LARGE_ARRIVALS: [Arrival; 3] = [
    Arrival { name: "16 of 64 nodes, told pairs", nodes: (16, 8, 16), told: pairs },
    Arrival { name: "64 of 64 nodes, told flat", nodes: (64, 8, 16), told: flat },
    Arrival { name: "128 to 64, told pairs", nodes: (128, 4, 8), told: pairs },
];

fn topology(arrival: &Arrival) -> VirtualTopology {
    let (count, vcpus, gib) = arrival.nodes;
    let node = |id: u32| VirtualNode {
        id,
        vcpus: (id * vcpus..(id + 1) * vcpus).collect(),
        memory: Bytes(gib << 30),
        ..VirtualNode::default()
    };
    let row = |i: u32| (0..count).map(|j| if i == j { 10 } else { (arrival.told)(i, j) }).collect();
    VirtualTopology {
        exposed: true,
        nodes: (0..count).map(node).collect(),
        sockets: count,
        cores_per_socket: vcpus,
        dies_per_socket: 1,
        threads_per_core: 1,
        distances: (0..count).map(row).collect(),
    }
}

/// CPUs that a map loses and is charged (docs/placement.md).
fn cost(plan: &Plan) -> f64 {
    let (told, real) = (&plan.topology.distances, &plan.expected.distances);
    let clients = &plan.placement.clients;
    let mut charged = 0.0;
    for i in 0..clients.len() {
        for j in (0..clients.len()).filter(|&j| clients[i].home != clients[j].home) {
            let difference = f64::from(told[i][j].abs_diff(real[i][j])) / 10.0;
            charged += plan.topology.nodes[i].vcpus.len() as f64 * 0.06 * difference / (clients.len() - 1) as f64;
        }
    }
    plan.lost_milli_cpus as f64 / 1000.0 + charged
}

fn arrive(machine: &Machine, arrival: &Arrival) {
    let spec = VmSpec::from_toml("name = \"vm\"\nvcpus = 1\nmemory = \"1 GiB\"\n", "vm.toml").expect("a spec");
    let (topology, nobody) = (topology(arrival), Occupancy::default());
    let mut least = f64::INFINITY;
    let mut planned = None;
    for _ in 0..ARRIVAL_REPETITIONS {
        let start = Instant::now();
        planned = Some(rehome(machine, &nobody, &spec, &topology, &[]));
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let found = match planned.expect("a repetition") {
        Ok(found) => found,
        Err(_) => return println!("{:>26}: not enough memory", arrival.name),
    };
    let slow = rehome_within(machine, &nobody, &spec, &topology, &[], 100 * EXACT_STEPS).expect("a plan");
    let ratio = if cost(&slow) > 0.0 { cost(&found) / cost(&slow) } else { 1.0 };
    let exact = if found.reasons.iter().any(|reason| reason.choice.starts_with("search")) { "" } else { ", exact" };
    println!(
        "{:>26}: {least:8.2} ms at least, {:8.2} CPUs lost, {:8.2} with the charge, {ratio:.4} of the slow \
        search{exact}",
        arrival.name,
        found.lost_milli_cpus as f64 / 1000.0,
        cost(&found),
    );
}

fn machine(case: &Case) -> Machine {
    let mut machine = read::from_synthetic(case.synthetic).expect("a machine");
    let ids: Vec<_> = machine.nodes.iter().map(|node| node.id).collect();
    // Four nodes a socket, sockets on a ring: the farther round, the farther away.
    let sockets = (ids.len() / 4) as u32;
    let distance = |i: u32, j: u32| match ((i / 4).abs_diff(j / 4), i == j) {
        (_, true) => 10,
        (0, _) => 12,
        (away, _) => 20 + 2 * away.min(sockets - away),
    };
    let rows = (0..ids.len() as u32).map(|i| (0..ids.len() as u32).map(|j| distance(i, j)).collect()).collect();
    machine.distances = Distances::new(ids, rows).expect("square");
    let mut random = 88_172_645_463_325_252u64;
    for node in machine.nodes.iter_mut().filter(|_| case.uneven) {
        // xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        node.free = Some(Bytes(node.memory.0 / 100 * (random % 101)));
    }
    machine
}

fn measure(machine: &Machine, spec: &VmSpec, policy: &str) {
    let (vcpus, gib) = (spec.vcpus, spec.memory.0 >> 30);
    let mut least = f64::INFINITY;
    let mut planned = None;
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        planned = Some(plan(machine, &Occupancy::default(), spec));
        least = least.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let found: Plan = match planned.expect("a repetition") {
        Ok(found) => found,
        Err(error) => return println!("{vcpus:>5} vCPUs, {gib:>5} GiB: {error}"),
    };
    let slow = plan_within(machine, &Occupancy::default(), spec, 100 * EXACT_STEPS).expect("a plan");
    let lost = |plan: &Plan| plan.lost_milli_cpus as f64 / 1000.0;
    let ratio = if lost(&slow) > 0.0 { lost(&found) / lost(&slow) } else { 1.0 };
    println!(
        "{vcpus:>5} vCPUs, {gib:>5} GiB, {:>3} virtual nodes: {least:8.2} ms at least, {:8.2} CPUs lost, {ratio:.4} of \
        the slow search  {policy}",
        found.topology.nodes.len(),
        lost(&found),
    );
}
