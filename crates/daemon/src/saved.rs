//! What a balancer remembers over its own restart: a small JSON file, written whole or not at all.

use crate::{DaemonError, PolicyFile, VmRecord};
use scheduler::Observation;
use scheduler::balance::BalanceState;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The format of the file.
const VERSION: u32 = 1;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The format.
    pub version: u32,
    /// The boot of the host that it is about: process numbers and moments mean nothing after the next one.
    pub boot: String,
    /// The process that wrote it.
    pub pid: u32,
    /// What it decides by: for those who ask why.
    pub policy: PolicyFile,
    /// What the balancer's decisions depend on.
    pub balance: BalanceState,
    /// What was done to the VMs that ran when it was written.
    pub vms: Vec<VmRecord>,
}

impl Saved {
    /// Nothing to remember yet.
    pub fn new(boot: &str) -> Self {
        Self {
            version: VERSION,
            boot: boot.to_owned(),
            pid: std::process::id(),
            policy: PolicyFile::default(),
            balance: BalanceState::default(),
            vms: Vec::new(),
        }
    }

    /// Forgets VMs that are not there any more.
    pub(crate) fn keep_only(&mut self, observation: &Observation) {
        self.vms.retain(|record| observation.vms.iter().any(|seen| seen.vm == record.vm));
    }
}

/// What was found where a balancer left its memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// What an earlier balancer of this boot remembered.
    Memory(Box<Saved>),
    /// Nothing that is of use: no file, or one of an earlier boot.
    Nothing,
    /// A file that cannot be understood; it was renamed.
    SetAside {
        /// Its name now.
        to: PathBuf,
        /// What is wrong with it.
        because: String,
    },
}

/// The file that a balancer leaves its memory in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedFile {
    path: PathBuf,
    boot: String,
}

impl SavedFile {
    /// The file at `path`; `boot` names this boot of the host.
    pub fn new(path: PathBuf, boot: String) -> Self {
        Self { path, boot }
    }

    /// This boot of this host, as the kernel names it; empty where it does not.
    pub fn this_boot() -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An empty memory for this boot.
    pub fn fresh(&self) -> Saved {
        Saved::new(&self.boot)
    }

    /// What it holds, for somebody who only looks; nothing where it cannot be used.
    pub fn peek(&self) -> Option<Saved> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        self.parse(&text).ok().flatten()
    }

    /// What it holds, for the balancer itself. A file that cannot be understood is renamed, never deleted.
    ///
    /// # Errors
    /// It is there and cannot be read or renamed.
    pub fn restore(&self) -> Result<Restored, DaemonError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Restored::Nothing),
            Err(error) => return Err(DaemonError::file(&self.path, "read the balancer's state", error)),
        };
        match self.parse(&String::from_utf8_lossy(&bytes)) {
            Ok(Some(saved)) => Ok(Restored::Memory(Box::new(saved))),
            Ok(None) => Ok(Restored::Nothing),
            Err(because) => {
                let to = self.beside("bad");
                std::fs::rename(&self.path, &to)
                    .map_err(|error| DaemonError::file(&self.path, "set the balancer's bad state aside", error))?;
                Ok(Restored::SetAside { to, because })
            }
        }
    }

    fn parse(&self, text: &str) -> Result<Option<Saved>, String> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
            boot: String,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if head.version != VERSION {
            return Err(format!("it has version {}, this homenode writes {VERSION}", head.version));
        }
        if head.boot != self.boot {
            return Ok(None);
        }
        serde_json::from_str(text).map(Some).map_err(|error| error.to_string())
    }

    /// Writes it: to a file beside it first, so that a power cut leaves the old one or the new one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, saved: &Saved) -> Result<(), DaemonError> {
        let new = self.beside("new");
        let write = || {
            let mut text = serde_json::to_vec(saved)?;
            text.push(b'\n');
            let mut file = std::fs::File::create(&new)?;
            file.write_all(&text)?;
            std::fs::rename(&new, &self.path)
        };
        write().map_err(|error| DaemonError::file(&self.path, "save the balancer's state", error))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(ending);
        self.path.with_file_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path) -> SavedFile {
        SavedFile::new(directory.join("balance.json"), "boot-1".into())
    }

    #[test]
    fn what_is_saved_comes_back_in_the_same_boot_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        assert_eq!(file.restore().unwrap(), Restored::Nothing);
        let saved = file.fresh();
        file.save(&saved).unwrap();
        assert_eq!(file.restore().unwrap(), Restored::Memory(Box::new(saved.clone())));
        assert_eq!(file.peek(), Some(saved));
        let after_boot = SavedFile::new(file.path().to_owned(), "boot-2".into());
        assert_eq!(after_boot.restore().unwrap(), Restored::Nothing);
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 1, "the file that is written first has become the file");
    }

    #[test]
    fn what_cannot_be_understood_is_set_aside_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        for (text, words) in [
            ("{\"version\":1", "EOF"),
            ("{\"version\":9,\"boot\":\"boot-1\"}", "version 9"),
            ("{\"version\":1,\"boot\":\"boot-1\",\"pid\":\"x\"}", "invalid type"),
            ("\u{0}", "expected value"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(file.peek(), None);
            let Restored::SetAside { to, because } = file.restore().unwrap() else { panic!("{text}") };
            assert!(because.contains(words), "{because}");
            assert_eq!(std::fs::read_to_string(to).unwrap(), text);
            assert!(!file.path().exists());
        }
    }
}
