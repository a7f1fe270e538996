//! The directory of the VMs that are kept.

use crate::files::{Files, MEMORY, SavedLife, VARIABLES, cannot_write};
use crate::{Held, InventoryError, Record};
use linux::named_file;
use linux::sys::{OPEN_NO_LINK, effective_user_id, try_lock};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vm::life::State;
use vm::spec::name_problem;

/// Names another directory than the default.
pub const STATE_VARIABLE: &str = "HOMENODE_STATE_DIR";

/// How long somebody may hold a VM who only looks and mends its record.
const LOOKING: Duration = Duration::from_millis(500);
/// How often somebody who waits for that looks.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The VMs that homenode keeps for a user.
///
/// They are in `$HOMENODE_STATE_DIR/vms`; without it in `/var/lib/homenode/vms` for root and in
/// `$XDG_STATE_HOME/homenode/vms` (`~/.local/state/homenode/vms`) for everyone else. Who names a
/// runtime directory and no state directory has them in there (`.vms`): a world of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory(PathBuf);

impl Inventory {
    /// That of this user; nothing is made. `of_runtime` is the runtime directory, where its owner
    /// named one.
    pub fn of_this_user(of_runtime: Option<&Path>) -> Self {
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".local/state"));
        let of_user =
            || absolute("XDG_STATE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("homenode/vms");
        Self(match (variable(STATE_VARIABLE), of_runtime) {
            (Some(named), _) => named.join("vms"),
            (None, Some(runtime)) => runtime.join(".vms"),
            (None, None) if effective_user_id() == 0 => PathBuf::from("/var/lib/homenode/vms"),
            (None, None) => of_user(),
        })
    }

    /// One in this directory.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The directory; it may not be there.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Names of the VMs that are kept, sorted.
    ///
    /// # Errors
    /// The directory is there and cannot be read, or is not one to be believed.
    pub fn names(&self) -> Result<Vec<String>, InventoryError> {
        self.check()?;
        Ok(self.directories()?.into_iter().filter(|name| self.has(name)).collect())
    }

    /// Names of directories that may be a VM's, sorted.
    fn directories(&self) -> Result<Vec<String>, InventoryError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(InventoryError::io(format!("read {}", self.0.display())))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name_problem(name).is_none()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Removes what a killed homenode left of VMs that it began to make known, or to delete.
    ///
    /// # Errors
    /// The directory cannot be read, or a file cannot be removed.
    pub fn remove_unfinished(&self) -> Result<(), InventoryError> {
        self.check()?;
        for name in self.directories()?.into_iter().filter(|name| !self.has(name)) {
            // Whoever has it makes it known just now, and has not locked what is gone again.
            let Ok((files, _lock)) = self.lock(&name, Duration::ZERO) else { continue };
            if !self.has(&name) {
                files.remove_unfinished()?;
                files.remove()?;
            }
        }
        Ok(())
    }

    /// That the directory is one that nobody else can put VMs into; it need not be there.
    ///
    /// # Errors
    /// Somebody else can, or nobody can say.
    pub fn check(&self) -> Result<(), InventoryError> {
        let problem = match self.0.symlink_metadata() {
            // Every working directory would be another host.
            _ if self.0.is_relative() => Err(io::Error::new(ErrorKind::InvalidInput, "the path is relative")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(seen) => problem(&seen).map_or(Ok(()), |problem| Err(io::Error::new(ErrorKind::InvalidInput, problem))),
        };
        let problem = problem.and_then(|()| named_file::check_way(&self.0, &[]));
        problem.map_err(InventoryError::io(format!(
            "use {} for the VMs that are kept (another directory in {STATE_VARIABLE})",
            self.0.display()
        )))
    }

    /// Whether a VM of this name is kept.
    pub fn is_kept(&self, name: &str) -> bool {
        name_problem(name).is_none() && self.has(name)
    }

    fn has(&self, name: &str) -> bool {
        Files(self.0.join(name)).are_kept()
    }

    /// That a VM of this name is kept.
    fn check_kept(&self, name: &str) -> Result<(), InventoryError> {
        self.check()?;
        if self.is_kept(name) { Ok(()) } else { Err(InventoryError::NoSuchVm { vm: name.to_owned() }) }
    }

    /// Where a VM is suspended unless its owner names another place.
    pub fn memory_file(&self, name: &str) -> PathBuf {
        self.0.join(name).join(MEMORY)
    }

    /// Where the variables of its UEFI firmware are.
    pub fn variables_file(&self, name: &str) -> PathBuf {
        self.0.join(name).join(VARIABLES)
    }

    /// What is kept of a VM.
    ///
    /// # Errors
    /// There is no such VM, or a file of it cannot be read or understood.
    pub fn read(&self, name: &str) -> Result<Record, InventoryError> {
        self.saved(name).map(|(record, _)| record)
    }

    /// And whether it is what a start wrote beside the files.
    fn saved(&self, name: &str) -> Result<(Record, bool), InventoryError> {
        self.check_kept(name)?;
        let files = Files(self.0.join(name));
        let missing = || match files.are_kept() {
            true => files.without_life(),
            false => InventoryError::NoSuchVm { vm: name.to_owned() },
        };
        let SavedLife { life, adopting } = files.life()?.ok_or_else(missing)?;
        let before = life.before.map_or(life.state, |before| before.state);
        let proposed = adopting || life.state == State::Starting;
        let (spec, topology, placement) = files.content(proposed, before != State::Planned)?;
        Ok((Record { spec, topology, placement, life }, adopting))
    }

    /// Makes a VM known that was not, and holds it.
    ///
    /// # Errors
    /// The name is taken or no name, or the files cannot be written.
    pub fn create(&self, record: &Record) -> Result<Held, InventoryError> {
        self.room_for(&record.spec.name)?.create(record)
    }

    /// Makes room for a VM that is not known yet: its firmware may write there before it is.
    ///
    /// # Errors
    /// The name is taken or no name, or the directory cannot be made.
    pub fn room_for(&self, name: &str) -> Result<Room, InventoryError> {
        self.check()?;
        let path = self.0.join(name);
        let (files, lock) = loop {
            DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(cannot_write(&path))?;
            match self.lock(name, LOOKING) {
                // Somebody cleaned up between the two calls.
                Err(InventoryError::NoSuchVm { .. }) => {}
                locked => break locked?,
            }
        };
        if self.has(name) {
            // What is wrong with those files says more than that the name is taken.
            self.read(name)?;
            return Err(InventoryError::NameTaken { vm: name.to_owned() });
        }
        Ok(Room(Some((files, lock))))
    }

    /// Holds a VM: nobody else changes it until the value is dropped. What a killed homenode left
    /// half done is finished.
    ///
    /// # Errors
    /// There is no such VM, another homenode holds it, or a file of it cannot be read.
    pub fn hold(&self, name: &str) -> Result<Held, InventoryError> {
        self.hold_within(name, LOOKING)
    }

    /// As [`Inventory::hold`], without waiting for somebody who only looks.
    ///
    /// # Errors
    /// As [`Inventory::hold`].
    pub fn hold_now(&self, name: &str) -> Result<Held, InventoryError> {
        self.hold_within(name, Duration::ZERO)
    }

    /// Whether somebody holds a VM now. Nothing of it is read or changed.
    pub fn is_held(&self, name: &str) -> bool {
        name_problem(name).is_none() && matches!(self.lock(name, Duration::ZERO), Err(InventoryError::Busy { .. }))
    }

    fn hold_within(&self, name: &str, patience: Duration) -> Result<Held, InventoryError> {
        self.check_kept(name)?;
        let (files, lock) = self.lock(name, patience)?;
        // It may have been deleted or changed before the lock was ours.
        let (record, adopting) = self.saved(name)?;
        let held = Held { record, files, _lock: lock };
        held.files.remove_unfinished()?;
        if held.record.life.suspended_in.is_none() {
            held.files.remove_old_memory()?;
        }
        if adopting {
            held.finish_adopting()?;
        } else if held.record.life.state != State::Starting {
            held.files.withdraw()?;
        }
        Ok(held)
    }

    /// Forgets a VM whose files cannot be understood. That it has no process is the caller's to
    /// know.
    ///
    /// # Errors
    /// There is no such VM, another homenode holds it, or a file of it cannot be removed.
    pub fn forget(&self, name: &str) -> Result<(), InventoryError> {
        self.check_kept(name)?;
        let (files, _lock) = self.lock(name, LOOKING)?;
        files.remove()
    }

    /// A VM's files, for whoever holds it: until the second value is dropped.
    fn lock(&self, name: &str, patience: Duration) -> Result<(Files, File), InventoryError> {
        let path = self.0.join(name);
        let deadline = Instant::now() + patience;
        let lock = || {
            let directory = File::options().read(true).custom_flags(OPEN_NO_LINK).open(&path)?;
            let ours = loop {
                match try_lock(&directory)? {
                    false if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                    ours => break ours,
                }
            };
            // The lock may be on a directory that was removed, with another in its place.
            let (locked, now) = (directory.metadata()?, path.symlink_metadata()?);
            if (locked.dev(), locked.ino()) != (now.dev(), now.ino()) {
                return Err(ErrorKind::NotFound.into());
            }
            Ok::<_, io::Error>((ours, directory))
        };
        match lock() {
            Ok((true, directory)) => Ok((Files(path), directory)),
            Ok((false, _)) => Err(InventoryError::Busy { vm: name.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(InventoryError::NoSuchVm { vm: name.to_owned() }),
            Err(error) => Err(InventoryError::io(format!("lock {}", path.display()))(error)),
        }
    }
}

/// The place of a VM that is not known yet, which nobody else takes or cleans up. Dropped before
/// there is one, it is removed.
#[derive(Debug)]
pub struct Room(Option<(Files, File)>);

impl Room {
    /// Makes the VM known, and holds it.
    ///
    /// # Errors
    /// The files cannot be written; nothing of it is left.
    pub fn create(mut self, record: &Record) -> Result<Held, InventoryError> {
        let none = || InventoryError::NoSuchVm { vm: record.spec.name.clone() };
        let (files, lock) = self.0.take().ok_or_else(none)?;
        let new = Held { record: record.clone(), files, _lock: lock };
        let written = new.write_all();
        if written.is_err() {
            // What cannot be removed either is no VM, and in nobody's way.
            let _ = new.files.remove();
        }
        written.map(|()| new)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some((files, _lock)) = &self.0 {
            // As above.
            let _ = files.remove();
        }
    }
}

/// Why VMs in such a directory are not to be believed.
fn problem(seen: &fs::Metadata) -> Option<String> {
    if seen.is_symlink() {
        Some("it is a link; name the directory that it leads to".to_owned())
    } else if !seen.is_dir() {
        Some("it is not a directory".to_owned())
    } else if seen.uid() != effective_user_id() {
        Some("it belongs to another user".to_owned())
    } else if seen.mode() & 0o022 != 0 {
        Some(format!("others may write to it (mode {:o}); chmod go-w it", seen.mode() & 0o7777))
    } else {
        None
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
