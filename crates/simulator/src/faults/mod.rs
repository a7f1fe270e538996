//! A modelled host on which things go wrong, as often as a rule says and as a seed draws them.

use crate::host::SimulatedHost;
use crate::traces::{Random, Trace};
use scheduler::{Act, Action, ActionError, Done, Moment, Observation, Observe, ObserveError};
use topology::{Bytes, Machine, NodeId};

/// Probabilities, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// An action fails and changes nothing.
    pub action_fails: f64,
    /// A VM dies while its memory moves.
    pub vm_dies: f64,
    /// Only a part of what is asked for can move: the target is full.
    pub target_full: f64,
    /// A VM's counters cannot be read: each of its figures is missing, in one look.
    pub counters_missing: f64,
    /// A VM's figures are those of the look before.
    pub counters_stale: f64,
    /// Nothing at all can be read.
    pub look_fails: f64,
    /// A node's CPUs go offline, in one look; they come back some looks later.
    pub cpus_offline: f64,
    /// A node goes altogether, with its memory where that has room elsewhere.
    pub node_gone: f64,
    /// Part of the clients that hold some of their memory where it is.
    pub memory_held: f64,
}

impl FaultRule {
    /// A rule drawn from a seed: each kind of fault is absent, rare or frequent.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::part(seed, 3);
        let mut one = |rare: f64, frequent: f64| *random.weighted(&[(0.4, 0.0), (0.4, rare), (0.2, frequent)]);
        Self {
            action_fails: one(0.05, 0.5),
            vm_dies: one(0.01, 0.1),
            target_full: one(0.1, 0.6),
            counters_missing: one(0.05, 0.5),
            counters_stale: one(0.05, 0.5),
            look_fails: one(0.02, 0.2),
            cpus_offline: one(0.01, 0.05),
            node_gone: one(0.005, 0.03),
            memory_held: one(0.1, 0.5),
        }
    }
}

/// A host with faults. The balancer talks to it as to any other; [`FaultyHost::truth`] is for
/// checkers.
#[derive(Debug)]
pub struct FaultyHost {
    inner: SimulatedHost,
    rule: FaultRule,
    random: Random,
    truth: Option<Observation>,
    shown: Option<Observation>,
    away: Option<(NodeId, bool, u32)>,
}

/// Looks until a node comes back.
const AWAY_LOOKS: usize = 20;

impl FaultyHost {
    /// `host` with faults.
    pub fn new(host: SimulatedHost, rule: FaultRule, seed: u64) -> Self {
        let random = Random::part(seed, 4);
        Self { inner: host, rule, random, truth: None, shown: None, away: None }
    }

    /// Lets some clients of a trace hold a part of their memory where it is.
    pub fn hold_memory(rule: &FaultRule, trace: &mut Trace, seed: u64) {
        let mut random = Random::part(seed, 5);
        for client in trace.arrivals.iter_mut().flat_map(|arrival| &mut arrival.vm.clients) {
            if random.chance(rule.memory_held) {
                client.held_part = random.between(0.01, 0.5);
            }
        }
    }

    /// The host itself, to let time pass on it.
    pub fn inner(&mut self) -> &mut SimulatedHost {
        &mut self.inner
    }

    /// What the last look would have shown without faults.
    pub fn truth(&self) -> Option<&Observation> {
        self.truth.as_ref()
    }

    fn hardware(&mut self) {
        if let Some((node, whole, looks)) = self.away {
            self.away = if looks > 0 { Some((node, whole, looks - 1)) } else { None };
            if self.away.is_none() {
                if whole {
                    self.inner.bring_back(node)
                } else {
                    self.inner.set_cpus_online(node, true)
                };
            }
            return;
        }
        let whole = self.random.chance(self.rule.node_gone);
        if whole || self.random.chance(self.rule.cpus_offline) {
            let nodes = &self.inner.machine().nodes;
            let node = nodes[self.random.below(nodes.len())].id;
            let looks = 1 + self.random.below(AWAY_LOOKS) as u32;
            let gone = if whole { self.inner.take_away(node) } else { self.inner.set_cpus_online(node, false) };
            if gone {
                self.away = Some((node, whole, looks));
            }
        }
    }

    fn spoil(&mut self, observation: &mut Observation) {
        let last = self.shown.take();
        for vm in &mut observation.vms {
            let before = last.as_ref().and_then(|last| last.vms.iter().find(|other| other.vm == vm.vm));
            if self.random.chance(self.rule.counters_stale)
                && let Some(before) = before.filter(|before| before.clients.len() == vm.clients.len())
            {
                for (client, old) in vm.clients.iter_mut().zip(&before.clients) {
                    (client.cpu_used, client.cpu_waited) = (old.cpu_used, old.cpu_waited);
                    client.memory.clone_from(&old.memory);
                }
            }
            for client in &mut vm.clients {
                if self.random.chance(self.rule.counters_missing) {
                    client.cpu_used = None;
                }
                if self.random.chance(self.rule.counters_missing) {
                    client.cpu_waited = None;
                }
                if self.random.chance(self.rule.counters_missing) {
                    client.memory = None;
                }
            }
        }
        for node in observation.nodes.values_mut() {
            if self.random.chance(self.rule.counters_missing) {
                (node.cpu_used, node.memory_free) = (None, None);
            }
        }
        self.shown = Some(observation.clone());
    }
}

impl Observe for FaultyHost {
    fn machine(&self) -> &Machine {
        self.inner.machine()
    }

    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.hardware();
        let mut observation = self.inner.observe()?;
        self.truth = Some(observation.clone());
        if self.random.chance(self.rule.look_fails) {
            return Err(ObserveError::new("the host", "it cannot be read (a fault that was drawn)"));
        }
        self.spoil(&mut observation);
        Ok(observation)
    }
}

impl Act for FaultyHost {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let vm = action.vm().clone();
        if self.random.chance(self.rule.action_fails) {
            let operation = "an action".to_owned();
            return Err(ActionError::Failed { vm: vm.name, operation, reason: "a fault that was drawn".to_owned() });
        }
        let Action::MoveMemory { client, from, to, at_most, .. } = action else {
            return self.inner.carry_out(action);
        };
        let dies = self.random.chance(self.rule.vm_dies);
        let part = if dies || self.random.chance(self.rule.target_full) { self.random.unit() } else { 1.0 };
        let at_most_now = Bytes((at_most.0 as f64 * part) as u64);
        let (client, from, to) = (*client, *from, *to);
        let smaller = Action::MoveMemory { vm: vm.clone(), client, from, to, at_most: at_most_now };
        let outcome = self.inner.carry_out(&smaller);
        if dies && self.inner.end(&vm) {
            return Err(ActionError::Gone { vm: vm.name });
        }
        let mut done = outcome?;
        if part < 1.0 {
            done.left = at_most.saturating_sub(done.moved);
            done.because = Some("the target node has no free memory left".to_owned());
        }
        Ok(done)
    }
}
