//! What a balancer did to each VM that still runs: what to undo, and what to count.

use scheduler::balance::{Decision, MoveKind};
use scheduler::{Action, ClientId, ClientObservation, Done, Observation, VcpuGroup, VmKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeSet};

/// Threads that run no vCPU and may go along with a client, and the CPUs that each might use
/// before.
pub(crate) type Followers = BTreeMap<u32, CpuSet>;

/// What a client's threads may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Affinity {
    /// All of them together.
    pub(crate) cpus: CpuSet,
    /// vCPUs that may use a part of these only.
    pub(crate) groups: Vec<VcpuGroup>,
}

impl Affinity {
    /// What a vCPU may use.
    pub(crate) fn of(&self, vcpu: u32) -> &CpuSet {
        self.groups.iter().find(|group| group.vcpus.contains(&vcpu)).map_or(&self.cpus, |group| &group.cpus)
    }

    /// CPUs that any of them may use.
    pub(crate) fn all(&self) -> CpuSet {
        match &self.groups[..] {
            [] => self.cpus.clone(),
            groups => groups.iter().fold(CpuSet::new(), |all, group| all.union(&group.cpus)),
        }
    }
}

impl From<CpuSet> for Affinity {
    fn from(cpus: CpuSet) -> Self {
        Self { cpus, groups: Vec::new() }
    }
}

impl From<&ClientObservation> for Affinity {
    fn from(seen: &ClientObservation) -> Self {
        Self { cpus: seen.cpus.clone(), groups: seen.vcpu_groups() }
    }
}

/// What was done to one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// Which.
    pub client: ClientId,
    /// CPUs that its threads might run on before a balancer first bound them.
    pub before: CpuSet,
    /// Groups of its vCPUs that might use fewer then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_groups: Vec<VcpuGroup>,
    /// CPUs that it was bound to last; what it had before, as long as no bind has ended.
    pub set: CpuSet,
    /// Groups of its vCPUs that were bound to fewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_groups: Vec<VcpuGroup>,
    /// CPUs that it is being bound to; after a kill nobody knows whether it was.
    #[serde(default)]
    pub pending: Option<CpuSet>,
    /// Groups of its vCPUs that are being bound to fewer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_groups: Vec<VcpuGroup>,
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

impl ClientRecord {
    /// What its threads might use before a balancer first bound them.
    pub(crate) fn had(&self) -> Affinity {
        Affinity { cpus: self.before.clone(), groups: self.before_groups.clone() }
    }

    /// CPUs that any of its threads may use since the last bind.
    pub fn may_use(&self) -> CpuSet {
        self.got().all()
    }

    /// What they were bound to last.
    pub(crate) fn got(&self) -> Affinity {
        Affinity { cpus: self.set.clone(), groups: self.set_groups.clone() }
    }

    /// What they are being bound to.
    pub(crate) fn gets(&self) -> Option<Affinity> {
        self.pending.clone().map(|cpus| Affinity { cpus, groups: self.pending_groups.clone() })
    }

    fn ends(&mut self) {
        (self.pending, self.pending_groups) = (None, Vec::new());
    }
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
    pub(crate) fn begin(&mut self, client: ClientId, before: &Affinity, followers: &Followers, next: &Affinity) {
        let main = self.vm.pid;
        let known = match self.clients.iter().position(|known| known.client == client) {
            Some(index) => &mut self.clients[index],
            None => {
                let Affinity { cpus, groups } = before.clone();
                self.clients.push(ClientRecord {
                    client,
                    before: cpus.clone(),
                    before_groups: groups.clone(),
                    set: cpus,
                    set_groups: groups,
                    pending: None,
                    pending_groups: Vec::new(),
                    home: NodeSet::new(),
                    followers: Followers::new(),
                });
                let last = self.clients.len() - 1;
                &mut self.clients[last]
            }
        };
        (known.pending, known.pending_groups) = (Some(next.cpus.clone()), next.groups.clone());
        // What came since has the CPUs of the thread that made it: those that this balancer gave.
        let (ours, usual) = (known.got().all(), known.followers.get(&main).cloned());
        for (thread, before) in followers {
            let before = usual.as_ref().filter(|_| *before == ours).unwrap_or(before);
            known.followers.entry(*thread).or_insert_with(|| before.clone());
        }
    }

    /// Remembers an action that was carried out.
    pub(crate) fn done(&mut self, decision: &Decision, done: &Done) {
        self.memory_moved = self.memory_moved.saturating_add(done.moved);
        let Action::Bind { client, home, cpus, groups, .. } = &decision.action else { return };
        let Some(known) = self.clients.iter_mut().find(|known| known.client == *client) else { return };
        // The first home is no change of home, unless it was in one that it leaves.
        let changes = if known.home.is_empty() { decision.kind != MoveKind::Adopt } else { known.home != *home };
        let changes = changes && decision.kind != MoveKind::Cache;
        *self.moves.entry(decision.kind).or_default() += u64::from(changes);
        self.moves.retain(|_, count| *count > 0);
        (known.set, known.set_groups, known.home) = (cpus.clone(), groups.clone(), home.clone());
        known.ends();
    }

    /// Remembers an action that failed: all is as it was before.
    pub(crate) fn failed(&mut self, action: &Action) {
        self.failures += 1;
        if let Action::Bind { client, .. } = action {
            self.clients.retain(|known| known.client != *client || !known.home.is_empty());
            self.clients.iter_mut().filter(|known| known.client == *client).for_each(ClientRecord::ends);
        }
    }
}

/// What is seen of a client.
pub(crate) fn seen<'a>(observation: &'a Observation, vm: &VmKey, client: ClientId) -> Option<&'a ClientObservation> {
    let vm = observation.vms.iter().find(|seen| seen.vm == *vm)?;
    vm.clients.iter().find(|seen| seen.id == client)
}

/// What a client's threads may use.
pub(crate) fn affinity(observation: &Observation, vm: &VmKey, client: ClientId) -> Option<Affinity> {
    seen(observation, vm, client).map(Affinity::from)
}
