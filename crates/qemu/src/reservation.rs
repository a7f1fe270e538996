//! What VMs that are about to start will hold: told to a balancer that runs, by whoever has the placement lock.

use crate::QemuError;
use linux::process::Identity;
use scheduler::{NodeUse, Plan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use topology::NodeId;

const FILE: &str = "starting.json";

/// A VM that is planned and not yet where it will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Its name.
    pub vm: String,
    /// What it will hold of each node.
    pub holdings: BTreeMap<NodeId, NodeUse>,
}

/// The file's contents. It counts as long as the process that wrote it lives.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    starter: Identity,
    vms: Vec<Reserved>,
}

/// The file; dropping this removes it.
#[derive(Debug)]
pub(crate) struct Reservation(PathBuf);

impl Reservation {
    /// Writes the file of a runtime directory. Only the holder of the directory's placement lock may.
    pub(crate) fn write<'a>(directory: &Path, plans: impl IntoIterator<Item = &'a Plan>) -> Result<Self, QemuError> {
        let vms = plans.into_iter().map(|plan| Reserved { vm: plan.vm.clone(), holdings: plan.holdings.clone() });
        let starter = Identity::of(std::process::id()).map_err(QemuError::host("(any)"))?;
        let contents = Contents { starter, vms: vms.collect() };
        let (path, new) = (directory.join(FILE), directory.join("starting.json.new"));
        let write = || -> io::Result<()> {
            std::fs::write(&new, serde_json::to_vec(&contents)?)?;
            // A reader sees all of it or nothing.
            std::fs::rename(&new, &path)
        };
        write().map_err(QemuError::io("(any)", format!("write {}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // One that stays counts no longer than this process lives.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// VMs that somebody is about to start, in the runtime directory at `path`. None where it cannot be read, or its writer was killed.
pub fn reserved(path: &Path) -> Vec<Reserved> {
    let contents = std::fs::read(path.join(FILE)).ok().and_then(|text| serde_json::from_slice::<Contents>(&text).ok());
    contents.filter(|contents| contents.starter.is_alive()).map(|contents| contents.vms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn it_counts_until_it_is_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let plans = [samples::plan("a", 2, 2, 128), samples::plan("b", 1, 2, 128)];
        let reservation = Reservation::write(directory.path(), &plans).unwrap();
        let vms: Vec<String> = reserved(directory.path()).into_iter().map(|reserved| reserved.vm).collect();
        assert_eq!(vms, ["a", "b"]);
        assert_eq!(reserved(directory.path())[0].holdings, plans[0].holdings);
        drop(reservation);
        assert_eq!(reserved(directory.path()), []);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_whose_writer_was_killed_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        // Process 1 began at boot: at no later tick.
        let text = r#"{"starter":{"pid":1,"started_ticks":18446744073709551615},"vms":[{"vm":"a","holdings":{}}]}"#;
        std::fs::write(directory.path().join(FILE), text).unwrap();
        assert_eq!(reserved(directory.path()), []);
    }
}
