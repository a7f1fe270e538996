//! What a balancer did to each VM that still runs: what to undo, and what to count.

use scheduler::balance::{Decision, MoveKind};
use scheduler::{Action, ClientId, Done, Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeSet};

/// What was done to one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Which.
    pub client: ClientId,
    /// CPUs that its threads might run on before a balancer first bound them.
    pub before: CpuSet,
    /// CPUs that it was bound to last.
    pub set: CpuSet,
    /// Its home.
    pub home: NodeSet,
}

/// What was done to one VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRecord {
    /// Which.
    pub vm: VmKey,
    /// Its clients that were bound, by id.
    pub clients: Vec<ClientRecord>,
    /// Changes of home, by kind. The first home is no change.
    pub moves: BTreeMap<MoveKind, u64>,
    /// Memory that was moved home.
    pub memory_moved: Bytes,
    /// Actions that failed.
    pub failures: u64,
}

impl VmRecord {
    /// A VM to which nothing was done yet.
    pub fn new(vm: VmKey) -> Self {
        Self { vm, clients: Vec::new(), moves: BTreeMap::new(), memory_moved: Bytes(0), failures: 0 }
    }

    /// Changes of home of all its clients.
    pub fn migrations(&self) -> u64 {
        self.moves.values().sum()
    }

    /// Remembers an action that was carried out. `observation` is what it was decided on.
    pub(crate) fn note(&mut self, decision: &Decision, done: &Done, observation: &Observation) {
        self.memory_moved = self.memory_moved.saturating_add(done.moved);
        let Action::Bind { vm, client, home, cpus } = &decision.action else { return };
        match self.clients.iter_mut().find(|known| known.client == *client) {
            Some(known) => {
                if known.home != *home {
                    *self.moves.entry(decision.kind).or_default() += 1;
                }
                known.set = cpus.clone();
                known.home = home.clone();
            }
            None => {
                let Some(before) = affinity(observation, vm, *client) else { return };
                if decision.kind != MoveKind::Adopt {
                    *self.moves.entry(decision.kind).or_default() += 1;
                }
                let (before, set, home) = (before.clone(), cpus.clone(), home.clone());
                self.clients.push(ClientRecord { client: *client, before, set, home });
            }
        }
    }
}

/// CPUs that a client's threads may run on.
pub(crate) fn affinity<'a>(observation: &'a Observation, vm: &VmKey, client: ClientId) -> Option<&'a CpuSet> {
    let vm = observation.vms.iter().find(|seen| seen.vm == *vm)?;
    vm.clients.iter().find(|seen| seen.id == client).map(|client| &client.cpus)
}
