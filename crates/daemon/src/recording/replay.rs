//! Deciding a recording again: what the same policy or another one would have decided on what was
//! seen.
//!
//! It cannot know what the host would have done after a different decision: what each observation
//! shows is what came of those that were recorded. What another policy would have *led to*, a trace
//! on a modelled machine says.

use super::Recording;
use crate::{DaemonError, Outcome, PolicyFile, Rules};
use scheduler::balance::{BalanceState, Decision, record, step};
use scheduler::{Moment, Observation};
use serde::Serialize;
use topology::Machine;

/// What one recorded period leads to now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedPeriod {
    /// When it was.
    pub at: Moment,
    /// What was decided then; `None` where the recording ends before it.
    pub recorded: Option<Vec<Decision>>,
    /// What is decided now.
    pub decisions: Vec<Decision>,
}

impl Recording {
    /// Decides every recorded period again, by the recorded policy or by another one.
    ///
    /// # Errors
    /// A line in the middle cannot be understood. A last line that is cut off ends the recording.
    pub fn replay(
        mut self,
        policy: Option<PolicyFile>,
        mut each: impl FnMut(ReplayedPeriod),
    ) -> Result<(), DaemonError> {
        let mut decider = Decider::new(policy.unwrap_or_else(|| self.policy().clone()), self.state().clone());
        while let Some(period) = self.next_period()? {
            let at = period.observation.at;
            let decisions = decider.decide(&self.machine, period.observation, period.decided.as_deref());
            let recorded = period.decided.map(|decided| decided.into_iter().map(|(decision, _)| decision).collect());
            each(ReplayedPeriod { at, recorded, decisions });
        }
        Ok(())
    }
}

/// A balancer without a host: it decides on what it is shown, and hears what became of the same
/// decisions then.
pub(super) struct Decider {
    policy: PolicyFile,
    rules: Rules,
    pub(super) state: BalanceState,
}

impl Decider {
    pub(super) fn new(policy: PolicyFile, state: BalanceState) -> Self {
        Self { rules: Rules::new(policy.vms.clone()), policy, state }
    }

    pub(super) fn decide(
        &mut self,
        machine: &Machine,
        mut observation: Observation,
        then: Option<&[(Decision, Outcome)]>,
    ) -> Vec<Decision> {
        self.rules.apply(&mut observation);
        if observation.nodes.len() < 2 {
            return Vec::new();
        }
        let decisions = step(machine, &self.policy.balance, &mut self.state, &observation);
        for (decision, outcome) in then.unwrap_or_default() {
            let result = match outcome {
                Outcome::Planned => continue,
                Outcome::Done(done) => Ok(done.clone()),
                Outcome::Failed(error) => Err(error.clone()),
            };
            // Where the same is decided as then, the same became of it.
            if decisions.contains(decision) {
                record(&self.policy.balance, &mut self.state, decision, &result);
            }
        }
        decisions
    }
}
