//! Prints the comparison of docs/balancer-comparison.md: everybody who places VMs, on traces drawn
//! from seeds, with differences paired by seed.
//!
//! `compare_policies --help` says what it takes. For a trace of your own: `homenode balance --on
//! MACHINE --trace FILE --against NAMES`.

mod arguments;

use arguments::{Arguments, Load, USAGE};
use simulator::rivals::{Figure, OURS, Row, Series, compared, named, standing};
use simulator::traces::{Trace, TraceRule};
use simulator::{MachineModel, MaxMin, SolveError};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use topology::Machine;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.peek().is_some_and(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Arguments::read(words).and_then(|arguments| all(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare_policies: {error}");
            ExitCode::from(2)
        }
    }
}

fn all(arguments: &Arguments) -> Result<(), String> {
    for name in &arguments.machines {
        let model = model(name)?;
        let (first, last) = (arguments.seeds.start(), arguments.seeds.end());
        println!("# {name}: {} h, seeds {first} to {last}, max-min solver; all figures are modelled", arguments.hours);
        for load in &arguments.loads {
            let rule = rule(model.machine(), arguments.hours, load.cpus_per_core);
            let seeds = arguments.seeds.clone();
            let traces: Vec<Trace> = seeds.map(|seed| rule.generate(model.machine(), seed)).collect();
            let series = run(&model, arguments, &traces).map_err(|error| error.to_string())?;
            print(load, &series);
        }
    }
    Ok(())
}

fn model(name: &str) -> Result<MachineModel, String> {
    let described = topology::read::shipped_described(name).ok_or_else(|| format!("{name}: no such machine"))?;
    let described = described.map_err(|error| error.to_string())?;
    let rates = described.rates.ok_or_else(|| format!("{name}: it has no rates"))?;
    MachineModel::new(&described.machine, &rates).map_err(|error| error.to_string())
}

fn rule(machine: &Machine, hours: f64, load: f64) -> TraceRule {
    let cores: usize = machine.nodes.iter().map(|node| machine.usable_cores(node.id).len()).sum();
    TraceRule { seconds: hours * 3600.0, vms: cores as u32, load, ..TraceRule::default() }
}

/// Everybody on every trace. Each run is alone on a host of its own, so that the order in which
/// threads take them changes nothing.
fn run(model: &MachineModel, arguments: &Arguments, traces: &[Trace]) -> Result<Vec<Series>, SolveError> {
    let jobs = arguments.rivals.len() * traces.len();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(vec![None; jobs]));
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = arguments.rivals.get(job / traces.len()) else { return };
            let mut rival = named(name, &arguments.policy).expect("checked when it was read");
            let row = compared(model, Box::new(MaxMin::default()), &traces[job % traces.len()], rival.as_mut());
            rows.lock().expect("no thread panicked")[job] = Some(row);
        }
    };
    std::thread::scope(|scope| (0..arguments.threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    let rows: Result<Vec<Row>, SolveError> =
        rows.into_inner().expect("no thread panicked").into_iter().flatten().collect();
    let rows = rows?;
    let series =
        |(name, rows): (&String, &[Row])| Series { rows: rows.to_vec(), is_rival: !OURS.contains(&name.as_str()) };
    Ok(arguments.rivals.iter().zip(rows.chunks(traces.len())).map(series).collect())
}

const THROUGHPUT: Figure = |row| row.throughput;
const WORST: Figure = |row| row.worst;

fn print(load: &Load, series: &[Series]) {
    let vms: usize = series.first().map_or(0, |first| first.rows.iter().map(|row| row.vms).sum());
    println!("\n{}: {} CPUs wanted for each core, {vms} VMs in all\n", load.title, load.cpus_per_core);
    println!(
        "| modelled | throughput | worst VM | remote | waited | GiB/h | binds/h | throughput beside homenode | worst VM \
         beside homenode |\n|---|---|---|---|---|---|---|---|---|"
    );
    for (index, one) in series.iter().enumerate() {
        let percent = |figure| one.mean(figure).map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part));
        let number = |figure: Figure| one.mean(figure).map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
        let beside = |figure| {
            let difference = series.first().filter(|_| index > 0).and_then(|first| one.against(first, figure));
            difference.map_or_else(|| "-".to_owned(), |difference| difference.to_string())
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            one.rival(),
            percent(THROUGHPUT),
            percent(WORST),
            percent(|row| row.remote_part),
            percent(|row| row.waited_part),
            number(|row| Some(row.moved_gib_per_hour())),
            number(|row| Some(row.binds_per_hour())),
            beside(THROUGHPUT),
            beside(WORST),
        );
    }
    println!("\nthroughput: {}", standing(series, THROUGHPUT));
    println!("worst VM: {}\n", standing(series, WORST));
}
