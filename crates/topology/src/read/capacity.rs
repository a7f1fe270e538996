//! Cores of different strength on one machine.
//!
//! arm gives `cpu_capacity`. Hybrid x86 processors have one PMU a kind of core
//! (`/sys/devices/cpu_core`, `cpu_atom`, `cpu_lowpower`); how strong a kind is comes from ACPI CPPC
//! or, failing that, the highest clock.

use super::error::ReadError;
use super::sysfs::CPUS;
use super::tree::Tree;
use crate::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// Capacity of the largest core, as in the kernel (`SCHED_CAPACITY_SCALE`).
const LARGEST: u64 = 1024;
const HYBRID_KINDS: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];

/// Capacity of each online CPU relative to the largest; empty where all are alike.
pub(super) fn of_cores(
    tree: &Tree,
    online: &CpuSet,
    cores: &BTreeMap<CpuId, CpuId>,
    is_intel: bool,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<CpuId, u32>, ReadError> {
    let stated = stated(tree, online, cores)?;
    let mut raw = if stated.is_empty() { hybrid(tree, online, notes)? } else { stated };
    if raw.is_empty() && is_intel {
        raw = by_performance(tree, online, cores, notes)?;
    }
    let largest = raw.values().copied().max().unwrap_or(0);
    if largest == 0 || raw.values().all(|&capacity| capacity == largest) {
        return Ok(BTreeMap::new());
    }
    let scaled = |capacity: u64| capacity.saturating_mul(LARGEST).div_ceil(largest).clamp(1, LARGEST) as u32;
    // A CPU that says nothing is taken as a large one.
    Ok(online.iter().map(|cpu| (cpu, scaled(raw.get(&cpu).copied().unwrap_or(largest)))).collect())
}

/// Kinds of core where the PMUs that would name them are missing, as in captures by others: cores
/// of Intel whose CPPC says that they reach three quarters of the strongest at most. Favoured cores
/// of one kind differ by less; on AMD the figure is a rank.
fn by_performance(
    tree: &Tree,
    online: &CpuSet,
    cores: &BTreeMap<CpuId, CpuId>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<CpuId, u64>, ReadError> {
    // A processor that is not hybrid has this PMU instead.
    if !tree.names("sys/devices/cpu").is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut reached = BTreeMap::<CpuId, u64>::new();
    for &core in cores.values() {
        if reached.contains_key(&core) {
            continue;
        }
        let path = format!("{CPUS}/cpu{core}/acpi_cppc/highest_perf");
        let Some(value) = tree.number(&path, "a number")? else { return Ok(BTreeMap::new()) };
        reached.insert(core, value);
    }
    let strongest = reached.values().copied().max().unwrap_or(0);
    let is_weak = |value: u64| value.saturating_mul(4) <= strongest.saturating_mul(3);
    let of_cpu = |cpu: CpuId| cores.get(&cpu).and_then(|core| reached.get(core)).copied().unwrap_or(strongest);
    let weak: CpuSet = online.iter().filter(|&cpu| is_weak(of_cpu(cpu))).collect();
    if weak.is_empty() {
        return Ok(BTreeMap::new());
    }
    notes.push(format!(
        "Cores of several kinds (CPUs {weak} are the weaker ones): their relative capacity is from ACPI \
        CPPC's highest performance."
    ));
    let value = |cpu: CpuId| if weak.contains(cpu) { of_cpu(cpu) } else { strongest };
    Ok(online.iter().map(|cpu| (cpu, value(cpu))).collect())
}

/// `cpu_capacity`, read once a core. Where the first online CPU has none, none has.
fn stated(tree: &Tree, online: &CpuSet, cores: &BTreeMap<CpuId, CpuId>) -> Result<BTreeMap<CpuId, u64>, ReadError> {
    let mut by_core: BTreeMap<CpuId, Option<u64>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for cpu in online.iter() {
        let core = cores.get(&cpu).copied().unwrap_or(cpu);
        if let std::collections::btree_map::Entry::Vacant(e) = by_core.entry(core) {
            e.insert(tree.number(&format!("{CPUS}/cpu{core}/cpu_capacity"), "a capacity up to 1024")?);
        }
        match by_core[&core] {
            Some(capacity) => {
                found.insert(cpu, capacity);
            }
            None if found.is_empty() => break,
            None => {}
        }
    }
    Ok(found)
}

/// Capacities of a hybrid x86 processor's kinds of core.
fn hybrid(tree: &Tree, online: &CpuSet, notes: &mut Vec<String>) -> Result<BTreeMap<CpuId, u64>, ReadError> {
    let mut kinds = Vec::new();
    for kind in HYBRID_KINDS {
        if let Some(cpus) = tree.list::<CpuId>(&format!("sys/devices/{kind}/cpus"))? {
            kinds.push((kind, cpus.intersection(online)));
        }
    }
    kinds.retain(|(_, cpus)| !cpus.is_empty());
    if kinds.len() < 2 {
        return Ok(BTreeMap::new());
    }
    let measure = |file: &str| -> Result<Option<Vec<u64>>, ReadError> {
        let of_kind = |(_, cpus): &(&str, CpuSet)| match cpus.first() {
            Some(cpu) => tree.number::<u64>(&format!("{CPUS}/cpu{cpu}/{file}"), "a number"),
            None => Ok(None),
        };
        kinds.iter().map(of_kind).collect()
    };
    let measured = match measure("acpi_cppc/highest_perf")? {
        Some(values) => Some(("ACPI CPPC's highest performance", values)),
        None => measure("cpufreq/cpuinfo_max_freq")?.map(|values| ("the highest clock", values)),
    };
    // Without a measure: cpu_atom at half, cpu_lowpower at a quarter.
    let assumed = || {
        kinds
            .iter()
            .map(|&(kind, _)| {
                if kind == "cpu_core" {
                    1024
                } else if kind == "cpu_atom" {
                    512
                } else {
                    256
                }
            })
            .collect()
    };
    let (basis, values) =
        measured.unwrap_or_else(|| ("an assumption, since Linux gives neither CPPC nor clocks", assumed()));
    let names: Vec<String> = kinds.iter().map(|(kind, cpus)| format!("{kind} {cpus}")).collect();
    notes.push(format!("Cores of several kinds ({}): their relative capacity is from {basis}.", names.join("; ")));
    let each = kinds.iter().zip(values).flat_map(|((_, cpus), value)| cpus.iter().map(move |cpu| (cpu, value)));
    Ok(each.collect())
}
