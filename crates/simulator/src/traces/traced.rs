//! A modelled host on which a trace runs: looked at every period, it shows what would be there
//! then.

use super::{Replay, Trace};
use crate::host::{KernelRules, SimulatedHost};
use crate::{MachineModel, RateSolver};
use scheduler::{Act, Action, ActionError, Done, Moment, Observation, Observe, ObserveError};
use topology::Machine;

/// A host with a trace. Time passes from look to look, by one period.
#[derive(Debug)]
pub struct TracedHost {
    host: SimulatedHost,
    replay: Replay,
    ends: Moment,
    period_ms: u64,
}

impl TracedHost {
    /// The host at the beginning of the trace.
    pub fn new(model: MachineModel, solver: Box<dyn RateSolver>, trace: &Trace, period_ms: u64) -> Self {
        let host = SimulatedHost::new(model, solver, KernelRules::default(), trace.seed.unwrap_or(0));
        Self { host, replay: Replay::new(trace), ends: trace.ends, period_ms }
    }

    /// Whether the trace is over.
    pub fn has_ended(&self) -> bool {
        self.host.now() >= self.ends
    }
}

impl Observe for TracedHost {
    fn machine(&self) -> &Machine {
        self.host.machine()
    }

    fn now(&self) -> Moment {
        self.host.now()
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        if self.has_ended() {
            return Err(ObserveError::new("the modelled host", "its trace ends here"));
        }
        let to = Moment((self.host.now().0 + self.period_ms).min(self.ends.0));
        let advanced = self.replay.advance(&mut self.host, to, |_, _| ());
        advanced.map_err(|error| ObserveError::new("the modelled host", error.to_string()))?;
        self.host.observe()
    }
}

impl Act for TracedHost {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        self.host.carry_out(action)
    }
}
