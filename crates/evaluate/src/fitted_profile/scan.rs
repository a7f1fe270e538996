//! The native figures of a measured run, by number of threads, as times of the same work.

use super::FitError;
use crate::experiment::{Configuration, Experiment, Runs};
use crate::modelled::beside::MeasuredRun;
use crate::summary::{Cell, Reduced, State};
use std::collections::BTreeSet;
use workloads::kernel::Programs;
use workloads::workload::{Better, Quantity, Workload};

/// Seconds of one of each unit of time.
const TIMES: [(&str, f64); 9] = [
    ("s", 1.0),
    ("ms", 1e-3),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ns", 1e-9),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("day", 86_400.0),
];
/// The slowest run of a rate has work for so many seconds, or up to ten times as many.
const SECONDS_OF_A_RATE: f64 = 10.0;

/// What is fitted.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Results directory, as the user wrote it.
    pub directory: String,
    /// When it was measured.
    pub at: String,
    /// The machine that it was measured on.
    pub machine: String,
    /// Name of the profile.
    pub name: String,
    /// Title of the experiment.
    pub title: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Its native configuration.
    pub configuration: Configuration,
    /// One figure; of STREAM, one for each kernel.
    pub figures: Vec<ScanFigure>,
    /// The run, for the VMs in it.
    pub run: MeasuredRun,
}

/// A figure at each number of threads.
#[derive(Clone, Debug)]
pub struct ScanFigure {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// How it becomes a time.
    pub work: Work,
    /// By number of threads, the fewest first.
    pub cells: Vec<ScanCell>,
}

/// A figure at a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanCell {
    /// Threads.
    pub threads: u32,
    /// In the figure's unit.
    pub measured: f64,
    /// Median repetition against the best, in per cent.
    pub spread_percent: f64,
    /// Whether other processes disturbed every repetition.
    pub disturbed: bool,
}

/// How a figure becomes the time of a fixed amount of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It is that time: seconds of its unit.
    Time(f64),
    /// It is a rate: seconds of its unit of time, and how much work the time is of.
    Rate(f64, f64),
}

impl Work {
    /// Seconds of the work at this figure.
    pub fn seconds(self, figure: f64) -> f64 {
        match self {
            Self::Time(unit) => figure * unit,
            Self::Rate(unit, amount) => amount * unit / figure,
        }
    }

    /// The figure at which the work takes so long.
    pub fn figure(self, seconds: f64) -> f64 {
        match self {
            Self::Time(unit) => seconds / unit,
            Self::Rate(unit, amount) => amount * unit / seconds,
        }
    }

    /// Of a quantity; `None` if it is neither a time nor a rate of work.
    fn of(quantity: &Quantity, values: impl Iterator<Item = f64>) -> Option<Self> {
        let unit = |word: &str| TIMES.iter().find(|(name, _)| *name == word).map(|&(_, seconds)| seconds);
        match quantity.better {
            Better::Less => unit(quantity.unit.split('/').next()?).map(Self::Time),
            Better::More => {
                let (_, per) = quantity.unit.rsplit_once('/')?;
                let seconds = unit(per)?;
                let slowest = values.fold(f64::INFINITY, f64::min) / seconds;
                let amount = 10f64.powf((slowest * SECONDS_OF_A_RATE).log10().ceil());
                Some(Self::Rate(seconds, amount))
            }
        }
    }
}

impl Scan {
    /// Of a measured run.
    ///
    /// # Errors
    /// It has no native figure of work at numbers of threads, or one that cannot be trusted.
    pub fn of(run: &MeasuredRun, wanted: Option<&str>) -> Result<Self, FitError> {
        let directory = run.directory.clone();
        let experiment =
            run.experiment.clone().ok_or_else(|| FitError::NoExperiment { directory: directory.clone() })?;
        let is_native = |one: &&Configuration| one.runs == Runs::Native && !one.modelled.only;
        let summarised = |one: &Configuration| run.summary.configurations.iter().find(|known| known.name == one.name);
        let mut natives = experiment.configurations.iter().filter(is_native);
        let Some((configuration, summary)) = natives.find_map(|one| Some((one.clone(), summarised(one)?))) else {
            let names: Vec<&str> = experiment.configurations.iter().map(|one| one.name.as_str()).collect();
            return Err(FitError::NoNative { directory, has: names.join(", ") });
        };
        let mut cells: Vec<&Cell> = summary.cells.iter().filter(|cell| cell.point.width().is_some()).collect();
        cells.sort_by_key(|cell| cell.point.threads);
        let quantities = chosen(&directory, &experiment, &cells, wanted)?;
        let figures: Vec<ScanFigure> =
            quantities.iter().map(|quantity| figure(&directory, quantity, &cells)).collect::<Result<_, _>>()?;
        let name = match experiment.workload == Programs::NAME || experiment.is_application() {
            true => figures.first().map_or_else(String::new, |figure| figure.name.clone()),
            false => experiment.name.clone(),
        };
        Ok(Self {
            directory,
            at: run.environment.at.clone(),
            machine: run.environment.machine.name.clone(),
            name: plain(&name),
            title: run.summary.title.clone(),
            experiment,
            configuration,
            figures,
            run: run.clone(),
        })
    }

    /// Whether it is STREAM, whose kernels move lines as fast as they can.
    pub fn is_stream(&self) -> bool {
        self.experiment.workload == workloads::stream::Stream::NAME
    }

    /// Numbers of threads, the fewest first.
    pub fn counts(&self) -> Vec<u32> {
        let all: BTreeSet<u32> =
            self.figures.iter().flat_map(|figure| &figure.cells).map(|cell| cell.threads).collect();
        all.into_iter().collect()
    }

    /// What the time of the profile is a time of.
    pub fn work(&self) -> String {
        match self.figures.first() {
            Some(ScanFigure { work: Work::Rate(_, amount), unit, .. }) => {
                let what = unit.rsplit_once('/').map_or(unit.as_str(), |(what, _)| what);
                format!("{amount} {}", what.trim_matches(['{', '}']))
            }
            Some(figure) if figure.unit.contains('/') => format!("one {} ({})", self.name, figure.unit),
            _ => "a run".to_owned(),
        }
    }

    /// What of the measurement a reader has to know.
    pub(super) fn notes(&self) -> Vec<String> {
        let cells = || self.figures.iter().flat_map(|figure| &figure.cells);
        let disturbed: BTreeSet<u32> = cells().filter(|cell| cell.disturbed).map(|cell| cell.threads).collect();
        let mut notes = Vec::new();
        if !disturbed.is_empty() {
            notes.push(format!(
                "With {} every repetition was disturbed by other processes: measure again on a quieter host.",
                threads(&disturbed.into_iter().collect::<Vec<_>>())
            ));
        }
        if !self.run.summary.complete {
            notes.push("The measured evaluation is not complete.".to_owned());
        }
        notes
    }
}

/// `1, 2 and 4 threads`.
pub(super) fn threads(counts: &[u32]) -> String {
    let words: Vec<String> = counts.iter().map(ToString::to_string).collect();
    let list = match words.as_slice() {
        [] => "no".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    };
    format!("{list} {}", if counts == [1] { "thread" } else { "threads" })
}

/// A name of lower-case letters, digits and `-`.
fn plain(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let plain: String = name.chars().map(letter).collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "program".to_owned() } else { words.join("-") }
}

/// The quantities that are fitted: of STREAM all, else one.
fn chosen(
    directory: &str,
    experiment: &Experiment,
    cells: &[&Cell],
    wanted: Option<&str>,
) -> Result<Vec<Quantity>, FitError> {
    let mut known: Vec<Quantity> = Vec::new();
    for Reduced { quantity, .. } in cells.iter().flat_map(|cell| &cell.figures) {
        if !known.iter().any(|other| other.name == quantity.name) {
            known.push(quantity.clone());
        }
    }
    let has = || known.iter().map(|one| format!("{:?} ({})", one.name, one.unit)).collect::<Vec<_>>().join(", ");
    let fault = |problem: String| FitError::Figure { directory: directory.to_owned(), problem, has: has() };
    if known.is_empty() {
        let why = match cells.iter().find_map(|cell| cell.wrong.clone()) {
            Some(reason) => format!("wrong: {reason}"),
            None => "nothing was measured at a number of threads".to_owned(),
        };
        let threads = cells.first().map_or(1, |cell| cell.point.threads);
        return Err(FitError::NoFigure { directory: directory.to_owned(), figure: "run".to_owned(), threads, why });
    }
    if experiment.workload == workloads::stream::Stream::NAME {
        return match wanted {
            None => Ok(known),
            Some(name) => Err(fault(format!("--figure {name}: STREAM's kernels are fitted together; leave it out"))),
        };
    }
    if let Some(name) = wanted {
        let found = known.iter().find(|one| one.name.eq_ignore_ascii_case(name));
        return found.map(|one| vec![one.clone()]).ok_or_else(|| fault(format!("no figure {name:?} was measured")));
    }
    let times: Vec<&Quantity> = known.iter().filter(|one| TIMES.iter().any(|(unit, _)| *unit == one.unit)).collect();
    match (known.as_slice(), times.as_slice()) {
        ([one], _) => Ok(vec![one.clone()]),
        (_, [time]) => Ok(vec![(*time).clone()]),
        _ => Err(fault(format!("it has {} figures", known.len()))),
    }
}

fn figure(directory: &str, quantity: &Quantity, cells: &[&Cell]) -> Result<ScanFigure, FitError> {
    let mut found = Vec::new();
    for cell in cells {
        let threads = cell.point.threads;
        let (directory, figure) = (directory.to_owned(), quantity.name.clone());
        let Some(reduced) = cell.of(&quantity.name) else {
            let why = match (cell.state, &cell.wrong) {
                (State::Missing, _) => "not measured yet".to_owned(),
                (_, Some(reason)) => format!("wrong: {reason}"),
                _ => "none was heard".to_owned(),
            };
            return Err(FitError::NoFigure { directory, figure, threads, why });
        };
        if !cell.verified {
            return Err(FitError::NotVerified { directory, figure, threads });
        }
        let measured = reduced.best;
        if !(measured.is_finite() && measured > 0.0) {
            return Err(FitError::Impossible(format!("{figure} with {threads} threads is {measured}")));
        }
        found.push(ScanCell {
            threads,
            measured,
            spread_percent: 100.0 * (reduced.spread.median / measured - 1.0).abs(),
            disturbed: cell.state == State::Disturbed,
        });
    }
    let work = Work::of(quantity, found.iter().map(|cell| cell.measured)).ok_or_else(|| FitError::NoTime {
        directory: directory.to_owned(),
        figure: quantity.name.clone(),
        unit: quantity.unit.clone(),
    })?;
    Ok(ScanFigure { name: quantity.name.clone(), unit: quantity.unit.clone(), work, cells: found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{bandwidth, seconds};

    #[test]
    fn a_rate_is_the_time_of_a_fixed_amount_of_work() {
        // 250 steps a second at the slowest: 10 s are 2500, and the next power of ten is 10,000, in
        // 40 s.
        let rate = Quantity { unit: "{step}/s".to_owned(), ..bandwidth("speed") };
        let work = Work::of(&rate, [500.0, 250.0].into_iter()).unwrap();
        assert_eq!((work, work.seconds(250.0)), (Work::Rate(1.0, 10_000.0), 40.0));
        assert!((work.figure(work.seconds(321.0)) - 321.0).abs() < 1e-9);
        // 0.5 ns a day: 10 s are 0.5 / 8640.
        let a_day = Work::of(&Quantity { unit: "ns/d".to_owned(), ..rate }, [0.5].into_iter()).unwrap();
        assert!((10.0..100.0).contains(&a_day.seconds(0.5)), "{a_day:?}");
    }

    #[test]
    fn what_is_neither_a_time_nor_a_rate_is_none() {
        let of = |unit: &str, quantity: Quantity| {
            Work::of(&Quantity { unit: unit.to_owned(), ..quantity }, [1.0].into_iter())
        };
        assert_eq!(of("ms", seconds("t")), Some(Work::Time(1e-3)));
        assert_eq!(of("J", seconds("energy")), None);
        assert_eq!(of("%", bandwidth("share")), None);
        assert_eq!(of("MB/J", bandwidth("thrift")), None);
    }

    #[test]
    fn names_are_plain() {
        assert_eq!(plain("Wall time (s)"), "wall-time-s");
        assert_eq!(plain("--"), "program");
    }
}
