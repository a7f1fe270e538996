//! One process, examined: is it a VM, and what kind?

use super::config_files;
use super::huge_pages;
use super::kvm::{self, Evidence};
use super::owner;
use super::regions::{self, Beside, Found, Given, Hints, Region, UnknownMemory};
use super::threads::{VcpuEvidence, VmThreads};
use super::{RunningVm, VmClient};
use crate::error::{LinuxError, is_short_of_resources, read_text};
use crate::proc_text::{stat_field, status_amount};
use crate::root::Root;
use ::vm::qemu::{
    Backend, CommandLine, GuestCaches, GuestCpus, NumaNode, OptionGroups, VcpuTopology, has_qemus_options, is_qemu,
    qmp_socket,
};
use ::vm::spec::FarMemory;
use ::vm::{Manager, Origin};
use scheduler::{ClientId, GuestMachine, VmKey};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::iter;
use topology::limits::LONGEST_COMMAND_LINE;
use topology::{Bytes, NodeSet};

/// Program and arguments of a process; empty for a kernel thread or a zombie.
pub(crate) fn arguments(root: &Root, pid: u32) -> Result<Vec<String>, LinuxError> {
    let path = root.process(pid, "cmdline");
    let bytes = topology::input::bytes(&path, LONGEST_COMMAND_LINE);
    let bytes = bytes.map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => LinuxError::Doubtful { pid, why: format!("its command line has {source}") },
        _ => LinuxError::Read { path, source },
    })?;
    // No option of QEMU's needs more than one line, and what is read here gets into messages.
    let word = |word: &str| topology::input::one_line(word, usize::MAX);
    Ok(String::from_utf8_lossy(&bytes).split_terminator('\0').map(word).collect())
}

/// The first bytes of a command line.
pub(crate) struct FirstWords {
    bytes: [u8; 512],
    length: usize,
}

impl FirstWords {
    /// Of a process that ended, of a thread of the kernel, and where they may not be read: none.
    ///
    /// # Errors
    /// This process has too few descriptors or too little memory to read them.
    pub(crate) fn read(root: &Root, pid: u32) -> Result<Self, LinuxError> {
        let (path, mut bytes) = (root.process(pid, "cmdline"), [0u8; 512]);
        match std::fs::File::open(&path).and_then(|mut file| file.read(&mut bytes)) {
            Ok(length) => Ok(Self { bytes, length }),
            Err(error) if is_short_of_resources(&error) => Err(LinuxError::read(&path, error)),
            Err(_) => Ok(Self { bytes, length: 0 }),
        }
    }

    /// The words; the last may go on. What is no UTF-8 is empty.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.bytes[..self.length].split(|&byte| byte == 0).map(|word| str::from_utf8(word).unwrap_or("")).collect()
    }

    /// Whether there are more.
    fn go_on(&self) -> bool {
        self.length == self.bytes.len()
    }
}

/// When a process started, in clock ticks since boot.
pub(crate) fn started_ticks(root: &Root, pid: u32) -> Result<u64, LinuxError> {
    let path = root.process(pid, "stat");
    stat_field(&read_text(&path)?, 22).ok_or_else(|| LinuxError::format(&path, "field starttime"))
}

impl RunningVm {
    /// Examines a process; `None` if it is no VM, or not yet: QEMU that goes to the background by
    /// itself is two processes until its vCPUs are there, and one that starts a helper is two for a
    /// moment.
    ///
    /// # Errors
    /// It ended meanwhile, or `/proc` of it may not be read at all; it is called QEMU and is not;
    /// it is QEMU and has no guest, or not yet; it says of itself what no VM has. Memory regions
    /// that may not be read are left empty.
    pub fn examine(root: &Root, pid: u32) -> Result<Option<Self>, LinuxError> {
        Self::examine_with(root, pid, &Hints::default())
    }

    /// The same, of one of which something is known.
    ///
    /// # Errors
    /// As [`examine`](Self::examine).
    pub(crate) fn examine_with(root: &Root, pid: u32, hints: &Hints) -> Result<Option<Self>, LinuxError> {
        let first = FirstWords::read(root, pid)?;
        let words = first.words();
        let named = words.first().is_some_and(|program| is_qemu(program));
        let like_qemu = named || has_qemus_options(&words) || kvm::runs_qemus_file(root, pid);
        if !like_qemu && (!first.go_on() || !has_qemus_options(&arguments(root, pid)?)) {
            return Ok(None);
        }
        // Before all of its words are read: there may be a MiB of them.
        let evidence = kvm::evidence(root, pid)?;
        let status = read_text(&root.process(pid, "status")).unwrap_or_default();
        let may_be_qemu = (has_qemus_options(&words) || first.go_on()) && !has_one_thread(&status);
        if evidence == Evidence::None && !may_be_qemu {
            return if named { Err(LinuxError::NotQemu { pid }) } else { Ok(None) };
        }
        let arguments = arguments(root, pid)?;
        let groups = OptionGroups::with_files(&arguments, &mut |file| config_files::read(root, pid, &status, file));
        let doubtful = |why: String| LinuxError::Doubtful { pid, why };
        let command = match CommandLine::of(&groups) {
            Ok(command) => command,
            // Nobody knows that it is QEMU.
            Err(_) if !named && matches!(evidence, Evidence::Hidden | Evidence::None) => return Ok(None),
            Err(doubt) => return Err(doubtful(doubt.to_string())),
        };
        let threads = VmThreads::read(root, pid, &command.vcpus_at_start().collect::<Vec<_>>())?;
        if threads.vcpus.is_empty() && is_launcher(root, pid, &command, &threads) {
            return Ok(None);
        }
        let mapped = status_amount(&status, "VmSize:");
        let has_vcpus = matches!(threads.evidence, VcpuEvidence::Names | VcpuEvidence::OneForAll);
        let has_guest = !threads.vcpus.is_empty() || mapped.is_some_and(|mapped| mapped >= memory(&command));
        match evidence {
            Evidence::Kvm => {}
            Evidence::Program if has_guest || kvm::has_vm(root, pid)? => {}
            Evidence::Program => return Err(LinuxError::NoGuest { pid }),
            Evidence::Hidden if named || has_vcpus => {}
            Evidence::None if has_vcpus || has_guests_memory(root, pid, &command) => {}
            Evidence::Hidden => return Ok(None),
            Evidence::None if named => return Err(LinuxError::NotQemu { pid }),
            Evidence::None => return Ok(None),
        }
        // Without permission to look at its address space its memory stays unknown; the rest is as
        // good.
        let maps = read_text(&root.process(pid, "maps"));
        let maps = maps.as_deref().map_err(|_| UnknownMemory::Unreadable);
        let name = command.name.as_deref().map_or_else(|| format!("pid {pid}"), topology::input::name);
        let key = VmKey { name, pid, started: started_ticks(root, pid)? };
        let origin = Origin::of(&groups);
        let Blocks { mut clients, unplaced, left_over } = blocks(root, &command, &threads, &maps, hints);
        for client in &mut clients {
            client.spread_over = spread_over(&command, client);
            client.interleaved_over = interleaved_over(&command, client);
        }
        if !origin.by_homenode {
            clients.iter_mut().for_each(|client| client.chosen_nodes = chosen_nodes(&command, client));
        }
        let monitor = (origin.manager == Manager::Unknown).then(|| qmp_socket(&groups)).flatten();
        Ok(Some(Self {
            key,
            monitor,
            uuid: command.uuid.clone(),
            origin,
            owner_uid: owner::of(&status),
            unverified: evidence == Evidence::Hidden,
            mapped,
            guest: guest(&command, &groups),
            vhost_client: vhost_client(&command, &clients),
            clients,
            threads,
            unplaced,
            left_over,
            may_get_memory: command.may_get_memory(),
            may_get_vcpus: command.may_get_vcpus(),
            passed_through: command.passed_through.clone(),
            confidential: command.confidential.clone(),
            stated: command.stated.clone(),
            locked: command.locked,
            unread: command.unread.clone(),
        }))
    }

    /// Every VM of this host that can be examined.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn all(root: &Root) -> Result<impl Iterator<Item = Self>, LinuxError> {
        Ok(crate::process::all()?.into_iter().filter_map(|pid| Self::examine(root, pid).ok().flatten()))
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

/// Whether a process has no thread but its first: every QEMU has one that frees memory (RCU).
fn has_one_thread(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Threads:").is_some_and(|number| number.trim() == "1"))
}

/// Whether it has mapped what its words say of its guest's memory.
fn has_guests_memory(root: &Root, pid: u32, command: &CommandLine) -> bool {
    read_text(&root.process(pid, "maps")).is_ok_and(|maps| regions::has_a_block(command, &maps))
}

/// Whether a QEMU without any vCPU thread is one that only starts another: it waits until that is
/// up, or is a child that has yet to become another program.
fn is_launcher(root: &Root, pid: u32, command: &CommandLine, threads: &VmThreads) -> bool {
    let few = threads.others.len() <= 2;
    let is_child = || {
        let parent = stat_field(&read_text(&root.process(pid, "stat")).ok()?, 4)?;
        let program = arguments(root, parent).ok()?.into_iter().next()?;
        Some(is_qemu(&program))
    };
    few && (command.daemonizes || is_child() == Some(true))
}

fn guest(command: &CommandLine, groups: &OptionGroups<'_>) -> GuestMachine {
    let VcpuTopology { sockets, dies, cores, threads, .. } = command.vcpus;
    let row = |node: &NumaNode| (node.id, node.distances.clone());
    let distances = command.nodes.values().filter(|node| !node.distances.is_empty()).map(row).collect();
    let cpus = GuestCpus { sockets, dies, cores, threads, caches: GuestCaches::of(groups) };
    GuestMachine { cpus, distances }
}

/// Whose packets the kernel moves. Its threads have the same name for every NIC: with NICs on
/// several nodes nobody can tell them apart.
fn vhost_client(command: &CommandLine, clients: &[VmClient]) -> Option<ClientId> {
    if command.vhost_nodes.is_empty() {
        return None;
    }
    if let [only] = clients {
        return Some(only.id);
    }
    let mut nodes = command.vhost_nodes.iter();
    let (Some(&Some(node)), None) = (nodes.next(), nodes.next()) else { return None };
    clients.iter().find(|client| client.virtual_node == Some(node)).map(|client| client.id)
}

/// Nodes that a strict policy of its backends names.
fn chosen_nodes(command: &CommandLine, client: &VmClient) -> Option<NodeSet> {
    let strict = backends(command, client)
        .filter(|backend| backend.policy.as_deref() == Some("bind") && !backend.host_nodes.is_empty());
    strict.map(|backend| backend.host_nodes.clone()).reduce(|one, other| one.union(&other))
}

/// The nodes over which a client's memory was spread on purpose.
fn spread_over(command: &CommandLine, client: &VmClient) -> NodeSet {
    let divided = command.stated.far_memory == FarMemory::ByBandwidth;
    let spread = |backend: &&Backend| divided || backend.policy.as_deref() == Some("interleave");
    backends(command, client).filter(spread).fold(NodeSet::new(), |all, backend| all.union(&backend.host_nodes))
}

/// The nodes over which QEMU was told to interleave a client's memory.
fn interleaved_over(command: &CommandLine, client: &VmClient) -> NodeSet {
    let interleaved = |backend: &&Backend| backend.policy.as_deref() == Some("interleave");
    let nodes = backends(command, client).filter(interleaved).map(|backend| backend.host_nodes.clone());
    nodes.fold(NodeSet::new(), |all, nodes| all.union(&nodes))
}

/// The objects that a client's memory is made of.
fn backends<'a>(command: &'a CommandLine, client: &VmClient) -> impl Iterator<Item = &'a Backend> {
    let ids: Vec<&str> = match client.virtual_node.and_then(|id| command.nodes.get(&id)) {
        Some(node) => node.backends.iter().map(String::as_str).collect(),
        None => command.guest_backends().collect(),
    };
    ids.into_iter().filter_map(|id| command.backend(id))
}

/// Whose memory is where.
struct Blocks {
    clients: Vec<VmClient>,
    /// Those that were plugged in later to virtual nodes that nobody can tell from here.
    unplaced: Vec<Region>,
    left_over: Vec<Region>,
}

fn blocks(
    root: &Root,
    command: &CommandLine,
    threads: &VmThreads,
    maps: &Result<&str, UnknownMemory>,
    hints: &Hints,
) -> Blocks {
    if let Some(why) = &command.unread {
        let vcpus = threads.vcpus.iter().map(|thread| thread.index).collect();
        let unknown = iter::once(Err(UnknownMemory::Unread { why: why.clone() }));
        let clients = vec![client(0, None, vcpus, Bytes(0), unknown, threads)];
        return Blocks { clients, unplaced: Vec::new(), left_over: Vec::new() };
    }
    // Most VMs have no file behind their memory: then nobody needs to know what is mounted.
    let mut mounts = None;
    let is_pool = |device: &str| mounts.get_or_insert_with(|| huge_pages::Mounts::read(root)).is_pool(device);
    // Virtual nodes whose vCPUs share a thread cannot move apart.
    let is_one_clients = command.nodes.len() < 2 || threads.evidence == VcpuEvidence::OneForAll;
    let known = Beside { hints, is_one_clients };
    let Found { mut blocks, mut later, mut left_over } =
        regions::find(command, maps.as_ref().copied(), &known, is_pool);
    let in_files = |region: &&mut Region| !region.path.is_empty();
    let found = blocks.values_mut().filter_map(|block| block.as_mut().ok());
    for region in found.chain(&mut later).chain(&mut left_over).filter(in_files) {
        huge_pages::size(region, command, mounts.get_or_insert_with(|| huge_pages::Mounts::read(root)));
    }
    // A device that gives a part is counted where it is found; one that is not may give all.
    let in_part = |block: &Result<Region, UnknownMemory>| matches!(block, Ok(region) if region.given != Given::All);
    let parts: BTreeSet<String> = blocks.iter().filter(|(_, block)| in_part(block)).map(|(id, _)| id.clone()).collect();
    let whole = |id: &&String| !parts.contains(*id);
    let size_of =
        |ids: &[String]| ids.iter().filter(whole).filter_map(|id| Some(command.backend(id)?.size)).sum::<Bytes>();
    if is_one_clients {
        let named = command.guest_backends().filter_map(|id| blocks.remove(id)).collect::<Vec<_>>();
        let own = blocks.remove("").into_iter().chain(named).chain(later.into_iter().map(Ok));
        let memory = memory(command);
        let devices = if command.memory.is_some() { size_of(&command.memory_devices) } else { Bytes(0) };
        let fixed = memory.saturating_add(devices);
        let mut vcpus: BTreeSet<u32> = command.vcpus_at_start().collect();
        vcpus.extend(threads.vcpus.iter().map(|thread| thread.index));
        let clients = vec![client(0, None, vcpus.into_iter().collect(), fixed, own, threads)];
        return Blocks { clients, unplaced: Vec::new(), left_over };
    }
    let whole = blocks.remove("");
    let (mut clients, mut offset) = (Vec::new(), 0_u64);
    for (index, node) in command.nodes.values().enumerate() {
        let legacy = node.memory.unwrap_or_default();
        let fixed = size_of(&node.backends).saturating_add(legacy);
        let part = whole.clone().filter(|_| legacy > Bytes(0)).and_then(|block| match block {
            Ok(block) => slice(&block, offset, legacy.0).map(Ok),
            Err(why) => Some(Err(why)),
        });
        let own = node.backends.iter().filter_map(|id| blocks.remove(id)).chain(part);
        offset = offset.saturating_add(legacy.0);
        // Those of vCPUs that may be plugged in later are listed too.
        let vcpus =
            node.vcpus.iter().copied().filter(|&vcpu| command.starts_with(vcpu) || runs(threads, vcpu)).collect();
        clients.push(client(index as u32, Some(node.id), vcpus, fixed, own, threads));
    }
    Blocks { clients, unplaced: later, left_over }
}

/// Memory that a guest starts with.
fn memory(command: &CommandLine) -> Bytes {
    let of_backends = || command.guest_backends().filter_map(|id| Some(command.backend(id)?.size)).sum();
    command.memory.or(command.unnamed_memory()).unwrap_or_else(of_backends)
}

/// Nodes without backends of their own share one block, one after the other.
fn slice(block: &Region, offset: u64, length: u64) -> Option<Region> {
    let start = block.addresses.start.saturating_add(offset);
    let end = start.saturating_add(length).min(block.addresses.end);
    (start < end).then(|| Region { addresses: start..end, ..block.clone() })
}

fn runs(threads: &VmThreads, vcpu: u32) -> bool {
    threads.vcpus.iter().any(|thread| thread.index == vcpu)
}

fn client(
    id: u32,
    virtual_node: Option<u32>,
    vcpus: Vec<u32>,
    fixed_memory: Bytes,
    blocks: impl Iterator<Item = Result<Region, UnknownMemory>>,
    threads: &VmThreads,
) -> VmClient {
    let thread_ids = thread_ids(&vcpus, threads);
    // A part of a client's memory says nothing about the whole.
    let (regions, memory_unknown_because) = match blocks.collect::<Result<Vec<Region>, UnknownMemory>>() {
        Ok(regions) => (regions, None),
        Err(why) => (Vec::new(), Some(why.to_string())),
    };
    VmClient {
        id: ClientId(id),
        virtual_node,
        vcpus,
        thread_ids,
        fixed_memory,
        chosen_nodes: None,
        spread_over: NodeSet::new(),
        interleaved_over: NodeSet::new(),
        regions,
        memory_unknown_because,
    }
}

fn thread_ids(vcpus: &[u32], threads: &VmThreads) -> Vec<u32> {
    let of: BTreeMap<u32, u32> = threads.vcpus.iter().map(|thread| (thread.index, thread.thread_id)).collect();
    let mut ids: Vec<u32> = vcpus.iter().filter_map(|vcpu| of.get(vcpu).copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
