//! Bringing the threads of a started QEMU home, and reading back where everything is.

use crate::QemuError;
use crate::hot_add::plugged_memory;
use crate::qmp::{Qmp, VcpuThread};
use linux::LinuxError;
use std::collections::BTreeMap;
use std::ops::Range;
use topology::{CpuSet, NodeSet};
use vm::qemu::memory_id;
use vm::{Accelerator, Plan};
use vm::{MemoryResidence, Residence, VcpuResidence};

/// The virtual node of a vCPU.
fn node_of(plan: &Plan, vcpu: u32) -> Option<u32> {
    plan.topology.nodes.iter().find(|node| node.vcpus.contains(&vcpu)).map(|node| node.id)
}

fn cpus_of(plan: &Plan, vcpu: u32) -> CpuSet {
    let client = node_of(plan, vcpu).and_then(|node| plan.client_of(node));
    client.map_or_else(|| plan.cpus(), |client| client.cpus_of(vcpu))
}

/// The CPUs of each thread: its vCPU's client's, or those of all vCPUs that it runs.
fn wanted(plan: &Plan, threads: &[VcpuThread]) -> BTreeMap<u32, CpuSet> {
    let mut wanted = BTreeMap::<u32, CpuSet>::new();
    for vcpu in threads {
        let cpus = wanted.entry(vcpu.thread_id).or_default();
        *cpus = cpus.union(&cpus_of(plan, vcpu.index));
    }
    wanted
}

/// Lets each vCPU thread run on the CPUs of its client's home only, or on the one that it is bound
/// to. The kernel's threads that move the VM's packets (vhost) go to the home of its only client:
/// those of a VM with several serve all of them. Memory that is to lie far is brought there.
pub(crate) fn bind_threads(plan: &Plan, pid: u32, threads: &[VcpuThread]) -> Result<(), QemuError> {
    bind_vcpus(plan, threads)?;
    crate::far::divide_memory(plan, pid)?;
    let [client] = &plan.placement.clients[..] else { return Ok(()) };
    for thread in linux::vm::vhost::of_process(pid) {
        // Without the right to move a thread of the kernel the VM is slower, not wrong: `doctor`
        // finds it.
        let _ = linux::binding::bind_any(thread, &client.cpus);
    }
    Ok(())
}

fn bind_vcpus(plan: &Plan, threads: &[VcpuThread]) -> Result<(), QemuError> {
    for (thread, cpus) in wanted(plan, threads) {
        linux::sys::set_affinity(thread, &cpus).map_err(|source| {
            let action = format!("let vCPU thread {thread} run on CPUs {cpus} only");
            QemuError::Host { vm: plan.vm.clone(), source: LinuxError::call(action, source) }
        })?;
    }
    Ok(())
}

/// Reads back where a VM is.
pub(crate) fn read_back(
    plan: &Plan,
    pid: u32,
    accelerator: &Accelerator,
    qmp: &mut Qmp,
) -> Result<Residence, QemuError> {
    let threads = qmp.vcpu_threads(pid)?;
    let vcpus = vcpu_residence(plan, &threads)?;
    let memory = memory_residence(plan, pid, qmp)?;
    let at_home = vcpus.iter().all(|vcpu| vcpu.at_home) && memory.iter().all(|memory| memory.at_home);
    Ok(Residence {
        vm: plan.vm.clone(),
        pid,
        qemu_version: qmp.version().to_owned(),
        accelerator: accelerator.clone(),
        vcpus,
        memory,
        at_home,
    })
}

fn vcpu_residence(plan: &Plan, threads: &[VcpuThread]) -> Result<Vec<VcpuResidence>, QemuError> {
    let wanted = wanted(plan, threads);
    let residence = |vcpu: &VcpuThread| {
        let affinity = linux::sys::affinity(vcpu.thread_id).map_err(|source| {
            let action = format!("read the affinity of vCPU thread {}", vcpu.thread_id);
            QemuError::Host { vm: plan.vm.clone(), source: LinuxError::call(action, source) }
        })?;
        let home = wanted.get(&vcpu.thread_id).cloned().unwrap_or_default();
        Ok(VcpuResidence {
            index: vcpu.index,
            thread_id: vcpu.thread_id,
            virtual_node: node_of(plan, vcpu.index).unwrap_or_default(),
            at_home: !affinity.is_empty() && affinity.is_subset(&home),
            affinity,
        })
    };
    threads.iter().map(residence).collect()
}

fn memory_residence(plan: &Plan, pid: u32, qmp: &mut Qmp) -> Result<Vec<MemoryResidence>, QemuError> {
    let nodes: Vec<_> = plan.topology.nodes.iter().filter(|node| node.memory.0 > 0).collect();
    let addresses = backend_addresses(qmp, plan)?;
    let plugged = plugged_blocks(qmp)?;
    let mut memory = Vec::new();
    for node in nodes {
        let home = plan.client_of(node.id).map(|client| client.home.clone()).unwrap_or_default();
        let mut residence = MemoryResidence {
            virtual_node: node.id,
            home,
            pages_by_node: BTreeMap::new(),
            page_bytes: 0,
            policy: None,
            at_home: false,
            unknown: None,
        };
        // What the node began with says last which policy it has.
        for (_, block) in plugged.iter().filter(|(of, _)| *of == node.id) {
            locate(&mut residence, plan, pid, block.start, block.end)?;
        }
        match addresses.get(&memory_id(node.id)) {
            None => residence.unknown = Some("QEMU does not say where it mapped this node's memory".to_owned()),
            Some(&start) => locate(&mut residence, plan, pid, start, start.saturating_add(node.memory.0))?,
        }
        memory.push(residence);
    }
    Ok(memory)
}

/// Fills in what the kernel says about the mappings of one memory object.
fn locate(residence: &mut MemoryResidence, plan: &Plan, pid: u32, start: u64, end: u64) -> Result<(), QemuError> {
    let mappings = match linux::memory::mappings(pid, &(start..end)) {
        Ok(mappings) => mappings,
        Err(LinuxError::Read { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied => {
            residence.unknown = Some("this user may not read QEMU's numa_maps".to_owned());
            return Ok(());
        }
        Err(error) => return Err(QemuError::host(&plan.vm)(error)),
    };
    let Some(mappings) = mappings else {
        residence.unknown = Some("this kernel has no numa_maps".to_owned());
        return Ok(());
    };
    if mappings.is_empty() {
        residence.unknown = Some("the kernel shows no mapping where QEMU has this node's memory".to_owned());
    }
    for mapping in mappings {
        residence.page_bytes = mapping.page_size.0;
        residence.policy = Some(mapping.policy);
        for (node, pages) in mapping.pages {
            *residence.pages_by_node.entry(node).or_default() += pages;
        }
    }
    let resident: NodeSet = residence.pages_by_node.keys().copied().collect();
    residence.at_home = residence.unknown.is_none() && resident.is_subset(&residence.home);
    Ok(())
}

/// Where QEMU mapped each memory object, by its name. QMP cannot say; the human monitor shows at
/// which guest address each object begins (`info mtree -f`) and where that is in QEMU's own address
/// space (`gpa2hva`).
fn backend_addresses(qmp: &mut Qmp, plan: &Plan) -> Result<BTreeMap<String, u64>, QemuError> {
    let mut addresses = BTreeMap::new();
    let mut places = guest_addresses(&qmp.human("info mtree -f")?);
    // It may show any number of names.
    for name in plan.topology.nodes.iter().map(|node| memory_id(node.id)) {
        let Some(place) = places.remove(&name) else { continue };
        let answer = qmp.human(&format!("gpa2hva {:#x}", place.guest))?;
        if let Some(host) = host_address(&answer) {
            addresses.insert(name, host.wrapping_sub(place.offset));
        }
    }
    Ok(addresses)
}

/// The memory devices that were plugged in: the virtual node, and where it is in QEMU's address
/// space.
fn plugged_blocks(qmp: &mut Qmp) -> Result<Vec<(u32, Range<u64>)>, QemuError> {
    let mut blocks = Vec::new();
    for device in plugged_memory(qmp)? {
        let answer = qmp.human(&format!("gpa2hva {:#x}", device.address))?;
        let block = host_address(&answer).map(|start| start..start.saturating_add(device.size.0));
        blocks.extend(block.map(|block| (device.virtual_node, block)));
    }
    Ok(blocks)
}

/// Where a part of a memory object appears in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    guest: u64,
    offset: u64,
}

/// From lines such as ` 0000000000100000-000000000fffffff (prio 0, ram): vnode0 @0000000000100000
/// KVM`; the first part of each object.
fn guest_addresses(tree: &str) -> BTreeMap<String, Place> {
    let mut found = BTreeMap::new();
    for line in tree.lines() {
        let Some((range, rest)) = line.trim_start().split_once(" (prio ") else { continue };
        let Some((_, name)) = rest.split_once(", ram): ") else { continue };
        let mut words = name.split_whitespace();
        let (Some(name), Some((first, _))) = (words.next(), range.split_once('-')) else { continue };
        let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let offset = words.next().and_then(|word| word.strip_prefix('@')).map_or(Some(0), hexadecimal);
        if let (true, Some(guest), Some(offset)) = (name.starts_with("vnode"), hexadecimal(first), offset) {
            found.entry(name.to_owned()).or_insert(Place { guest, offset });
        }
    }
    found
}

/// From `Host virtual address for 0x10000000 (vnode1) is 0x7fbcbbe00000`.
pub(crate) fn host_address(answer: &str) -> Option<u64> {
    let digits = answer.trim().rsplit_once(" is 0x")?.1;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::plan;

    #[test]
    fn objects_are_found_in_qemus_own_words() {
        let tree = "\
FlatView #5
 AS \"memory\", root: system
  0000000000000000-00000000000bffff (prio 0, ram): vnode0
  00000000000c0000-00000000000dffff (prio 1, rom): pc.rom
  0000000000100000-000000000fffffff (prio 0, ram): vnode0 @0000000000100000
  0000000010000000-000000001fffffff (prio 0, ram): vnode1 @0000000000001000 KVM
  00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic
";
        let expected = BTreeMap::from([
            ("vnode0".to_owned(), Place { guest: 0, offset: 0 }),
            ("vnode1".to_owned(), Place { guest: 0x1000_0000, offset: 0x1000 }),
        ]);
        assert_eq!(guest_addresses(tree), expected);
        let answer = "Host virtual address for 0x10000000 (vnode1) is 0x7fbcbbe00000\r\n";
        assert_eq!(host_address(answer), Some(0x7fbc_bbe0_0000));
        assert_eq!(host_address("Address 0x0 is not RAM"), None);
    }

    #[test]
    fn a_thread_that_runs_all_vcpus_may_use_all_homes() {
        let mut plan = plan("a", 2, 1, 64);
        plan.placement.clients[1].cpus = "4-5".parse().unwrap();
        let shared = [VcpuThread { index: 0, thread_id: 9 }, VcpuThread { index: 1, thread_id: 9 }];
        assert_eq!(wanted(&plan, &shared)[&9].to_string(), "0-1,4-5");
        let own = [VcpuThread { index: 0, thread_id: 8 }, VcpuThread { index: 1, thread_id: 9 }];
        assert_eq!(wanted(&plan, &own)[&9].to_string(), "4-5");
        // Bound 1:1, a thread has its vCPU's CPU, and one that runs them all has all of these.
        plan.placement.clients[0].vcpu_cpus = BTreeMap::from([(0, topology::CpuId(1))]);
        plan.placement.clients[1].vcpu_cpus = BTreeMap::from([(1, topology::CpuId(4))]);
        assert_eq!(wanted(&plan, &own)[&8].to_string(), "1");
        assert_eq!(wanted(&plan, &shared)[&9].to_string(), "1,4");
    }
}
