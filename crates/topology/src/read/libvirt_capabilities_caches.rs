//! Last-level caches in libvirt's capabilities: `<host><cache><bank>`.

use super::error::ReadError;
use super::libvirt_capabilities::Values;
use crate::{Bytes, CpuId, CpuSet, Llc, LlcId};
use roxmltree::Node as Element;
use std::collections::{BTreeMap, BTreeSet};

/// Caches have single-digit levels.
const LEVELS: usize = 10;

/// A cache.
pub(super) struct Bank {
    level: u8,
    size: Option<Bytes>,
    cpus: CpuSet,
}

/// The caches that hold data. No CPU has two of one level: of several the first counts, and a note
/// says so.
pub(super) fn read(
    values: &Values<'_>,
    host: Element<'_, '_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Bank>, ReadError> {
    let listed = host.children().filter(|child| child.has_tag_name("cache"));
    let mut banks = Vec::new();
    let mut taken = BTreeSet::<(u8, CpuId)>::new();
    let mut twice = CpuSet::new();
    for bank in listed.flat_map(|cache| cache.children()).filter(|child| child.has_tag_name("bank")) {
        if bank.attribute("type").is_some_and(|kind| matches!(kind, "code" | "instruction")) {
            continue;
        }
        let level = values.id(bank, "level", LEVELS)? as u8;
        let Some(cpus) = values.set(bank, "cpus", super::MOST_THREADS)? else { continue };
        let (cpus, again): (Vec<CpuId>, Vec<CpuId>) = cpus.iter().partition(|&cpu| taken.insert((level, cpu)));
        twice.extend(again);
        let size = bank.attribute("size").map(|size| values.amount(bank, size, "B")).transpose()?;
        banks.push(Bank { level, size: size.filter(|size| size.0 > 0), cpus: cpus.into_iter().collect() });
    }
    if !twice.is_empty() {
        notes.push(format!(
            "libvirt gives CPUs {twice} several caches of one level: the first that holds data is taken as theirs."
        ));
    }
    Ok(banks)
}

/// The last-level cache of each CPU that has one, numbered by their first CPUs, and the caches
/// themselves.
pub(super) fn last_level(
    mut banks: Vec<Bank>,
    online: &CpuSet,
    llcs: &mut Vec<Llc>,
    notes: &mut Vec<String>,
) -> BTreeMap<CpuId, LlcId> {
    if banks.is_empty() {
        notes.push(
            "libvirt names no cache (it knows those of level 3 and above): which CPUs share one is unknown.".to_owned(),
        );
    }
    let mut found = BTreeMap::<CpuId, usize>::new();
    banks.sort_by_key(|bank| (std::cmp::Reverse(bank.level), bank.cpus.iter().next()));
    for (index, bank) in banks.iter().enumerate() {
        for cpu in bank.cpus.iter().filter(|&cpu| online.contains(cpu)) {
            found.entry(cpu).or_insert(index);
        }
    }
    let mut numbers = BTreeMap::<usize, LlcId>::new();
    let mut caches = BTreeMap::new();
    for (cpu, index) in found {
        let next = LlcId(numbers.len() as u32);
        let id = *numbers.entry(index).or_insert_with(|| {
            llcs.push(Llc { id: next, level: banks[index].level, size: banks[index].size });
            next
        });
        caches.insert(cpu, id);
    }
    caches
}
