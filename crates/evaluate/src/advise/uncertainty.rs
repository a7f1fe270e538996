//! How far an advice can be trusted: the model's errors on published figures of the same kind that
//! it never saw.

use crate::figure::{MB_PER_S, RATIO, SECONDS};
use crate::validation::cell::{Errors, Role, ValidationCell};
use serde::Serialize;
use simulator::workload::{Class, WorkloadProfile};

/// Errors of the model on figures of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Uncertainty {
    /// Which figures: `published bandwidths`.
    pub of: String,
    /// How many.
    pub figures: usize,
    /// Their mean absolute error, in per cent.
    pub usual_percent: f64,
    /// Their largest, in per cent.
    pub worst_percent: f64,
}

impl Uncertainty {
    /// Of a workload: bandwidths for kernels, times for programs that the cores bind, gains of
    /// vNUMA for programs that memory binds.
    pub(super) fn of(profile: &WorkloadProfile, cells: &[ValidationCell]) -> Self {
        let (unit, of) = match profile.application.as_ref().map(|application| application.class) {
            None => (MB_PER_S, "published bandwidths"),
            Some(Class::Compute) => (SECONDS, "published run times"),
            Some(_) => (RATIO, "published ratios of run times"),
        };
        // A figure that is known not to be covered is part of what can go wrong.
        let counts = |cell: &&ValidationCell| cell.unit == unit && cell.role != Role::Calibrated;
        let errors = Errors::of(cells.iter().filter(counts).filter_map(ValidationCell::error));
        Self {
            of: of.to_owned(),
            figures: errors.cells,
            usual_percent: errors.mape_percent,
            worst_percent: errors.max_percent,
        }
    }
}
