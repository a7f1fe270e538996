//! Programs that nobody may ship are measured as kernels in their place: on any host, beside what
//! is published and what is modelled.

use crate::scripted::{Script, ScriptedWorld};
use evaluate::applications::{Widths, narrowed};
use evaluate::environment::Environment;
use evaluate::experiment::Experiment;
use evaluate::journal::Journal;
use evaluate::modelled::beside::{MeasuredRun, beside};
use evaluate::parse::parse;
use evaluate::point::Point;
use evaluate::progress::Silent;
use evaluate::resolve::{Host, Resolved, resolve};
use evaluate::runner::Runner;
use evaluate::summary::{Summary, summarise};
use evaluate::tables::{self, Table};
use evaluate::{estimate, validation::shipped};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use topology::{Bytes, Machine};
use workloads::WorkloadError;
use workloads::kernel::Programs;
use workloads::workload::{Measured, Outcome, Prepared, Repetition, Verification, Workload};

const SPEC_OMP: &str = include_str!("../../../experiments/spec-omp.toml");
const SPEC_MPI: &str = include_str!("../../../experiments/spec-mpi.toml");
/// Two CPUs, and 8 GB.
const SMALL: &str = "pack:1 [numa(memory=8GB)] l3:1(size=32MB) core:2 pu:1";
/// The machine of spec-mpi: four nodes of eight cores with two hardware threads each.
const R910: &str = "pack:4 [numa(memory=64GB)] l3:1(size=24MB) core:8 pu:2";

fn experiment(text: &str) -> Experiment {
    parse(text, Path::new("spec.toml")).expect("an experiment")
}

fn synthetic(machine: &str) -> Machine {
    topology::read::from_synthetic(machine).expect("a machine")
}

fn on(text: &str, machine: &Machine, emulated: bool) -> (Resolved, String) {
    let available: Bytes = machine.nodes.iter().map(|node| node.memory).sum();
    let (narrow, notes) = narrowed(&experiment(text), machine, available, Widths::OfTheFile);
    let host = Host { machine, available, emulated };
    let planner =
        |machine: &Machine, specs: &[vm::VmSpec]| scheduler::plan_together(machine, &Default::default(), specs);
    (resolve(&narrow, &host, &planner).expect("resolved"), notes.join("\n"))
}

fn widths(resolved: &Resolved) -> Vec<(&str, Vec<u32>)> {
    let of = |points: &[Point]| points.iter().filter_map(Point::width).collect();
    resolved.configurations.iter().map(|one| (one.name.as_str(), of(&one.points))).collect()
}

#[test]
fn an_experiment_of_a_large_machine_runs_as_far_as_the_host_goes() {
    let (resolved, notes) = on(SPEC_OMP, &synthetic(SMALL), true);
    assert_eq!(widths(&resolved), [("Native", vec![1, 2]), ("Default", vec![1, 2]), ("vNUMA", vec![1, 2])]);
    assert!(notes.contains("threads = [4, 8, 16, 32, 64]: this host has 2 hardware threads"), "{notes}");
    // Emulated: the smallest class; and the line says which kernel stands for which program.
    let about = &resolved.workloads[0].about;
    assert!(about.contains("class S") && about.contains("conjugate_gradient for equake"), "{about}");

    let (resolved, notes) = on(SPEC_MPI, &synthetic(SMALL), false);
    assert_eq!(widths(&resolved).len(), 3, "{:?}", widths(&resolved));
    assert!(notes.contains("Left out: 4 vCPUs; 8 vCPUs; 16 vCPUs."), "{notes}");
    let said = resolved.notes.join("\n");
    assert!(said.contains("Ranks are threads") && said.contains("Native, HT off"), "{said}");
}

#[test]
fn on_a_machine_like_the_papers_it_has_the_papers_shape() {
    let (resolved, notes) = on(SPEC_MPI, &synthetic(R910), false);
    let expected: [(&str, Vec<u32>); 6] = [
        ("Native", vec![4, 8, 16, 32, 64]),
        ("Default", vec![4, 8, 16, 32]),
        ("vNUMA", vec![4, 8, 16, 32]),
        ("4 vCPUs", vec![4]),
        ("8 vCPUs", vec![4, 8]),
        ("16 vCPUs", vec![4, 8, 16]),
    ];
    assert_eq!((widths(&resolved), notes.as_str()), (expected.to_vec(), ""));
}

/// Each program takes 8 s with one thread, and scales.
struct Scales(<Programs as Workload>::Job);

impl Prepared for Scales {
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        let value = 8.0 / f64::from(self.0.threads.count);
        let figure = |name: &str| Measured { quantity: name.to_owned(), value };
        let figures = self.0.programs.iter().map(|program| figure(&program.name)).collect();
        Ok(Repetition { figures, phases: vec![value] })
    }

    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let thread_cpus = vec![String::new(); self.0.threads.count as usize];
        Ok(Outcome { verification: Verification::Verified, thread_cpus, pages_by_node: Vec::new() })
    }
}

/// A run of spec-omp on two nodes of four cores.
fn measured() -> (Resolved, Summary) {
    let text = SPEC_OMP.replacen("threads = [4,", "repetitions = 2\nrounds = 1\nthreads = [4,", 1);
    let (resolved, _) = on(&text, &crate::scripted::machine(), false);
    let run = |job: serde_json::Value, _: u32| -> Box<dyn Prepared> {
        Box::new(Scales(serde_json::from_value(job).expect("a job of kernels")))
    };
    let mut world = ScriptedWorld::new(Script { run: Some(run), ..Script::default() });
    let mut journal = Journal::without_name().expect("a journal");
    let visits = estimate::visits(&resolved);
    let cancelled = AtomicBool::new(false);
    Runner::new(&resolved, &mut world, &mut journal, &mut Silent, &cancelled, 0).run(&visits).expect("it runs");
    let summary = summarise(&resolved, &journal.into_records().expect("records"));
    (resolved, summary)
}

fn row<'a>(tables: &'a [Table], title: &str, name: &str, below: usize) -> Vec<&'a str> {
    let table = tables.iter().find(|table| table.title.contains(title)).unwrap_or_else(|| panic!("{title}"));
    let at = table.rows.iter().position(|row| row.cells[0] == name).unwrap_or_else(|| panic!("{name}: {table:?}"));
    table.rows[at + below].cells.iter().map(String::as_str).collect()
}

#[test]
fn measured_ratios_stand_beside_the_published_ones() {
    let (resolved, summary) = measured();
    let tables = tables::all(&resolved, &summary);
    let gain = "Gain of vNUMA over interleaved memory: time of Default / time of vNUMA";
    // The host has eight cores without a second hardware thread: 16 are not measured.
    assert_eq!(row(&tables, gain, "swim", 0), ["swim", "0.0 %", "0.0 %", "-", "-"]);
    assert_eq!(row(&tables, gain, "swim", 1), ["  published", "-", "-", "[167.0 %]", "[72.0 %]"]);
    // 8 s / 4 by 8 s / 8 is 2.
    let scaling = "Scaling of the native runs: time of Native with 4 threads";
    assert_eq!(row(&tables, scaling, "applu", 0), ["applu", "1.00", "2.00"]);
}

#[test]
fn measured_ratios_stand_beside_the_modelled_ones() {
    let (resolved, summary) = measured();
    let machine = topology::read::shipped_described("hp-dl980-g7").expect("shipped").expect("valid");
    let experiment = experiment(SPEC_OMP);
    let mut prediction = shipped::run(&experiment, "spec-omp.toml", Some(&machine), 1).expect("figures");
    let (none, at) = ("none".to_owned(), "2026-01-01T00:00:00Z".to_owned());
    let environment = Environment::of_host(&crate::scripted::machine(), Bytes(1 << 30), none, Vec::new(), at);
    let run =
        MeasuredRun { directory: "run".into(), summary, resolved, experiment: Some(experiment.clone()), environment };
    beside(&experiment, &mut prediction, &run).expect("of the same experiment");
    let tables = tables::modelled(&experiment, &prediction);
    let gain = "MODELLED Gain of vNUMA over interleaved memory";
    assert_eq!(row(&tables, gain, "swim", 1), ["  measured", "0.0 %", "0.0 %", "-", "-", "-"]);
    assert_eq!(
        row(&tables, gain, "swim", 2)[3..],
        ["[167.0 %]", "-", "[72.0 %]"].map(|cell| { if cell == "-" { "not published in text" } else { cell } })
    );
    assert!(row(&tables, gain, "swim", 0)[3].starts_with("≈ "));
}

#[test]
fn a_kernel_in_the_place_of_a_program_that_is_none_of_the_experiment_is_refused() {
    let refused = |from: &str, to: &str| {
        let text = SPEC_OMP.replacen(from, to, 1);
        parse(&text, Path::new("spec.toml")).expect_err(to).to_string()
    };
    let kernel = refused("\"fft3d\"", "\"fft\"");
    assert!(kernel.contains("kernels.programs[6].kernel = \"fft\": expected one of adaptive_resonance"), "{kernel}");
    let program = refused("{ name = \"apsi\"", "{ name = \"apsy\"");
    assert!(program.contains("kernels.programs = \"apsy\": expected one of swim, art"), "{program}");
    let class = refused("[kernels]", "[kernels]\nclass = \"D\"");
    assert!(class.contains("kernels.class") && class.contains("\"auto\" or one of \"S\""), "{class}");
    let none = SPEC_OMP.replacen("workload = \"application\"", "workload = \"kernels\"", 1);
    let none = &none[..none.find("[application]").expect("a section")];
    let native = "[[configuration]]\nname = \"Native\"\nruns = \"native\"\n";
    let error = parse(&format!("{none}{native}"), Path::new("spec.toml")).expect_err("no program").to_string();
    assert!(error.contains("kernels.programs = []: expected at least one"), "{error}");
}
