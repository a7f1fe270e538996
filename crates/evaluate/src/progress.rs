//! What an evaluation tells while it runs.

use crate::point::Point;

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// It begins.
    Begin {
        /// Expected duration; where that is not known, a weight, of which [`Self::Advanced`] tells
        /// the parts.
        seconds: f64,
        /// How well anybody knows that.
        expectation: Expectation,
    },
    /// Participants of a configuration are being started.
    Starting {
        /// Its name.
        configuration: &'a str,
        /// How many.
        participants: u32,
    },
    /// They have said their first line.
    Started {
        /// Name of the configuration.
        configuration: &'a str,
        /// From the first start to the last first line.
        seconds: f64,
    },
    /// A configuration is visited.
    Visit {
        /// Name of the configuration.
        configuration: &'a str,
        /// What is measured.
        point: &'a Point,
        /// From 0.
        round: u32,
    },
    /// A repetition is over.
    Repetition {
        /// Whether it was rejected.
        rejected: bool,
    },
    /// Part of the work is done.
    Advanced {
        /// Of the expected duration.
        seconds: f64,
    },
    /// Something to know.
    Note(&'a str),
}

/// How well it is known beforehand how long an evaluation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Roughly so long.
    About,
    /// So long, or shorter: rounds go on until intervals are narrow enough.
    AtMost,
    /// Not before it ran for a while.
    Unknown,
}

/// Who is told.
pub trait Progress {
    /// Something happened.
    fn tell(&mut self, event: Event<'_>);
}

/// Nobody.
#[derive(Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn tell(&mut self, _: Event<'_>) {}
}
