//! A host that is not there: VMs on a [`MachineModel`], behind the same trait as the real one.
//!
//! Between moments at which something changes, rates are constant: CPUs are shared fairly inside
//! each node, the solver says how many lines each client moves, memory is touched where threads
//! run. Moved pages are in their new place at once; their copying is paid for in the time that
//! follows, as an actor on the controllers and links that it uses and on a CPU of the target node.
//! Everything follows from the machine, the VMs, the seed and the calls made: no clock.

mod account;
mod act;
mod autonuma;
mod cache_aware;
mod caches;
mod cpus;
mod hardware;
mod memory;
mod observe;
mod rates;
mod rules;
mod shape;
mod shares;
mod state;
mod threads;

pub use account::Account;
pub use rules::{AutoNuma, CacheAware, KernelRules};
pub use shape::{ClientShape, Phase, Reuse, VmShape};

use crate::traces::Random;
use crate::{MachineModel, RateSolver, SolveError};
use memory::Copying;
use rates::Solved;
use scheduler::{Exchange, Moment, VmKey};
use shares::Share;
use state::{NodeState, Place, VmState, Vms};
use std::fmt;
use threads::Ground;
use topology::{CpuSet, NodeId};

/// First process id that is given out.
const FIRST_PID: u32 = 1000;

/// VMs on a modelled machine.
pub struct SimulatedHost {
    model: MachineModel,
    solver: Box<dyn RateSolver>,
    rules: KernelRules,
    random: Random,
    now_ms: u64,
    nodes: Vec<NodeState>,
    /// By node, then by cache.
    places: Vec<Place>,
    vms: Vms,
    ended: Vec<Account>,
    copying: Vec<Copying>,
    fallback: Vec<Vec<usize>>,
    solved: Solved,
    last_observed_ms: Option<u64>,
    started: u32,
    exchanges: Vec<Exchange>,
}

impl fmt::Debug for SimulatedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SimulatedHost");
        debug.field("now_ms", &self.now_ms).field("nodes", &self.nodes).field("vms", &self.vms).finish_non_exhaustive()
    }
}

impl SimulatedHost {
    /// An empty host at moment 0. The seed decides where threads drift.
    pub fn new(model: MachineModel, solver: Box<dyn RateSolver>, rules: KernelRules, seed: u64) -> Self {
        let places = state::places(model.machine());
        Self {
            nodes: state::nodes(model.machine(), &places, rules.kernel_part),
            places,
            fallback: memory::fallback(model.machine()),
            model,
            solver,
            rules,
            random: Random::part(seed, 1),
            now_ms: 0,
            vms: Vms::new(),
            ended: Vec::new(),
            copying: Vec::new(),
            solved: Solved::default(),
            last_observed_ms: None,
            started: 0,
            exchanges: Vec::new(),
        }
    }

    /// What its VMs are said to exchange from now on: what switches count on a real host. What it
    /// costs them is not modelled.
    pub fn set_exchanges(&mut self, exchanges: Vec<Exchange>) {
        self.exchanges = exchanges;
    }

    /// Starts a VM. Its threads may run everywhere that its node affinity allows; its memory is
    /// touched from now on.
    pub fn start(&mut self, shape: &VmShape) -> VmKey {
        let key = VmKey { name: shape.name.clone(), pid: FIRST_PID + self.started, started: self.now_ms / 10 };
        self.started += 1;
        let mut vm = VmState::new(shape, self.now_ms, self.nodes.len(), self.places.len());
        let ground = Ground { nodes: &self.nodes, places: &self.places };
        let mut loads = ground.loads(&self.vms);
        for client in &mut vm.clients {
            let allowed = |node: &&NodeState| shape.node_affinity.as_ref().is_none_or(|nodes| nodes.contains(node.id));
            let cpus: CpuSet = self.nodes.iter().filter(allowed).flat_map(|node| node.online.iter()).collect();
            let one = client.load_of_thread();
            for set in &mut client.sets {
                set.cpus = cpus.clone();
                ground.refresh_room(set);
                ground.settle(set, one, &mut loads);
            }
        }
        self.vms.insert(key.clone(), vm);
        key
    }

    /// Ends a VM: its memory is free at once. False if it is not there.
    pub fn end(&mut self, vm: &VmKey) -> bool {
        let Some(vm) = self.vms.remove(vm) else { return false };
        for client in &vm.clients {
            for (node, bytes) in self.nodes.iter_mut().zip(&client.memory) {
                node.taken -= bytes;
            }
        }
        self.ended.push(vm.account);
        true
    }

    /// What a VM asks for.
    pub fn shape(&self, vm: &VmKey) -> Option<&VmShape> {
        self.vms.get(vm).map(|vm| &vm.shape)
    }

    /// Hardware threads of a node that are online.
    pub fn online(&self, node: NodeId) -> CpuSet {
        self.nodes.iter().find(|state| state.id == node).map(|state| state.online.clone()).unwrap_or_default()
    }

    /// VMs that are there.
    pub fn vms(&self) -> impl Iterator<Item = &VmKey> {
        self.vms.keys()
    }

    /// The accounts of all VMs: of those that ended, in the order of their ends, then of those that
    /// are there.
    pub fn accounts(&self) -> Vec<Account> {
        self.ended.iter().chain(self.vms.values().map(|vm| &vm.account)).cloned().collect()
    }

    /// States of the memory system that had to be solved, and how often one was needed.
    pub fn solved(&self) -> (u64, u64) {
        (self.solved.solved, self.solved.asked)
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// The solver found no rates; the host is then at the moment up to which it had some.
    pub fn advance(&mut self, to: Moment) -> Result<(), SolveError> {
        while self.now_ms < to.0 {
            self.begin_phases();
            let next = self.next_phase_ms().unwrap_or(u64::MAX).min(to.0).min(self.now_ms + self.rules.tick_ms);
            let seconds = (next - self.now_ms) as f64 / 1000.0;
            self.float_threads(seconds);
            self.draw_to_caches();
            self.auto_numa(seconds);
            self.touch_memory(seconds);
            let copying = self.copying_cpus(seconds);
            let mut shares = self.shares(&copying);
            self.solve(&mut shares, &copying)?;
            self.record(&shares, &copying, seconds)?;
            self.pay_copies(seconds);
            self.now_ms = next;
        }
        self.begin_phases();
        Ok(())
    }

    fn begin_phases(&mut self) {
        for vm in self.vms.values_mut() {
            for client in &mut vm.clients {
                let phases = &client.shape.phases;
                while phases.get(client.phase + 1).is_some_and(|next| vm.started_ms + next.after_ms <= self.now_ms) {
                    client.phase += 1;
                }
            }
        }
    }

    fn next_phase_ms(&self) -> Option<u64> {
        let next = |vm: &VmState, client: &state::ClientState| {
            client.shape.phases.get(client.phase + 1).map(|phase| vm.started_ms + phase.after_ms)
        };
        self.vms.values().flat_map(|vm| vm.clients.iter().filter_map(move |client| next(vm, client))).min()
    }

    /// CPUs that copy pages towards each node during the next `seconds`: one copier for the whole
    /// host.
    fn copying_cpus(&self, seconds: f64) -> Vec<f64> {
        let total: u64 = self.copying.iter().map(|copy| copy.bytes).sum();
        let can = self.rules.copy_bytes_per_second as f64 * seconds;
        let busy = (total as f64 / can.max(1.0)).min(1.0);
        let mut cpus = vec![0.0; self.nodes.len()];
        for copy in &self.copying {
            cpus[copy.to] += busy * copy.bytes as f64 / total as f64;
        }
        for (cpus, node) in cpus.iter_mut().zip(&self.nodes) {
            *cpus = cpus.min(node.online.len() as f64);
        }
        cpus
    }

    fn pay_copies(&mut self, seconds: f64) {
        let total: u64 = self.copying.iter().map(|copy| copy.bytes).sum();
        let part = self.rules.copy_bytes_per_second as f64 * seconds / total.max(1) as f64;
        for copy in &mut self.copying {
            copy.bytes = copy.bytes.saturating_sub((copy.bytes as f64 * part).ceil() as u64);
        }
        self.copying.retain(|copy| copy.bytes > 0);
    }

    fn record(&mut self, shares: &[Share], copying: &[f64], seconds: f64) -> Result<(), SolveError> {
        let ns = seconds * 1e9;
        let mut lines = vec![Vec::new(); self.vms.len()];
        for (lines, vm) in lines.iter_mut().zip(self.vms.values()) {
            *lines = vec![0.0; vm.clients.len()];
        }
        for (node, cpus) in self.nodes.iter_mut().zip(copying) {
            node.used_s += cpus * seconds;
        }
        let mut vms: Vec<&mut VmState> = self.vms.values_mut().collect();
        for share in shares {
            let vm = &mut vms[share.vm];
            let client = &mut vm.clients[share.client];
            let (used, waited) = (share.cpus * seconds, (share.wanted - share.cpus).max(0.0) * seconds);
            // Hint faults eat CPU time of the vCPUs: the time is used, the work is not done.
            let running: f64 = client.load_of_thread() * f64::from(client.shape.vcpus);
            let work = 1.0 - (client.fault_cpus / running.max(1e-9)).min(0.9);
            let done = share.lines_per_ns * ns * work;
            let local = done * share.mix[share.node];
            client.sets[share.set].used_s += used;
            client.sets[share.set].waited_s += waited;
            // Hits in a cache never reach memory.
            let missed = 1.0 - share.hits;
            let (near, far) = (local * missed, (done - local) * missed);
            client.local_lines += near;
            client.remote_lines += far;
            self.nodes[share.node].used_s += used;
            vm.account.used_s += used;
            vm.account.waited_s += waited;
            vm.account.lines += done;
            vm.account.remote_lines += far;
            lines[share.vm][share.client] += done;
        }
        self.record_progress(&lines, seconds)
    }

    /// Work against ideal work, client by client.
    fn record_progress(&mut self, lines: &[Vec<f64>], seconds: f64) -> Result<(), SolveError> {
        let loads = |vm: &VmState| -> Vec<(f64, Phase)> {
            let of = |client: &state::ClientState| (client.now().busy.min(f64::from(client.shape.vcpus)), client.now());
            vm.clients.iter().map(of).collect()
        };
        let wanted: Vec<Vec<(f64, Phase)>> = self.vms.values().map(loads).collect();
        let mut ideal = Vec::new();
        for clients in &wanted {
            let mut of_vm = Vec::new();
            for (busy, now) in clients {
                let ideal = if *busy > 0.0 { self.ideal(*busy, &now.profile, &now.reuse)? } else { 0.0 };
                of_vm.push(ideal * seconds * 1e9);
            }
            ideal.push(of_vm);
        }
        for (((vm, lines), ideal), wanted) in self.vms.values_mut().zip(lines).zip(&ideal).zip(&wanted) {
            let account = &mut vm.account;
            let is_busy = ideal.iter().any(|ideal| *ideal > 0.0);
            account.busy_s += if is_busy { seconds } else { 0.0 };
            account.ideal_lines += ideal.iter().sum::<f64>();
            let clients = lines.iter().zip(ideal).zip(wanted);
            for ((done, ideal), (busy, _)) in clients.filter(|((_, ideal), _)| **ideal > 0.0) {
                account.wanted_s += busy * seconds;
                account.progress_s += busy * seconds * done / ideal;
            }
        }
        Ok(())
    }
}
