//! How a VM's vCPUs share last-level caches.
//!
//! **Problem.** A machine's last-level caches may be smaller than its nodes: four cores of Rome
//! share one, eight of Milan and Genoa. A guest that is told of caches of four vCPUs puts threads
//! side by side for them; if its vCPUs may run anywhere in the node, they share nothing.
//!
//! **Rule.** vCPUs are divided into *groups*, each bound to the CPUs of one cache.
//!
//! **Example.** 8 vCPUs on a node of four caches of 4 cores. `pack`: two groups of 4. `own`: four
//! groups of 2. The guest has a virtual socket for each group, and so is told the truth.

use super::check::{Checked, ensure};
use super::{Policy, VcpuBinding};
use serde::{Deserialize, Serialize};

/// How vCPUs are divided among the last-level caches of their home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// A group for each virtual socket that a cache has the cores for, where the policy says
    /// `cores_per_socket`, so that its guest is told of caches, or where the VM has several
    /// clients: a kernel that gathers a process under one cache (Linux 7.2) takes them for one.
    /// Else as `ignore`.
    #[default]
    Auto,
    /// As few caches as hold the vCPUs: data that they share is near.
    Pack,
    /// Each virtual socket, or else each vCPU, has a cache for itself as far as there are: cache
    /// and bandwidth.
    Own,
    /// No groups: each vCPU may use all CPUs of its home.
    Ignore,
}

impl CachePolicy {
    /// Whether it is the default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// As it is written in a policy.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pack => "pack",
            Self::Own => "own",
            Self::Ignore => "ignore",
        }
    }
}

pub(super) fn check(policy: &Policy) -> Checked {
    let divides = matches!(policy.cache, CachePolicy::Pack | CachePolicy::Own);
    ensure(!divides || policy.vcpu_binding == VcpuBinding::Node, "policy.cache", || {
        "it does not go with vcpu_binding = \"core\", which gives each vCPU one CPU whatever its cache: remove one \
         of the two, or write \"auto\" or \"ignore\""
            .to_owned()
    })
}
