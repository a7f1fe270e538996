//! Fitting what is marked calibrated: which values of machine and profile give the published
//! figures that an experiment names for it.
//!
//! The values stored in machine files and profiles are those of the closed queueing network; a test
//! fits them again. Max-min fairness gets values of its own from the same figures, so that the
//! cross-check is not measured with the other's scale.

use super::predict::Ground;
use super::settings::NativeOs;
use super::{ModelledError, Setting, stream};
use crate::experiment::Experiment;
use crate::published::Published;
use simulator::{MachineModel, RateSolver};
use topology::rates::Rates;

/// Rounds over all values; each depends a little on the others.
const ROUNDS: usize = 6;
/// A fitted value is searched from the stored one divided by this to the stored one times it.
const WIDEST: f64 = 3.0;
/// Halvings of an interval in a search.
const HALVINGS: usize = 34;

/// Values that give the calibration figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// Unloaded local latency, in nanoseconds: of the first kernel with one thread.
    pub local_latency_ns: f64,
    /// Traffic of a node's memory, in GB/s: of the first kernel with the most threads. Threads lie
    /// as they should, one a core.
    pub node_bandwidth_gb_per_s: f64,
    /// Lines in flight of each kernel: of the others with one thread; that of the first is the
    /// core's.
    pub lines_in_flight: Vec<f64>,
}

impl Fitted {
    /// The rates with these values; links keep their latency in multiples of the local one.
    pub fn rates(&self, stored: &Rates) -> Rates {
        let mut rates = stored.clone();
        let longer = self.local_latency_ns / stored.local_latency_ns.value;
        rates.local_latency_ns.value = self.local_latency_ns;
        rates.node_bandwidth_gb_per_s.value = self.node_bandwidth_gb_per_s;
        // A search tries more than the channels carry on its way.
        rates.channels_per_node = None;
        rates.channel_mt_per_s = None;
        rates.links.iter_mut().for_each(|link| link.latency_ns *= longer);
        rates
    }
}

/// The published figures that a machine and a profile are calibrated on: of one configuration, with
/// the first kernel at one thread and at more.
pub(crate) fn calibration<'a>(experiment: &'a Experiment, first_kernel: &str) -> Option<&'a Published> {
    experiment.published.iter().find(|published| {
        let counts = published.calibrated(first_kernel);
        counts.contains(&1) && counts.iter().any(|&count| count > 1)
    })
}

/// Fits all values; `None` where the experiment names no figures for it.
///
/// # Errors
/// Rates cannot be computed on the way.
pub(crate) fn fit(
    ground: &Ground,
    experiment: &Experiment,
    solver: &mut dyn RateSolver,
) -> Result<Option<Fitted>, ModelledError> {
    let Some(first) = ground.profiles.first().and_then(|profile| profile.kernels.first()) else { return Ok(None) };
    let Some(published) = calibration(experiment, &first.name) else { return Ok(None) };
    let most = published.calibrated(&first.name).iter().copied().max().unwrap_or(1);
    let ideal = Experiment { native_os: NativeOs::default(), ..experiment.clone() };
    let mut bench = Bench { ground, experiment: &ideal, published, solver };
    let kernels = &ground.profiles[0].kernels;
    let mut fitted = Fitted {
        local_latency_ns: ground.rates.local_latency_ns.value,
        node_bandwidth_gb_per_s: ground.rates.node_bandwidth_gb_per_s.value,
        lines_in_flight: kernels.iter().map(|kernel| kernel.lines_in_flight.value).collect(),
    };
    let stored = (fitted.local_latency_ns, fitted.node_bandwidth_gb_per_s);
    for _ in 0..ROUNDS {
        let target = bench.target(&first.name, 1)?;
        fitted.local_latency_ns = search(stored.0 / WIDEST, stored.0 * WIDEST, |latency_ns| {
            Ok(target - bench.figure(&Fitted { local_latency_ns: latency_ns, ..fitted.clone() }, 0, 1)?)
        })?;
        let target = bench.target(&first.name, most)?;
        fitted.node_bandwidth_gb_per_s = search(stored.1 / WIDEST, stored.1 * WIDEST, |node_bandwidth_gb_per_s| {
            Ok(bench.figure(&Fitted { node_bandwidth_gb_per_s, ..fitted.clone() }, 0, most)? - target)
        })?;
    }
    for (index, kernel) in kernels.iter().enumerate().skip(1) {
        if !published.calibrated(&kernel.name).contains(&1) {
            continue;
        }
        let target = bench.target(&kernel.name, 1)?;
        let with = |lines: f64| {
            let mut other = fitted.clone();
            other.lines_in_flight[index] = lines;
            other
        };
        let most_lines = ground.rates.lines_in_flight_per_core.value;
        let lines = search(1.0, most_lines, |lines| Ok(bench.figure(&with(lines), index, 1)? - target))?;
        fitted.lines_in_flight[index] = lines;
    }
    Ok(Some(fitted))
}

struct Bench<'a> {
    ground: &'a Ground<'a>,
    experiment: &'a Experiment,
    published: &'a Published,
    solver: &'a mut dyn RateSolver,
}

impl Bench<'_> {
    fn target(&self, kernel: &str, threads: u32) -> Result<f64, ModelledError> {
        self.published.value(kernel, threads).ok_or_else(|| ModelledError::Field {
            field: "published.figure.calibrated".to_owned(),
            problem: format!("{kernel} with {threads} threads has no published figure to calibrate on"),
        })
    }

    fn figure(&mut self, fitted: &Fitted, kernel: usize, threads: u32) -> Result<f64, ModelledError> {
        let model = MachineModel::new(self.ground.machine, &fitted.rates(self.ground.rates))?;
        let setting = Setting { experiment: self.experiment, model: &model, ..self.ground.setting(&model) };
        let mut profile = self.ground.profiles[0].kernels[kernel].profile();
        profile.lines_in_flight = fitted.lines_in_flight[kernel];
        let arrangements = setting.arrangements(threads)?;
        let (mb_per_s, _) = stream::rate(&setting, self.solver, &arrangements, &profile)
            .map_err(|reason| setting.unsolved("calibration", reason))?;
        Ok(mb_per_s)
    }
}

/// Where a rising function crosses zero between two values, by halving; an end of the interval
/// where it does not.
fn search(
    mut low: f64,
    mut high: f64,
    mut rising: impl FnMut(f64) -> Result<f64, ModelledError>,
) -> Result<f64, ModelledError> {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if rising(middle)? < 0.0 { low = middle } else { high = middle }
    }
    Ok(f64::midpoint(low, high))
}
