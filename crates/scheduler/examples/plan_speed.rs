//! Time and quality of plans on machines of 8 to 128 nodes: `cargo run --release -p scheduler
//! --example plan_speed`.
//!
//! Quality: what the plan loses, and what the slow search loses that has 100 times as many steps;
//! their ratio is 1 where no better plan was found.
#![allow(clippy::disallowed_methods, reason = "it measures the pure crate from outside")]

use scheduler::{EXACT_STEPS, Occupancy, plan, plan_within};
use std::time::Instant;
use topology::{Bytes, Distances, Machine, read};
use vm::{Plan, VmSpec};

/// A machine; what is free on node n of it; name.
struct Case {
    name: &'static str,
    synthetic: &'static str,
    /// Whether nodes have random parts of their memory free.
    uneven: bool,
    vms: &'static [(u32, u64, &'static str)],
}

const REPETITIONS: u32 = 5;

const CASES: [Case; 5] = [
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

fn main() {
    for case in &CASES {
        let machine = machine(case);
        println!("{}: {}", case.name, case.synthetic);
        for (vcpus, memory_gib, policy) in case.vms {
            let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n[policy]\n{policy}\n");
            measure(&machine, &VmSpec::from_toml(&text, "vm.toml").expect("a spec"), policy);
        }
    }
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
        "{vcpus:>5} vCPUs, {gib:>5} GiB, {:>3} virtual nodes: {least:8.2} ms at least, {:8.2} CPUs lost, {ratio:.4} of the slow search  {policy}",
        found.topology.nodes.len(),
        lost(&found),
    );
}
