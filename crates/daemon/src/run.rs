//! The loop.

use crate::{Balancer, Period};
use scheduler::{Host, ObserveError};
use std::time::{Duration, Instant};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The time has passed.
    Time,
    /// Somebody wants the balancer to stop.
    Stop,
}

/// Balances until `wait` says to stop. `wait` is given the time to the next period; a period that
/// took longer than that is followed by the next one at once, and none is made up for. `tell` hears
/// of every period, also of those in which the host could not be read.
pub fn run<H: Host>(
    balancer: &mut Balancer<H>,
    mut wait: impl FnMut(Duration) -> Wake,
    mut tell: impl FnMut(Result<Period, ObserveError>),
) {
    let period = Duration::from_millis(balancer.policy().period_ms);
    loop {
        let started = Instant::now();
        tell(balancer.period());
        if wait(period.saturating_sub(started.elapsed())) == Wake::Stop {
            return;
        }
    }
}
