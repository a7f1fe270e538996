//! One hardware thread for each vCPU of a VM whose vCPUs are bound one by one.
//!
//! **Problem.** A cure that gives such vCPUs all CPUs of their home takes away what somebody
//! wanted: a core of one's own, isolation, real time. And where only the order is wrong, or one
//! core is shared, no pin has to go.
//!
//! **Rule.** Pins stay pins. Who has its right place keeps it. A virtual core of several threads
//! has as many hardware threads of one core, of those that the VM has already where they are
//! enough. Every other vCPU has a core that no vCPU of the VM, no VM beside it and, where there is
//! one, no other thread of it is on: the nearest of its own kind (isolated or not, as strong).
//! Isolated CPUs are never left for others, nor are vCPUs with a real-time class set free.
//!
//! **Properties.** No hardware thread is given twice. What is right already stays byte for byte.
//!
//! **Example.** Cores {0, 8} to {7, 15}; two virtual cores of two threads on 3, 4, 11, 12: the same
//! four in the order 3, 11, 4, 12.

use crate::scene::NodeView;
use crate::shaped::ShapedVm;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use topology::{CoreId, CpuId, CpuSet, HardwareThread, LlcId, Machine};

/// Why the pins of a VM stay pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keeps {
    /// Somebody bound each vCPU to one CPU.
    OneToOne,
    /// All of its CPUs are isolated: among them the kernel balances nothing.
    Isolated,
    /// vCPUs have a real-time class.
    RealTime,
}

/// The pins of a VM that stay pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Why.
    pub(crate) keeps: Keeps,
    /// The right CPU of each vCPU; `None` where the home has not enough of them.
    pub(crate) right: Option<BTreeMap<u32, CpuId>>,
    /// The same with two vCPUs to a core, away from the cores of other threads: for a guest that is
    /// told of two threads a core. `None` where that cannot be.
    pub(crate) in_pairs: Option<BTreeMap<u32, CpuId>>,
}

/// CPUs of each virtual node that vCPUs may be bound to, and its vCPUs.
pub(crate) type Homes = Vec<(CpuSet, CpuSet)>;

/// Why a VM keeps its pins; `None`: nobody bound its vCPUs one by one.
pub(crate) fn keeps(machine: &Machine, vm: &ShapedVm, views: &[NodeView<'_>]) -> Option<Keeps> {
    let cpus = machine.schedulable();
    let with_vcpus = || views.iter().filter(|view| !view.node.vcpus.is_empty());
    with_vcpus().next()?;
    if !vm.real_time.is_empty() {
        return Some(Keeps::RealTime);
    }
    let isolated = |view: &NodeView<'_>| !view.cpus.is_empty() && view.cpus.is_subset(&machine.isolated);
    if with_vcpus().all(isolated) {
        return Some(Keeps::Isolated);
    }
    let numbers = vm.numbers();
    let mut there = numbers.iter().filter(|&vcpu| !vm.absent.contains(vcpu));
    let alone = |vcpu: CpuId| vm.pins.get(&vcpu.0).is_some_and(|set| set.len() == 1 || cpus.used(set).len() == 1);
    there.all(alone).then_some(Keeps::OneToOne)
}

/// The machine as a VM uses it that keeps its pins so: with isolated CPUs, or with nothing else.
pub(crate) fn machine_of(machine: &Machine, keeps: Option<Keeps>) -> Cow<'_, Machine> {
    if machine.isolated.is_empty() {
        return Cow::Borrowed(machine);
    }
    match keeps {
        None => Cow::Borrowed(machine),
        Some(Keeps::Isolated) => Cow::Owned(machine.with_only(&machine.isolated_cpus())),
        Some(Keeps::OneToOne | Keeps::RealTime) => Cow::Owned(machine.with_only(&machine.schedulable().bindable)),
    }
}

/// The pins that are right for a VM on its homes. `taken`: CPUs to which others are bound alone.
pub(crate) fn pinned(
    machine: &Machine,
    vm: &ShapedVm,
    keeps: Keeps,
    homes: &Homes,
    taken: &CpuSet,
    threads: u32,
) -> Pinned {
    let others = cores_of(machine, &other_threads(vm));
    let find = |threads: u32, avoid: &BTreeSet<CoreId>, taken: &CpuSet| {
        Search::new(machine, vm, taken, avoid).assign(homes, threads)
    };
    // Cores of other threads are no cores that are left, unless nothing else will do. A CPU that
    // the VM shares with another one already is better than one that two of its vCPUs share.
    let elsewhere = || taken.difference(&own_cpus(machine, vm));
    let right = find(threads, &others, taken)
        .or_else(|| find(threads, &BTreeSet::new(), taken))
        .or_else(|| find(threads, &BTreeSet::new(), &elsewhere()));
    let even = homes.iter().all(|(vcpus, _)| vcpus.len() % 2 == 0);
    let in_pairs = (threads == 1 && even).then(|| find(2, &others, taken)).flatten();
    Pinned { keeps, right, in_pairs }
}

/// CPUs that vCPUs of the VM use now.
fn own_cpus(machine: &Machine, vm: &ShapedVm) -> CpuSet {
    let cpus = machine.schedulable();
    vm.pins.values().fold(CpuSet::new(), |all, set| all.union(&cpus.used(set)))
}

/// CPUs of the threads that run no vCPU, where they may use a part of the machine only.
fn other_threads(vm: &ShapedVm) -> CpuSet {
    let of_vhost = vm.vhost.iter().filter_map(|(_, cpus)| cpus.as_ref());
    let all = vm.emulator.iter().chain(vm.iothreads.values().flatten()).chain(of_vhost);
    // What shares the vCPUs' own set is not apart from them.
    let vcpus = vm.pins.values().fold(CpuSet::new(), |all, set| all.union(set));
    all.filter(|cpus| **cpus != vcpus).fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// Cores of CPUs.
pub(crate) fn cores_of(machine: &Machine, cpus: &CpuSet) -> BTreeSet<CoreId> {
    machine.threads.iter().filter(|thread| cpus.contains(thread.id)).map(|thread| thread.core).collect()
}

/// What a vCPU's CPU must be like: isolated or not, and as strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    isolated: bool,
    capacity: Option<u32>,
}

struct Search<'a> {
    machine: &'a Machine,
    vm: &'a ShapedVm,
    /// CPUs that each core has to give.
    free: BTreeMap<CoreId, Vec<&'a HardwareThread>>,
    /// CPUs that each vCPU uses now.
    now: BTreeMap<u32, CpuSet>,
    /// All of these, and their caches.
    own: CpuSet,
    llcs: BTreeSet<LlcId>,
    found: BTreeMap<u32, CpuId>,
    given: BTreeSet<CpuId>,
    used: BTreeSet<CoreId>,
}

impl<'a> Search<'a> {
    fn new(machine: &'a Machine, vm: &'a ShapedVm, taken: &CpuSet, avoid: &BTreeSet<CoreId>) -> Self {
        let lost = cores_of(machine, taken);
        let mut free = BTreeMap::<CoreId, Vec<&HardwareThread>>::new();
        for thread in machine.bindable_threads() {
            if !lost.contains(&thread.core) && !avoid.contains(&thread.core) {
                free.entry(thread.core).or_default().push(thread);
            }
        }
        let cpus = machine.schedulable();
        let now: BTreeMap<u32, CpuSet> = vm.pins.iter().map(|(&vcpu, set)| (vcpu, cpus.used(set))).collect();
        let own: CpuSet = now.values().collect::<BTreeSet<_>>().into_iter().flat_map(CpuSet::iter).collect();
        let llcs = machine.threads.iter().filter(|thread| own.contains(thread.id)).filter_map(|thread| thread.llc);
        let llcs = llcs.collect();
        let (found, given, used) = Default::default();
        Self { machine, vm, free, now, own, llcs, found, given, used }
    }

    /// CPUs that a vCPU uses now.
    fn now(&self, vcpu: CpuId) -> CpuSet {
        self.now.get(&vcpu.0).cloned().unwrap_or_default()
    }

    fn kind(&self, vcpu: CpuId) -> Kind {
        let now = self.now(vcpu);
        let capacities = self.machine.capacities_of(&now);
        let one = if capacities.len() == 1 { capacities.first().copied() } else { None };
        Kind { isolated: !now.is_empty() && now.is_subset(&self.machine.isolated), capacity: one }
    }

    /// Threads of a core that a vCPU of this kind may be bound to, and that nobody has.
    fn threads(&self, core: CoreId, kind: Kind, home: &CpuSet) -> Vec<CpuId> {
        let fits = |thread: &&&HardwareThread| {
            home.contains(thread.id)
                && self.machine.isolated.contains(thread.id) == kind.isolated
                && kind.capacity.is_none_or(|capacity| thread.core_capacity() == capacity)
                && !self.given.contains(&thread.id)
        };
        self.free.get(&core).into_iter().flatten().filter(fits).map(|thread| thread.id).collect()
    }

    fn assign(mut self, homes: &Homes, threads: u32) -> Option<BTreeMap<u32, CpuId>> {
        let mut open: Vec<(Vec<CpuId>, &CpuSet)> = Vec::new();
        for (vcpus, home) in homes {
            let mut cores = BTreeMap::<u32, Vec<CpuId>>::new();
            vcpus.iter().for_each(|vcpu| cores.entry(vcpu.0 / threads.max(1)).or_default().push(vcpu));
            open.extend(cores.into_values().map(|core| (core, home)));
        }
        open.retain(|(vcpus, home)| !self.keep(vcpus, home));
        // Whole cores that the VM has come before others, and those before a part of one.
        for step in [Self::on_own_core, Self::on_nearest_core] {
            open.retain(|(vcpus, home)| !step(&mut self, vcpus, home));
        }
        for (vcpus, home) in open {
            if vcpus.len() > 1 || !self.on_any_thread(vcpus[0], home) {
                return None;
            }
        }
        Some(self.found)
    }

    fn give(&mut self, vcpus: &[CpuId], core: CoreId, cpus: &[CpuId]) -> bool {
        self.used.insert(core);
        self.given.extend(cpus.iter().take(vcpus.len()));
        self.found.extend(vcpus.iter().map(|vcpu| vcpu.0).zip(cpus.iter().copied()));
        true
    }

    /// A virtual core that has a core for itself stays there.
    fn keep(&mut self, vcpus: &[CpuId], home: &CpuSet) -> bool {
        let now: Vec<CpuSet> = vcpus.iter().map(|&vcpu| self.now(vcpu)).collect();
        let cpus: Vec<CpuId> = now.iter().filter(|set| set.len() == 1).filter_map(CpuSet::first).collect();
        let distinct: CpuSet = cpus.iter().copied().collect();
        let cores = cores_of(self.machine, &distinct);
        let (Some(&core), 1) = (cores.first(), cores.len()) else { return false };
        let there = self.threads(core, self.kind(vcpus[0]), home);
        let whole = cpus.len() == vcpus.len() && distinct.len() == cpus.len();
        let fits = whole && !self.used.contains(&core) && cpus.iter().all(|cpu| there.contains(cpu));
        fits && self.give(vcpus, core, &cpus)
    }

    /// A core all of whose CPUs that it needs the VM has already: of a virtual core with threads.
    fn on_own_core(&mut self, vcpus: &[CpuId], home: &CpuSet) -> bool {
        if vcpus.len() < 2 {
            return false;
        }
        let own = home.intersection(&self.own);
        self.on_core_within(vcpus, &own, home)
    }

    fn on_nearest_core(&mut self, vcpus: &[CpuId], home: &CpuSet) -> bool {
        // What it may use already comes first.
        let may = self.vm.pins.get(&vcpus[0].0).map(|set| set.intersection(home)).unwrap_or_default();
        self.on_core_within(vcpus, &may, home) || self.on_core_within(vcpus, home, home)
    }

    /// The nearest core of `home` that has the CPUs; `whole` is all of the home.
    fn on_core_within(&mut self, vcpus: &[CpuId], home: &CpuSet, whole: &CpuSet) -> bool {
        let (kind, now) = (self.kind(vcpus[0]), self.now(vcpus[0]));
        let core_now = cores_of(self.machine, &now.intersection(whole)).first().copied();
        let rank = |core: CoreId| {
            let llc = self.free.get(&core).and_then(|threads| threads.first()?.llc);
            let far = core_now.map_or(0, |now| core.0.abs_diff(now.0));
            let below = core_now.is_some_and(|now| core < now);
            (llc.is_some_and(|llc| !self.llcs.contains(&llc)), far, below, core)
        };
        let cores = self.free.keys().copied().filter(|core| !self.used.contains(core));
        let fits = |core: &CoreId| self.threads(*core, kind, home).len() >= vcpus.len();
        let Some(core) = cores.filter(fits).min_by_key(|&core| rank(core)) else { return false };
        let cpus = self.threads(core, kind, home);
        self.give(vcpus, core, &cpus)
    }

    /// A hardware thread of a core that another vCPU of the VM is on: its own where it can be.
    fn on_any_thread(&mut self, vcpu: CpuId, home: &CpuSet) -> bool {
        let (kind, now) = (self.kind(vcpu), self.now(vcpu));
        let all = self.free.keys().flat_map(|&core| self.threads(core, kind, home));
        let Some(cpu) = all.min_by_key(|&cpu| (!now.contains(cpu), cpu)) else { return false };
        self.given.insert(cpu);
        self.found.insert(vcpu.0, cpu);
        true
    }
}
