//! CPUs that the kernel's load balancer leaves out, and those without a tick.
//!
//! `/sys/devices/system/cpu/isolated` has what `isolcpus=` names (kernel:
//! Documentation/ABI/testing/sysfs-devices-system-cpu), `cpuset.cpus.isolated` of the root cgroup
//! what isolated partitions have (Documentation/admin-guide/cgroup-v2.rst; since 6.7).

use super::error::ReadError;
use super::sysfs::CPUS;
use super::tree::Tree;
use crate::{CpuSet, HardwareThread};

const PARTITIONS: &str = "sys/fs/cgroup/cpuset.cpus.isolated";

/// Isolated CPUs, and those of `nohz_full=`.
pub(super) fn read(
    tree: &Tree,
    threads: &mut [HardwareThread],
    notes: &mut Vec<String>,
) -> Result<(CpuSet, CpuSet), ReadError> {
    let listed = |path: &str| -> Result<CpuSet, ReadError> {
        // A kernel that was not asked for any prints a pointer to nothing.
        let Some(text) = tree.read(path).filter(|text| text.trim() != "(null)") else { return Ok(CpuSet::new()) };
        text.parse().map_err(|_| tree.error(path, &text, "a list of numbers and ranges such as `0-3,8`"))
    };
    let isolated = listed(&format!("{CPUS}/isolated"))?.union(&listed(PARTITIONS)?);
    let nohz_full = listed(&format!("{CPUS}/nohz_full"))?;
    // The kernel starts every process without isolated CPUs in its affinity: one that has all
    // others was denied none of them.
    let mut others = threads.iter().filter(|thread| thread.online && !isolated.contains(thread.id)).peekable();
    if others.peek().is_some() && others.all(|thread| thread.allowed) {
        threads.iter_mut().for_each(|thread| thread.allowed |= isolated.contains(thread.id));
    }
    let usable = threads.iter().filter(|thread| thread.online && thread.allowed);
    if !isolated.is_empty() && usable.clone().all(|thread| isolated.contains(thread.id)) {
        notes.push(format!(
            "CPUs {isolated} are isolated, and this process may use no others: they are taken as if the kernel \
            balanced load among them."
        ));
        return Ok((CpuSet::new(), nohz_full));
    }
    Ok((isolated, nohz_full))
}
