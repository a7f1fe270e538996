//! The host as one step looks at it: nodes and clients by index, in the order of their ids,
//! whatever the order of the observation.
//!
//! **Problem.** Passes ask the same thousands of times: how loaded is this node, how far is that
//! memory, what room is left, may this client live here. And a pass must see what the pass before
//! it planned.
//!
//! **Rule.** All is looked up once and kept by index; a planned move changes the scene at once
//! ([`Scene::rehome`]), the host when the step is over. What the observation does not say is `None`
//! here, and no pass takes it for zero.
//!
//! **Properties.** The order of VMs and clients in the observation changes no decision. A node of
//! the machine that is not there now, and a CPU that came later than the machine was read, are both
//! something that can be asked about. Loads and room are those after all that was planned.
//!
//! Example: nodes 0 and 2 are there, a client is bound to CPUs of node 2: its home is the index 1,
//! `ids(&[1])` is node 2 again.

use super::bandwidth::Passages;
use super::cache_scene::{Caches, Places};
use super::communication::Partners;
use super::cpu_load::CpuLoad;
use super::node_scene::{NodeScene, nodes};
use super::queue::Queue;
use super::remember::Synced;
use super::room::Room;
use super::{BalancePolicy, BalanceState, ClientMemory, MoveKind};
use crate::placement::Told;
use crate::{ClientObservation, Mobility, Moment, Observation, VmObservation, claims};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::cell::OnceCell;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// A client.
pub(super) struct ClientScene<'a> {
    pub(super) vm: &'a VmObservation,
    /// vCPUs that count.
    vcpus: u32,
    /// Memory that it may have, as far as that counts.
    pub(super) memory_size: Bytes,
    /// Nodes that its VM may live on; `None`: all.
    pub(super) allowed: Option<Cow<'a, NodeSet>>,
    /// Nodes that somebody's policy keeps its memory on; `None`: nobody said any.
    kept: Option<Cow<'a, NodeSet>>,
    pub(super) seen: &'a ClientObservation,
    pub(super) known: &'a ClientMemory,
    /// Index of its VM and of itself in the state.
    pub(super) slot: (usize, usize),
    /// Clients of its VM, itself included, are those from `.0` up to before `.1`.
    pub(super) family: (usize, usize),
    /// Mean demand in CPUs; `None` where this period's figures are missing.
    pub(super) demand: Option<f64>,
    /// CPUs that count at its home.
    pub(super) load: f64,
    /// CPU time that it is entitled to, in CPUs: its load, but for latency-sensitive VMs, which
    /// count in full and are entitled to what they want.
    pub(super) entitled: f64,
    /// CPUs that are expected of it.
    pub(super) expected: f64,
    /// Bytes by node; `None` where nobody knows.
    pub(super) resident: Option<SmallVec<[(usize, u64); 2]>>,
    /// All of them; 0 where nobody knows.
    pub(super) resident_bytes: u64,
    /// Indices of the nodes of its home, rising; empty while it has none.
    pub(super) home: SmallVec<[usize; 2]>,
    /// Bytes a second that it would draw from memory alone; `None` where nobody knows.
    pub(super) traffic: Option<f64>,
    /// What it loses to memory away from its home, and the bytes that are to follow: its place in
    /// the queue.
    pub(super) behind: (f64, u64),
    /// The cache of each of its groups; empty where its vCPUs are not divided.
    pub(super) places: Places,
    /// Moved in this step, and why.
    pub(super) moved: Option<MoveKind>,
}

/// What CPUs a client's threads may use, as nodes.
pub(super) struct Affinity {
    /// Nodes of which it may use a CPU, rising.
    pub(super) nodes: Vec<usize>,
    /// Whether it may use every CPU of those nodes.
    pub(super) full: bool,
}

pub(super) struct Scene<'a> {
    pub(super) policy: &'a BalancePolicy,
    pub(super) observation: &'a Observation,
    pub(super) at: Moment,
    /// Seconds since the last step.
    pub(super) elapsed: f64,
    pub(super) steps: u64,
    pub(super) nodes: Vec<NodeScene<'a>>,
    pub(super) clients: Vec<ClientScene<'a>>,
    /// Last-level caches, where clients are divided by them.
    pub(super) caches: Caches,
    pub(super) room: Room,
    /// What is asked of memory controllers and of the ways between nodes.
    pub(super) passages: Passages,
    /// Who exchanges bytes with whom.
    pub(super) partners: Partners,
    /// Memory that is still to follow its clients.
    pub(super) queue: Queue,
    /// What each VM's guest was told of distances, by the VM's index in the state; most are never
    /// asked for.
    told: Vec<OnceCell<Option<Told>>>,
    /// Distance / 10 - 1, from a node's CPUs to a node's memory: 0 is local, 1 is twice as far.
    extra: Vec<f64>,
    /// Node of each CPU.
    cpu_node: Vec<u16>,
    online: usize,
}

const NOWHERE: u16 = u16::MAX;

impl<'a> Scene<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        policy: &'a BalancePolicy,
        state: &'a BalanceState,
        observation: &'a Observation,
        synced: &Synced,
    ) -> Self {
        let nodes = nodes(machine, observation);
        let mut cpu_node = Vec::new();
        let mut online = 0;
        for (index, node) in nodes.iter().enumerate() {
            for cpu in node.seen.iter().flat_map(|seen| seen.cpus.iter()) {
                let cpu = cpu.0 as usize;
                if cpu_node.len() <= cpu {
                    cpu_node.resize(cpu + 1, NOWHERE);
                }
                cpu_node[cpu] = index as u16;
                online += 1;
            }
        }
        let mut scene = Self {
            policy,
            observation,
            at: observation.at,
            elapsed: synced.elapsed,
            steps: state.steps,
            extra: extra_distances(machine, policy, &nodes),
            caches: Caches::default(),
            room: Room::default(),
            passages: Passages::default(),
            partners: Partners::default(),
            queue: Queue::default(),
            told: Vec::new(),
            clients: Vec::new(),
            nodes,
            cpu_node,
            online,
        };
        scene.clients = scene.find_clients(machine, state, synced);
        scene.told = vec![OnceCell::new(); state.vms.len()];
        super::loads::set(&mut scene);
        for node in 0..scene.nodes.len() {
            let since = state.crowded.get(&scene.nodes[node].id).copied();
            scene.nodes[node].crowded_since = scene.is_crowded(node).then_some(since.unwrap_or(scene.at));
        }
        super::cache_scene::set(&mut scene, machine);
        super::bandwidth::set(&mut scene, machine);
        super::communication::set(&mut scene);
        scene.room = Room::new(&scene);
        for client in 0..scene.clients.len() {
            if super::queue::follows(&scene, client) {
                scene.clients[client].behind = super::queue::place(&scene, client, &scene.clients[client].home);
            }
        }
        scene.queue = Queue::new(&scene);
        scene
    }

    fn find_clients(&self, machine: &Machine, state: &'a BalanceState, synced: &Synced) -> Vec<ClientScene<'a>> {
        let mut clients = Vec::with_capacity(synced.order.len());
        for (vm_slot, (&vm_index, known_vm)) in synced.order.iter().zip(&state.vms).enumerate() {
            let vm = &self.observation.vms[vm_index];
            let family = (clients.len(), clients.len() + known_vm.clients.len());
            for (slot, known) in known_vm.clients.iter().enumerate() {
                let same = vm.clients.get(slot).filter(|client| client.id == known.id);
                let Some(seen) = same.or_else(|| vm.clients.iter().find(|client| client.id == known.id)) else {
                    continue;
                };
                let resident = self.resident(seen);
                clients.push(ClientScene {
                    vm,
                    vcpus: claims::vcpus(vm, seen, machine.threads.len()),
                    memory_size: claims::memory(vm, seen, machine).saturating_sub(seen.far_memory()),
                    allowed: vm.allowed(machine),
                    kept: seen.kept_nodes(),
                    seen,
                    known,
                    slot: (vm_slot, slot),
                    family,
                    demand: known.demand.filter(|_| super::remember::demand_now(seen).is_some()),
                    load: 0.0,
                    entitled: 0.0,
                    expected: 0.0,
                    resident_bytes: resident.iter().flatten().map(|(_, bytes)| bytes).sum(),
                    resident,
                    traffic: None,
                    behind: (0.0, 0),
                    home: self.indices(&known.home),
                    places: Places::new(),
                    moved: None,
                });
            }
        }
        clients
    }

    /// What a client's guest was told of distances between its virtual nodes, where they count.
    pub(super) fn told(&self, client: usize) -> Option<&Told> {
        let this = &self.clients[client];
        let (first, end) = this.family;
        let distances = || {
            let guest = this.vm.guest.as_ref().filter(|_| self.policy.distance_aware && end - first > 1)?;
            let nodes: Option<Vec<u32>> =
                self.clients[first..end].iter().map(|client| client.seen.virtual_node).collect();
            guest.told(&nodes?).map(|distances| Told::of(&distances))
        };
        self.told[this.slot.0].get_or_init(distances).as_ref()
    }

    fn resident(&self, seen: &ClientObservation) -> Option<SmallVec<[(usize, u64); 2]>> {
        let memory = seen.near_memory()?;
        let on = |(node, bytes): (&NodeId, &topology::Bytes)| Some((self.index(*node)?, bytes.0));
        Some(memory.iter().filter_map(on).filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// The index of a node.
    pub(super) fn index(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&node, |known| known.id).ok()
    }

    fn indices(&self, nodes: &NodeSet) -> SmallVec<[usize; 2]> {
        nodes.iter().filter_map(|node| self.index(node)).collect()
    }

    /// Ids of these nodes.
    pub(super) fn ids(&self, nodes: &[usize]) -> NodeSet {
        nodes.iter().map(|&node| self.nodes[node].id).collect()
    }

    /// Usable CPUs of these nodes.
    pub(super) fn cpus(&self, nodes: &[usize]) -> CpuSet {
        let seen = nodes.iter().filter_map(|&node| self.nodes[node].seen);
        seen.flat_map(|seen| seen.cpus.iter()).collect()
    }

    /// Whether the CPUs of a node can be used now.
    pub(super) fn has_cpus(&self, node: usize) -> bool {
        self.nodes[node].threads > 0.0
    }

    /// Whether a client may live on a node: it has CPUs, and the VM's node affinity and cpuset name
    /// it.
    pub(super) fn may_live(&self, client: usize, node: usize) -> bool {
        let allowed = self.clients[client].allowed.as_deref();
        self.has_cpus(node) && allowed.is_none_or(|allowed| allowed.contains(self.nodes[node].id))
    }

    /// The nodes that somebody bound the client's memory to, or interleaved it over; `None` where
    /// nobody did, and where none of them may be a home: memory alone on a node without CPUs says
    /// nothing of where the threads belong.
    pub(super) fn chosen(&self, client: usize) -> Option<&NodeSet> {
        let chosen = self.clients[client].kept.as_deref()?;
        let can_live = |id: NodeId| self.index(id).is_some_and(|node| self.may_live(client, node));
        chosen.iter().any(can_live).then_some(chosen)
    }

    /// The home of a client whose memory somebody interleaved: all of those nodes that it may live
    /// on. `None` where nobody did, or it may live on none.
    pub(super) fn spread_home(&self, client: usize) -> Option<Vec<usize>> {
        let spread = &self.clients[client].seen.spread_nodes;
        let here = |&node: &usize| spread.contains(self.nodes[node].id) && self.may_live(client, node);
        let home: Vec<usize> = (0..self.nodes.len()).filter(here).collect();
        (!home.is_empty()).then_some(home)
    }

    /// What somebody chose of the client's memory, as the beginning of a sentence: `somebody bound
    /// its memory to node 3`. Empty where nobody did.
    pub(super) fn chosen_words(&self, client: usize) -> String {
        let Some(chosen) = self.chosen(client) else { return String::new() };
        let did = if self.clients[client].is_spread() { "interleaved its memory over" } else { "bound its memory to" };
        format!("somebody {did} {}", topology::words::named("node", chosen))
    }

    /// Whether a node may be chosen as the client's home: it may live there, and nobody bound its
    /// memory elsewhere.
    pub(super) fn may_choose(&self, client: usize, node: usize) -> bool {
        self.may_live(client, node) && self.chosen(client).is_none_or(|chosen| chosen.contains(self.nodes[node].id))
    }

    /// Whether the client's memory follows it to a home: not beside the nodes that somebody bound
    /// it to.
    pub(super) fn follows_to(&self, client: usize, home: &[usize]) -> bool {
        let this = &self.clients[client];
        let bound = this.seen.chosen_nodes.as_ref();
        let may_come = |bound: &NodeSet| home.iter().all(|&node| bound.contains(self.nodes[node].id));
        this.memory_moves() && self.policy.move_memory && bound.is_none_or(may_come)
    }

    /// Whether clients of a node wait for a CPU, or share cores with each other: all cores are busy
    /// then.
    pub(super) fn is_crowded(&self, node: usize) -> bool {
        let this = &self.nodes[node];
        this.load.in_cores() >= this.cores || this.waited >= self.policy.least_gain_cpus
    }

    /// How much farther than local memory `to` is from the CPUs of `from`: 0 for local, 1 for twice
    /// as far.
    pub(super) fn extra(&self, from: usize, to: usize) -> f64 {
        self.extra[from * self.nodes.len() + to]
    }

    /// Whether the client may use every CPU of its one home node and no other: the usual case,
    /// found out without much ado.
    pub(super) fn sits_at_home(&self, client: usize) -> bool {
        let [home] = self.clients[client].home[..] else { return false };
        self.nodes[home].seen.is_some_and(|seen| seen.cpus == self.clients[client].seen.cpus)
    }

    /// What CPUs the client may use now, as nodes. CPUs that are offline do not count.
    pub(super) fn affinity(&self, client: usize) -> Affinity {
        let cpus = &self.clients[client].seen.cpus;
        let with_cpus = || (0..self.nodes.len()).filter(|&node| self.has_cpus(node));
        // A set as large as the host is the host: a VM that floats is told from one that is bound
        // without a look at each CPU.
        if cpus.len() >= self.online {
            return Affinity { nodes: with_cpus().collect(), full: true };
        }
        let mut counts: Vec<(usize, u32)> = Vec::new();
        for cpu in cpus.iter() {
            let node = self.cpu_node.get(cpu.0 as usize).copied().unwrap_or(NOWHERE);
            if node == NOWHERE {
                continue;
            }
            match counts.iter_mut().find(|(known, _)| *known == usize::from(node)) {
                Some((_, count)) => *count += 1,
                None => counts.push((usize::from(node), 1)),
            }
        }
        counts.sort_unstable();
        let full = counts.iter().all(|&(node, count)| f64::from(count) >= self.nodes[node].threads);
        Affinity { nodes: counts.into_iter().map(|(node, _)| node).collect(), full }
    }

    /// Number of nodes with CPUs.
    pub(super) fn nodes_with_cpus(&self) -> usize {
        (0..self.nodes.len()).filter(|&node| self.has_cpus(node)).count()
    }

    /// Gives a client another home and keeps loads and room up to date.
    pub(super) fn rehome(&mut self, client: usize, home: Vec<usize>, kind: Option<MoveKind>) {
        super::loads::add(self, client, -1.0);
        super::bandwidth::add(self, client, -1.0);
        super::cache_scene::leave(self, client);
        self.room.claim(&self.clients[client], -1);
        self.clients[client].home = home.into();
        super::cache_scene::settle(self, client);
        self.clients[client].behind = super::queue::place(self, client, &self.clients[client].home);
        if kind.is_some() {
            self.clients[client].moved = kind;
        }
        super::loads::add(self, client, 1.0);
        super::bandwidth::add(self, client, 1.0);
        self.room.claim(&self.clients[client], 1);
        if kind.is_some() && super::queue::follows(self, client) {
            self.queue.join(self.clients[client].behind);
        }
    }

    /// The load of a node in percent of its cores, with `more` CPUs.
    pub(super) fn percent(&self, node: usize, more: impl Into<CpuLoad>) -> f64 {
        100.0 * (self.nodes[node].load + more.into()).in_cores() / self.nodes[node].cores.max(1.0)
    }

    /// A client's load on a node.
    pub(super) fn load_on(&self, client: usize, node: usize) -> CpuLoad {
        self.nodes[node].of(&self.clients[client], self.clients[client].load)
    }
}

impl ClientScene<'_> {
    pub(super) fn vcpus(&self) -> f64 {
        f64::from(self.vcpus.max(1))
    }

    /// The user of a stranger's VM.
    pub(super) fn stranger(&self) -> Option<Option<u32>> {
        self.vm.stranger.then_some(self.vm.owner_uid)
    }

    /// Whether its threads may be moved.
    pub(super) fn threads_move(&self) -> bool {
        !matches!(self.vm.mobility, Mobility::Fixed { .. })
    }

    /// Whether its memory may be moved: what somebody interleaved stays.
    pub(super) fn memory_moves(&self) -> bool {
        matches!(self.vm.mobility, Mobility::Movable) && !self.is_spread()
    }

    /// Whether somebody interleaved its memory.
    pub(super) fn is_spread(&self) -> bool {
        !self.seen.spread_nodes.is_empty()
    }

    /// Resident bytes in all; 0 where nobody knows.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Resident bytes on these nodes.
    pub(super) fn bytes_on(&self, nodes: &[usize]) -> u64 {
        let on = |(node, _): &&(usize, u64)| nodes.contains(node);
        self.resident.iter().flatten().filter(on).map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that it may still touch.
    pub(super) fn untouched(&self) -> u64 {
        self.memory_size.0.saturating_sub(self.resident_bytes())
    }

    /// Whether memory on a node is not asked to move before a later moment.
    pub(super) fn waits(&self, node: NodeId, at: Moment) -> bool {
        self.known.stuck.iter().any(|stuck| stuck.from == node && stuck.trouble.until > at)
    }

    /// Whether memory on a node has refused to move so often that it will stay.
    pub(super) fn stays(&self, node: NodeId) -> bool {
        self.known.stuck.iter().any(|stuck| stuck.from == node && stuck.trouble.failures >= SURE_FAILURES)
    }
}

/// Failures in a row after which memory is taken to stay where it is.
const SURE_FAILURES: u32 = 3;

fn extra_distances(machine: &Machine, policy: &BalancePolicy, nodes: &[NodeScene<'_>]) -> Vec<f64> {
    let mut extra = Vec::with_capacity(nodes.len() * nodes.len());
    for from in nodes {
        for to in nodes {
            let distance = if policy.distance_aware {
                machine.distance(from.id, to.id)
            } else if from.id == to.id {
                topology::Distances::LOCAL
            } else {
                topology::Distances::REMOTE
            };
            let own = f64::from(machine.distance(from.id, from.id).max(1));
            let own = if policy.distance_aware { own } else { f64::from(topology::Distances::LOCAL) };
            extra.push((f64::from(distance) / own - 1.0).max(0.0));
        }
    }
    extra
}
