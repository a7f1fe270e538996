//! What the balancer remembers between steps.

use crate::{ClientId, Moment, VmKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// What the balancer remembers between steps. Serialized, it survives a restart; empty, it is the
/// start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BalanceState {
    /// Steps so far.
    pub steps: u64,
    /// When the last one was.
    pub at: Moment,
    /// VMs, by key.
    pub vms: Vec<VmMemory>,
    /// Since when all cores of a node are busy or somebody there waits for a CPU.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crowded: BTreeMap<NodeId, Moment>,
}

/// What is remembered of a VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmMemory {
    /// Which.
    pub vm: VmKey,
    /// Its clients, by id.
    pub clients: Vec<ClientMemory>,
}

/// What is remembered of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientMemory {
    /// Which.
    pub id: ClientId,
    /// Its home.
    pub home: NodeSet,
    /// The CPUs that it was last bound to, if ever.
    pub bound: Option<CpuSet>,
    /// Mean CPU time that it used and waited for, in CPUs; `None` while it was never known.
    pub demand: Option<f64>,
    /// CPU time that it was entitled to and did not get in the running window of fairness, in CPU
    /// seconds; negative: got more.
    pub owed: f64,
    /// CPU time that it was entitled to in that window, in CPU seconds.
    pub entitled: f64,
    /// When it appeared, if that was between two steps: it may have started just then. `None`:
    /// longer ago than anybody knows.
    #[serde(default)]
    pub appeared_at: Option<Moment>,
    /// When it was last moved.
    pub moved_at: Option<Moment>,
    /// When it last changed places.
    pub swapped_at: Option<Moment>,
    /// The home before this one.
    pub left: Option<NodeSet>,
    /// What became of attempts to bind it.
    pub trouble: Option<Trouble>,
    /// Memory that would not move, by the node where it lies.
    pub stuck: Vec<Stuck>,
    /// When another program's change of its affinity was last undone.
    pub rebound_at: Option<Moment>,
    /// How often that was, not counting long ago.
    pub rebinds: u32,
    /// The home before the last step, as long as nobody said whether the host carried the change
    /// out.
    pub pending: Option<NodeSet>,
    /// What `left` was then.
    #[serde(default)]
    pub pending_left: Option<NodeSet>,
    /// Moves between homes so far, adoptions not counted.
    pub moves: u64,
    /// Its vCPUs by the last-level cache that they keep to; empty where they are not divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupMemory>,
    /// What it draws from memory; `None` where nobody ever counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficMemory>,
}

/// What is remembered of a client's memory traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficMemory {
    /// Bytes for each CPU second that it used, while nobody was in its way.
    pub per_cpu_second: f64,
    /// Whether it was ever seen so; else that is what a full controller gave it.
    pub alone: bool,
    /// Part of its traffic that goes to the memory of the VM's other clients: what went to other
    /// nodes while all of its own memory was at home, and they lived elsewhere. `None` while that
    /// never was so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_siblings: Option<f64>,
}

/// What is remembered of vCPUs that keep to one last-level cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupMemory {
    /// By rising number.
    pub vcpus: Vec<u32>,
    /// Mean CPU time that they used and waited for, in CPUs; `None` while it was never known.
    pub demand: Option<f64>,
    /// When they last got another cache.
    pub moved_at: Option<Moment>,
}

/// Failures in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// How many.
    pub failures: u32,
    /// Not tried again before.
    pub until: Moment,
    /// Whether the balancer gave up: it then tries once an hour.
    pub given_up: bool,
    /// What the host said last.
    pub because: String,
}

/// Memory that would not move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Where it lies.
    pub from: NodeId,
    /// How much at least.
    pub bytes: Bytes,
    /// What became of attempts to move it.
    pub trouble: Trouble,
}

impl ClientMemory {
    /// A client that nobody knew.
    pub(super) fn new(id: ClientId) -> Self {
        Self {
            id,
            home: NodeSet::new(),
            bound: None,
            demand: None,
            owed: 0.0,
            entitled: 0.0,
            appeared_at: None,
            moved_at: None,
            swapped_at: None,
            left: None,
            trouble: None,
            stuck: Vec::new(),
            rebound_at: None,
            rebinds: 0,
            pending: None,
            pending_left: None,
            moves: 0,
            groups: Vec::new(),
            traffic: None,
        }
    }
}

impl BalanceState {
    /// What is remembered of a VM.
    pub fn vm(&self, vm: &VmKey) -> Option<&VmMemory> {
        let index = self.vms.binary_search_by(|known| known.vm.cmp(vm)).ok()?;
        self.vms.get(index)
    }

    /// What is remembered of a client.
    pub fn client(&self, vm: &VmKey, client: ClientId) -> Option<&ClientMemory> {
        self.vm(vm)?.clients.iter().find(|known| known.id == client)
    }

    /// The home of a client; `None` while it has none.
    pub fn home(&self, vm: &VmKey, client: ClientId) -> Option<&NodeSet> {
        self.client(vm, client).map(|known| &known.home).filter(|home| !home.is_empty())
    }

    /// The home of every client that has one, by VM and client.
    pub fn homes(&self) -> impl Iterator<Item = (&VmKey, ClientId, &NodeSet)> {
        let homes = |vm: &'_ VmMemory| -> Vec<_> { vm.clients.iter().map(|client| client.id).collect() };
        self.vms
            .iter()
            .flat_map(move |vm| homes(vm).into_iter().filter_map(move |id| Some((&vm.vm, id, self.home(&vm.vm, id)?))))
    }
}
