//! Disks of a VM as two hosts see them. They are not copied: both must reach the same ones.

use crate::MigrationError;
use crate::protocol::DiskSeen;
use linux::sys::OPEN_NO_WAIT;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use topology::Bytes;
use vm::VmSpec;
use vm::spec::Disk;

/// The disks of a spec as this host sees them.
///
/// # Errors
/// One is not there.
pub fn seen(spec: &VmSpec) -> Result<Vec<DiskSeen>, MigrationError> {
    let seen = |(index, disk): (usize, &Disk)| {
        see(disk).map_err(|error| {
            let (vm, path) = (&spec.name, disk.path.display());
            MigrationError::BadInput(format!(
                "VM {vm}: disk[{index}].path = {path}: {error}; it must be there on both hosts: put it back first"
            ))
        })
    };
    spec.disks.iter().enumerate().map(seen).collect()
}

fn see(disk: &Disk) -> std::io::Result<DiskSeen> {
    // To open a pipe that nobody writes would take for ever.
    let mut file = File::options().read(true).custom_flags(OPEN_NO_WAIT).open(&disk.path)?;
    let about = file.metadata()?;
    if !about.is_file() && !about.file_type().is_block_device() {
        return Err(std::io::Error::other("it is neither a file nor a disk"));
    }
    // The size of a device is where it ends.
    let size = Bytes(file.seek(SeekFrom::End(0))?);
    Ok(DiskSeen { path: disk.path.clone(), size, identity: (about.dev(), about.ino()) })
}

/// Why the VM's disks cannot be used here; `None` where they can. It is read at the source, so its
/// words say `there` of this host. `same_place`: the VM comes from this host. `shared`: somebody
/// says that disks of the same path and size are the same.
pub fn problem(spec: &VmSpec, there: &[DiskSeen], same_place: bool, shared: bool) -> Option<String> {
    for (disk, there) in spec.disks.iter().zip(there) {
        let path = disk.path.display();
        if disk.snapshot {
            let what = "what was written to it is in a file of QEMU's own, which is not sent";
            return Some(format!("disk {path} has snapshot = true: {what}"));
        }
        let here = match see(disk) {
            Ok(here) => here,
            Err(error) => return Some(format!("disk {path} cannot be opened there: {error}; disks are not copied")),
        };
        if same_place {
            if here.identity != there.identity {
                return Some(format!("disk {path} is another file there"));
            }
        } else if here.size != there.size {
            let (here, there) = (here.size.0, there.size.0);
            return Some(format!("disk {path} has {here} bytes there and {there} here: it is not the same disk"));
        } else if !shared {
            let cure = "if both hosts reach the same disk, say so with --shared-storage";
            return Some(format!(
                "disk {path} is there too, with the same size, which does not prove that it is the same; {cure}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm::spec::DiskFormat;

    #[test]
    fn a_disk_is_the_same_file_or_said_to_be() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("disk.img");
        std::fs::write(&path, [0u8; 512]).unwrap();
        let disk = Disk { path: path.clone(), format: DiskFormat::Raw, snapshot: false, read_only: false };
        let mut spec = VmSpec { disks: vec![disk], ..VmSpec::default() };
        let there = seen(&spec).unwrap();
        assert_eq!(there[0].size, Bytes(512));
        assert_eq!(problem(&spec, &there, true, false), None);
        assert!(problem(&spec, &there, false, false).unwrap().contains("--shared-storage"));
        assert_eq!(problem(&spec, &there, false, true), None);
        let other = vec![DiskSeen { size: Bytes(1024), identity: (0, 0), ..there[0].clone() }];
        assert!(problem(&spec, &other, false, true).unwrap().contains("512 bytes there and 1024 here"));
        assert!(problem(&spec, &other, true, true).unwrap().contains("another file"));
        spec.disks[0].snapshot = true;
        assert!(problem(&spec, &there, true, true).unwrap().contains("snapshot"));
        spec.disks[0].snapshot = false;
        std::fs::remove_file(&path).unwrap();
        assert!(problem(&spec, &there, true, true).unwrap().contains("not copied"));
        let gone = seen(&spec).unwrap_err();
        assert!(gone.is_bad_input() && gone.to_string().contains("disk[0].path = "), "{gone}");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|made| made.success()));
        assert!(problem(&spec, &there, false, true).unwrap().contains("neither a file nor a disk"));
    }
}
