//! The mappings of a process that could be a guest's memory, from the text of `/proc/PID/maps`.

use super::RegionKind;
use std::ops::Range;

/// A writable mapping that guest memory could be, from a line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) addresses: Range<u64>,
    pub(super) path: String,
    /// Of a private mapping of a file: the device that the file is on, as `maps` writes it.
    pub(super) private_on: Option<String>,
    /// A page (or a few) that nobody may touch follows.
    pub(super) guarded: bool,
}

impl Candidate {
    pub(super) fn size(&self) -> u64 {
        self.addresses.end - self.addresses.start
    }

    /// Whether both are of the same file and mapped the same way.
    fn is_one_with(&self, next: &Self) -> bool {
        self.path == next.path && self.private_on == next.private_on
    }

    pub(super) fn is_memfd(&self) -> bool {
        self.path.starts_with("/memfd:memory-backend-memfd") || self.path.starts_with("/dev/zero")
    }

    pub(super) fn kind(&self) -> RegionKind {
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

/// The page above a block, merged perhaps with that of a stack.
const MOST_GUARD: u64 = 64 << 10;

/// Those of at least 1 MiB.
pub(super) fn candidates(maps: &str) -> Vec<Candidate> {
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
            Some(last) if last.is_one_with(&candidate) && !last.guarded => last.addresses.end = candidate.addresses.end,
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
    let device = words.nth(1)?;
    let path = words.nth(1).unwrap_or_default().trim().to_owned();
    let private_on = (permissions.ends_with('p') && !path.is_empty()).then(|| device.to_owned());
    let addresses = number(first)?..number(last)?;
    (addresses.start <= addresses.end)
        .then_some((Candidate { addresses, path, private_on, guarded: false }, permissions))
}
