//! Memory that can be plugged in (`hotplug: memory`): what qemu-server starts such a VM with, and
//! what it refuses (`config` and `foreach_dimm` of Memory.pm).

use super::conf::Conf;

/// `$STATICMEM`.
const FIXED_MIB: u64 = 1024;
/// DIMMs of a bank; each bank's are twice as large as those of the one before.
const OF_A_BANK: usize = 32;
const BANKS: usize = 8;
/// Most memory of a VM whose CPU is not the host's: 40 bits of addresses, less what QEMU needs.
const MOST_MIB_OF_40_BITS: u64 = 1 << 19;
/// Most memory of any VM.
const MOST_MIB: u64 = 4 << 20;

/// The memory of a VM with memory hot-plug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dimms {
    /// What all sockets have together without DIMMs.
    pub(super) fixed_mib: u64,
    /// DIMMs, in the order of their numbers.
    pub(super) each_mib: Vec<u64>,
}

/// Memory hot-plug, where that is on.
pub(super) fn is_on(conf: &Conf) -> bool {
    conf.hotplug().contains("memory")
}

/// Memory without DIMMs: that which all sockets have in equal parts.
pub(super) fn fixed_mib(conf: &Conf) -> u64 {
    let gigantic = conf.huge_pages() == Some("1024");
    FIXED_MIB * if gigantic { conf.sockets() } else { 1 }
}

/// The DIMMs that a VM starts with; `None` without memory hot-plug, and where it does not start.
pub(super) fn dimms(conf: &Conf) -> Option<Dimms> {
    (is_on(conf) && refused(conf).is_none()).then(|| plugged(conf).0)
}

/// The DIMMs up to the VM's memory, and what they come to with the fixed memory.
fn plugged(conf: &Conf) -> (Dimms, u64) {
    let fixed = fixed_mib(conf);
    let (mut sum, mut each) = (fixed, Vec::new());
    let mut size = if conf.huge_pages() == Some("1024") { 1024 } else { 512 };
    for index in 0..OF_A_BANK * BANKS {
        if sum >= conf.memory_mib() {
            break;
        }
        if index > 0 && index % OF_A_BANK == 0 {
            size *= 2;
        }
        sum += size;
        each.push(size);
    }
    (Dimms { fixed_mib: fixed, each_mib: each }, sum)
}

/// Why qemu-server does not start it, in its words; `None` where it does, or has no memory
/// hot-plug.
pub(super) fn refused(conf: &Conf) -> Option<String> {
    if !is_on(conf) {
        return None;
    }
    if !conf.is_on("numa") {
        return Some("NUMA needs to be enabled for memory hotplug".to_owned());
    }
    let most = most_mib(conf);
    if conf.memory_mib() > most {
        return Some(format!("Total memory is bigger than {most}MB"));
    }
    if !conf.numa_nodes().is_empty() {
        return Some("cannot enable memory hotplugging with custom NUMA topology".to_owned());
    }
    let fixed = fixed_mib(conf);
    if conf.memory_mib() < fixed {
        return Some(format!("minimum memory must be {fixed}MB"));
    }
    if conf.values.keys().any(|key| key.starts_with("virtiofs")) {
        return Some("Memory hotplug does not work in combination with virtio-fs.".to_owned());
    }
    let (dimms, sum) = plugged(conf);
    let last = dimms.each_mib.last().copied().unwrap_or_default();
    (sum != conf.memory_mib())
        .then(|| format!("memory size ({}) must be aligned to {last} for hotplugging", conf.memory_mib()))
}

/// The most that it may have: unless `cpu` is the host's, its addresses have 40 bits at most.
fn most_mib(conf: &Conf) -> u64 {
    let cpu = conf.get("cpu").unwrap_or_default();
    let mut parts = cpu.split(',');
    let of_host = parts.clone().any(|part| part.contains("phys-bits="))
        || parts.next().is_some_and(|kind| ["host", "max"].contains(&kind.trim_start_matches("cputype=")));
    if of_host { MOST_MIB } else { MOST_MIB_OF_40_BITS }
}
