//! What a placement costs: CPU time that is lost, in CPUs, by the same figures as the balancer's
//! ([`crate::balance::BalancePolicy`]).

use super::homes::VCPU;
use crate::balance::{BalancePolicy, Crowding, Drawn, crowding_of, lost_at_passage};
use crate::host::HostNode;
use topology::Bytes;

/// What things cost, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Of a CPU, for a vCPU that shares a core with another: two threads of a core do less than two
    /// cores.
    shared_core: u64,
    /// Of a vCPU's time, for memory that is twice as far as local memory.
    stall: u64,
    /// Of those waits, for memory of the VM's other clients.
    sibling: u64,
    /// Of those waits, for what its network cards bring and take.
    device: u64,
    /// Bytes a second that a CPU draws which only waits for memory.
    waiting_cpu_draws: f64,
    /// Part of each vCPU that is taken to be busy.
    busy: u64,
    /// Whether other VMs may be busy; else only those count that always are.
    others_may_be_busy: bool,
    crowding: Crowding,
}

impl Rates {
    /// The same figures everywhere, but for the part of each vCPU that is taken to be busy.
    pub(crate) fn of(busy_percent: u64) -> Self {
        let policy = BalancePolicy::default();
        Self {
            shared_core: 100 - policy.smt_yield_percent as u64,
            stall: policy.stall_percent as u64,
            sibling: policy.sibling_percent as u64,
            device: policy.device_percent as u64,
            waiting_cpu_draws: policy.waiting_cpu_draws().max(1.0),
            busy: busy_percent,
            others_may_be_busy: true,
            crowding: Crowding::of(&policy),
        }
    }

    /// The same without what is lost only if other VMs are busy.
    pub(crate) fn for_certain(self) -> Self {
        Self { others_may_be_busy: false, ..self }
    }

    /// Millionths of CPUs that are lost to memory, from millionths of vCPUs times thousandths of
    /// extra distance.
    pub(crate) fn memory(&self, micro_by_extra: u64) -> u64 {
        self.of_busy(micro_by_extra.saturating_mul(self.stall) / 100_000)
    }

    fn expects_all_busy(&self) -> bool {
        self.busy >= 100
    }

    /// Millionths of CPUs that are lost on a node with `held` busy ones, once `micro` more come: as
    /// the balancer counts crowded CPUs.
    fn crowded(&self, node: &HostNode, held: u64, micro: u64) -> u64 {
        let cpus = |micro: u64| micro as f64 / VCPU as f64;
        let (cores, threads) = (f64::from(node.cores), f64::from(node.threads));
        let lost = |load: u64| crowding_of(&self.crowding, cores, threads, cpus(load));
        ((lost(held + micro) - lost(held)) * VCPU as f64).round() as u64
    }

    /// Of so much for all vCPUs, what those lose that are taken to be busy.
    fn of_busy(&self, all: u64) -> u64 {
        all.saturating_mul(self.busy) / 100
    }

    /// The same for memory of the VM's other clients, from a sum over pairs of clients.
    pub(crate) fn siblings(&self, micro_by_extra: u128, whole: u64, clients: usize) -> u64 {
        let others = (clients as u64).saturating_sub(1).max(1);
        let mean = u64::try_from(micro_by_extra / u128::from(whole * others)).unwrap_or(u64::MAX);
        self.of_busy(mean.saturating_mul(self.stall * self.sibling) / 10_000_000)
    }

    /// The same for cards that are so far, in thousandths of extra distance.
    fn cards(&self, micro: u64, extra: u64) -> u64 {
        self.of_busy(micro.saturating_mul(extra).saturating_mul(self.stall * self.device) / 10_000_000)
    }

    /// Millionths of CPUs that all on a node lose more, once `traffic` comes to what is drawn there
    /// already: what its memory does not give is waited for.
    ///
    /// Memory gives 18 GB/s, 11.4 are drawn, 11.4 come: 4.8 GB/s too many. A CPU that only waits
    /// draws 4 x 64 bytes / 90 ns = 2.84 GB/s: 1.69 CPUs are lost.
    fn bandwidth(&self, node: &HostNode, traffic: u64) -> u64 {
        let Some(given) = node.bandwidth.filter(|_| traffic > 0) else { return 0 };
        self.at_passage(node.traffic_held.saturating_add(traffic), given) - self.at_passage(node.traffic_held, given)
    }

    /// Millionths of CPUs that wait at a controller or a link which gives so many bytes a second of
    /// those that are drawn.
    pub(crate) fn at_passage(&self, drawn: u64, given: u64) -> u64 {
        let traffic = drawn as f64;
        let drawn = Drawn { traffic, waiting: traffic / self.waiting_cpu_draws };
        (lost_at_passage(drawn, given as f64) * 1e6) as u64
    }

    /// Millionths of CPUs that as many (`micro`) of vCPUs lose on a node beside `held` of others:
    /// one that finds no hardware thread loses all, one that shares a core a part.
    fn cpu(&self, node: &HostNode, count_cores: bool, held: u64, micro: u64) -> u64 {
        let beyond = |limit: u32| (held + micro).saturating_sub(u64::from(limit) * VCPU).min(micro);
        let waiting = beyond(node.threads);
        let sharing = if count_cores { beyond(node.cores) - waiting } else { 0 };
        waiting + sharing * self.shared_core / 100
    }
}

/// CPU time that is lost, in millionths of CPUs, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// vCPUs that wait for a hardware thread or share a core.
    pub(crate) cpu: u64,
    /// Of that, what is lost only if other VMs are busy.
    pub(crate) guessed: u64,
    /// Memory of a client that is not local to its vCPUs.
    pub(crate) memory: u64,
    /// Distance to the memory of the VM's other clients.
    pub(crate) siblings: u64,
    /// Distance to the network cards that the VM is drawn to.
    pub(crate) cards: u64,
    /// Memory controllers, and links between nodes, that give less than is drawn.
    pub(crate) bandwidth: u64,
    /// Charged, not lost: the difference from the distances that the guest was told.
    pub(crate) misled: u64,
    /// Charged, not lost, since vCPUs that float crowd their node too and are not charged: what
    /// groups of vCPUs lose under the last-level caches that they keep to.
    pub(crate) caches: u64,
}

impl Lost {
    /// Without what is charged only.
    pub(crate) fn all(&self) -> u64 {
        self.beside_bandwidth().saturating_add(self.bandwidth)
    }

    /// What is lost whatever other VMs do, but for those that always count as busy.
    pub(crate) fn for_certain(&self) -> u64 {
        self.all().saturating_sub(self.guessed)
    }

    /// What is charged, and not lost.
    pub(crate) fn charged(&self) -> u64 {
        self.misled.saturating_add(self.caches)
    }

    /// Without what is lost to full memory controllers either.
    pub(crate) fn beside_bandwidth(&self) -> u64 {
        self.cpu.saturating_add(self.memory).saturating_add(self.siblings).saturating_add(self.cards)
    }
}

/// The cost of a placement. Compared from the first field to the last, each in steps that rounding
/// does not cross ([`Cost::rounded`]). Every field is a sum over nodes or clients, so that no
/// numbering of nodes can change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cost {
    /// vCPUs of this VM beyond the hardware threads of their node, in millionths: they never run
    /// all at once, whatever else runs, so that no saving elsewhere pays for it.
    pub(crate) stacked: u64,
    /// CPU time that is lost, in millionths of CPUs, with what is charged for distances that the
    /// guest was not told, and for caches. Where clients are to live apart, without what their
    /// distance costs.
    pub(crate) lost: u64,
    /// CPU nodes that are left unused; counted only where clients are to live apart.
    pub(crate) unused: u32,
    /// What the distance of clients that live apart costs; counted only where they are to.
    pub(crate) apart: u64,
    /// What is lost to full memory controllers, where clients are to be together (else it counts as
    /// lost).
    pub(crate) bandwidth: u64,
    /// What is charged for distances that the guest was not told, once more: between maps that cost
    /// the same, the one that is more like them.
    pub(crate) misled: u64,
    /// How crowded the CPUs become: the growth of load^2 / cores.
    pub(crate) crowding: u64,
    /// How full the memory becomes: the growth of used^2 / size.
    pub(crate) fullness: u64,
}

/// What is compared of CPU time: steps of a hundredth of a CPU.
pub(crate) const LOST_STEP: u64 = 10_000;

/// What is compared of vCPUs beyond hardware threads: eighths.
pub(crate) const STACKED_PARTS: u64 = 8;

impl Cost {
    /// Whether less is lost than with `other`, whatever stays free.
    pub(crate) fn loses_less_than(&self, other: &Self) -> bool {
        let lost = |cost: &Self| Self { misled: 0, crowding: 0, fullness: 0, ..*cost };
        lost(self) < lost(other)
    }

    /// Without what only the division of a vCPU among the nodes of a home adds. Rising costs stay
    /// rising.
    pub(crate) fn rounded(self) -> Self {
        // The offsets keep the common fractions away from the edges of a step.
        let hundredths = |micro: u64| micro.saturating_add(3_700) / LOST_STEP;
        Self {
            stacked: (self.stacked + 37_000) * STACKED_PARTS / VCPU,
            lost: hundredths(self.lost),
            apart: hundredths(self.apart),
            bandwidth: hundredths(self.bandwidth),
            misled: (self.misled + 370) / 1000,
            crowding: (self.crowding + 37_000) / 100_000,
            ..self
        }
    }
}

/// What a node's own share of the cost is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeCost {
    pub(crate) stacked: u64,
    /// Twice the CPU time that is lost.
    pub(crate) cpu_twice: u64,
    /// Twice what of it is lost only if other VMs are busy.
    pub(crate) guessed_twice: u64,
    /// CPU time that is lost to the distance of cards.
    pub(crate) cards: u64,
    /// CPU time that is lost to its memory controllers.
    pub(crate) bandwidth: u64,
    /// What is charged for its caches, at least.
    pub(crate) caches: u64,
    pub(crate) crowding: u64,
}

impl NodeCost {
    /// For `micro` millionths of vCPUs of this VM, which draw so many bytes a second and are
    /// charged so much for caches. What other VMs do is not known: half is counted as if their
    /// vCPUs were all busy, half as if all idled but those of latency-sensitive VMs. Beside a
    /// balancer it is what that expects of them.
    pub(crate) fn of(
        node: &HostNode,
        prefer_ht: bool,
        rates: &Rates,
        (micro, traffic, caches): (u64, u64, u64),
    ) -> Self {
        if micro == 0 {
            return Self::default();
        }
        let held = u64::from(node.vcpus_held) * VCPU;
        let (busy, always) = (rates.of_busy(micro), u64::from(node.always_busy) * VCPU);
        let cpu = |held: u64| rates.cpu(node, !prefer_ht, held, micro);
        let cpu_twice = |held: u64| match rates.expects_all_busy() {
            true => cpu(held) + cpu(always),
            false => 2 * rates.crowded(node, always + rates.of_busy(held.saturating_sub(always)), busy),
        };
        let certain = cpu_twice(always);
        let all = if rates.others_may_be_busy { cpu_twice(held) } else { certain };
        Self {
            stacked: busy.saturating_sub(u64::from(node.threads) * VCPU),
            cpu_twice: all,
            guessed_twice: all.saturating_sub(certain),
            cards: rates.cards(micro, node.to_cards),
            bandwidth: rates.bandwidth(node, traffic),
            caches,
            // Of thousandths squared.
            crowding: growth(held, held + micro, node.units(prefer_ht).into()) / (VCPU / 1000).pow(2),
        }
    }
}

/// How much fuller the memory of a node becomes.
pub(crate) fn fullness(node: &HostNode, bytes: u64) -> u64 {
    let mib = |bytes: u64| Bytes(bytes).mib();
    let used = node.memory.saturating_sub(node.free);
    growth(mib(used), mib(used.saturating_add(bytes)), mib(node.memory))
}

/// (after^2 - before^2) / size: what is added to a fuller node costs more. Amounts stop at 2^32:
/// 4294 vCPUs on a node, 4 PiB.
fn growth(before: u64, after: u64, size: u64) -> u64 {
    let square = |amount: u64| amount.min(u32::MAX.into()).pow(2);
    (square(after) - square(before)) / size.max(1)
}
