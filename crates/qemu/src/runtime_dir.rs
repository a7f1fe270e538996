//! The directory that holds what background VMs need while they run, and the locks that keep two starts apart.

use crate::reservation::{self, Reservation, Reserved};
use crate::{QemuError, footprint};
use scheduler::{Observation, Plan};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names another directory than the default.
pub const DIRECTORY_VARIABLE: &str = "HOMENODE_RUNTIME_DIR";

/// How often somebody who waits for the placement lock looks: planning takes milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long somebody may have a VM's directory who only cleans up.
const CLEANING_UP: Duration = Duration::from_millis(500);

/// `/run/homenode` for root, `$XDG_RUNTIME_DIR/homenode` for everyone else (without one: `homenode-UID` in the directory for temporary
/// files). Not `XDG_RUNTIME_DIR` for root: that goes away when root logs out, and its VMs do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeDir(PathBuf);

/// The right to place VMs: held from the look at the host until what is placed is reserved, and no longer.
#[derive(Debug)]
pub struct PlacementLock {
    #[allow(dead_code, reason = "closing it releases the lock")]
    directory: File,
    path: PathBuf,
}

impl PlacementLock {
    /// VMs that others are starting now.
    pub fn starting(&self) -> Vec<Reserved> {
        reservation::reserved(&self.path)
    }

    /// Reserves what these VMs will hold, and lets the lock go: whoever places the next VM, and a balancer that runs, count them from now on.
    /// `running`: the VMs that run, as they were seen under this lock.
    ///
    /// # Errors
    /// They do not fit into the host's memory, or the runtime directory cannot be written.
    pub fn reserve(self, plans: &[&Plan], running: &Observation) -> Result<Reservation, QemuError> {
        footprint::check(plans, reservation::unfilled(&self.starting(), running))?;
        Reservation::write(&self.path, plans.iter().map(|plan| footprint::reserved(plan)).collect())
    }
}

impl RuntimeDir {
    /// The directory of this user, made if it is not there, readable by its owner alone.
    pub fn open() -> Result<Self, QemuError> {
        Self::at(Self::of_this_user())
    }

    /// Where the directory of this user is; it may not be there.
    pub fn of_this_user() -> PathBuf {
        Self::choose(|name| std::env::var_os(name).map(PathBuf::from), linux::sys::effective_user_id())
    }

    /// A directory of this path.
    pub fn at(path: PathBuf) -> Result<Self, QemuError> {
        let fail = |source| {
            let action = format!("use {} for what runs here (another in {DIRECTORY_VARIABLE})", path.display());
            QemuError::directory(action)(source)
        };
        // Every working directory would be another host.
        if path.is_relative() {
            return Err(fail(io::Error::other("the path is relative")));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(fail)?;
        // Somebody else's directory in a place that all may write to could hand us their sockets.
        if path.metadata().map_err(fail)?.uid() != linux::sys::effective_user_id() {
            return Err(fail(io::Error::other("it belongs to another user")));
        }
        Ok(Self(path))
    }

    fn choose(variable: impl Fn(&str) -> Option<PathBuf>, user: u32) -> PathBuf {
        let named = variable(DIRECTORY_VARIABLE).filter(|path| !path.as_os_str().is_empty());
        let of_session =
            || variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()).map(|path| path.join("homenode"));
        match (named, user) {
            (Some(path), _) => path,
            (None, 0) => "/run/homenode".into(),
            (None, _) => of_session().unwrap_or_else(|| std::env::temp_dir().join(format!("homenode-{user}"))),
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of one VM.
    pub(crate) fn of_vm(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits up to `patience` until nobody else on this host, of this user, is placing a VM; `None` if somebody still is. What killed starters
    /// left is removed.
    pub fn lock_placement(&self, patience: Duration) -> Result<Option<PlacementLock>, QemuError> {
        let deadline = Instant::now() + patience;
        let lock = || {
            let directory = File::open(&self.0)?;
            while !linux::sys::try_lock(&directory)? {
                if Instant::now() >= deadline {
                    return Ok(None);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            reservation::remove_stale(&self.0);
            Ok(Some(PlacementLock { directory, path: self.0.clone() }))
        };
        lock().map_err(QemuError::directory(format!("lock {}", self.0.display())))
    }

    /// Names of the VMs that have a directory.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let directories = std::fs::read_dir(&self.0)?.flatten().filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> = directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }
}

/// The directory of one VM, locked: by us while it is started or cleaned up, by its QEMU as long as that lives.
#[derive(Debug)]
pub(crate) struct VmDirectory {
    pub(crate) path: PathBuf,
    pub(crate) lock: File,
}

impl VmDirectory {
    /// Makes the directory and locks it; `None` if a QEMU, or somebody who starts one, has it. Somebody who looks whether it is to be cleaned up
    /// has it for a moment only.
    pub(crate) fn claim(path: &Path) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + CLEANING_UP;
        loop {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            match Self::lock_existing(path) {
                // Somebody cleaned it up between the two calls.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                other => return other,
            }
        }
    }

    /// Locks a directory that is there; `None` if its QEMU lives. `NotFound` if it went away meanwhile.
    pub(crate) fn lock_existing(path: &Path) -> io::Result<Option<Self>> {
        let lock = File::open(path)?;
        if !linux::sys::try_lock(&lock)? {
            return Ok(None);
        }
        // The lock may be on a directory that was removed, with another in its place.
        let (ours, now) = (lock.metadata()?, path.metadata()?);
        if (ours.dev(), ours.ino()) != (now.dev(), now.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Self { path: path.to_owned(), lock }))
    }

    /// Removes all its files, and itself.
    pub(crate) fn remove(self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_follows_the_user() {
        let set = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
        };
        let session = &[("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(RuntimeDir::choose(set(session), 0), Path::new("/run/homenode"));
        assert_eq!(RuntimeDir::choose(set(session), 7), Path::new("/run/user/7/homenode"));
        let named = &[("XDG_RUNTIME_DIR", "/run/user/7"), (DIRECTORY_VARIABLE, "/d")];
        assert_eq!(RuntimeDir::choose(set(named), 0), Path::new("/d"));
        assert!(RuntimeDir::choose(set(&[]), 7).ends_with("homenode-7"));
    }

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let first = VmDirectory::claim(&path).unwrap().unwrap();
        assert!(VmDirectory::claim(&path).unwrap().is_none());
        let copy = first.lock.try_clone().unwrap(); // as a QEMU that inherited it
        drop(first);
        assert!(VmDirectory::lock_existing(&path).unwrap().is_none());
        drop(copy);
        VmDirectory::lock_existing(&path).unwrap().unwrap().remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn placement_is_one_at_a_time() {
        let root = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::at(root.path().to_owned()).unwrap();
        let held = directory.lock_placement(Duration::ZERO).unwrap().unwrap();
        assert!(directory.lock_placement(Duration::from_millis(5)).unwrap().is_none());
        // A plan that is reserved lets the next one in.
        let reservation = held.reserve(&[&crate::samples::plan("a", 1, 1, 16)], &Observation::default()).unwrap();
        let next = directory.lock_placement(Duration::ZERO).unwrap().unwrap();
        assert_eq!(next.starting()[0].vm, "a");
        drop(reservation);
        assert_eq!(next.starting(), []);
    }
}
