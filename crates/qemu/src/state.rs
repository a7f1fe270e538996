//! What is known of a background VM, in a file of its directory.

use crate::QemuError;
use linux::process::Identity;
use linux::room::OomKills;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use topology::{Bytes, NodeSet};
use vm::{Accelerator, Launch};

/// The record, in a VM's directory.
pub(crate) const FILE: &str = "state.json";
/// The record while it is written.
pub(crate) const UNFINISHED: &str = "state.json.new";

/// How far a start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its vCPUs wait; whoever starts it is still at work.
    Starting,
    /// It has received a guest and may have been let run: the decision of its receipt says.
    TakingOver,
    /// It runs at its home.
    Running,
}

/// A VM in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundVm {
    /// Version of this record.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// How far it has come.
    pub phase: Phase,
    /// The homenode that starts or started it.
    pub starter: Identity,
    /// Its QEMU, once there is one.
    pub qemu: Option<Identity>,
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory of all virtual nodes.
    pub memory: Bytes,
    /// Number of virtual nodes.
    pub virtual_nodes: usize,
    /// Home nodes of all its clients.
    pub home: NodeSet,
    /// How often the kernel had killed for lack of memory when it was started.
    #[serde(default)]
    pub oom_kills: OomKills,
    /// What runs its instructions.
    pub accelerator: Accelerator,
    /// As QEMU says it; empty while it starts.
    pub qemu_version: String,
    /// The receipt by which it came, where it came from elsewhere, running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// Whether its guest was paused when it came so, and waits for its owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub came_paused: bool,
}

impl BackgroundVm {
    pub(crate) fn starting(launch: &Launch, accelerator: &Accelerator, starter: Identity) -> Self {
        let nodes = &launch.plan.topology.nodes;
        Self {
            version: 1,
            name: launch.spec.name.clone(),
            phase: Phase::Starting,
            starter,
            qemu: None,
            vcpus: launch.spec.vcpus,
            memory: nodes.iter().map(|node| node.memory).sum(),
            virtual_nodes: nodes.len(),
            home: launch.plan.homes(),
            oom_kills: OomKills::now(),
            accelerator: accelerator.clone(),
            qemu_version: String::new(),
            receipt: None,
            came_paused: false,
        }
    }

    /// Seconds that its QEMU has been running.
    pub fn uptime_seconds(&self) -> Option<f64> {
        self.qemu?.age_seconds().ok()
    }

    /// Reads the record in a VM's directory.
    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(directory.join(FILE))?)?)
    }

    /// Writes the record; a reader sees the old one or the new one, never a part.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), QemuError> {
        let (path, new) = (directory.join(FILE), directory.join(UNFINISHED));
        let write = || {
            std::fs::write(&new, serde_json::to_vec_pretty(self)?)?;
            std::fs::rename(&new, &path)
        };
        write().map_err(QemuError::io(&self.name, format!("write {}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let (spec, plan) = (samples::spec("a", 4, 256), samples::plan("a", 2, 2, 128));
        let launch = Launch::new(spec, plan);
        let us = Identity::of(std::process::id()).unwrap();
        let state = BackgroundVm::starting(&launch, &Accelerator::Kvm, us);
        assert_eq!((state.memory, state.virtual_nodes), (Bytes::from_mib(256), 2)); // 2 x 128
        state.write(directory.path()).unwrap();
        assert_eq!(BackgroundVm::read(directory.path()).unwrap(), state);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
