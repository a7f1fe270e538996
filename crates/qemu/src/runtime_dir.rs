//! The directory that holds what background VMs need while they run, and the locks that keep two
//! starts apart.
//!
//! **Problem.** What dead VMs left is removed from here, perhaps by root. A wrong name in the
//! environment, or another user's link in a place that all may write to, must not make homenode
//! remove, or believe, what it did not make.
//!
//! **Rule.** A directory is used only if it is ours, nobody else may write to it, it is no link,
//! and homenode made it: it bears the mark ([`MARK`]), or was empty and gets it. Of a VM's
//! directory only files that homenode writes are removed, one by one by their names; what else is
//! there stays, and the directory with it.
//!
//! Root's can be listed by everybody, so that whoever plans, and the balancer's service, counts
//! what root is starting: it tells names of VMs, as every list of processes does. Each VM's
//! directory in it is for its owner alone.
//!
//! **Example.** `HOMENODE_RUNTIME_DIR=$HOME homenode vm list` is refused: the home directory has
//! files and no mark.

use crate::migration::channels;
use crate::reservation::{self, Reservation, Reserved};
use crate::{QemuError, footprint, state};
use linux::lock_file::{LockFile, LockFileError};
use linux::sys::OPEN_NO_LINK;
use scheduler::Observation;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, DirEntry, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vm::Plan;

/// Names another directory than the default.
pub const DIRECTORY_VARIABLE: &str = "HOMENODE_RUNTIME_DIR";

/// The file that says that homenode made a runtime directory. No VM's name begins with a dot. Its
/// lock is the right to place VMs: not that of the directory, since root's can be opened by all.
const MARK: &str = ".homenode-runtime";

/// What a VM's directory may have in it: all that is ever removed from there. The record is last: a
/// removal that is cut short is known as one.
const FILES_OF_A_VM: [&str; 6] = [MONITOR, CONSOLE, DOOR, MESSAGES, state::UNFINISHED, state::FILE];

/// QEMU's monitor, a socket.
pub(crate) const MONITOR: &str = "monitor";
/// The guest's console, a socket.
pub(crate) const CONSOLE: &str = "console";
/// Where the program comes in that carries a guest, a socket.
const DOOR: &str = "door";
/// The directory for the connections of a guest that goes over several.
pub(crate) const CHANNELS: &str = "channels";
/// The socket in it.
pub(crate) const CHANNELS_SOCKET: &str = "guest";
/// What QEMU wrote to its standard error.
pub(crate) const MESSAGES: &str = "messages";

/// What the directory of a VM that is being received is called behind the VM's name: no name of a
/// VM has a `+`, and the one that it leaves may be on this host.
pub(crate) const ARRIVING: &str = "+arriving";

/// Mode of root's runtime directory.
const LISTED_BY_ALL: u32 = 0o755;

/// How often somebody who waits for the placement lock looks: planning takes milliseconds.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long somebody may have a VM's directory who only cleans up.
const CLEANING_UP: Duration = Duration::from_millis(500);

/// `/run/homenode` for root, `$XDG_RUNTIME_DIR/homenode` for everyone else (without one:
/// `homenode-UID` in the directory for temporary files). Not `XDG_RUNTIME_DIR` for root: that goes
/// away when root logs out, and its VMs do not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeDir(PathBuf);

/// The right to place VMs: held from the look at the host until what is placed is reserved, and no
/// longer.
#[derive(Debug)]
pub struct PlacementLock {
    #[allow(dead_code, reason = "dropping it releases the lock")]
    lock: LockFile,
    path: PathBuf,
}

impl PlacementLock {
    /// VMs that others are starting now.
    pub fn starting(&self) -> Vec<Reserved> {
        reservation::reserved(&self.path)
    }

    /// Reserves what these VMs will hold, and lets the lock go: whoever places the next VM, and a
    /// balancer that runs, count them from now on. `running`: the VMs that run, as they were seen
    /// under this lock.
    ///
    /// # Errors
    /// They do not fit into the host's memory, or the runtime directory cannot be written.
    pub fn reserve(self, plans: &[&Plan], running: &Observation) -> Result<Reservation, QemuError> {
        footprint::check(plans, reservation::unfilled(&self.starting(), running))?;
        Reservation::write(&self.path, plans.iter().map(|plan| footprint::reserved(plan)).collect())
    }

    /// Reserves what a VM that runs will hold once it has grown, and lets the lock go: it counts
    /// so, and a balancer leaves it alone, until the reservation is dropped. That there is room is
    /// the caller's to know.
    ///
    /// # Errors
    /// The runtime directory cannot be written.
    pub fn reserve_growth(self, grown: Reserved) -> Result<Reservation, QemuError> {
        Reservation::write(&self.path, vec![grown])
    }
}

impl RuntimeDir {
    /// The directory of this user, made if it is not there.
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
            return Err(fail(io::Error::new(io::ErrorKind::InvalidInput, "the path is relative")));
        }
        let mode = if linux::sys::effective_user_id() == 0 { LISTED_BY_ALL } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(&path).map_err(fail)?;
        make_ours(&path).map_err(fail)?;
        if mode == LISTED_BY_ALL {
            // Whatever root's umask was, or an older homenode made.
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(fail)?;
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

    /// The directory of one VM while it is being received.
    pub(crate) fn of_arriving(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{ARRIVING}"))
    }

    /// Where the guest of a VM comes in that is being received.
    pub fn door(&self, name: &str) -> PathBuf {
        self.of_arriving(name).join(DOOR)
    }

    /// Waits up to `patience` until nobody else on this host, of this user, is placing a VM; `None`
    /// if somebody still is. What killed starters left is removed.
    pub fn lock_placement(&self, patience: Duration) -> Result<Option<PlacementLock>, QemuError> {
        match LockFile::take(&self.0.join(MARK), patience) {
            Ok(lock) => {
                reservation::remove_stale(&self.0);
                Ok(Some(PlacementLock { lock, path: self.0.clone() }))
            }
            Err(LockFileError::Held { .. }) => Ok(None),
            Err(LockFileError::Io { path, source }) => {
                Err(QemuError::directory(format!("lock {}", path.display()))(source))
            }
        }
    }

    /// The directories of VMs, by their names: [`RuntimeDir::of_vm`] of each is one.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        // The type of the entry itself: a link to a directory is none.
        let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let directories = std::fs::read_dir(&self.0)?.flatten().filter(is_directory);
        let mut names: Vec<String> = directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let is_vm = |name: &str| crate::attached::check_name(name).is_ok();
        names.retain(|name| is_vm(name.strip_suffix(ARRIVING).unwrap_or(name)));
        names.sort_unstable();
        Ok(names)
    }
}

/// Makes sure that a directory which is there is ours and was made by homenode.
fn make_ours(path: &Path) -> io::Result<()> {
    let seen = path.symlink_metadata()?;
    let us = linux::sys::effective_user_id();
    let problem = if seen.is_symlink() {
        // In a place that all may write to, another user could lead us to any directory of ours.
        Some("it is a link; name the directory that it leads to".to_owned())
    } else if !seen.is_dir() {
        Some("it is not a directory".to_owned())
    } else if seen.uid() != us {
        // It could hand us its owner's sockets.
        Some("it belongs to another user".to_owned())
    } else if seen.mode() & 0o022 != 0 {
        Some(format!("others may write to it (mode {:o}); chmod go-w it", seen.mode() & 0o7777))
    } else {
        None
    };
    if let Some(problem) = problem {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let mark = path.join(MARK);
    let is_marked = || mark.symlink_metadata().is_ok_and(|mark| mark.is_file() && mark.uid() == us);
    if is_marked() {
        return Ok(());
    }
    // Another homenode may have made it, marked it and used it between the two looks.
    if std::fs::read_dir(path)?.next().is_some() && !is_marked() {
        let problem = format!(
            "it has files that homenode did not make (no {MARK} is there); name an empty directory or none yet"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OPEN_NO_LINK)
        .open(&mark)
        .map(drop)
}

/// The directory of one VM, locked: by us while it is started or cleaned up, by its QEMU as long as
/// that lives.
#[derive(Debug)]
pub(crate) struct VmDirectory {
    pub(crate) path: PathBuf,
    pub(crate) lock: File,
}

impl VmDirectory {
    /// Makes the directory and locks it; `None` if a QEMU, or somebody who starts one, has it.
    /// Somebody who looks whether it is to be cleaned up has it for a moment only.
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

    /// Locks a directory that is there; `None` if its QEMU lives. `NotFound` if it went away
    /// meanwhile.
    pub(crate) fn lock_existing(path: &Path) -> io::Result<Option<Self>> {
        let lock = File::options().read(true).custom_flags(OPEN_NO_LINK).open(path)?;
        if !linux::sys::try_lock(&lock)? {
            return Ok(None);
        }
        // The lock may be on a directory that was removed, with another in its place.
        let (ours, now) = (lock.metadata()?, path.symlink_metadata()?);
        if (ours.dev(), ours.ino()) != (now.dev(), now.ino()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Self { path: path.to_owned(), lock }))
    }

    /// Removes what homenode wrote there, and the directory if nothing else is in it: says whether
    /// it has gone.
    pub(crate) fn remove(self) -> io::Result<bool> {
        match channels::remove(&self.path.join(CHANNELS)) {
            // What else is in it stays, and the directory with it.
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => return Err(error),
            _ => {}
        }
        for name in FILES_OF_A_VM {
            match std::fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match std::fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            removed => removed.map(|()| true),
        }
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

    fn names_in(path: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(path).unwrap().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The balancer's service could not read what root was starting, and gave its memory away.
    #[test]
    fn what_root_is_starting_can_be_read_by_the_service_and_nothing_else_can() {
        use std::os::unix::process::CommandExt;
        if linux::sys::effective_user_id() != 0 {
            return eprintln!("SKIPPED what_root_is_starting_can_be_read_by_the_service: it needs root");
        }
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let directory = RuntimeDir::at(root.path().join("run")).unwrap();
        let vm = VmDirectory::claim(&directory.of_vm("vm")).unwrap().unwrap();
        std::fs::write(vm.path.join(state::FILE), "secret").unwrap();
        let lock = directory.lock_placement(Duration::ZERO).unwrap().unwrap();
        let reserved = lock.reserve(&[&crate::samples::plan("a", 1, 1, 16)], &Observation::default()).unwrap();
        let by_service = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", script]).current_dir(directory.path()).uid(54_321).gid(54_321);
            let output = shell.output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        let said = by_service("cat .starting-*.json");
        assert!(said.contains("\"vm\":\"a\""), "{said}");
        let refused = by_service("ls vm; cat vm/*; cat .homenode-runtime; touch new");
        assert_eq!(refused.matches("denied").count(), 4, "{refused}");
        drop(reserved);
    }

    #[test]
    fn a_directory_that_homenode_did_not_make_is_refused_and_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home");
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        std::fs::create_dir_all(home.join("documents")).unwrap();
        let (link, open, empty) = (root.path().join("link"), root.path().join("open"), root.path().join("empty"));
        std::os::unix::fs::symlink(&home, &link).unwrap();
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        for (path, words) in [(&home, "did not make"), (&link, "it is a link"), (&open, "mode 777")] {
            let error = RuntimeDir::at(path.clone()).unwrap_err();
            let said = std::error::Error::source(&error).map_or(error.to_string(), |cause| format!("{error}: {cause}"));
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(names_in(&home), [".ssh", "documents"]);
        std::fs::create_dir(&empty).unwrap();
        for _ in 0..2 {
            RuntimeDir::at(empty.clone()).unwrap();
            assert_eq!(names_in(&empty), [MARK]);
        }
    }

    #[test]
    fn only_what_homenode_wrote_is_removed_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::at(root.path().join("run")).unwrap();
        let kept = root.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join(state::FILE), "{}").unwrap();
        std::os::unix::fs::symlink(&kept, directory.of_vm("link")).unwrap();
        let own = directory.of_vm("own");
        DirBuilder::new().mode(0o700).create(&own).unwrap();
        std::fs::write(own.join(MESSAGES), "").unwrap();
        std::fs::write(own.join("disk.img"), "").unwrap();
        assert_eq!(directory.names().unwrap(), ["own"]);
        assert!(VmDirectory::lock_existing(&directory.of_vm("link")).is_err());
        assert!(!VmDirectory::lock_existing(&own).unwrap().unwrap().remove().unwrap());
        assert_eq!((names_in(&own), names_in(&kept)), (vec!["disk.img".into()], vec![state::FILE.into()]));
    }

    /// Root's directory can be opened by every user, and whoever opened it could lock it.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "what another user would do")]
    fn a_lock_on_the_directory_keeps_nobody_from_placing() {
        let root = tempfile::tempdir().unwrap();
        let directory = RuntimeDir::at(root.path().to_owned()).unwrap();
        let of_another_user = File::open(directory.path()).unwrap();
        of_another_user.try_lock().unwrap();
        let lock = directory.lock_placement(Duration::ZERO).unwrap();
        assert!(lock.is_some(), "another user keeps us from placing VMs");
        let mode = std::fs::metadata(directory.path().join(MARK)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
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
