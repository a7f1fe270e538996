//! How much memory new programs can have here, and whom the kernel killed for lack of it.
//!
//! A program may run out of memory long before the host does: where a cgroup that it is in has a
//! limit (a container, a systemd slice, a batch job). Both layouts of cgroups are read, each limit
//! up to the root.

use crate::error::{LinuxError, read_text};
use crate::root::Root;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use topology::Bytes;

/// Memory that new programs can have without swapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// What the host has in all, or what the limit allows in all.
    pub total: Bytes,
    /// Of that, what can be had now.
    pub available: Bytes,
    /// The cgroup whose limit decides: its directory. `None` where it is the host.
    pub limited_by: Option<PathBuf>,
}

/// Memory for programs that this process starts.
///
/// # Errors
/// `/proc/meminfo` does not say.
pub fn available() -> Result<Room, LinuxError> {
    available_in(&Root::default())
}

fn available_in(root: &Root) -> Result<Room, LinuxError> {
    let path = root.join("proc/meminfo");
    let meminfo = read_text(&path)?;
    let field = |name: &'static str| {
        let kib = number_after(&meminfo, name).ok_or_else(|| LinuxError::format(&path, name))?;
        Ok(Bytes::from_kib(kib))
    };
    let host = Room { total: field("MemTotal:")?, available: field("MemAvailable:")?, limited_by: None };
    let limits = MemoryCgroup::of_this_process(root).map(|cgroup| cgroup.limits()).unwrap_or_default();
    Ok(limits.into_iter().fold(host, |least, limit| if limit.available < least.available { limit } else { least }))
}

/// The number behind a word at the beginning of a line.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(word)).then(|| words.next()?.parse().ok()).flatten())
}

/// The cgroup that accounts for a process's memory.
#[derive(Clone, Debug)]
struct MemoryCgroup {
    mount: PathBuf,
    directory: PathBuf,
    unified: bool,
}

impl MemoryCgroup {
    fn of_this_process(root: &Root) -> Option<Self> {
        let text = root.text("proc/self/cgroup").ok()?;
        // `4:memory:/path` is version 1, `0::/path` version 2.
        let of_version_1 = text.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|controller| controller == "memory").then_some(path)
        });
        let unified = of_version_1.is_none();
        let path = of_version_1.or_else(|| text.lines().find_map(|line| line.strip_prefix("0::")))?;
        let mount = root.join(if unified { "sys/fs/cgroup" } else { "sys/fs/cgroup/memory" });
        // In a container the path may be the host's, and what is mounted is the container's own
        // cgroup.
        let inside = mount.join(path.trim_start_matches('/'));
        let directory = if inside.is_dir() { inside } else { mount.clone() };
        directory.is_dir().then_some(Self { mount, directory, unified })
    }

    /// Of this cgroup and of each above it that has a limit.
    fn limits(&self) -> Vec<Room> {
        let up = self.directory.ancestors().take_while(|directory| directory.starts_with(&self.mount));
        up.filter_map(|directory| self.limit(directory)).collect()
    }

    fn limit(&self, directory: &Path) -> Option<Room> {
        let number = |file: &str| read_text(&directory.join(file)).ok()?.trim().parse::<u64>().ok();
        let (limit, used, cache) = if self.unified {
            ("memory.max", "memory.current", ["inactive_file", "active_file"])
        } else {
            ("memory.limit_in_bytes", "memory.usage_in_bytes", ["total_inactive_file", "total_active_file"])
        };
        // Version 1 writes "no limit" as the largest number of pages.
        let limit = number(limit).filter(|&limit| limit < 1 << 62)?;
        let stat = read_text(&directory.join("memory.stat")).unwrap_or_default();
        let cache: u64 = cache.iter().filter_map(|word| number_after(&stat, word)).sum();
        let used = number(used)?.saturating_sub(cache);
        let limited_by = Some(directory.to_owned());
        Some(Room { total: Bytes(limit), available: Bytes(limit.saturating_sub(used)), limited_by })
    }

    fn kills(&self) -> Option<u64> {
        let file = if self.unified { "memory.events" } else { "memory.oom_control" };
        number_after(&read_text(&self.directory.join(file)).ok()?, "oom_kill")
    }
}

/// How often the kernel has killed for lack of memory. Two readings say whether it did so between
/// them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKills {
    /// On the whole host; `None` where it does not say.
    pub host: Option<u64>,
    /// In the cgroup of this process.
    pub cgroup: Option<u64>,
    /// That cgroup's directory.
    pub directory: Option<PathBuf>,
}

impl OomKills {
    /// Up to now.
    pub fn now() -> Self {
        Self::read(&Root::default())
    }

    fn read(root: &Root) -> Self {
        let vmstat = root.text("proc/vmstat").unwrap_or_default();
        let cgroup = MemoryCgroup::of_this_process(root);
        Self {
            host: number_after(&vmstat, "oom_kill"),
            cgroup: cgroup.as_ref().and_then(MemoryCgroup::kills),
            directory: cgroup.map(|cgroup| cgroup.directory),
        }
    }

    /// What happened since this reading, as words; `None` where nobody was killed for lack of
    /// memory.
    pub fn since(&self) -> Option<String> {
        self.until(&Self::now())
    }

    fn until(&self, later: &Self) -> Option<String> {
        let more = |from: Option<u64>, to: Option<u64>| to?.checked_sub(from?).filter(|&kills| kills > 0);
        // Who looks later may be in another cgroup.
        if self.directory == later.directory && more(self.cgroup, later.cgroup).is_some() {
            let directory = later.directory.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            return Some(format!(
                "the kernel killed for lack of memory in its cgroup {directory} meanwhile (oom_kill there rose)"
            ));
        }
        more(self.host, later.host)
            .map(|_| "the kernel killed for lack of memory meanwhile (oom_kill of /proc/vmstat rose)".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:   800 kB\n");

    #[test]
    fn the_host_decides_where_no_cgroup_has_less() {
        let (_directory, root) = tree(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/user.slice/a.scope\n"),
            ("sys/fs/cgroup/user.slice/a.scope/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "9000000\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "1\n"),
        ]);
        let room = Room { total: Bytes::from_kib(1000), available: Bytes::from_kib(800), limited_by: None };
        assert_eq!(available_in(&root).unwrap(), room);
        assert!(available().unwrap().available > Bytes::MIB);
    }

    #[test]
    fn the_nearest_limit_decides_and_file_cache_can_be_had() {
        let (_directory, root) = tree(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/job/vm\n"),
            ("sys/fs/cgroup/job/memory.max", "500000\n"),
            ("sys/fs/cgroup/job/memory.current", "300000\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 40000\nactive_file 60000\n"),
            ("sys/fs/cgroup/job/vm/memory.max", "400000\n"),
            ("sys/fs/cgroup/job/vm/memory.current", "10000\n"),
        ]);
        // job: 500000 - (300000 - 100000) = 300000; vm: 400000 - 10000 = 390000.
        let room = available_in(&root).unwrap();
        assert_eq!((room.total, room.available), (Bytes(500_000), Bytes(300_000)));
        assert!(room.limited_by.unwrap().ends_with("job"));
    }

    #[test]
    fn version_1_has_its_own_files_and_a_container_sees_its_own_root() {
        let (_directory, root) = tree(&[
            MEMINFO,
            ("proc/self/cgroup", "5:devices:/x\n4:memory:/docker/abc\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "600000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 5000\n"),
            ("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            ("proc/vmstat", "pgfault 7\noom_kill 9\n"),
        ]);
        assert_eq!(available_in(&root).unwrap().available, Bytes(505_000)); // 600000 - (100000 - 5000)
        let before = OomKills::read(&root);
        assert_eq!((before.host, before.cgroup), (Some(9), Some(3)));
        assert_eq!(before.until(&before), None);
        let on_host = OomKills { host: Some(10), ..before.clone() };
        assert!(before.until(&on_host).unwrap().contains("/proc/vmstat"));
        let in_cgroup = OomKills { cgroup: Some(4), ..on_host };
        assert!(before.until(&in_cgroup).unwrap().contains("sys/fs/cgroup/memory"));
    }
}
