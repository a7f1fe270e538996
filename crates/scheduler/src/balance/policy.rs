//! Thresholds, periods and guards, with ESXi's names and defaults.

use serde::{Deserialize, Serialize};
use topology::Bytes;

/// How the balancer decides. In the description of a value: ESXi's name and default, where it has
/// one.
///
/// A load is the CPU time that the clients of a node are entitled to, in percent of the node's
/// cores. A loss is CPU time that is paid for and does no work, in CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BalancePolicy {
    /// False: VMs that appear get a home and nothing is moved later (`Numa.RebalanceEnable`, 1).
    pub rebalance: bool,
    /// Time between steps, in milliseconds (`Numa.RebalancePeriod`, 2000).
    pub period_ms: u64,
    /// Fewest usable cores of a host that is balanced (`Numa.RebalanceCoresTotal`, 4).
    pub least_cores_host: u32,
    /// Fewest usable cores of a node that takes part (`Numa.RebalanceCoresNode`, 2).
    pub least_cores_node: u32,
    /// Least difference of load between two nodes for a load move, in points
    /// (`Numa.MigImbalanceThreshold`, 10).
    pub imbalance_percent: f64,
    /// Least improvement of that difference by one move or swap, in points (`Numa.MigThreshold`,
    /// 2).
    pub gain_percent: f64,
    /// Least gain of a move, a swap, or a first home away from the client's memory, in CPUs: less
    /// is not worth moving memory for. 0: none, and a load move is also made where nobody waits or
    /// shares a core. ESXi: no such rule is published.
    ///
    /// The default of 0.05 is above what guests that idle seem to win: an idle guest of 8 vCPUs
    /// uses some 0.1 CPUs, of which remote memory would make it lose 0.03.
    pub least_gain_cpus: f64,
    /// After the move the difference is at most this part of what it was
    /// (`Numa.MigThrashThreshold`, 50).
    pub thrash_percent: f64,
    /// A client that is owed more than this part of its entitlement is not moved for load or
    /// locality; 0: off (`Numa.MigPreventLTermThresh`, 0).
    pub owed_prevents_percent: f64,
    /// Periods over which fairness is judged; 0: never (`Numa.LTermFairnessInterval`, 5).
    pub fairness_periods: u32,
    /// Least difference of what two clients are owed, in percent of their entitlement
    /// (`Numa.LTermMigImbalThreshold`, 10).
    pub fairness_percent: f64,
    /// Every so many periods moves and swaps are considered; 0: never (`Numa.SwapInterval`, 3).
    pub swap_periods: u32,
    /// Every so many periods moves alone are considered; 0: never (`Numa.SwapMigrateOnly`, 2).
    pub move_periods: u32,
    /// Periods after a swap in which neither client is swapped again (`Numa.SwapConsiderPeriod`,
    /// 15).
    pub swap_reconsider_periods: u32,
    /// Whether two clients may change places for load (`Numa.SwapLoadEnable`, 1).
    pub swap_for_load: bool,
    /// Whether two clients may change places for locality (`Numa.SwapLocalityEnable`, 1).
    pub swap_for_locality: bool,
    /// What better locality counts beside load; 0: never move for locality
    /// (`Numa.LocalityWeightMem`, 1).
    pub locality_weight: f64,
    /// No locality move to a node that would be loaded more than this (`Numa.CoreCapRatioPct`, 90).
    pub core_cap_percent: f64,
    /// Whether memory follows its client (`Numa.PageMigEnable`, 1).
    pub move_memory: bool,
    /// Memory moved on the whole host in a second, at most (`Numa.PageMigRateMax`, 8000 in ESXi 8,
    /// thought to be pages).
    pub move_bytes_per_second: Bytes,

    /// Whether distances between nodes count: to a client's memory, and to the other clients of its
    /// VM. ESXi: only at power-on.
    pub distance_aware: bool,
    /// Whether VMs are drawn to the nodes of their devices: of those that are passed through, and
    /// of the network cards that they are plugged into (`Numa.DeviceAffinity`, 0; ESXi counts
    /// passed-through devices alone).
    pub near_device: bool,
    /// Whether memory controllers and links that are asked for more than they give count as lost
    /// CPU time, where traffic is measured or stated and somebody says what they give. ESXi: no
    /// such rule is published.
    pub bandwidth_aware: bool,
    /// From this part of what it gives, in percent, a memory controller counts as full: what its
    /// clients draw is then less than they want.
    pub controller_full_percent: f64,
    /// Whether a node must have room for all memory of a client that moves there. ESXi: no such
    /// rule is published.
    pub memory_aware: bool,
    /// Periods after a move in which a client is not moved again, unless its home is lost; after it
    /// appeared, not for load or fairness. ESXi: only for swaps.
    pub rest_periods: u32,
    /// Periods in which a client does not go back, for load or locality, to a home that it left.
    pub return_periods: u32,
    /// Moves for load, locality and fairness in one period, at most; a swap is two. 0: no limit.
    pub moves_per_period: u32,
    /// VMs' clients that get a home in one period, at most. 0: no limit.
    pub adoptions_per_period: u32,
    /// No move for load or locality whose memory would wait longer than this, in seconds, for
    /// memory that goes first. 0: no limit.
    pub backlog_seconds: f64,
    /// A move must win back its cost within so many seconds. 0: cost does not count.
    pub payback_seconds: f64,
    /// Whether a move for load must win back its cost in the time that its node has been crowded,
    /// if that is shorter: a crowd that has just come may go as soon.
    pub crowding_lasts: bool,
    /// A difference in load that makes tasks wait for a CPU is acted on although `thrash_percent`
    /// is not met.
    pub waiting_overrules_thrash: bool,
    /// Weight of the newest figure in a client's average demand, in percent; 100: no average.
    pub newest_percent: f64,
    /// Part of a vCPU that counts as busy where a home is chosen, even if it is idle now, in
    /// percent.
    pub idle_vcpu_percent: f64,

    /// Whether vCPUs that keep to one last-level cache go to another of their home. ESXi: its CPU
    /// scheduler does (`llcSchedEnable`, TRUE).
    pub move_between_caches: bool,
    /// Least difference of load between two caches of a node for such a move, in points of the
    /// cores under them (Linux 7.2: `llc_balancing/imb_pct`, 20).
    pub cache_imbalance_percent: f64,
    /// Least gain of such a move, in CPUs. No memory moves for it, so that less is worth it than
    /// for a change of home.
    pub cache_gain_cpus: f64,
    /// Periods in which vCPUs that got another cache are not moved between caches again.
    pub cache_rest_periods: u32,

    /// Loss on a node whose cores are all busy, from caches, memory bandwidth and clock that are
    /// shared, in percent.
    pub shared_loss_percent: f64,
    /// Work that a second hardware thread adds to a busy core, in percent.
    pub smt_yield_percent: f64,
    /// Part of a busy vCPU's time that waits for local memory, in percent: remote memory makes that
    /// part longer.
    pub stall_percent: f64,
    /// Part of those waits that are for memory of the VM's other clients, in percent.
    pub sibling_percent: f64,
    /// Part that counts of what two VMs wait longer for bytes that they exchange, in percent; 0:
    /// VMs are not drawn together for it (`Numa.LocalityWeightActionAffinity`, 130 and 0 from 9.1
    /// on).
    pub communication_percent: f64,
    /// Part of those waits that are for what its devices bring and take, in percent; counted only
    /// for a VM that is drawn to its devices.
    pub device_percent: f64,
    /// Latency of local memory, in nanoseconds: turns measured traffic into waiting.
    pub local_latency_ns: f64,
    /// Loads of a vCPU that wait at the same time: waiting is divided by it.
    pub loads_at_once: f64,
    /// Memory that one CPU copies in a second: the CPU time that a move of pages costs.
    pub copy_bytes_per_cpu_second: Bytes,

    /// Memory of one client that moves in one period, at most.
    pub chunk: Bytes,
    /// Memory away from home that is not worth following, in percent of the client's resident
    /// memory.
    pub follow_least_percent: f64,
    /// Free memory that is left on every node, in percent of its size.
    pub headroom_percent: f64,
    /// Memory pressure (0 to 1) from which memory moves at half the rate; also where nobody knows
    /// the pressure.
    pub pressure_halves: f64,
    /// Memory pressure (0 to 1) from which no memory moves.
    pub pressure_stops: f64,
    /// Periods before a failed action is tried again; doubled at each failure.
    pub retry_periods: u32,
    /// Failures in a row after which an action is given up: it is then tried once an hour.
    pub give_up_after: u32,
}

/// Bytes that one load of a cache line brings.
const CACHE_LINE: f64 = 64.0;

/// 4 KiB pages a second in ESXi 8 (the unit is inferred, nobody published it).
const ESXI_PAGES_PER_SECOND: u64 = 8000;

impl BalancePolicy {
    /// Bytes a second that a CPU draws which does nothing but wait for local memory: 4 x 64 bytes
    /// in 90 ns are 2.84 GB/s.
    pub fn waiting_cpu_draws(&self) -> f64 {
        self.loads_at_once * CACHE_LINE / (self.local_latency_ns.max(1.0) * 1e-9)
    }

    /// ESXi's published thresholds and rules: blind to distance and to memory, without cost,
    /// payback or averages.
    pub fn esxi_defaults() -> Self {
        Self {
            least_cores_host: 4,
            least_cores_node: 2,
            move_bytes_per_second: Bytes(ESXI_PAGES_PER_SECOND * 4096),
            distance_aware: false,
            bandwidth_aware: false,
            memory_aware: false,
            rest_periods: 0,
            return_periods: 0,
            moves_per_period: 0,
            adoptions_per_period: 0,
            backlog_seconds: 0.0,
            payback_seconds: 0.0,
            crowding_lasts: false,
            waiting_overrules_thrash: false,
            newest_percent: 100.0,
            least_gain_cpus: 0.0,
            ..Self::default()
        }
    }
}

impl Default for BalancePolicy {
    fn default() -> Self {
        Self {
            rebalance: true,
            period_ms: 2000,
            least_cores_host: 2,
            least_cores_node: 1,
            imbalance_percent: 10.0,
            gain_percent: 2.0,
            least_gain_cpus: 0.05,
            thrash_percent: 50.0,
            owed_prevents_percent: 0.0,
            fairness_periods: 5,
            fairness_percent: 10.0,
            swap_periods: 3,
            move_periods: 2,
            swap_reconsider_periods: 15,
            swap_for_load: true,
            swap_for_locality: true,
            locality_weight: 1.0,
            core_cap_percent: 90.0,
            move_memory: true,
            move_bytes_per_second: Bytes::from_mib(256),
            distance_aware: true,
            near_device: false,
            bandwidth_aware: true,
            controller_full_percent: 90.0,
            memory_aware: true,
            rest_periods: 15,
            return_periods: 30,
            moves_per_period: 4,
            adoptions_per_period: 64,
            backlog_seconds: 300.0,
            payback_seconds: 120.0,
            crowding_lasts: true,
            waiting_overrules_thrash: true,
            newest_percent: 33.0,
            idle_vcpu_percent: 25.0,
            move_between_caches: true,
            cache_imbalance_percent: 20.0,
            cache_gain_cpus: 0.02,
            cache_rest_periods: 5,
            shared_loss_percent: 20.0,
            smt_yield_percent: 30.0,
            stall_percent: 30.0,
            sibling_percent: 20.0,
            communication_percent: 0.0,
            device_percent: 20.0,
            local_latency_ns: 90.0,
            loads_at_once: 4.0,
            copy_bytes_per_cpu_second: Bytes::GIB,
            chunk: Bytes::from_mib(256),
            follow_least_percent: 2.0,
            headroom_percent: 2.0,
            pressure_halves: 0.05,
            pressure_stops: 0.20,
            retry_periods: 5,
            give_up_after: 5,
        }
    }
}
