//! A manifest as text.

use super::Manifest;
use crate::{VirtualNode, VirtualTopology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use topology::input::shortened;
use topology::limits::{MOST_OBJECTS, MOST_VCPUS, MOST_VIRTUAL_NODES};

/// Most bytes of one: 128 virtual nodes have 16,384 distances in 64 KiB, and 4096 vCPUs are named
/// in 24 KiB.
pub const MOST_BYTES: usize = 512 << 10;

/// What it is, and in which format.
const FORMAT: &str = "homenode.manifest";
const VERSION: u32 = 1;

/// A text that is no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its manifest cannot be used: {0}")]
pub struct ManifestError(String);

#[derive(Serialize, Deserialize)]
struct Written<T> {
    format: String,
    version: u32,
    manifest: T,
}

impl Manifest {
    /// As a text: JSON.
    ///
    /// # Errors
    /// No VM that can be started has one: it is longer than [`MOST_BYTES`].
    pub fn to_text(&self) -> Result<String, ManifestError> {
        let written = Written { format: FORMAT.to_owned(), version: VERSION, manifest: self };
        let text = serde_json::to_string(&written).map_err(|error| ManifestError(shortened(&error.to_string())))?;
        check_length(&text)?;
        Ok(text)
    }

    /// Reads one that somebody else may have written.
    ///
    /// # Errors
    /// It is of another format, or what it describes is no VM.
    pub fn from_text(text: &str) -> Result<Self, ManifestError> {
        check_length(text)?;
        let fail = |error: serde_json::Error| ManifestError(shortened(&error.to_string()));
        // What a newer homenode wrote may have any shape.
        let head: Written<serde::de::IgnoredAny> = serde_json::from_str(text).map_err(fail)?;
        if head.format != FORMAT || head.version != VERSION {
            let (format, version) = (shortened(&head.format), head.version);
            let problem = format!("{format}, version {version}: this homenode reads {FORMAT}, version {VERSION}");
            return Err(ManifestError(problem));
        }
        let written: Written<Self> = serde_json::from_str(text).map_err(fail)?;
        written.manifest.check()?;
        Ok(written.manifest)
    }

    /// Whether a VM can be so: what nobody can start is not worth the work, and what becomes a word
    /// of a command line is one.
    ///
    /// # Errors
    /// What it describes is no VM.
    pub fn check(&self) -> Result<(), ManifestError> {
        let wrong = |problem: String| Err(ManifestError(problem));
        self.spec.check().map_err(|problem| ManifestError(shortened(&format!("spec.{problem}"))))?;
        check_topology(&self.topology)?;
        let vcpus: BTreeSet<u32> = self.topology.nodes.iter().flat_map(|node| node.absent.iter().copied()).collect();
        let mut plugged = BTreeSet::new();
        if let Some(vcpu) = self.added.vcpus.iter().find(|&&vcpu| !vcpus.contains(&vcpu) || !plugged.insert(vcpu)) {
            return wrong(format!("added.vcpus: vCPU {vcpu} was there already, or is in no virtual node"));
        }
        let of_no_node = |node: u32| !self.topology.nodes.iter().any(|known| known.id == node);
        if let Some(device) = self.added.memory.iter().find(|device| of_no_node(device.virtual_node)) {
            return wrong(format!("added.memory: there is no virtual node {}", device.virtual_node));
        }
        let names = self.added.memory.iter().map(|device| &device.id).chain(self.run_by.memory.iter().map(|it| &it.id));
        let is_odd = |name: &str| {
            name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if let Some(name) = names.into_iter().find(|name| is_odd(name) || name.len() > 128) {
            return wrong(format!("{:?} is no name of a memory device", shortened(name)));
        }
        // It becomes a word of QEMU's command line.
        if is_odd(&self.run_by.machine) {
            return wrong(format!("run_by.machine: {:?} is no machine type", shortened(&self.run_by.machine)));
        }
        let run_by = &self.run_by;
        let counts = [self.added.memory.len(), run_by.memory.len(), run_by.places.len(), run_by.disk_sizes.len()];
        if counts.iter().any(|&count| count > MOST_OBJECTS) {
            return wrong(format!("more than {MOST_OBJECTS} memory devices or disks"));
        }
        if self.run_by.disk_sizes.len() != self.spec.disks.len() {
            let (sizes, disks) = (self.run_by.disk_sizes.len(), self.spec.disks.len());
            return wrong(format!("run_by.disk_sizes: {sizes} sizes of {disks} disks"));
        }
        Ok(())
    }
}

fn check_length(text: &str) -> Result<(), ManifestError> {
    if text.len() > MOST_BYTES {
        return Err(ManifestError(format!("it has {} bytes; at most {MOST_BYTES} are read", text.len())));
    }
    Ok(())
}

fn check_topology(topology: &VirtualTopology) -> Result<(), ManifestError> {
    let wrong = |problem: String| Err(ManifestError(problem));
    let nodes = &topology.nodes;
    if nodes.is_empty() || nodes.len() > MOST_VIRTUAL_NODES {
        return wrong(format!("topology.nodes: a VM has 1 to {MOST_VIRTUAL_NODES} virtual nodes"));
    }
    if let Some((at, node)) = nodes.iter().enumerate().find(|(at, node)| node.id as usize != *at) {
        return wrong(format!("topology.nodes[{at}].id = {}: nodes are numbered from 0", node.id));
    }
    let product = [topology.sockets, topology.cores_per_socket, topology.threads_per_core].map(u64::from);
    let product = product.iter().fold(1u64, |all, count| all.saturating_mul(*count));
    let vcpus: Vec<u32> = nodes.iter().flat_map(|node| node.vcpus.iter().copied()).collect();
    let each: BTreeSet<u32> = vcpus.iter().copied().collect();
    let whole = each.len() == vcpus.len() && each.iter().copied().eq(0..vcpus.len() as u32);
    if !whole || product != vcpus.len() as u64 || !(1..=u64::from(MOST_VCPUS)).contains(&product) {
        return wrong(format!(
            "topology: each of 1 to {MOST_VCPUS} vCPUs is in one virtual node, and they fill its cores"
        ));
    }
    let dies = topology.dies_per_socket;
    if dies == 0 || !topology.cores_per_socket.is_multiple_of(dies) {
        return wrong(format!(
            "topology.dies_per_socket = {dies}: a socket's {} cores are divided among its dies evenly",
            topology.cores_per_socket
        ));
    }
    let is_odd = |node: &&VirtualNode| {
        node.absent.len() > node.vcpus.len() || node.absent.iter().any(|vcpu| !node.vcpus.contains(vcpu))
    };
    if let Some(node) = nodes.iter().find(is_odd) {
        return wrong(format!("topology.nodes[{}].absent: a vCPU of another virtual node", node.id));
    }
    let square =
        topology.distances.len() == nodes.len() && topology.distances.iter().all(|row| row.len() == nodes.len());
    if !square {
        return wrong(format!("topology.distances: {} virtual nodes have as many rows of as many", nodes.len()));
    }
    Ok(())
}
