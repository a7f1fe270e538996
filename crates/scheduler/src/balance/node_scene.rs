//! One node as a step looks at it: what it has, what its clients are entitled to there, and what
//! may be expected of those that idle.

use super::cpu_load::CpuLoad;
use super::scene::ClientScene;
use crate::{Moment, NodeObservation, Observation};
use std::collections::{BTreeMap, BTreeSet};
use topology::{CpuId, Machine, NodeId};
use vm::NodeUse;

/// A node.
pub(super) struct NodeScene<'a> {
    pub(super) id: NodeId,
    /// `None` for a node that is not there now.
    pub(super) seen: Option<&'a NodeObservation>,
    /// Usable cores.
    pub(super) cores: f64,
    /// Usable hardware threads.
    pub(super) threads: f64,
    /// Bytes of memory that the machine says it has.
    pub(super) size: u64,
    /// CPU time, in CPUs, that clients and everything else here are entitled to.
    pub(super) load: CpuLoad,
    /// CPUs that its clients waited for.
    pub(super) waited: f64,
    /// CPUs that count as busy whatever is done there: of latency-sensitive VMs.
    pub(super) always_busy: f64,
    /// Since when it is crowded, as it was found.
    pub(super) crowded_since: Option<Moment>,
    /// The load with what may be expected of clients that idle or are not known yet: for the choice
    /// of a first home.
    expected: CpuLoad,
    /// What may be expected of strangers beyond their load, by user: of others it counts nothing.
    expected_of_strangers: BTreeMap<Option<u32>, f64>,
}

impl NodeScene<'_> {
    /// What is expected here beside what everything else uses: CPUs for vCPUs that are started.
    /// What is latency-sensitive of them loads the node already.
    pub(super) fn begin(&mut self, others: f64, starting: &NodeUse) {
        self.always_busy = f64::from(starting.always_busy);
        (self.load, self.expected) = ((others + self.always_busy).into(), (others + f64::from(starting.vcpus)).into());
    }

    /// Adds what is expected of a client.
    pub(super) fn expect(&mut self, client: &ClientScene<'_>, part: f64) {
        let Some(user) = client.stranger() else {
            self.expected = (self.expected + self.of(client, client.expected) * part).or_none();
            return;
        };
        let load = client.load.min(client.expected);
        self.expected = (self.expected + self.of(client, load) * part).or_none();
        let of_user = self.expected_of_strangers.entry(user).or_default();
        *of_user = (*of_user + (client.expected - load) * part).max(0.0);
    }

    /// CPUs that are expected to be used here, as far as that counts for a client.
    pub(super) fn expected(&self, client: &ClientScene<'_>) -> CpuLoad {
        let of_user = client.stranger().and_then(|user| self.expected_of_strangers.get(&user));
        self.expected + of_user.copied().unwrap_or(0.0).into()
    }

    /// So many CPUs of a client here.
    pub(super) fn of(&self, client: &ClientScene<'_>, cpus: f64) -> CpuLoad {
        CpuLoad::of(cpus, client.vm.prefer_ht, self.cores, self.threads)
    }

    /// What a client's vCPUs are counted against: cores, or hardware threads where it prefers them.
    pub(super) fn units(&self, client: &ClientScene<'_>) -> f64 {
        if client.vm.prefer_ht { self.threads } else { self.cores }
    }
}

/// The machine's nodes, and those that came later, by rising id.
pub(super) fn nodes<'a>(machine: &'a Machine, observation: &'a Observation) -> Vec<NodeScene<'a>> {
    let ids: BTreeSet<NodeId> =
        machine.nodes.iter().map(|node| node.id).chain(observation.nodes.keys().copied()).collect();
    let sorted = machine.threads.is_sorted_by(|one, other| one.id < other.id);
    let core = |cpu: CpuId| match machine.threads.binary_search_by_key(&cpu, |thread| thread.id) {
        Ok(index) if sorted => Some(machine.threads[index].core.0),
        _ if sorted => None,
        _ => machine.thread(cpu).map(|thread| thread.core.0),
    };
    let node = |id: NodeId| {
        let seen = observation.nodes.get(&id);
        let all = seen.iter().flat_map(|seen| seen.cpus.iter());
        // A CPU that came later than the machine was read is a core of its own.
        let mut cores: Vec<Result<u32, u32>> = all.map(|cpu| core(cpu).ok_or(cpu.0)).collect();
        let threads = cores.len() as f64;
        cores.sort_unstable();
        cores.dedup();
        let size = machine.node(id).map_or(0, |node| node.memory.0);
        NodeScene {
            id,
            seen,
            cores: cores.len() as f64,
            threads,
            size,
            load: CpuLoad::default(),
            waited: 0.0,
            always_busy: 0.0,
            crowded_since: None,
            expected: CpuLoad::default(),
            expected_of_strangers: BTreeMap::new(),
        }
    };
    ids.into_iter().map(node).collect()
}
