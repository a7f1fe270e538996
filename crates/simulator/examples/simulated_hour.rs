//! How fast a simulated hour is: 100 VMs on 8 nodes, rebalanced every 2 s. Arguments: machine, VMs,
//! solver (`amva` or `max-min`).
#![allow(clippy::disallowed_methods, reason = "it measures the time that the run takes")]

use scheduler::balance::BalancePolicy;
use simulator::rivals::{Homenode, row, run};
use simulator::traces::TraceRule;
use simulator::{Amva, MachineModel, MaxMin, RateSolver};
use std::time::Instant;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("hp-dl980-g7", String::as_str);
    let vms: u32 = arguments.get(1).map_or(100, |vms| vms.parse().expect("VMS is a number"));
    let is_max_min = arguments.get(2).is_some_and(|solver| solver == "max-min");
    let described = topology::read::shipped_described(name).expect("a shipped machine").expect("a valid machine");
    let rates = described.rates.expect("a machine with rates");
    let model = MachineModel::new(&described.machine, &rates).expect("a model");
    let trace = TraceRule { vms, ..TraceRule::default() }.generate(&described.machine, 1);
    let solver: Box<dyn RateSolver> = if is_max_min { Box::new(MaxMin::default()) } else { Box::new(Amva::default()) };
    let (solver_name, mut homenode) = (solver.name(), Homenode::new("homenode", BalancePolicy::default()));
    let steps = trace.ends.0 / BalancePolicy::default().period_ms;
    let start = Instant::now();
    let host = run(&model, solver, &trace, &mut homenode).expect("rates");
    let wall_s = start.elapsed().as_secs_f64();
    let (solved, asked) = host.solved();
    println!(
        "a simulated hour of {vms} VMs on {} nodes of {name}, {steps} steps: {wall_s:.2} s",
        described.machine.nodes.len()
    );
    println!("{solver_name}: {solved} states solved of {asked} asked for");
    println!("{:?}", row("homenode".to_owned(), trace.ends, &host.accounts()));
}
