//! One home for a VM, whoever is asked: the judge's cures and the balancer's steps on modelled
//! hosts on which VMs were placed anyhow.

use judge::{Finding, Known, Repair};
use proptest::prelude::*;
use scheduler::balance::{BalancePolicy, BalanceState, Decision, Homes, MoveKind, Next, homes, record, step};
use scheduler::{
    Act, Action, ActionError, ClientId, Done, GuestMachine, Mobility, Moment, Observation, Observe, ObserveError, VmKey,
};
use simulator::host::{ClientShape, KernelRules, Phase, Reuse, SimulatedHost, VmShape};
use simulator::{MachineModel, MaxMin, Profile};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// Where somebody put a client: nowhere, or on one or two of the nodes, before its memory was
/// touched and again afterwards.
#[derive(Clone, Debug)]
struct Placed {
    first: Option<(u32, u32)>,
    then: Option<Option<(u32, u32)>>,
}

#[derive(Clone, Debug)]
struct DrawnVm {
    clients: usize,
    vcpus: u32,
    /// Memory of each client, and CPUs that it uses, in percent of a node's and of its vCPUs.
    memory_percent: u64,
    busy_percent: u32,
    mobility: u32,
    /// The distance between two virtual nodes that the guest was told; `None`: nothing.
    told: Option<u32>,
    placed: Vec<Placed>,
}

fn vms() -> impl Strategy<Value = Vec<DrawnVm>> {
    let node = || (0..4u32, 0..4u32);
    let nodes = move || prop::option::weighted(0.6, node());
    let placed = move || (nodes(), prop::option::of(nodes())).prop_map(|(first, then)| Placed { first, then });
    let vm = (
        1..3usize,
        prop_oneof![3 => 1..7u32, 1 => 7..21u32],
        1..25u64,
        0..101u32,
        (0..12u32, prop::option::of(11..41u32)),
        prop::collection::vec(placed(), 2),
    );
    let vm = vm.prop_map(|(clients, vcpus, memory_percent, busy_percent, (mobility, told), placed)| DrawnVm {
        clients,
        vcpus,
        memory_percent,
        busy_percent,
        mobility,
        told,
        placed,
    });
    prop::collection::vec(vm, 1..7)
}

fn shape(index: usize, drawn: &DrawnVm, node_memory: Bytes) -> VmShape {
    let memory = Bytes::from_mib(node_memory.mib() * drawn.memory_percent / 100);
    let busy = f64::from(drawn.vcpus) * f64::from(drawn.busy_percent) / 100.0;
    let phase = Phase { after_ms: 0, busy, resident: memory, profile: Profile::mixed(), reuse: Reuse::default() };
    let (vcpus, phases) = (drawn.vcpus, vec![phase]);
    let client = ClientShape { vcpus, memory, held_part: 0.0, sibling_part: 0.2, phases };
    let because = "a test says so".to_owned();
    let mobility = match drawn.mobility {
        0 => Mobility::MemoryFixed { because },
        _ => Mobility::Movable,
    };
    let clients = vec![client; drawn.clients];
    let distances = |told: u32| [(0, [(0, 10), (1, told)].into()), (1, [(0, told), (1, 10)].into())].into();
    let told = drawn.told.filter(|_| drawn.clients > 1).map(distances);
    let guest = told.map(|distances| GuestMachine { distances, ..GuestMachine::default() });
    VmShape {
        name: format!("vm{index}"),
        shares: 1024,
        mobility,
        node_affinity: None,
        latency_sensitive: false,
        stated: vm::Stated::default(),
        guest,
        clients,
    }
}

/// A host on which these VMs run, and their memory was touched where they were put at first.
fn host(machine: &str, drawn: &[DrawnVm]) -> SimulatedHost {
    let described = topology::read::shipped_described(machine).expect("shipped").expect("valid");
    let model = MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model");
    let rules = KernelRules {
        drift_per_second: 0.0,
        imbalance: f64::INFINITY,
        touch_bytes_per_second: u64::MAX / 4,
        ..KernelRules::default()
    };
    let mut host = SimulatedHost::new(model, Box::new(MaxMin::default()), rules, 1);
    let memory = host.machine().nodes[0].memory;
    let keys: Vec<VmKey> = drawn.iter().enumerate().map(|(index, vm)| host.start(&shape(index, vm, memory))).collect();
    for (vm, key) in drawn.iter().zip(&keys) {
        for (client, placed) in (0..vm.clients).zip(&vm.placed) {
            put(&mut host, key, client, placed.first);
        }
    }
    pass(&mut host, 4000);
    for (vm, key) in drawn.iter().zip(&keys) {
        for (client, placed) in (0..vm.clients).zip(&vm.placed) {
            if let Some(then) = placed.then {
                put(&mut host, key, client, then);
            }
        }
    }
    host
}

fn put(host: &mut SimulatedHost, vm: &VmKey, client: usize, on: Option<(u32, u32)>) {
    let ids: Vec<NodeId> = host.machine().node_ids().iter().collect();
    let pick = |number: u32| ids[number as usize % ids.len()];
    let home: NodeSet = match on {
        Some((one, other)) => [pick(one), pick(other)].into_iter().collect(),
        None => host.machine().node_ids(),
    };
    let cpus: CpuSet = home.iter().fold(CpuSet::new(), |all, node| all.union(&host.machine().usable_cpus(node)));
    let action = Action::Bind { vm: vm.clone(), client: ClientId(client as u32), home, cpus, groups: Vec::new() };
    host.carry_out(&action).expect("a bind");
}

fn pass(host: &mut SimulatedHost, milliseconds: u64) {
    host.advance(Moment(host.now().0 + milliseconds)).expect("rates");
}

/// A look with rates.
fn look(host: &mut SimulatedHost) -> Observation {
    host.observe().expect("a look");
    pass(host, 2000);
    host.observe().expect("a look")
}

/// A host on which memory that is asked to move is waited for, as on a real one.
struct Patient(SimulatedHost);

impl Observe for Patient {
    fn machine(&self) -> &Machine {
        self.0.machine()
    }

    fn now(&self) -> Moment {
        self.0.now()
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        self.0.observe()
    }
}

impl Act for Patient {
    fn carry_out(&mut self, action: &Action) -> Result<Done, ActionError> {
        let mut done = self.0.carry_out(action)?;
        let Action::MoveMemory { vm, client, from, to, .. } = action else { return Ok(done) };
        for _ in 0..100 {
            if done.left.0 == 0 {
                break;
            }
            pass(&mut self.0, 1000);
            let (vm, client, from, to, at_most) = (vm.clone(), *client, *from, *to, done.left);
            let more = self.0.carry_out(&Action::MoveMemory { vm, client, from, to, at_most })?;
            done = Done { moved: Bytes(done.moved.0 + more.moved.0), ..more };
        }
        Ok(done)
    }
}

/// The default policy, without a pace: what is right does not wait for its turn.
fn policy() -> BalancePolicy {
    BalancePolicy { moves_per_period: 0, move_periods: 1, swap_periods: 1, ..BalancePolicy::default() }
}

/// What a balancer that starts now decides.
fn decided(host: &SimulatedHost, observation: &Observation) -> Vec<Decision> {
    step(host.machine(), &policy(), &mut BalanceState::default(), observation)
}

fn asked(host: &SimulatedHost, observation: &Observation) -> Homes {
    homes(host.machine(), &policy(), &BalanceState::default(), observation)
}

fn found(host: &SimulatedHost, observation: &Observation, homes: &Homes) -> Vec<Finding> {
    judge::host(host.machine(), observation, &Known { homes: homes.clone(), ..Known::default() })
}

type Bound = BTreeMap<(VmKey, ClientId), NodeSet>;

/// What binds: each client, and where to.
fn binds<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Bound {
    let bind = |action: &Action| match action {
        Action::Bind { vm, client, home, .. } => Some(((vm.clone(), *client), home.clone())),
        Action::MoveMemory { .. } => None,
    };
    actions.into_iter().filter_map(bind).collect()
}

fn repairs(finding: &Finding) -> impl Iterator<Item = &Action> {
    finding.cure.repairs.iter().filter_map(|repair| match repair {
        Repair::Act { action } => Some(action),
        Repair::BindOthers { .. } | Repair::Confine { .. } => None,
    })
}

/// Moves by load answer to what runs now; the others to where a VM is and should be.
fn for_its_place(decision: &&Decision) -> bool {
    !matches!(decision.kind, MoveKind::Load | MoveKind::LoadSwap | MoveKind::Fairness | MoveKind::Follow)
}

properties::properties! {
    #![cases(150)]

    #[test]
    fn a_cure_names_the_home_that_the_balancer_goes_for(four in any::<bool>(), drawn in vms()) {
        let mut host = host(if four { "dell-r910" } else { "hp-dl380-g6" }, &drawn);
        let observation = look(&mut host);
        let homes = asked(&host, &observation);
        let findings = found(&host, &observation, &homes);
        let balancer = binds(decided(&host, &observation).iter().map(|decision| &decision.action));
        for (client, home) in &balancer {
            prop_assert_eq!(homes[client].should.as_ref(), Some(home));
        }
        for finding in &findings {
            for (client, home) in binds(repairs(finding)) {
                match balancer.get(&client) {
                    Some(other) => prop_assert_eq!(other, &home, "{:#?}", finding),
                    // What only one of the two would do is said, with its reason.
                    None => prop_assert!(finding.cure.advice.contains("`homenode balance` leaves \
                        it"), "{:#?}", finding),
                }
            }
        }
        for (client, home) in &homes {
            if !matches!(home.next, Next::Goes { .. }) {
                prop_assert!(!balancer.contains_key(client));
                continue;
            }
            let told = |finding: &&Finding| {
                finding.process == Some(client.0.pid)
                    && (finding.what == "balancer_moves" || finding.cure.advice.contains("`homenode balance`"))
            };
            prop_assert!(findings.iter().any(|finding| told(&finding)), "{:?} {:?}: {:#?}", client, home, findings);
        }
    }

    #[test]
    fn after_doctor_the_balancer_finds_nothing_to_do(four in any::<bool>(), drawn in vms()) {
        let mut host = host(if four { "dell-r910" } else { "hp-dl380-g6" }, &drawn);
        let observation = look(&mut host);
        let homes = asked(&host, &observation);
        let mut host = Patient(host);
        let judge = |host: &Patient, observation: &Observation| found(&host.0, observation, &homes);
        let mending = judge::mend(&mut host, judge).expect("a look");
        let mut host = host.0;
        prop_assert_eq!(&mending.worse, &None, "{:#?}", mending.tried.iter().map(|t| (&t.repair, &t.done, &t.error, &t.skipped)).collect::<Vec<_>>());
        let mended = binds(mending.tried.iter().flat_map(|tried| match &tried.repair {
            Repair::Act { action } => Some(action),
            Repair::BindOthers { .. } | Repair::Confine { .. } => None,
        }));
        let after = look(&mut host);
        let again = decided(&host, &after);
        let again: Vec<&Decision> = again.iter().filter(for_its_place).collect();
        let now = asked(&host, &after);
        for decision in &again {
            let client = (decision.action.vm().clone(), decision.action.client());
            // Bringing the clients of a VM together is a move of its own, after their first homes.
            let siblings = now.iter().filter(|((vm, other), _)| *vm == client.0 && *other != client.1);
            if siblings.map(|(_, home)| &home.lives).any(|lives| *lives == now[&client].should) {
                continue;
            }
            // What both went for may be moved on by its own locality, never back and never for want
            // of a home.
            let on = decision.kind == MoveKind::Locality
                && matches!(homes[&client].next, Next::Goes { .. })
                && now[&client].should != homes[&client].lives;
            prop_assert!(on || !mended.contains_key(&client), "{:?}\n{:#?}\n{:#?}", decision, mending, after.vms);
        }
    }

    #[test]
    fn after_the_balancer_doctor_finds_nothing_to_bind(four in any::<bool>(), drawn in vms()) {
        let mut host = host(if four { "dell-r910" } else { "hp-dl380-g6" }, &drawn);
        let (policy, mut state) = (policy(), BalanceState::default());
        let mut busy = Vec::new();
        for _ in 0..60 {
            busy.clear();
            pass(&mut host, 2000);
            let observation = host.observe().expect("a look");
            for decision in step(host.machine(), &policy, &mut state, &observation) {
                let outcome = host.carry_out(&decision.action);
                record(&policy, &mut state, &decision, &outcome);
                busy.push((decision.action.vm().clone(), decision.action.client()));
            }
        }
        let observation = look(&mut host);
        let homes = homes(host.machine(), &policy, &state, &observation);
        for finding in found(&host, &observation, &homes) {
            for (client, home) in binds(repairs(&finding)) {
                // What the balancer leaves it has left before, and says why.
                let left = matches!(homes[&client].next, Next::Left { .. });
                let by_load = [MoveKind::Load, MoveKind::LoadSwap, MoveKind::Fairness];
                let load = matches!(homes[&client].next, Next::Goes { kind, .. } if by_load.contains(&kind));
                prop_assert!(left || load || busy.contains(&client), "{:?}: {:?} to {}: \
                    {:#?}", homes[&client], client, home, finding);
            }
        }
    }
}
