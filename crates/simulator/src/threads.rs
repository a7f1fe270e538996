//! Where threads run and whose memory they use: the placement policies of hypervisors and kernels,
//! as lists of busy cores.
//!
//! [`Cores`] are the cores of a machine, [`ThreadPolicy`] chooses one for each thread, [`random`]
//! says what a kernel does that does not always choose the best, [`memory`] gives a thread the
//! nodes of its memory. [`works`] makes of it all what the solvers take.

pub mod memory;
pub mod random;
pub mod streams;

use crate::CoreWork;
use std::collections::BTreeMap;
use topology::{CoreId, LlcId, Machine, NodeId, NodeSet};

/// A core that threads can run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its number.
    pub id: CoreId,
    /// Its node.
    pub node: NodeId,
    /// Its last-level cache.
    pub llc: Option<LlcId>,
    /// Usable hardware threads of it.
    pub hardware_threads: u32,
}

/// How the next thread gets its core. Each takes an idle core before the second hardware thread of
/// a busy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// The node with the fewest busy threads, in it the last-level cache with the fewest: ESX, and
    /// Linux when it chooses well.
    LeastLoadedNode,
    /// One node after the other, both hardware threads of its cores, before the next node: ESX's
    /// `preferHT`, compact pinning.
    FillNode,
    /// The last-level cache with the fewest busy threads, over the whole machine: one thread a
    /// cache.
    LeastLoadedLlc,
}

/// The usable cores of a machine, by node, cache and number.
#[derive(Clone, Debug)]
pub struct Cores {
    cores: Vec<Core>,
}

impl Cores {
    /// Of a machine.
    pub fn of(machine: &Machine) -> Self {
        let mut by_place: BTreeMap<(NodeId, Option<LlcId>, CoreId), u32> = BTreeMap::new();
        for thread in machine.usable_threads() {
            *by_place.entry((thread.node, thread.llc, thread.core)).or_default() += 1;
        }
        let core = |((node, llc, id), hardware_threads)| Core { id, node, llc, hardware_threads };
        Self { cores: by_place.into_iter().map(core).collect() }
    }

    /// The same cores with one hardware thread each.
    pub fn without_smt(mut self) -> Self {
        self.cores.iter_mut().for_each(|core| core.hardware_threads = 1);
        self
    }

    /// In their order; a core's index here is its name in this module.
    pub fn list(&self) -> &[Core] {
        &self.cores
    }

    /// Hardware threads on these nodes.
    pub fn hardware_threads(&self, nodes: &NodeSet) -> u32 {
        self.cores.iter().filter(|core| nodes.contains(core.node)).map(|core| core.hardware_threads).sum()
    }

    /// Busy threads by core, none yet.
    pub fn idle(&self) -> Vec<u32> {
        vec![0; self.cores.len()]
    }

    /// The core that the next thread gets on these nodes; `None` if all their hardware threads are
    /// busy.
    pub fn next(&self, busy: &[u32], nodes: &NodeSet, policy: ThreadPolicy) -> Option<usize> {
        let mut on_node: BTreeMap<NodeId, u32> = BTreeMap::new();
        let mut on_llc: BTreeMap<(NodeId, Option<LlcId>), u32> = BTreeMap::new();
        for (core, &busy) in self.cores.iter().zip(busy) {
            *on_node.entry(core.node).or_default() += busy;
            *on_llc.entry((core.node, core.llc)).or_default() += busy;
        }
        let free = |&(core, &busy): &(&Core, &u32)| nodes.contains(core.node) && busy < core.hardware_threads;
        let key = |(index, core, busy): &(usize, &Core, u32)| {
            let (node, llc) = (on_node[&core.node], on_llc[&(core.node, core.llc)]);
            match policy {
                ThreadPolicy::LeastLoadedNode => (node, *busy, llc, *index),
                ThreadPolicy::FillNode => (core.node.0, *busy, 0, *index),
                ThreadPolicy::LeastLoadedLlc => (llc, *busy, node, *index),
            }
        };
        let candidates = self.cores.iter().zip(busy).enumerate().filter(|(_, pair)| free(pair));
        candidates.map(|(index, (core, &busy))| (index, core, busy)).min_by_key(key).map(|(index, ..)| index)
    }

    /// Cores of `count` threads that start one after the other beside what is busy; `None` if there
    /// are too few hardware threads.
    pub fn place(&self, busy: &mut [u32], nodes: &NodeSet, policy: ThreadPolicy, count: u32) -> Option<Vec<usize>> {
        let mut chosen = Vec::new();
        for _ in 0..count {
            let core = self.next(busy, nodes, policy)?;
            busy[core] += 1;
            chosen.push(core);
        }
        Some(chosen)
    }
}

/// A busy thread: its core, and the share of its memory traffic that goes to each node.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Index of its core in [`Cores::list`].
    pub core: usize,
    /// By node, each once; shares sum to 1.
    pub memory: Vec<(NodeId, f64)>,
}

/// One way in which threads may lie, and how often they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrangement {
    /// Probability, or share of the time; those of all arrangements of a run sum to 1.
    pub weight: f64,
    /// What each kind of busy core does, and how many cores do it.
    pub works: Vec<(CoreWork, f64)>,
}

/// Busy cores with the same work, counted. Threads that share a core use the mean of their memory.
pub fn works(cores: &Cores, threads: &[Thread]) -> Vec<(CoreWork, f64)> {
    let mut by_core: BTreeMap<usize, Vec<&Thread>> = BTreeMap::new();
    for thread in threads {
        by_core.entry(thread.core).or_default().push(thread);
    }
    let mut works: Vec<(CoreWork, f64)> = Vec::new();
    for (index, threads) in by_core {
        let core = &cores.cores[index];
        let mut shares: BTreeMap<NodeId, f64> = BTreeMap::new();
        for &(node, share) in threads.iter().flat_map(|thread| &thread.memory) {
            *shares.entry(node).or_default() += share / threads.len() as f64;
        }
        let memory = shares.into_iter().collect();
        let work = CoreWork { node: core.node, llc: core.llc, threads: threads.len() as u32, memory };
        match works.iter_mut().find(|(known, _)| *known == work) {
            Some((_, count)) => *count += 1.0,
            None => works.push((work, 1.0)),
        }
    }
    works
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of four cores with two hardware threads.
    fn dl380() -> Cores {
        Cores::of(&topology::read::from_synthetic("pack:2 [numa(memory=24GB)] l3:1 core:4 pu:2").expect("a machine"))
    }

    fn both() -> NodeSet {
        [NodeId(0), NodeId(1)].into_iter().collect()
    }

    #[test]
    fn the_least_loaded_node_is_first_and_an_idle_core_before_a_second_thread() {
        let cores = dl380();
        let mut busy = cores.idle();
        let chosen = cores.place(&mut busy, &both(), ThreadPolicy::LeastLoadedNode, 9).expect("room");
        let nodes: Vec<u32> = chosen.iter().map(|&core| cores.list()[core].node.0).collect();
        assert_eq!(nodes, [0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(busy, [2, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn prefer_ht_fills_a_node_before_the_next() {
        let cores = dl380();
        let mut busy = cores.idle();
        cores.place(&mut busy, &both(), ThreadPolicy::FillNode, 9).expect("room");
        assert_eq!(busy, [2, 2, 2, 2, 1, 0, 0, 0]);
    }

    #[test]
    fn one_thread_on_each_cache_before_a_second_one() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=8GB)] l3:2 core:2 pu:1").expect("a machine");
        let cores = Cores::of(&machine);
        let mut busy = cores.idle();
        cores.place(&mut busy, &both(), ThreadPolicy::LeastLoadedLlc, 4).expect("room");
        assert_eq!(busy, [1, 0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn more_threads_than_the_nodes_have_are_refused() {
        let cores = dl380();
        let one: NodeSet = [NodeId(1)].into_iter().collect();
        assert_eq!(cores.place(&mut cores.idle(), &one, ThreadPolicy::FillNode, 9), None);
        assert_eq!(cores.hardware_threads(&one), 8);
    }

    #[test]
    fn siblings_are_one_actor_with_the_mean_of_their_memory() {
        let cores = dl380();
        let local = vec![(NodeId(0), 1.0)];
        let remote = vec![(NodeId(1), 1.0)];
        let threads = [(0, &local), (0, &remote), (1, &local), (2, &local)];
        let threads = threads.map(|(core, memory)| Thread { core, memory: memory.clone() });
        let works = works(&cores, &threads);
        assert_eq!(works.len(), 2);
        assert_eq!((works[0].0.threads, works[0].1), (2, 1.0));
        assert_eq!(works[0].0.memory, [(NodeId(0), 0.5), (NodeId(1), 0.5)]);
        assert_eq!((works[1].0.threads, works[1].1), (1, 2.0));
    }
}
