//! What `doctor --fix` does: never worse than before.

use judge::{Finding, Known, Repair};
use scheduler::balance::{BalancePolicy, BalanceState, homes, step};
use scheduler::{
    Act, Action, ActionError, ClientObservation, Done, Moment, NodeObservation, Observation, Observe, ObserveError,
    PolicyOfMemory, VmKey, VmObservation,
};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, read};

/// A host of two nodes with one VM of 1 GiB: its vCPUs on node 0, its memory where a test says.
struct Toy {
    machine: Machine,
    vm: VmObservation,
    refuses_bind: bool,
    /// Moves put memory here, whatever was asked.
    moves_to: Option<NodeId>,
    did: Vec<Action>,
}

impl Toy {
    fn new(memory_on: u32) -> Self {
        let machine = read::from_synthetic("pack:2 [numa(memory=8GiB)] l3:1 core:4 pu:1").expect("a machine");
        let cpus: CpuSet = "0-3".parse().expect("CPUs");
        let client = ClientObservation {
            vcpus: 2,
            cpus: cpus.clone(),
            vcpu_cpus: [(0, cpus.clone()), (1, cpus)].into(),
            memory: Some([(NodeId(memory_on), Bytes::GIB)].into()),
            memory_size: Bytes::GIB,
            policies: Some(Vec::<PolicyOfMemory>::new()),
            ..ClientObservation::default()
        };
        let vm = VmKey { name: "web".to_owned(), pid: 7, started: 1 };
        let vm = VmObservation::of_clients(vm, vec![client]);
        Self { machine, vm, refuses_bind: false, moves_to: None, did: Vec::new() }
    }

    /// Its vCPUs may use every CPU.
    fn float(&mut self) {
        let all: CpuSet = "0-7".parse().expect("CPUs");
        let client = &mut self.vm.clients[0];
        client.vcpu_cpus.values_mut().for_each(|own| *own = all.clone());
        client.cpus = all;
    }

    fn memory(&self) -> &BTreeMap<NodeId, Bytes> {
        self.vm.clients[0].memory.as_ref().expect("memory")
    }
}

impl Observe for Toy {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        Moment(0)
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        let node = |node: &topology::Node| {
            let (cpus, huge_pages_free) = (self.machine.usable_cpus(node.id), BTreeMap::new());
            (node.id, NodeObservation { cpus, cpu_used: None, memory_free: None, huge_pages_free })
        };
        let nodes = self.machine.nodes.iter().map(node).collect();
        Ok(Observation { nodes, vms: vec![self.vm.clone()], ..Observation::default() })
    }
}

impl Act for Toy {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        self.did.push(action.clone());
        let client = &mut self.vm.clients[0];
        match action {
            Action::Bind { .. } if self.refuses_bind => {
                let (vm, operation) = ("web".to_owned(), "bind".to_owned());
                Err(ActionError::Failed { vm, operation, reason: "its cpuset allows none of these CPUs".to_owned() })
            }
            Action::Bind { cpus, .. } => {
                client.cpus = cpus.clone();
                client.vcpu_cpus.values_mut().for_each(|own| *own = cpus.clone());
                Ok(Done::default())
            }
            Action::MoveMemory { to, .. } => {
                client.memory = Some([(self.moves_to.unwrap_or(*to), Bytes::GIB)].into());
                Ok(Done { moved: Bytes::GIB, ..Done::default() })
            }
        }
    }
}

/// A judge beside a balancer that gave it this home.
fn judge_with(home: u32) -> impl Fn(&Toy, &Observation) -> Vec<Finding> {
    move |host, observation| {
        let (policy, mut state) = (BalancePolicy::default(), BalanceState::default());
        let mut then = observation.clone();
        then.vms[0].clients[0].cpus = host.machine.usable_cpus(NodeId(home));
        step(host.machine(), &policy, &mut state, &then);
        let homes = homes(host.machine(), &policy, &state, observation);
        judge::host(host.machine(), observation, &Known { homes, ..Known::default() })
    }
}

#[test]
fn memory_comes_home_and_threads_first() {
    let mut host = Toy::new(0);
    host.vm.clients[0].memory = Some([(NodeId(1), Bytes::GIB)].into());
    let mending = judge::mend(&mut host, judge_with(0)).expect("a look");
    assert!(mending.worse.is_none() && mending.tried.iter().all(|tried| tried.done.is_some()), "{mending:#?}");
    assert_eq!(host.memory().keys().copied().collect::<Vec<_>>(), [NodeId(0)]);
}

#[test]
fn memory_stays_with_vcpus_that_cannot_be_bound() {
    // Its vCPUs may run anywhere; the home is node 1, and binding fails: moving the memory would
    // not bring it nearer.
    let mut host = Toy::new(0);
    host.float();
    host.vm.clients[0].memory = Some([(NodeId(0), Bytes::from_mib(512)), (NodeId(1), Bytes::from_mib(512))].into());
    host.refuses_bind = true;
    let before = host.memory().clone();
    let mending = judge::mend(&mut host, judge_with(1)).expect("a look");
    assert_eq!(host.memory(), &before, "{mending:#?}");
    assert!(host.did.iter().all(|action| matches!(action, Action::Bind { .. })), "{:?}", host.did);
    assert!(mending.tried.iter().any(|tried| tried.skipped.is_some()), "{mending:#?}");
    assert_eq!(host.did.len(), 1, "what failed is not tried again: {:?}", host.did);
}

#[test]
fn what_makes_it_worse_is_said_and_ends_the_repair() {
    let mut host = Toy::new(0);
    // A sixteenth is away; the move takes all of it there.
    host.vm.clients[0].memory = Some([(NodeId(0), Bytes::from_mib(960)), (NodeId(1), Bytes::from_mib(64))].into());
    host.moves_to = Some(NodeId(1));
    let mending = judge::mend(&mut host, judge_with(0)).expect("a look");
    let worse = mending.worse.expect("it says so");
    assert!(worse.contains("64 MiB") && worse.contains("1 GiB"), "{worse}");
    assert_eq!(host.did.len(), 1);
}

#[test]
fn nothing_is_done_to_a_vm_at_home() {
    let mut host = Toy::new(0);
    let mending = judge::mend(&mut host, judge_with(0)).expect("a look");
    assert_eq!((mending.tried.len(), host.did.len()), (0, 0));
    let repairs =
        |findings: Vec<Finding>| -> Vec<Repair> { findings.into_iter().flat_map(|found| found.cure.repairs).collect() };
    let observation = host.observe().expect("a look");
    assert_eq!(repairs(judge_with(0)(&host, &observation)), []);
}
