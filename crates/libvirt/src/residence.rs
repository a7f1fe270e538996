//! Where a VM of libvirt's really is: as the kernel says it of its QEMU, whose monitor libvirt
//! holds.

mod plugged;

use crate::{Connection, LibvirtError};
use linux::LinuxError;
use linux::vm::{Region, RunningVm};
use std::collections::{BTreeMap, BTreeSet};
use topology::{CpuSet, NodeSet};
use vm::{Accelerator, MemoryDevice, MemoryResidence, Plan, Residence, VcpuResidence};

/// Reads back where a VM is: affinities of its vCPU threads, pages and policy of each virtual
/// node's memory, that of `devices` that were plugged in too.
pub(crate) fn read_back(
    plan: &Plan,
    devices: &[MemoryDevice],
    process: &RunningVm,
    accelerator: &Accelerator,
    qemu_version: String,
) -> Result<Residence, LinuxError> {
    let vcpus = vcpus(plan, process)?;
    let memory = memory(plan, devices, process)?;
    let at_home =
        !vcpus.is_empty() && vcpus.iter().all(|vcpu| vcpu.at_home) && memory.iter().all(|memory| memory.at_home);
    let (vm, pid) = (plan.vm.clone(), process.key.pid);
    Ok(Residence { vm, pid, qemu_version, accelerator: accelerator.clone(), vcpus, memory, at_home })
}

/// What is said where QEMU is out of sight.
pub(crate) fn unreachable_process(connection: &Connection, vm: &str) -> LibvirtError {
    let problem = format!(
        "VM {vm} runs, but its QEMU is not among the processes that this user sees on this host: where it is cannot be \
        read back"
    );
    connection.strange("look for QEMU", problem)
}

fn vcpus(plan: &Plan, process: &RunningVm) -> Result<Vec<VcpuResidence>, LinuxError> {
    let node_of =
        |vcpu: u32| plan.topology.nodes.iter().find(|node| node.vcpus.contains(&vcpu)).map_or(0, |node| node.id);
    // One thread may run several vCPUs: then it belongs to the homes of all.
    let mut homes = BTreeMap::<u32, CpuSet>::new();
    for vcpu in &process.threads.vcpus {
        let cpus = plan.client_of(node_of(vcpu.index)).map(|client| client.cpus_of(vcpu.index)).unwrap_or_default();
        let home = homes.entry(vcpu.thread_id).or_default();
        *home = home.union(&cpus);
    }
    let residence = |vcpu: &linux::vm::VcpuThread| {
        let affinity = linux::sys::affinity(vcpu.thread_id).map_err(|source| {
            LinuxError::call(format!("read the affinity of vCPU thread {}", vcpu.thread_id), source)
        })?;
        let at_home = !affinity.is_empty() && homes.get(&vcpu.thread_id).is_some_and(|home| affinity.is_subset(home));
        let (index, thread_id) = (vcpu.index, vcpu.thread_id);
        Ok(VcpuResidence { index, thread_id, virtual_node: node_of(index), affinity, at_home })
    };
    process.threads.vcpus.iter().map(residence).collect()
}

fn memory(plan: &Plan, devices: &[MemoryDevice], process: &RunningVm) -> Result<Vec<MemoryResidence>, LinuxError> {
    let later = plugged::mappings(devices, process)?;
    let nodes: Vec<_> = plan.topology.nodes.iter().filter(|node| node.memory.0 > 0).collect();
    let mut memory = Vec::new();
    for node in &nodes {
        let mut residence = MemoryResidence {
            virtual_node: node.id,
            home: plan.client_of(node.id).map(|client| client.home.clone()).unwrap_or_default(),
            pages_by_node: BTreeMap::new(),
            page_bytes: 0,
            policy: None,
            at_home: false,
            unknown: None,
        };
        let of_node = || later.iter().filter(|(device, _)| device.virtual_node == node.id);
        let mut parts = regions(process, node.id, nodes.len());
        parts.extend(of_node().filter_map(|(_, region)| region.as_ref().ok()));
        locate(&mut residence, process, &parts)?;
        if let Some(because) = of_node().find_map(|(_, region)| region.as_ref().err()) {
            (residence.unknown, residence.at_home) = (Some(because.to_string()), false);
        }
        memory.push(residence);
    }
    Ok(memory)
}

/// Memory of a virtual node: libvirt calls its backend `ram-nodeN`; without vNUMA all memory is the
/// one node's.
fn regions(process: &RunningVm, virtual_node: u32, nodes: usize) -> Vec<&Region> {
    let all = || process.clients.iter().flat_map(|client| &client.regions);
    let backend = format!("ram-node{virtual_node}");
    let named: Vec<&Region> = all().filter(|region| region.backend.as_deref() == Some(backend.as_str())).collect();
    if named.is_empty() && nodes == 1 { all().collect() } else { named }
}

/// Fills in what the kernel says about the mappings of some regions.
fn locate(residence: &mut MemoryResidence, process: &RunningVm, regions: &[&Region]) -> Result<(), LinuxError> {
    if regions.is_empty() {
        residence.unknown =
            Some("it cannot be told where QEMU mapped this node's memory, or this user may not look".to_owned());
        return Ok(());
    }
    let mut policies = BTreeSet::new();
    for region in regions {
        match linux::memory::mappings(process.key.pid, &region.addresses) {
            Ok(Some(mappings)) => {
                for mapping in mappings {
                    residence.page_bytes = mapping.page_size.0;
                    policies.insert(mapping.policy);
                    for (node, pages) in mapping.pages {
                        *residence.pages_by_node.entry(node).or_default() += pages;
                    }
                }
            }
            Ok(None) => residence.unknown = Some("this kernel has no numa_maps".to_owned()),
            Err(LinuxError::Read { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
                residence.unknown = Some("this user may not read QEMU's numa_maps".to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    if policies.is_empty() && residence.unknown.is_none() {
        residence.unknown = Some("the kernel shows no mapping where QEMU has this node's memory".to_owned());
    }
    residence.policy = (!policies.is_empty()).then(|| policies.into_iter().collect::<Vec<_>>().join(" | "));
    let resident: NodeSet = residence.pages_by_node.keys().copied().collect();
    residence.at_home = residence.unknown.is_none() && resident.is_subset(&residence.home);
    Ok(())
}
