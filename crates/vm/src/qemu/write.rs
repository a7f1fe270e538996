//! The same words, written: what is written here is what the rest of this module reads, so that a
//! VM that homenode starts is the VM that it sees.

use super::{Backend, BackendKind, NumaNode, VcpuTopology};
use crate::MemoryPolicy;
use topology::{Bytes, CpuId, CpuSet};

/// The id of homenode's monitor of a VM: with [`memory_id`] the mark by which homenode knows its
/// own VMs.
pub const MONITOR: &str = "monitor";

/// The id of the memory of a virtual node of homenode's own VMs.
pub fn memory_id(virtual_node: u32) -> String {
    format!("vnode{virtual_node}")
}

/// The `policy` of a memory backend; `None` where the kernel may choose.
pub fn policy_word(policy: MemoryPolicy) -> Option<&'static str> {
    match policy {
        MemoryPolicy::Default => None,
        MemoryPolicy::Bind => Some("bind"),
        MemoryPolicy::Interleave => Some("interleave"),
        MemoryPolicy::Preferred => Some("preferred"),
    }
}

/// Within an option a comma ends a value; two stand for one.
pub fn escape(text: &str) -> String {
    text.replace(',', ",,")
}

/// `MiB` where it is a whole number of them.
fn size(amount: Bytes) -> String {
    if amount.0.is_multiple_of(Bytes::MIB.0) { format!("{}M", amount.mib()) } else { amount.0.to_string() }
}

impl Backend {
    /// The value of `-object`.
    pub fn option(&self) -> String {
        let kind = match &self.kind {
            BackendKind::Anonymous => "memory-backend-ram".to_owned(),
            BackendKind::Memfd { huge: false } => "memory-backend-memfd".to_owned(),
            BackendKind::Memfd { huge: true } => "memory-backend-memfd,hugetlb=on".to_owned(),
            BackendKind::File { path } => format!("memory-backend-file,mem-path={}", escape(path)),
        };
        let mut option = format!("{kind},id={},size={}", escape(&self.id), size(self.size));
        if let Some(huge) = self.huge_page_size {
            option += &format!(",hugetlbsize={}", size(huge));
        }
        for range in ranges(&self.host_nodes.to_string()) {
            option += &format!(",host-nodes={range}");
        }
        if let Some(policy) = &self.policy {
            option += &format!(",policy={policy}");
        }
        if self.prealloc {
            option += ",prealloc=on";
        }
        if let Some(threads) = self.prealloc_threads {
            option += &format!(",prealloc-threads={threads}");
        }
        option
    }
}

impl NumaNode {
    /// The value of `-numa` that makes it, with its first backend: others come with their devices.
    pub fn option(&self) -> String {
        let mut option = format!("node,nodeid={}", self.id);
        let cpus: CpuSet = self.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect();
        for range in ranges(&cpus.to_string()) {
            option += &format!(",cpus={range}");
        }
        if let Some(backend) = self.backends.first() {
            option += &format!(",memdev={}", escape(backend));
        }
        option
    }

    /// The values of `-numa` with its distances, once all nodes are there.
    pub fn distance_options(&self) -> impl Iterator<Item = String> {
        self.distances.iter().map(|(to, distance)| format!("dist,src={},dst={to},val={distance}", self.id))
    }
}

impl VcpuTopology {
    /// The value of `-smp`.
    pub fn option(&self) -> String {
        let Self { vcpus, most, sockets, dies, cores, threads, .. } = self;
        let more = if most == vcpus { String::new() } else { format!(",maxcpus={most}") };
        format!("{vcpus}{more},sockets={sockets},dies={dies},cores={cores},threads={threads}")
    }
}

fn ranges(set: &str) -> impl Iterator<Item = &str> {
    set.split(',').filter(|range| !range.is_empty())
}
