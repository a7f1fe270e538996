//! Monitoring groups of resctrl, one for each client (Documentation/filesystems/resctrl.rst).
//!
//! **Problem.** The CPU counts memory traffic and cache occupancy for a few hundred groups of
//! threads. Others make groups too: libvirt for `<cachetune>`, operators by hand.
//!
//! **Rule.** A client whose threads make up a group of somebody else is read there. Where its
//! threads are in none, and it was allowed, it gets a group of ours, `homenode.PID.START.CLIENT`.
//! What somebody else put together stays so: such a client is unknown. Ours end with the VM, with
//! the balancer, and those that a killed one left when the next begins. A quarter of all groups is
//! left to others, and VMs of strangers get a quarter of ours.

use super::group::{Counters, Group, add, tasks};
use super::readings::{DomainReading, groups_of, is_unassigned};
use super::{CountsNothing, Key, TrafficOptions, Why};
use crate::root::Root;
use crate::vm::{RunningVm, VmClient, started_ticks};
use scheduler::ClientId;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Groups where the kernel does not say how many there may be.
const USUAL_GROUPS: u64 = 256;
/// Looks between two checks that threads are where they were put, and two attempts to make a group
/// where there were none left.
const CHECK_EVERY: u64 = 32;
/// Times that a group is made again after somebody removed it.
const MOST_REMOVALS: u8 = 3;
/// Entries of a directory that are looked at for groups of ours.
const MOST_ENTRIES: usize = 1 << 16;

/// What a measurement is given.
pub(super) struct At<'a> {
    pub(super) root: &'a Root,
    /// Looks so far.
    pub(super) turn: u64,
    pub(super) options: &'a TrafficOptions,
    /// Whether the VM is of a user who is not trusted.
    pub(super) stranger: bool,
    /// Files that may still be kept open.
    pub(super) spare: &'a Cell<usize>,
}

/// The groups of all clients.
#[derive(Debug)]
pub(super) struct Resctrl {
    mount: PathBuf,
    counters: Counters,
    most_own: usize,
    known: BTreeMap<Key, Known>,
    /// By client: times that its group was removed by somebody.
    removals: BTreeMap<Key, u8>,
    /// No group is asked for before this look.
    full_until: u64,
}

#[derive(Debug)]
struct Known {
    directory: PathBuf,
    /// `None`: it could not be opened yet.
    group: Option<Group>,
    ours: bool,
    stranger: bool,
    threads: Vec<u32>,
}

impl Resctrl {
    /// Resctrl where it is mounted.
    ///
    /// # Errors
    /// It is not there, not mounted, or counts nothing: a sentence.
    pub(super) fn find(mount: PathBuf) -> Result<Self, CountsNothing> {
        let text = |file: &str| fs::read_to_string(mount.join("info").join(file)).unwrap_or_default();
        if !mount.is_dir() {
            return Err(CountsNothing("resctrl: neither this CPU nor its kernel has it".to_owned()));
        }
        if !mount.join("info").is_dir() {
            return Err(CountsNothing(format!(
                "resctrl is not mounted: as root, `mount -t resctrl resctrl {}` lets it count",
                mount.display()
            )));
        }
        let counters = Counters::parse(&text("L3_MON/mon_features"));
        if !counters.total && !counters.occupancy {
            return Err(CountsNothing(
                "resctrl: this CPU counts neither memory traffic nor cache occupancy".to_owned(),
            ));
        }
        let groups = text("L3_MON/num_rmids").trim().parse().unwrap_or(USUAL_GROUPS).clamp(1, MOST_ENTRIES as u64);
        Ok(Self {
            counters,
            most_own: (groups * 3 / 4).max(1) as usize,
            mount,
            known: BTreeMap::new(),
            removals: BTreeMap::new(),
            full_until: 0,
        })
    }

    /// Whether it counts traffic, not occupancy alone.
    pub(super) fn counts_traffic(&self) -> bool {
        self.counters.total
    }

    /// What is amiss with how it counts, as a sentence.
    pub(super) fn caveat(&self) -> Option<String> {
        let modes = fs::read_to_string(self.mount.join("info/L3_MON/mbm_assign_mode")).unwrap_or_default();
        let may_assign = modes.contains("[default]") && modes.contains("mbm_event");
        may_assign.then(|| {
            format!(
                "resctrl: this CPU has fewer counters than groups, and they pass from group to group: traffic is \
                unknown now and then. `echo mbm_event > {}/info/L3_MON/mbm_assign_mode` gives them out instead",
                self.mount.display()
            )
        })
    }

    /// What a client's group counted so far.
    pub(super) fn read(&mut self, at: &At<'_>, vm: &RunningVm, client: &VmClient) -> Result<Vec<DomainReading>, Why> {
        let key = (vm.key.pid, client.id);
        if client.thread_ids.is_empty() {
            return Err(Why::NoThreads);
        }
        if let Some(known) = self.known.get(&key) {
            let in_turn = (at.turn + u64::from(vm.key.pid)).is_multiple_of(CHECK_EVERY);
            if in_turn || known.threads != client.thread_ids {
                self.settle(at, vm, client)?;
            }
        } else {
            self.settle(at, vm, client)?;
        }
        let known = self.known.get_mut(&key).ok_or(Why::NoGroup)?;
        match known.read(self.counters, at.spare) {
            Ok(readings) => {
                let assigns = known.ours && is_unassigned(&readings);
                if assigns && (at.turn + u64::from(vm.key.pid)).is_multiple_of(CHECK_EVERY) {
                    assign(&known.directory);
                }
                Ok(readings)
            }
            Err(_) => {
                // Where the group is still there, a domain came or went: it is opened anew.
                if !known.directory.is_dir()
                    && let Some(known) = self.known.remove(&key)
                    && known.ours
                {
                    *self.removals.entry(key).or_default() += 1;
                }
                Err(Why::Silent)
            }
        }
    }

    /// Finds the group of a client, or makes it, and puts its threads there.
    fn settle(&mut self, at: &At<'_>, vm: &RunningVm, client: &VmClient) -> Result<(), Why> {
        let key = (vm.key.pid, client.id);
        let places = places(at, vm.key.pid, &client.thread_ids)?;
        let own_name = name(vm.key.pid, vm.key.started, client.id);
        let all_own = places.iter().all(|(control, monitor)| control.is_empty() && *monitor == own_name);
        let of_nobody = |(control, monitor): &(String, String)| {
            control.is_empty() && (monitor.is_empty() || parse(monitor).is_some())
        };
        let (directory, ours) = if all_own {
            // Who only looks leaves it to the balancer that made it.
            (self.own_directory(&own_name), at.options.may_create)
        } else if places.iter().all(of_nobody) {
            (self.make(at, key, &own_name, client)?, true)
        } else {
            self.forget(key);
            (self.of_others(&places, client)?, false)
        };
        let threads = client.thread_ids.clone();
        match self.known.get_mut(&key).filter(|known| known.directory == directory) {
            Some(known) => known.threads = threads,
            None => {
                drop(self.known.insert(key, Known { directory, group: None, ours, stranger: at.stranger, threads }))
            }
        }
        Ok(())
    }

    /// The group of somebody else that the client's threads make up.
    fn of_others(&self, places: &BTreeSet<(String, String)>, client: &VmClient) -> Result<PathBuf, Why> {
        let [(control, monitor)] = &places.iter().collect::<Vec<_>>()[..] else { return Err(Why::Elsewhere) };
        let control = self.mount.join(control);
        let directory = if monitor.is_empty() { control } else { control.join("mon_groups").join(monitor) };
        let there: BTreeSet<u32> = tasks(&directory).map_err(|_| Why::Elsewhere)?.into_iter().collect();
        if there != client.thread_ids.iter().copied().collect() {
            return Err(Why::Elsewhere);
        }
        Ok(directory)
    }

    /// A group of ours with a client's threads in it.
    fn make(&mut self, at: &At<'_>, key: Key, own_name: &str, client: &VmClient) -> Result<PathBuf, Why> {
        if !at.options.may_create {
            return Err(Why::NoGroup);
        }
        if self.removals.get(&key).is_some_and(|&times| times > MOST_REMOVALS) {
            return Err(Why::TakenAway);
        }
        if !self.known.contains_key(&key) && (at.turn < self.full_until || !self.has_left(at.stranger)) {
            return Err(Why::OutOfGroups);
        }
        let directory = self.own_directory(own_name);
        match fs::create_dir(&directory) {
            Ok(()) => assign_where_nobody_does(&self.mount, &directory),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => {
                let refusal = refusal(&why);
                if refusal == Why::OutOfGroups {
                    self.full_until = at.turn + CHECK_EVERY;
                }
                return Err(refusal);
            }
        }
        let there = tasks(&directory).unwrap_or_default();
        for &thread in client.thread_ids.iter().filter(|thread| !there.contains(thread)) {
            match add(&directory, thread) {
                // It ended.
                Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {}
                Err(why) => {
                    // What it counts of a part of the client means nothing.
                    self.forget(key);
                    let _ = fs::remove_dir(&directory);
                    return Err(refusal(&why));
                }
                Ok(()) => {}
            }
        }
        Ok(directory)
    }

    /// Whether one more group may be made. VMs of strangers together get a quarter of ours: they
    /// could be as many as there are groups.
    fn has_left(&self, stranger: bool) -> bool {
        let ours = || self.known.values().filter(|known| known.ours);
        let of_strangers = ours().filter(|known| known.stranger).count();
        ours().count() < self.most_own && (!stranger || of_strangers < self.most_own.div_ceil(4))
    }

    fn own_directory(&self, name: &str) -> PathBuf {
        self.mount.join("mon_groups").join(name)
    }

    fn forget(&mut self, key: Key) {
        if let Some(known) = self.known.remove(&key) {
            known.remove();
        }
    }

    /// Forgets clients that ended, and removes the groups that were made for them: the CPU has few.
    pub(super) fn keep(&mut self, lives: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.known.keys().filter(|key| !lives(key)).copied().collect();
        gone.into_iter().for_each(|key| self.forget(key));
        self.removals.retain(|key, _| lives(key));
    }

    /// Removes groups that a killed homenode left for VMs that have ended.
    pub(super) fn sweep(&self, root: &Root) {
        let entries = fs::read_dir(self.mount.join("mon_groups")).into_iter().flatten().take(MOST_ENTRIES);
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some((pid, started)) = name.to_str().and_then(parse) else { continue };
            if started_ticks(root, pid).ok() != Some(started) {
                // Another program may have been faster.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    #[cfg(test)]
    pub(super) fn close_files(&mut self) {
        self.known.values_mut().for_each(|known| known.group = None);
    }

    /// Files that are open.
    pub(super) fn open_files(&self) -> usize {
        self.known.values().filter_map(|known| known.group.as_ref()).map(Group::open_files).sum()
    }
}

impl Drop for Resctrl {
    fn drop(&mut self) {
        self.known.values().for_each(Known::remove);
    }
}

impl Known {
    /// What its group says now. Where that fails it is opened anew the next time.
    fn read(&mut self, counters: Counters, spare: &Cell<usize>) -> io::Result<Vec<DomainReading>> {
        let mut group = match self.group.take() {
            Some(group) => group,
            None => Group::open(&self.directory, counters)?,
        };
        let readings = group.read(spare)?;
        self.group = Some(group);
        Ok(readings)
    }

    fn remove(&self) {
        if self.ours {
            // It may be gone already, with the mount.
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// Of a group of ours: the mark, the VM's process with its start, the client.
fn name(pid: u32, started: u64, client: ClientId) -> String {
    format!("homenode.{pid}.{started}.{}", client.0)
}

/// The process of a group of ours, and its start; `None`: it is somebody else's.
fn parse(text: &str) -> Option<(u32, u64)> {
    let mut parts = text.strip_prefix("homenode.")?.split('.');
    let (pid, started, client) =
        (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    (name(pid, started, ClientId(client)) == text).then_some((pid, started))
}

/// Where threads are now; those that ended are left out.
fn places(at: &At<'_>, pid: u32, threads: &[u32]) -> Result<BTreeSet<(String, String)>, Why> {
    if at.options.stand_in {
        return Ok(BTreeSet::from([Default::default()]));
    }
    let (root, mut places) = (at.root, BTreeSet::new());
    for &thread in threads {
        match fs::read_to_string(root.thread(pid, thread, "cpu_resctrl_groups")) {
            Ok(text) => drop(places.insert(groups_of(&text).ok_or(Why::Unsaid)?)),
            Err(_) if !root.thread(pid, thread, "").is_dir() => {}
            Err(_) => return Err(Why::Unsaid),
        }
    }
    if places.is_empty() { Err(Why::NoThreads) } else { Ok(places) }
}

/// Why no group could be made or filled.
pub(super) fn refusal(why: &io::Error) -> Why {
    match why.raw_os_error() {
        // EBUSY: the last ones are given back once what they left in caches has gone.
        Some(libc::ENOSPC | libc::EBUSY) => Why::OutOfGroups,
        Some(libc::EPERM | libc::EACCES | libc::EROFS) => Why::NotPermitted,
        _ => Why::Elsewhere,
    }
}

/// AMD's assignable counters: a new group gets some by itself, unless somebody switched that off.
fn assign_where_nobody_does(mount: &Path, group: &Path) {
    let by_itself = fs::read_to_string(mount.join("info/L3_MON/mbm_assign_on_mkdir")).unwrap_or_default();
    if by_itself.trim() == "0" {
        assign(group);
    }
}

/// Asks for counters on all domains: of all traffic first, for want of which nothing is known. What
/// is not given reads as `Unassigned`.
fn assign(group: &Path) {
    let file = group.join("mbm_L3_assignments");
    for event in ["mbm_total_bytes", "mbm_local_bytes"] {
        if let Ok(mut file) = fs::OpenOptions::new().write(true).open(&file) {
            let _ = io::Write::write_all(&mut file, format!("{event}:*=e\n").as_bytes());
        }
    }
}
