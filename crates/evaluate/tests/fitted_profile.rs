//! The model itself plays the host: it runs a program whose profile is known, with noise, and the
//! fit has to find the program again, at numbers of threads and in VMs that it never saw.

use evaluate::environment::Environment;
use evaluate::experiment::Experiment;
use evaluate::figure::Spread;
use evaluate::fitted_profile::{FittedProfile, Wanted, fit};
use evaluate::modelled::beside::MeasuredRun;
use evaluate::modelled::{Inputs, predict};
use evaluate::point::Point;
use evaluate::resolve::Resolved;
use evaluate::summary::{Cell, ConfigurationSummary, Reduced, State, Summary};
use evaluate::{parse, profiles};
use properties::properties;
use proptest::prelude::*;
use simulator::workload::{Application, Class, WorkloadProfile};
use std::path::Path;
use topology::read::{Described, shipped_described};
use workloads::workload::{Better, Quantity, Together};

const EXPERIMENT: &str = r#"
name = "scan"
title = "A scan"
workload = "kernels"
threads = [1, 2, 4, 8, 16, 24, 32]
pinning = "scatter"
[kernels]
programs = [{ name = "solver", kernel = "multigrid" }]
[[configuration]]
name = "native"
runs = "native"
[[configuration]]
name = "interleaved"
runs = "vms"
vcpus = 32
memory = "64 GiB"
policy = { vnuma = false, memory = "interleave" }
[[configuration]]
name = "vNUMA"
runs = "vms"
vcpus = 32
memory = "64 GiB"
"#;

/// Numbers of threads that the fit may see.
const SEEN: [u32; 4] = [1, 4, 16, 32];

fn described(name: &str) -> Described {
    shipped_described(name).expect("shipped").expect("valid")
}

fn experiment(text: &str) -> Experiment {
    parse::parse(text, Path::new("scan.toml")).expect("valid")
}

/// A program with a known profile.
fn program(class: &str, serial_s: f64, compute_core_s: f64, lines: f64, core_ns: f64) -> WorkloadProfile {
    let number =
        |name: &str, value: f64| format!("{name} = {{ value = {value:e}, source = \"assumed\", from = \"test\" }}\n");
    let mut text = format!(
        "name = \"solver\"\ntitle = \"t\"\n[application]\nclass = \"{class}\"\nclass_from = \"test\"\n\
         binding = {{ value = \"pinned\", source = \"assumed\", from = \"test\" }}\n{}",
        number("virtual_overhead", 0.012)
    );
    text += &number("serial_s", serial_s);
    if compute_core_s > 0.0 {
        text += &number("compute_core_s", compute_core_s);
    }
    if lines > 0.0 {
        text += "[application.memory]\n";
        text += &number("lines", lines);
        text += &number("lines_in_flight", 10.0);
        text += &number("core_ns_per_line", core_ns);
        text += &number("write_share", 0.25);
    }
    profiles::parse(&text, "truth.toml").expect("a profile")
}

/// What the model measures of it: times the noise, one figure after the other.
fn measured(on: &Described, text: &str, truth: &WorkloadProfile, mut noise: impl FnMut() -> f64) -> MeasuredRun {
    let experiment = experiment(text);
    let of_truth = experiment.with_profile(truth);
    let none = |_: &str| None;
    let profiles = std::slice::from_ref(truth);
    let inputs = Inputs { experiment: &of_truth, on: Some(on), machines: &none, profiles, seed: 1 };
    let prediction = predict(&inputs).expect("figures");
    let is_stream = truth.application.is_none();
    let mut configurations = Vec::new();
    for one in &prediction.configurations {
        let mut cells: Vec<Cell> = Vec::new();
        let own = prediction.figures.iter().filter(|figure| figure.configuration == one.name);
        for figure in own.filter(|figure| figure.quantity.unit == "s" || figure.quantity.unit == "MB/s") {
            let threads = figure.threads().expect("a number of threads");
            let value = figure.value * noise();
            let quantity = if is_stream {
                figure.quantity.clone()
            } else {
                let name = figure.quantity.name.clone();
                let (better, together) = (Better::Less, Together::Largest);
                Quantity { name, unit: "s".to_owned(), better, together, decimals: 3, at: None }
            };
            let spread = Spread {
                best_together: value,
                median: value,
                mean: value,
                standard_deviation: None,
                repetitions: vec![value],
                rejected: Vec::new(),
                rounds: Vec::new(),
                interval: None,
            };
            let reduced = Reduced { quantity, best: value, spread };
            match cells.iter_mut().find(|cell| cell.point.threads == threads) {
                Some(cell) => cell.figures.push(reduced),
                None => cells.push(Cell {
                    point: Point::over_threads(&experiment.workload, threads),
                    state: State::Measured,
                    verified: true,
                    wrong: None,
                    figures: vec![reduced],
                    counted: 3,
                    rejected: 0,
                    overlap: None,
                    other_cpu_percent: 0.0,
                    steal_percent: 0.0,
                    own_cpu_percent: None,
                    local_share: None,
                    large_page_share: None,
                    guest_clock: None,
                    slow_guest_clock: None,
                    carried: Vec::new(),
                    uncounted: Vec::new(),
                }),
            }
        }
        configurations.push(ConfigurationSummary {
            name: one.name.clone(),
            shape: one.shape.clone(),
            native: one.native,
            cells,
        });
    }
    let at = "2026-01-01T00:00:00Z".to_owned();
    MeasuredRun {
        directory: "results/scan".to_owned(),
        summary: Summary {
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            workloads: Vec::new(),
            emulated: false,
            qemu: None,
            complete: true,
            notes: Vec::new(),
            configurations,
            ratios: Vec::new(),
            reached: None,
        },
        // Nothing of a fit looks at it.
        resolved: Resolved {
            experiment: experiment.clone(),
            machine: on.machine.name.clone(),
            hardware_threads: 0,
            emulated: false,
            workloads: Vec::new(),
            notes: Vec::new(),
            configurations: Vec::new(),
            keep_running: false,
            guest: None,
        },
        experiment: Some(experiment),
        environment: Environment::of_host(&on.machine, topology::Bytes(1 << 36), "kvm".to_owned(), Vec::new(), at),
    }
}

fn exactly() -> f64 {
    1.0
}

fn fitted(run: &MeasuredRun, on: &Described, seen: &[u32]) -> FittedProfile {
    fit(run, on, &Wanted { fit_threads: seen.to_vec(), ..Wanted::default() }).expect("a profile")
}

fn application(fitted: &FittedProfile) -> &Application {
    fitted.profile.application.as_ref().expect("an application")
}

/// Largest error, in per cent, of what was held out natively, and of the VMs.
fn worst(fitted: &FittedProfile) -> (f64, f64) {
    let largest = |errors: Vec<f64>| errors.into_iter().map(f64::abs).fold(0.0, f64::max);
    let held_out = fitted.residuals.iter().filter(|one| !one.fitted);
    (
        largest(held_out.map(evaluate::fitted_profile::Residual::error_percent).collect()),
        largest(fitted.vms.iter().filter_map(evaluate::fitted_profile::VmResidual::error_percent).collect()),
    )
}

#[test]
fn without_noise_the_program_comes_back() {
    let on = described("dell-r910");
    let cases = [
        (Class::Bandwidth, program("bandwidth", 1.0, 200.0, 2e10, 0.0)),
        (Class::Overlap, program("overlap", 1.0, 0.0, 2e10, 8.0)),
        (Class::Compute, program("compute", 4.0, 300.0, 0.0, 0.0)),
    ];
    for (class, truth) in cases {
        let run = measured(&on, EXPERIMENT, &truth, exactly);
        let fitted = fitted(&run, &on, &SEEN);
        let (of_truth, found) = (truth.application.as_ref().expect("one"), application(&fitted));
        assert_eq!(found.class, class, "{:?}", fitted.candidates);
        let (native, vms) = worst(&fitted);
        assert!(native < 0.5 && vms < 0.5, "{class:?}: {native:.2} % natively, {vms:.2} % in VMs");
        if let (Some(truth), Some(found)) = (&of_truth.memory, &found.memory) {
            let error = found.lines.value / truth.lines.value - 1.0;
            assert!(error.abs() < 0.02, "{class:?}: {:e} lines", found.lines.value);
        }
        assert_eq!(fitted.vms.len(), 14, "each VM at each number of threads");
        assert_eq!(profiles::parse(&fitted.text, "f.toml").expect("it reads back").name, "solver");
    }
}

properties! {
    #![cases(8)]

    #[test]
    fn with_noise_it_predicts_what_it_never_saw(
        overlaps in any::<bool>(),
        serial_s in 0.0..4.0f64,
        lines in 1e10..6e10f64,
        core in 0.0..1.0f64,
        noise in prop::collection::vec(0.99..1.01f64, 64),
    ) {
        let on = described("dell-r910");
        let truth = match overlaps {
            true => program("overlap", serial_s, 0.0, lines, 1.0 + 12.0 * core),
            false => program("bandwidth", serial_s, 200.0 * core, lines, 0.0),
        };
        let mut noise = noise.into_iter().cycle();
        let run = measured(&on, EXPERIMENT, &truth, || noise.next().unwrap_or(1.0));
        let fitted = fitted(&run, &on, &SEEN);
        let (native, vms) = worst(&fitted);
        println!("held out natively {native:.1} %, VMs {vms:.1} %");
        prop_assert!(native < 8.0, "held out: {native:.1} %, {:?}", fitted.candidates);
        prop_assert!(vms < 12.0, "VMs: {vms:.1} %, {:?}", fitted.vms);
        let found = application(&fitted).memory.as_ref().map_or(0.0, |memory| memory.lines.value);
        prop_assert!((found / lines - 1.0).abs() < 0.3, "{found:e} lines, not {lines:e}: {:?}", fitted.candidates);
    }
}

#[test]
fn stream_gives_its_lines_in_flight_back() {
    let on = described("hp-dl380-g6");
    let text = EXPERIMENT
        .replace("workload = \"kernels\"", "workload = \"stream\"")
        .replace("[1, 2, 4, 8, 16, 24, 32]", "[1, 2, 4, 8]")
        .replace("vcpus = 32", "vcpus = 8")
        .replace("64 GiB", "8 GiB");
    let truth = profiles::find("stream-gcc-o2-nehalem").expect("shipped");
    let run = measured(&on, &text, &truth, exactly);
    let fitted = fitted(&run, &on, &[1, 2]);
    for (found, truth) in fitted.profile.kernels.iter().zip(&truth.kernels) {
        let error = found.lines_in_flight.value / truth.lines_in_flight.value - 1.0;
        assert!(error.abs() < 0.01, "{}: {}", found.name, found.lines_in_flight.value);
    }
    let (native, vms) = worst(&fitted);
    assert!(native < 0.5 && vms < 0.5, "{native:.2} % natively, {vms:.2} % in VMs");
}

#[test]
fn two_counts_cannot_tell_the_classes_apart_and_that_is_said() {
    let on = described("dell-r910");
    let run = measured(&on, EXPERIMENT, &program("overlap", 0.0, 0.0, 2e10, 8.0), exactly);
    let fitted = fitted(&run, &on, &[1, 32]);
    let said = fitted.notes.join("\n");
    assert!(said.contains("cannot tell") && said.contains("proves nothing"), "{said}");
    assert!(application(&fitted).class_from.contains("is a choice"), "{:?}", application(&fitted).class_from);
}

#[test]
fn what_cannot_be_fitted_is_named_with_its_cure() {
    let on = described("dell-r910");
    let truth = program("bandwidth", 1.0, 100.0, 2e10, 0.0);
    let run = measured(&on, EXPERIMENT, &truth, exactly);
    let refusal = |run: &MeasuredRun, on: &Described, wanted: &Wanted| {
        fit(run, on, wanted).map(|fitted| fitted.notes).expect_err("no profile").to_string()
    };
    let whatever = Wanted::default();

    let mut without_native = run.clone();
    let only_vms = EXPERIMENT.replace("runs = \"native\"", "runs = \"vms\"");
    without_native.experiment = Some(experiment(&only_vms));
    let said = refusal(&without_native, &on, &whatever);
    assert!(said.contains("results/scan") && said.contains("runs = \"native\""), "{said}");

    let one = measured(&on, &EXPERIMENT.replace("[1, 2, 4, 8, 16, 24, 32]", "[4]"), &truth, exactly);
    let said = refusal(&one, &on, &whatever);
    assert!(said.contains("4 threads") && said.contains("threads = [1, 2, 4, ...]"), "{said}");
    let known = Wanted { class: Some(Class::Bandwidth), ..Wanted::default() };
    assert!(fit(&one, &on, &known).is_ok(), "the class says what one count cannot");

    let mut unverified = run.clone();
    unverified.summary.configurations[0].cells[1].verified = false;
    let said = refusal(&unverified, &on, &whatever);
    assert!(said.contains("solver with 2 threads is not verified") && said.contains("verify"), "{said}");

    let mut missing = run.clone();
    missing.summary.configurations[0].cells[2].figures.clear();
    missing.summary.configurations[0].cells[2].state = State::Missing;
    let said = refusal(&missing, &on, &whatever);
    assert!(said.contains("4 threads") && said.contains("--resume"), "{said}");

    let said = refusal(&run, &described("hp-dl980-g7"), &whatever);
    assert!(said.contains("dell-r910") && said.contains("hp-dl980-g7"), "{said}");
    let said = refusal(&run, &Described { rates: None, ..on.clone() }, &whatever);
    assert!(said.contains("homenode calibrate"), "{said}");
    let said = refusal(&run, &on, &Wanted { fit_threads: vec![1, 3], ..Wanted::default() });
    assert!(said.contains("--fit-threads 3") && said.contains("24 and 32"), "{said}");
    let said = refusal(&run, &on, &Wanted { figure: Some("speed".to_owned()), ..Wanted::default() });
    assert!(said.contains("speed") && said.contains("\"solver\" (s)"), "{said}");
}
