//! What a balancer remembers over its own restart.
//!
//! **Problem.** A period takes as long as its memory moves take, and a balancer can be killed at
//! any moment of it. What it bound by then must be undone by `--release` all the same; and whoever
//! looks meanwhile wants to know what is being done.
//!
//! **Rule.** Two files. The *state* is written whole or not at all, after a period in which
//! something happened. The *journal* beside it has one line an action, appended before the action
//! begins, and is removed when the state holds what the lines say. What is read is the state with
//! the journal's lines entered into it.
//!
//! **Properties.** Nothing is bound that was not written down before (a bind whose line cannot be
//! written is not made). Lines entered twice change nothing. A line that is cut off, at the end, is
//! of an action that had not begun. No line of an earlier boot counts. A process killed at any
//! moment leaves files that say all that is to be undone; a power cut loses it, and the bindings
//! with it.
//!
//! Example: the state knows of no VM; the journal has `bind VM web, client 0: 0-7 -> 0-3`. Whoever
//! reads learns that `web` had CPUs 0-7, may have 0-3 now, and that this is being done. `--release`
//! finds some threads on 0-3, or all, or none, and gives 0-7 to all of them.

use crate::journal::{self, Begun};
use crate::record::{Affinity, Followers};
use crate::{DaemonError, PolicyFile, VmRecord};
use linux::named_file::{self, NewFile};
use scheduler::balance::{BalanceState, Decision};
use scheduler::{Action, VmKey};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The format of the file.
const VERSION: u32 = 1;

/// The directory of the service that comes with homenode (packaging/homenode-balance.service).
pub const OF_SERVICE: &str = "/run/homenode-balance";

/// Users whose states are believed beside root's and one's own: the service's. Only root makes
/// directories in `/run`.
pub(crate) fn believed() -> Vec<u32> {
    std::fs::symlink_metadata(OF_SERVICE).ok().filter(|seen| seen.is_dir()).map(|seen| seen.uid()).into_iter().collect()
}

/// A state, or its journal: a regular file of a user who is believed.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    named_file::read(path, topology::input::LONGEST_FILE, &believed())
}

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The format.
    pub version: u32,
    /// The boot of the host that it is about: process numbers and moments mean nothing after the
    /// next one.
    pub boot: String,
    /// The process that wrote it.
    pub pid: u32,
    /// When that process started, in clock ticks since boot; 0 where an older homenode wrote it.
    #[serde(default)]
    pub started: u64,
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
            pid: 0,
            started: 0,
            policy: PolicyFile::default(),
            balance: BalanceState::default(),
            vms: Vec::new(),
        }
    }

    /// Takes this process for the one that writes it, under this policy.
    pub(crate) fn owned_by_us(&mut self, policy: PolicyFile) {
        let pid = std::process::id();
        self.started = linux::process::Identity::of(pid).map_or(0, |identity| identity.started_ticks);
        (self.pid, self.policy) = (pid, policy);
    }

    /// Remembers that an action begins: what will be to undo.
    pub(crate) fn begin(&mut self, action: &Action, before: Option<&Affinity>, followers: &Followers) {
        if let (Action::Bind { vm, client, cpus, groups, .. }, Some(before)) = (action, before) {
            let next = Affinity { cpus: cpus.clone(), groups: groups.clone() };
            self.record_of(vm).begin(*client, before, followers, &next);
        }
    }

    /// What was done to a VM.
    pub(crate) fn record_of(&mut self, vm: &VmKey) -> &mut VmRecord {
        let known = self.vms.iter().position(|record| record.vm == *vm);
        let index = known.unwrap_or_else(|| {
            self.vms.push(VmRecord::new(vm.clone()));
            self.vms.len() - 1
        });
        &mut self.vms[index]
    }

    /// Forgets VMs that are known to have ended. One that a look only left out has bindings that
    /// are still to be undone.
    pub(crate) fn forget_ended(&mut self, runs: impl Fn(&VmKey) -> bool) {
        self.vms.retain(|record| runs(&record.vm));
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

/// Why a state cannot be understood.
#[derive(Debug, thiserror::Error)]
enum StateError {
    #[error("{}", topology::input::shortened(&.0.to_string()))]
    Json(#[from] serde_json::Error),
    #[error("it has version {0}, this homenode writes {VERSION}")]
    Version(u32),
}

/// The file that a balancer leaves its memory in, and the journal beside it.
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

    /// Whether a balancer may use the file: it is not there, or empty, or begins as a state does.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, or is somebody else's: that one is never renamed nor
    /// written over. For root also: somebody else could change what is there.
    pub fn check(path: &Path) -> Result<(), DaemonError> {
        named_file::check_way(path, &believed())
            .map_err(|error| DaemonError::file(path, "use it for the balancer's state", error))?;
        let bytes = match read(path) {
            // What its directory is comes out when it is made.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            read => read.map_err(|error| DaemonError::file(path, "read the balancer's state", error))?,
        };
        let is_own = bytes.is_empty() || bytes.starts_with(b"{\"version\":");
        if is_own { Ok(()) } else { Err(DaemonError::NotAState(path.to_owned())) }
    }

    /// An empty memory for this boot.
    pub fn fresh(&self) -> Saved {
        Saved::new(&self.boot)
    }

    /// What it holds, for somebody who only looks; nothing where it cannot be used.
    pub fn peek(&self) -> Option<Saved> {
        let saved = read(&self.path).ok().and_then(|bytes| self.parse(&bytes).ok().flatten());
        self.with_journal(saved)
    }

    /// The decision that is being carried out, and the file's word of when it began; `None` between
    /// periods.
    pub fn doing(&self) -> Option<(Decision, Option<SystemTime>)> {
        let last = journal::read(&self.journal(), &self.boot).pop()?;
        let since = std::fs::metadata(self.journal()).and_then(|file| file.modified()).ok();
        Some((last.decision, since))
    }

    /// When something was last written to it.
    pub fn written_at(&self) -> Option<SystemTime> {
        let modified = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        modified(&self.path).max(modified(&self.journal()))
    }

    /// Writes down that an action begins. `before`: CPUs that its client may run on now;
    /// `followers`: threads that go along, with theirs.
    ///
    /// # Errors
    /// The journal cannot be written; the action must not begin.
    pub(crate) fn begin(
        &self,
        decision: &Decision,
        before: Option<&Affinity>,
        followers: &Followers,
    ) -> Result<(), DaemonError> {
        let (boot, followers) = (self.boot.clone(), followers.clone());
        let before_groups = before.map_or_else(Vec::new, |before| before.groups.clone());
        let before = before.map(|before| before.cpus.clone());
        let line = Begun { boot, before, before_groups, followers, decision: decision.clone() };
        journal::append(&self.journal(), &line)
            .map_err(|error| DaemonError::file(self.journal(), "write down what is to be undone", error))
    }

    /// `saved` with what the journal says was begun after it.
    fn with_journal(&self, saved: Option<Saved>) -> Option<Saved> {
        let begun = journal::read(&self.journal(), &self.boot);
        if begun.is_empty() {
            return saved;
        }
        let mut saved = saved.unwrap_or_else(|| self.fresh());
        for Begun { before, before_groups: groups, followers, decision, .. } in begun {
            let before = before.map(|cpus| Affinity { cpus, groups });
            saved.begin(&decision.action, before.as_ref(), &followers);
        }
        Some(saved)
    }

    fn journal(&self) -> PathBuf {
        self.beside("journal")
    }

    /// What it holds, for the balancer itself. A file that cannot be understood is renamed, never
    /// deleted.
    ///
    /// # Errors
    /// It is there and cannot be read or renamed, or is not to be believed.
    pub fn restore(&self) -> Result<Restored, DaemonError> {
        let way = named_file::check_way(&self.path, &believed());
        let bytes = match way.and_then(|()| read(&self.path)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.restored(None)),
            Err(error) => return Err(DaemonError::file(&self.path, "read the balancer's state", error)),
        };
        match self.parse(&bytes) {
            Ok(saved) => Ok(self.restored(saved)),
            Err(because) => {
                let because = because.to_string();
                let to = self.beside("bad");
                std::fs::rename(&self.path, &to)
                    .map_err(|error| DaemonError::file(&self.path, "set the balancer's bad state aside", error))?;
                Ok(Restored::SetAside { to, because })
            }
        }
    }

    fn restored(&self, saved: Option<Saved>) -> Restored {
        self.with_journal(saved).map_or(Restored::Nothing, |saved| Restored::Memory(Box::new(saved)))
    }

    fn parse(&self, text: &[u8]) -> Result<Option<Saved>, StateError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
            boot: String,
        }
        let head: Head = serde_json::from_slice(text)?;
        if head.version != VERSION {
            return Err(StateError::Version(head.version));
        }
        if head.boot != self.boot {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(text)?))
    }

    /// Writes it: to a file beside it first, so that a power cut leaves the old one or the new one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, saved: &Saved) -> Result<(), DaemonError> {
        let write = || {
            let mut text = serde_json::to_vec(saved)?;
            text.push(b'\n');
            let mut new = NewFile::beside(&self.path, "new", &believed())?;
            new.file.write_all(&text)?;
            new.take_place()?;
            // From here the state says what its lines said.
            match std::fs::remove_file(self.journal()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
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
    use crate::testing::{bind, vm};

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
    fn what_was_begun_is_read_with_the_state_and_enters_it_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        let before = Affinity::from("0-3".parse::<topology::CpuSet>().unwrap());
        let first = bind(vm(1), "0", "0-1");
        file.begin(&first, Some(&before), &Followers::new()).unwrap();
        // Killed now: there is no state at all, and what is to be undone is known.
        let Restored::Memory(saved) = file.restore().unwrap() else { panic!() };
        assert_eq!((saved.vms.len(), saved.vms[0].clients[0].before.to_string()), (1, "0-3".into()));
        assert_eq!(file.doing().map(|(decision, _)| decision), Some(first));
        file.save(&saved).unwrap();
        assert_eq!(file.doing(), None, "the state says it now");
        let second = bind(vm(1), "1", "2-3");
        file.begin(&second, Some(&"0-1".parse::<topology::CpuSet>().unwrap().into()), &Followers::new()).unwrap();
        let journal = std::fs::read(file.journal()).unwrap();
        let twice = file.peek().unwrap();
        // What it had at the very first counts, not what it had before the second bind.
        assert_eq!(twice.vms[0].clients[0].had(), before);
        // Killed between the new state and the end of the journal: the lines are entered again and
        // change nothing.
        file.save(&twice).unwrap();
        std::fs::write(file.journal(), &journal).unwrap();
        assert_eq!(file.peek().unwrap(), twice);
        // Killed while it wrote a line: that action had not begun.
        std::fs::write(file.journal(), &journal[..journal.len() / 2]).unwrap();
        assert_eq!((file.peek().unwrap(), file.doing()), (twice, None));
        let after_boot = SavedFile::new(file.path().to_owned(), "boot-2".into());
        std::fs::write(file.journal(), &journal).unwrap();
        assert_eq!((after_boot.restore().unwrap(), after_boot.doing()), (Restored::Nothing, None));
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
