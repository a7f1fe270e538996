//! What must be true whatever a balancer does, checked from what a host says and from what became
//! of each action. Nothing here uses the balancer's arithmetic or the host's books.

mod conservation;
mod fairness;
mod motion;

use scheduler::{Action, ActionError, ClientId, Done, Moment, Observation, VmKey};
use std::collections::BTreeMap;
use std::fmt;
use topology::{CpuSet, NodeId};

/// What a balancer is held to beside the laws of conservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes moved in a second, at most; the smallest amount that an action may ask for comes on
    /// top.
    pub moved_bytes_per_second: Option<u64>,
    /// Of clients that had a home and were not forced from it, how many may get another one in a
    /// period.
    pub rebinds_per_period: Option<u32>,
    /// Seconds in which no client goes back to a home that it left, or was taken off, unless CPUs
    /// came or went meanwhile.
    pub return_s: f64,
    /// The same for clients that take turns ([`Step::turns`]): where no arrangement is fair, they
    /// do so for ever, but not at once.
    pub turn_s: f64,
    /// A VM gets at least this part of what it is entitled to (0 to 1) ...
    pub least_part: f64,
    /// ... over so many seconds.
    pub window_s: f64,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Moment,
    /// Which law, in a word or two.
    pub law: &'static str,
    /// The figures.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:.3} s: {}: {}", self.at.0 as f64 / 1000.0, self.law, self.what)
    }
}

/// One period of a balancer.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The host as it was when the balancer looked, without faults.
    pub before: &'a Observation,
    /// What was asked for, and what became of it.
    pub actions: &'a [(Action, Result<Done, ActionError>)],
    /// Clients that got another home because they, or those that changed places with them, had got
    /// less than their share for long.
    pub turns: &'a [Client],
    /// The host after all actions, at the same moment; counters are not read.
    pub after: &'a Observation,
}

/// A VM's client.
pub type Client = (VmKey, ClientId);

/// Remembers what it needs from step to step.
#[derive(Clone, Debug)]
pub struct Checker {
    limits: Limits,
    last: Option<Observation>,
    moved_last: u64,
    totals: BTreeMap<NodeId, u64>,
    homes: BTreeMap<Client, Vec<motion::Stay>>,
    hardware_changed: Moment,
    windows: BTreeMap<VmKey, fairness::Window>,
    last_bind: Option<Moment>,
    last_move: Option<Moment>,
}

impl Checker {
    /// Before the first step.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: None,
            moved_last: 0,
            totals: BTreeMap::new(),
            homes: BTreeMap::new(),
            hardware_changed: Moment(0),
            windows: BTreeMap::new(),
            last_bind: None,
            last_move: None,
        }
    }

    /// All that is wrong with this step.
    pub fn check(&mut self, step: &Step<'_>) -> Vec<Violation> {
        let mut found = Found { at: step.before.at, violations: Vec::new() };
        let hardware = |observation: &Observation| -> Vec<(NodeId, CpuSet)> {
            observation.nodes.iter().map(|(&id, node)| (id, node.cpus.clone())).collect()
        };
        if self.last.as_ref().is_some_and(|last| hardware(last) != hardware(step.before)) {
            self.hardware_changed = step.before.at;
        }
        self.conservation(step, &mut found);
        self.motion(step, &mut found);
        self.fairness(step, &mut found);
        self.last = Some(step.after.clone());
        found.violations
    }

    /// When threads were last bound to other CPUs than before.
    pub fn last_bind(&self) -> Option<Moment> {
        self.last_bind
    }

    /// When memory last moved.
    pub fn last_move(&self) -> Option<Moment> {
        self.last_move
    }
}

pub(crate) struct Found {
    at: Moment,
    violations: Vec<Violation>,
}

impl Found {
    fn unless(&mut self, lawful: bool, law: &'static str, what: impl FnOnce() -> String) {
        if !lawful {
            self.violations.push(Violation { at: self.at, law, what: what() });
        }
    }
}
