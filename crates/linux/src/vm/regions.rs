//! Where in QEMU's address space a VM's memory is, told from `/proc/PID/maps` and the command line: no monitor is needed.
//!
//! `maps` is read and not `numa_maps`: the latter walks every page table of the process.

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

/// A writable mapping that guest memory could be, from a line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    addresses: Range<u64>,
    path: String,
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

fn candidates(maps: &str) -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for line in maps.lines() {
        let Some(candidate) = candidate(line) else { continue };
        // A region that was split (part of it locked, advised, or watched) is one again.
        match found.last_mut() {
            Some(last) if last.addresses.end == candidate.addresses.start && last.path == candidate.path => {
                last.addresses.end = candidate.addresses.end;
            }
            _ => found.push(candidate),
        }
    }
    found.retain(|candidate| candidate.size() >= SMALLEST);
    found
}

/// `7f00-7f10 rw-p 00000000 00:00 0    /path with spaces (deleted)`.
fn candidate(line: &str) -> Option<Candidate> {
    let mut words = line.splitn(6, ' ');
    let (first, last) = words.next()?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    // Memory that may be executed is the code that QEMU's emulation makes.
    if !words.next()?.starts_with("rw-") {
        return None;
    }
    let path = words.nth(3).unwrap_or_default().trim();
    let stack_or_heap = path.starts_with('[');
    (!stack_or_heap).then_some(Candidate { addresses: number(first)?..number(last)?, path: path.to_owned() })
}

/// The regions of every backend, by id; memory without a backend has the id ``.
pub(super) fn find(command: &CommandLine, maps: &str) -> BTreeMap<String, Vec<Region>> {
    let mut free = candidates(maps);
    // QEMU maps its memory from the top of the address space down.
    free.sort_by_key(|candidate| std::cmp::Reverse(candidate.addresses.start));
    let mut found = BTreeMap::new();
    let mut wanted = command.backends.clone();
    if wanted.is_empty() {
        wanted.extend(memory_without_backend(command, &free));
    }
    wanted.retain(|backend| match named_after(backend, &mut free) {
        Some(region) => found.insert(backend.id.clone(), vec![region]).is_some(),
        None => true,
    });
    while let Some(first) = wanted.first().cloned() {
        let alike = |backend: &Backend| backend.size == first.size && same_source(&backend.kind, &first.kind);
        let (group, rest): (Vec<Backend>, Vec<Backend>) = wanted.into_iter().partition(alike);
        wanted = rest;
        for (backend, region) in group.iter().zip(take(&group, &mut free)) {
            found.insert(backend.id.clone(), vec![region]);
        }
    }
    found
}

fn same_source(one: &BackendKind, other: &BackendKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// `-m` alone: one block of anonymous memory, or what is largest where even that is not said.
fn memory_without_backend(command: &CommandLine, free: &[Candidate]) -> Option<Backend> {
    let largest = || free.iter().map(Candidate::size).max().map(Bytes);
    let size = command.memory.or_else(largest)?;
    let path = free.iter().find(|candidate| candidate.size() == size.0).map(|candidate| candidate.path.clone());
    let kind = match path {
        Some(path) if path.starts_with("/memfd:") => BackendKind::Memfd { huge: false },
        Some(path) if !path.is_empty() => BackendKind::File { path },
        _ => BackendKind::Anonymous,
    };
    let host_nodes = topology::NodeSet::new();
    Some(Backend { id: String::new(), kind, size, huge_page_size: None, host_nodes, policy: None, prealloc: false })
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

/// One mapping for each of a group of backends that look alike; none where their numbers differ.
fn take(group: &[Backend], free: &mut Vec<Candidate>) -> Vec<Region> {
    let Some(first) = group.first() else { return Vec::new() };
    let fits = |candidate: &Candidate| match &first.kind {
        BackendKind::Anonymous => candidate.path.is_empty(),
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
    if chosen.len() != group.len() {
        return Vec::new();
    }
    let evidence = if group.len() == 1 { RegionEvidence::Size } else { RegionEvidence::Order };
    let regions = group.iter().zip(&chosen).map(|(backend, &at)| region(backend, &free[at], evidence)).collect();
    for &at in chosen.iter().rev() {
        free.remove(at);
    }
    regions
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
        CommandLine::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn starts(command: &CommandLine, maps: &str) -> BTreeMap<String, Vec<u64>> {
        let starts = |regions: Vec<Region>| regions.into_iter().map(|region| region.addresses.start).collect();
        find(command, maps).into_iter().map(|(id, regions)| (id, starts(regions))).collect()
    }

    const TWO: &str = "qemu -object memory-backend-ram,id=m0,size=16M -object memory-backend-ram,id=m1,size=16M";

    #[test]
    fn equal_backends_lie_below_each_other() {
        let maps = "7f0000000000-7f0001000000 rw-p 00000000 00:00 0 \n7f0001000000-7f0001001000 ---p 00000000 00:00 0 \n\
                    7f0001200000-7f0002200000 rw-p 00000000 00:00 0 \n7f0010000000-7f0010021000 rw-p 00000000 00:00 0 \n\
                    7ffc00000000-7ffc01000000 rw-p 00000000 00:00 0   [stack]\n7f0020000000-7f0021000000 rwxp 00000000 00:00 0 \n";
        let found = find(&command(TWO), maps);
        assert_eq!(found["m0"][0].addresses, 0x7f00_0120_0000..0x7f00_0220_0000);
        assert_eq!(found["m1"][0].addresses, 0x7f00_0000_0000..0x7f00_0100_0000);
        assert_eq!(found["m1"][0].evidence, RegionEvidence::Order);
    }

    #[test]
    fn three_mappings_for_two_backends_are_no_answer() {
        let one = |start: u64| format!("{:x}-{:x} rw-p 00000000 00:00 0 \n", start, start + (16 << 20));
        let maps = one(0x1000_0000) + &one(0x2000_0000) + &one(0x3000_0000);
        assert!(find(&command(TWO), &maps).is_empty());
    }

    #[test]
    fn a_region_that_was_split_or_merged_is_whole() {
        let single = command("qemu -m 32");
        let split = "10000000-10800000 rw-p 00000000 00:00 0 \n10800000-12000000 rw-p 00000000 00:00 0 \n";
        assert_eq!(starts(&single, split)[""], [0x1000_0000]);
        // 32 MiB of the guest with 1 MiB of QEMU's own merged below: the guest's memory is the upper part.
        let merged = "0ff00000-12000000 rw-p 00000000 00:00 0 \n";
        assert_eq!(starts(&single, merged)[""], [0x1000_0000]);
    }

    #[test]
    fn files_are_known_by_their_names() {
        let line = "qemu -object memory-backend-file,id=ram-node1,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M \
                    -object memory-backend-file,id=ram-node0,mem-path=/dev/hugepages/libvirt/qemu/1-vm,size=16M";
        let maps = "7f0000000000-7f0001000000 rw-s 00000000 00:0f 41 /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node1.Xy12Ab (deleted)\n\
                    7f0002000000-7f0003000000 rw-s 00000000 00:0f 42 /dev/hugepages/libvirt/qemu/1-vm/qemu_back_mem._objects_ram-node0.ab12XY (deleted)\n";
        let found = find(&command(line), maps);
        assert_eq!(found["ram-node1"][0].addresses.start, 0x7f00_0000_0000);
        let region = &found["ram-node0"][0];
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
        assert_eq!(found["b"][0].addresses.start, 0x7f00_0200_0000);
        assert_eq!((found["a"][0].kind, found["a"][0].evidence), (RegionKind::Memfd, RegionEvidence::Size));
    }
}
