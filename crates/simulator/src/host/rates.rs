//! How fast everybody works: identical actors are merged into groups, and solved states are
//! remembered.

use super::SimulatedHost;
use super::cpus::{Claim, share};
use super::state::{ClientState, VmState};
use crate::{CoreWork, Group, MachineModel, Profile, RateSolver, SolveError};
use std::collections::BTreeMap;
use topology::NodeId;

/// Parts into which a memory mix, a core's sharing and a number of actors are rounded, so that a
/// small change is no new state.
const PARTS: f64 = 32.0;
/// Solved states that are remembered; then all are forgotten.
const MOST_STATES: usize = 4096;

/// A kind of actor: which profile (by index), on which node, how shared its core is (in [`PARTS`]),
/// on whose memory (in [`PARTS`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    profile: u32,
    node: u16,
    sharing: u8,
    mix: Vec<u8>,
}

/// Kinds with the number of their actors, in [`PARTS`].
type State = Vec<(Kind, u32)>;

/// What was solved.
#[derive(Default)]
pub(crate) struct Solved {
    profiles: Vec<Profile>,
    states: BTreeMap<State, Vec<f64>>,
    /// States that had to be solved.
    pub(crate) solved: u64,
    /// States that were asked for.
    pub(crate) asked: u64,
}

/// CPUs that one client uses on one node, and the work that this is.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Index of the VM in the order of keys.
    pub(crate) vm: usize,
    pub(crate) client: usize,
    pub(crate) node: usize,
    /// CPUs wanted.
    pub(crate) wanted: f64,
    /// CPUs got.
    pub(crate) cpus: f64,
    /// Busy cores that this is: fewer than CPUs where cores run two threads.
    pub(crate) cores: f64,
    /// Part of its traffic to each node's memory.
    pub(crate) mix: Vec<f64>,
    /// Lines in a nanosecond, all its cores together.
    pub(crate) lines_per_ns: f64,
    kind: Option<Kind>,
}

/// Part of a client's traffic to each node, from where its own and its siblings' memory lies.
fn mix(clients: &[ClientState], client: usize, nodes: usize) -> Vec<f64> {
    let own = &clients[client];
    let others = || clients.iter().enumerate().filter(|(index, _)| *index != client).map(|(_, other)| other);
    let (near, far) = (own.resident() as f64, others().map(ClientState::resident).sum::<u64>() as f64);
    let part = match (near > 0.0, far > 0.0) {
        (_, false) => 0.0,
        (false, true) => 1.0,
        (true, true) => own.shape.sibling_part,
    };
    let of = |bytes: f64, all: f64| if all > 0.0 { bytes / all } else { 0.0 };
    let on = |node: usize| {
        let siblings: u64 = others().map(|other| other.memory[node]).sum();
        (1.0 - part) * of(own.memory[node] as f64, near) + part * of(siblings as f64, far)
    };
    (0..nodes).map(on).collect()
}

/// Shares as whole [`PARTS`] that sum to it: rounded down, and the rest to those that lost most.
fn rounded(mix: &[f64]) -> Vec<u8> {
    let mut parts: Vec<u8> = mix.iter().map(|share| (share * PARTS).floor() as u8).collect();
    let mut order: Vec<usize> = (0..mix.len()).collect();
    let lost = |index: usize| mix[index] * PARTS - (mix[index] * PARTS).floor();
    order.sort_by(|&a, &b| lost(b).total_cmp(&lost(a)).then(a.cmp(&b)));
    let missing = (PARTS as u32).saturating_sub(parts.iter().map(|&part| u32::from(part)).sum());
    for &index in order.iter().take(missing as usize) {
        parts[index] += 1;
    }
    parts
}

impl SimulatedHost {
    /// CPUs for every client on every node, by the kernel's fair sharing.
    pub(crate) fn shares(&self, copying: &[f64]) -> Vec<Share> {
        let mut shares = Vec::new();
        let count = self.nodes.len();
        for (node, &copying) in copying.iter().enumerate() {
            let first = shares.len();
            let mut claims = Vec::new();
            for (vm, state) in self.vms.values().enumerate() {
                let total = state.demand();
                for (client, its) in state.clients.iter().enumerate() {
                    let demand = its.demand(node);
                    if demand > 0.0 {
                        let weight = f64::from(state.shape.shares.max(1)) * demand / total;
                        claims.push(Claim { demand, most: f64::from(its.room[node]), weight });
                        let mix = mix(&state.clients, client, count);
                        let (wanted, cpus, cores, lines_per_ns) = (demand, 0.0, 0.0, 0.0);
                        shares.push(Share { vm, client, node, wanted, cpus, cores, mix, lines_per_ns, kind: None });
                    }
                }
            }
            let online = self.nodes[node].online.len() as f64;
            let given = share((online - copying).max(0.0), &claims);
            let busy = given.iter().sum::<f64>() + copying;
            let cores = busy.min(self.nodes[node].cores());
            for (share, cpus) in shares[first..].iter_mut().zip(given) {
                share.cpus = cpus;
                share.cores = if busy > 0.0 { cpus * cores / busy } else { 0.0 };
            }
        }
        shares
    }

    /// Fills in the rates. `copying`: CPUs that copy pages towards each node.
    pub(crate) fn solve(&mut self, shares: &mut [Share], copying: &[f64]) -> Result<(), SolveError> {
        let mut actors: BTreeMap<Kind, f64> = BTreeMap::new();
        let vms: Vec<&VmState> = self.vms.values().collect();
        for share in shares.iter_mut().filter(|share| share.cores > 0.0 && share.mix.iter().sum::<f64>() > 0.0) {
            let profile = self.solved.profile(&vms[share.vm].clients[share.client].now().profile);
            let sharing = ((share.cpus / share.cores - 1.0) * PARTS).round().clamp(0.0, PARTS) as u8;
            let kind = Kind { profile, node: share.node as u16, sharing, mix: rounded(&share.mix) };
            *actors.entry(kind.clone()).or_default() += share.cores;
            share.kind = Some(kind);
        }
        let copier = self.solved.profile(&copier(self.rules.copy_bytes_per_second));
        for (node, &cpus) in copying.iter().enumerate().filter(|(_, cpus)| **cpus > 0.0) {
            let mut mix = vec![0.0; self.nodes.len()];
            for copy in self.copying.iter().filter(|copy| copy.to == node) {
                mix[copy.from] += 0.5 * copy.bytes as f64;
                mix[node] += 0.5 * copy.bytes as f64;
            }
            let sum: f64 = mix.iter().sum();
            mix.iter_mut().for_each(|share| *share /= sum.max(1.0));
            *actors.entry(Kind { profile: copier, node: node as u16, sharing: 0, mix: rounded(&mix) }).or_default() +=
                cpus;
        }
        // Rounded up, so that nobody has no rate.
        let state: State = actors.into_iter().map(|(kind, count)| (kind, (count * PARTS).ceil() as u32)).collect();
        let rates = self.solved.rates(&self.model, self.solver.as_mut(), &state)?;
        for share in shares.iter_mut() {
            let found = share.kind.take().and_then(|kind| state.binary_search_by(|(other, _)| other.cmp(&kind)).ok());
            share.lines_per_ns = found.map_or(0.0, |index| rates[index] * share.cores);
        }
        Ok(())
    }

    /// Lines in a nanosecond of a client alone on the machine: on the fewest nodes that have its
    /// cores, its memory beside it.
    pub(crate) fn ideal(&mut self, busy: f64, profile: &Profile) -> Result<f64, SolveError> {
        let cores = self.nodes.iter().map(|node| node.all_cores).fold(1.0, f64::max);
        let nodes = (busy / cores).ceil().clamp(1.0, self.nodes.len() as f64);
        let on_each = (busy / nodes).min(cores);
        let profile = self.solved.profile(profile);
        let kind = |node: usize| {
            let mut mix = vec![0; self.nodes.len()];
            mix[node] = PARTS as u8;
            (Kind { profile, node: node as u16, sharing: 0, mix }, (on_each * PARTS).ceil() as u32)
        };
        let state: State = (0..nodes as usize).map(kind).collect();
        let rates = self.solved.rates(&self.model, self.solver.as_mut(), &state)?;
        Ok(rates.iter().sum::<f64>() * on_each)
    }
}

/// A CPU that copies pages: as fast as the rule says while nobody else is in its way.
fn copier(bytes_per_second: u64) -> Profile {
    // A byte copied is a byte read and one written.
    let lines_per_ns = 2.0 * bytes_per_second as f64 / 64.0 / 1e9;
    Profile {
        lines_in_flight: 10.0,
        core_ns_per_line: 1.0 / lines_per_ns,
        write_share: 0.5,
        counted_bytes_per_line: 32.0,
    }
}

impl Solved {
    fn profile(&mut self, profile: &Profile) -> u32 {
        let known = self.profiles.iter().position(|other| other == profile);
        known.unwrap_or_else(|| {
            self.profiles.push(*profile);
            self.profiles.len() - 1
        }) as u32
    }

    /// Rate of one actor of each kind.
    fn rates(
        &mut self,
        model: &MachineModel,
        solver: &mut dyn RateSolver,
        state: &State,
    ) -> Result<Vec<f64>, SolveError> {
        if state.is_empty() {
            return Ok(Vec::new());
        }
        self.asked += 1;
        if let Some(rates) = self.states.get(state) {
            return Ok(rates.clone());
        }
        self.solved += 1;
        let groups: Vec<Group> = state.iter().map(|(kind, actors)| self.group(model, kind, *actors)).collect();
        let rates = solver.solve(model.stations().len(), &groups)?.lines_per_ns;
        if self.states.len() >= MOST_STATES {
            self.states.clear();
        }
        self.states.insert(state.clone(), rates.clone());
        Ok(rates)
    }

    fn group(&self, model: &MachineModel, kind: &Kind, actors: u32) -> Group {
        let id = |index: usize| model.machine().nodes[index].id;
        let shares = kind.mix.iter().enumerate().filter(|(_, parts)| **parts > 0);
        let memory: Vec<(NodeId, f64)> = shares.map(|(node, &parts)| (id(node), f64::from(parts) / PARTS)).collect();
        let work = CoreWork { node: id(usize::from(kind.node)), llc: None, threads: 1, memory };
        let mut group = model.group(&self.profiles[kind.profile as usize], &work, f64::from(actors) / PARTS);
        // Some of a node's cores run two threads: between the core's speed with one and with two.
        let smt_yield = model.rates().smt_yield.as_ref().map_or(1.0, |smt| smt.value);
        group.core_ns /= 1.0 + (smt_yield - 1.0) * f64::from(kind.sharing) / PARTS;
        group
    }
}
