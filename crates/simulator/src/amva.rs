//! The closed queueing network, by approximate mean value analysis (Bard 1979, Schweitzer 1979):
//! queues grow before a station is full.
//!
//! With `x` the rate of one actor, `C` its lines in flight, `D` its time at a station, `c` at its
//! core, and `Q` the lines at a station:
//!
//! ```text
//! R = D (1 + Q - q / C)            q = x R            Q = sum over actors of q
//! Rc = c (1 + qc (1 - 1 / C))      qc = x Rc
//! x (L - sum of D + Rc + sum of R) = C                (Little)
//! ```
//!
//! `q` and `qc` follow from `x` and `Q` in closed form, so `x` of each class and `Q` of each
//! station are all that is unknown. They are found by Newton's method, in as many dimensions as
//! there are classes or stations, whichever are fewer. Where that does not get near, the damped
//! fixed point takes over.

mod elimination;
mod network;

use crate::{Active, Classes, RateSolver, SolveError};
use network::Network;

/// Steps of Newton's method after which the damped fixed point takes over. It needs 3 to 8.
const NEWTON_STEPS: u32 = 40;

/// Bard-Schweitzer approximate MVA. Every line in flight is a customer; a core is a private station
/// of its actor.
#[derive(Clone, Debug)]
pub struct Amva {
    /// Largest relative change of a rate or a queue at which the fixed point is taken as reached.
    pub tolerance: f64,
    /// Steps after which it gives up.
    pub most_iterations: u32,
    network: Network,
    iterations: u32,
}

impl Default for Amva {
    fn default() -> Self {
        Self::new(1e-6, 10_000)
    }
}

impl Amva {
    /// With this tolerance, and at most this many steps.
    pub fn new(tolerance: f64, most_iterations: u32) -> Self {
        Self { tolerance, most_iterations, network: Network::default(), iterations: 0 }
    }

    /// Steps of the last search.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }
}

impl RateSolver for Amva {
    fn rates(&mut self, classes: &Classes, active: &[Active], lines_per_ns: &mut Vec<f64>) -> Result<(), SolveError> {
        lines_per_ns.clear();
        if active.is_empty() {
            return Ok(());
        }
        let network = &mut self.network;
        network.load(classes, active);
        let mut change = f64::INFINITY;
        let mut before: f64;
        let mut is_newton = true;
        for iteration in 0..self.most_iterations {
            self.iterations = iteration + 1;
            is_newton &= iteration < NEWTON_STEPS;
            let step = if is_newton { network.newton() } else { None };
            before = change;
            change = match step {
                Some(change) => change,
                None => {
                    is_newton = false;
                    network.damped()
                }
            };
            // What steps that shrink alike would still add up to: the next one need not be made to
            // know that it is small.
            let shrink = change / before;
            let to_come =
                if is_newton && before.is_finite() && shrink < 0.5 { change * shrink / (1.0 - shrink) } else { change };
            if change.min(to_come) < self.tolerance {
                network.keep(active);
                lines_per_ns.extend_from_slice(network.rates());
                return Ok(());
            }
        }
        self.network.forget();
        Err(SolveError::NoConvergence { iterations: self.most_iterations, change })
    }

    fn forget(&mut self) {
        self.network.forget();
    }

    fn name(&self) -> &'static str {
        "closed queueing network (approximate MVA)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, StationId};

    #[test]
    fn the_damped_steps_end_where_newton_ends() {
        // A near and a far class at one controller, the far one over a link; the near one computes,
        // too.
        let group = |actors, latency_ns, core_ns, demands: &[(u32, f64)]| Group {
            actors,
            lines_in_flight: 10.0,
            latency_ns,
            core_ns,
            demands: demands.iter().map(|&(station, ns)| (StationId(station), ns)).collect(),
        };
        let groups = [group(3.0, 65.0, 2.0, &[(0, 3.0)]), group(2.0, 110.0, 0.0, &[(0, 3.0), (1, 4.0)])];
        let (classes, active, _) = crate::merge(2, &groups).expect("valid");
        let mut newton = Amva::new(1e-12, 100);
        let mut rates = Vec::new();
        newton.rates(&classes, &active, &mut rates).expect("rates");
        let mut network = Network::default();
        network.load(&classes, &active);
        network.newton().expect("a step");
        let steps = (0..10_000).find(|_| network.damped() < 1e-13).expect("an end");
        assert!(steps > 20, "{steps} steps: the damped way is the slow one");
        for (damped, newton) in network.rates().iter().zip(&rates) {
            assert!((damped / newton - 1.0).abs() < 1e-10, "{damped} {newton}");
        }
    }
}
