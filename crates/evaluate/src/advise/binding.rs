//! Which resource binds: the busiest station, or, where none is full, what the cores themselves can
//! do.

use crate::modelled::{ModelledError, Prediction};
use simulator::{MachineModel, StationKind};
use topology::read::Described;

/// A station that serves for so much of the time binds.
const FULL: f64 = 0.9;
/// Stations this close to the busiest are named with it.
const AS_BUSY: f64 = 0.02;

/// In words: `memory of node 0, node 1 (100 %)`.
pub(super) fn binds(described: &Described, prediction: &Prediction) -> Result<String, ModelledError> {
    let (Some(rates), Some(load)) = (&described.rates, prediction.loads.last()) else {
        return Ok("the cores: its work is in caches".to_owned());
    };
    let model = MachineModel::new(&described.machine, rates)?;
    let busiest = load.utilisation.iter().copied().fold(0.0, f64::max);
    let percent = format!("{:.0} %", 100.0 * busiest);
    let as_busy = |kind: &str| {
        let stations = model.stations().iter().zip(&load.utilisation);
        let names: Vec<String> = stations
            .filter(|(_, utilisation)| **utilisation >= busiest - AS_BUSY)
            .filter_map(|(station, _)| name(&station.kind).filter(|(of, _)| *of == kind))
            .map(|(_, name)| name)
            .collect();
        shortened(&names)
    };
    let at = load.utilisation.iter().position(|utilisation| *utilisation >= busiest);
    let kind = at.and_then(|at| name(&model.stations()[at].kind)).map_or("", |(kind, _)| kind);
    Ok(if busiest >= FULL {
        format!("{kind} {} ({percent})", as_busy(kind))
    } else {
        format!("the cores' own lines in flight and latency; busiest: {kind} {} ({percent})", as_busy(kind))
    })
}

fn name(kind: &StationKind) -> Option<(&'static str, String)> {
    Some(match kind {
        StationKind::Controller(node) => ("memory of", format!("node {node}")),
        StationKind::Link { from, to } => ("link", format!("{from} to {to}")),
        StationKind::LlcPort(llc) => ("port of", format!("last-level cache {llc}")),
    })
}

/// At most four names.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 4;
    if names.len() <= SHOWN {
        names.join(", ")
    } else {
        format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
    }
}
