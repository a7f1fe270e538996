//! Fitting again what is stored as calibrated, each value from the figure that its file names.

use evaluate::experiment::Experiment;
use evaluate::figure::SECONDS;
use evaluate::modelled::{Inputs, Prediction, predict};
use simulator::workload::{Application, Messages, WorkloadProfile};
use std::path::Path;
use topology::read::Described;
use workloads::choice::Choice;

pub(crate) fn experiment(name: &str) -> Experiment {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(format!("{name}.toml"));
    evaluate::parse::read(&path).expect(name)
}

pub(crate) fn profiles(experiment: &Experiment) -> Vec<WorkloadProfile> {
    let names = &experiment.application.as_ref().expect("an application").profiles;
    names.iter().map(|name| evaluate::profiles::find(name).expect(name)).collect()
}

pub(crate) fn predicted(experiment: &Experiment, profiles: &[WorkloadProfile]) -> Prediction {
    let shipped = |name: &str| topology::read::shipped_described(name)?.ok();
    predict(&Inputs { experiment, on: None, machines: &shipped, profiles, seed: 1 }).expect("figures")
}

/// A stored value and the one that its figure gives.
pub(crate) struct Fit {
    pub(crate) what: String,
    pub(crate) stored: f64,
    pub(crate) fitted: f64,
}

/// What may be varied: the profile, the experiment and the machine.
struct Bench {
    experiment: Experiment,
    profile: WorkloadProfile,
    machine: Described,
}

impl Bench {
    /// Only these configurations with so many processes, so that a fit is quick.
    fn new(experiment_name: &str, profile: &str, configurations: &[&str], processes: u32) -> Self {
        let mut experiment = experiment(experiment_name);
        experiment.configurations.retain(|known| configurations.contains(&known.name.as_str()));
        experiment.published.clear();
        experiment.statements.clear();
        experiment.threads = Choice::Fixed(vec![processes]);
        let machine = experiment.machine.clone().expect("a machine");
        Self {
            experiment,
            profile: evaluate::profiles::find(profile).expect(profile),
            machine: topology::read::shipped_described(&machine).expect("shipped").expect("valid"),
        }
    }

    fn application(&mut self) -> &mut Application {
        self.profile.application.as_mut().expect("an application")
    }

    /// Seconds of each configuration.
    fn seconds(&self) -> Vec<f64> {
        let machines = |_: &str| Some(self.machine.clone());
        let inputs = Inputs {
            experiment: &self.experiment,
            on: None,
            machines: &machines,
            profiles: std::slice::from_ref(&self.profile),
            seed: 1,
        };
        let figures = predict(&inputs).expect("figures").figures;
        let times = figures.iter().filter(|figure| figure.quantity.unit == SECONDS);
        times.map(|figure| figure.value).collect()
    }

    /// Time of the first configuration, or, of two, their ratio.
    fn figure(&self) -> f64 {
        match self.seconds()[..] {
            [seconds] => seconds,
            [over, of] => over / of,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Halves an interval around the stored value until its figure is the published one. `rises`: a
/// larger value gives a larger figure.
fn fit(what: &str, mut bench: Bench, target: f64, rises: bool, value: fn(&mut Bench) -> &mut f64) -> Fit {
    let stored = *value(&mut bench);
    let (mut low, mut high) = (stored / 4.0, stored * 4.0);
    for _ in 0..16 {
        let middle = f64::midpoint(low, high);
        *value(&mut bench) = middle;
        if (bench.figure() < target) == rises { low = middle } else { high = middle }
    }
    Fit { what: what.to_owned(), stored, fitted: f64::midpoint(low, high) }
}

fn core_ns(bench: &mut Bench) -> &mut f64 {
    &mut bench.application().memory.as_mut().expect("memory").core_ns_per_line.value
}

fn serial_s(bench: &mut Bench) -> &mut f64 {
    &mut bench.application().serial_s.as_mut().expect("a serial part").value
}

fn messages(bench: &mut Bench) -> &mut Messages {
    bench.application().messages.as_mut().expect("messages")
}

/// All of them.
pub(crate) fn all() -> Vec<Fit> {
    let gain = |profile: &str, processes: u32, percent: f64| {
        let name = if ["milc", "lu"].contains(&profile) { "spec-mpi" } else { "spec-omp" };
        let bench = Bench::new(name, profile, &["Default", "vNUMA"], processes);
        let value = if profile == "equake" { serial_s } else { core_ns };
        fit(profile, bench, 1.0 + percent / 100.0, false, value)
    };
    let mut fits = vec![
        gain("art", 16, 56.0),
        gain("applu", 16, 114.0),
        gain("fma3d", 16, 17.0),
        gain("wupwise", 16, 30.0),
        gain("equake", 16, 30.0),
        gain("milc", 32, 25.0),
        gain("lu", 32, 24.0),
    ];
    fits.push(link_latencies());
    fits.extend(namd());
    fits
}

/// The DL980's links, all in proportion: swim with 16 threads gains 167 %.
fn link_latencies() -> Fit {
    let mut bench = Bench::new("spec-omp", "swim", &["Default", "vNUMA"], 16);
    let stored = bench.machine.rates.clone().expect("rates").links;
    let (mut low, mut high) = (0.5, 2.0);
    for _ in 0..16 {
        let scale = f64::midpoint(low, high);
        let links = &mut bench.machine.rates.as_mut().expect("rates").links;
        links.iter_mut().zip(&stored).for_each(|(link, stored)| link.latency_ns = scale * stored.latency_ns);
        if bench.figure() < 2.67 { low = scale } else { high = scale }
    }
    Fit { what: "latencies of the DL980's links".to_owned(), stored: 1.0, fitted: f64::midpoint(low, high) }
}

fn namd() -> Vec<Fit> {
    let of = |configuration: &str, processes| Bench::new("namd", "namd-stmv", &[configuration], processes);
    // Two figures for two values: 4 and 8 processes natively.
    let (four, eight) = (1748.0, 915.0);
    let compute = (four - eight) / (1.0 / 4.0 - 1.0 / 8.0);
    let mut native = of("Native, HT off", 8);
    let (serial, stored) = (*serial_s(&mut native), native.application().compute_core_s.clone().expect("work").value);
    let two = [("serial_s", serial, eight - compute / 8.0), ("compute_core_s", stored, compute)];
    let mut fits: Vec<Fit> =
        two.map(|(what, stored, fitted)| Fit { what: what.to_owned(), stored, fitted }).into_iter().collect();
    fits.push(fit("virtual_overhead", of("1 VM, HT off", 8), 926.0, true, |bench| {
        &mut bench.application().virtual_overhead.as_mut().expect("an overhead").value
    }));
    fits.push(fit("random_thread_share", of("Native", 8), 1020.0, true, |bench| {
        &mut bench.experiment.native_os.random_thread_share.as_mut().expect("a share").value
    }));
    fits.push(fit("count of messages", of("4 VMs, 1 vSwitch", 8), 940.0, true, |bench| {
        &mut messages(bench).count.value
    }));
    fits.push(fit("GB of messages", of("4 VMs, 4 vSwitches", 8), 1113.0, true, |bench| &mut messages(bench).gb.value));
    fits
}
