//! Which vCPUs are a group, whatever their home.
//!
//! **Rule.** What the guest is told shares a cache is a group, where a cache of the home has the
//! cores for it. Else `pack` and `own` divide the client evenly ([`super::divide`]), and its guest
//! is not told; `auto` leaves it undivided.
//!
//! **Example.** Sockets of 4, a client of vCPUs 0-5: groups of vCPUs 0-3 and 4-5.

use super::{Caches, divide};
use crate::divide as parts;
use vm::spec::{CachePolicy, VcpuBinding};
use vm::{Shape, VirtualNode, VirtualTopology};

/// How the vCPUs of a VM are divided.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    pub(super) policy: CachePolicy,
    /// Whether the policy states how many vCPUs a virtual socket has.
    stated: bool,
    /// vCPUs that the guest is told share a cache.
    shared: u32,
    /// By client: its vCPUs, rising, those that may come too.
    pub(super) clients: Vec<Vec<u32>>,
    /// By client: vCPUs of each group that its guest is told of.
    told: Vec<Vec<u32>>,
}

/// The groups of a client in a home.
pub(super) struct Groups {
    /// vCPUs of each, in the order of the client's vCPUs.
    pub(super) sizes: Vec<u32>,
    /// Whether the guest is told of a cache for each.
    pub(super) told: bool,
}

impl Division {
    /// Of a VM whose guest sees this; `None` where none is asked for.
    pub(crate) fn of(shape: &Shape, topology: &VirtualTopology) -> Option<Self> {
        let (nodes, shared) = (&topology.nodes, topology.vcpus_per_cache());
        let (policy, stated) = (shape.policy.cache, shape.policy.cores_per_socket.is_some());
        let asked = match policy {
            CachePolicy::Pack | CachePolicy::Own => true,
            CachePolicy::Auto => stated || nodes.len() > 1,
            CachePolicy::Ignore => false,
        };
        if !asked || shape.policy.vcpu_binding != VcpuBinding::Node {
            return None;
        }
        let rising = |node: &VirtualNode| {
            let mut vcpus = node.vcpus.clone();
            vcpus.sort_unstable();
            vcpus
        };
        let clients: Vec<Vec<u32>> = nodes.iter().map(rising).collect();
        let told = |vcpus: &Vec<u32>| {
            let sockets = vcpus.chunk_by(|one, other| one / shared == other / shared);
            sockets.map(|socket| socket.len() as u32).collect()
        };
        Some(Self { policy, stated, shared, told: clients.iter().map(told).collect(), clients })
    }

    /// Whether two clients are divided alike in every home.
    pub(crate) fn are_alike(&self, one: usize, other: usize) -> bool {
        self.told[one] == self.told[other]
    }

    /// The groups of a client in a home whose caches have so many cores; `None`: it has none.
    pub(super) fn groups(&self, client: usize, units: Vec<u32>) -> Option<Groups> {
        let most = units.iter().copied().max().filter(|_| units.len() > 1)?;
        let vcpus = self.clients[client].len() as u32;
        let auto = self.policy == CachePolicy::Auto;
        let tells = auto || self.stated || self.shared < vcpus;
        if tells && self.shared <= most {
            return Some(Groups { sizes: self.told[client].clone(), told: true });
        }
        if auto {
            return None;
        }
        let count = divide::groups(self.policy, vcpus, &Caches::new(units));
        let even = parts::evenly(vcpus.into(), count as usize).into_iter();
        let sizes: Vec<u32> = even.map(|size| size as u32).filter(|size| *size > 0).collect();
        let told = sizes.iter().all(|&size| size == self.shared);
        Some(Groups { sizes, told })
    }
}
