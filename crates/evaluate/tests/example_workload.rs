//! A new workload is a type that implements `Workload`, and a line in a list: the experiment file
//! has its section, agents run it, and its quantities are in records, tables and charts. Nothing
//! else of homenode knows its name.

use crate::scripted::{Script, ScriptedWorld, machine};
use evaluate::journal::Journal;
use evaluate::parse::parse_with;
use evaluate::progress::Silent;
use evaluate::resolve::{Host as OnHost, resolve};
use evaluate::runner::Runner;
use evaluate::summary::summarise;
use evaluate::{estimate, tables, text};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use topology::Bytes;
use workloads::workload::{
    At, Better, Host, Measured, Outcome, ParameterFault, Prepared, Quantity, Repetition, Share, Threads, Together,
    Verification, Workload,
};
use workloads::{Anywhere, Kind, Placement, WorkloadError};

/// Adds up the whole numbers below a bound: the section `[sum]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sum {
    bound: u64,
}

impl Default for Sum {
    fn default() -> Self {
        Self { bound: 1000 }
    }
}

#[derive(Serialize, Deserialize)]
struct SumJob {
    bound: u64,
    threads: Threads,
}

impl Workload for Sum {
    const NAME: &'static str = "sum";
    type Job = SumJob;

    fn check(&self) -> Result<(), ParameterFault> {
        if self.bound == 0 {
            return Err(ParameterFault::new("bound", self.bound, "expected 1 or more"));
        }
        Ok(())
    }

    fn quantities(&self) -> Vec<Quantity> {
        let at = |value| {
            let (series, parameter, unit) = ("cost".to_owned(), "size".to_owned(), "B".to_owned());
            At { series, parameter, unit, value }
        };
        let quantity = |name: &str, unit: &str, better, together| Quantity {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better,
            together,
            decimals: 1,
            at: None,
        };
        vec![
            quantity("additions", "10^6/s", Better::More, Together::Sum),
            quantity("time", "s", Better::Less, Together::Largest),
            Quantity { at: Some(at(8)), ..quantity("cost at 8 B", "us", Better::Less, Together::Mean) },
            Quantity { at: Some(at(4096)), ..quantity("cost at 4096 B", "us", Better::Less, Together::Mean) },
        ]
    }

    fn memory(&self, _: u32) -> Bytes {
        Bytes::from_mib(1)
    }

    fn seconds(&self, _: u32, _: bool) -> f64 {
        self.bound as f64 * 1e-9
    }

    fn job(&self, share: &Share) -> SumJob {
        SumJob { bound: self.bound / u64::from(share.participants), threads: share.threads }
    }

    fn prepare(job: &SumJob, _: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        host.place(&job.threads)?.place_thread(0)?;
        Ok(Box::new(Adding { bound: job.bound, threads: job.threads.count, found: 0 }))
    }
}

struct Adding {
    bound: u64,
    threads: u32,
    found: u64,
}

impl Prepared for Adding {
    /// As if each thread took 1 µs for each number.
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        self.found = (0..self.bound).sum();
        let seconds = self.bound as f64 * 1e-6 / f64::from(self.threads);
        let figure = |quantity: &str, value| Measured { quantity: quantity.to_owned(), value };
        let cost = |name, bytes: f64| figure(name, bytes * seconds);
        let figures = vec![
            figure("additions", self.bound as f64 / seconds / 1e6),
            figure("time", seconds),
            cost("cost at 8 B", 8.0),
            cost("cost at 4096 B", 4096.0),
        ];
        Ok(Repetition { figures, phases: vec![seconds] })
    }

    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let right = self.bound * (self.bound - 1) / 2;
        let verification = if self.found == right {
            Verification::Verified
        } else {
            Verification::Wrong { reason: format!("the sum is {}, not {right}", self.found) }
        };
        Ok(Outcome { verification, thread_cpus: vec![String::new()], pages_by_node: Vec::new() })
    }
}

struct AnyHost;

impl Host for AnyHost {
    fn check_memory(&self, _: &str, _: Bytes, _: Option<u32>) -> Result<(), WorkloadError> {
        Ok(())
    }
    fn place(&self, _: &Threads) -> Result<Arc<dyn Placement>, WorkloadError> {
        Ok(Arc::new(Anywhere))
    }
}

/// The line.
const SUM: Kind = Kind::of::<Sum>();

const EXPERIMENT: &str = "name = \"s\"\ntitle = \"Sums\"\nworkload = \"sum\"\nthreads = [1, 2]\nrepetitions = 2\n\
    [sum]\nbound = 4_000_000\n\
    [[configuration]]\nname = \"native\"\nruns = \"native\"\n[[configuration]]\nname = \"two VMs\"\nruns = \
    \"vms\"\nvms = 2\n";

/// The tables of a measurement.
fn measured(script: Script) -> String {
    let path = Path::new("sum.toml");
    let experiment = parse_with(EXPERIMENT, path, &[SUM]).expect("an experiment");
    let machine = machine();
    let host = OnHost { machine: &machine, available: Bytes(64 << 30), emulated: false };
    let resolved =
        resolve(&experiment, &host, &|machine, specs| scheduler::plan_together(machine, &Default::default(), specs))
            .expect("resolved");
    let run = |job: serde_json::Value, repetitions: u32| SUM.prepare(job, repetitions, &AnyHost).expect("a job");
    let mut world = ScriptedWorld::new(Script { run: Some(run), ..script });
    let mut journal = Journal::without_name().expect("a journal");
    let visits = estimate::visits(&resolved);
    let cancelled = AtomicBool::new(false);
    Runner::new(&resolved, &mut world, &mut journal, &mut Silent, &cancelled, 0).run(&visits).expect("it runs");
    let summary = summarise(&resolved, &journal.into_records().expect("records"));
    text::render(&summary, &tables::all(&resolved, &summary), None)
}

#[test]
fn a_workload_that_nothing_else_knows_is_measured_and_stands_in_the_tables() {
    let text = measured(Script::default());
    // 10^6 a second of each thread; 4 x 10^6 numbers take 4 s with one, and half of them 2 s in
    // each of two VMs with one each.
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["additions, 10^6/s 1.0 2.0 time, s 4.0 2.0", "additions, 10^6/s 2.0 time, s 2.0", "two VMs additions 1.00"]
    {
        assert!(squeezed.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_series_has_a_row_for_each_size_and_a_column_for_each_configuration() {
    let text = measured(Script::default());
    let squeezed = text.split(|letter: char| letter.is_whitespace() || letter == '─').collect::<Vec<_>>();
    let squeezed = squeezed.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    // With 2 threads 4 x 10^6 numbers take 2 s natively, and as long in two VMs with one each.
    for part in [
        "cost, us, over size, 2 threads size, B native two VMs 8 16.0 16.0 4096 8192.0 8192.0",
        "cost: virtual / native, over size, 2 threads size, B two VMs 8 1.00",
    ] {
        assert!(squeezed.contains(part), "{part}: {squeezed}");
    }
    assert!(!squeezed.contains("cost at 8 B"), "no other table has it: {squeezed}");
}

#[test]
fn a_wrong_result_says_so_at_each_quantity_of_the_workload() {
    let text = measured(Script { wrong: true, ..Script::default() });
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["Native: native (on the host)", "additions, 10^6/s wrong wrong time, s wrong wrong"] {
        assert!(squeezed.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("bandwidth"), "no table of this workload has MB/s: {text}");
}

#[test]
fn its_section_is_checked_as_those_of_others() {
    let wrong = |from: &str, to: &str| {
        parse_with(&EXPERIMENT.replace(from, to), Path::new("sum.toml"), &[SUM]).expect_err(to).to_string()
    };
    let zero = wrong("4_000_000", "0");
    assert!(zero.contains("sum.toml:7: sum.bound = 0: expected 1 or more"), "{zero}");
    let unknown = wrong("bound =", "bond =");
    assert!(unknown.contains("sum.toml:7: sum.bond") && unknown.contains("`bound`"), "{unknown}");
    let other = wrong("\"sum\"", "\"stream\"");
    assert!(other.contains("workload = \"stream\": expected one of sum, numa_matrix, application"), "{other}");
}
