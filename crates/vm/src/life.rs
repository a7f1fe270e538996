//! The life of a VM that homenode keeps, as a state machine.
//!
//! **Problem.** Several commands act on one VM, and any of them may be killed. What may be done
//! with a VM now must have one answer, and so must what it has become since.
//!
//! **Rule.** A VM is in one [`State`]. [`Step`]s lead from one to another; every other pair of a
//! state and a step is refused, with what would be possible.
//!
//! ```text
//!            start            runs                pause
//! planned ──────────> starting ──────────> running <──────> paused
//!    ^  ^                │ fails              │ │ continue    │ │
//!    │  └────────────────┘ (or stopped)       │ │ send        │ │ send
//!    │ delete                         suspend │ v             v │ suspend
//!    │         start                          │ migrating out   │
//! stopped ──────────> starting                │   │ sent: the record goes with the VM
//!    ^                                        v   │ fails: as before
//!    ├──────────────── stop ── running,    suspended ── resume ──> starting
//!    │                         paused         │
//!    ├──────────────── stop ──────────────────┘ (its file is removed)
//!    │
//!  lost  <── vanished ── every state that has a process
//!
//! (nothing) ── receive ──> migrating in ── runs ──> running;   fails ──> (nothing)
//! migrating out ── runs (on the same host, at another home) ──> running
//! ```
//!
//! **Properties.** [`State::after`] is total. No step leads to [`State::Running`] but from a state
//! that has a process or is being given one. A VM whose process vanished is lost, never silently
//! stopped; it can be started again.
//!
//! **Example.** `homenode vm suspend web` on a VM that is stopped: "it is stopped: it can be
//! started, or deleted".

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a VM is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its spec is kept; it was never started.
    Planned,
    /// Somebody starts it, or resumes it from a file.
    Starting,
    /// Its vCPUs run.
    Running,
    /// Its vCPUs wait; its memory is where it was.
    Paused,
    /// It is in a file, and has no process.
    Suspended,
    /// It is being sent to another host, and still runs here.
    MigratingOut,
    /// It is being received, and does not run here yet.
    MigratingIn,
    /// It has no process, and starts afresh.
    Stopped,
    /// Its process vanished: it was killed, it crashed, or the host went down.
    Lost,
}

/// What happens to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Somebody begins to start it.
    Start,
    /// Somebody begins to resume it from its file.
    Resume,
    /// It runs.
    Runs,
    /// What was begun failed; the state before it holds again.
    Fails {
        /// That state.
        back_to: State,
    },
    /// Its vCPUs are stopped.
    Pause,
    /// Its vCPUs go on.
    Continue,
    /// It is in a file.
    Suspend,
    /// Somebody begins to send it.
    Send,
    /// Its guest powered off, or it was ended on purpose.
    Stop,
    /// Its process is no longer there, and nobody ended it on purpose.
    Vanished,
}

/// A step that a VM cannot take now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is {state}: it can be {}", possible(*.state))]
pub struct NotNow {
    /// The state that it is in.
    pub state: State,
    /// The step that was asked for.
    pub step: Step,
}

impl State {
    /// Whether it has a process.
    pub fn has_process(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Paused | Self::MigratingOut | Self::MigratingIn)
    }

    /// The state after a step.
    ///
    /// # Errors
    /// The step is not possible in this state.
    pub fn after(self, step: Step) -> Result<Self, NotNow> {
        use State::{Lost, MigratingIn, MigratingOut, Paused, Planned, Running, Starting, Stopped, Suspended};
        match (self, step) {
            (Planned | Stopped | Lost, Step::Start) | (Suspended, Step::Resume) => Ok(Starting),
            (Starting | MigratingIn | MigratingOut, Step::Runs) | (Paused, Step::Continue) => Ok(Running),
            (Starting, Step::Fails { back_to: back @ (Planned | Stopped | Suspended | Lost) })
            | (MigratingOut, Step::Fails { back_to: back @ (Running | Paused) }) => Ok(back),
            (Running, Step::Pause) => Ok(Paused),
            (Running | Paused, Step::Suspend) => Ok(Suspended),
            (Running | Paused, Step::Send) => Ok(MigratingOut),
            (Running | Paused | Suspended | Starting | MigratingOut, Step::Stop) => Ok(Stopped),
            (state, Step::Vanished) if state.has_process() => Ok(Lost),
            (state, step) => Err(NotNow { state, step }),
        }
    }
}

/// What a user can do with a VM in a state, as a list.
fn possible(state: State) -> &'static str {
    match state {
        State::Planned | State::Stopped | State::Lost => "started, or deleted",
        State::Starting | State::MigratingIn => "waited for, or stopped by force",
        State::MigratingOut => {
            "waited for, settled by `homenode vm migrate NAME --resolve` where that was cut short, or stopped by force"
        }
        State::Running => "paused, suspended, migrated, resized, reset, or stopped",
        State::Paused => "continued, suspended, migrated, or stopped",
        State::Suspended => "resumed, or stopped (its memory is then lost)",
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Planned => "planned",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::MigratingOut => "migrating out",
            Self::MigratingIn => "migrating in",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 9] = [
        State::Planned,
        State::Starting,
        State::Running,
        State::Paused,
        State::Suspended,
        State::MigratingOut,
        State::MigratingIn,
        State::Stopped,
        State::Lost,
    ];

    fn steps() -> Vec<Step> {
        use Step::{Continue, Fails, Pause, Resume, Runs, Send, Start, Stop, Suspend, Vanished};
        let fails = STATES.into_iter().map(|back_to| Fails { back_to });
        [Start, Resume, Runs, Pause, Continue, Suspend, Send, Stop, Vanished].into_iter().chain(fails).collect()
    }

    #[test]
    fn a_vm_runs_only_if_it_has_or_is_given_a_process() {
        for state in STATES {
            for step in steps() {
                if state.after(step) == Ok(State::Running) {
                    assert!(state.has_process(), "{state} {step:?}");
                }
            }
        }
    }

    #[test]
    fn every_state_can_be_reached_from_planned_or_by_a_receipt_and_left_again() {
        let mut reached = vec![State::Planned, State::MigratingIn];
        let mut next = 0;
        while let Some(&state) = reached.get(next) {
            let after: Vec<State> = steps().into_iter().filter_map(|step| state.after(step).ok()).collect();
            assert!(after.iter().any(|&other| other != state), "{state} cannot be left");
            after.into_iter().for_each(|state| {
                if !reached.contains(&state) {
                    reached.push(state)
                }
            });
            next += 1;
        }
        assert!(STATES.into_iter().all(|state| reached.contains(&state)), "{reached:?}");
    }

    #[test]
    fn a_refusal_says_what_can_be_done() {
        let refused = State::Stopped.after(Step::Suspend).unwrap_err();
        assert_eq!(refused.to_string(), "it is stopped: it can be started, or deleted");
    }
}
