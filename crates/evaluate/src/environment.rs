//! The machine and the software that a result was measured with.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use topology::{Bytes, Machine};

/// What a result has to be read with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of homenode.
    pub homenode: String,
    /// Commit that it was built from, where known.
    pub commit: Option<String>,
    /// Command line that measured it.
    pub command: Vec<String>,
    /// When it began, in UTC, RFC 3339.
    pub at: String,
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: Option<String>,
    /// Frequency governors and on how many CPUs each is in force; empty where the kernel does not
    /// say.
    pub governors: BTreeMap<String, usize>,
    /// Transparent huge pages: the setting in force.
    pub transparent_huge_pages: Option<String>,
    /// The kernel's automatic NUMA balancing.
    pub numa_balancing: Option<String>,
    /// What the kernel was booted with.
    #[serde(default)]
    pub kernel_parameters: Option<String>,
    /// Whether cores run two threads: the kernel's word for it.
    #[serde(default)]
    pub smt: Option<String>,
    /// Whether cores may go faster than their nominal frequency.
    #[serde(default)]
    pub boost: Option<bool>,
    /// Version of the CPU's microcode.
    #[serde(default)]
    pub microcode: Option<String>,
    /// What the kernel does about each known fault of the CPU.
    #[serde(default)]
    pub mitigations: BTreeMap<String, String>,
    /// Load average over one minute at the start.
    pub load_average: Option<f64>,
    /// Memory that could be taken at the start.
    pub available: Bytes,
    /// Accelerator of the VMs, and why.
    pub accelerator: String,
    /// The machine, as read.
    pub machine: Machine,
}

impl Environment {
    /// Reads this host's.
    pub fn of_host(machine: &Machine, available: Bytes, accelerator: String, command: Vec<String>, at: String) -> Self {
        Self {
            homenode: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("HOMENODE_COMMIT").map(str::to_owned),
            command,
            at,
            kernel: first_line("/proc/version").unwrap_or_default(),
            cpu_model: machine.cpu_model.clone(),
            governors: governors(machine),
            transparent_huge_pages: first_line("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|line| chosen(&line)),
            numa_balancing: first_line("/proc/sys/kernel/numa_balancing"),
            kernel_parameters: first_line("/proc/cmdline"),
            smt: first_line("/sys/devices/system/cpu/smt/control"),
            boost: boost(),
            microcode: microcode(),
            mitigations: mitigations(),
            load_average: first_line("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok()),
            available,
            accelerator,
            machine: machine.clone(),
        }
    }
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(str::to_owned)
}

/// `always [madvise] never` says `madvise`.
fn chosen(line: &str) -> Option<String> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
}

fn governors(machine: &Machine) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for thread in machine.usable_threads() {
        let path = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", thread.id);
        if let Some(governor) = first_line(&path) {
            *counts.entry(governor).or_default() += 1;
        }
    }
    counts
}

/// The general switch, or that of Intel's driver, which says the opposite.
fn boost() -> Option<bool> {
    let general = first_line("/sys/devices/system/cpu/cpufreq/boost").map(|line| line == "1");
    general.or_else(|| first_line("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|line| line == "0"))
}

fn microcode() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("microcode"))?;
    line.split_once(':').map(|(_, version)| version.trim().to_owned())
}

fn mitigations() -> BTreeMap<String, String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten();
    let one = |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, first_line(entry.path().to_str()?)?));
    entries.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_force_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
    }
}
