//! Where a run stops, what it gives, and why it cannot go on.

use crate::SolveError;

/// Where a run stops at the latest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Simulated nanoseconds.
    pub end_ns: f64,
    /// Ends of phases. Guards against phases that take no time and never stop.
    pub most_events: u64,
}

impl Default for Limits {
    /// To the end of all phases, at most 100 million of them.
    fn default() -> Self {
        Self { end_ns: f64::INFINITY, most_events: 100_000_000 }
    }
}

/// How an actor spent its time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// When it was done with all its phases; the end of the run where it was not.
    pub end_ns: f64,
    /// Computing, serial parts of its own included.
    pub compute_ns: f64,
    /// Moving lines.
    pub memory_ns: f64,
    /// Waiting for messages.
    pub message_ns: f64,
    /// Waiting for other actors.
    pub barrier_ns: f64,
    /// Lines moved in phases that ended.
    pub lines: f64,
}

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last actor was done, or the limit.
    pub end_ns: f64,
    /// Of each actor, in the order in which they were added.
    pub actors: Vec<Times>,
    /// Phases that ended.
    pub events: u64,
    /// Times that the set of those at work had changed, so that rates were needed.
    pub changes: u64,
    /// Those of the changes in which the solver had to work; the others had been seen before.
    pub solved: u64,
}

/// A run that cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// The rates of a state cannot be computed.
    #[error("at {at_ns} ns: {error}")]
    Rates {
        /// When.
        at_ns: f64,
        /// Why.
        error: SolveError,
    },
    /// A kind of memory work cannot be taken in.
    #[error(transparent)]
    Memory(#[from] SolveError),
    /// Some actors wait at barriers that no one else will come to.
    #[error(
        "at {at_ns} ns: actors {actors:?} wait at a barrier for others that are done: give it the number of actors \
        that come"
    )]
    Deadlock {
        /// When.
        at_ns: f64,
        /// Who waits.
        actors: Vec<u32>,
    },
    /// A phase holds an impossible value.
    #[error("actor {actor}: {field} = {value}: {valid}")]
    Phase {
        /// Whose.
        actor: u32,
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: f64,
        /// What would be valid.
        valid: &'static str,
    },
    /// More phases ended than the limit allows.
    #[error("{events} phases ended and the run was not over: phases that take no time, or a limit too low")]
    TooManyEvents {
        /// How many.
        events: u64,
    },
}
