//! The balancer of `scheduler`, under whatever thresholds.

use super::Rival;
use super::pins::bind_groups;
use crate::host::SimulatedHost;
use scheduler::balance::{BalancePolicy, BalanceState, Decision, record, step};
use scheduler::{Act, ActionError, ClientId, Done, Moment, Observation, Observe, Occupancy, VcpuGroup, VmKey, plan};
use topology::{Machine, NodeId};
use vm::Shape;
use vm::spec::{Backing, CachePolicy, Fill, FixedNode, Policy};

/// A decision that was carried out.
#[derive(Clone, Debug)]
pub struct Carried {
    /// When.
    pub at: Moment,
    /// What and why.
    pub decision: Decision,
    /// What became of it.
    pub outcome: Result<Done, ActionError>,
}

/// `homenode balance`: adopts every VM in the period after its start.
pub struct Homenode {
    name: String,
    policy: BalancePolicy,
    state: BalanceState,
    restrict: Box<dyn FnMut(&mut Observation)>,
    carried: Vec<Carried>,
}

impl Homenode {
    /// The balancer under this policy.
    pub fn new(name: &str, policy: BalancePolicy) -> Self {
        let (state, restrict, carried) = (BalanceState::default(), Box::new(|_: &mut Observation| ()), Vec::new());
        Self { name: name.to_owned(), policy, state, restrict, carried }
    }

    /// Changes every observation first: an administrator's rules for single VMs.
    pub fn restricted(mut self, restrict: impl FnMut(&mut Observation) + 'static) -> Self {
        self.restrict = Box::new(restrict);
        self
    }

    /// All that it decided, in order.
    pub fn carried(&self) -> &[Carried] {
        &self.carried
    }
}

impl Rival for Homenode {
    fn name(&self) -> &str {
        &self.name
    }

    fn period_ms(&self) -> u64 {
        self.policy.period_ms
    }

    fn period(&mut self, host: &mut SimulatedHost) {
        let Ok(mut observation) = host.observe() else { return };
        (self.restrict)(&mut observation);
        for decision in step(host.machine(), &self.policy, &mut self.state, &observation) {
            let outcome = host.carry_out(&decision.action);
            record(&self.policy, &mut self.state, &decision, &outcome);
            self.carried.push(Carried { at: observation.at, decision, outcome });
        }
    }
}

/// `homenode run` with `homenode balance` beside it: a VM is planned before its first instruction,
/// on what its predecessors hold.
pub struct Planned {
    balancer: Homenode,
    cache: CachePolicy,
}

impl Planned {
    /// The planner, and the balancer under this policy.
    pub fn new(name: &str, policy: BalancePolicy) -> Self {
        Self { balancer: Homenode::new(name, policy), cache: CachePolicy::default() }
    }

    /// With `policy.cache` of every VM.
    pub fn with_cache(mut self, cache: CachePolicy) -> Self {
        self.cache = cache;
        self
    }
}

impl Rival for Planned {
    fn name(&self) -> &str {
        self.balancer.name()
    }

    fn period_ms(&self) -> u64 {
        self.balancer.period_ms()
    }

    fn started(&mut self, host: &mut SimulatedHost, vm: &VmKey) {
        let seen = host.peek();
        let Some(spec) = spec(host, vm, self.cache) else { return };
        let machine = free(host.machine(), &seen);
        let mut others = seen;
        others.vms.retain(|other| other.vm != *vm);
        // A VM for which there is no room starts as any other, and the balancer looks after it.
        let occupancy = Occupancy { balanced: true, ..Occupancy::of_observation(&others, &machine) };
        let Ok(plan) = plan(&machine, &occupancy, &spec) else { return };
        for client in plan.placement.clients {
            let nodes: Vec<NodeId> = client.home.iter().collect();
            let group = |group: vm::CacheGroup| VcpuGroup { vcpus: group.vcpus, cpus: group.cpus };
            let groups = client.groups.into_iter().map(group).collect();
            bind_groups(host, vm, ClientId(client.id), &nodes, groups);
        }
    }

    fn period(&mut self, host: &mut SimulatedHost) {
        self.balancer.period(host);
    }
}

/// What its owner would have written: the guest's nodes are those of the trace.
fn spec(host: &SimulatedHost, vm: &VmKey, cache: CachePolicy) -> Option<Shape> {
    let shape = host.shape(vm)?;
    let node = |client: &crate::host::ClientShape| FixedNode {
        vcpus: client.vcpus,
        memory: client.memory,
        ..FixedNode::default()
    };
    let virtual_nodes = (shape.clients.len() > 1).then(|| shape.clients.iter().map(node).collect());
    let vnuma = (shape.clients.len() == 1).then_some(false);
    Some(Shape {
        name: shape.name.clone(),
        vcpus: shape.vcpus(),
        memory: shape.memory(),
        policy: Policy { virtual_nodes, vnuma, cache, ..Policy::default() },
        // Guests of a trace touch their memory as they go.
        backing: Backing { fill: Fill::OnTouch, ..Backing::default() },
        ..Shape::default()
    })
}

/// The machine with its free memory as it is now.
fn free(machine: &Machine, seen: &Observation) -> Machine {
    let mut machine = machine.clone();
    for node in &mut machine.nodes {
        node.free = seen.nodes.get(&node.id).and_then(|node| node.memory_free);
    }
    machine
}
