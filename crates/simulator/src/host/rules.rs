//! What the modelled kernel does by itself. Each value is an assumption unless its description
//! names a source.

/// Rules of the kernel under the VMs.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRules {
    /// Longest time over which rates count as constant, in milliseconds.
    pub tick_ms: u64,
    /// The load balancer moves a thread when the busiest node's load is this multiple of the idlest
    /// one's. Linux: `imbalance_pct` of a NUMA domain is 125 (1.25).
    pub imbalance: f64,
    /// The same between the last-level caches of a node. Linux: 117 of such a domain (1.17).
    pub cache_imbalance: f64,
    /// Threads that the load balancer moves from node to node in a second, at most, on the whole
    /// host.
    pub moves_per_second: f64,
    /// Probability in a second that a thread that floats wakes up on an idle CPU of another node.
    pub drift_per_second: f64,
    /// Memory that one busy vCPU touches for the first time in a second.
    pub touch_bytes_per_second: u64,
    /// Memory that the kernel copies in a second from node to node, with one CPU.
    pub copy_bytes_per_second: u64,
    /// Time that the copying may lag behind; beyond it, memory is left where it is and the caller
    /// is told.
    pub copy_lag_s: f64,
    /// Part of each node's memory that the kernel keeps for itself: 1 / this.
    pub kernel_part: u64,
    /// Automatic NUMA balancing, where it is on.
    pub auto_numa: Option<AutoNuma>,
    /// Cache-aware scheduling, where the kernel has it (Linux 7.2).
    pub cache_aware: Option<CacheAware>,
}

impl Default for KernelRules {
    fn default() -> Self {
        Self {
            tick_ms: 2000,
            imbalance: 1.25,
            cache_imbalance: 1.17,
            moves_per_second: 8.0,
            drift_per_second: 0.01,
            touch_bytes_per_second: 256 << 20,
            copy_bytes_per_second: 2 << 30,
            copy_lag_s: 2.0,
            kernel_part: 32,
            auto_numa: None,
            cache_aware: None,
        }
    }
}

/// Linux 7.2's cache-aware scheduling (`CONFIG_SCHED_CACHE`): the threads of a process are drawn to
/// the last-level cache where most of them run, if they are no more than its cores and the
/// process's memory footprint, as far as automatic NUMA balancing has learnt one, fits into it.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheAware {
    /// Part of its CPUs up to which a cache takes threads in. Linux: `overaggr_pct` 50.
    pub most_busy: f64,
    /// Beyond that, it may be so much busier than the cache that a thread leaves. Linux: `imb_pct`
    /// 20 (1.2).
    pub imbalance: f64,
    /// Part of the cache that the footprint may have. Linux: `aggr_tolerance` 1.
    pub footprint_part: f64,
}

impl Default for CacheAware {
    fn default() -> Self {
        Self { most_busy: 0.5, imbalance: 1.2, footprint_part: 1.0 }
    }
}

/// The kernel's automatic NUMA balancing (`kernel.numa_balancing`), plainly: hint faults find out
/// who uses a page, pages go to threads, threads go to where most of the memory is.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoNuma {
    /// Memory that is marked in one scan. Linux: `scan_size_mb` 256.
    pub scan_bytes: u64,
    /// Shortest time between scans. Linux: `scan_period_min_ms` 1000.
    pub least_period_s: f64,
    /// Longest. Linux: `scan_period_max_ms` 60000.
    pub most_period_s: f64,
    /// Part of the accesses that are local from which scans become rarer. Linux:
    /// `NUMA_PERIOD_THRESHOLD` 7 of 10.
    pub good_locality: f64,
    /// CPU time of one hint fault, in nanoseconds, taken from the VM; in a VM it includes leaving
    /// the guest.
    pub fault_ns: f64,
    /// A node with this part of the memory of the node that has most counts as active. Linux:
    /// `ACTIVE_NODE_FRACTION` 1 / 3.
    pub active_part: f64,
}

impl Default for AutoNuma {
    fn default() -> Self {
        Self {
            scan_bytes: 256 << 20,
            least_period_s: 1.0,
            most_period_s: 60.0,
            good_locality: 0.7,
            fault_ns: 2000.0,
            active_part: 1.0 / 3.0,
        }
    }
}
