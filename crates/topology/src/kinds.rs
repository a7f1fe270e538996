//! Kinds of core of a machine whose cores are unlike (hybrid parts: P and E cores).
//!
//! **Rule.** Hardware threads of one capacity are of one kind; the strongest kind comes first.
//!
//! **Example.** An i5-13600K: 12 threads on 6 cores of 1024, 8 on as many cores of 672.

use crate::{CpuSet, HardwareThread, Machine};
use std::collections::{BTreeMap, BTreeSet};

/// The cores of one strength.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreKind {
    /// Relative to the machine's largest core, which has 1024 (`SCHED_CAPACITY_SCALE`).
    pub capacity: u32,
    /// Their usable hardware threads.
    pub cpus: CpuSet,
    /// How many cores those are.
    pub cores: usize,
}

impl HardwareThread {
    /// Capacity of a machine's largest core, as in the kernel (`SCHED_CAPACITY_SCALE`).
    pub const LARGEST_CAPACITY: u32 = 1024;

    /// Relative capacity of its core; all cores of a machine that says nothing are alike.
    pub fn core_capacity(&self) -> u32 {
        self.capacity.unwrap_or(Self::LARGEST_CAPACITY)
    }
}

impl Machine {
    /// Kinds of its usable cores, the strongest first; one where all are alike.
    pub fn core_kinds(&self) -> Vec<CoreKind> {
        let mut kinds = BTreeMap::<u32, (CpuSet, BTreeSet<u32>)>::new();
        for thread in self.usable_threads() {
            let (cpus, cores) = kinds.entry(thread.core_capacity()).or_default();
            cpus.insert(thread.id);
            cores.insert(thread.core.0);
        }
        let kind =
            |(capacity, (cpus, cores)): (u32, (CpuSet, BTreeSet<u32>))| CoreKind { capacity, cpus, cores: cores.len() };
        kinds.into_iter().rev().map(kind).collect()
    }

    /// Whether its cores are of several kinds, isolated ones among them.
    pub fn is_hybrid(&self) -> bool {
        let mut capacities = self.bindable_threads().map(HardwareThread::core_capacity);
        let first = capacities.next();
        capacities.any(|capacity| Some(capacity) != first)
    }

    /// Capacities of the cores of some CPUs.
    pub fn capacities_of(&self, cpus: &CpuSet) -> BTreeSet<u32> {
        self.threads.iter().filter(|thread| cpus.contains(thread.id)).map(HardwareThread::core_capacity).collect()
    }
}
