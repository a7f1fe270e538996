//! One balancer at a time on a host: a lock that ends with its process, however it ends.
//!
//! **Problem.** Two balancers move the same VMs against each other. Nobody who may not move VMs may
//! keep a balancer from starting, and a lock that anybody can open is one that anybody can hold.
//!
//! **Rule.** The lock is a file of a known place, whatever state the balancer has. It belongs to
//! the balancer's user and nobody else may open it (mode 0600); a link is not followed. Whoever may
//! not open it sees by its number in `/proc/locks` whether it is held.
//!
//! **Properties.** At most one balancer a place. A user without rights to the file can neither hold
//! it nor be lied to by a file of his own: a file of another owner than the place's or root is not
//! believed.

use crate::DaemonError;
use linux::sys::{OPEN_NO_LINK, device_numbers, effective_user_id, try_lock};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The right to balance this host, for as long as the value lives.
#[derive(Debug)]
pub struct Instance(#[allow(dead_code, reason = "closing it releases the lock")] File);

impl Instance {
    /// Takes the lock file at `path`, made if it is not there, and writes our process number into
    /// it.
    ///
    /// # Errors
    /// [`DaemonError::Running`] with the number of the process that has it; the file cannot be
    /// used, or is somebody else's.
    pub fn take(path: &Path) -> Result<Self, DaemonError> {
        let fail = |source| DaemonError::file(path, "lock the balancer's file", source);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(OPEN_NO_LINK);
        let mut file = options.open(path).map_err(|source| match holder(path) {
            Some(pid) => DaemonError::Running { pid },
            None => fail(source),
        })?;
        let us = effective_user_id();
        let owner = file.metadata().map_err(fail)?.uid();
        if owner != us && us != 0 {
            return Err(fail(io::Error::other(format!("it belongs to user {owner}; remove it"))));
        }
        file.set_permissions(Permissions::from_mode(0o600)).map_err(fail)?;
        if !try_lock(&file).map_err(fail)? {
            return Err(DaemonError::Running { pid: written_pid(&mut file) });
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(fail)?;
        Ok(Self(file))
    }
}

/// The process that holds the lock file at `path`; `None` where nobody does, or where the file is
/// not one to believe.
pub fn holder(path: &Path) -> Option<Option<u32>> {
    let seen = std::fs::symlink_metadata(path).ok()?;
    let place = std::fs::metadata(path.parent().filter(|parent| !parent.as_os_str().is_empty())?).ok()?;
    if !seen.is_file() || (seen.uid() != 0 && seen.uid() != place.uid()) {
        return None;
    }
    match OpenOptions::new().read(true).custom_flags(OPEN_NO_LINK).open(path) {
        Ok(mut file) => (!try_lock(&file).ok()?).then(|| written_pid(&mut file)),
        // The lock of another user: the kernel says who has it, by number.
        Err(_) => std::fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| lock_on(line, &seen)),
    }
}

/// Who has the lock of a line of `/proc/locks` (proc(5)) if it is on this file: `1: FLOCK ADVISORY
/// WRITE 713 fe:02:270339 0 EOF`.
fn lock_on(line: &str, file: &Metadata) -> Option<Option<u32>> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // A line with `->` is of one that waits.
    let [_, "FLOCK", _, "WRITE", pid, place, ..] = fields[..] else { return None };
    let mut parts = place.split(':');
    let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
    let (major, minor) = (hex()?, hex()?);
    let inode: u64 = parts.next()?.parse().ok()?;
    let same = device_numbers(file.dev()) == (major, minor) && file.ino() == inode;
    // A process of another namespace has no number here.
    same.then(|| pid.parse().ok().filter(|pid| *pid > 0))
}

fn written_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until nobody has the lock: a program that another test is just starting has a copy of
    /// the descriptor for a moment.
    fn free(path: &Path) {
        let is_free = || holder(path).is_none();
        assert!((0..1000).any(|_| is_free() || (std::thread::sleep(std::time::Duration::from_millis(5)), false).1));
    }

    #[test]
    fn the_second_is_refused_with_the_number_of_the_first_and_the_third_comes_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(holder(&path), None);
        let first = Instance::take(&path).unwrap();
        let refused = Instance::take(&path).unwrap_err();
        assert!(matches!(refused, DaemonError::Running { pid } if pid == Some(std::process::id())), "{refused}");
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())));
        assert_eq!(holder(&path), Some(Some(std::process::id())));
        drop(first);
        free(&path);
        Instance::take(&path).unwrap();
    }

    #[test]
    fn nobody_else_can_open_the_lock_and_a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("lock"), directory.path().join("link"));
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let taken = Instance::take(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        // Who may not open it reads the same from the kernel.
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let seen = path.metadata().unwrap();
        assert_eq!(locks.lines().find_map(|line| lock_on(line, &seen)), Some(Some(std::process::id())), "{locks}");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(holder(&link), None);
        drop(taken);
        free(&path);
        assert!(Instance::take(&link).is_err());
    }
}
