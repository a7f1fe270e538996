//! One VM that is being watched: what is known of it between two observations.

use super::accounts::Accounts;
use super::choices::Choices;
use super::estimate::{MEMORY_EVERY, Residence};
use super::{Depth, Questions, Said, latency, mobility};
use crate::capabilities::Rights;
use crate::cgroup::{self, VmCgroup};
use crate::devices;
use crate::error::{LinuxError, read_text};
use crate::proc_text::status_field;
use crate::root::Root;
use crate::sys::{AffinityOfThreads, ProcessHandle};
use crate::traffic::Measured;
use crate::vm::{Hints, Region, RunningVm, VcpuEvidence, VmClient, VmThreads};
use scheduler::{ClientId, ClientObservation, GroupObservation, Mobility, RunState, VcpuGroup, VmObservation};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// Observations between two looks at everything that seldom changes: threads, regions, cgroup,
/// devices.
const EXAMINE_EVERY: u64 = 32;
/// The same, while the kernel's summary of the process says that nothing was added or removed.
const EXAMINE_SELDOM: u64 = 8 * EXAMINE_EVERY;
/// What of `/proc/PID/status` does not stay the same when threads, memory, devices, owner or cpuset
/// change.
const SUMMARY: [&str; 7] =
    ["Uid:", "VmSize:", "VmLck:", "VmPin:", "Threads:", "Cpus_allowed_list:", "Mems_allowed_list:"];
/// Why nothing is done with a VM whose policies were not read yet.
const UNREAD: &str = "who bound it to which nodes was not read yet: other VMs came first";
/// Observations in which a VM may still be starting.
const STARTING: u64 = 10;

/// A VM under watch.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) vm: RunningVm,
    /// Stays with the process; `None` in a captured tree.
    handle: Option<ProcessHandle>,
    pub(super) cgroup: VmCgroup,
    /// Nodes whose memory its cpuset allows.
    pub(super) allowed: Option<NodeSet>,
    /// CPUs that its cpuset allows.
    pub(super) allowed_cpus: Option<CpuSet>,
    /// Nodes that these leave it to live on, where they are not all.
    node_affinity: Option<NodeSet>,
    device_nodes: NodeSet,
    pub(super) mobility: Mobility,
    /// Why it is latency-sensitive.
    latency_sensitive: Option<String>,
    accounts: Accounts,
    affinities: BTreeMap<ClientId, AffinityOfThreads>,
    /// Groups of vCPUs that keep to one last-level cache each, of clients that are divided so.
    groups: BTreeMap<ClientId, Vec<VcpuGroup>>,
    residences: BTreeMap<ClientId, Residence>,
    /// What somebody chose of its memory.
    pub(super) choices: Choices,
    /// The summary of the process at the last full look, and whether a thread's CPUs changed since.
    summary: String,
    bound_anew: bool,
    /// Its place in the order in which VMs were found: they take turns by it.
    number: u64,
    /// Observations since it was first seen.
    age: u64,
    /// The last observations that looked at what seldom changes, and that it was not left out of.
    pub(super) renewed_at: u64,
    pub(super) observed_at: u64,
    /// It became another program.
    pub(super) is_no_vm: bool,
    pub(super) moves: BTreeMap<(ClientId, NodeId), super::act::Progress>,
    /// What its monitor said last: it stays true of threads and blocks that are still there.
    said: Said,
    /// It was examined since.
    said_before: bool,
}

impl Tracked {
    /// Begins to watch a process; `None` if it is no VM.
    pub(super) fn begin(root: &Root, pid: u32, around: &Around<'_>) -> Result<Option<Self>, LinuxError> {
        // The handle first: should the number be used again meanwhile, the handle is that of the
        // later process, as all that follows is.
        let handle = if root.is_live() { ProcessHandle::open(pid).ok() } else { None };
        let Some(vm) = RunningVm::examine(root, pid)? else { return Ok(None) };
        let mut tracked = Self {
            cgroup: VmCgroup::of(root, pid),
            vm,
            handle,
            allowed: None,
            allowed_cpus: None,
            node_affinity: None,
            device_nodes: NodeSet::new(),
            mobility: Mobility::Movable,
            latency_sensitive: None,
            accounts: Accounts::default(),
            affinities: BTreeMap::new(),
            groups: BTreeMap::new(),
            residences: BTreeMap::new(),
            choices: Choices::default(),
            summary: String::new(),
            bound_anew: false,
            number: around.found,
            age: 0,
            renewed_at: 0,
            observed_at: 0,
            is_no_vm: false,
            moves: BTreeMap::new(),
            said: Said::default(),
            said_before: false,
        };
        tracked.settle(root, around);
        Ok(Some(tracked))
    }

    /// Nodes that its cpuset allows at this moment.
    pub(super) fn allowed_now(&self, root: &Root) -> Option<NodeSet> {
        allowed_nodes(root, self.vm.key.pid)
    }

    /// Whether the process still runs, and is the same.
    pub(super) fn is_there(&self, root: &Root) -> bool {
        match &self.handle {
            Some(handle) => !handle.wait_ended(Duration::ZERO).unwrap_or(true),
            None => root.process(self.vm.key.pid, "stat").exists(),
        }
    }

    /// Looks again at what seldom changes. A process that ends meanwhile is left as it was.
    fn examine(&mut self, root: &Root, around: &Around<'_>) {
        let hints = Hints::of(&self.vm, self.said.plugged_memory.as_deref());
        match RunningVm::examine_with(root, self.vm.key.pid, &hints) {
            // Its files say nothing any more: what was known stays.
            Ok(Some(vm)) if vm.unread.is_some() && self.vm.unread.is_none() => {}
            Ok(Some(vm)) if vm.key == self.vm.key => {
                self.changed(|this| {
                    this.vm = vm;
                    this.vm_as_told();
                });
                self.said_before = true;
                self.cgroup = VmCgroup::of(root, self.vm.key.pid);
                self.settle(root, around);
            }
            Err(LinuxError::NotQemu { .. } | LinuxError::Doubtful { .. }) => self.is_no_vm = true,
            _ => {}
        }
    }

    fn settle(&mut self, root: &Root, around: &Around<'_>) {
        let status = status(root, self.vm.key.pid);
        let allowed = status_field(&status, "Mems_allowed_list:");
        // The kernel rebinds policies with a cpuset.
        if allowed != self.allowed {
            self.choices.are_stale();
        }
        self.allowed = allowed;
        self.allowed_cpus = self.cgroup.path().and_then(|path| cgroup::cpus(root, path));
        self.node_affinity = self.narrower_than(around.machine);
        self.device_nodes = devices::nodes(root, &self.vm, around.machine);
        self.summary = summary(&status);
        self.bound_anew = false;
        self.mobility = mobility::of(root, self, around);
        self.latency_sensitive = latency::of(root, &self.vm, around.machine);
    }

    /// Looks again at what seldom changes, where it is its turn and something may have changed.
    fn examine_in_turn(&mut self, root: &Root, around: &Around<'_>) {
        let turn = around.turn + self.number;
        // What is plugged in counts from the next look on.
        let may_grow = self.vm.may_get_memory || self.vm.may_get_vcpus;
        let grew = || may_grow && summary(&status(root, self.vm.key.pid)) != self.summary;
        if self.is_incomplete() {
            let young = self.age <= STARTING && self.age.is_multiple_of(2);
            if young || turn.is_multiple_of(EXAMINE_EVERY / 2) {
                self.examine(root, around);
            }
            return;
        }
        let in_turn = || {
            turn.is_multiple_of(EXAMINE_EVERY)
                && (turn.is_multiple_of(EXAMINE_SELDOM)
                    || self.bound_anew
                    || summary(&status(root, self.vm.key.pid)) != self.summary)
        };
        if grew() || in_turn() {
            self.examine(root, around);
        }
    }

    /// Takes over what its monitor said of threads and blocks that are its own.
    fn vm_as_told(&mut self) {
        let VmThreads { vcpus, evidence, others } = &self.vm.threads;
        let own = others.iter().map(|(id, ..)| *id).chain(vcpus.iter().map(|vcpu| vcpu.thread_id));
        let own: BTreeSet<u32> = own.collect();
        let all_own = |threads: &&BTreeMap<u32, u32>| threads.values().all(|thread| own.contains(thread));
        if (vcpus.is_empty() || *evidence == VcpuEvidence::Monitor)
            && let Some(threads) = self.said.vcpu_threads.as_ref().filter(all_own)
        {
            self.vm.told(threads);
        }
        if let Some(blocks) = &self.said.plugged_memory {
            self.vm.told_of_plugged(blocks);
        }
    }

    /// Takes a change of the VM over; where it has more or less memory than before, its memory is
    /// estimated anew.
    fn changed(&mut self, change: impl FnOnce(&mut Self)) {
        let regions = |this: &Self| -> Vec<Region> {
            this.vm.clients.iter().flat_map(|client| client.regions.iter().cloned()).collect()
        };
        let before = regions(self);
        change(self);
        if regions(self) != before {
            self.residences.values_mut().for_each(Residence::is_stale);
            self.choices.are_stale();
        }
    }

    /// What its monitor has to be asked.
    pub(super) fn wants(&self, around: &Around<'_>) -> Questions {
        let threads = &self.vm.threads;
        let told = self.said_before && threads.evidence == VcpuEvidence::Monitor;
        // Of a device that is there its guest may get more or less without any other sign of it.
        let devices = self.vm.clients.iter().any(|client| client.plugged().next().is_some());
        let again = devices && (around.turn + self.number).is_multiple_of(MEMORY_EVERY);
        let asks_memory = self.said_before || again || self.said.plugged_memory.is_none();
        let by_name = self.vm.monitor.is_some();
        Questions {
            vcpu_threads: by_name && (threads.vcpus.is_empty() || told),
            plugged_memory: self.vm.may_get_memory && asks_memory,
            run_state: by_name && around.run_states && !self.used_cpu_time(),
        }
    }

    /// Whether something is unknown that its monitor could say.
    pub(super) fn lacks(&self, around: &Around<'_>) -> bool {
        let unknown_state =
            self.vm.monitor.is_some() && around.run_states && !self.used_cpu_time() && self.said.run_state.is_none();
        self.vm.threads.vcpus.is_empty() || !self.vm.unplaced.is_empty() || unknown_state
    }

    /// Takes over what its monitor said.
    pub(super) fn told(&mut self, said: Said, root: &Root, around: &Around<'_>) {
        let of_shape = said.vcpu_threads.is_some() || said.plugged_memory.is_some();
        let Said { vcpu_threads, plugged_memory, run_state } = said;
        self.said.vcpu_threads = vcpu_threads.or(self.said.vcpu_threads.take());
        self.said.plugged_memory = plugged_memory.or(self.said.plugged_memory.take());
        self.said.run_state = run_state.or(self.said.run_state);
        if of_shape {
            // What it said of devices may tell the rest of its memory from them.
            if self.vm.lacks_memory() {
                self.examine(root, around);
            }
            self.said_before = false;
            let before: Vec<u32> = self.thread_ids().copied().collect();
            self.changed(Self::vm_as_told);
            self.mobility = mobility::of(root, self, around);
            self.latency_sensitive = latency::of(root, &self.vm, around.machine);
            // Read twice in one look they would say no rate.
            if !self.thread_ids().eq(&before) {
                self.read_accounts(root, around);
            }
        }
    }

    /// Its monitor did not say whether it is paused.
    pub(super) fn told_nothing(&mut self) {
        self.said.run_state = None;
    }

    /// Whether one of its vCPUs ran since the last observation.
    fn used_cpu_time(&self) -> bool {
        let ran = |client: &VmClient| self.accounts.used(&client.thread_ids).0.is_some_and(|used| used > 0.0);
        self.vm.clients.iter().any(ran)
    }

    /// The threads of all vCPUs, client by client.
    fn thread_ids(&self) -> impl Iterator<Item = &u32> {
        self.vm.clients.iter().flat_map(|client| &client.thread_ids)
    }

    fn read_accounts(&mut self, root: &Root, around: &Around<'_>) {
        let threads = self.vm.clients.iter().flat_map(|client| &client.thread_ids);
        self.accounts.read(root, self.vm.key.pid, threads, around.now_ns, around.spare_files);
    }

    /// Looks at what changes, and in turn at what seldom does.
    pub(super) fn renew(&mut self, root: &Root, around: &Around<'_>, depth: Depth) {
        self.age += 1;
        match depth {
            // It was begun to be watched a moment ago.
            _ if self.age == 1 => {}
            Depth::Whole => self.examine(root, around),
            Depth::Usual => self.examine_in_turn(root, around),
        }
        self.read_accounts(root, around);
        if self.said.run_state.is_some() && self.used_cpu_time() {
            self.said.run_state = None;
        }
    }

    /// What the balancer is told about it.
    pub(super) fn observe(&mut self, root: &Root, around: &Around<'_>, traffic: &mut TrafficOf<'_>) -> VmObservation {
        // Lent out, since all else of the VM is needed beside it.
        let clients = std::mem::take(&mut self.vm.clients);
        let mut memory: Vec<_> =
            clients.iter().map(|client| self.memory(root, client, clients.len(), around)).collect();
        if self.choices.are_awaited() {
            memory.iter_mut().for_each(|(memory, _)| *memory = None);
        }
        let cpus: Vec<CpuSet> = clients.iter().map(|client| self.affinity_of(root, client, around.machine)).collect();
        self.vm.clients = clients;
        let observe = |((client, (memory, memory_size)), cpus): ((&VmClient, _), _)| {
            let has_none = client.vcpus.is_empty() && client.virtual_node.is_some();
            let (cpu_used, cpu_waited) =
                if has_none { self.accounts.used_by_none() } else { self.accounts.used(&client.thread_ids) };
            let measured = traffic(&self.vm, client.id);
            ClientObservation {
                id: client.id,
                vcpus: client.vcpus.len() as u32,
                vcpu_threads: Some(client.thread_ids.len() as u32),
                cpus,
                groups: self.groups_of(client),
                cpu_used,
                cpu_waited,
                memory_unknown_because: match (&memory, &client.memory_unknown_because) {
                    (Some(_), _) => None,
                    _ if self.choices.are_awaited() => Some(UNREAD.to_owned()),
                    (None, Some(why)) => Some(why.clone()),
                    (None, None) => Some("the kernel does not say where its pages are".to_owned()),
                },
                memory,
                memory_size,
                chosen_nodes: self.choices.of(&self.vm, client).bound,
                spread_nodes: self.choices.of(&self.vm, client).spread,
                far_nodes: client.spread_over.iter().filter(|&node| around.machine.is_memory_only(node)).collect(),
                huge_page_size: client.regions.iter().find_map(|region| region.page_size),
                traffic: measured.traffic,
                traffic_unsplit: measured.unsplit,
                cache_occupancy: measured.occupancy,
                virtual_node: client.virtual_node,
                ..ClientObservation::default()
            }
        };
        let observed: Vec<ClientObservation> = self.vm.clients.iter().zip(memory).zip(cpus).map(observe).collect();
        let ran = observed.iter().any(|client| client.cpu_used.is_some_and(|used| used > 0.0));
        let state = if ran { Some(RunState::Running) } else { self.said.run_state };
        VmObservation {
            clients: observed,
            state,
            mobility: self.mobility.clone(),
            latency_sensitive: self.latency_sensitive.clone(),
            node_affinity: self.node_affinity.clone(),
            device_nodes: self.device_nodes.clone(),
            uuid: self.vm.uuid.clone(),
            manager: self.vm.origin.manager,
            manager_id: self.vm.origin.id.clone(),
            owner_uid: self.vm.owner_uid,
            unverified: self.vm.unverified,
            mapped: self.vm.mapped,
            guest: Some(self.vm.guest.clone()),
            ..VmObservation::of_clients(self.vm.key.clone(), Vec::new())
        }
    }

    /// Whether threads or memory are missing: a VM that was seen while it started, or whose vCPU
    /// was just unplugged.
    fn is_incomplete(&self) -> bool {
        let lacks =
            |client: &VmClient| client.regions.is_empty() || (client.thread_ids.is_empty() && !client.vcpus.is_empty());
        let known: usize = self.vm.clients.iter().map(|client| client.thread_ids.len()).sum();
        self.vm.clients.iter().any(lacks) || (self.age > 2 && self.accounts.readable() < known)
    }

    /// Nodes on which its cpuset lets it have both, CPUs and memory; a node without CPUs counts by
    /// its memory. `None`: all.
    fn narrower_than(&self, machine: &Machine) -> Option<NodeSet> {
        let all: NodeSet = machine.nodes.iter().filter(|node| node.memory > Bytes(0)).map(|node| node.id).collect();
        let allowed = self.allowed.clone().unwrap_or_else(|| all.clone());
        let both: NodeSet = allowed.iter().filter(|&node| self.may_run_on(machine, node)).collect();
        let home = if both.is_empty() { allowed } else { both };
        (!all.is_subset(&home)).then_some(home)
    }

    fn may_run_on(&self, machine: &Machine, node: NodeId) -> bool {
        let Some(allowed) = &self.allowed_cpus else { return true };
        // A cpuset of isolated CPUs is one to run in, too.
        let cpus = machine.bindable_cpus(node);
        cpus.is_empty() || !cpus.intersection(allowed).is_empty()
    }

    /// Why its cpuset leaves it no home: CPUs and memory of different nodes.
    pub(super) fn torn_apart(&self, machine: &Machine) -> Option<String> {
        let (memory, cpus) = (self.allowed.as_ref()?, self.allowed_cpus.as_ref()?);
        let apart = !memory.is_empty() && !memory.iter().any(|node| self.may_run_on(machine, node));
        apart.then(|| format!("its cgroup's cpuset allows CPUs {cpus} and memory of nodes {memory}, which are apart"))
    }

    /// The next observation has no rates.
    pub(super) fn forget_rates(&mut self) {
        self.accounts.forget_rates();
    }

    /// Files of it that stay open.
    pub(super) fn open_files(&self) -> usize {
        self.accounts.open_files()
    }

    /// CPUs that any of a client's threads may use. Threads that cannot be told apart run where the
    /// process may.
    fn affinity_of(&mut self, root: &Root, client: &VmClient, machine: &Machine) -> CpuSet {
        let process = [self.vm.key.pid];
        let threads = if client.thread_ids.is_empty() { &process[..] } else { &client.thread_ids };
        if root.is_live() {
            let affinities = self.affinities.entry(client.id).or_default();
            let (cpus, changed) = affinities.read(threads);
            let cpus = cpus.clone();
            self.bound_anew |= changed;
            if changed && self.vm.origin.by_homenode {
                let each: Vec<CpuSet> = affinities.by_thread().collect();
                self.groups.insert(client.id, mobility::groups(&self.vm, client, &each, machine));
            }
            return cpus;
        }
        let of = |&thread: &u32| {
            status_field(&read_text(&root.thread(self.vm.key.pid, thread, "status")).ok()?, "Cpus_allowed_list:")
        };
        threads.iter().filter_map(of).fold(CpuSet::new(), |all, cpus| all.union(&cpus))
    }

    /// The groups of a client, with their CPU time.
    fn groups_of(&self, client: &VmClient) -> Vec<GroupObservation> {
        let thread = |vcpu: &u32| self.vm.threads.vcpus.iter().find(|one| one.index == *vcpu).map(|one| one.thread_id);
        let observe = |group: &VcpuGroup| {
            let threads: Vec<u32> = group.vcpus.iter().filter_map(thread).collect();
            let (cpu_used, cpu_waited) = self.accounts.used(&threads);
            GroupObservation { group: group.clone(), cpu_used, cpu_waited }
        };
        self.groups.get(&client.id).into_iter().flatten().map(observe).collect()
    }

    /// Resident memory of a client by node, and what it may have in all: an estimate that is
    /// renewed every few observations, and after each move.
    fn memory(
        &mut self,
        root: &Root,
        client: &VmClient,
        clients: usize,
        around: &Around<'_>,
    ) -> (Option<BTreeMap<NodeId, Bytes>>, Bytes) {
        let known = self.residences.entry(client.id).or_default();
        known.renew(root, self.vm.key.pid, client, around.turn + self.number, self.age);
        // Everybody may read the cgroup's account; it counts QEMU's own memory too, and only the VM
        // as a whole.
        let by_node = known.by_node().or_else(|| match (&self.cgroup, clients) {
            (VmCgroup::Own { path }, 1) => cgroup::memory_by_node(root, path),
            _ => None,
        });
        (by_node, known.memory_size(client))
    }

    /// Its memory was moved: the next observation counts it anew.
    pub(super) fn memory_moved(&mut self, client: ClientId) {
        self.residences.entry(client).or_default().is_stale();
    }
}

/// What one observation shares among all VMs.
pub(super) struct Around<'a> {
    pub(super) machine: &'a Machine,
    pub(super) rights: Rights,
    pub(super) now_ns: u64,
    /// Whether VMs that used no CPU time are asked whether they are paused.
    pub(super) run_states: bool,
    /// Observations so far.
    pub(super) turn: u64,
    /// VMs that were found so far.
    pub(super) found: u64,
    /// Files that may still be kept open.
    pub(super) spare_files: &'a Cell<usize>,
}

/// What hardware counted of a client.
pub(super) type TrafficOf<'a> = dyn FnMut(&RunningVm, ClientId) -> Measured + 'a;

/// Nodes that the cpuset of a process allows, in every layout of cgroups.
fn allowed_nodes(root: &Root, pid: u32) -> Option<NodeSet> {
    status_field(&status(root, pid), "Mems_allowed_list:")
}

fn status(root: &Root, pid: u32) -> String {
    read_text(&root.thread(pid, pid, "status")).unwrap_or_default()
}

/// The lines of a `status` file that say whether anything was added, removed, or bound.
fn summary(status: &str) -> String {
    let kept = status.lines().filter(|line| SUMMARY.iter().any(|field| line.starts_with(field)));
    kept.collect::<Vec<_>>().join("\n")
}
