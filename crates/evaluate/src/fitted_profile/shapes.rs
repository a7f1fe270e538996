//! Kinds of program, each fitted to the scan, and the one that is taken.
//!
//! A time is `serial + compute / capacity + lines x (time of a line)`, so that for given lines in
//! flight and core time of a line the rest is linear: least squares from zero give it. The core
//! time of a line, of class overlap alone, is searched.

use super::bench::{Bench, UNIT_LINES, memory, program, sourced};
use super::least_squares::{self, COLUMNS};
use super::scan::{Scan, ScanFigure, threads};
use super::{FitError, FittedProfile, Residual, Wanted};
use serde::Serialize;
use simulator::SolveError;
use simulator::workload::{Application, Class, WorkloadProfile};
use topology::rates::{LINE_BYTES, Source, Sourced};

/// Kinds with relative errors up to this many times those of the best fit as well as it.
const AS_GOOD: f64 = 1.25;
/// Nor is a difference below this relative error one that a measurement shows.
const UNSURE: f64 = 0.01;
/// A serial part below this share of one thread's time is none.
const NEXT_TO_NOTHING: f64 = 0.02;
/// Numbers of threads from which the shape of the curve tells waiting for memory from a serial
/// part.
const TELLING: usize = 4;
/// Core times of a line that are tried, in multiples of the unloaded time of a line of one thread.
const CORE_TIMES: (f64, f64, u32) = (0.02, 200.0, 40);
/// A fit with errors above this, in per cent, is of no use.
const POOR_PERCENT: f64 = 10.0;
/// Steps of the search between two of them.
const REFINED: u32 = 20;

/// A kind of program, fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// The kind.
    pub class: Class,
    /// Root of the mean square of the relative errors where it was fitted, in per cent.
    pub fit_percent: f64,
    /// The same at numbers of threads that the fit was made without, one after the other; `None`
    /// with too few of them.
    pub left_out_percent: Option<f64>,
    /// Where the time goes.
    pub parts: Parts,
    /// Whether the scan cannot tell it from the best.
    pub fits_as_well: bool,
}

/// Where the time of a program goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parts {
    /// Seconds that no thread shortens.
    pub serial_s: f64,
    /// Core-seconds in caches.
    pub compute_core_s: f64,
    /// Lines moved between memory and cores.
    pub lines: f64,
    /// Nanoseconds of a core for each line, beside which the next lines arrive.
    pub core_ns_per_line: f64,
    /// Memory traffic of one thread, in GB/s.
    pub gb_per_s_of_one_thread: f64,
}

/// A kind with what may be fitted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    class: Class,
    /// Serial part, computing, memory.
    columns: [bool; COLUMNS],
    /// Whether the core time of a line is searched.
    overlaps: bool,
}

/// A form with its values.
#[derive(Clone, Copy, Debug)]
struct Fit {
    form: Form,
    values: [f64; COLUMNS],
    core_ns_per_line: f64,
    /// Root of the mean square of the relative errors.
    error: f64,
}

/// A number of threads, and seconds with it.
type Time = (u32, f64);

impl Form {
    /// Of a class, with no more values than there are figures; `None` where these are too few.
    fn of(class: Class, figures: usize) -> Option<Self> {
        let several = figures > 1;
        let (columns, overlaps) = match class {
            Class::Compute => ([several, true, false], false),
            Class::Bandwidth => ([figures > 2, several, true], false),
            Class::Overlap => ([figures > 2, false, true], true),
            Class::Serial => ([true, false, true], false),
            Class::Latency => ([several, false, true], false),
        };
        let form = Self { class, columns, overlaps };
        (form.values() <= figures).then_some(form)
    }

    fn values(&self) -> usize {
        self.columns.iter().filter(|used| **used).count() + usize::from(self.overlaps)
    }

    /// Lines in flight of a core.
    fn lines_in_flight(&self, bench: &Bench) -> Sourced<f64> {
        let machine = bench.model().machine().name.as_str();
        match self.class {
            Class::Latency => sourced(1.0, Source::Assumed, "by class: each miss waits for the one before"),
            _ => sourced(
                bench.model().rates().lines_in_flight_per_core.value,
                Source::Assumed,
                format!("all that a core of {machine} keeps in flight, as streams do"),
            ),
        }
    }

    /// Unit work, and what it takes at each number of threads.
    fn units(&self, bench: &Bench, times: &[Time], core_ns: f64) -> Result<Vec<[f64; COLUMNS]>, SolveError> {
        let empty = program(self.class, String::new(), workloads::workload::Pinning::Compact);
        let compute =
            Application { compute_core_s: Some(sourced(1.0, Source::Calibrated, "")), memory: None, ..empty.clone() };
        let moving =
            Application { memory: Some(memory(UNIT_LINES, self.lines_in_flight(bench), core_ns, "")), ..empty };
        let row = |&(threads, seconds): &Time| {
            let of_compute = if self.columns[1] { bench.seconds(&compute, threads)? } else { 0.0 };
            let of_memory = if self.columns[2] { bench.seconds(&moving, threads)? } else { 0.0 };
            Ok([1.0 / seconds, of_compute / seconds, of_memory / seconds])
        };
        times.iter().map(row).collect()
    }

    /// With this core time of a line.
    fn fit_at(self, bench: &Bench, times: &[Time], core_ns_per_line: f64) -> Result<Fit, SolveError> {
        let rows = self.units(bench, times, core_ns_per_line)?;
        let values = least_squares::solve(&rows, self.columns);
        let error = (least_squares::squares(&rows, &values) / rows.len().max(1) as f64).sqrt();
        Ok(Fit { form: self, values, core_ns_per_line, error })
    }

    /// The best; the core time of a line by a grid and, around its best point, the golden section.
    fn fit(self, bench: &Bench, times: &[Time]) -> Result<Fit, SolveError> {
        if !self.overlaps {
            return self.fit_at(bench, times, 0.0);
        }
        let rates = bench.model().rates();
        let unit = rates.local_latency_ns.value / rates.lines_in_flight_per_core.value;
        let (least, most, steps) = CORE_TIMES;
        let factor = (most / least).powf(1.0 / f64::from(steps));
        let tried = |step: u32| self.fit_at(bench, times, unit * least * factor.powi(step as i32));
        let all: Vec<Fit> = (0..=steps).map(tried).collect::<Result<_, _>>()?;
        let Some(best) = all.iter().min_by(|one, other| one.error.total_cmp(&other.error)) else {
            return self.fit_at(bench, times, unit);
        };
        let (mut low, mut high) = (best.core_ns_per_line / factor, best.core_ns_per_line * factor);
        let mut best = *best;
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        for _ in 0..REFINED {
            let inner = (high - golden * (high - low), low + golden * (high - low));
            let (one, other) = (self.fit_at(bench, times, inner.0)?, self.fit_at(bench, times, inner.1)?);
            if one.error < other.error {
                high = inner.1
            } else {
                low = inner.0
            }
            for fit in [one, other] {
                if fit.error < best.error {
                    best = fit;
                }
            }
        }
        Ok(best)
    }
}

impl Fit {
    fn application(&self, scan: &Scan, bench: &Bench, class_from: String, from: &str) -> Application {
        let [serial, compute, lines] = self.values;
        let calibrated = |value: f64| sourced(value, Source::Calibrated, from);
        let needs = |class: Class| self.form.class == class;
        let mut application = program(self.form.class, class_from, scan.experiment.pinning);
        application.serial_s = (serial > 0.0 || needs(Class::Serial)).then(|| calibrated(serial));
        application.compute_core_s = (compute > 0.0 || needs(Class::Compute)).then(|| calibrated(compute));
        application.memory = (lines > 0.0)
            .then(|| memory(lines * UNIT_LINES, self.form.lines_in_flight(bench), self.core_ns_per_line, from));
        application
    }

    fn parts(&self, one_thread_s: f64) -> Parts {
        let [serial_s, compute_core_s, units] = self.values;
        let lines = units * UNIT_LINES;
        let core_ns_per_line = if lines > 0.0 { self.core_ns_per_line } else { 0.0 };
        let gb_per_s_of_one_thread = lines * LINE_BYTES / one_thread_s / 1e9;
        Parts { serial_s, compute_core_s, lines, core_ns_per_line, gb_per_s_of_one_thread }
    }

    /// Whether it has what its class is about.
    fn is_of_its_class(&self) -> bool {
        match self.form.class {
            Class::Compute => self.values[1] > 0.0,
            _ => self.values[2] > 0.0,
        }
    }
}

/// Fits each kind and takes one.
pub(super) fn fit(scan: &Scan, bench: &Bench, counts: &[u32], wanted: &Wanted) -> Result<FittedProfile, FitError> {
    let Some(figure) = scan.figures.first() else { return Err(FitError::Impossible("no figure".to_owned())) };
    let all: Vec<Time> = figure.cells.iter().map(|cell| (cell.threads, figure.work.seconds(cell.measured))).collect();
    let fitted: Vec<Time> = all.iter().copied().filter(|(threads, _)| counts.contains(threads)).collect();
    let classes = match wanted.class {
        Some(class) => vec![class],
        None => vec![Class::Compute, Class::Overlap, Class::Bandwidth],
    };
    let mut tried = Vec::new();
    for class in classes {
        let Some(form) = Form::of(class, fitted.len()) else {
            return Err(FitError::Class(
                "this class has two values of its own: fit it on two numbers of threads or more",
            ));
        };
        let fit = form.fit(bench, &fitted)?;
        if fit.is_of_its_class() {
            tried.push((fit, left_out(form, bench, &fitted)?));
        }
    }
    let Some(chosen) = chosen(&tried, &fitted) else {
        return Err(match wanted.class {
            Some(_) => FitError::Class("the figures leave no time for what this class is about: leave --class out"),
            None => FitError::Impossible("no kind of program has positive times".to_owned()),
        });
    };
    let (fit, without) = &tried[chosen];
    let one_thread_s = one_thread(bench, scan, fit)?;
    let candidates = candidates(&tried, &fitted, one_thread_s);
    let named = wanted.class.is_some();
    let class_from = why(&candidates, chosen, named, counts);
    let from = format!("homenode profile: native {} on {}, {}", figure.name, scan.machine, threads(counts));
    let application = fit.application(scan, bench, class_from, &from);
    let residuals = residuals(figure, bench, &application, counts, without)?;
    let profile = WorkloadProfile {
        name: scan.name.clone(),
        title: format!("{} on {}: {}", figure.name, scan.machine, scan.title),
        kernels: Vec::new(),
        application: Some(application),
    };
    let notes = notes(&candidates, chosen, named);
    let parts = Some(candidates[chosen].parts);
    Ok(FittedProfile {
        profile,
        text: String::new(),
        machine: scan.machine.clone(),
        work: scan.work(),
        parts,
        residuals,
        candidates,
        vms: Vec::new(),
        notes,
    })
}

/// What a fit without each number of threads says there, where enough others are left.
fn left_out(form: Form, bench: &Bench, times: &[Time]) -> Result<Vec<Time>, FitError> {
    let mut left_out = Vec::new();
    if times.len() <= form.values() {
        return Ok(left_out);
    }
    for &(threads, seconds) in times {
        let others: Vec<Time> = times.iter().copied().filter(|(other, _)| *other != threads).collect();
        let fit = form.fit(bench, &others)?;
        let here = vec![(threads, seconds)];
        let rows = form.units(bench, &here, fit.core_ns_per_line)?;
        let ratio: f64 = rows[0].iter().zip(&fit.values).map(|(unit, value)| unit * value).sum();
        left_out.push((threads, ratio * seconds));
    }
    Ok(left_out)
}

/// Which fit is taken: docs/profile.md says the rule.
fn chosen(tried: &[(Fit, Vec<Time>)], times: &[Time]) -> Option<usize> {
    let as_good = as_good(tried);
    let index = |class: Class| tried.iter().position(|(fit, _)| fit.form.class == class).filter(|&at| as_good[at]);
    if let Some(compute) = index(Class::Compute) {
        let [serial, computing, _] = tried[compute].0.values;
        let scales = serial < NEXT_TO_NOTHING * (serial + computing);
        if scales || times.len() >= TELLING {
            return Some(compute);
        }
    }
    // Of those that fit as well, the one that says best what it never saw.
    let rivals: Vec<usize> = (0..tried.len()).filter(|&at| as_good[at]).collect();
    let unseen: Option<Vec<(usize, f64)>> =
        rivals.iter().map(|&at| Some((at, left_out_percent(&tried[at].1, times)?))).collect();
    if let Some(unseen) = unseen {
        return unseen.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)).map(|(at, _)| at);
    }
    index(Class::Overlap).or_else(|| index(Class::Bandwidth)).or_else(|| rivals.first().copied())
}

/// Which fits the scan cannot tell from the best.
fn as_good(tried: &[(Fit, Vec<Time>)]) -> Vec<bool> {
    let best = tried.iter().map(|(fit, _)| fit.error).fold(f64::INFINITY, f64::min);
    tried.iter().map(|(fit, _)| fit.error <= (AS_GOOD * best).max(UNSURE)).collect()
}

fn candidates(tried: &[(Fit, Vec<Time>)], times: &[Time], one_thread_s: f64) -> Vec<Candidate> {
    let as_good = as_good(tried);
    let candidate = |((fit, without), fits_as_well): (&(Fit, Vec<Time>), bool)| Candidate {
        class: fit.form.class,
        fit_percent: 100.0 * fit.error,
        left_out_percent: left_out_percent(without, times),
        parts: fit.parts(one_thread_s),
        fits_as_well,
    };
    tried.iter().zip(as_good).map(candidate).collect()
}

/// Root of the mean square of the relative errors at what was left out.
fn left_out_percent(without: &[Time], times: &[Time]) -> Option<f64> {
    let error = |&(threads, modelled): &Time| {
        times.iter().find(|(other, _)| *other == threads).map(|(_, measured)| (modelled / measured - 1.0).powi(2))
    };
    let squares: Vec<f64> = without.iter().filter_map(error).collect();
    (!squares.is_empty()).then(|| 100.0 * (squares.iter().sum::<f64>() / squares.len() as f64).sqrt())
}

/// Modelled time of the fewest threads, in core-seconds: that of one thread but for rounding.
fn one_thread(bench: &Bench, scan: &Scan, fit: &Fit) -> Result<f64, FitError> {
    let fewest = scan.counts().first().copied().unwrap_or(1);
    let application = fit.application(scan, bench, String::new(), "");
    Ok(bench.seconds(&application, fewest)? * f64::from(fewest))
}

fn residuals(
    figure: &ScanFigure,
    bench: &Bench,
    application: &Application,
    counts: &[u32],
    left_out: &[Time],
) -> Result<Vec<Residual>, FitError> {
    let residual = |cell: &super::scan::ScanCell| {
        let without = left_out.iter().find(|(threads, _)| *threads == cell.threads);
        Ok(Residual {
            figure: figure.name.clone(),
            threads: cell.threads,
            measured: cell.measured,
            modelled: figure.work.figure(bench.seconds(application, cell.threads)?),
            left_out: without.map(|&(_, seconds)| figure.work.figure(seconds)),
            unit: figure.unit.clone(),
            fitted: counts.contains(&cell.threads),
            spread_percent: cell.spread_percent,
        })
    };
    figure.cells.iter().map(residual).collect()
}

/// The class in words.
pub fn word(class: Class) -> &'static str {
    match class {
        Class::Bandwidth => "bandwidth",
        Class::Overlap => "overlap",
        Class::Latency => "latency",
        Class::Serial => "serial",
        Class::Compute => "compute",
    }
}

fn why(candidates: &[Candidate], chosen: usize, named: bool, counts: &[u32]) -> String {
    let on = threads(counts);
    if named {
        return format!("--class {}; the values were fitted on {on}", word(candidates[chosen].class));
    }
    let others: Vec<&str> = candidates
        .iter()
        .enumerate()
        .filter(|(at, one)| *at != chosen && one.fits_as_well)
        .map(|(_, one)| word(one.class))
        .collect();
    match others.is_empty() {
        true => format!("homenode profile: fits {on} better than the other classes"),
        false => format!("homenode profile, on {on}: {} would fit as well, so that it is a choice", others.join(", ")),
    }
}

fn notes(candidates: &[Candidate], chosen: usize, named: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let taken = &candidates[chosen];
    if taken.fit_percent > POOR_PERCENT {
        notes.push(format!(
            "POOR FIT: off by {:.0} % where it was fitted. The model knows no such program, or the host was \
             not quiet: do not trust what it predicts.",
            taken.fit_percent
        ));
    }
    let rivals = candidates.iter().enumerate().filter(|(at, one)| *at != chosen && one.fits_as_well);
    let rivals: Vec<&str> = rivals.map(|(_, one)| word(one.class)).collect();
    if !named && !rivals.is_empty() {
        notes.push(format!(
            "This scan cannot tell {} from {}; they differ in what they predict. Measure more numbers of \
             threads, or say which with --class.",
            word(taken.class),
            rivals.join(" and ")
        ));
    }
    let unseen = match taken.class {
        Class::Compute => Some(
            "Memory did not bind at any of these numbers of threads, so that the scan says nothing of memory: \
             the profile has none, and gains nothing from locality. A program that waits for single misses \
             scales as well; --class latency says what it would gain at most.",
        ),
        Class::Latency => Some(
            "Class latency takes all parallel time as waiting for single misses: what locality is worth is an \
             upper bound.",
        ),
        _ => None,
    };
    notes.extend(unseen.map(str::to_owned));
    if taken.class != Class::Compute {
        notes.push("Memory traffic is fitted to the scaling alone; no hardware counter was read.".to_owned());
    }
    notes
}
