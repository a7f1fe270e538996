//! VMs that are being started: what they will hold of the host, told to everybody who plans or
//! balances meanwhile.
//!
//! **Problem.** To fill a VM's memory takes seconds to minutes. Until then the kernel shows that
//! memory as free, and two starts at the same time would count on the same bytes and CPUs.
//!
//! **Rule.** Whoever starts VMs plans them under the placement lock
//! ([`crate::RuntimeDir::lock_placement`]), writes down what they will hold
//! ([`crate::PlacementLock::reserve`]), and lets the lock go; only then QEMU is started. The
//! reservation is taken back when QEMU has filled the memory and bound the vCPUs, or when the start
//! failed.
//!
//! **Properties.**
//! - Starts wait for each other's planning, never for each other's memory.
//! - A reader sees a reservation whole or not at all. Root's can be read by everybody: the
//!   balancer's service has a user of its own.
//! - It counts as long as its writer lives. What a killed writer left is removed by whoever has the
//!   placement lock next.
//! - What a VM has filled already is missing from the node's free memory, so that it counts once
//!   ([`occupancy`]).
//!
//! **Example.** A node has 10 GiB free. A reserves 6 GiB and has filled 2 of them: 8 GiB are free,
//! 4 GiB of which are A's. B may have 4 GiB.

use crate::QemuError;
use linux::named_file::{self, NewFile};
use linux::process::Identity;
use scheduler::{Observation, Occupancy, VmObservation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use topology::{Bytes, CpuSet, LlcId, Machine, NodeId};
use vm::NodeUse;

/// Files of reservations begin with it; no VM's name begins with a dot.
const PREFIX: &str = ".starting-";
/// A file that is being written.
const UNFINISHED: &str = "new";

/// A VM that is planned and not yet where it will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Its name.
    pub vm: String,
    /// What it will hold of each node: the guest's memory, and QEMU's own.
    pub holdings: BTreeMap<NodeId, NodeUse>,
    /// Of the host's memory, what is taken at the start. `None`: all that it will hold.
    #[serde(default)]
    pub taken: Option<Bytes>,
    /// Size of the huge pages that the guest's memory is made of.
    #[serde(default)]
    pub huge_pages: Option<Bytes>,
    /// Hardware threads that its vCPUs are bound to 1:1.
    #[serde(default)]
    pub bound_cpus: CpuSet,
    /// vCPUs that will be bound to last-level caches, by cache.
    #[serde(default)]
    pub caches: BTreeMap<LlcId, u32>,
}

impl Reserved {
    /// Memory on all nodes.
    pub fn memory(&self) -> Bytes {
        self.holdings.values().map(|held| held.memory).sum()
    }

    /// Of the host's memory, what is taken at the start.
    pub(crate) fn to_fill(&self) -> Bytes {
        self.taken.unwrap_or_else(|| self.memory())
    }

    /// Its QEMU, once there is one.
    fn qemu<'a>(&self, running: &'a Observation) -> Option<&'a VmObservation> {
        running.vms.iter().find(|vm| self.is_of(vm))
    }

    /// Whether a VM is this one: any user can give a process its name.
    fn is_of(&self, vm: &VmObservation) -> bool {
        vm.vm.name == self.vm && !vm.stranger
    }
}

/// The file's contents. It counts as long as the process that wrote it lives.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    starter: Identity,
    vms: Vec<Reserved>,
}

impl Contents {
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&named_file::read(path, topology::input::LONGEST_FILE, &[]).ok()?).ok()
    }
}

/// What VMs that are being started will hold. Dropping it takes the reservation back.
#[derive(Debug)]
#[must_use = "dropping it takes the reservation back"]
pub struct Reservation(PathBuf);

impl Reservation {
    /// Writes one into a runtime directory. Only the holder of the directory's placement lock may.
    pub(crate) fn write(directory: &Path, vms: Vec<Reserved>) -> Result<Self, QemuError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let vm = || vms.iter().map(|reserved| reserved.vm.as_str()).collect::<Vec<_>>().join(", ");
        let starter = Identity::of(std::process::id()).map_err(|error| QemuError::host(&vm())(error))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{PREFIX}{}-{number}.json", starter.pid));
        let contents = Contents { starter, vms };
        let write = || -> io::Result<()> {
            let mut new = NewFile::beside(&path, UNFINISHED, &[])?;
            new.file.write_all(&serde_json::to_vec(&contents)?)?;
            // The balancer's service reads it, whatever root's umask.
            new.file.set_permissions(Permissions::from_mode(0o644))?;
            new.take_place().map(drop)
        };
        write().map_err(QemuError::directory(format!("write {}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // One that stays counts no longer than this process lives.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)).map(|entry| entry.path())
}

/// VMs that somebody is starting, in the runtime directory at `path`. None where it cannot be read;
/// changes nothing.
pub fn reserved(path: &Path) -> Vec<Reserved> {
    let contents = files(path).filter_map(|file| Contents::read(&file));
    contents.filter(|contents| contents.starter.is_alive()).flat_map(|contents| contents.vms).collect()
}

/// Removes what killed starters left. Only the holder of the placement lock may: nobody else writes
/// meanwhile.
pub(crate) fn remove_stale(directory: &Path) {
    for file in files(directory) {
        if Contents::read(&file).is_none_or(|contents| !contents.starter.is_alive()) {
            // One that stays does not count.
            let _ = std::fs::remove_file(&file);
        }
    }
}

/// What VMs that run, and VMs that are being started, hold of a machine. The QEMU of a VM that is
/// being started counts as its reservation says: its threads are not bound yet, and its memory is
/// on its way.
pub fn occupancy(starting: &[Reserved], running: &Observation, machine: &Machine) -> Occupancy {
    let mut settled = running.clone();
    settled.vms.retain(|vm| !starting.iter().any(|reserved| reserved.is_of(vm)));
    let mut occupancy = Occupancy::of_observation(&settled, machine);
    for reserved in starting {
        let there = reserved.qemu(running).map(VmObservation::memory).unwrap_or_default();
        let mut holdings = reserved.holdings.clone();
        if let Some(page) = reserved.huge_pages {
            // The pools, which free memory lacks already, lack only what is filled of them.
            let to_come = |(&node, held): (&NodeId, &NodeUse)| {
                (node, held.resident.saturating_sub(there.get(&node).copied().unwrap_or_default()))
            };
            occupancy.promise_pages(page, holdings.iter().map(to_come));
        } else {
            for (node, resident) in there {
                let held = holdings.entry(node).or_default();
                held.resident = resident;
                held.memory = held.memory.max(resident);
            }
        }
        occupancy.hold(&holdings);
        occupancy.bound_cpus = occupancy.bound_cpus.union(&reserved.bound_cpus);
        occupancy.hold_caches(&reserved.caches);
    }
    occupancy
}

/// Memory that VMs that are being started have not filled yet: it looks free and is not.
pub(crate) fn unfilled(starting: &[Reserved], running: &Observation) -> Bytes {
    let of = |reserved: &Reserved| {
        let resident = reserved.qemu(running).map(VmObservation::memory).unwrap_or_default();
        reserved.to_fill().saturating_sub(resident.into_values().sum())
    };
    starting.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{ClientObservation, VmKey};

    fn mib(mib: u64) -> Bytes {
        Bytes::from_mib(mib)
    }

    fn reserved_vm(vm: &str, mib: u64) -> Reserved {
        let held = NodeUse { vcpus: 2, memory: Bytes::from_mib(mib), resident: Bytes(0), ..NodeUse::default() };
        Reserved {
            vm: vm.to_owned(),
            holdings: BTreeMap::from([(NodeId(0), held)]),
            taken: None,
            huge_pages: None,
            bound_cpus: CpuSet::new(),
            caches: BTreeMap::new(),
        }
    }

    fn process(name: &str, resident_mib: u64) -> VmObservation {
        let key = VmKey { name: name.to_owned(), ..VmKey::default() };
        let memory = Some(BTreeMap::from([(NodeId(0), mib(resident_mib))]));
        let client = ClientObservation { memory, memory_size: mib(1000), ..ClientObservation::default() };
        VmObservation::of_clients(key, vec![client])
    }

    #[test]
    fn it_counts_until_it_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (vec![reserved_vm("a", 128), reserved_vm("b", 64)], vec![reserved_vm("c", 1)]);
        let first = Reservation::write(directory.path(), one.clone()).unwrap();
        assert_eq!(reserved(directory.path()), one);
        let second = Reservation::write(directory.path(), other.clone()).unwrap();
        assert_eq!(reserved(directory.path()).len(), 3);
        drop(first);
        assert_eq!(reserved(directory.path()), other);
        drop(second);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_whose_writer_was_killed_does_not_count_and_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let ours = Reservation::write(directory.path(), vec![reserved_vm("a", 1)]).unwrap();
        // Process 1 began at boot: at no later tick.
        let text = r#"{"starter":{"pid":1,"started_ticks":18446744073709551615},"vms":[{"vm":"b","holdings":{}}]}"#;
        std::fs::write(directory.path().join(".starting-1-0.json"), text).unwrap();
        std::fs::write(directory.path().join(".starting-1-1.json.new"), "{\"sta").unwrap();
        assert_eq!(reserved(directory.path()), [reserved_vm("a", 1)]);
        remove_stale(directory.path());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        drop(ours);
    }

    #[test]
    fn one_that_cannot_be_written_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let gone = directory.path().join("gone");
        let error = Reservation::write(&gone, vec![reserved_vm("a", 1)]).unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains(".starting-"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_that_is_filled_counts_once() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").unwrap();
        let starting = [reserved_vm("a", 1000), reserved_vm("b", 500)];
        let running = Observation { vms: vec![process("a", 300), process("other", 1000)], ..Observation::default() };
        let used = occupancy(&starting, &running, &machine).of(NodeId(0));
        // Promised: 1000 and 500 of those that start, 1000 of the other. There: 300 and 1000.
        assert_eq!(used, NodeUse { vcpus: 4, memory: mib(2500), resident: mib(1300), ..NodeUse::default() });
        assert_eq!(unfilled(&starting, &running), mib(1200)); // 1000 - 300 + 500
    }

    #[test]
    fn a_pool_and_hardware_threads_are_reserved_too() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").unwrap();
        let held = NodeUse { vcpus: 2, memory: mib(1100), resident: mib(1000), ..NodeUse::default() };
        let starting = [Reserved {
            holdings: BTreeMap::from([(NodeId(0), held)]),
            taken: Some(mib(100)),
            huge_pages: Some(mib(2)),
            bound_cpus: "0-1".parse().unwrap(),
            caches: BTreeMap::from([(LlcId(0), 2)]),
            ..reserved_vm("a", 0)
        }];
        // Of 1000 MiB of its pages 300 are filled: 700 are still to come from the pool.
        let running = Observation { vms: vec![process("a", 300)], ..Observation::default() };
        let used = occupancy(&starting, &running, &machine);
        assert_eq!(used.pools[&mib(2).0], BTreeMap::from([(NodeId(0), mib(700))]));
        assert_eq!(used.of(NodeId(0)), held);
        assert_eq!(used.bound_cpus.to_string(), "0-1");
        assert_eq!(used.caches, BTreeMap::from([(LlcId(0), 2)]));
    }

    #[test]
    fn a_strangers_process_of_the_same_name_is_not_taken_for_it() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").unwrap();
        let starting = [reserved_vm("a", 1000)];
        let fake = VmObservation { stranger: true, mapped: Some(mib(0)), ..process("a", 600) };
        let running = Observation { vms: vec![fake], ..Observation::default() };
        // All of it is still to be filled, and what the stranger holds is held beside it.
        assert_eq!(unfilled(&starting, &running), mib(1000));
        let used = occupancy(&starting, &running, &machine).of(NodeId(0));
        assert_eq!(used, NodeUse { vcpus: 2, memory: mib(1600), resident: mib(600), ..NodeUse::default() });
    }
}
