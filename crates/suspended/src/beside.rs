//! A guest in a file that another program wrote, with what this crate says of one beside it.
//!
//! **Problem.** libvirt writes a guest into a file in a format of its own, ends QEMU once that is
//! whole, and reads it again without a look at whether it is what was written: a page that changed
//! on the disk goes into the guest.
//!
//! **Rule.** The guest of `NAME` is in `NAME.guest`. Once it is whole, it is synced, read, and its
//! length and its checksum (XXH3, 128 bits) are written into `NAME`, with what it is about. Before
//! the other program reads it, it is read and compared.
//!
//! **Properties.** A `NAME` without a guest that is as it was, or a guest without its `NAME`,
//! starts nothing.
//!
//! **Example.** `memory.homenode` (1 MiB, mostly empty) and `memory.homenode.guest` (libvirt's).

use crate::head::{Head, damaged};
use crate::{FileError, Opened, Unfinished, Written};
use linux::named_file;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use topology::Bytes;
use twox_hash::XxHash3_128;

/// Read at a time.
const PART: usize = 1 << 20;

/// The file with the guest that the file of this name is about.
pub fn guest_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".guest");
    path.with_file_name(name)
}

/// Removes a file of a suspended VM, and the guest beside it where there is one.
///
/// # Errors
/// One is there and cannot be removed.
pub fn remove(path: &Path) -> std::io::Result<()> {
    for path in [path, &guest_of(path)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Length and checksum of a guest that libvirt, as `writer`, or we wrote. `told` hears how much was
/// read.
fn read(path: &Path, writer: Option<u32>, told: &mut dyn FnMut(Bytes)) -> Result<(File, u64, u128), FileError> {
    let believed: Vec<u32> = writer.into_iter().collect();
    let mut file = named_file::open(path, &believed).map_err(FileError::io("open", path))?;
    let (mut hasher, mut part, mut length) = (XxHash3_128::new(), vec![0u8; PART], 0_u64);
    loop {
        match file.read(&mut part).map_err(FileError::io("read", path))? {
            0 => return Ok((file, length, hasher.finish_128())),
            count => {
                hasher.write(&part[..count]);
                length += count as u64;
                told(Bytes(length));
            }
        }
    }
}

impl Unfinished {
    /// Writes length and checksum of the guest beside the file, which is whole, and what both are
    /// about; as [`Unfinished::finish`]. `writer`: the user who may have written it, beside root
    /// and us.
    ///
    /// # Errors
    /// The guest is not there, another user's, or cannot be read; or as [`Unfinished::finish`].
    pub fn finish_beside(
        self,
        about: &str,
        writer: Option<u32>,
        told: &mut dyn FnMut(Bytes),
    ) -> Result<Written, FileError> {
        let path = guest_of(self.path());
        let (file, guest, sum) = read(&path, writer, told)?;
        file.sync_all().map_err(FileError::io("write", &path))?;
        let seen = file.metadata().map_err(FileError::io("read", &path))?;
        let (pieces, stored) = (u64::from(seen.uid()), seen.blocks() * 512);
        let head = Head { guest, sum, pieces, beside: true, ..Head::default() };
        self.finish_with(about, head)?;
        Ok(Written(Head { stored: stored.min(guest), ..head }))
    }
}

impl Opened {
    /// The file that the guest is in, where it is one beside this.
    pub fn beside(&self) -> Option<PathBuf> {
        self.head.beside.then(|| guest_of(self.path()))
    }

    /// Reads the guest beside the file, and compares it with what was written.
    ///
    /// # Errors
    /// It is not there, belongs to another user than then, was cut or changed, or cannot be read.
    pub fn check_beside(&self, told: &mut dyn FnMut(Bytes)) -> Result<(), FileError> {
        let path = guest_of(self.path());
        let (_, length, sum) = read(&path, Some(self.head.pieces as u32), told)?;
        if length != self.head.guest {
            let was = self.head.guest;
            return Err(damaged(&path, format!("it has {length} bytes, and was written with {was}")));
        }
        if sum != self.head.sum {
            return Err(damaged(&path, "it is not what was written"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspended(directory: &Path, guest: &[u8]) -> PathBuf {
        let path = directory.join("web");
        let _ = remove(&path);
        let file = Unfinished::create(&path).unwrap();
        fs::write(guest_of(&path), guest).unwrap();
        let written = file.finish_beside("the VM", None, &mut |_| {}).unwrap();
        assert_eq!(written.guest(), Bytes(guest.len() as u64));
        path
    }

    #[test]
    fn a_guest_that_was_cut_or_changed_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let guest: Vec<u8> = (0..2_500_000_u32).map(|at| (at / 7) as u8).collect();
        let path = suspended(directory.path(), &guest);
        let check = || Opened::open(&path).unwrap().check_beside(&mut |_| {});
        let opened = Opened::open(&path).unwrap();
        assert_eq!((opened.about(), opened.beside()), ("the VM", Some(directory.path().join("web.guest"))));
        check().unwrap();
        for at in [0, 16, 1 << 20, guest.len() - 1] {
            let mut changed = guest.clone();
            changed[at] ^= 1;
            fs::write(guest_of(&path), &changed).unwrap();
            let error = check().unwrap_err();
            assert!(error.is_bad_input() && error.to_string().contains("not what was written"), "{error}");
        }
        for length in [0, 1, guest.len() - 1] {
            fs::write(guest_of(&path), &guest[..length]).unwrap();
            assert!(check().unwrap_err().to_string().contains("was written with 2500000"));
        }
        fs::remove_file(guest_of(&path)).unwrap();
        assert!(check().unwrap_err().is_bad_input());
    }

    #[test]
    fn its_head_alone_is_no_guest() {
        let directory = tempfile::tempdir().unwrap();
        let path = suspended(directory.path(), b"libvirt's");
        let (_from, into) = std::io::pipe().unwrap();
        let error = Opened::open(&path).unwrap().pour_into(into.into()).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("beside it"), "{error}");
        remove(&path).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        remove(&path).unwrap();
    }
}
