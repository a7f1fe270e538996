//! How wrong the model is on the published figures, with the limits that it must keep; and that
//! what is called calibrated follows from the figures that it names, so that nobody can fit a
//! held-out one unseen.

use evaluate::kernels;
use evaluate::modelled::{Inputs, refit};
use evaluate::profiles;
use evaluate::validation::cell::Role;
use evaluate::validation::gates::Gate;
use evaluate::validation::report::{KNEE, Validation, validate};
use evaluate::validation::shipped;
use simulator::{Amva, MaxMin};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use topology::rates::Source;

fn validation() -> &'static Validation {
    static ONCE: OnceLock<Validation> = OnceLock::new();
    ONCE.get_or_init(|| validate().expect("every published experiment runs on the model"))
}

fn count(group: &str, role: Role) -> usize {
    let groups = validation().groups.iter();
    groups.filter(|one| one.group == group && one.role == role).map(|one| one.queueing.cells).sum()
}

#[test]
fn held_out_errors_are_within_their_limits() {
    let broken: Vec<String> = validation()
        .gates
        .iter()
        .filter(|gate| !gate.holds())
        .map(|gate| format!("{}: {:.2}, at most {}", gate.what, gate.value, gate.limit))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(validation().gates.iter().all(|gate| gate.limit.is_finite()));
}

#[test]
fn a_gate_that_is_exceeded_does_not_hold() {
    let gate = |value| Gate { what: "w".to_owned(), value, limit: 4.0 };
    assert!(gate(4.0).holds() && !gate(4.1).holds() && !gate(f64::INFINITY).holds() && !gate(f64::NAN).holds());
}

#[test]
fn no_published_figure_is_left_out() {
    // Table 1: 20 cells, 5 of them calibrate. Table 2: 16. NAMD: 21, 7 of them calibrate.
    assert_eq!((count("STREAM Table 1", Role::HeldOut), count("STREAM Table 1", Role::Calibrated)), (15, 5));
    assert_eq!((count("STREAM Table 2", Role::HeldOut), count("STREAM Table 2", Role::Calibrated)), (16, 0));
    assert_eq!((count("NAMD", Role::HeldOut), count("NAMD", Role::Calibrated)), (14, 7));
    assert_eq!((count("Rome STREAM", Role::HeldOut), count("Rome STREAM", Role::Calibrated)), (1, 1));
    assert_eq!(count(KNEE, Role::HeldOut), 8);
}

#[test]
fn a_figure_that_is_only_a_picture_is_said_to_be_one() {
    let rome: Vec<_> = validation().cells.iter().filter(|cell| cell.experiment == "rome-stream").collect();
    let pictures: Vec<_> = rome.iter().filter(|cell| cell.published.is_none()).collect();
    // NPS4 with 128 threads; NPS2 and NPS1 with 32 and 128.
    assert_eq!(pictures.len(), 5);
    assert!(pictures.iter().all(|cell| cell.error().is_none() && cell.modelled > 0.0));
}

#[test]
fn the_order_of_rome_needs_row_conflicts() {
    let holds = |id: &str| {
        let statements = &validation().statements;
        statements.iter().find(|one| one.experiment == "rome-stream" && one.id == id).expect(id).holds
    };
    assert!(!holds("R3a") && !holds("R4"), "without droop all are saturated");
    assert!(holds("R3ad") && holds("R3bd") && holds("R4d"), "with droop");
}

#[test]
fn every_experiment_with_published_figures_of_a_machine_is_validated() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let files = std::fs::read_dir(directory).expect("experiments/").filter_map(Result::ok);
    let on_disk: BTreeSet<String> = files
        .map(|file| file.path())
        .filter(|path| evaluate::parse::read(path).is_ok_and(|experiment| experiment.machine.is_some()))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    assert_eq!(on_disk, shipped::names().map(str::to_owned).collect());
}

#[test]
fn the_same_seed_gives_the_same_bits() {
    let again = validate().expect("a second time");
    assert_eq!(&again, validation());
    let bits = |one: &Validation| -> Vec<u64> { one.cells.iter().map(|cell| cell.modelled.to_bits()).collect() };
    assert_eq!(bits(&again), bits(validation()));
}

fn near(stored: f64, fitted: f64) -> bool {
    (stored / fitted - 1.0).abs() < 0.005
}

#[test]
fn what_is_calibrated_on_stream_follows_from_the_figures_that_it_names() {
    let experiment = shipped::experiment("stream-esx41").expect("shipped").expect("valid");
    let profile = profiles::find("stream-gcc-o2-nehalem").expect("shipped");
    let machines = |name: &str| topology::read::shipped_described(name)?.ok();
    let profiles = [profile.clone()];
    let inputs = Inputs { experiment: &experiment, on: None, machines: &machines, profiles: &profiles, seed: 1 };
    let (machine, fitted) = refit(&inputs, &mut Amva::default()).expect("fits").expect("the experiment names figures");
    let rates = machines(&machine).expect("shipped").rates.expect("rates");
    assert!(near(rates.local_latency_ns.value, fitted.local_latency_ns), "{fitted:?}");
    assert!(near(rates.node_bandwidth_gb_per_s.value, fitted.node_bandwidth_gb_per_s), "{fitted:?}");
    for (kernel, lines) in profile.kernels.iter().zip(&fitted.lines_in_flight) {
        assert!(near(kernel.lines_in_flight.value, *lines), "{}: {lines}", kernel.name);
        let is_calibrated = kernel.lines_in_flight.source == Source::Calibrated;
        assert_eq!(is_calibrated, kernel.name != "Copy", "{}", kernel.name);
    }
    // Max-min fairness needs values of its own (prototype: 66.8 ns and 20.22 GB/s).
    let (_, fitted) = refit(&inputs, &mut MaxMin::default()).expect("fits").expect("figures");
    assert!(near(66.8, fitted.local_latency_ns) && near(20.22, fitted.node_bandwidth_gb_per_s), "{fitted:?}");
}

#[test]
fn the_droop_is_that_of_table_2_and_rome_s_bandwidth_that_of_its_best_bar() {
    let experiment = shipped::experiment("stream-esx41").expect("shipped").expect("valid");
    let table = experiment.published.iter().find(|one| one.threads == [2, 4, 8, 16]).expect("Table 2");
    let ratio = |kernel: &str| table.value(kernel, 16).expect("16") / table.value(kernel, 8).expect("8");
    // From 4 to 8 threads a controller: 0.98182, 0.99089, 0.99547, 0.98558, mean 0.98844.
    let droop = 1.0 - kernels::NAMES.map(ratio).iter().sum::<f64>() / 4.0;
    let rome = shipped::experiment("rome-stream").expect("shipped").expect("valid");
    let stored = rome.configurations.iter().filter_map(|one| one.modelled.row_conflict_droop.as_ref());
    assert!(stored.clone().count() == 3 && stored.clone().all(|one| (one.value - droop).abs() < 0.0001), "{droop}");
    for (name, nodes) in [("epyc-7742-2s-nps1", 2.0), ("epyc-7742-2s-nps2", 4.0), ("epyc-7742-2s-nps4", 8.0)] {
        let rates = topology::read::shipped_described(name).expect(name).expect(name).rates.expect("rates");
        assert!(near(rates.node_bandwidth_gb_per_s.value, 339.0 / nodes), "{name}");
    }
}
