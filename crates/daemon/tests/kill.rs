//! A balancer process that is killed (SIGKILL) at any moment: all that it bound is known and undone
//! by the next one. The kernel's part is played by a directory: a file for each vCPU thread, which
//! holds the CPUs that it may use.

use daemon::{Balancer, Mode, PolicyFile, Rules, SavedFile};
use scheduler::{
    Act, Action, ActionError, ClientId, ClientObservation, Done, Moment, NodeObservation, Observation, Observe,
    ObserveError, VmKey, VmObservation,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use topology::{Bytes, CpuSet, Machine, read};

/// In which the balancer that is to be killed finds its directory.
const PLACE: &str = "HOMENODE_TEST_KILL_PLACE";
const VCPUS: u32 = 3;
/// VMs that appear in each period, and periods.
const NEW: u32 = 4;
const PERIODS: u32 = 12;
const ROUNDS: u64 = 25;
const ALL: &str = "0-63";

/// Threads that are files.
struct Files {
    machine: Machine,
    place: PathBuf,
    looks: u32,
    /// Whether all VMs are there from the first look.
    all: bool,
}

impl Files {
    fn new(place: &Path, all: bool) -> Self {
        let machine = read::from_synthetic("pack:4 [numa(memory=64GB)] core:16 pu:1").expect("a machine");
        Self { machine, place: place.to_owned(), looks: 0, all }
    }

    fn thread(&self, vm: u32, vcpu: u32) -> PathBuf {
        self.place.join(format!("vm{vm}-{vcpu}"))
    }

    fn cpus(&self, vm: u32, vcpu: u32) -> CpuSet {
        let text = std::fs::read_to_string(self.thread(vm, vcpu)).unwrap_or_else(|_| ALL.to_owned());
        text.parse().expect("a set of CPUs")
    }

    fn there(&self) -> u32 {
        if self.all { NEW * PERIODS } else { (NEW * self.looks).min(NEW * PERIODS) }
    }

    fn seen(&self, number: u32) -> VmObservation {
        let vcpu_cpus: BTreeMap<u32, CpuSet> = (0..VCPUS).map(|vcpu| (vcpu, self.cpus(number, vcpu))).collect();
        let client = ClientObservation {
            id: ClientId(0),
            vcpus: VCPUS,
            cpus: vcpu_cpus.values().fold(CpuSet::new(), |all, one| all.union(one)),
            vcpu_cpus,
            memory: Some(BTreeMap::new()),
            memory_size: Bytes::GIB,
            ..ClientObservation::default()
        };
        let vm = VmKey { name: format!("vm{number}"), pid: number + 1, started: 1 };
        VmObservation::of_clients(vm, vec![client])
    }
}

impl Observe for Files {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        Moment(u64::from(self.looks) * 2000)
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.looks += 1;
        let node = |id| {
            let cpus = self.machine.usable_cpus(id);
            let memory_free = Some(Bytes(60 << 30));
            (id, NodeObservation { cpus, cpu_used: Some(0.0), memory_free, huge_pages_free: BTreeMap::new() })
        };
        Ok(Observation {
            at: self.now(),
            nodes: self.machine.node_ids().iter().map(node).collect(),
            vms: (0..self.there()).map(|number| self.seen(number)).collect(),
            ..Observation::default()
        })
    }
}

impl Act for Files {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        if let Action::Bind { vm, cpus, .. } = action {
            for vcpu in 0..VCPUS {
                // As sched_setaffinity(2): the new set, or the old one.
                let new = self.place.join("new");
                let thread = self.thread(vm.pid - 1, vcpu);
                std::fs::write(&new, cpus.to_string()).and_then(|()| std::fs::rename(&new, thread)).expect("a thread");
            }
        }
        Ok(Done::default())
    }
}

fn balancer(place: &Path, all: bool) -> Balancer<Files> {
    let file = SavedFile::new(place.join("balance.json"), "boot".into());
    let restored = file.restore().expect("a state");
    Balancer::new(Files::new(place, all), &PolicyFile::default(), Rules::new(Vec::new()), Mode::Act, file, restored)
}

#[test]
#[ignore = "no test but the process that the tests below start and kill"]
fn the_balancer_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let mut balancer = balancer(Path::new(&place), false);
    println!("balancing");
    for _ in 0..PERIODS {
        balancer.period().expect("a period");
    }
    // Until it is killed.
    std::thread::sleep(Duration::from_secs(60));
}

/// Kills a balancer `delay` after its first word; how many of its threads were bound then.
fn kill_after(delay: Duration, place: &Path) -> usize {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "the_balancer_that_is_killed", "--ignored", "--nocapture"]).env(PLACE, place);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("a balancer");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("balancing"))), "it starts");
    std::thread::sleep(delay);
    child.kill().expect("a kill");
    child.wait().expect("its end");
    let files = Files::new(place, true);
    let threads = (0..NEW * PERIODS).flat_map(|vm| (0..VCPUS).map(move |vcpu| (vm, vcpu)));
    threads.filter(|&(vm, vcpu)| files.cpus(vm, vcpu).to_string() != ALL).count()
}

#[test]
fn a_balancer_that_is_killed_at_any_moment_leaves_nothing_that_cannot_be_undone() {
    let mut partly = 0;
    for round in 0..ROUNDS {
        // From 0 to some 20 ms, each round another moment.
        let delay = Duration::from_micros(round * 7919 % 20_000);
        let place = tempfile::tempdir().expect("a directory");
        let bound = kill_after(delay, place.path());
        partly += usize::from(bound > 0 && bound < (NEW * PERIODS * VCPUS) as usize);
        let mut next = balancer(place.path(), true);
        next.release().expect("a release");
        let files = Files::new(place.path(), true);
        for vm in 0..NEW * PERIODS {
            for vcpu in 0..VCPUS {
                let cpus = files.cpus(vm, vcpu).to_string();
                assert_eq!(cpus, ALL, "killed after {delay:?} with {bound} threads bound: VM {vm}, vCPU {vcpu}");
            }
        }
    }
    println!("{partly} of {ROUNDS} kills came in the midst of the work");
    assert!(partly > 0, "no kill came in the midst of the work");
}
