//! What is asked of a host only when somebody wants to know what is wrong: settings of the kernel,
//! limits of a VM, threads that run no vCPU. `None` is unknown, and leads to no finding.

use crate::ClientId;
use serde::{Deserialize, Serialize};
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// What the kernel is set to do with memory and threads of every VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSettings {
    /// `kernel.numa_balancing`: 0 off, 1 moves memory and threads together, 2 moves memory between
    /// tiers, 3 both.
    pub numa_balancing: Option<u32>,
    /// `vm.zone_reclaim_mode`: not 0, a node without free memory first gives up its file cache
    /// instead of asking another node.
    pub zone_reclaim_mode: Option<u32>,
    /// `/sys/kernel/mm/numa/demotion_enabled`: cold memory goes to slower nodes; may break
    /// `cpuset.mems`.
    pub demotion_enabled: Option<bool>,
    /// `/sys/kernel/mm/ksm/run` is 1: equal pages become one.
    pub ksm_runs: Option<bool>,
    /// `/sys/kernel/mm/ksm/merge_across_nodes`: also pages of different nodes.
    pub ksm_merges_across_nodes: Option<bool>,
    /// The chosen word of `/sys/kernel/mm/transparent_hugepage/enabled`: `always`, `madvise`,
    /// `never`.
    pub transparent_huge_pages: Option<String>,
    /// Cache-aware scheduling; `None` where the kernel has none.
    pub llc_balancing: Option<LlcBalancing>,
}

/// What `/sys/kernel/debug/sched/llc_balancing/enabled` says: whether the kernel (Linux 7.2 and
/// later) draws the busy threads of each process under one last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlcBalancing {
    /// It does not.
    Off,
    /// It does.
    On,
    /// The kernel is new enough to do it, and its debugfs cannot be read here.
    Unreadable,
}

/// What limits a VM: its cgroup and its weight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmLimits {
    /// Its cgroup (v2), as a path below the mount point.
    pub cgroup: Option<String>,
    /// Whether no other process is in that cgroup.
    pub cgroup_is_its_own: bool,
    /// The least `memory.max` of its cgroup and those above.
    pub memory_max: Option<Bytes>,
    /// The least `memory.high`.
    pub memory_high: Option<Bytes>,
    /// CPU time that it may use, in thousandths of a CPU: the least `cpu.max` of its cgroup and
    /// those above.
    pub cpu_milli_max: Option<u64>,
    /// Nodes whose memory its cpuset allows.
    pub memory_nodes: Option<NodeSet>,
    /// CPUs that its cpuset allows.
    pub cpus: Option<CpuSet>,
    /// The nice value of its vCPU threads that is farthest from 0.
    pub nice: Option<i32>,
    /// A vCPU thread runs with the idle class (`SCHED_IDLE`) or as batch (`SCHED_BATCH`): the
    /// class.
    pub class: Option<SchedulingClass>,
}

/// A class of the kernel's scheduler in which vCPUs get less or more than others (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingClass {
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_FIFO` or `SCHED_RR`.
    RealTime,
}

/// A thread of a VM that runs no vCPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherThread {
    /// The kernel's id.
    pub thread_id: u32,
    /// Its name.
    pub name: String,
    /// What it is there for.
    pub kind: OtherThreadKind,
    /// The client that it works for; `None` where it works for all, or nobody can tell.
    pub client: Option<ClientId>,
    /// CPUs that it may use; `None` where they cannot be read.
    pub cpus: Option<CpuSet>,
}

/// What a thread that runs no vCPU is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherThreadKind {
    /// QEMU's main loop.
    Main,
    /// An I/O thread (`-object iothread`).
    Io,
    /// A thread of the kernel that moves packets for the VM (`vhost-*`).
    Vhost,
    /// Anything else: worker pools, migration, displays.
    Worker,
    /// One of another process that works for the VM: virtiofsd, swtpm, a vhost-user device.
    Helper,
}

/// What the kernel makes of a policy's nodes when the cpuset goes from `old` to `new`: the n-th
/// allowed node becomes the n-th allowed node (`mpol_rebind_nodemask`, `bitmap_remap`); a node that
/// was not allowed stays.
pub fn rebound(policy: &NodeSet, old: &NodeSet, new: &NodeSet) -> NodeSet {
    let new: Vec<NodeId> = new.iter().collect();
    if new.is_empty() {
        return policy.clone();
    }
    let place = |node: NodeId| match old.iter().position(|other| other == node) {
        Some(position) => new[position % new.len()],
        None => node,
    };
    policy.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_rebound_by_position() {
        let set = |text: &str| text.parse::<NodeSet>().unwrap();
        let after = |policy: &str, old: &str, new: &str| rebound(&set(policy), &set(old), &set(new)).to_string();
        assert_eq!(after("0", "0-3", "1"), "1"); // narrowing to one node: everything goes there
        assert_eq!(after("1", "1", "0-3"), "0"); // the trap: widening sends the policy back to the first node
        assert_eq!((after("0", "0-1", "2-3"), after("1", "0-1", "2-3")), ("2".to_owned(), "3".to_owned()));
        assert_eq!((after("0", "0-1", "2"), after("1", "0-1", "2")), ("2".to_owned(), "2".to_owned())); // merged
        assert_eq!(after("3", "0-3", "2-3"), "3"); // place 3 of 2 is place 1
        assert_eq!(after("1", "0-3", "0,2"), "2"); // place 1
    }
}
