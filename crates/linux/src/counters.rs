//! Small figures that the kernel keeps in files: time of threads, CPUs, memory pressure, settings.

use crate::error::LinuxError;
use crate::root::Root;
use crate::sys::clock_ticks_per_second;
use scheduler::{HostSettings, LlcBalancing};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use topology::{Bytes, CpuId, NodeId};

/// Time of a thread since its start (`/proc/PID/task/TID/schedstat`), in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// On a CPU.
    pub ran_ns: u64,
    /// Runnable, and waiting for a CPU: ESXi's ready time.
    pub waited_ns: u64,
}

impl ThreadTime {
    /// Reads it.
    ///
    /// # Errors
    /// The thread ended, or the kernel keeps no such statistics.
    pub fn read(root: &Root, pid: u32, thread_id: u32) -> Result<Self, LinuxError> {
        let path = root.thread(pid, thread_id, "schedstat");
        let read = std::fs::File::open(&path).and_then(|file| Self::read_again(&file));
        let time = read.map_err(|source| LinuxError::Read { path: path.clone(), source })?;
        time.ok_or_else(|| LinuxError::format(&path, "three numbers"))
    }

    /// Reads it from its file, which may stay open: then it stays with its thread, and reads as
    /// `ESRCH` once the thread has ended. `None` if the file says something else.
    ///
    /// # Errors
    /// The thread ended.
    pub fn read_again(file: &std::fs::File) -> std::io::Result<Option<Self>> {
        // Hundreds of these are read in each period: one read, into the stack, holds all of it.
        let mut buffer = [0u8; 128];
        let length = file.read_at(&mut buffer, 0)?;
        Ok(std::str::from_utf8(&buffer[..length]).ok().and_then(Self::parse))
    }

    /// `time on a CPU, time waiting, time slices`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        Some(Self { ran_ns: numbers.next()?.ok()?, waited_ns: numbers.next()?.ok()? })
    }
}

/// Busy time of each CPU that is online since boot, in nanoseconds (`/proc/stat`): user and kernel
/// code, guests included; neither idle, nor waiting for I/O, nor stolen.
///
/// # Errors
/// The file cannot be read.
pub fn busy_by_cpu(root: &Root) -> Result<BTreeMap<CpuId, u64>, LinuxError> {
    Ok(root.text("proc/stat")?.lines().filter_map(busy_of_line).collect())
}

/// `cpu3 user nice system idle iowait irq softirq steal ...`, in clock ticks.
fn busy_of_line(line: &str) -> Option<(CpuId, u64)> {
    let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
    let ticks: Vec<u64> = times.split_whitespace().take(7).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, _, _, irq, softirq] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some((CpuId(cpu.parse().ok()?), busy * 1_000_000_000 / clock_ticks_per_second()))
}

/// Free memory of a node in huge pages, by size of a page in bytes.
pub fn free_huge_pages(root: &Root, node: NodeId) -> BTreeMap<u64, Bytes> {
    let directory = format!("sys/devices/system/node/node{node}/hugepages");
    let Ok(entries) = std::fs::read_dir(root.join(&directory)) else { return BTreeMap::new() };
    let pool = |name: String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = root.number(&format!("{directory}/{name}/free_hugepages"))?;
        Some((kib << 10, Bytes(free.saturating_mul(kib << 10))))
    };
    entries.flatten().filter_map(|entry| pool(entry.file_name().into_string().ok()?)).collect()
}

/// Share of the last 10 s in which some task waited for memory, 0 to 1; `None` where the kernel
/// keeps no pressure statistics. `file` is `proc/pressure/memory`, or `memory.pressure` of a
/// cgroup.
pub fn memory_pressure(root: &Root, file: &str) -> Option<f64> {
    let text = root.text(file).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    Some(percent / 100.0)
}

/// What the kernel is set to do with memory and threads of every VM.
pub fn settings(root: &Root) -> HostSettings {
    let number = |path: &str| root.number(path).and_then(|number| u32::try_from(number).ok());
    // The kernel writes switches as 0 and 1, N and Y, or false and true.
    let switch = |path: &str| match root.text(path).ok()?.trim() {
        "1" | "Y" | "true" => Some(true),
        "0" | "N" | "false" => Some(false),
        _ => None,
    };
    let chosen = |text: String| text.split(['[', ']']).nth(1).map(str::to_owned);
    HostSettings {
        numa_balancing: number("proc/sys/kernel/numa_balancing"),
        zone_reclaim_mode: number("proc/sys/vm/zone_reclaim_mode"),
        demotion_enabled: switch("sys/kernel/mm/numa/demotion_enabled"),
        ksm_runs: number("sys/kernel/mm/ksm/run").map(|run| run == 1),
        ksm_merges_across_nodes: switch("sys/kernel/mm/ksm/merge_across_nodes"),
        transparent_huge_pages: root.text("sys/kernel/mm/transparent_hugepage/enabled").ok().and_then(chosen),
        llc_balancing: llc_balancing(root),
    }
}

/// The first kernel with cache-aware scheduling.
const WITH_LLC_BALANCING: (u32, u32) = (7, 2);

/// Debugfs is root's, and may not be mounted: then the kernel's release says whether there might be
/// something to read.
fn llc_balancing(root: &Root) -> Option<LlcBalancing> {
    match root.number("sys/kernel/debug/sched/llc_balancing/enabled") {
        Some(0) => return Some(LlcBalancing::Off),
        Some(_) => return Some(LlcBalancing::On),
        None => {}
    }
    let readable = root.join("sys/kernel/debug/sched").is_dir();
    let release = root.text("proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map_while(|part| part.parse().ok());
    let release = (numbers.next()?, numbers.next()?);
    (!readable && release >= WITH_LLC_BALANCING).then_some(LlcBalancing::Unreadable)
}

/// Whether the kernel moves memory between nodes by itself (`kernel.numa_balancing`); `None` where
/// it cannot.
pub fn auto_numa(root: &Root) -> Option<bool> {
    root.number("proc/sys/kernel/numa_balancing").map(|mode| mode & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;

    #[test]
    fn cache_aware_scheduling_is_unknown_where_debugfs_is_not_there() {
        let knob = "sys/kernel/debug/sched/llc_balancing/enabled";
        let of = |files: &[(&str, &str)]| llc_balancing(&tree(files).1);
        let release = |release| ("proc/sys/kernel/osrelease", release);
        assert_eq!(of(&[(knob, "1\n")]), Some(LlcBalancing::On));
        assert_eq!(of(&[(knob, "0\n"), release("7.2.13+deb14-cloud-amd64\n")]), Some(LlcBalancing::Off));
        assert_eq!(of(&[release("7.2.13+deb14-cloud-amd64\n")]), Some(LlcBalancing::Unreadable));
        assert_eq!(of(&[release("10.0-rc1\n")]), Some(LlcBalancing::Unreadable));
        // An old kernel; a new one without it; no release.
        assert_eq!(of(&[release("6.12.95\n")]), None);
        assert_eq!(of(&[release("7.3.1\n"), ("sys/kernel/debug/sched/features", "")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn time_on_a_cpu_comes_before_time_waiting() {
        assert_eq!(ThreadTime::parse("123 45 6\n"), Some(ThreadTime { ran_ns: 123, waited_ns: 45 }));
        assert_eq!(ThreadTime::parse(""), None);
        let own = ThreadTime::read(&Root::default(), std::process::id(), std::process::id()).unwrap();
        assert!(own.ran_ns > 0);
    }

    #[test]
    fn each_cpu_has_its_busy_time() {
        let (_directory, root) = tree(&[(
            "proc/stat",
            "cpu  9 9 9 9 9 9 9\ncpu0 100 10 50 1000 40 3 7 20 60 5\ncpu12 1 0 0 5 0 0 0\nintr 5\n",
        )]);
        let tick = 1_000_000_000 / clock_ticks_per_second();
        // 100 + 10 + 50 + 3 + 7 = 170
        assert_eq!(busy_by_cpu(&root).unwrap(), BTreeMap::from([(CpuId(0), 170 * tick), (CpuId(12), tick)]));
    }

    #[test]
    fn free_huge_pages_are_bytes() {
        let (_directory, root) = tree(&[
            ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
            ("sys/devices/system/node/node1/hugepages/hugepages-1048576kB/free_hugepages", "0\n"),
        ]);
        let pools = BTreeMap::from([(2 << 20, Bytes::from_mib(6)), (1 << 30, Bytes(0))]);
        assert_eq!(free_huge_pages(&root, NodeId(1)), pools);
    }

    #[test]
    fn pressure_and_settings_are_read_or_unknown() {
        let pressure =
            "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let (_directory, root) = tree(&[("proc/pressure/memory", pressure), ("proc/sys/kernel/numa_balancing", "1\n")]);
        assert_eq!(memory_pressure(&root, "proc/pressure/memory"), Some(0.125));
        assert_eq!(memory_pressure(&root, "nothing"), None);
        assert_eq!(auto_numa(&root), Some(true));
        let (_directory, tiering) = tree(&[("proc/sys/kernel/numa_balancing", "2\n")]); // memory tiering only
        assert_eq!(auto_numa(&tiering), Some(false));
    }
}
