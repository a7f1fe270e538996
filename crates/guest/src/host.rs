//! The agent's own machine, as workloads ask of it.

use crate::pinning::cpu_sets;
use crate::place::LinuxPlacement;
use crate::programs::LinuxPrograms;
use std::sync::Arc;
use topology::{Bytes, CpuSet, Machine, NodeId};
use workloads::command::Programs;
use workloads::workload::{Host, Threads};
use workloads::{Placement, WorkloadError};

/// What the kernel and this program need besides a job's memory.
const SPARE: Bytes = Bytes::from_mib(16);

/// The machine that this agent runs on.
pub(crate) struct ThisMachine<'a> {
    pub(crate) machine: &'a Machine,
}

impl Host for ThisMachine<'_> {
    fn check_memory(&self, field: &str, wanted: Bytes, node: Option<u32>) -> Result<(), WorkloadError> {
        let bad = |message: String| Err(WorkloadError::BadJob(message));
        let wanted = wanted.saturating_add(SPARE);
        let available = linux::room::available().map_err(|error| WorkloadError::BadJob(error.to_string()))?.available;
        if wanted > available {
            return bad(format!("`{field}` asks for {wanted} of memory, but only {available} are available here"));
        }
        let Some(node) = node else { return Ok(()) };
        let Some(found) = self.machine.node(NodeId(node)) else {
            return bad(format!("`memory_node` is {node}; this machine has nodes {}", self.machine.node_ids()));
        };
        let free = found.free.unwrap_or(found.memory);
        if wanted > free {
            return bad(format!("`{field}` asks for {wanted} on node {node}, but only {free} are available there"));
        }
        Ok(())
    }

    fn place(&self, threads: &Threads) -> Result<Arc<dyn Placement>, WorkloadError> {
        let cpu_node = threads.cpu_node.map(NodeId);
        let cpus = cpu_sets(self.machine, threads.pinning, threads.count as usize, cpu_node)
            .map_err(|error| WorkloadError::BadJob(error.to_string()))?;
        Ok(Arc::new(LinuxPlacement { cpus, memory_node: threads.memory_node.map(NodeId) }))
    }

    fn programs(&self, threads: &Threads) -> Result<Arc<dyn Programs>, WorkloadError> {
        let cpu_node = threads.cpu_node.map(NodeId);
        let cpus = cpu_sets(self.machine, threads.pinning, threads.count as usize, cpu_node)
            .map_err(|error| WorkloadError::BadJob(error.to_string()))?;
        let all = |sets: Vec<CpuSet>| sets.iter().flat_map(CpuSet::iter).collect();
        Ok(Arc::new(LinuxPrograms { cpus: cpus.map(all) }))
    }
}
