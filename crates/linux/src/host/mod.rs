//! This host as the balancer sees it: [`LinuxHost`] is looked at ([`scheduler::Observe`]) and
//! changed ([`scheduler::Act`]).

mod accounts;
mod act;
mod bind;
mod choices;
mod companions;
mod confine;
mod estimate;
mod examination;
mod find;
mod latency;
mod manager;
mod mobility;
mod monitor;
mod owners;
mod refused;
mod scan;
mod share;
mod tracked;
mod turns;

use crate::capabilities::Rights;
use crate::error::LinuxError;
use crate::moving::Pace;
use crate::process::Identity;
use crate::root::Root;
use crate::traffic::{self, Measured, Meters, TrafficOptions};
use crate::vm::RunningVm;
use crate::{counters, sys};
use act::Actor;
use find::{Finder, Look};
pub use manager::{AffinityManager, ChosenByDefinition, Managed};
pub use mobility::part_of_a_node;
use monitor::Visits;
pub use monitor::{AskMonitor, Heard, Questions, Said};
use owners::Owners;
use scheduler::{
    Act, Action, ActionError, ClientId, Done, Moment, NodeObservation, Observation, Observe, ObserveError, Unseen,
    VmKey, VmObservation,
};
use share::{Shares, Work};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;
use topology::{Bandwidths, Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet};
use tracked::{Around, Tracked};

/// What a program that looks again and again had best give [`HostOptions::newcomers_within`]: with
/// the first estimate of their memory, and the look at a hundred VMs that are known, a look stays
/// under 20 ms.
pub const NEWCOMERS_WITHIN: Duration = Duration::from_millis(4);

/// How the host is looked at and changed.
#[derive(Default)]
pub struct HostOptions {
    /// Where `/proc` and `/sys` are; anything but this host's can be looked at, not changed.
    pub root: Root,
    /// Bytes a second that memory moves keep to, all VMs together. `None`: as fast as the kernel
    /// can.
    pub move_limit: Option<Bytes>,
    /// Whether `cpuset.mems` may be written in a cgroup that a VM has for itself, so that the
    /// policy of its memory follows a move.
    pub confine: bool,
    /// How memory traffic is counted.
    pub traffic: TrafficOptions,
    /// Time that one look may spend on VMs that it sees for the first time; one is examined in any
    /// case, the rest wait for the next looks. Until all are examined nobody knows what is promised
    /// of a node's memory: free memory is unknown. `None`: all at once.
    pub newcomers_within: Option<Duration>,
    /// Who may ask the monitors of VMs: for a tenth of a second in a usual look, for 2 s where all
    /// is looked at, shared between the users whose VMs these are.
    pub monitor: Option<Box<dyn AskMonitor>>,
    /// Whether each look asks of a VM that used no CPU time whether it is paused.
    pub run_states: bool,
    /// Who else has to know where vCPUs may run. The kernel's word counts afterwards: what a
    /// manager did not do is done directly.
    pub affinity_manager: Option<AffinityManager>,
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { root, move_limit, confine, traffic, newcomers_within, monitor, run_states, .. } = self;
        formatter
            .debug_struct("HostOptions")
            .field("root", root)
            .field("move_limit", move_limit)
            .field("confine", confine)
            .field("traffic", traffic)
            .field("newcomers_within", newcomers_within)
            .field("monitor", &monitor.is_some())
            .field("run_states", run_states)
            .field("affinity_manager", &self.affinity_manager.is_some())
            .finish()
    }
}

/// This host.
#[derive(Debug)]
pub struct LinuxHost {
    options: HostOptions,
    machine: Machine,
    /// What was measured of the machine: counts more than what its firmware says.
    measured: Bandwidths,
    /// Text of the files that change when a CPU, a node or memory goes or comes.
    online: String,
    finder: Finder,
    vms: BTreeMap<u32, Tracked>,
    /// What this look spent so far.
    shares: Shares,
    /// What hides VMs of other users, as a sentence.
    hidden: Option<String>,
    busy: BTreeMap<CpuId, u64>,
    busy_at_ns: u64,
    pace: Pace,
    meters: Meters,
    /// Whose monitor was asked when.
    visits: Visits,
    /// Observations, and VMs that were found, so far.
    turn: u64,
    found: u64,
    /// Files that may be open at once.
    most_files: usize,
    /// What this process may do; it never gives rights up.
    rights: Rights,
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// What changes from period to period; the rest in turn.
    Usual,
    /// Everything, now.
    Whole,
}

/// Looks between two at how `/proc` is mounted: nobody mounts it anew for long.
const HIDDEN_EVERY: u64 = 32;
/// Files that everything else may have open.
const OTHER_FILES: usize = 256;
/// Files that are kept open for VMs at most: a quarter of a million vCPUs would be no host that is
/// known.
const MOST_FILES: usize = 1 << 16;

impl LinuxHost {
    /// Reads the machine. Nothing is changed before [`Act::carry_out`] or [`Act::confine`].
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn new(options: HostOptions) -> Result<Self, LinuxError> {
        let machine = read_machine(&options.root)?;
        let rights = Rights::own();
        Ok(Self {
            online: online(&options.root),
            machine,
            measured: Bandwidths::default(),
            finder: Finder::new(Owners::read(&options.root, rights.user)),
            vms: BTreeMap::new(),
            shares: Shares::default(),
            hidden: None,
            busy: BTreeMap::new(),
            busy_at_ns: 0,
            pace: Pace::new(options.move_limit),
            rights,
            meters: Meters::new(options.traffic.clone()),
            visits: Visits::default(),
            turn: 0,
            found: 0,
            most_files: if options.root.is_live() { sys::raise_open_files(MOST_FILES).unwrap_or(0) } else { 0 },
            options,
        })
    }

    /// Takes over what was measured of this machine; what its firmware says counts where nothing
    /// was.
    pub fn know(&mut self, measured: Bandwidths) {
        self.machine.bandwidth = measured.clone().or(&self.machine.bandwidth);
        self.measured = measured;
    }

    /// The VMs that the last observation saw, with everything that was found out about them.
    pub fn vms(&self) -> impl Iterator<Item = &RunningVm> {
        self.vms.values().map(|tracked| &tracked.vm)
    }

    /// Looks until every VM that runs was examined, as often as [`HostOptions::newcomers_within`]
    /// makes it necessary, with `pause` between two looks. The next observation has no rates, as if
    /// it were the first: they would be those of a moment.
    ///
    /// # Errors
    /// The list of processes cannot be read.
    pub fn examine_all(&mut self, pause: Duration) -> Result<(), ObserveError> {
        self.observe()?;
        while self.unexamined() > 0 {
            std::thread::sleep(pause);
            self.observe()?;
        }
        self.busy_at_ns = 0;
        self.meters.forget_rates();
        self.vms.values_mut().for_each(Tracked::forget_rates);
        Ok(())
    }

    /// VMs that the last observation saw and left out, because there was no time to examine them;
    /// without those of users for whom nobody waits any more.
    pub fn unexamined(&self) -> usize {
        self.finder.unexamined()
    }

    /// What hid VMs of other users from this process when it looked last, as a sentence.
    pub fn hidden_vms(&self) -> Option<String> {
        self.hidden.clone()
    }

    /// Whether the kernel moves memory between nodes by itself; `None` where it cannot.
    pub fn auto_numa(&self) -> Option<bool> {
        counters::auto_numa(&self.options.root)
    }

    /// What QEMU processes are there now: begins to watch new ones and forgets those that ended.
    fn find(&mut self, now_ns: u64, within: Option<Duration>, depth: Depth) -> Result<(), LinuxError> {
        let Self { options, machine, finder, vms, shares, turn, found, rights, .. } = self;
        let root = &options.root;
        let begin = |pid: u32, found: u64| {
            let around = Around {
                machine,
                rights: *rights,
                now_ns,
                run_states: options.run_states,
                turn: *turn,
                found,
                spare_files: &Cell::new(0),
            };
            Tracked::begin(root, pid, &around)
        };
        finder.run(vms, shares, &Look { root, depth, within, now_ns }, begin, found)
    }

    /// The VM of a key: the same process, and not a later one with its number.
    fn tracked(&mut self, vm: &VmKey) -> Result<&mut Tracked, ActionError> {
        let root = self.options.root.clone();
        let gone = || ActionError::Gone { vm: vm.name.clone() };
        if !self.vms.contains_key(&vm.pid) {
            self.shares = Shares::default();
            self.find(sys::since_boot_ns(), None, Depth::Usual).map_err(|_| gone())?;
        }
        let tracked = self.vms.get_mut(&vm.pid).filter(|tracked| {
            let key = &tracked.vm.key;
            (key.pid, key.started) == (vm.pid, vm.started) && tracked.is_there(&root)
        });
        tracked.ok_or_else(gone)
    }

    /// Reads the machine again where CPUs, nodes or memory came or went.
    fn follow_hotplug(&mut self) {
        let online = online(&self.options.root);
        if online != self.online
            && let Ok(machine) = read_machine(&self.options.root)
        {
            self.machine = machine;
            self.machine.bandwidth = self.measured.clone().or(&self.machine.bandwidth);
            self.online = online;
        }
    }

    fn observe_nodes(&mut self, now_ns: u64) -> BTreeMap<NodeId, NodeObservation> {
        let root = &self.options.root;
        let busy = counters::busy_by_cpu(root).unwrap_or_default();
        let elapsed = now_ns.saturating_sub(self.busy_at_ns) as f64;
        let first = self.busy_at_ns == 0 || elapsed <= 0.0;
        let used = |cpus: &CpuSet| {
            let of = |cpu: CpuId| Some(busy.get(&cpu)?.saturating_sub(*self.busy.get(&cpu)?) as f64 / elapsed);
            // The sum of none is a negative zero.
            if first { None } else { Some(cpus.iter().filter_map(of).sum::<f64>() + 0.0) }
        };
        // What VMs that wait to be examined may still touch is promised to them.
        let free = match self.unexamined() {
            0 => topology::read::free_memory(root.directory(), &self.machine),
            _ => BTreeMap::new(),
        };
        let node = |node: &topology::Node| {
            let cpus = self.machine.usable_cpus(node.id);
            let observation = NodeObservation {
                cpu_used: used(&cpus),
                memory_free: free.get(&node.id).copied(),
                huge_pages_free: counters::free_huge_pages(root, node.id),
                cpus,
            };
            (node.id, observation)
        };
        let nodes = self.machine.nodes.iter().filter(|node| node.allowed).map(node).collect();
        self.busy = busy;
        self.busy_at_ns = now_ns;
        nodes
    }

    fn actor<'a>(&'a mut self, vm: &VmKey) -> Result<(Actor<'a>, &'a mut Pace), ActionError> {
        self.tracked(vm)?;
        let Self { options, machine, vms, pace, .. } = self;
        let tracked = vms.get_mut(&vm.pid).ok_or_else(|| ActionError::Gone { vm: vm.name.clone() })?;
        let now_ns = sys::since_boot_ns();
        let affinity_manager = options.affinity_manager.as_ref();
        let actor = Actor { root: &options.root, machine, tracked, affinity_manager, now_ns };
        if !options.root.is_live() {
            return Err(actor.failed("change it", "this is a captured tree, not this host"));
        }
        Ok((actor, pace))
    }
}

/// The VMs that run on this host now, with everything that can be known of them.
///
/// # Errors
/// The machine or the list of processes cannot be read.
pub fn examine_this_host() -> Result<Observation, LinuxError> {
    LinuxHost::new(HostOptions::default())?.examine().map_err(LinuxError::Observe)
}

fn read_machine(root: &Root) -> Result<Machine, LinuxError> {
    use topology::read::{from_root, live};
    let read = if root.is_live() { live() } else { from_root(root.directory()) };
    read.map_err(|error| LinuxError::Machine(error.to_string()))
}

fn online(root: &Root) -> String {
    let text = |file: &str| root.text(file).unwrap_or_default();
    let memory = if root.is_live() { sys::total_memory().unwrap_or(0).to_string() } else { String::new() };
    [text("sys/devices/system/cpu/online"), text("sys/devices/system/node/online"), memory].concat()
}

impl Observe for LinuxHost {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        Moment(sys::since_boot_ns() / 1_000_000)
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.look(self.options.newcomers_within, Depth::Usual)
    }

    fn has_ended(&self, vm: &VmKey) -> bool {
        let process = Identity { pid: vm.pid, started_ticks: vm.started };
        !self.options.root.is_live() || process.has_ended()
    }

    fn examine(&mut self) -> Result<Observation, ObserveError> {
        let mut observation = self.look(None, Depth::Whole)?;
        let Self { options, machine, finder, vms, shares, .. } = self;
        let root = &options.root;
        let mut cut_short = BTreeMap::<u32, [Vec<VmKey>; 2]>::new();
        for shown in &mut observation.vms {
            let Some(tracked) = vms.get_mut(&shown.vm.pid) else { continue };
            let share = finder.share_of(tracked);
            let has_left = shares.suffices(share, Work::Complete);
            let may_walk =
                share.is_none() || (has_left && shares.may_walk(share, examination::page_tables(root, shown.vm.pid)));
            if let (Some(user), false) = (share, may_walk) {
                cut_short.entry(user).or_default()[usize::from(has_left)].push(shown.vm.clone());
            }
            if has_left {
                shares.charge(share, || examination::complete(root, tracked, shown, machine, may_walk));
            }
        }
        let cut_short =
            cut_short.into_values().flat_map(|[incomplete, not_walked]| examination::cut_short(incomplete, not_walked));
        observation.unseen.extend(cut_short);
        observation.settings = Some(counters::settings(root));
        Ok(observation)
    }
}

impl LinuxHost {
    fn look(&mut self, newcomers_within: Option<Duration>, depth: Depth) -> Result<Observation, ObserveError> {
        let now_ns = sys::since_boot_ns();
        self.follow_hotplug();
        if depth == Depth::Whole || self.turn.is_multiple_of(HIDDEN_EVERY) {
            self.hidden = examination::hidden_processes(&self.options.root, self.rights);
        }
        self.turn += 1;
        let rights = self.rights;
        self.shares = Shares::default();
        self.find(now_ns, newcomers_within, depth).map_err(|error| ObserveError::new("/proc", error.to_string()))?;
        let nodes = self.observe_nodes(now_ns);
        let open = self.vms.values().map(Tracked::open_files).sum::<usize>() + self.meters.open_files();
        // Each VM has the handle of its process open too.
        let spare_files = Cell::new(self.most_files.saturating_sub(OTHER_FILES + open + self.vms.len()));
        let Self { options, machine, vms: known, finder, shares, hidden, meters, visits, turn, found, .. } = self;
        let (run_states, spare_files) = (options.run_states, &spare_files);
        let around = Around { machine, rights, now_ns, run_states, turn: *turn, found: *found, spare_files };
        let root = &options.root;
        // Those that were left out longest come first.
        let mut in_turn: Vec<&mut Tracked> = known.values_mut().collect();
        in_turn.sort_by_key(|tracked| tracked.observed_at);
        for tracked in in_turn {
            let share = finder.share_of(tracked);
            if shares.suffices(share, Work::Renew) {
                tracked.renewed_at = around.turn;
                shares.charge(share, || tracked.renew(root, &around, depth));
            }
        }
        let trusts = |uid| finder.trusts(uid);
        let unheard = monitor::ask(options.monitor.as_deref_mut(), visits, known, trusts, (root, &around), depth);
        let hurries = newcomers_within.is_some();
        let look = traffic::Look { root, turn: *turn, now_ns, spare: spare_files, hurries };
        let lives = |(pid, id): &(u32, ClientId)| known.get(pid).is_some_and(|known| known.vm.client(*id).is_some());
        meters.begin(&look, lives);
        let is_strangers = |vm: &RunningVm| vm.owner_uid.is_none_or(|owner| !finder.trusts(owner));
        let strangers: BTreeSet<u32> =
            known.iter().filter(|(_, tracked)| is_strangers(&tracked.vm)).map(|(&pid, _)| pid).collect();
        let mut traffic = |vm: &RunningVm, id| {
            let count = |client| meters.measure(&look, vm, client, strangers.contains(&vm.key.pid));
            vm.client(id).map_or_else(Measured::default, count)
        };
        let mut walks = choices::Walks::new(newcomers_within.filter(|_| depth == Depth::Usual));
        let mut observe = |tracked: &mut Tracked| {
            let share = finder.share_of(tracked);
            // A whole look reads policies when it completes.
            if depth == Depth::Usual && tracked.choices.are_due(around.turn) && walks.may_walk() {
                let may = share.is_none() || shares.may_walk(share, examination::page_tables(root, tracked.vm.key.pid));
                shares.charge(share, || tracked.read_choices(root, machine, around.turn, may));
            }
            if tracked.renewed_at != around.turn || !shares.suffices(share, Work::Observe) {
                finder.leave_out(share);
                return None;
            }
            tracked.observed_at = around.turn;
            Some(shares.charge(share, || tracked.observe(root, &around, &mut traffic)))
        };
        let mut vms: Vec<VmObservation> = known.values_mut().filter_map(&mut observe).collect();
        for vm in &mut vms {
            vm.stranger = strangers.contains(&vm.vm.pid);
            if let Some(tracked) = known.get(&vm.vm.pid) {
                vm.takes_over(&tracked.vm.stated);
            }
        }
        vms.sort_by(|one, other| one.vm.cmp(&other.vm));
        let known: Vec<&RunningVm> = known.values().map(|tracked| &tracked.vm).collect();
        let mut unseen = examination::unseen(hidden.as_deref(), &vms, &known);
        unseen.extend(unheard);
        unseen.extend(finder.sentences(now_ns).into_iter().map(|what| Unseen { what, ..Unseen::default() }));
        Ok(Observation {
            at: Moment(now_ns / 1_000_000),
            nodes,
            vms,
            memory_pressure: counters::memory_pressure(root, "proc/pressure/memory"),
            unseen,
            traffic_meter: Some(meters.meter()),
            ..Observation::default()
        })
    }
}

impl Act for LinuxHost {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let (mut actor, pace) = self.actor(action.vm())?;
        match action {
            Action::Bind { client, home, cpus, groups, .. } => actor.bind(*client, home, cpus, groups),
            Action::MoveMemory { client, from, to, at_most, .. } => {
                actor.move_memory(*client, *from, *to, *at_most, pace)
            }
        }
    }

    fn followers(&mut self, vm: &VmKey, client: ClientId) -> BTreeMap<u32, CpuSet> {
        self.actor(vm).map(|(actor, _)| actor.followers(client)).unwrap_or_default()
    }

    fn give_back(&mut self, vm: &VmKey, client: ClientId, thread_id: u32, cpus: &CpuSet) -> Result<(), ActionError> {
        self.actor(vm)?.0.give_back(client, thread_id, cpus)
    }

    fn bind_others(&mut self, vm: &VmKey, threads: &BTreeMap<u32, CpuSet>) -> Result<Done, ActionError> {
        self.actor(vm)?.0.bind_others(threads)
    }

    fn put_right(&mut self, vm: &VmKey) -> Result<Option<String>, ActionError> {
        self.actor(vm)?.0.free_main_thread()
    }

    fn confine(&mut self, vm: &VmKey, nodes: &NodeSet) -> Result<Done, ActionError> {
        let allowed = self.options.confine;
        let (mut actor, _) = self.actor(vm)?;
        if !allowed {
            return Err(actor.failed("confine it", "cgroups may not be written (see HostOptions::confine)"));
        }
        actor.confine(nodes)
    }
}
