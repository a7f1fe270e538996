//! `[until]`: rounds go on until every ratio is known well enough, or the time is spent. Pure: what
//! comes next follows from the records, so that `--resume` continues it.
//!
//! **Rule.** First everything is visited in `rounds` rounds, four at least: of fewer there is no
//! interval. Then each round visits the points where an interval is still wider than asked, those
//! first that were visited least. After the first, a round of a point begins only if, at the pace
//! of its last one, it ends in time. Time counts while something is measured, over all sessions.
//!
//! **Example.** `interval_percent = 3`, `at_most_minutes = 20`; native and one VM at 1 and 2
//! threads. After four rounds of both, 0.93 (0.925 to 0.935) at 1 thread is 1.1 % wide and done;
//! 0.95 (0.92 to 0.99) at 2 threads is 7.4 % wide: a fifth round visits 2 threads alone.

use crate::experiment::Until;
use crate::figure::Figure;
use crate::interval::FEWEST_PAIRS;
use crate::point::Point;
use crate::records::Record;
use crate::resolve::Resolved;
use crate::schedule::{self, Visit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most rounds of a point, however far its intervals are from what is asked.
pub const MOST_ROUNDS: u32 = 1000;

/// How far it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// What was asked.
    pub asked: Until,
    /// What ended the rounds; `None` while they go on.
    pub ended_by: Option<EndedBy>,
    /// Most rounds of a point.
    pub rounds: u32,
    /// Minutes spent measuring, over all sessions.
    pub minutes: f64,
    /// Ratios without an interval.
    pub without: usize,
    /// The ratio whose interval is widest.
    pub widest: Option<Widest>,
}

/// What ended the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Every interval is as narrow as asked.
    Intervals,
    /// No further round ends in time.
    Time,
    /// [`MOST_ROUNDS`].
    Rounds,
}

/// A ratio and how wide its interval is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Widest {
    /// Name of the configuration.
    pub configuration: String,
    /// What was run.
    pub point: Point,
    /// What is counted.
    pub quantity: String,
    /// From end to end, in per cent of the ratio.
    pub percent: f64,
}

/// Rounds that are made of everything before any interval is looked at.
pub fn fewest_rounds(resolved: &Resolved) -> u32 {
    resolved.experiment.rounds.max(FEWEST_PAIRS as u32)
}

/// The visits that come next; none: it has ended, and by what. `ratios` are those of the records.
pub fn next(resolved: &Resolved, until: &Until, records: &[Record], ratios: &[Figure]) -> Result<Vec<Visit>, EndedBy> {
    let points: Vec<Vec<Point>> = resolved.configurations.iter().map(|one| one.points.clone()).collect();
    let made = Made::of(records);
    let (mut any_open, mut any_in_bounds, mut best): (bool, bool, Option<(u32, Vec<Visit>)>) = (false, false, None);
    for point in schedule::all_points(&points) {
        let missing = |round: u32| {
            let mut visits = schedule::turn(&points, &point, round);
            visits.retain(|visit| !made.has(resolved, visit));
            visits
        };
        let Some((round, visits)) =
            (0..MOST_ROUNDS).map(|round| (round, missing(round))).find(|(_, left)| !left.is_empty())
        else {
            any_open |= is_open(until, ratios, &point);
            continue;
        };
        let is_begun = visits.len() < schedule::turn(&points, &point, round).len();
        if !is_begun && round >= fewest_rounds(resolved) && !is_open(until, ratios, &point) {
            continue;
        }
        (any_open, any_in_bounds) = (true, true);
        let is_in_time = made.seconds() + made.pace(&point) <= 60.0 * until.at_most_minutes;
        let comes_first = best.as_ref().is_none_or(|(least, _)| round < *least);
        if comes_first && (round == 0 || is_begun || is_in_time) {
            best = Some((round, visits));
        }
    }
    match (best, any_open, any_in_bounds) {
        (Some((_, visits)), _, _) => Ok(visits),
        (None, false, _) => Err(EndedBy::Intervals),
        (None, true, true) => Err(EndedBy::Time),
        (None, true, false) => Err(EndedBy::Rounds),
    }
}

/// How far it came; `None` of an experiment that says how many rounds there are.
pub fn reached(resolved: &Resolved, records: &[Record], ratios: &[Figure]) -> Option<Reached> {
    let asked = resolved.experiment.until.clone()?;
    let made = Made::of(records);
    let width = |ratio: &Figure| {
        Some(Widest {
            configuration: ratio.configuration.clone(),
            point: ratio.point.clone(),
            quantity: ratio.quantity.name.clone(),
            percent: ratio.interval()?.width_percent(ratio.value),
        })
    };
    Some(Reached {
        ended_by: next(resolved, &asked, records, ratios).err(),
        rounds: made.visits.keys().map(|(_, _, round)| round.saturating_add(1)).max().unwrap_or(0),
        minutes: made.seconds() / 60.0,
        without: ratios.iter().filter(|ratio| ratio.interval().is_none()).count(),
        widest: ratios.iter().filter_map(width).max_by(|one, other| one.percent.total_cmp(&other.percent)),
        asked,
    })
}

/// Whether a ratio at a point is not known well enough. Where there is none, nothing is.
fn is_open(until: &Until, ratios: &[Figure], point: &Point) -> bool {
    let is_wide = |ratio: &Figure| {
        ratio.interval().is_none_or(|interval| interval.width_percent(ratio.value) > until.interval_percent)
    };
    ratios.iter().any(|ratio| ratio.point == *point && is_wide(ratio))
}

/// The visits of the records, with the seconds that each took.
struct Made<'a> {
    visits: BTreeMap<(&'a Point, &'a str, u32), f64>,
}

impl<'a> Made<'a> {
    fn of(records: &'a [Record]) -> Self {
        let visit = |record: &'a Record| match record {
            Record::Visit { configuration, point, round, seconds, .. } => {
                Some(((point, configuration.as_str(), *round), *seconds))
            }
            _ => None,
        };
        Self { visits: records.iter().filter_map(visit).collect() }
    }

    fn has(&self, resolved: &Resolved, visit: &Visit) -> bool {
        let name = resolved.configurations[visit.configuration].name.as_str();
        self.visits.contains_key(&(&visit.point, name, visit.round))
    }

    fn seconds(&self) -> f64 {
        self.visits.values().sum()
    }

    /// Seconds that the last round of a point took.
    fn pace(&self, point: &Point) -> f64 {
        let own = || self.visits.iter().filter(|((of, _, _), _)| *of == point);
        let last = own().map(|((_, _, round), _)| *round).max();
        own().filter(|((_, _, round), _)| Some(*round) == last).map(|(_, seconds)| seconds).sum()
    }
}
