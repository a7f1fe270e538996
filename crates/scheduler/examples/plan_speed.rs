//! Prints how long one plan takes on a machine of 8 nodes and 512 hardware threads: `cargo run --release -p scheduler --example plan_speed`.
#![allow(clippy::disallowed_methods, reason = "it measures the pure crate from outside")]

use scheduler::{Occupancy, VmSpec, plan};
use std::time::Instant;
use topology::read;

const MACHINE: &str = "pack:2 numa:4(memory=128GB) l3:4 core:8 pu:2";
const REPETITIONS: u32 = 20;

fn main() {
    let machine = read::from_synthetic(MACHINE).expect("a machine");
    println!("{MACHINE}: {} nodes, {} hardware threads", machine.nodes.len(), machine.threads.len());
    for (vcpus, memory_gib, policy) in [
        (2, 4, ""),
        (64, 64, ""),
        (256, 512, ""),
        (256, 512, "placement = \"spread\""),
        (8, 600, ""),
        (250, 800, "max_vcpus_per_node = 10"),
        (256, 512, "max_vcpus_per_node = 2"),
        (256, 900, "vnuma = false"),
    ] {
        let text = format!("name = \"vm\"\nvcpus = {vcpus}\nmemory = \"{memory_gib} GiB\"\n[policy]\n{policy}\n");
        let spec = VmSpec::from_toml(&text, "vm.toml").expect("a spec");
        let mut worst = 0.0f64;
        let mut nodes = 0;
        for _ in 0..REPETITIONS {
            let start = Instant::now();
            let plan = plan(&machine, &Occupancy::default(), &spec).expect("a plan");
            worst = worst.max(start.elapsed().as_secs_f64() * 1e3);
            nodes = plan.topology.nodes.len();
        }
        println!("{vcpus:>4} vCPUs, {memory_gib:>4} GiB, {nodes:>3} virtual nodes: {worst:7.3} ms at most  {policy}");
    }
}
