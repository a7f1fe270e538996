//! A disk image of the user's own: what can be said of it before a guest boots it.

use crate::ImagesError;
use crate::boot_sector::bios_problem;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;
use topology::Bytes;
use vm::spec::{DiskFormat, GuestImage};

/// Bytes at the beginning of a disk that say what it is: its first two sectors.
const BEGINNING: u64 = 1024;
/// What a disk that a firmware boots has at the end of its first sector.
const BOOT_SIGNATURE: (usize, [u8; 2]) = (510, [0x55, 0xaa]);
const QCOW2: &[u8] = b"QFI\xfb";
/// Other things that clouds publish, by how they begin, and what makes a disk of them.
const OTHERS: [(&[u8], &str, &str); 7] = [
    (b"KDMV", "a VMDK image", "qemu-img convert -O qcow2 IN OUT"),
    (b"vhdxfile", "a VHDX image", "qemu-img convert -O qcow2 IN OUT"),
    (b"conectix", "a VHD image", "qemu-img convert -O qcow2 IN OUT"),
    (b"\x1f\x8b", "compressed (gzip)", "gunzip FILE"),
    (b"\xfd7zXZ", "compressed (xz)", "unxz FILE"),
    (b"BZh", "compressed (bzip2)", "bunzip2 FILE"),
    (b"\x28\xb5\x2f\xfd", "compressed (zstd)", "unzstd FILE"),
];

/// A disk image, as it was when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnDisk {
    /// Where it is.
    pub disk: GuestImage,
    /// Its length.
    pub length: Bytes,
    /// When it was changed last, in seconds since 1970.
    pub modified: u64,
}

impl OwnDisk {
    /// Looks at a disk image that a guest is to boot.
    ///
    /// # Errors
    /// It is not there, or is no disk of the format that is written.
    pub fn look(image: &GuestImage) -> Result<Self, ImagesError> {
        let refused = |field: &str, problem: String| ImagesError::Guest { field: field.to_owned(), problem };
        let of_file = |problem: String| refused("guest.image", format!("{}: {problem}", image.path.display()));
        let (mut file, length) = open(&image.path).map_err(|error| of_file(error.to_string()))?;
        let mut beginning = Vec::new();
        let read = file.by_ref().take(BEGINNING).read_to_end(&mut beginning);
        read.map_err(|error| of_file(error.to_string()))?;
        if let Some((field, problem)) = problem(&beginning, image.format) {
            return Err(refused(field, format!("{}: {problem}", image.path.display())));
        }
        if let Some(problem) = bios_problem(&image.path, image.format).filter(|_| image.firmware.is_bios()) {
            return Err(of_file(format!(
                "BIOS starts nothing of it: {problem}; for an image that UEFI boots write firmware = \"uefi\""
            )));
        }
        let modified = file.metadata().and_then(|seen| seen.modified()).ok();
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |past| past.as_secs());
        Ok(Self { disk: image.clone(), length: Bytes(length), modified })
    }

    /// What became of it since it was looked at, as a sentence; `None` where it is the same.
    pub fn changed(&self) -> Option<String> {
        match Self::look(&self.disk) {
            Ok(now) if now == *self => None,
            Ok(_) => Some(format!("{} was changed since", self.disk.path.display())),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// The file and its length. To open a named pipe would wait for whoever writes into it.
pub(crate) fn open(path: &Path) -> std::io::Result<(File, u64)> {
    let kind = path.metadata()?.file_type();
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if !(kind.is_file() || std::os::unix::fs::FileTypeExt::is_block_device(&kind)) {
        return Err(std::io::Error::other("it is no file and no block device"));
    }
    let mut file = File::open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok((file, length))
}

/// What is wrong with a disk that begins so: the field, and what to do.
fn problem(beginning: &[u8], format: DiskFormat) -> Option<(&'static str, String)> {
    if beginning.starts_with(QCOW2) {
        let raw = format == DiskFormat::Raw;
        return raw.then(|| ("guest.format", "it is a qcow2 image: write format = \"qcow2\"".to_owned()));
    }
    if let Some((_, what, cure)) = OTHERS.iter().find(|(start, ..)| beginning.starts_with(start)) {
        return Some(("guest.image", format!("it is {what}: `{cure}` makes a disk of it")));
    }
    let (at, signature) = BOOT_SIGNATURE;
    let boots = beginning.get(at..at + signature.len()) == Some(&signature);
    match (format, boots) {
        (DiskFormat::Raw, true) => None,
        (DiskFormat::Qcow2, true) => Some((
            "guest.format",
            "it is no qcow2 image; it begins as a raw disk does: write format = \"raw\"".to_owned(),
        )),
        (_, false) => Some((
            "guest.image",
            "it is no disk image that boots: neither qcow2, nor raw with a boot sector (`qemu-img info` says more)"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use vm::spec::Firmware;

    /// Looked at for what it is, not for what BIOS makes of it.
    fn image(path: PathBuf, format: DiskFormat) -> GuestImage {
        GuestImage { path, format, firmware: Firmware::Uefi }
    }

    fn looked(content: &[u8], format: DiskFormat) -> Result<OwnDisk, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, content).unwrap();
        OwnDisk::look(&image(path, format)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_no_disk_is_named_with_its_cure() {
        let mut sector = vec![0; 2048];
        assert!(looked(&sector, DiskFormat::Raw).unwrap_err().contains("boot sector"));
        sector[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(looked(&sector, DiskFormat::Raw).unwrap().length, Bytes(2048));
        let error = looked(&sector, DiskFormat::Qcow2).unwrap_err();
        assert!(error.starts_with("guest.format: ") && error.contains("format = \"raw\""), "{error}");
        let qcow2 = [QCOW2, &[0; 512]].concat();
        assert!(looked(&qcow2, DiskFormat::Qcow2).is_ok());
        assert!(looked(&qcow2, DiskFormat::Raw).unwrap_err().contains("format = \"qcow2\""));
        assert!(looked(b"KDMV....", DiskFormat::Qcow2).unwrap_err().contains("qemu-img convert"));
        assert!(looked(b"\xfd7zXZ\0", DiskFormat::Qcow2).unwrap_err().contains("unxz"));
        assert!(looked(b"", DiskFormat::Qcow2).unwrap_err().contains("no disk image"));
        let absent = image(PathBuf::from("/no/disk.qcow2"), DiskFormat::Qcow2);
        let error = OwnDisk::look(&absent).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().starts_with("guest.image: /no/disk.qcow2: No such"));
    }

    #[test]
    fn a_disk_for_uefi_alone_is_refused_where_bios_is_to_boot_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        let mut content = [0; 2048];
        content[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(&path, content).unwrap();
        let look = |firmware| OwnDisk::look(&GuestImage { path: path.clone(), format: DiskFormat::Raw, firmware });
        let refused = look(Firmware::Bios).unwrap_err();
        assert!(refused.is_bad_input() && refused.to_string().contains("write firmware = \"uefi\""), "{refused}");
        assert!(look(Firmware::Uefi).is_ok());
    }

    #[test]
    fn an_image_that_is_changed_or_gone_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk");
        std::fs::write(&path, [QCOW2, &[0; 512]].concat()).unwrap();
        let disk = OwnDisk::look(&image(path.clone(), DiskFormat::Qcow2)).unwrap();
        assert_eq!(disk.changed(), None);
        std::fs::write(&path, [QCOW2, &[0; 600]].concat()).unwrap();
        assert!(disk.changed().unwrap().ends_with("was changed since"));
        std::fs::remove_file(&path).unwrap();
        assert!(disk.changed().unwrap().contains("No such file"));
    }
}
