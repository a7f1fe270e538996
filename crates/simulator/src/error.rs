//! What the model cannot do.

use crate::machine_check::Finding;

/// A machine that cannot be modelled: the first of what
/// [`machine_check`](crate::machine_check::check) finds against it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{machine}: {finding}")]
pub struct ModelError {
    /// Name of the machine.
    pub machine: String,
    /// What is missing or impossible, and the cure.
    pub finding: Box<Finding>,
}

/// Rates that cannot be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SolveError {
    /// The fixed point was not reached.
    #[error("the solver did not converge in {iterations} iterations (last change {change:e}): no figure is given")]
    NoConvergence {
        /// Iterations made.
        iterations: u32,
        /// Largest relative change in the last of them.
        change: f64,
    },
    /// A group cannot be solved.
    #[error("group {group}: {field} = {value}: {valid}")]
    Group {
        /// Index of the group.
        group: usize,
        /// Which of its fields.
        field: &'static str,
        /// What it holds.
        value: f64,
        /// What would be valid.
        valid: &'static str,
    },
}
