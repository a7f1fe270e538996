//! Max-min fair rates by progressive filling: fast, an upper bound near the knee, and the
//! cross-check of the queueing network.
//!
//! All rates rise together from 0, so those that still rise are all the same: one level. An actor
//! stops at its own bound, or at the level at which a station that it needs is full.

use crate::classes::station_bit;
use crate::{Active, Classes, RateSolver, SolveError};

/// Levels nearer to each other than this share are one: what differs by rounding alone must stop
/// together.
const SAME: f64 = 1e-12;

/// Raises all rates together; an actor stops at its own bound or when a station that it needs is
/// full.
#[derive(Clone, Debug, Default)]
pub struct MaxMin {
    /// Groups that still rise, each with its bound.
    rising: Vec<(u32, f64)>,
    /// By station.
    open: Vec<Open>,
}

/// A station that is not full.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Capacity that the stopped ones leave.
    left: f64,
    /// Demand of the rising ones for each unit of their level.
    load: f64,
    /// Rising groups.
    users: u32,
    is_full: bool,
}

impl RateSolver for MaxMin {
    fn rates(&mut self, classes: &Classes, active: &[Active], lines_per_ns: &mut Vec<f64>) -> Result<(), SolveError> {
        self.load(classes, active);
        lines_per_ns.clear();
        lines_per_ns.resize(active.len(), 0.0);
        let mut rising = std::mem::take(&mut self.rising);
        // Each round stops at least one group: one whose bound is below the level at which the next
        // station is full, or, where there is none, one that needs that station.
        while !rising.is_empty() {
            let full_at = self.first_full();
            let before = rising.len();
            // All bounds below the level stop at once: a group that stops early only lifts the
            // level of the rest.
            rising.retain(|&(index, bound)| {
                let is_held = bound <= full_at * (1.0 + SAME);
                if is_held {
                    lines_per_ns[index as usize] = bound;
                    self.stop(classes, active[index as usize], bound);
                }
                !is_held
            });
            if rising.len() < before {
                continue;
            }
            let full = self.mark_full(full_at);
            rising.retain(|&(index, _)| {
                let group = active[index as usize];
                // Most groups need none of the full stations: one comparison tells.
                let is_held = classes.row(group.class).mask & full != 0
                    && classes.demands(group.class).iter().any(|demand| self.open[demand.station as usize].is_full);
                if is_held {
                    lines_per_ns[index as usize] = full_at;
                    self.stop(classes, group, full_at);
                }
                !is_held
            });
        }
        self.rising = rising;
        Ok(())
    }

    fn forget(&mut self) {}

    fn name(&self) -> &'static str {
        "max-min fair"
    }
}

impl MaxMin {
    fn load(&mut self, classes: &Classes, active: &[Active]) {
        self.rising.clear();
        self.open.clear();
        self.open.resize(classes.stations(), Open { left: 1.0, load: 0.0, users: 0, is_full: false });
        for (group, index) in active.iter().zip(0..) {
            self.rising.push((index, classes.row(group.class).bound));
            for demand in classes.demands(group.class) {
                let station = &mut self.open[demand.station as usize];
                station.load += group.actors * demand.ns;
                station.users += 1;
            }
        }
    }

    /// The level at which the next station is full.
    fn first_full(&self) -> f64 {
        let levels =
            self.open.iter().map(|station| if station.users > 0 { station.left / station.load } else { f64::INFINITY });
        levels.fold(f64::INFINITY, f64::min)
    }

    /// Marks the stations that are full at this level; as a mask, see [`station_bit`].
    fn mark_full(&mut self, level: f64) -> u64 {
        let mut full = 0;
        for (station, index) in self.open.iter_mut().zip(0..) {
            station.is_full = station.users > 0 && station.left <= level * (1.0 + SAME) * station.load;
            if station.is_full {
                full |= station_bit(index);
            }
        }
        full
    }

    fn stop(&mut self, classes: &Classes, group: Active, rate: f64) {
        for demand in classes.demands(group.class) {
            let ns = group.actors * demand.ns;
            let station = &mut self.open[demand.station as usize];
            station.left = (station.left - rate * ns).max(0.0);
            // What is left of a sum after its parts are taken off may be below the smallest part by
            // rounding; never below 0.
            station.load = (station.load - ns).max(f64::MIN_POSITIVE);
            station.users -= 1;
        }
    }
}
