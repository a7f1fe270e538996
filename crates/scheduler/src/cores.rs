//! One hardware thread for each vCPU (`vcpu_binding = "core"`).
//!
//! **Problem.** Two vCPUs on the two threads of a core do the work of one and a half; one that
//! shares a thread with a vCPU of another VM does half.
//!
//! **Rule.** Each vCPU gets a hardware thread of its client's home that no other vCPU is bound to.
//! The core with the fewest of its threads given away comes first, then the node with the fewest,
//! then the lower number: whole cores before siblings.
//!
//! **Properties.** No hardware thread is given twice. A core gets a second vCPU only when each core
//! of the home has one.
//!
//! **Example.** A node of cores {0, 4}, {1, 5}, {2, 6}, {3, 7}; another VM has CPU 0. Four vCPUs
//! get 1, 2, 3 and 4.

use crate::PlanError;
use std::collections::BTreeMap;
use topology::{CoreId, CpuId, CpuSet, HardwareThread, Machine, NodeId};
use vm::{Client, NodeSize, Plan, Reason};

/// Gives each vCPU that is there its hardware thread; `sizes` as for [`NodeSize::of`]. One that is
/// plugged later may use all of the client's. The clients' CPUs are those that nobody else has.
pub(crate) fn bind(machine: &Machine, mut plan: Plan, sizes: &[NodeSize]) -> Result<Plan, PlanError> {
    let mut given = CpuSet::new();
    for client in &mut plan.placement.clients {
        let nodes = plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        let vcpus: Vec<u32> = nodes.flat_map(|node| NodeSize::of(node, sizes).vcpus).collect();
        let mut home = Threads::of(machine, client, &given);
        for &vcpu in &vcpus {
            let Some(cpu) = home.take() else { return Err(no_cpu(&plan.vm, client, vcpus.len())) };
            given.insert(cpu);
            client.vcpu_cpus.insert(vcpu, cpu);
        }
    }
    let clients = plan.placement.clients.iter();
    let pairs = clients.flat_map(|client| &client.vcpu_cpus).map(|(vcpu, cpu)| format!("{vcpu} on {cpu}"));
    plan.reasons.push(Reason {
        choice: format!("each vCPU on one CPU: {}", pairs.collect::<Vec<_>>().join(", ")),
        because: "policy.vcpu_binding = \"core\": whole cores first, none that another VM has to itself".to_owned(),
    });
    Ok(plan)
}

fn no_cpu(vm: &str, client: &Client, vcpus: usize) -> PlanError {
    PlanError::NoCpuForVcpu {
        vm: vm.to_owned(),
        client: client.id,
        vcpus,
        home: format!("{} {}", if client.home.len() == 1 { "node" } else { "nodes" }, client.home),
        free: client.vcpu_cpus.len(),
    }
}

/// The hardware threads of a client's home.
struct Threads<'a> {
    free: Vec<&'a HardwareThread>,
    /// Threads of each core, and of each node, that are given away.
    of_core: BTreeMap<CoreId, usize>,
    of_node: BTreeMap<NodeId, usize>,
}

impl<'a> Threads<'a> {
    /// What the client's CPUs lack of its cores, another VM has.
    fn of(machine: &'a Machine, client: &Client, given: &CpuSet) -> Self {
        let is_free = |thread: &&HardwareThread| client.cpus.contains(thread.id) && !given.contains(thread.id);
        let (free, taken): (Vec<_>, Vec<_>) = machine.usable_threads().partition(is_free);
        let mut threads = Self { free, of_core: BTreeMap::new(), of_node: BTreeMap::new() };
        taken.into_iter().for_each(|thread| threads.count(thread));
        threads
    }

    fn count(&mut self, thread: &HardwareThread) {
        *self.of_core.entry(thread.core).or_default() += 1;
        *self.of_node.entry(thread.node).or_default() += 1;
    }

    fn take(&mut self) -> Option<CpuId> {
        let rank = |thread: &HardwareThread| {
            let (core, node) = (self.of_core.get(&thread.core), self.of_node.get(&thread.node));
            (core.copied().unwrap_or(0), node.copied().unwrap_or(0), thread.id)
        };
        let best = (0..self.free.len()).min_by_key(|&index| rank(self.free[index]))?;
        let thread = self.free.swap_remove(best);
        self.count(thread);
        Some(thread.id)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Occupancy, plan};
    use topology::Bytes;
    use vm::Shape;

    fn shape(vcpus: u32) -> Shape {
        let mut shape = Shape { name: "a".to_owned(), vcpus, memory: Bytes::from_mib(256), ..Shape::default() };
        shape.policy.vcpu_binding = vm::spec::VcpuBinding::Core;
        shape.policy.prefer_ht = true;
        shape
    }

    fn given(plan: &vm::Plan) -> Vec<u32> {
        plan.placement.clients.iter().flat_map(|client| client.vcpu_cpus.values().map(|cpu| cpu.0)).collect()
    }

    #[test]
    fn cores_come_before_siblings_and_what_another_has_is_left() {
        // Cores {0, 1}, {2, 3}, {4, 5}, {6, 7}.
        let machine = topology::read::from_synthetic("numa:1(memory=4GiB) core:4 pu:2").expect("a machine");
        let mut occupancy = Occupancy::default();
        let first = plan(&machine, &occupancy, &shape(1)).expect("a plan");
        assert_eq!(given(&first), [0]);
        occupancy.reserve(&first);
        // Whole cores are 2, 4, 6; the fourth vCPU gets the lowest sibling.
        let second = plan(&machine, &occupancy, &shape(4)).expect("a plan");
        assert_eq!(given(&second), [2, 4, 6, 1]);
        assert!(second.reasons.iter().any(|reason| reason.choice.contains("0 on 2, 1 on 4, 2 on 6, 3 on 1")));
        occupancy.reserve(&second);
        let refused = plan(&machine, &occupancy, &shape(4)).unwrap_err().to_string();
        assert!(refused.contains("client 0 has 4 vCPUs") && refused.contains("for 3 of them"), "{refused}");
        occupancy.reserve(&plan(&machine, &occupancy, &shape(3)).expect("a plan"));
        let refused = plan(&machine, &occupancy, &shape(1)).unwrap_err().to_string();
        assert!(refused.contains("other VMs have each CPU of the nodes \"0\""), "{refused}");
    }

    #[test]
    fn clients_of_one_node_share_its_cores_without_a_thread_twice() {
        let machine = topology::read::from_synthetic("numa:2(memory=4GiB) core:4 pu:2").expect("a machine");
        let mut shape = shape(8);
        let node = vm::spec::FixedNode { vcpus: 4, memory: Bytes::from_mib(128), max_vcpus: None, max_memory: None };
        shape.policy.virtual_nodes = Some(vec![node, node]);
        shape.policy.node_affinity = Some("1".parse().expect("a set"));
        let plan = plan(&machine, &Occupancy::default(), &shape).expect("a plan");
        // Node 1 has CPUs 8 to 15: the first client has a thread of each core, the second the
        // others.
        assert_eq!(given(&plan), [8, 10, 12, 14, 9, 11, 13, 15]);
    }
}
