//! The configuration files that a QEMU was given (`-readconfig`), read as it read them.
//!
//! **Problem.** Any user can name any file: a pipe that never ends, a disk, one of a file system
//! that never answers, one of root's behind a link. And a file may have changed since QEMU read it.
//!
//! **Rule.** A file is looked for from the process's own root and directory, and read where it is a
//! regular one of at most 1 MiB that has not changed since QEMU began. Where the VM's user is not
//! trusted, the file's has to be (Incus: QEMU's user is its own, the file is root's), and the file
//! has to be at hand, on a file system of this host. All else is unknown.

use super::owner;
use crate::error::read_text;
use crate::proc_text::stat_field;
use crate::process::Identity;
use crate::root::{Root, numbered_entries};
use crate::sys::{effective_user_id, find_in, open_regular};
use crate::users::{Trusted, Users};
use ::vm::qemu::UnreadBecause;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use topology::input::{LONGEST_TEXT, limited};

/// By how much the kernel's clocks may disagree about when something was.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);
/// File systems of this host: none asks a program or another host.
const OF_THIS_HOST: [&str; 11] =
    ["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"];

/// The text of a file that process `pid` was given.
///
/// # Errors
/// Why it cannot be read, or is not that which QEMU read.
pub(super) fn read(root: &Root, pid: u32, status: &str, file: &str) -> Result<String, UnreadBecause> {
    let unread = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => UnreadBecause::Gone,
        _ => UnreadBecause::Failed(error.to_string()),
    };
    let trusted = Users::read(root).trusted_by(effective_user_id());
    let is_strangers = root.is_live() && !owner::of(status).is_some_and(|user| trusted.has(user));
    let path = match Path::new(file) {
        path if path.is_absolute() => path.to_owned(),
        path => directory(root, pid).map_err(unread)?.join(path),
    };
    let found = find_in(&root.process(pid, "root"), &path, is_strangers).map_err(unread)?;
    if is_strangers && !is_of_trusted(root, pid, &found, &trusted) {
        return Err(UnreadBecause::Untrusted);
    }
    let opened = open_regular(&found).map_err(unread)?;
    let metadata = opened.metadata().map_err(unread)?;
    let changed = metadata.modified().map_err(unread)?;
    if root.is_live() && began(pid).is_none_or(|began| changed > began + CLOCKS_DIFFER) {
        return Err(UnreadBecause::Changed);
    }
    // What has no length is no text, but what the kernel makes up for each reader.
    if metadata.len() == 0 {
        return Ok(String::new());
    }
    String::from_utf8(limited(opened, LONGEST_TEXT).map_err(unread)?).map_err(|_| UnreadBecause::NoText)
}

/// Whether a file belongs to a trusted user and is on a file system that always answers.
fn is_of_trusted(root: &Root, pid: u32, found: &File, trusted: &Trusted) -> bool {
    let info = read_text(&root.join(&format!("proc/self/fdinfo/{}", found.as_raw_fd()))).unwrap_or_default();
    let Some(mount) = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim) else { return false };
    let mounts = read_text(&root.process(pid, "mountinfo")).unwrap_or_default();
    let is_here = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        (place.split(' ').next() == Some(mount)).then(|| OF_THIS_HOST.contains(&kind.split(' ').next().unwrap_or("")))
    };
    mounts.lines().find_map(is_here) == Some(true) && found.metadata().is_ok_and(|file| trusted.has(file.uid()))
}

fn directory(root: &Root, pid: u32) -> io::Result<PathBuf> {
    std::fs::read_link(root.process(pid, "cwd"))
}

/// When QEMU began: a script that becomes it keeps its own start, but QEMU's threads have theirs,
/// of which it starts the first before it reads anything.
fn began(pid: u32) -> Option<SystemTime> {
    let tasks = numbered_entries(&Root::default().process(pid, "task")).ok()?;
    let started = |id: u32| stat_field(&read_text(&Root::default().thread(pid, id, "stat")).ok()?, 22);
    let first = tasks.into_iter().filter(|&id| id != pid).filter_map(started).min();
    let age = Identity { pid, started_ticks: first.or_else(|| started(pid))? }.age_seconds().ok()?;
    SystemTime::now().checked_sub(Duration::from_secs_f64(age))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;
    use std::os::unix::fs::symlink;

    const STATUS: &str = "Uid:\t0\t0\t0\t0\n";

    #[test]
    fn a_file_is_that_of_the_processs_own_root_and_directory() {
        let (directory, root) = tree(&[("proc/7/root/vms/a.cfg", "inside"), ("vms/a.cfg", "outside")]);
        symlink("/vms", root.process(7, "cwd")).unwrap();
        symlink("/vms/a.cfg", root.process(7, "root/link.cfg")).unwrap();
        symlink(directory.path(), root.process(7, "root/out")).unwrap();
        let of = |file: &str| read(&root, 7, STATUS, file);
        for file in ["/vms/a.cfg", "a.cfg", "../vms/./a.cfg", "/link.cfg", "/../../vms/a.cfg"] {
            assert_eq!(of(file), Ok("inside".to_owned()), "{file}");
        }
        assert_eq!(of("/out/vms/a.cfg"), Err(UnreadBecause::Gone));
        assert_eq!(of("/dev/fd/63"), Err(UnreadBecause::Gone));
        assert_eq!(of("/vms"), Err(UnreadBecause::Failed("it is no regular file".to_owned())));
        std::fs::write(root.process(7, "root/long.cfg"), vec![b'#'; 1 + LONGEST_TEXT as usize]).unwrap();
        assert!(of("/long.cfg").unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn of_strangers_only_files_of_trusted_users_are_read() {
        let pid = std::process::id();
        let of = |owner: u32, file: &Path| {
            let status = format!("Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n");
            read(&Root::default(), pid, &status, file.to_str().unwrap())
        };
        let (ours, stranger) = (effective_user_id(), 4_000_000);
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("a.cfg");
        std::fs::write(&file, "x").unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(of(ours, &file), Ok("x".to_owned()));
        // Whoever runs this test is trusted by it, and so is what it wrote.
        assert_eq!(of(stranger, &file), Ok("x".to_owned()));
        assert!(of(stranger, Path::new("/proc/self/status")).is_err(), "no file system that keeps files");
        if ours == 0 {
            std::os::unix::fs::chown(&file, Some(stranger), None).unwrap();
            assert_eq!(of(stranger, &file), Err(UnreadBecause::Untrusted));
        }
    }

    #[test]
    fn a_pipe_holds_nobody_up_and_a_file_that_changed_is_unknown() {
        let place = tempfile::tempdir().unwrap();
        let (pipe, file) = (place.path().join("pipe"), place.path().join("a.cfg"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::fs::write(&file, "now").unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of = |file: &Path| read(&Root::default(), std::process::id(), &status, file.to_str().unwrap());
        assert_eq!(of(&pipe), Err(UnreadBecause::Failed("it is no regular file".to_owned())));
        let old = SystemTime::now() - Duration::from_secs(3600);
        let modified = |at| std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        modified(old);
        assert_eq!(of(&file), Ok("now".to_owned()));
        modified(SystemTime::now() + Duration::from_secs(60));
        assert_eq!(of(&file), Err(UnreadBecause::Changed));
    }
}
