//! Locks that only their own user can hold.
//!
//! **Problem.** flock(2) asks for no right but to open the file: on a directory that everybody may
//! list, any user could hold the lock for ever, and root could start no VM.
//!
//! **Rule.** What is locked is a file of mode 0600 that homenode made, of the user who locks
//! ([`LockFile`]), or something in a directory of mode 0700. [`check_lock_is_private`] refuses
//! everything else, and [`try_lock`](crate::sys::try_lock) asks it each time. Whoever holds a
//! [`LockFile`] writes its process number into it, and a wait has an end.
//!
//! **Example.** `/run/homenode/.homenode-runtime` is of mode 0600; `/run/homenode` of mode 0755.

use crate::sys::{OPEN_NO_LINK, effective_user_id, try_lock};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often somebody who waits looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Longest process number that is read.
const LONGEST_NUMBER_BYTES: u64 = 20;

/// Why a lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockFileError {
    /// Another process of this user has it still.
    #[error("{} is held by {}", path.display(), holder.map_or("another homenode".to_owned(), |pid| format!("process {pid}")))]
    Held {
        /// The file.
        path: PathBuf,
        /// The process that says that it holds it; `None` where it had no time to say so.
        holder: Option<u32>,
    },
    /// The file cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An exclusive lock that ends with this value, or with the process.
#[derive(Debug)]
pub struct LockFile {
    #[allow(dead_code, reason = "closing it releases the lock")]
    file: File,
}

impl LockFile {
    /// Takes the lock, making its file where there is none; waits up to `patience`. The file stays.
    ///
    /// # Errors
    /// [`LockFileError::Held`] where a process of this user has it for longer; the file is another
    /// user's, or cannot be made.
    pub fn take(path: &Path, patience: Duration) -> Result<Self, LockFileError> {
        let fail = |source| LockFileError::Io { path: path.to_owned(), source };
        let mut file = open_private_file(path).map_err(fail)?;
        let deadline = Instant::now() + patience;
        while !try_lock(&file).map_err(fail)? {
            if Instant::now() >= deadline {
                return Err(LockFileError::Held { path: path.to_owned(), holder: read_holder(&mut file) });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Self { file })
    }
}

fn open_private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OPEN_NO_LINK);
    let file = options.open(path)?;
    let owner = file.metadata()?.uid();
    if owner != effective_user_id() {
        return Err(io::Error::other(format!("it belongs to user {owner}; remove it")));
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

fn read_holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST_NUMBER_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Refuses a lock on what other users can open.
pub(crate) fn check_lock_is_private(locked: &Metadata) -> io::Result<()> {
    match locked.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("others may open it (mode {:o}) and hold its lock; chmod go= it", locked.mode() & 0o7777),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_who_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = LockFile::take(&path, Duration::ZERO).unwrap();
        let error = LockFile::take(&path, Duration::from_millis(5)).unwrap_err();
        assert!(error.to_string().ends_with(&format!("is held by process {}", std::process::id())), "{error}");
        drop(held);
        LockFile::take(&path, Duration::ZERO).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    /// Any user could keep root from starting VMs.
    #[test]
    fn what_others_may_open_is_not_locked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("open");
        std::fs::write(&path, "").unwrap();
        for (mode, may) in [(0o600, true), (0o644, false), (0o620, false), (0o666, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(try_lock(&File::open(&path).unwrap()).is_ok(), may, "{mode:o}");
        }
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        assert!(try_lock(&File::open(directory.path()).unwrap()).is_err());
    }
}
