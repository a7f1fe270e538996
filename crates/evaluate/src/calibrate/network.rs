//! What a message between VMs costs, fitted to a measured scan over message sizes.
//!
//! **Rule.** A series over bytes whose unit is a time is the scan. The configuration whose VMs are
//! on one switch gives the way over a switch, the one whose VMs are on several the way over an
//! uplink. `latency + bytes / bandwidth` is fitted by least squares of the relative errors, so that
//! small and large messages weigh the same.
//!
//! **Example.** 64 B in 30.5 us and 1 MiB in 450 us: about 30.5 us and 2.5 GB/s.

use super::fit::Residual;
use crate::experiment::Configuration;
use crate::figure::Figure;
use crate::fitted_profile::least_squares;
use crate::modelled::beside::MeasuredRun;
use serde::Serialize;
use topology::rates::{NetworkRates, Source, Sourced, Way};

/// Fewer sizes than these leave nothing to judge the fit by.
const FEWEST_SIZES: usize = 3;

/// A network as the model takes it, and how well it fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FittedNetwork {
    /// The rates.
    pub rates: NetworkRates,
    /// Each measured time and the model's.
    pub residuals: Vec<Residual>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// A run that holds no scan of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkScanError {
    /// No configuration's VMs are joined so.
    #[error(
        "{directory}: no configuration has several VMs on {what}; it has: {found}. Write `switches` \
         (docs/network.md)"
    )]
    NoConfiguration {
        /// The results.
        directory: String,
        /// `one switch`, `several switches`.
        what: &'static str,
        /// Its configurations.
        found: String,
    },
    /// It has too few times over message sizes.
    #[error(
        "{directory}: configuration \"{configuration}\" has {found} times over sizes in B, and at least {} are \
         needed: a figure with `over` whose unit is us, ms, ns or s (docs/command.md)",
        FEWEST_SIZES
    )]
    TooFew {
        /// The results.
        directory: String,
        /// Its name.
        configuration: String,
        /// How many there are.
        found: usize,
    },
    /// No latency and bandwidth above zero give the times.
    #[error(
        "{directory}: the times of configuration \"{configuration}\" do not rise with the size: no latency and \
         bandwidth give them; measure again on a quieter host"
    )]
    NoFit {
        /// The results.
        directory: String,
        /// Its name.
        configuration: String,
    },
}

/// The network of a measured run.
///
/// # Errors
/// It holds no scan of VMs on one switch, or of VMs on several; or the times give no rates.
pub fn of_run(run: &MeasuredRun) -> Result<FittedNetwork, NetworkScanError> {
    let switch = configuration(run, "one switch", |switches| switches == 1)?;
    let uplink = configuration(run, "several switches", |switches| switches > 1)?;
    let (switch, mut residuals, one) = way(run, switch)?;
    let (uplink, others, other) = way(run, uplink)?;
    residuals.extend(others);
    Ok(FittedNetwork {
        rates: NetworkRates { switch, uplink },
        residuals,
        notes: one.into_iter().chain(other).collect(),
    })
}

/// The first configuration of several VMs on a number of switches that is wanted.
fn configuration<'a>(
    run: &'a MeasuredRun,
    what: &'static str,
    is_wanted: impl Fn(u32) -> bool,
) -> Result<&'a str, NetworkScanError> {
    let all = &run.resolved.experiment.configurations;
    let vms = |configuration: &Configuration| {
        let resolved = run.resolved.configurations.iter().find(|one| one.name == configuration.name);
        resolved.map_or(0, |one| one.vms.len() as u32)
    };
    let is_it = |one: &&Configuration| {
        let count = vms(one);
        count > 1 && one.switches.as_ref().is_some_and(|switches| is_wanted(switches.among(count)))
    };
    let names = || all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(", ");
    let none = || NetworkScanError::NoConfiguration { directory: run.directory.clone(), what, found: names() };
    all.iter().find(is_it).map(|one| one.name.as_str()).ok_or_else(none)
}

/// A time over bytes: the bytes, and microseconds.
fn timed(figure: &Figure) -> Option<(u64, f64)> {
    let at = figure.quantity.at.as_ref().filter(|at| at.unit == "B" && at.value > 0)?;
    let in_us = match figure.quantity.unit.as_str() {
        "ns" => 1e-3,
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some((at.value, figure.value * in_us))
}

fn way(run: &MeasuredRun, name: &str) -> Result<(Way, Vec<Residual>, Option<String>), NetworkScanError> {
    let figures = run.summary.figures();
    let own = figures.iter().filter(|figure| figure.configuration == name && timed(figure).is_some());
    // Of several series, and several widths, the first.
    let own: Vec<&Figure> = own.collect();
    let series = |figure: &Figure| figure.quantity.at.as_ref().map(|at| (at.series.clone(), figure.threads()));
    let first = own.first().and_then(|figure| series(figure));
    let scan: Vec<(u64, f64)> =
        own.iter().filter(|figure| series(figure) == first).filter_map(|figure| timed(figure)).collect();
    let (directory, configuration) = (run.directory.clone(), name.to_owned());
    if scan.len() < FEWEST_SIZES {
        return Err(NetworkScanError::TooFew { directory, configuration, found: scan.len() });
    }
    let Some((latency_us, gb_per_s)) = fitted(&scan) else {
        return Err(NetworkScanError::NoFit { directory, configuration });
    };
    let residual = |&(bytes, us): &(u64, f64)| Residual {
        what: format!("{name}, {bytes} B"),
        measured: us,
        modelled: latency_us + bytes as f64 / gb_per_s / 1e3,
        unit: "us",
        fitted: true,
    };
    let from = format!("{} sizes of {name}, measured {}", scan.len(), run.environment.at);
    let value = |value| Sourced { value, source: Source::Calibrated, from: from.clone() };
    let emulated = run
        .summary
        .emulated
        .then(|| format!("{name} ran in VMs by software emulation (TCG): its messages cost far more than under KVM."));
    let way = Way { latency_us: value(latency_us), gb_per_s: value(gb_per_s) };
    Ok((way, scan.iter().map(residual).collect(), emulated))
}

/// Microseconds and GB/s; `None` where no two numbers above zero give the times.
fn fitted(scan: &[(u64, f64)]) -> Option<(f64, f64)> {
    // A row is the time of one message and of its bytes over the time that they should give.
    let row = |&(bytes, us): &(u64, f64)| [1.0 / us, bytes as f64 / us, 0.0];
    let rows: Vec<[f64; least_squares::COLUMNS]> = scan.iter().filter(|(_, us)| *us > 0.0).map(row).collect();
    let [latency_us, us_per_byte, _] = least_squares::solve(&rows, [true, true, false]);
    (latency_us > 0.0 && us_per_byte > 0.0).then(|| (latency_us, 1e-3 / us_per_byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_and_a_bandwidth_are_found_again() {
        // 30 us and 2.5 GB/s: 1 MiB takes 30 + 1048576 / 2500 = 449.4 us.
        let us = |bytes: u64| 30.0 + bytes as f64 / 2500.0;
        let scan: Vec<(u64, f64)> = [1, 64, 4096, 65_536, 1 << 20].map(|bytes| (bytes, us(bytes))).to_vec();
        assert!((us(1 << 20) - 449.4).abs() < 0.1);
        let (latency_us, gb_per_s) = fitted(&scan).expect("two numbers");
        assert!((latency_us - 30.0).abs() < 1e-6 && (gb_per_s - 2.5).abs() < 1e-6, "{latency_us} {gb_per_s}");
        // Small messages weigh as much as large ones: one slow size moves the latency by less.
        let mut slow = scan;
        slow[4].1 *= 1.1;
        assert!((fitted(&slow).expect("two numbers").0 / 30.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn times_that_do_not_rise_give_no_bandwidth() {
        assert_eq!(fitted(&[(1, 30.0), (1024, 20.0), (1 << 20, 10.0)]), None);
    }
}
