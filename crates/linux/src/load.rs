//! How busy the machine is, and with whose work (proc(5), `/proc/stat` and `/proc/PID/stat`).

use crate::error::{LinuxError, read_text};
use crate::proc_text::stat_field;
use crate::sys::clock_ticks_per_second;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// CPU time of the whole machine since boot, all CPUs summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Time spent in user and kernel code, guests included; neither idle, nor waiting for I/O, nor
    /// stolen.
    pub busy_seconds: f64,
    /// Time that a hypervisor below us gave to somebody else.
    pub steal_seconds: f64,
    /// All of it, idle time included.
    pub total_seconds: f64,
}

/// CPU time of the whole machine, from `/proc/stat`.
pub fn machine_cpu_times() -> Result<CpuTimes, LinuxError> {
    let path = Path::new("/proc/stat");
    cpu_times(&read_text(path)?).ok_or_else(|| LinuxError::format(path, "line `cpu` with eight times"))
}

/// Fields: user nice system idle iowait irq softirq steal guest guest_nice; guest time is already
/// part of user and nice.
fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else { return None };
    let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
    let busy = user + nice + system + irq + softirq;
    Some(CpuTimes {
        busy_seconds: seconds(busy),
        steal_seconds: seconds(steal),
        total_seconds: seconds(busy + idle + iowait + steal),
    })
}

/// CPU time of a process with all its threads (user and system), those that have ended included.
pub fn process_cpu_seconds(pid: u32) -> Result<f64, LinuxError> {
    let path = Path::new("/proc").join(pid.to_string()).join("stat");
    process_ticks(&read_text(&path)?)
        .map(|ticks| ticks as f64 / clock_ticks_per_second() as f64)
        .ok_or_else(|| LinuxError::format(&path, "fields utime and stime"))
}

/// The same, with that of its children that have ended and that it has waited for.
pub fn family_cpu_seconds(pid: u32) -> Result<f64, LinuxError> {
    let path = Path::new("/proc").join(pid.to_string()).join("stat");
    let stat = read_text(&path)?;
    // Fields 16 and 17.
    let children = stat_field::<u64>(&stat, 16).zip(stat_field::<u64>(&stat, 17)).map(|(user, system)| user + system);
    process_ticks(&stat)
        .zip(children)
        .map(|(own, children)| (own + children) as f64 / clock_ticks_per_second() as f64)
        .ok_or_else(|| LinuxError::format(&path, "fields utime, stime, cutime and cstime"))
}

/// Fields 14 and 15.
fn process_ticks(stat: &str) -> Option<u64> {
    Some(stat_field::<u64>(stat, 14)? + stat_field::<u64>(stat, 15)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_by_kind() {
        let times = cpu_times("cpu  100 10 50 1000 40 3 7 20 60 5\ncpu0 1 1\n").unwrap();
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(times.busy_seconds * ticks, 170.0); // 100 + 10 + 50 + 3 + 7; guest is in user already
        assert_eq!(times.steal_seconds * ticks, 20.0);
        assert_eq!(times.total_seconds * ticks, 1230.0); // 170 + 1000 + 40 + 20
        assert_eq!(cpu_times("intr 5\n"), None);
    }

    #[test]
    fn our_own_work_is_seen_on_the_machine_and_on_the_process() {
        let (machine, process) = (machine_cpu_times().unwrap(), process_cpu_seconds(std::process::id()).unwrap());
        let start = std::time::Instant::now();
        let mut sum = 0u64;
        let mut ours = 0.0;
        // A loaded machine gives us little in any given time.
        while ours < 0.1 && start.elapsed().as_secs() < 30 {
            (0..1_000_000u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n)));
            ours = process_cpu_seconds(std::process::id()).unwrap() - process;
        }
        assert!(ours >= 0.1, "{ours}");
        assert!(machine_cpu_times().unwrap().busy_seconds - machine.busy_seconds > 0.05);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_with_its_file() {
        let error = process_cpu_seconds(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("/proc/4294967295/stat"), "{error}");
    }
}
