//! How fast everybody works: identical actors are merged into groups, and solved states are
//! remembered.

use super::SimulatedHost;
use super::caches::{self, Tenant};
use super::shape::Reuse;
use super::shares::Share;
use super::state::VmState;
use crate::{Active, ClassId, Classes, CoreWork, Group, MachineModel, Profile, RateSolver, SolveError};
use std::collections::BTreeMap;
use topology::{LlcId, NodeId};

/// Parts into which a memory mix, a core's sharing and a number of actors are rounded, so that a
/// small change is no new state.
const PARTS: f64 = 32.0;
/// Solved states that are remembered; then all are forgotten.
const MOST_STATES: usize = 4096;

/// A kind of actor: which profile (by index), on which node, behind which cache's port where ports
/// are modelled, how shared its core is, how much of its lines hit in a cache, and on whose memory
/// it is (all three in [`PARTS`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    profile: u32,
    node: u16,
    port: Option<LlcId>,
    sharing: u8,
    hits: u8,
    mix: Vec<u8>,
}

/// Kinds of actors that are remembered; then all are forgotten.
const MOST_CLASSES: usize = 32_768;

/// Kinds with the number of their actors, in [`PARTS`].
type State = Vec<(Kind, u32)>;

/// A client alone: its profile and how much it comes back to, on how many nodes, and its busy cores
/// in [`PARTS`] on each.
type Alone = (u32, u64, [u64; 2], u8, u32);

/// What was solved.
#[derive(Default)]
pub(crate) struct Solved {
    profiles: Vec<Profile>,
    classes: Classes,
    known: BTreeMap<Kind, ClassId>,
    /// Rates by class and number of actors.
    states: BTreeMap<Vec<(ClassId, u32)>, Vec<f64>>,
    /// Lines in a nanosecond of one core.
    alone: BTreeMap<Alone, f64>,
    /// States that had to be solved.
    pub(crate) solved: u64,
    /// States that were asked for.
    pub(crate) asked: u64,
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
    /// Part of each share's lines that hit in its last-level cache.
    fn hits(&self, shares: &[Share]) -> Vec<f64> {
        let vms: Vec<&VmState> = self.vms.values().collect();
        let mut under: BTreeMap<LlcId, Vec<usize>> = BTreeMap::new();
        for (index, share) in shares.iter().enumerate() {
            if let Some(llc) = self.places[share.place].llc.filter(|_| share.cores > 0.0) {
                under.entry(llc).or_default().push(index);
            }
        }
        let mut hits = vec![0.0; shares.len()];
        for (llc, members) in under {
            let Some(bytes) = caches::capacity(&self.model, Some(llc)) else { continue };
            let tenant = |&index: &usize| {
                let share = &shares[index];
                let client = &vms[share.vm].clients[share.client];
                let alone = caches::alone(&self.model, &client.now().profile, self.nodes[share.node].id);
                Tenant {
                    reuse: client.now().reuse,
                    part_here: f64::from(client.sets[share.set].at[share.place]) / f64::from(client.shape.vcpus),
                    traffic: alone * share.cores,
                }
            };
            let found = caches::hits(bytes, &members.iter().map(tenant).collect::<Vec<_>>());
            members.into_iter().zip(found).for_each(|(index, part)| hits[index] = part);
        }
        hits
    }

    /// The cache whose port a place is behind, where ports are modelled.
    fn port(&self, place: usize) -> Option<LlcId> {
        self.places[place].llc.filter(|_| self.model.rates().llc_bandwidth_gb_per_s.is_some())
    }

    /// Fills in the rates. `copying`: CPUs that copy pages towards each node.
    pub(crate) fn solve(&mut self, shares: &mut [Share], copying: &[f64]) -> Result<(), SolveError> {
        let mut actors: BTreeMap<Kind, f64> = BTreeMap::new();
        let hits = self.hits(shares);
        let vms: Vec<&VmState> = self.vms.values().collect();
        let able = |share: &Share| share.cores > 0.0 && share.mix.iter().sum::<f64>() > 0.0;
        for (share, hits) in shares.iter_mut().zip(hits).filter(|(share, _)| able(share)) {
            let profile = self.solved.profile(&vms[share.vm].clients[share.client].now().profile);
            let sharing = ((share.cpus / share.cores - 1.0) * PARTS).round().clamp(0.0, PARTS) as u8;
            let (node, port) = (share.node as u16, self.port(share.place));
            share.hits = hits;
            let hits = (hits * PARTS).round() as u8;
            let kind = Kind { profile, node, port, sharing, hits, mix: rounded(&share.mix) };
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
            let node = node as u16;
            let kind = Kind { profile: copier, node, port: None, sharing: 0, hits: 0, mix: rounded(&mix) };
            *actors.entry(kind).or_default() += cpus;
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
    /// cores, its memory beside it, over all caches of these.
    pub(crate) fn ideal(&mut self, busy: f64, profile: &Profile, reuse: &Reuse) -> Result<f64, SolveError> {
        let cores = self.nodes.iter().map(|node| node.all_cores).fold(1.0, f64::max);
        let nodes = (busy / cores).ceil().clamp(1.0, self.nodes.len() as f64);
        let on_each = (busy / nodes).min(cores);
        let index = self.solved.profile(profile);
        let parts = (on_each * PARTS).ceil().max(1.0);
        let of_reuse = [reuse.part.to_bits(), reuse.shared_part.to_bits()];
        let key: Alone = (index, reuse.working_set.0, of_reuse, nodes as u8, parts as u32);
        let of_core = match self.solved.alone.get(&key) {
            Some(&known) => known,
            None => self.one_core_alone(nodes as usize, parts / PARTS, index, profile, reuse)?,
        };
        if self.solved.alone.len() >= MOST_STATES {
            self.solved.alone.clear();
        }
        self.solved.alone.insert(key, of_core);
        Ok(of_core * on_each * nodes)
    }

    /// Lines in a nanosecond of one core, of a client alone with so many busy cores on each of the
    /// first nodes.
    fn one_core_alone(
        &mut self,
        nodes: usize,
        on_each: f64,
        index: u32,
        profile: &Profile,
        reuse: &Reuse,
    ) -> Result<f64, SolveError> {
        let mut actors: BTreeMap<Kind, f64> = BTreeMap::new();
        for node in 0..nodes {
            let mut mix = vec![0; self.nodes.len()];
            mix[node] = PARTS as u8;
            for place in self.nodes[node].places.clone() {
                let part = self.places[place].all_cores / self.nodes[node].all_cores.max(1.0);
                let hits = self.hits_alone(place, part / nodes as f64, profile, reuse);
                let (port, mix) = (self.port(place), mix.clone());
                let kind = Kind { profile: index, node: node as u16, port, sharing: 0, hits, mix };
                *actors.entry(kind).or_default() += on_each * part;
            }
        }
        let state: State = actors.into_iter().map(|(kind, count)| (kind, (count * PARTS).ceil() as u32)).collect();
        let rates = self.solved.rates(&self.model, self.solver.as_mut(), &state)?;
        let all: f64 = state.iter().map(|(_, count)| f64::from(*count)).sum();
        let sum: f64 = rates.iter().zip(&state).map(|(rate, (_, count))| rate * f64::from(*count)).sum();
        Ok(sum / all.max(1.0))
    }

    /// As [`Self::hits`], in [`PARTS`], of a client alone under a cache with this part of its
    /// threads.
    fn hits_alone(&self, place: usize, part_here: f64, profile: &Profile, reuse: &Reuse) -> u8 {
        let llc = self.places[place].llc;
        let Some(bytes) = caches::capacity(&self.model, llc).filter(|_| reuse.part > 0.0) else { return 0 };
        let traffic = caches::alone(&self.model, profile, self.nodes[self.places[place].node].id);
        let hits = caches::hits(bytes, &[Tenant { reuse: *reuse, part_here, traffic }]);
        (hits.iter().sum::<f64>() * PARTS).round() as u8
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
        if self.classes.is_empty() || self.classes.len() >= MOST_CLASSES {
            self.classes = Classes::new(model.stations().len());
            self.known.clear();
            self.states.clear();
        }
        let ids: Vec<ClassId> = state.iter().map(|(kind, _)| self.class(model, kind)).collect::<Result<_, _>>()?;
        let mut counts: BTreeMap<ClassId, u32> = BTreeMap::new();
        ids.iter().zip(state).for_each(|(&id, (_, count))| *counts.entry(id).or_default() += count);
        let counts: Vec<(ClassId, u32)> = counts.into_iter().collect();
        if !self.states.contains_key(&counts) {
            self.solved += 1;
            let active = counts.iter().map(|&(class, count)| Active { class, actors: f64::from(count) / PARTS });
            let mut rates = Vec::new();
            // The result shall follow from the state alone, not from the one before.
            solver.forget();
            solver.rates(&self.classes, &active.collect::<Vec<_>>(), &mut rates)?;
            if self.states.len() >= MOST_STATES {
                self.states.clear();
            }
            self.states.insert(counts.clone(), rates);
        }
        let rates = self.states.get(&counts).map_or(&[][..], Vec::as_slice);
        let of = |id: &ClassId| counts.binary_search_by_key(id, |(class, _)| *class).ok();
        Ok(ids.iter().map(|id| of(id).and_then(|index| rates.get(index)).copied().unwrap_or(0.0)).collect())
    }

    fn class(&mut self, model: &MachineModel, kind: &Kind) -> Result<ClassId, SolveError> {
        if let Some(&known) = self.known.get(kind) {
            return Ok(known);
        }
        let id = self.classes.add(&self.group(model, kind))?;
        self.known.insert(kind.clone(), id);
        Ok(id)
    }

    fn group(&self, model: &MachineModel, kind: &Kind) -> Group {
        let id = |index: usize| model.machine().nodes[index].id;
        let shares = kind.mix.iter().enumerate().filter(|(_, parts)| **parts > 0);
        let memory: Vec<(NodeId, f64)> = shares.map(|(node, &parts)| (id(node), f64::from(parts) / PARTS)).collect();
        let work = CoreWork { node: id(usize::from(kind.node)), llc: kind.port, threads: 1, memory };
        let mut group = model.group(&self.profiles[kind.profile as usize], &work, 1.0);
        // Some of a node's cores run two threads: between the core's speed with one and with two.
        let smt_yield = model.rates().smt_yield.as_ref().map_or(1.0, |smt| smt.value);
        group.core_ns /= 1.0 + (smt_yield - 1.0) * f64::from(kind.sharing) / PARTS;
        // A hit takes the cache's latency and goes no farther.
        let hits = f64::from(kind.hits) / PARTS;
        let hit_ns = model.rates().llc_latency_ns.as_ref().map_or(0.0, |latency| latency.value);
        if kind.hits > 0 {
            group.demands.iter_mut().for_each(|(_, ns)| *ns *= 1.0 - hits);
            group.latency_ns = (1.0 - hits) * group.latency_ns + hits * hit_ns;
        }
        group
    }
}
