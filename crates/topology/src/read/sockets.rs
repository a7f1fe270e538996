//! Which socket a hardware thread is in, and what that socket is called.
//!
//! The kernel gives a number and a list of the CPUs in the same socket. The list decides; the
//! number is a name. It may be missing or -1 (many arm boards), the same for several sockets
//! (Itanium), or the offset of a firmware table (983040 on arm with ACPI).

use super::cpus::{Leaders, group};
use super::error::ReadError;
use super::sysfs::CPUS;
use super::tree::Tree;
use crate::{CpuId, CpuSet, HardwareThread, SocketId};
use std::collections::{BTreeMap, BTreeSet};

/// The socket of each online CPU, numbered as the kernel does where it gives each socket a number
/// of its own.
pub(super) fn of_cpus(
    tree: &Tree,
    online: &CpuSet,
    members: impl Fn(CpuId) -> Result<Option<CpuSet>, ReadError>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<CpuId, SocketId>, ReadError> {
    let leaders = group(online, false, &members)?;
    // CPUs without a list are one group, unless their numbers tell them apart.
    let unlisted = online.iter().find(|cpu| !leaders.contains_key(cpu));
    let mut numbers = BTreeMap::<CpuId, Option<u32>>::new();
    let mut owners = BTreeMap::<u32, CpuId>::new();
    let mut sockets = BTreeMap::new();
    let mut unknown = Vec::new();
    for cpu in online.iter() {
        let asked = leaders.get(&cpu).copied().unwrap_or(cpu);
        let number = match numbers.get(&asked) {
            Some(number) => *number,
            None => number_of(tree, asked)?,
        };
        numbers.insert(asked, number);
        match number.filter(|&number| is_its_own(number, cpu, &leaders, &mut owners)) {
            Some(number) => {
                sockets.insert(cpu, SocketId(number));
            }
            None => unknown.push((cpu, leaders.get(&cpu).copied().or(unlisted).unwrap_or(cpu))),
        }
    }
    name(&mut sockets, &unknown, notes);
    Ok(sockets)
}

/// Whether no socket with another list of CPUs has the number.
fn is_its_own(number: u32, cpu: CpuId, leaders: &Leaders, owners: &mut BTreeMap<u32, CpuId>) -> bool {
    leaders.get(&cpu).is_none_or(|&leader| *owners.entry(number).or_insert(leader) == leader)
}

fn number_of(tree: &Tree, cpu: CpuId) -> Result<Option<u32>, ReadError> {
    let number = tree.number::<i64>(&format!("{CPUS}/cpu{cpu}/topology/physical_package_id"), "a number")?;
    // The largest is left free, so that a next number always exists.
    Ok(number.and_then(|number| u32::try_from(number).ok()).filter(|&number| number < u32::MAX))
}

/// Gives the next free numbers to groups of CPUs whose socket has none.
fn name(sockets: &mut BTreeMap<CpuId, SocketId>, unknown: &[(CpuId, CpuId)], notes: &mut Vec<String>) {
    let Some(&(first, _)) = unknown.first() else { return };
    let next = sockets.values().map(|socket| socket.0 + 1).max().unwrap_or(0);
    let groups: BTreeSet<CpuId> = unknown.iter().map(|&(_, leader)| leader).collect();
    let numbers: BTreeMap<CpuId, u32> = groups.into_iter().zip(next..).collect();
    sockets.extend(unknown.iter().map(|(cpu, leader)| (*cpu, SocketId(numbers[leader]))));
    notes.push(format!(
        "Linux gives no number of its own for the socket of CPU {first} (physical_package_id is missing, -1, or \
        another socket's): sockets are numbered by the CPUs that they list."
    ));
}

/// A socket number above this and above every CPU's is an offset in a table of the firmware.
const HIGHEST_COUNTED: u32 = 255;

/// Numbers sockets from 0 where their numbers count nothing.
pub(super) fn count_from_zero(threads: &mut [HardwareThread], notes: &mut Vec<String>) {
    let highest = threads.iter().map(|thread| thread.id.0).max().unwrap_or(0).max(HIGHEST_COUNTED);
    let found: BTreeSet<SocketId> = threads.iter().map(|thread| thread.socket).collect();
    if found.iter().all(|socket| socket.0 <= highest) {
        return;
    }
    let numbers: BTreeMap<SocketId, SocketId> = found.iter().copied().zip((0..).map(SocketId)).collect();
    threads.iter_mut().for_each(|thread| thread.socket = numbers[&thread.socket]);
    let last = found.iter().next_back().map_or(0, |socket| socket.0);
    notes.push(format!("Sockets are numbered up to {last} by the firmware: here they count from 0."));
}
