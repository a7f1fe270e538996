//! Every QEMU process on this host, whoever started it, and what it holds of each node.

use crate::error::LinuxError;
use crate::process::{self, Identity};
use crate::root::Root;
use crate::vm::{VcpuThread, VmThreads};
use crate::{memory, sys};
use ::vm::qemu::{CommandLine, is_qemu};
use scheduler::{Holding, Occupancy, Resident};
use serde::Serialize;
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId};

/// A vCPU of a running VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vcpu {
    /// Its number in the VM; `None` where QEMU does not name its threads (no `debug-threads=on`).
    pub index: Option<u32>,
    /// The thread that runs it.
    pub thread_id: u32,
    /// CPUs that the thread may use.
    pub affinity: CpuSet,
}

/// A VM that runs now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QemuProcess {
    /// The process.
    #[serde(flatten)]
    pub identity: Identity,
    /// What `-name` says, if anything.
    pub name: Option<String>,
    /// Its vCPUs, by index.
    pub vcpus: Vec<Vcpu>,
    /// Memory of the VM as `-m` says; `None` where it does not say.
    pub memory: Option<Bytes>,
    /// Resident memory of the process by node; `None` where the kernel does not say, or not to this user.
    pub resident: Option<BTreeMap<NodeId, Bytes>>,
}

/// The VMs that run on this host now. A process that ends meanwhile is left out.
pub fn running() -> Result<Vec<QemuProcess>, LinuxError> {
    Ok(process::all()?.into_iter().filter_map(inspect).collect())
}

fn inspect(pid: u32) -> Option<QemuProcess> {
    let arguments = process::command_line(pid).ok()?;
    if !is_qemu(arguments.first()?) {
        return None;
    }
    let command = CommandLine::parse(&arguments);
    let identity = Identity::of(pid).ok()?;
    let threads = VmThreads::read(&Root::default(), pid, command.vcpus.vcpus).ok()?;
    let seen = |thread: &VcpuThread| {
        let affinity = sys::affinity(thread.thread_id).ok()?;
        Some(Vcpu { index: Some(thread.index), thread_id: thread.thread_id, affinity })
    };
    let mut vcpus: Vec<Vcpu> = threads.vcpus.iter().filter_map(seen).collect();
    // Threads that cannot be told apart run where the process may.
    let missing = (command.vcpus.vcpus as usize).saturating_sub(vcpus.len());
    let affinity = sys::affinity(pid).ok()?;
    vcpus.extend((0..missing).map(|_| Vcpu { index: None, thread_id: pid, affinity: affinity.clone() }));
    Some(QemuProcess {
        identity,
        name: command.name,
        vcpus,
        memory: command.memory,
        resident: memory::resident_by_node(pid).ok().flatten(),
    })
}

/// What VMs hold of a machine, node by node: the ledger that placement starts from ([`Occupancy::of_running`]).
pub fn occupancy(vms: &[QemuProcess], machine: &Machine) -> Occupancy {
    let holding = |vm: &QemuProcess| Holding {
        vcpus: vm.vcpus.iter().map(|vcpu| vcpu.affinity.clone()).collect(),
        memory: vm.memory.unwrap_or_default(),
        memory_weights: BTreeMap::new(),
        resident: Resident::ByNode(vm.resident.clone().unwrap_or_default()),
    };
    Occupancy::of_running(vms.iter().map(holding), machine)
}

/// Adds the memory that a balancer is going to bring home: a VM whose vCPUs may use one node only has no other home, and what it has elsewhere
/// will be taken there. Of VMs with several homes nobody can tell here which of their memory belongs where.
pub fn expect_home(occupancy: &mut Occupancy, vms: &[QemuProcess], machine: &Machine) {
    for vm in vms {
        let mut nodes = vm.vcpus.iter().flat_map(|vcpu| vcpu.affinity.iter()).filter_map(|cpu| machine.thread(cpu));
        let Some(home) = nodes.next().map(|thread| thread.node) else { continue };
        if nodes.any(|thread| thread.node != home) {
            continue;
        }
        let away: Bytes =
            vm.resident.iter().flatten().filter(|(node, _)| **node != home).map(|(_, bytes)| *bytes).sum();
        let held = occupancy.nodes.entry(home).or_default();
        held.memory = held.memory.saturating_add(away);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::NodeUse;
    use topology::{CoreId, CpuId, Distances, HardwareThread, MemoryKind, Node, SocketId};

    /// Two nodes of two CPUs: node 0 has CPUs 0-1, node 1 has CPUs 2-3.
    fn machine() -> Machine {
        let node = |id| Node {
            id: NodeId(id),
            memory: Bytes::from_mib(4096),
            memory_kind: MemoryKind::Ram,
            free: None,
            huge_pages: Vec::new(),
            allowed: true,
        };
        let thread = |id: u32| HardwareThread {
            id: CpuId(id),
            core: CoreId(id),
            llc: None,
            node: NodeId(id / 2),
            socket: SocketId(id / 2),
            online: true,
            allowed: true,
            capacity: None,
        };
        Machine {
            name: "two".into(),
            cpu_model: None,
            nodes: vec![node(0), node(1)],
            llcs: Vec::new(),
            threads: (0..4).map(thread).collect(),
            distances: Distances::flat(vec![NodeId(0), NodeId(1)]),
            notes: Vec::new(),
        }
    }

    fn vm_of(affinities: &[&str], memory_mib: u64, resident_mib: &[(u32, u64)]) -> QemuProcess {
        let vcpu = |(index, cpus): (usize, &&str)| Vcpu {
            index: Some(index as u32),
            thread_id: index as u32,
            affinity: cpus.parse().unwrap(),
        };
        QemuProcess {
            identity: Identity { pid: 1, started_ticks: 1 },
            name: None,
            vcpus: affinities.iter().enumerate().map(vcpu).collect(),
            memory: Some(Bytes::from_mib(memory_mib)),
            resident: Some(resident_mib.iter().map(|&(node, mib)| (NodeId(node), Bytes::from_mib(mib))).collect()),
        }
    }

    #[test]
    fn a_vm_counts_where_its_threads_and_pages_are() {
        let used = occupancy(&[vm_of(&["2-3", "2-3"], 1024, &[(1, 1024)])], &machine());
        let node1 = NodeUse { vcpus: 2, memory: Bytes::from_mib(1024), resident: Bytes::from_mib(1024) };
        assert_eq!(used.of(NodeId(1)), node1);
        assert_eq!(used.of(NodeId(0)), NodeUse::default());
    }

    #[test]
    fn a_vm_that_floats_counts_on_every_node() {
        let used = occupancy(&[vm_of(&["0-3", "0-3", "0-3", "0-3"], 1000, &[(0, 200)])], &machine());
        // 4 vCPUs in turn on 2 nodes: 2 each. 1000 - 200 = 800 MiB are promised, half of it (400) on each node.
        let (zero, one) = (used.of(NodeId(0)), used.of(NodeId(1)));
        assert_eq!((zero.vcpus, zero.memory, zero.resident), (2, Bytes::from_mib(600), Bytes::from_mib(200)));
        assert_eq!((one.vcpus, one.memory, one.resident), (2, Bytes::from_mib(400), Bytes(0)));
    }

    #[test]
    fn memory_that_a_balancer_brings_home_is_expected_there() {
        // All of its vCPUs are on node 1, 300 of its 1024 MiB are not yet; the other VM floats.
        let vms = [vm_of(&["2-3", "2-3"], 1024, &[(0, 300), (1, 724)]), vm_of(&["0-3"], 100, &[(0, 100)])];
        let mut used = occupancy(&vms, &machine());
        let before = used.clone();
        expect_home(&mut used, &vms, &machine());
        assert_eq!(used.of(NodeId(0)), before.of(NodeId(0)));
        assert_eq!(used.of(NodeId(1)).memory, before.of(NodeId(1)).memory.saturating_add(Bytes::from_mib(300)));
        assert_eq!(used.of(NodeId(1)).resident, before.of(NodeId(1)).resident);
    }

    #[test]
    fn this_host_can_be_searched() {
        for vm in running().unwrap() {
            assert!(!vm.vcpus.is_empty(), "{vm:?}");
        }
    }
}
