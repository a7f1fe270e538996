//! Ways to place VMs and keep them placed, on the same modelled host and the same trace.

mod compare;
mod homenode;
mod numad;
mod numad_daemon;
mod paired;
mod pins;

pub use compare::{NAMES, OURS, Row, compared, named, row, run};
pub use homenode::{Carried, Homenode, Planned};
pub use numad::{Held, NodeState, Request, advice};
pub use numad_daemon::Numad;
pub use paired::{Difference, Figure, Series, standing};
pub use pins::{OneShot, Pins};

use crate::host::{AutoNuma, CacheAware, KernelRules, SimulatedHost};
use scheduler::{Observation, VmKey};
use topology::Machine;

/// Something that places VMs.
pub trait Rival {
    /// What to call it.
    fn name(&self) -> &str;

    /// The kernel that it runs on.
    fn kernel(&self) -> KernelRules {
        KernelRules::default()
    }

    /// Milliseconds between calls of [`Rival::period`].
    fn period_ms(&self) -> u64 {
        2000
    }

    /// A VM has just started: it may still be anywhere.
    fn started(&mut self, _host: &mut SimulatedHost, _vm: &VmKey) {}

    /// A period has passed.
    fn period(&mut self, _host: &mut SimulatedHost) {}
}

/// Nobody but the kernel: threads float over all nodes, memory lies where it was first touched.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxDefault;

impl Rival for LinuxDefault {
    fn name(&self) -> &'static str {
        "Linux default"
    }
}

/// The kernel's automatic NUMA balancing alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelAutoNuma;

impl Rival for KernelAutoNuma {
    fn name(&self) -> &'static str {
        "kernel AutoNUMA"
    }

    fn kernel(&self) -> KernelRules {
        KernelRules { auto_numa: Some(AutoNuma::default()), ..KernelRules::default() }
    }
}

/// Linux 7.2: automatic NUMA balancing and cache-aware scheduling, which takes a whole QEMU for one
/// process.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheAwareAutoNuma;

impl Rival for CacheAwareAutoNuma {
    fn name(&self) -> &'static str {
        "AutoNUMA, Linux 7.2"
    }

    fn kernel(&self) -> KernelRules {
        KernelRules { cache_aware: Some(CacheAware::default()), ..KernelAutoNuma.kernel() }
    }
}

/// Linux 7.2's cache-aware scheduling without NUMA balancing: nothing tells it how large a guest's
/// footprint is.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheAwareLinux;

impl Rival for CacheAwareLinux {
    fn name(&self) -> &'static str {
        "Linux 7.2, no AutoNUMA"
    }

    fn kernel(&self) -> KernelRules {
        KernelRules { cache_aware: Some(CacheAware::default()), ..KernelRules::default() }
    }
}

/// What numad would read of a host. A node that is not there has nothing; use that nobody could
/// read counts as none.
pub fn node_states(machine: &Machine, observation: &Observation) -> Vec<NodeState> {
    let state = |node: &topology::Node| {
        let seen = observation.nodes.get(&node.id);
        let cpus = seen.map_or(0, |seen| seen.cpus.len()) as i64;
        let cores = (machine.usable_cores(node.id).len() as i64).min(cpus);
        // `-t`, default 20: a core's further hardware threads count as a fifth of a CPU each.
        let cpus_total = cores * 100 + (cpus - cores) * 20;
        let used = seen.and_then(|seen| seen.cpu_used).unwrap_or(0.0);
        NodeState {
            cpus_total,
            cpus_free: (cpus * 100 - (used * 100.0) as i64).clamp(0, cpus_total),
            mb_total: node.memory.mib() as i64,
            mb_free: seen.and_then(|seen| seen.memory_free).map_or(0, |free| free.mib() as i64),
        }
    };
    machine.nodes.iter().map(state).collect()
}

/// Distances by index of the nodes.
pub fn distances(machine: &Machine) -> Vec<Vec<u32>> {
    let ids = || machine.nodes.iter().map(|node| node.id);
    ids().map(|from| ids().map(|to| machine.distance(from, to)).collect()).collect()
}
