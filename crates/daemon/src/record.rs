//! What a balancer did to each VM that still runs: what to undo, and what to count.

use scheduler::balance::{Decision, MoveKind};
use scheduler::{Action, ClientId, ClientObservation, Done, Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeSet};

/// Threads that run no vCPU and go along with a client (`vhost-*`), and the CPUs that each might
/// use before.
pub(crate) type Followers = BTreeMap<u32, CpuSet>;

/// What was done to one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Which.
    pub client: ClientId,
    /// CPUs that its threads might run on before a balancer first bound them.
    pub before: CpuSet,
    /// CPUs that it was bound to last; what it had before, as long as no bind has ended.
    pub set: CpuSet,
    /// CPUs that it is being bound to; after a kill nobody knows whether it was.
    #[serde(default)]
    pub pending: Option<CpuSet>,
    /// Its home; empty as long as no bind has ended.
    pub home: NodeSet,
    /// Threads that went along with it, by the kernel's id, and the CPUs that each might use before
    /// it first did.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub followers: BTreeMap<u32, CpuSet>,
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
    /// Memory that was moved home, each time that it was: more than the VM has, where it moved more
    /// than once.
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

    /// Remembers that a bind begins.
    pub(crate) fn begin(&mut self, client: ClientId, before: &CpuSet, followers: &Followers, cpus: &CpuSet) {
        let pending = Some(cpus.clone());
        match self.clients.iter_mut().find(|known| known.client == client) {
            Some(known) => {
                known.pending = pending;
                for (thread, before) in followers {
                    known.followers.entry(*thread).or_insert_with(|| before.clone());
                }
            }
            None => {
                let (before, set, followers) = (before.clone(), before.clone(), followers.clone());
                self.clients.push(ClientRecord { client, before, set, pending, home: NodeSet::new(), followers });
            }
        }
    }

    /// Remembers an action that was carried out.
    pub(crate) fn done(&mut self, decision: &Decision, done: &Done) {
        self.memory_moved = self.memory_moved.saturating_add(done.moved);
        let Action::Bind { client, home, cpus, .. } = &decision.action else { return };
        let Some(known) = self.clients.iter_mut().find(|known| known.client == *client) else { return };
        // The first home is no change of home, unless it was in one that it leaves.
        let changes = if known.home.is_empty() { decision.kind != MoveKind::Adopt } else { known.home != *home };
        *self.moves.entry(decision.kind).or_default() += u64::from(changes);
        self.moves.retain(|_, count| *count > 0);
        (known.set, known.home, known.pending) = (cpus.clone(), home.clone(), None);
    }

    /// Remembers an action that failed: all is as it was before.
    pub(crate) fn failed(&mut self, action: &Action) {
        self.failures += 1;
        if let Action::Bind { client, .. } = action {
            self.clients.retain(|known| known.client != *client || !known.home.is_empty());
            self.clients.iter_mut().filter(|known| known.client == *client).for_each(|known| known.pending = None);
        }
    }
}

/// What is seen of a client.
pub(crate) fn seen<'a>(observation: &'a Observation, vm: &VmKey, client: ClientId) -> Option<&'a ClientObservation> {
    let vm = observation.vms.iter().find(|seen| seen.vm == *vm)?;
    vm.clients.iter().find(|seen| seen.id == client)
}

/// CPUs that a client's threads may run on.
pub(crate) fn affinity<'a>(observation: &'a Observation, vm: &VmKey, client: ClientId) -> Option<&'a CpuSet> {
    seen(observation, vm, client).map(|client| &client.cpus)
}
