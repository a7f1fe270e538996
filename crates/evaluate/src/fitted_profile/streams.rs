//! STREAM: one value for each kernel, its lines in flight.

use super::bench::{Bench, sourced};
use super::scan::{Scan, ScanFigure, threads};
use super::{FitError, FittedProfile, Residual};
use crate::profiles;
use simulator::SolveError;
use simulator::workload::{Kernel, WorkloadProfile};
use topology::rates::Source;
use workloads::stream::{Stores, Stream};

/// Halvings of an interval, in which the error is taken at both ends of the middle third.
const STEPS: u32 = 40;

/// Fits each kernel.
pub(super) fn fit(scan: &Scan, bench: &Bench, counts: &[u32]) -> Result<FittedProfile, FitError> {
    let stores = match scan.experiment.parameters::<Stream>().stores {
        Stores::Ordinary => "stream-ordinary",
        Stores::Streaming => "stream-streaming",
    };
    let mut profile: WorkloadProfile = profiles::find(stores)?;
    let mut residuals = Vec::new();
    for kernel in &mut profile.kernels {
        let Some(figure) = scan.figures.iter().find(|figure| figure.name.eq_ignore_ascii_case(&kernel.name)) else {
            return Err(FitError::Impossible(format!("{} was not measured", kernel.name)));
        };
        let lines = lines_in_flight(kernel, figure, bench, counts)?;
        let without = |left_out: u32| -> Result<Option<f64>, SolveError> {
            let others: Vec<u32> = counts.iter().copied().filter(|&count| count != left_out).collect();
            if others.is_empty() || !counts.contains(&left_out) {
                return Ok(None);
            }
            let mut other = kernel.profile();
            other.lines_in_flight = lines_in_flight(kernel, figure, bench, &others)?;
            bench.mb_per_s(&other, left_out).map(Some)
        };
        let left_out: Vec<Option<f64>> =
            figure.cells.iter().map(|cell| without(cell.threads)).collect::<Result<_, _>>()?;
        let from = format!("homenode profile: native {} on {}, {}", kernel.name, scan.machine, threads(counts));
        kernel.lines_in_flight = sourced(lines, Source::Calibrated, from);
        for (cell, left_out) in figure.cells.iter().zip(left_out) {
            residuals.push(Residual {
                figure: kernel.name.clone(),
                threads: cell.threads,
                measured: cell.measured,
                modelled: bench.mb_per_s(&kernel.profile(), cell.threads)?,
                left_out,
                unit: figure.unit.clone(),
                fitted: counts.contains(&cell.threads),
                spread_percent: cell.spread_percent,
            });
        }
    }
    profile.name.clone_from(&scan.name);
    profile.title = format!("STREAM on {}: {}", scan.machine, scan.title);
    Ok(FittedProfile {
        profile,
        text: String::new(),
        machine: scan.machine.clone(),
        work: "bytes that STREAM counts".to_owned(),
        parts: None,
        residuals,
        candidates: Vec::new(),
        vms: Vec::new(),
        notes: Vec::new(),
    })
}

/// The lines in flight with the least squares of relative errors. A rate rises with them up to the
/// machine's own, so that the error has one least value between.
fn lines_in_flight(kernel: &Kernel, figure: &ScanFigure, bench: &Bench, counts: &[u32]) -> Result<f64, SolveError> {
    let error = |lines: f64| -> Result<f64, SolveError> {
        let mut profile = kernel.profile();
        profile.lines_in_flight = lines;
        let mut sum = 0.0;
        for cell in figure.cells.iter().filter(|cell| counts.contains(&cell.threads)) {
            sum += (bench.mb_per_s(&profile, cell.threads)? / cell.measured - 1.0).powi(2);
        }
        Ok(sum)
    };
    let (mut low, mut high) = (1.0, bench.model().rates().lines_in_flight_per_core.value.max(1.0));
    for _ in 0..STEPS {
        let third = (high - low) / 3.0;
        if error(low + third)? < error(high - third)? { high -= third } else { low += third }
    }
    Ok(f64::midpoint(low, high))
}
