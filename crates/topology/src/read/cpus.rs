//! Hardware threads: which core, last-level cache, socket and node each belongs to.
//!
//! A file that lists the members of a group is read once, by the first member, not by each: 512
//! CPUs take hundreds of files instead of tens of thousands.

use super::error::ReadError;
use super::sysfs::{CPUS, NODES};
use super::tree::Tree;
use crate::{Bytes, CoreId, CpuId, CpuSet, HardwareThread, Llc, LlcId, NodeId, SocketId};
use std::collections::{BTreeMap, BTreeSet};

/// Which CPUs there are.
pub(super) struct Cpus {
    pub(super) present: CpuSet,
    pub(super) online: CpuSet,
}

impl Cpus {
    /// Reads the lists, or where there are none the directories.
    pub(super) fn read(tree: &Tree) -> Result<Self, ReadError> {
        let listed = |file: &str| tree.list::<CpuId>(&format!("{CPUS}/{file}"));
        let (present, online) = (listed("present")?, listed("online")?);
        let numbered = |directory: &str| tree.numbered(directory, "cpu").into_iter().map(CpuId).collect::<CpuSet>();
        let from_directories = || match numbered(CPUS) {
            own if !own.is_empty() => own,
            // Some captures have the nodes' entries only.
            _ => {
                let nodes =
                    tree.numbered(NODES, "node").into_iter().map(|node| numbered(&format!("{NODES}/node{node}")));
                nodes.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
            }
        };
        let present = present.or_else(|| online.clone()).unwrap_or_else(from_directories);
        let online = match online {
            Some(online) => online,
            None => online_by_file(tree, &present),
        };
        if online.is_empty() {
            return Err(ReadError::NotAMachine { place: tree.place().to_owned(), missing: format!("{CPUS}/online") });
        }
        Ok(Self { present: present.union(&online), online })
    }
}

/// The CPUs whose own file `online` does not say 0, for kernels before 2.6.26; CPU 0 has no such
/// file.
fn online_by_file(tree: &Tree, present: &CpuSet) -> CpuSet {
    let says_no = |cpu: &CpuId| tree.read(&format!("{CPUS}/cpu{cpu}/online")).is_some_and(|text| text.trim() == "0");
    present.iter().filter(|cpu| !says_no(cpu)).collect()
}

/// Groups of CPUs: each online CPU with the first CPU of its group.
pub(super) type Leaders = BTreeMap<CpuId, CpuId>;

/// Groups the online CPUs by the list that the first CPU of each group gives; one without a list is
/// alone, or left out.
pub(super) fn group(
    online: &CpuSet,
    keep_alone: bool,
    members: impl Fn(CpuId) -> Result<Option<CpuSet>, ReadError>,
) -> Result<Leaders, ReadError> {
    let mut leaders = Leaders::new();
    for cpu in online.iter() {
        if leaders.contains_key(&cpu) {
            continue;
        }
        match members(cpu)? {
            Some(listed) => {
                for member in listed.iter().filter(|&member| online.contains(member)) {
                    leaders.entry(member).or_insert(cpu);
                }
                leaders.entry(cpu).or_insert(cpu);
            }
            None if keep_alone => {
                leaders.insert(cpu, cpu);
            }
            None => {}
        }
    }
    Ok(leaders)
}

/// Numbers the groups from 0 in the order of their first CPUs.
pub(super) fn numbered(leaders: &Leaders) -> BTreeMap<CpuId, u32> {
    let firsts: BTreeSet<CpuId> = leaders.values().copied().collect();
    firsts.into_iter().zip(0..).collect()
}

/// Every thread and every last-level cache.
pub(super) fn threads(
    tree: &Tree,
    cpus: &Cpus,
    homes: &BTreeMap<CpuId, NodeId>,
    allowed: Option<&CpuSet>,
    is_intel: bool,
    notes: &mut Vec<String>,
) -> Result<(Vec<HardwareThread>, Vec<Llc>), ReadError> {
    let topology = |cpu: CpuId, file: &str| format!("{CPUS}/cpu{cpu}/topology/{file}");
    let listed = |cpu: CpuId, old: &str, new: &str| {
        tree.list_or_mask::<CpuId>(
            &[topology(cpu, &format!("{old}_list")), topology(cpu, &format!("{new}_list"))],
            &topology(cpu, old),
        )
    };
    let cores = group(&cpus.online, true, |cpu| listed(cpu, "thread_siblings", "core_cpus"))?;
    let core_numbers = numbered(&cores);
    let sockets =
        super::sockets::of_cpus(tree, &cpus.online, |cpu| listed(cpu, "core_siblings", "package_cpus"), notes)?;
    let (cache_of, llcs) = last_level_caches(tree, &cpus.online, &cores)?;
    let capacities = super::capacity::of_cores(tree, &cpus.online, &cores, is_intel, notes)?;
    let mut next_core = core_numbers.len() as u32;
    let mut threads = Vec::with_capacity(homes.len());
    for (id, &node) in cpus.present.iter().filter_map(|id| Some((id, homes.get(&id)?))) {
        let core = cores.get(&id).map(|leader| core_numbers[leader]).unwrap_or_else(|| {
            next_core += 1;
            next_core - 1
        });
        threads.push(HardwareThread {
            id,
            core: CoreId(core),
            llc: cache_of.get(&id).copied(),
            node,
            socket: sockets.get(&id).copied().unwrap_or(SocketId(u32::MAX)),
            online: cpus.online.contains(id),
            allowed: allowed.is_none_or(|allowed| allowed.contains(id)),
            capacity: capacities.get(&id).copied(),
        });
    }
    place_offline(&mut threads, notes);
    super::sockets::count_from_zero(&mut threads, notes);
    Ok((threads, llcs))
}

/// Linux says nothing of an offline CPU but its node: it gets the socket of its node's other
/// threads.
pub(super) fn place_offline(threads: &mut [HardwareThread], notes: &mut Vec<String>) {
    let offline: CpuSet = threads.iter().filter(|thread| !thread.online).map(|thread| thread.id).collect();
    if offline.is_empty() {
        return;
    }
    let mut of_node = BTreeMap::new();
    for thread in threads.iter().filter(|thread| thread.online) {
        of_node.entry(thread.node).or_insert(thread.socket);
    }
    let first = of_node.values().next().copied().unwrap_or(SocketId(0));
    for thread in threads.iter_mut().filter(|thread| !thread.online) {
        thread.socket = of_node.get(&thread.node).copied().unwrap_or(first);
    }
    notes.push(format!(
        "Offline: CPUs {offline}. Linux does not say which core, cache or socket they belong to: each \
        is kept as a core of its own."
    ));
}

/// The last-level cache of each online CPU that names one: the data or unified cache of the highest
/// level.
fn last_level_caches(
    tree: &Tree,
    online: &CpuSet,
    cores: &Leaders,
) -> Result<(BTreeMap<CpuId, LlcId>, Vec<Llc>), ReadError> {
    let found = std::cell::RefCell::new(BTreeMap::new());
    let leaders = group(online, false, |cpu| {
        let Some((directory, level)) = last_level(tree, cpu)? else { return Ok(None) };
        // A list without the CPU itself is not its own (a capture that was made by hand).
        let has_itself = |listed: &CpuSet| listed.contains(cpu);
        let listed = match tree.list(&format!("{directory}/shared_cpu_list"))?.filter(has_itself) {
            Some(listed) => Some(listed),
            None => tree.list_or_mask(&[], &format!("{directory}/shared_cpu_map"))?.filter(has_itself),
        };
        found.borrow_mut().insert(cpu, (level, cache_size(tree, &directory)?));
        // Itanium's kernel lists nobody for caches inside a core.
        let of_core = || cores.iter().filter(|(_, leader)| Some(*leader) == cores.get(&cpu)).map(|(&cpu, _)| cpu);
        Ok(Some(listed.unwrap_or_else(|| of_core().collect())))
    })?;
    let numbers = numbered(&leaders);
    let found = found.into_inner();
    let llc = |(leader, &number): (&CpuId, &u32)| {
        let (level, size) = found.get(leader).copied().unwrap_or((0, None));
        Llc { id: LlcId(number), level, size }
    };
    let llcs = numbers.iter().map(llc).collect();
    Ok((leaders.into_iter().map(|(cpu, leader)| (cpu, LlcId(numbers[&leader]))).collect(), llcs))
}

/// The directory and level of a CPU's last-level cache. Linux lists caches from the core outwards,
/// so the search goes from the last one inwards and ends at the first that is of a lower level.
fn last_level(tree: &Tree, cpu: CpuId) -> Result<Option<(String, u8)>, ReadError> {
    let directory = format!("{CPUS}/cpu{cpu}/cache");
    let mut best: Option<(String, u8)> = None;
    for index in tree.numbered(&directory, "index").into_iter().rev() {
        let cache = format!("{directory}/index{index}");
        let Some(level) = tree.number::<u8>(&format!("{cache}/level"), "a cache level")? else { continue };
        match best {
            Some((_, highest)) if level < highest => break,
            Some((_, highest)) if level == highest => continue,
            _ => {}
        }
        let instructions =
            level == 1 && tree.read(&format!("{cache}/type")).is_some_and(|kind| kind.trim() == "Instruction");
        if !instructions {
            best = Some((cache, level));
        }
    }
    Ok(best)
}

/// A size such as `32768K`.
fn cache_size(tree: &Tree, directory: &str) -> Result<Option<Bytes>, ReadError> {
    let path = format!("{directory}/size");
    let parse = |text: String| text.trim().parse().map_err(|_| tree.error(&path, &text, "a size such as `32768K`"));
    tree.read(&path).map(parse).transpose()
}
