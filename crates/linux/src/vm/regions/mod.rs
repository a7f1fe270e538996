//! Where in QEMU's address space a VM's memory is, told from `/proc/PID/maps` and the command line:
//! no monitor is needed.
//!
//! **Problem.** QEMU's own memory, its stacks and memory that it shares with other programs lie
//! beside the guest's, and `maps` names only files.
//!
//! **Rule.** Every block of memory that the command line speaks of is looked for, the guest's own
//! and others: a file by its name, the rest by size. QEMU maps blocks from the top of the address
//! space down in the order of the command line, the block that it makes by itself (`-m` without a
//! backend) last; each begins at a multiple of 2 MiB and has a page above it that nobody may touch.
//! Where more mappings than blocks have a size, those without such a page are left out. Where still
//! more remain, it counts what an earlier look knew and what a monitor said ([`Hints`]); where all
//! memory is one client's, which is which does not matter. Else nothing is guessed, and the reason
//! is told.
//!
//! **Blocks that were plugged in later** are on no command line. Where more memory may be plugged
//! in (`maxmem=`), what is left over and looks like a block is taken for one: whole 128 MiB, with
//! less than 64 MiB of QEMU's own merged below, or any 128 MiB and more between multiples of 2 MiB.
//! How much of it the guest has is unknown: of a virtio-mem device it is a part. A monitor knows
//! all of it ([`super::plugged`]).
//!
//! **Private mappings of files** are no memory that is moved or counted: pages that the guest has
//! not written are in the page cache, which everybody who reads the file shares, and a file is
//! anything that a command line names. Only huge pages of a pool, which have no such cache, are
//! taken: the device says so, since a mount namespace of its own shows any file under any name.
//!
//! `maps` is read and not `numa_maps`: the latter walks every page table of the process.

mod hints;
mod mappings;
#[cfg(test)]
mod tests;

use crate::capabilities::NEEDS_PTRACE;
use ::vm::qemu::{Backend, BackendKind, CommandLine};
pub(crate) use hints::Hints;
use mappings::{Candidate, candidates};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use topology::Bytes;
use topology::input::excerpt;

/// What kind of pages a region has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    /// Anonymous memory.
    Anonymous,
    /// A memory file (`memfd`), or a file on a tmpfs.
    Memfd,
    /// Huge pages of a pool.
    HugePages,
    /// A file on a disk or a device (DAX).
    File,
}

/// How a region was told from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionEvidence {
    /// Its file is named after the backend.
    Path,
    /// No other mapping has its size.
    Size,
    /// Several have its size; QEMU maps them in the order of the command line, each below the one
    /// before.
    Order,
    /// It was told from others at an earlier look, or the monitor said where it is.
    Known,
}

/// A part of a client's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// The backend's `id`; `None` for memory that the command line gives no backend.
    pub backend: Option<String>,
    /// Its addresses.
    pub addresses: Range<u64>,
    /// What kind of pages it has.
    pub kind: RegionKind,
    /// Its file, as `maps` names it; empty for anonymous memory.
    pub path: String,
    /// Size of its pages where they are huge ones of a pool.
    pub page_size: Option<Bytes>,
    /// How it was told from others.
    pub evidence: RegionEvidence,
    /// How much of it the guest has.
    pub given: Given,
}

/// How much of a region the guest has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// All of it.
    All,
    /// A part, as its monitor said: of a virtio-mem device.
    Part(Bytes),
    /// Nobody said: what of it is resident counts.
    Unknown,
}

impl Region {
    /// How much of it the guest has; `None` where nobody said.
    pub fn given(&self) -> Option<Bytes> {
        match self.given {
            Given::All => Some(self.size()),
            Given::Part(part) => Some(part.min(self.size())),
            Given::Unknown => None,
        }
    }

    /// Its length.
    pub fn size(&self) -> Bytes {
        Bytes(self.addresses.end - self.addresses.start)
    }
}

/// Why it cannot be told where a block of memory is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownMemory {
    /// The address space may not be read.
    #[error("missing: {NEEDS_PTRACE}")]
    Unreadable,
    /// Nothing fits.
    #[error("no memory of QEMU's has the size of {}", block(id, *size))]
    NoMapping {
        /// The backend's `id`; empty: the block that QEMU makes by itself.
        id: String,
        /// Its size.
        size: Bytes,
    },
    /// More than one fits.
    #[error("{found} parts of QEMU's memory have the size of {}, and which is the guest's cannot be \
        told", block(id, *size))]
    Several {
        /// As above.
        id: String,
        /// Its size.
        size: Bytes,
        /// How many.
        found: usize,
    },
    /// What it has is said where it cannot be read.
    #[error("{why}")]
    Unread {
        /// The sentence.
        why: String,
    },
    /// It is a file that is mapped privately.
    #[error(
        "{} is a private mapping of {}: what it has not written there is shared with everybody who reads that file, so \
        that none of it is moved",
        block(id, *size), excerpt(path)
    )]
    PrivateFile {
        /// As above.
        id: String,
        /// Its size.
        size: Bytes,
        /// The file.
        path: String,
    },
}

fn block(id: &str, size: Bytes) -> String {
    if id.is_empty() { format!("the guest's memory ({size})") } else { format!("backend {id} ({size})") }
}

/// Where the blocks of memory are.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By the backend's `id`; that of the block that QEMU makes by itself is empty.
    pub(super) blocks: BTreeMap<String, Result<Region, UnknownMemory>>,
    /// Blocks that the command line does not know.
    pub(super) later: Vec<Region>,
    /// All that could be such a block: these, and smaller or less likely ones. Only a monitor
    /// knows.
    pub(super) left_over: Vec<Region>,
}

/// Adjoining memory of QEMU's own that the kernel may have merged below a region: it ends with a
/// guard page above, never below.
const MOST_MERGED: u64 = 64 << 20;
/// Where QEMU begins each of its blocks.
const ALIGNMENT: u64 = 2 << 20;
/// Guests take DIMMs of so much; smaller blocks are not told from memory of QEMU's own.
const PLUGGED: u64 = 128 << 20;

/// What is known beside the mappings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside<'a> {
    /// From elsewhere.
    pub(super) hints: &'a Hints,
    /// All memory is one client's: nobody needs to know which block is which.
    pub(super) is_one_clients: bool,
}

/// Where every block of memory is; of an address space that may not be read, why not. `is_pool`
/// says whether a device, as `maps` writes it, is a pool of huge pages.
pub(super) fn find(
    command: &CommandLine,
    maps: Result<&str, &UnknownMemory>,
    known: &Beside<'_>,
    mut is_pool: impl FnMut(&str) -> bool,
) -> Found {
    let mut found = Found::default();
    let (mut free, shared): (Vec<Candidate>, Vec<Candidate>) = candidates(maps.unwrap_or_default())
        .into_iter()
        .partition(|candidate| candidate.private_on.as_deref().is_none_or(&mut is_pool));
    // QEMU maps its memory from the top of the address space down.
    free.sort_by_key(|candidate| std::cmp::Reverse(candidate.addresses.start));
    let mut wanted = command.backends.clone();
    wanted.retain(|backend| match named_after(backend, &mut free) {
        Some(region) => found.blocks.insert(backend.id.clone(), Ok(region)).is_some(),
        None => true,
    });
    wanted.extend(command.unnamed_memory().map(|size| memory_without_backend(size, &free)));
    let devices = known.hints.take_devices(&command.backends, &mut free);
    wanted.retain(|backend| match known.hints.take(backend, &mut free) {
        Some(region) => found.blocks.insert(backend.id.clone(), Ok(region)).is_some(),
        None => true,
    });
    let others = if !command.may_get_memory() {
        Others::QemusOwn
    } else if known.is_one_clients {
        Others::OfTheSameClient
    } else {
        Others::OfAnyClient
    };
    while let Some(first) = wanted.first().cloned() {
        let alike = |backend: &Backend| backend.size == first.size && same_source(&backend.kind, &first.kind);
        let (group, rest): (Vec<Backend>, Vec<Backend>) = wanted.into_iter().partition(alike);
        wanted = rest;
        let taken = maps.map_err(Clone::clone).and_then(|_| take(&group, &mut free, others));
        let taken = taken.map_err(|why| of_private_file(why, &shared));
        for (at, backend) in group.iter().enumerate() {
            let region = taken.as_ref().map(|regions| regions[at].clone()).map_err(Clone::clone);
            found.blocks.insert(backend.id.clone(), region);
        }
    }
    for id in &command.virtio_mem {
        if let Some(Ok(region)) = found.blocks.get_mut(id) {
            region.given = Given::Unknown;
        }
    }
    free.extend(devices);
    found.later = plugged_later(command, &free);
    let could_be = |candidate: &&Candidate| command.may_get_memory() && is_memory(candidate);
    found.left_over =
        free.iter().filter(could_be).map(|candidate| later(candidate, candidate.addresses.clone())).collect();
    found
}

/// Whether a block is mapped that looks like one of the guest's.
pub(super) fn has_a_block(command: &CommandLine, maps: &str) -> bool {
    let backends = command.guest_backends().filter_map(|id| Some(command.backend(id)?.size));
    let sizes: Vec<Bytes> = backends.chain(command.unnamed_memory()).collect();
    let fits = |candidate: &Candidate, size: &Bytes| {
        let merged = if candidate.path.is_empty() { MOST_MERGED } else { 1 };
        candidate.guarded && (size.0..size.0.saturating_add(merged)).contains(&candidate.size())
    };
    candidates(maps).iter().any(|candidate| sizes.iter().any(|size| fits(candidate, size)))
}

/// What looks like blocks of memory and is on no command line: no more than may be plugged in.
fn plugged_later(command: &CommandLine, free: &[Candidate]) -> Vec<Region> {
    let at_start = command.memory.unwrap_or_default();
    let mut room = command.most_memory.unwrap_or_default().saturating_sub(at_start).0;
    let mut blocks = Vec::new();
    for candidate in free {
        let Some(addresses) = plugged_block(candidate).filter(|block| block.end - block.start <= room) else {
            continue;
        };
        room -= addresses.end - addresses.start;
        blocks.push(later(candidate, addresses));
    }
    blocks
}

/// A block at these addresses that is on no command line.
fn later(candidate: &Candidate, addresses: Range<u64>) -> Region {
    let (path, kind) = (candidate.path.clone(), candidate.kind());
    let (evidence, given) = (RegionEvidence::Size, Given::Unknown);
    Region { backend: None, addresses, kind, path, page_size: None, evidence, given }
}

fn is_memory(candidate: &Candidate) -> bool {
    matches!(candidate.kind(), RegionKind::Anonymous | RegionKind::HugePages)
        || candidate.is_memfd()
        || candidate.path.contains("qemu_back_mem")
}

/// It, or its upper part, if that looks like a block: what is below it may be QEMU's own.
fn plugged_block(candidate: &Candidate) -> Option<Range<u64>> {
    let Range { start, end } = candidate.addresses;
    if !is_memory(candidate) || !candidate.guarded || !end.is_multiple_of(ALIGNMENT) || candidate.size() < PLUGGED {
        return None;
    }
    // A thread's stack of 8 MiB also ends at a multiple of 2 MiB, and merges with a block above it.
    let own = candidate.size() % PLUGGED;
    if own < MOST_MERGED && candidate.path.is_empty() {
        return Some(start + own..end);
    }
    start.is_multiple_of(ALIGNMENT).then_some(start..end)
}

fn same_source(one: &BackendKind, other: &BackendKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// The block that QEMU makes by itself: anonymous memory, or a file (`-mem-path`).
fn memory_without_backend(size: Bytes, free: &[Candidate]) -> Backend {
    let fitting = || free.iter().filter(|candidate| candidate.size() == size.0);
    let path = fitting().min_by_key(|candidate| !candidate.path.is_empty()).map(|candidate| candidate.path.clone());
    let kind = match path {
        Some(path) if path.starts_with("/memfd:") => BackendKind::Memfd { huge: false },
        Some(path) if !path.is_empty() => BackendKind::File { path },
        _ => BackendKind::Anonymous,
    };
    Backend {
        id: String::new(),
        kind,
        size,
        huge_page_size: None,
        host_nodes: topology::NodeSet::new(),
        policy: None,
        prealloc: false,
        prealloc_threads: None,
    }
}

/// QEMU's file in a directory is `qemu_back_mem.NAME.` and six random letters, with letters of NAME
/// that a file name cannot have replaced.
fn named_after(backend: &Backend, free: &mut Vec<Candidate>) -> Option<Region> {
    let BackendKind::File { path } = &backend.kind else { return None };
    let sanitized = format!("qemu_back_mem.{}.", backend.id.replace('/', "_"));
    let objects = format!("qemu_back_mem._objects_{}.", backend.id.replace('/', "_"));
    let is_it = |candidate: &Candidate| {
        let file = candidate.path.trim_end_matches(" (deleted)");
        (!path.is_empty() && file == path)
            || (file.starts_with(path.as_str()) && (file.contains(&sanitized) || file.contains(&objects)))
    };
    let position = free.iter().position(is_it)?;
    Some(region(backend, &free.remove(position), RegionEvidence::Path))
}

/// What mappings are that look like the blocks of a group, and are more than these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// Memory of QEMU's own.
    QemusOwn,
    /// Perhaps memory that was plugged in, of the same client.
    OfTheSameClient,
    /// Perhaps memory that was plugged in, of any client.
    OfAnyClient,
}

/// Whether a mapping may be that of such a backend.
fn fits(candidate: &Candidate, kind: &BackendKind) -> bool {
    match kind {
        BackendKind::Anonymous => candidate.path.is_empty() || candidate.path.starts_with("/dev/zero"),
        BackendKind::Memfd { .. } => candidate.is_memfd() || candidate.kind() == RegionKind::HugePages,
        BackendKind::File { path } => candidate.path.starts_with(path.as_str()),
    }
}

/// One mapping for each of a group of backends that look alike.
fn take(group: &[Backend], free: &mut Vec<Candidate>, others: Others) -> Result<Vec<Region>, UnknownMemory> {
    let Some(first) = group.first() else { return Ok(Vec::new()) };
    let exact = |candidate: &Candidate| fits(candidate, &first.kind) && candidate.size() == first.size.0;
    let merged = |candidate: &Candidate| {
        fits(candidate, &first.kind)
            && candidate.path.is_empty()
            && (first.size.0..first.size.0 + MOST_MERGED).contains(&candidate.size())
    };
    let may_be_plugged = others != Others::QemusOwn && first.size.0 >= PLUGGED;
    let mut chosen: Vec<usize> = positions(free, exact);
    // One of the group's may have been merged, and another one look like it.
    if chosen.len() < group.len() || (may_be_plugged && others == Others::OfAnyClient) {
        chosen = positions(free, |candidate| merged(candidate) || exact(candidate));
    }
    let found = chosen.len();
    if found > group.len() {
        chosen.retain(|&at| free[at].guarded);
    }
    if may_be_plugged && others == Others::OfTheSameClient {
        chosen.truncate(group.len());
    }
    if chosen.len() != group.len() {
        let (id, size) = (first.id.clone(), first.size);
        let several = found > group.len();
        return Err(if several {
            UnknownMemory::Several { id, size, found }
        } else {
            UnknownMemory::NoMapping { id, size }
        });
    }
    let evidence = if found == 1 { RegionEvidence::Size } else { RegionEvidence::Order };
    let regions = group.iter().zip(&chosen).map(|(backend, &at)| region(backend, &free[at], evidence)).collect();
    for &at in chosen.iter().rev() {
        free.remove(at);
    }
    Ok(regions)
}

/// Whether what was looked for is a private mapping of a file.
fn of_private_file(why: UnknownMemory, private: &[Candidate]) -> UnknownMemory {
    let UnknownMemory::NoMapping { id, size } = &why else { return why };
    let file = private.iter().find(|candidate| candidate.size() == size.0);
    let path = |file: &Candidate| file.path.clone();
    file.map(path).map(|path| UnknownMemory::PrivateFile { id: id.clone(), size: *size, path }).unwrap_or(why)
}

fn positions(free: &[Candidate], wanted: impl Fn(&Candidate) -> bool) -> Vec<usize> {
    free.iter().enumerate().filter(|(_, candidate)| wanted(candidate)).map(|(at, _)| at).collect()
}

fn region(backend: &Backend, candidate: &Candidate, evidence: RegionEvidence) -> Region {
    let kind = match &backend.kind {
        BackendKind::Memfd { huge: true } => RegionKind::HugePages,
        _ => candidate.kind(),
    };
    let end = candidate.addresses.end;
    let start = end.saturating_sub(backend.size.0).max(candidate.addresses.start);
    let id = Some(backend.id.clone()).filter(|id| !id.is_empty());
    let path = candidate.path.clone();
    Region { backend: id, addresses: start..end, kind, path, page_size: None, evidence, given: Given::All }
}
