//! A cpio archive (newc) that a kernel unpacks behind its initramfs.

use cpio::newc::{Builder, trailer};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its absolute path in the guest.
    pub path: PathBuf,
    /// Whether it can be executed.
    pub is_program: bool,
    /// What it holds.
    pub content: Vec<u8>,
}

/// The archive of some files and of the directories above them. The same files give the same
/// bytes.
///
/// # Errors
/// A file is over 4 GiB, or its name is no text.
pub fn archive(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut made = BTreeSet::new();
    // The kernel takes two entries with one number for links to each other.
    let mut number = 1;
    for entry in entries {
        let mut above: Vec<&Path> = entry.path.ancestors().skip(1).filter(|path| path.parent().is_some()).collect();
        above.reverse();
        for directory in above {
            if made.insert(directory.to_owned()) {
                add(&mut archive, directory, DIRECTORY, number, &[])?;
                number += 1;
            }
        }
        add(&mut archive, &entry.path, if entry.is_program { PROGRAM } else { FILE }, number, &entry.content)?;
        number += 1;
    }
    trailer(archive)
}

fn add(archive: &mut Vec<u8>, path: &Path, mode: u32, number: u32, content: &[u8]) -> io::Result<()> {
    let name = path.strip_prefix("/").unwrap_or(path);
    let name = std::str::from_utf8(name.as_os_str().as_bytes())
        .map_err(|_| io::Error::other(format!("{}: a path in an archive is text in UTF-8", path.display())))?;
    let length = u32::try_from(content.len()).map_err(|_| io::Error::other(format!("{name} is over 4 GiB")))?;
    let mut entry = Builder::new(name).mode(mode).ino(number).nlink(1).write(&mut *archive, length);
    entry.write_all(content)?;
    entry.finish().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn another_program_unpacks_the_same_files() {
        let entry =
            |path: &str, is_program, content: &[u8]| Entry { path: path.into(), is_program, content: content.to_vec() };
        let bytes = archive(&[entry("/opt/a/run", true, b"#!/bin/sh\n"), entry("/opt/b", false, b"x")]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut unpack = Command::new("cpio")
            .args(["-id", "--quiet"])
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("cpio");
        unpack.stdin.take().unwrap().write_all(&bytes).unwrap();
        assert!(unpack.wait().unwrap().success());
        let mode = |path: &str| {
            let metadata = directory.path().join(path).metadata().unwrap();
            std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o777
        };
        assert_eq!((mode("opt/a"), mode("opt/a/run"), mode("opt/b")), (0o755, 0o755, 0o644));
        assert_eq!(std::fs::read(directory.path().join("opt/a/run")).unwrap(), b"#!/bin/sh\n");
    }
}
