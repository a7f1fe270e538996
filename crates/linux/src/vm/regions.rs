//! Where in QEMU's address space a VM's memory is, told from `/proc/PID/maps` and the command line: no monitor is needed.
//!
//! **Problem.** QEMU's own memory, its stacks and memory that it shares with other programs lie beside the guest's, and `maps` names only files.
//!
//! **Rule.** Every block of memory that the command line speaks of is looked for, the guest's own and others: a file by its name, the rest by
//! size. QEMU maps blocks from the top of the address space down in the order of the command line, the block that it makes by itself (`-m`
//! without a backend) last; each begins at a multiple of 2 MiB and has a page above it that nobody may touch. Where more mappings than blocks
//! have a size, those without such a page are left out; where still more remain, nothing is guessed, and the reason is told.
//!
//! **Blocks that were plugged in later** are on no command line. Where more memory may be plugged in (`maxmem=`), what is left over and looks
//! like a block (whole 128 MiB, which is what guests take) is one.
//!
//! `maps` is read and not `numa_maps`: the latter walks every page table of the process.

use crate::capabilities::NEEDS_PTRACE;
use ::vm::qemu::{Backend, BackendKind, CommandLine};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use topology::Bytes;

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
    /// Several have its size; QEMU maps them in the order of the command line, each below the one before.
    Order,
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
}

impl Region {
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
    #[error("{found} parts of QEMU's memory have the size of {}, and which is the guest's cannot be told", block(id, *size))]
    Several {
        /// As above.
        id: String,
        /// Its size.
        size: Bytes,
        /// How many.
        found: usize,
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
}

/// A writable mapping that guest memory could be, from a line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    addresses: Range<u64>,
    path: String,
    /// A page (or a few) that nobody may touch follows.
    guarded: bool,
}

impl Candidate {
    fn size(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }

    fn is_memfd(&self) -> bool {
        self.path.starts_with("/memfd:memory-backend-memfd") || self.path.starts_with("/dev/zero")
    }

    fn kind(&self) -> RegionKind {
        match self.path.as_str() {
            "" => RegionKind::Anonymous,
            path if path.starts_with("/memfd:") || path.starts_with("/dev/shm/") || path.starts_with("/dev/zero") => {
                RegionKind::Memfd
            }
            path if path.contains("hugepages") || path.starts_with("/anon_hugepage") => RegionKind::HugePages,
            _ => RegionKind::File,
        }
    }
}

/// Smaller mappings are never a guest's memory, and there are hundreds of them.
const SMALLEST: u64 = 1 << 20;
/// Adjoining memory of QEMU's own that the kernel may have merged below a region: it ends with a guard page above, never below.
const MOST_MERGED: u64 = 64 << 20;

/// Where QEMU begins each of its blocks.
const ALIGNMENT: u64 = 2 << 20;
/// Guests plug memory in by so much.
const PLUGGED: u64 = 128 << 20;
/// The page above a block, merged perhaps with that of a stack.
const MOST_GUARD: u64 = 64 << 10;

fn candidates(maps: &str) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for line in maps.lines() {
        let Some((candidate, permissions)) = candidate(line) else { continue };
        let follows = found.last_mut().filter(|last| last.addresses.end == candidate.addresses.start);
        if permissions.starts_with("---") {
            if let Some(last) = follows {
                last.guarded |= candidate.size() <= MOST_GUARD;
            }
            continue;
        }
        // Memory that may be executed is the code that QEMU's emulation makes.
        if !permissions.starts_with("rw-") || candidate.path.starts_with('[') {
            continue;
        }
        // A region that was split (part of it locked, advised, or watched) is one again.
        match follows {
            Some(last) if last.path == candidate.path && !last.guarded => last.addresses.end = candidate.addresses.end,
            _ => found.push(candidate),
        }
    }
    found.retain(|candidate| candidate.size() >= SMALLEST);
    found
}

/// `7f00-7f10 rw-p 00000000 00:00 0    /path with spaces (deleted)`, with its permissions.
fn candidate(line: &str) -> Option<(Candidate, &str)> {
    let mut words = line.splitn(6, ' ');
    let (first, last) = words.next()?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let permissions = words.next()?;
    let path = words.nth(3).unwrap_or_default().trim().to_owned();
    Some((Candidate { addresses: number(first)?..number(last)?, path, guarded: false }, permissions))
}

/// Where every block of memory is; of an address space that may not be read, why not.
pub(super) fn find(command: &CommandLine, maps: Result<&str, &UnknownMemory>) -> Found {
    let mut found = Found::default();
    let mut free = candidates(maps.unwrap_or_default());
    // QEMU maps its memory from the top of the address space down.
    free.sort_by_key(|candidate| std::cmp::Reverse(candidate.addresses.start));
    let mut wanted = command.backends.clone();
    wanted.retain(|backend| match named_after(backend, &mut free) {
        Some(region) => found.blocks.insert(backend.id.clone(), Ok(region)).is_some(),
        None => true,
    });
    wanted.extend(command.unnamed_memory().map(|size| memory_without_backend(size, &free)));
    while let Some(first) = wanted.first().cloned() {
        let alike = |backend: &Backend| backend.size == first.size && same_source(&backend.kind, &first.kind);
        let (group, rest): (Vec<Backend>, Vec<Backend>) = wanted.into_iter().partition(alike);
        wanted = rest;
        let taken = maps.map_err(Clone::clone).and_then(|_| take(&group, &mut free));
        for (at, backend) in group.iter().enumerate() {
            let region = taken.as_ref().map(|regions| regions[at].clone()).map_err(Clone::clone);
            found.blocks.insert(backend.id.clone(), region);
        }
    }
    found.later = plugged_later(command, &free);
    found
}

/// What looks like blocks of memory and is on no command line: no more than may be plugged in.
fn plugged_later(command: &CommandLine, free: &[Candidate]) -> Vec<Region> {
    let at_start = command.memory.unwrap_or_default();
    let mut room = command.most_memory.unwrap_or_default().saturating_sub(at_start).0;
    let mut later = Vec::new();
    for candidate in free {
        let Some(addresses) = plugged_block(candidate).filter(|block| block.end - block.start <= room) else {
            continue;
        };
        room -= addresses.end - addresses.start;
        let (path, kind) = (candidate.path.clone(), candidate.kind());
        later.push(Region { backend: None, addresses, kind, path, page_size: None, evidence: RegionEvidence::Size });
    }
    later
}

/// Its upper part, if that looks like a block: what is below it may be QEMU's own.
fn plugged_block(candidate: &Candidate) -> Option<Range<u64>> {
    let is_memory = matches!(candidate.kind(), RegionKind::Anonymous | RegionKind::HugePages)
        || candidate.is_memfd()
        || candidate.path.contains("qemu_back_mem");
    let end = candidate.addresses.end;
    let own = candidate.size() % PLUGGED;
    let fits = own < MOST_MERGED && (own == 0 || candidate.path.is_empty());
    let is_block = is_memory && candidate.guarded && fits && end.is_multiple_of(ALIGNMENT);
    let start = end - (candidate.size() - own);
    (is_block && start < end).then_some(start..end)
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

/// QEMU's file in a directory is `qemu_back_mem.NAME.` and six random letters, with letters of NAME that a file name cannot have replaced.
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

/// One mapping for each of a group of backends that look alike.
fn take(group: &[Backend], free: &mut Vec<Candidate>) -> Result<Vec<Region>, UnknownMemory> {
    let Some(first) = group.first() else { return Ok(Vec::new()) };
    let fits = |candidate: &Candidate| match &first.kind {
        BackendKind::Anonymous => candidate.path.is_empty() || candidate.path.starts_with("/dev/zero"),
        BackendKind::Memfd { .. } => candidate.is_memfd() || candidate.kind() == RegionKind::HugePages,
        BackendKind::File { path } => candidate.path.starts_with(path.as_str()),
    };
    let exact = |candidate: &Candidate| fits(candidate) && candidate.size() == first.size.0;
    let merged = |candidate: &Candidate| {
        fits(candidate)
            && candidate.path.is_empty()
            && (first.size.0..first.size.0 + MOST_MERGED).contains(&candidate.size())
    };
    let mut chosen: Vec<usize> = positions(free, exact);
    if chosen.len() < group.len() {
        chosen = positions(free, merged);
    }
    let found = chosen.len();
    if found > group.len() {
        chosen.retain(|&at| free[at].guarded);
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
    let evidence = if group.len() == 1 { RegionEvidence::Size } else { RegionEvidence::Order };
    let regions = group.iter().zip(&chosen).map(|(backend, &at)| region(backend, &free[at], evidence)).collect();
    for &at in chosen.iter().rev() {
        free.remove(at);
    }
    Ok(regions)
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
    Region { backend: id, addresses: start..end, kind, path: candidate.path.clone(), page_size: None, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> CommandLine {
        CommandLine::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    fn find(command: &CommandLine, maps: &str) -> BTreeMap<String, Region> {
        let found = super::find(command, Ok(maps));
        found.blocks.into_iter().filter_map(|(id, region)| Some((id, region.ok()?))).collect()
    }

    const TWO: &str = "qemu -object memory-backend-ram,id=m0,size=16M -object memory-backend-ram,id=m1,size=16M";

    #[test]
    fn equal_backends_lie_below_each_other() {
        let maps = "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 \n7f0001000000-7f0001001000 ---p 00000000 00:00 0 \n\
                    7f0001200000-7f0002200000 rw-p 00000000 00:00 0 \n7f0010000000-7f0010021000 rw-p 00000000 00:00 0 \n\
                    7ffc00000000-7ffc01000000 rw-p 00000000 00:00 0   [stack]\n7f0020000000-7f0021000000 rwxp 00000000 00:00 0 \n";
        let found = find(&command(TWO), maps);
        assert_eq!(found["m0"].addresses, 0x7f00_0120_0000..0x7f00_0220_0000);
        assert_eq!(found["m1"].addresses, 0x7f00_0000_0000..0x7f00_0100_0000);
        assert_eq!(found["m1"].evidence, RegionEvidence::Order);
    }

    #[test]
    fn three_mappings_for_two_backends_are_no_answer() {
        let one = |start: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0 \n", start, start + (16 << 20));
        let maps = one(0x1000_0000) + &one(0x2000_0000) + &one(0x3000_0000);
        let said = super::find(&command(TWO), Ok(&maps)).blocks["m1"].clone().unwrap_err().to_string();
        let expected =
            "3 parts of QEMU's memory have the size of backend m0 (16 MiB), and which is the guest's cannot be told";
        assert_eq!(said, expected);
        // Two have the page above them that QEMU's blocks have.
        let guard = |end: u64| format!("{:x}-{:x} ---p 00000000 00:00 0 \n", end, end + 4096);
        let maps = one(0x1000_0000) + &guard(0x1100_0000) + &one(0x2000_0000) + &one(0x3000_0000) + &guard(0x3100_0000);
        assert_eq!(find(&command(TWO), &maps)["m1"].addresses.start, 0x1000_0000);
    }

    #[test]
    fn a_region_that_was_split_or_merged_is_whole() {
        let single = command("qemu -m 32");
        let split = "10000000-10800000 rw-p 00000000 00:00 0 \n10800000-12000000 rw-p 00000000 00:00 0 \n";
        assert_eq!(find(&single, split)[""].addresses.start, 0x1000_0000);
        // 32 MiB of the guest with 1 MiB of QEMU's own merged below: the guest's memory is the upper part.
        let merged = "0ff00000-12000000 rw-p 00000000 00:00 0 \n";
        assert_eq!(find(&single, merged)[""].addresses.start, 0x1000_0000);
    }

    #[test]
    fn blocks_that_were_plugged_in_later_are_whole_and_have_a_guard() {
        let guard = |end: u64| format!("{:x}-{:x} ---p 00000000 00:00 0 \n", end, end + 4096);
        let block = |start: u64, end: u64| format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n");
        let (own, end) = (0x7f00_0000_0000 - (3 << 20), 0x7f00_0800_0000); // 3 MiB of QEMU's own below 128 MiB
        let main = block(0x7f10_0000_0000, 0x7f10_0400_0000) + &guard(0x7f10_0400_0000);
        let maps = block(own, end) + &guard(end) + &block(0x7f01_0000_0000, 0x7f01_0800_0000) + &main;
        let found = super::find(&command("qemu -m 64,slots=2,maxmem=1G"), Ok(&maps));
        let [late] = &found.later[..] else { panic!("{found:?}") };
        assert_eq!(late.addresses, 0x7f00_0000_0000..end);
        // Nothing can be plugged in: then it is something else.
        assert!(super::find(&command("qemu -m 64"), Ok(&maps)).later.is_empty());
    }

    #[test]
    fn files_are_known_by_their_names() {
        let line = "qemu -object memory-backend-file,id=ram-node1,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M \
                    -object memory-backend-file,id=ram-node0,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M";
        let maps = "7f0000000000-7f0001000000 rw-s 00000000 00:0f 41 /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node1.Xy12Ab (deleted)\n\
                    7f0002000000-7f0003000000 rw-s 00000000 00:0f 42 /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node0.ab12XY (deleted)\n";
        let found = find(&command(line), maps);
        assert_eq!(found["ram-node1"].addresses.start, 0x7f00_0000_0000);
        let region = &found["ram-node0"];
        assert_eq!(
            (region.addresses.start, region.kind, region.evidence),
            (0x7f00_0200_0000, RegionKind::HugePages, RegionEvidence::Path)
        );
    }

    #[test]
    fn a_memory_file_is_found_by_its_size() {
        let line = "qemu -object memory-backend-memfd,id=a,size=16M,share=on -object memory-backend-memfd,id=b,size=32M,share=on";
        let maps = "7f0000000000-7f0001000000 rw-s 00000000 00:01 1033 /memfd:memory-backend-memfd (deleted)\n\
                    7f0002000000-7f0004000000 rw-s 00000000 00:01 1034 /memfd:memory-backend-memfd (deleted)\n";
        let found = find(&command(line), maps);
        assert_eq!(found["b"].addresses.start, 0x7f00_0200_0000);
        assert_eq!((found["a"].kind, found["a"].evidence), (RegionKind::Memfd, RegionEvidence::Size));
    }
}
