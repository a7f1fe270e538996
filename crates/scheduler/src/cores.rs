//! One hardware thread for each vCPU (`vcpu_binding = "core"`).
//!
//! **Problem.** Two vCPUs on the two threads of a core do the work of one and a half; one that
//! shares a thread with a vCPU of another VM does half.
//!
//! **Rule.** Each vCPU gets a hardware thread of its client's home that no other vCPU is bound to.
//! The core with the fewest of its threads given away comes first, then the node with the fewest,
//! then the lower number: whole cores before siblings. The vCPUs of a virtual core of several
//! threads get those of one core. `policy.spare_cores` of each node, those with the lowest numbers
//! that nobody is bound to, are left to QEMU's own threads.
//!
//! **Properties.** No hardware thread is given twice. Where virtual cores have one thread, a core
//! gets a second vCPU only when each core of the home has one.
//!
//! **Example.** A node of cores {0, 4}, {1, 5}, {2, 6}, {3, 7}; another VM has CPU 0. Four vCPUs
//! get 1, 2, 3 and 4; as two virtual cores of two threads 1 and 5, 2 and 6.

use crate::{Occupancy, PlanError};
use std::collections::{BTreeMap, BTreeSet};
use topology::{CoreId, CpuId, CpuSet, HardwareThread, Machine, NodeId};
use vm::spec::VcpuBinding;
use vm::{Client, NodeSize, Plan, Reason, Shape};

/// Gives each vCPU that is there its hardware thread; `sizes` as for [`NodeSize::of`]. One that is
/// plugged later may use all of the client's. The clients' CPUs are those that nobody else has.
pub(crate) fn bind(machine: &Machine, mut plan: Plan, sizes: &[NodeSize]) -> Result<Plan, PlanError> {
    let mut given = CpuSet::new();
    let (threads, mut apart) = (plan.topology.threads_per_core.max(1), false);
    for client in &mut plan.placement.clients {
        let nodes = plan.topology.nodes.iter().filter(|node| client.virtual_nodes.contains(&node.id));
        let vcpus: Vec<u32> = nodes.flat_map(|node| NodeSize::of(node, sizes).vcpus).collect();
        let mut home = Threads::of(machine, client, &given);
        let mut cores = BTreeMap::<u32, Vec<u32>>::new();
        vcpus.iter().for_each(|&vcpu| cores.entry(vcpu / threads).or_default().push(vcpu));
        for core in cores.values() {
            let together = if core.len() > 1 { home.take_core(core.len()) } else { None };
            apart |= core.len() > 1 && together.is_none();
            let cpus = together.or_else(|| core.iter().map(|_| home.take()).collect());
            let Some(cpus) = cpus else { return Err(no_cpu(&plan.vm, client, vcpus.len())) };
            given.extend(cpus.iter().copied());
            client.vcpu_cpus.extend(core.iter().copied().zip(cpus));
        }
    }
    if apart {
        plan.warnings.push(format!(
            "its guest is told of {threads} threads a core, and some of these are on different cores: no core of the \
            home has so many hardware threads left"
        ));
    }
    let clients = plan.placement.clients.iter();
    let pairs = clients.flat_map(|client| &client.vcpu_cpus).map(|(vcpu, cpu)| format!("{vcpu} on {cpu}"));
    let order = if threads > 1 { "the hardware threads of a core for each virtual core" } else { "whole cores first" };
    plan.reasons.push(Reason {
        choice: format!("each vCPU on one CPU: {}", pairs.collect::<Vec<_>>().join(", ")),
        because: format!("policy.vcpu_binding = \"core\": {order}, none that another VM has to itself"),
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

/// CPUs of the cores that `policy.spare_cores` leaves to QEMU: on each node the first ones that
/// nobody is bound to.
pub(crate) fn spared(machine: &Machine, occupancy: &Occupancy, shape: &Shape) -> CpuSet {
    if shape.policy.vcpu_binding != VcpuBinding::Core || shape.policy.spare_cores == 0 {
        return CpuSet::new();
    }
    let mut cores = BTreeMap::<NodeId, BTreeMap<CoreId, Vec<CpuId>>>::new();
    for thread in machine.usable_threads() {
        cores.entry(thread.node).or_default().entry(thread.core).or_default().push(thread.id);
    }
    let free = |cpus: &&Vec<CpuId>| cpus.iter().all(|&cpu| !occupancy.bound_cpus.contains(cpu));
    let of_node = |cores: &BTreeMap<CoreId, Vec<CpuId>>| -> Vec<CpuId> {
        cores.values().filter(free).take(shape.policy.spare_cores as usize).flatten().copied().collect()
    };
    cores.values().flat_map(of_node).collect()
}

/// Hardware threads that each usable core has; 1 where cores differ in that.
pub(crate) fn threads_per_core(machine: &Machine) -> u32 {
    let mut cores = BTreeMap::<CoreId, u32>::new();
    machine.usable_threads().for_each(|thread| *cores.entry(thread.core).or_default() += 1);
    let counts: BTreeSet<u32> = cores.into_values().collect();
    if counts.len() == 1 { counts.first().copied().unwrap_or(1) } else { 1 }
}

/// Says where QEMU's own threads run: on CPUs that the kernel balances, of cores of the home to
/// which no vCPU of the VM is bound.
pub(crate) fn leave_to_qemu(machine: &Machine, mut plan: Plan) -> Plan {
    let bound = plan.bound_cpus();
    let homes = plan.cpus();
    let nodes: BTreeSet<NodeId> = threads_of(machine, &homes).map(|thread| thread.node).collect();
    let taken: BTreeSet<CoreId> = threads_of(machine, &bound).map(|thread| thread.core).collect();
    let near = || machine.usable_threads().filter(|thread| nodes.contains(&thread.node));
    let apart: CpuSet = near().filter(|thread| !taken.contains(&thread.core)).map(|thread| thread.id).collect();
    let free: CpuSet = near().map(|thread| thread.id).filter(|&cpu| !bound.contains(cpu)).collect();
    let anywhere = || machine.usable_threads().map(|thread| thread.id).collect::<CpuSet>();
    if !apart.is_empty() {
        plan.left_to_qemu = apart;
        return plan;
    }
    plan.warnings.push(format!(
        "its vCPUs have each core of {}: QEMU's own threads share one with them (policy.spare_cores = 1 leaves one)",
        topology::words::named("node", &nodes.iter().copied().collect::<topology::NodeSet>())
    ));
    if !bound.is_empty() && machine.isolated.contains(bound.first().unwrap_or(CpuId(0))) {
        plan.left_to_qemu = if free.is_empty() { anywhere() } else { free };
    }
    plan
}

fn threads_of<'a>(machine: &'a Machine, cpus: &'a CpuSet) -> impl Iterator<Item = &'a HardwareThread> {
    machine.threads.iter().filter(|thread| cpus.contains(thread.id))
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

    fn rank(&self, thread: &HardwareThread) -> (usize, usize, CpuId) {
        let (core, node) = (self.of_core.get(&thread.core), self.of_node.get(&thread.node));
        (core.copied().unwrap_or(0), node.copied().unwrap_or(0), thread.id)
    }

    fn take(&mut self) -> Option<CpuId> {
        let best = (0..self.free.len()).min_by_key(|&index| self.rank(self.free[index]))?;
        let thread = self.free.swap_remove(best);
        self.count(thread);
        Some(thread.id)
    }

    /// So many threads of one core.
    fn take_core(&mut self, threads: usize) -> Option<Vec<CpuId>> {
        let mut free = BTreeMap::<CoreId, Vec<&HardwareThread>>::new();
        self.free.iter().for_each(|thread| free.entry(thread.core).or_default().push(thread));
        free.values_mut().for_each(|threads| threads.sort_by_key(|thread| thread.id));
        let enough = free.into_values().filter(|core| core.len() >= threads);
        let core = enough.min_by_key(|core| self.rank(core[0]))?;
        let taken: CpuSet = core.iter().take(threads).map(|thread| thread.id).collect();
        self.free.retain(|thread| !taken.contains(thread.id));
        core.into_iter().take(threads).for_each(|thread| self.count(thread));
        Some(taken.iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Occupancy, plan};
    use topology::{Bytes, Machine};
    use vm::Shape;

    fn shape(vcpus: u32) -> Shape {
        let mut shape = Shape { name: "a".to_owned(), vcpus, memory: Bytes::from_mib(256), ..Shape::default() };
        shape.policy.vcpu_binding = vm::spec::VcpuBinding::Core;
        shape
    }

    fn by_threads(vcpus: u32) -> Shape {
        let mut shape = shape(vcpus);
        shape.policy.prefer_ht = true;
        shape
    }

    fn given(plan: &vm::Plan) -> Vec<u32> {
        plan.placement.clients.iter().flat_map(|client| client.vcpu_cpus.values().map(|cpu| cpu.0)).collect()
    }

    fn machine(text: &str) -> Machine {
        topology::read::from_synthetic(text).expect("a machine")
    }

    #[test]
    fn cores_come_before_siblings_and_what_another_has_is_left() {
        // Cores {0, 1}, {2, 3}, {4, 5}, {6, 7}.
        let machine = machine("numa:1(memory=4GiB) core:4 pu:2");
        let mut occupancy = Occupancy::default();
        let first = plan(&machine, &occupancy, &shape(1)).expect("a plan");
        assert_eq!((given(&first), first.left_to_qemu.to_string()), (vec![0], "2-7".to_owned()));
        occupancy.reserve(&first);
        // Whole cores are 2, 4, 6; the fourth vCPU gets the lowest sibling.
        let second = plan(&machine, &occupancy, &shape(4)).expect("a plan");
        assert_eq!(given(&second), [2, 4, 6, 1]);
        assert!(second.reasons.iter().any(|reason| reason.choice.contains("0 on 2, 1 on 4, 2 on 6, 3 on 1")));
        assert!(second.warnings.iter().any(|warning| warning.contains("policy.spare_cores = 1")));
        occupancy.reserve(&second);
        let refused = plan(&machine, &occupancy, &shape(4)).unwrap_err().to_string();
        assert!(refused.contains("client 0 has 4 vCPUs") && refused.contains("for 3 of them"), "{refused}");
        occupancy.reserve(&plan(&machine, &occupancy, &shape(3)).expect("a plan"));
        let refused = plan(&machine, &occupancy, &shape(1)).unwrap_err().to_string();
        assert!(refused.contains("other VMs have each CPU of the nodes \"0\""), "{refused}");
    }

    #[test]
    fn clients_of_one_node_share_its_cores_without_a_thread_twice() {
        let machine = machine("numa:2(memory=4GiB) core:4 pu:2");
        let mut shape = by_threads(8);
        let node = vm::spec::FixedNode { vcpus: 4, memory: Bytes::from_mib(128), max_vcpus: None, max_memory: None };
        shape.policy.virtual_nodes = Some(vec![node, node]);
        shape.policy.node_affinity = Some("1".parse().expect("a set"));
        let plan = plan(&machine, &Occupancy::default(), &shape).expect("a plan");
        // Node 1 has CPUs 8 to 15, in cores of two.
        assert_eq!(given(&plan), [8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn threads_of_a_core_are_told_and_stay_side_by_side() {
        // Two nodes of 20 cores: CPUs 0-39 and 40-79, siblings are neighbours.
        let machine = machine("pack:2 [numa(memory=768GiB)] core:20 pu:2");
        let mut hana = by_threads(76);
        hana.policy.spare_cores = 1;
        let plan = plan(&machine, &Occupancy::default(), &hana).expect("a plan");
        let topology = &plan.topology;
        assert_eq!((topology.sockets, topology.cores_per_socket, topology.threads_per_core), (2, 19, 2));
        // The first core of each node is QEMU's.
        assert_eq!(plan.left_to_qemu.to_string(), "0-1,40-41");
        let each = given(&plan);
        assert_eq!((each[0], each[1], each[37], each[38], each[75]), (2, 3, 39, 42, 79));
        assert!(each.chunks(2).all(|core| core[0] / 2 == core[1] / 2));
        // All 80 with a core kept: more than two nodes hold.
        hana.vcpus = 80;
        assert!(crate::plan(&machine, &Occupancy::default(), &hana).is_err());
        // An odd number has no pairs.
        let odd = crate::plan(&machine, &Occupancy::default(), &by_threads(3)).expect("a plan");
        assert_eq!((odd.topology.threads_per_core, given(&odd)), (1, vec![0, 2, 4]));
        // Without prefer_ht each vCPU has a core, and with it and no pins nothing stays side by
        // side.
        let mut floats = by_threads(4);
        floats.policy.vcpu_binding = vm::spec::VcpuBinding::Node;
        let plan = |shape: &Shape| crate::plan(&machine, &Occupancy::default(), shape).expect("a plan").topology;
        assert_eq!((plan(&floats).threads_per_core, plan(&shape(4)).threads_per_core), (1, 1));
    }

    #[test]
    fn on_isolated_cpus_the_other_threads_are_on_those_that_are_balanced() {
        let machine = machine("numa:1(memory=4GiB) core:4 pu:1(isolated_cpus=1-3)");
        let mut shape = shape(3);
        shape.policy.latency_sensitive = true;
        let plan = plan(&machine, &Occupancy::default(), &shape).expect("a plan");
        assert_eq!((given(&plan), plan.qemu_cpus().to_string()), (vec![1, 2, 3], "0".to_owned()));
    }
}
