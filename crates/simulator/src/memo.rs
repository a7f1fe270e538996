//! States of a machine that were solved before: a run comes back to a few hundred of them thousands
//! of times.

use crate::{Active, Classes, RateSolver, SolveError};
use std::collections::BTreeMap;

/// Class and number of actors, to the last bit.
type State = Vec<(u32, u64)>;

/// A solver that remembers. One is for one [`Classes`]: classes may be added to it, but another one
/// needs [`RateSolver::forget`].
#[derive(Clone, Debug)]
pub struct Memo<S> {
    solver: S,
    most_states: usize,
    states: BTreeMap<State, Vec<f64>>,
    state: State,
    solved: u64,
}

impl<S> Memo<S> {
    /// Remembers at most this many states; then it starts afresh, so that memory is bounded and a
    /// run replays alike.
    pub fn new(solver: S, most_states: usize) -> Self {
        Self { solver, most_states: most_states.max(1), states: BTreeMap::new(), state: Vec::new(), solved: 0 }
    }

    /// States that had to be solved so far.
    pub fn solved(&self) -> u64 {
        self.solved
    }

    /// States that it remembers now.
    pub fn known(&self) -> usize {
        self.states.len()
    }
}

impl<S: RateSolver> RateSolver for Memo<S> {
    fn rates(&mut self, classes: &Classes, active: &[Active], lines_per_ns: &mut Vec<f64>) -> Result<(), SolveError> {
        self.state.clear();
        self.state.extend(active.iter().map(|active| (active.class.0, active.actors.to_bits())));
        if let Some(known) = self.states.get(&self.state) {
            lines_per_ns.clear();
            lines_per_ns.extend_from_slice(known);
            return Ok(());
        }
        self.solver.rates(classes, active, lines_per_ns)?;
        self.solved += 1;
        if self.states.len() >= self.most_states {
            self.states.clear();
        }
        self.states.insert(self.state.clone(), lines_per_ns.clone());
        Ok(())
    }

    fn forget(&mut self) {
        self.states.clear();
        self.solver.forget();
    }

    fn name(&self) -> &'static str {
        self.solver.name()
    }
}
