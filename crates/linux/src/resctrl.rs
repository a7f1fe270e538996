//! Memory traffic of each client, where the CPU counts it and resctrl is mounted
//! (Documentation/arch/x86/resctrl.rst).
//!
//! A client whose threads are in a monitoring group of somebody else (libvirt's `<monitor>`) is
//! read there; else a group of its own is made, if that was allowed, and removed when the VM ends.

use crate::root::Root;
use crate::vm::VmClient;
use scheduler::{ClientId, Traffic};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

const MOUNT: &str = "sys/fs/resctrl";

/// Bytes counted since the group was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    local: u64,
    total: u64,
}

#[derive(Debug)]
struct Group {
    directory: PathBuf,
    ours: bool,
    before: Option<(u64, Counted)>,
}

/// The monitoring groups of all clients.
#[derive(Debug, Default)]
pub struct Monitors {
    groups: BTreeMap<(u32, ClientId), Group>,
}

impl Monitors {
    /// Whether this host counts traffic to local and to all memory.
    pub fn is_there(root: &Root) -> bool {
        let features = root.text(&format!("{MOUNT}/info/L3_MON/mon_features")).unwrap_or_default();
        ["mbm_local_bytes", "mbm_total_bytes"].iter().all(|feature| features.lines().any(|line| line == *feature))
    }

    /// Traffic of a client since it was last asked; `None` at first, and where its counters say
    /// nothing. `may_create`: whether a group may be made for it.
    pub fn traffic(
        &mut self,
        root: &Root,
        pid: u32,
        client: &VmClient,
        now_ns: u64,
        may_create: bool,
    ) -> Option<Traffic> {
        let group = match self.groups.entry((pid, client.id)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let made = || if may_create { create(root, pid, client) } else { None };
                new.insert(group_of(root, client).or_else(made)?)
            }
        };
        let now = count(&group.directory);
        let before = group.before.take();
        group.before = now.map(|counted| (now_ns, counted));
        let ((then_ns, then), now) = (before?, now?);
        let seconds = now_ns.saturating_sub(then_ns) as f64 / 1e9;
        if seconds <= 0.0 {
            return None;
        }
        let local = now.local.saturating_sub(then.local) as f64 / seconds;
        let total = now.total.saturating_sub(then.total) as f64 / seconds;
        Some(Traffic { local, remote: (total - local).max(0.0) })
    }

    /// Forgets VMs that ended, and removes the groups that were made for them: the CPU has few.
    pub fn keep(&mut self, is_running: impl Fn(u32) -> bool) {
        self.groups.retain(|(pid, _), group| {
            let keep = is_running(*pid);
            if !keep {
                group.remove();
            }
            keep
        });
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        self.groups.values().for_each(Group::remove);
    }
}

impl Group {
    fn remove(&self) {
        if self.ours {
            // It may be gone already, with the mount.
            let _ = std::fs::remove_dir(&self.directory);
        }
    }
}

/// The group that all threads of a client are in already.
fn group_of(root: &Root, client: &VmClient) -> Option<Group> {
    let entries = std::fs::read_dir(root.join(&format!("{MOUNT}/mon_groups"))).ok()?;
    let holds_all = |directory: &PathBuf| {
        let tasks = std::fs::read_to_string(directory.join("tasks")).unwrap_or_default();
        let tasks: Vec<u32> = tasks.lines().filter_map(|line| line.parse().ok()).collect();
        !client.thread_ids.is_empty()
            && tasks.len() == client.thread_ids.len()
            && client.thread_ids.iter().all(|thread| tasks.contains(thread))
    };
    let directory = entries.flatten().map(|entry| entry.path()).find(holds_all)?;
    // One that an earlier homenode made for it is ours again.
    let ours = directory.file_name().is_some_and(|name| name.to_string_lossy().starts_with("homenode."));
    Some(Group { directory, ours, before: None })
}

fn create(root: &Root, pid: u32, client: &VmClient) -> Option<Group> {
    let directory = root.join(&format!("{MOUNT}/mon_groups/homenode.{pid}.{}", client.id.0));
    std::fs::create_dir_all(&directory).ok()?;
    let group = Group { directory, ours: true, before: None };
    for thread in &client.thread_ids {
        // A thread that another program keeps in a control group cannot be in this one: then
        // nothing is counted.
        if append(&group.directory.join("tasks"), *thread).is_err() {
            group.remove();
            return None;
        }
    }
    Some(group)
}

/// The kernel takes one thread in each write.
fn append(tasks: &Path, thread: u32) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(tasks)?;
    file.write_all(format!("{thread}\n").as_bytes())
}

/// The sum over all L3 caches; `None` where one says `Unavailable` or `Error`.
fn count(directory: &Path) -> Option<Counted> {
    let mut sum = Counted { local: 0, total: 0 };
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    for domain in std::fs::read_dir(directory.join("mon_data")).ok()?.flatten() {
        sum.local = sum.local.saturating_add(number(domain.path().join("mbm_local_bytes"))?);
        sum.total = sum.total.saturating_add(number(domain.path().join("mbm_total_bytes"))?);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn client(threads: &[u32]) -> VmClient {
        VmClient {
            id: ClientId(1),
            virtual_node: Some(1),
            vcpus: vec![0, 1],
            thread_ids: threads.to_vec(),
            ..VmClient::default()
        }
    }

    fn counted(group: &Path, figures: &[(&str, &str, &str)]) {
        for (domain, local, total) in figures {
            let directory = group.join("mon_data").join(domain);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("mbm_local_bytes"), local).unwrap();
            fs::write(directory.join("mbm_total_bytes"), total).unwrap();
        }
    }

    #[test]
    fn traffic_is_what_was_counted_in_the_time_between() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert!(!Monitors::is_there(&root));
        fs::create_dir_all(root.join("sys/fs/resctrl/info/L3_MON")).unwrap();
        fs::write(
            root.join("sys/fs/resctrl/info/L3_MON/mon_features"),
            "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
        )
        .unwrap();
        assert!(Monitors::is_there(&root));

        let mut monitors = Monitors::default();
        let ask = |monitors: &mut Monitors, now_ns| monitors.traffic(&root, 7, &client(&[8, 9]), now_ns, true);
        assert_eq!(ask(&mut monitors, 1_000_000_000), None);
        let group = root.join("sys/fs/resctrl/mon_groups/homenode.7.1");
        assert_eq!(fs::read_to_string(group.join("tasks")).unwrap(), "8\n9\n");
        counted(&group, &[("mon_L3_00", "100", "150"), ("mon_L3_01", "0", "50")]);
        assert_eq!(ask(&mut monitors, 2_000_000_000), None); // the first count
        counted(&group, &[("mon_L3_00", "300", "450"), ("mon_L3_01", "100", "450")]);
        // 2 s: local 400 - 100 = 300, all 900 - 200 = 700, remote 700 - 300 = 400.
        assert_eq!(ask(&mut monitors, 4_000_000_000), Some(Traffic { local: 150.0, remote: 200.0 }));
        counted(&group, &[("mon_L3_00", "Unavailable", "1")]);
        assert_eq!(ask(&mut monitors, 5_000_000_000), None);
    }

    #[test]
    fn a_group_of_somebody_else_is_read_and_never_removed() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let theirs = root.join("sys/fs/resctrl/mon_groups/libvirt-vcpus");
        counted(&theirs, &[("mon_L3_00", "1", "2")]);
        fs::write(theirs.join("tasks"), "8\n9\n").unwrap();
        let mut monitors = Monitors::default();
        assert_eq!(monitors.traffic(&root, 7, &client(&[8, 9]), 1, false), None);
        assert!(monitors.traffic(&root, 7, &client(&[8, 9]), 2, false).is_some());
        assert_eq!(monitors.traffic(&root, 7, &client(&[10]), 2, false).map(|traffic| traffic.local), None);
        monitors.keep(|_| false);
        assert!(theirs.exists());
    }

    #[test]
    fn groups_of_ours_end_with_their_vm() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let mut monitors = Monitors::default();
        monitors.traffic(&root, 7, &client(&[8]), 1, true);
        let group = root.join("sys/fs/resctrl/mon_groups/homenode.7.1");
        assert!(group.exists());
        fs::remove_file(group.join("tasks")).unwrap(); // the kernel's own files go with the directory
        monitors.keep(|pid| pid == 7);
        assert!(group.exists());
        monitors.keep(|_| false);
        assert!(!group.exists());
    }
}
