//! One process, examined: is it a VM, and what kind?

use super::huge_pages;
use super::regions::{self, Region};
use super::threads::{VcpuEvidence, VmThreads};
use super::{RunningVm, VmClient};
use crate::error::{LinuxError, read_text};
use crate::root::Root;
use ::vm::Origin;
use ::vm::qemu::{CommandLine, is_qemu};
use scheduler::{ClientId, VmKey};
use std::collections::BTreeMap;
use topology::Bytes;

/// Program and arguments of a process; empty for a kernel thread or a zombie.
pub(crate) fn arguments(root: &Root, pid: u32) -> Result<Vec<String>, LinuxError> {
    let text = read_text(&root.process(pid, "cmdline"))?;
    Ok(text.split_terminator('\0').map(str::to_owned).collect())
}

/// When a process started, in clock ticks since boot.
pub(crate) fn started_ticks(root: &Root, pid: u32) -> Result<u64, LinuxError> {
    let path = root.process(pid, "stat");
    let text = read_text(&path)?;
    // Field 22; the name in field 2 may hold spaces and parentheses.
    let started = text.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse().ok());
    started.ok_or_else(|| LinuxError::format(&path, "field starttime"))
}

impl RunningVm {
    /// Examines a process; `None` if it is no VM.
    ///
    /// # Errors
    /// It ended meanwhile, or `/proc` of it may not be read at all. Memory regions that may not be read are left empty.
    pub fn examine(root: &Root, pid: u32) -> Result<Option<Self>, LinuxError> {
        let arguments = arguments(root, pid)?;
        if !arguments.first().is_some_and(|program| is_qemu(program)) {
            return Ok(None);
        }
        let command = CommandLine::parse(&arguments);
        let threads = VmThreads::read(root, pid, command.vcpus.vcpus)?;
        // Without permission to look at its address space its memory stays unknown; the rest is as good.
        let maps = read_text(&root.process(pid, "maps")).unwrap_or_default();
        let name = command.name.clone().unwrap_or_else(|| format!("pid {pid}"));
        let key = VmKey { name, pid, started: started_ticks(root, pid)? };
        Ok(Some(Self {
            key,
            uuid: command.uuid.clone(),
            origin: Origin::parse(&arguments),
            clients: clients(root, &command, &threads, &maps),
            threads,
            passed_through: command.passed_through.clone(),
            confidential: command.confidential.clone(),
            locked: command.locked,
        }))
    }

    /// Takes over which thread runs which vCPU from somebody who knows.
    pub fn told(&mut self, threads: &BTreeMap<u32, u32>) {
        self.threads.told(threads);
        for client in &mut self.clients {
            client.thread_ids = thread_ids(&client.vcpus, &self.threads);
        }
    }

    /// The client with this id.
    pub fn client(&self, id: ClientId) -> Option<&VmClient> {
        self.clients.iter().find(|client| client.id == id)
    }
}

fn clients(root: &Root, command: &CommandLine, threads: &VmThreads, maps: &str) -> Vec<VmClient> {
    let mut found = regions::find(command, maps);
    // Most VMs have no file behind their memory: then nobody needs to know what is mounted.
    let in_files = |region: &&mut Region| !region.path.is_empty();
    let mut mounts = None;
    for region in found.values_mut().flatten().filter(in_files) {
        huge_pages::size(region, command, mounts.get_or_insert_with(|| huge_pages::Mounts::read(root)));
    }
    let whole: Vec<Region> = found.remove("").unwrap_or_default();
    let mut clients = Vec::new();
    // Virtual nodes whose vCPUs share a thread cannot move apart.
    if command.nodes.len() < 2 || threads.evidence == VcpuEvidence::OneForAll {
        let memory_size = command.memory.unwrap_or_else(|| command.backends.iter().map(|backend| backend.size).sum());
        let regions = whole.into_iter().chain(found.into_values().flatten()).collect();
        let vcpus = (0..command.vcpus.vcpus).collect();
        clients.push(client(0, None, vcpus, memory_size, regions, threads));
        return clients;
    }
    let mut offset = 0;
    for (index, node) in command.nodes.values().enumerate() {
        let sizes = node.backends.iter().filter_map(|id| Some(command.backend(id)?.size));
        let legacy = node.memory.unwrap_or_default();
        let memory_size = sizes.sum::<Bytes>().saturating_add(legacy);
        let mut regions: Vec<Region> = node.backends.iter().filter_map(|id| found.remove(id)).flatten().collect();
        regions.extend(whole.iter().filter_map(|block| slice(block, offset, legacy.0)));
        offset += legacy.0;
        // Those of vCPUs that may be plugged in later are listed too.
        let vcpus =
            node.vcpus.iter().copied().filter(|&vcpu| vcpu < command.vcpus.vcpus || runs(threads, vcpu)).collect();
        clients.push(client(index as u32, Some(node.id), vcpus, memory_size, regions, threads));
    }
    clients
}

/// Nodes without backends of their own share one block, one after the other.
fn slice(block: &Region, offset: u64, length: u64) -> Option<Region> {
    let start = block.addresses.start + offset;
    let end = (start + length).min(block.addresses.end);
    (start < end).then(|| Region { addresses: start..end, ..block.clone() })
}

fn runs(threads: &VmThreads, vcpu: u32) -> bool {
    threads.vcpus.iter().any(|thread| thread.index == vcpu)
}

fn client(
    id: u32,
    virtual_node: Option<u32>,
    vcpus: Vec<u32>,
    memory_size: Bytes,
    regions: Vec<Region>,
    threads: &VmThreads,
) -> VmClient {
    let thread_ids = thread_ids(&vcpus, threads);
    VmClient { id: ClientId(id), virtual_node, vcpus, thread_ids, memory_size, regions }
}

fn thread_ids(vcpus: &[u32], threads: &VmThreads) -> Vec<u32> {
    let of: BTreeMap<u32, u32> = threads.vcpus.iter().map(|thread| (thread.index, thread.thread_id)).collect();
    let mut ids: Vec<u32> = vcpus.iter().filter_map(|vcpu| of.get(vcpu).copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
