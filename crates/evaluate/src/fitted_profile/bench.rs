//! The calibrated host on which unit work is timed: the threads of the scan where they ran.

use super::scan::{Scan, threads};
use super::{FitError, Wanted};
use crate::modelled::{ModelledError, Setting};
use crate::resolve::ResolvedConfiguration;
use simulator::application::{BusyCores, OtherVms, Team, time};
use simulator::threads::streams::groups;
use simulator::threads::{Arrangement, Cores};
use simulator::workload::{Application, Binding, Class, MemoryWork};
use simulator::{Amva, CoreWork, MachineModel, Profile, RateSolver, SolveError};
use std::collections::BTreeSet;
use topology::Machine;
use topology::rates::{Source, Sourced};
use workloads::workload::Pinning;

/// Lines of unit work in memory.
pub(super) const UNIT_LINES: f64 = 1e9;

/// The threads of the scan on the model of their host.
pub(super) struct Bench<'a> {
    model: &'a MachineModel,
    droop: f64,
    counts: Vec<Lying>,
}

/// How so many threads lie.
struct Lying {
    threads: u32,
    ways: Vec<(f64, Team)>,
}

/// A value that the fit gives.
pub(super) fn sourced<T>(value: T, source: Source, from: impl Into<String>) -> Sourced<T> {
    Sourced { value, source, from: from.into() }
}

impl<'a> Bench<'a> {
    pub(super) fn new(scan: &Scan, machine: &Machine, model: &'a MachineModel) -> Result<Self, FitError> {
        let resolved = ResolvedConfiguration {
            name: scan.configuration.name.clone(),
            vms: Vec::new(),
            points: Vec::new(),
            native_files: None,
            cpus: None,
            switches: Vec::new(),
            is_span: false,
        };
        let setting = Setting {
            experiment: &scan.experiment,
            configuration: &scan.configuration,
            resolved: &resolved,
            machine,
            model,
            profiles: &[],
            seed: 1,
        };
        let cores = setting.cores();
        let lying = |threads: u32| -> Result<Lying, ModelledError> {
            let ways = setting.arrangements(threads)?;
            Ok(Lying { threads, ways: ways.into_iter().map(|way| (way.weight, team(&cores, way, threads))).collect() })
        };
        let counts = scan.counts().into_iter().map(lying).collect::<Result<_, _>>()?;
        Ok(Self { model, droop: setting.droop(), counts })
    }

    /// The model.
    pub(super) fn model(&self) -> &MachineModel {
        self.model
    }

    /// Numbers of threads to fit on.
    pub(super) fn fitted_counts(&self, scan: &Scan, wanted: &Wanted) -> Result<Vec<u32>, FitError> {
        let all = scan.counts();
        if let Some(&unknown) = wanted.fit_threads.iter().find(|count| !all.contains(count)) {
            return Err(FitError::NoSuchCount { wanted: unknown, has: threads(&all) });
        }
        let alone = || self.counts.iter().filter(|one| !one.shares_cores()).map(|one| one.threads);
        let fitted: Vec<u32> = match wanted.fit_threads.is_empty() {
            true => alone().collect(),
            false => all.iter().copied().filter(|count| wanted.fit_threads.contains(count)).collect(),
        };
        let is_enough = fitted.len() > 1 || (fitted.len() == 1 && (wanted.class.is_some() || scan.is_stream()));
        if is_enough {
            return Ok(fitted);
        }
        let because = match all.len() > fitted.len() && wanted.fit_threads.is_empty() {
            true => {
                ". With more threads two share a core, and what that is worth was not measured; --fit-threads \
                 takes them all the same"
            }
            false => "",
        };
        Err(FitError::OneCount {
            directory: scan.directory.clone(),
            has: threads(&fitted),
            because: because.to_owned(),
        })
    }

    /// What of the fit a reader has to know.
    pub(super) fn notes(&self, scan: &Scan, fitted: &[u32], wanted: &Wanted) -> Vec<String> {
        let mut notes = Vec::new();
        let shared: Vec<u32> = self.counts.iter().filter(|one| one.shares_cores()).map(|one| one.threads).collect();
        if !shared.is_empty() && wanted.fit_threads.is_empty() {
            notes.push(format!(
                "Not fitted on {}: there two threads share a core, and what that is worth to this program was \
                 not measured.",
                threads(&shared)
            ));
        }
        if fitted.len() == 2 && !scan.is_stream() {
            notes.push(
                "Two numbers of threads fix two values and no more: that the fit meets them proves nothing.".to_owned(),
            );
        }
        notes
    }

    /// Seconds of an application at a number of threads.
    pub(super) fn seconds(&self, application: &Application, threads: u32) -> Result<f64, SolveError> {
        let mut seconds = 0.0;
        for (weight, team) in self.ways(threads) {
            seconds += weight * time(application, self.model, team, &mut Amva::default())?.seconds();
        }
        Ok(seconds)
    }

    /// MB/s of a kernel at a number of threads.
    pub(super) fn mb_per_s(&self, kernel: &Profile, threads: u32) -> Result<f64, SolveError> {
        let mut mb_per_s = 0.0;
        for (weight, team) in self.ways(threads) {
            let groups = groups(self.model, kernel, &team.works, self.droop);
            let solution = Amva::default().solve(self.model.stations().len(), &groups)?;
            let lines: f64 = groups.iter().zip(&solution.lines_per_ns).map(|(one, rate)| one.actors * rate).sum();
            mb_per_s += 1000.0 * weight * lines * kernel.counted_bytes_per_line;
        }
        Ok(mb_per_s)
    }

    fn ways(&self, threads: u32) -> impl Iterator<Item = &(f64, Team)> {
        self.counts.iter().filter(move |one| one.threads == threads).flat_map(|one| &one.ways)
    }
}

impl Lying {
    fn shares_cores(&self) -> bool {
        self.ways.iter().any(|(_, team)| team.busy.double > 0.0)
    }
}

fn team(cores: &Cores, way: Arrangement, processes: u32) -> Team {
    let count = |wanted: fn(u32) -> bool| -> f64 {
        way.works.iter().filter(|(work, _)| wanted(work.threads)).map(|(_, cores)| cores).sum()
    };
    let place = |work: &CoreWork| (work.node, work.llc);
    let used: BTreeSet<_> = way.works.iter().map(|(work, _)| place(work)).collect();
    let all: BTreeSet<_> = cores.list().iter().map(|core| (core.node, core.llc)).collect();
    Team {
        processes,
        busy: BusyCores { single: count(|threads| threads < 2), double: count(|threads| threads >= 2) },
        llc_share: used.len() as f64 / all.len().max(1) as f64,
        works: way.works,
        is_virtual: false,
        others: OtherVms::default(),
    }
}

/// A program without any part yet.
pub(super) fn program(class: Class, class_from: String, pinning: Pinning) -> Application {
    let (binding, from) = match pinning {
        Pinning::None => (Binding::Unpinned, "the experiment binds no thread (pinning = \"none\")"),
        _ => (Binding::Pinned, "the experiment binds each thread to a CPU"),
    };
    Application {
        class,
        class_from,
        binding: sourced(binding, Source::Document, from),
        serial_s: None,
        compute_core_s: None,
        memory: None,
        messages: None,
        virtual_overhead: Some(sourced(
            0.012,
            Source::Assumed,
            "that of NAMD in VMware's article, Table 1, 1 VM, 8 processes: no VM was used for the fit",
        )),
    }
}

/// Memory work of so many lines.
pub(super) fn memory(lines: f64, lines_in_flight: Sourced<f64>, core_ns_per_line: f64, from: &str) -> MemoryWork {
    let write_share = "one of four lines is written, as in STREAM's Add and Triad; it decides only what links carry";
    MemoryWork {
        lines: sourced(lines, Source::Calibrated, from),
        lines_in_flight,
        core_ns_per_line: match core_ns_per_line > 0.0 {
            true => sourced(core_ns_per_line, Source::Calibrated, from),
            false => sourced(0.0, Source::Assumed, "by class: no time of the core that is hidden behind lines"),
        },
        write_share: sourced(0.25, Source::Assumed, write_share),
        llc_miss_exponent: None,
    }
}
