//! A spec as it is written: one table, in which the shape's fields stand beside the others.

use super::{Backing, Boot, Console, Disk, Guest, Network, Policy, Shape, VmSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use topology::Bytes;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: String,
    vcpus: u32,
    memory: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_vcpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_memory: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run_as: Option<String>,
    #[serde(default)]
    policy: Policy,
    #[serde(default, skip_serializing_if = "Backing::is_default")]
    backing: Backing,
    #[serde(default)]
    boot: Boot,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guest: Option<Guest>,
    #[serde(default)]
    console: Console,
    #[serde(default, rename = "disk")]
    disks: Vec<Disk>,
    #[serde(default, rename = "network")]
    networks: Vec<Network>,
}

impl From<Written> for VmSpec {
    fn from(written: Written) -> Self {
        let Written { name, vcpus, memory, max_vcpus, max_memory, policy, backing, .. } = written;
        let Written { boot, guest, disks, networks, console, run_as, .. } = written;
        let near = if policy.near_device {
            networks.iter().filter_map(Network::device).cloned().collect()
        } else {
            BTreeSet::new()
        };
        let shape = Shape { name, vcpus, memory, max_vcpus, max_memory, policy, backing, near };
        Self { shape, boot, guest, disks, networks, console, run_as }
    }
}

impl From<VmSpec> for Written {
    fn from(spec: VmSpec) -> Self {
        let VmSpec { shape, boot, guest, disks, networks, console, run_as } = spec;
        let Shape { name, vcpus, memory, max_vcpus, max_memory, policy, backing, .. } = shape;
        Self {
            name,
            vcpus,
            memory,
            max_vcpus,
            max_memory,
            run_as,
            policy,
            backing,
            boot,
            guest,
            console,
            disks,
            networks,
        }
    }
}
