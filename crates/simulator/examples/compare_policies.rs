//! Prints the comparison of docs/balancer-comparison.md.
//!
//! `compare_policies [MACHINE [HOURS [SEEDS]]]` draws traces from seeds. For a trace of your own:
//! `homenode balance --on MACHINE --trace FILE --against NAMES`.

use simulator::rivals::{Row, compare};
use simulator::traces::{Trace, TraceRule};
use simulator::{MachineModel, MaxMin};
use topology::Machine;

/// CPUs that all VMs want for each core.
const LOADS: [(&str, f64); 3] = [("half loaded", 0.5), ("well loaded", 0.9), ("overcommitted", 2.2)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("dell-r910", String::as_str);
    let described = topology::read::shipped_described(name).expect("a shipped machine").expect("a valid machine");
    let rates = described.rates.expect("a machine with rates");
    let (machine, model) = (&described.machine, MachineModel::new(&described.machine, &rates).expect("a model"));
    let hours: f64 = arguments.get(1).map_or(2.0, |hours| hours.parse().expect("HOURS is a number"));
    let seeds: u64 = arguments.get(2).map_or(20, |seeds| seeds.parse().expect("SEEDS is a number"));
    println!("Modelled: {name}, {hours} h, seeds 1 to {seeds}, max-min solver");
    for (title, load) in LOADS {
        let rule = rule(machine, hours, load);
        let traces: Vec<Trace> = (1..=seeds).map(|seed| rule.generate(machine, seed)).collect();
        print(&model, &format!("{title}: {load} CPUs wanted for each core"), &traces);
    }
}

fn rule(machine: &Machine, hours: f64, load: f64) -> TraceRule {
    let cores: usize = machine.nodes.iter().map(|node| machine.usable_cores(node.id).len()).sum();
    TraceRule { seconds: hours * 3600.0, vms: cores as u32, load, ..TraceRule::default() }
}

fn print(model: &MachineModel, title: &str, traces: &[Trace]) {
    let rows: Vec<Row> = compare(model, || Box::new(MaxMin::default()), traces).expect("rates");
    println!("\n{title}, {} VMs in all\n", rows[0].vms);
    println!(
        "| modelled | throughput | worst VM | remote | waited | moved GiB | binds |\n|---|---|---|---|---|---|---|"
    );
    for row in rows {
        let [throughput, worst, remote, waited] = [row.throughput, row.worst, row.remote_part, row.waited_part]
            .map(|part| part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part)));
        let moved = row.moved_bytes as f64 / (1u64 << 30) as f64;
        println!("| {} | {throughput} | {worst} | {remote} | {waited} | {moved:.0} | {} |", row.rival, row.binds);
    }
}
