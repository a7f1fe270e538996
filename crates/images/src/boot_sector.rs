//! What BIOS would start of a disk: the program in its first sector.
//!
//! A disk for UEFI alone has a first sector too, which says that its partitions are described
//! elsewhere, and mostly no program in it: BIOS enters it, and hangs.

use crate::own_disk;
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::path::Path;
use vm::spec::DiskFormat;

const SECTOR: usize = 512;
/// What ends the first sector of a disk that BIOS starts.
const SIGNATURE: [u8; 2] = [0x55, 0xaa];
/// Bytes of a program in the first sector; behind it are the disk's number and four partitions.
const PROGRAM: usize = 440;

/// Why BIOS starts nothing of a disk, as a phrase; `None` where it does, or nobody can say.
pub fn bios_problem(disk: &Path, format: DiskFormat) -> Option<&'static str> {
    let sector = first_sector(disk, format).ok()?;
    if sector[SECTOR - SIGNATURE.len()..] != SIGNATURE {
        return Some("it has no boot sector");
    }
    sector[..PROGRAM].iter().all(|&byte| byte == 0).then_some("its boot sector has no program")
}

fn first_sector(disk: &Path, format: DiskFormat) -> Result<[u8; SECTOR]> {
    let (mut file, _) = own_disk::open(disk)?;
    match format {
        DiskFormat::Raw => read(&mut file, 0),
        DiskFormat::Qcow2 => of_qcow2(&mut file),
    }
}

fn read<const N: usize>(file: &mut File, at: u64) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(file: &mut File, at: u64) -> Result<u64> {
    read(file, at).map(u64::from_be_bytes)
}

fn word(file: &mut File, at: u64) -> Result<u32> {
    read(file, at).map(u32::from_be_bytes)
}

/// Bits of an entry of either table that are a place in the file.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// Bits of an entry of the second table: the cluster is compressed, or reads as zeros.
const COMPRESSED: u64 = 1 << 62;
const ZEROS: u64 = 1;
/// Features without which the tables are as they are read here: unclean ones, and the kind of
/// compression.
const KNOWN_FEATURES: u64 = 0b1011;

/// The first sector of a qcow2 image (docs/interop/qcow2.txt of QEMU), which two tables lead to. An
/// image that stands on another one, or is encrypted, is not read.
fn of_qcow2(file: &mut File) -> Result<[u8; SECTOR]> {
    let unread = || Error::from(ErrorKind::Unsupported);
    let (version, backing, cluster_bits) = (word(file, 4)?, number(file, 8)?, word(file, 20)?);
    let (encryption, first_table) = (word(file, 32)?, number(file, 40)?);
    let features = if version >= 3 { number(file, 72)? } else { 0 };
    let compression = if features & 0b1000 != 0 { read::<1>(file, 104)?[0] } else { 0 };
    let known = features & !KNOWN_FEATURES == 0 && (2..=3).contains(&version) && (9..=21).contains(&cluster_bits);
    if backing != 0 || encryption != 0 || compression != 0 || !known {
        return Err(unread());
    }
    let second_table = number(file, first_table)? & PLACE;
    if second_table == 0 {
        return Ok([0; SECTOR]);
    }
    let cluster = number(file, second_table)?;
    if cluster & COMPRESSED != 0 {
        let sector_bits = cluster_bits - 8;
        let at = cluster & ((1 << (62 - sector_bits)) - 1);
        file.seek(SeekFrom::Start(at))?;
        let mut sector = [0; SECTOR];
        DeflateDecoder::new(file).read_exact(&mut sector)?;
        return Ok(sector);
    }
    if cluster & ZEROS != 0 || cluster & PLACE == 0 { Ok([0; SECTOR]) } else { read(file, cluster & PLACE) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A disk of 1 MiB with this first sector, as a raw file and in every form of qcow2 that
    /// `qemu-img` makes of it.
    fn problems(sector: &[u8]) -> Vec<Option<&'static str>> {
        let place = tempfile::tempdir().unwrap();
        let raw = place.path().join("disk.raw");
        let mut content = sector.to_vec();
        content.resize(1 << 20, 0);
        // A cluster of zeros alone would not be there.
        content[SECTOR] = 1;
        std::fs::write(&raw, content).unwrap();
        let mut found = vec![bios_problem(&raw, DiskFormat::Raw)];
        for options in [&[][..], &["-c"], &["-o", "compat=0.10"], &["-o", "cluster_size=512"]] {
            let qcow2 = place.path().join("disk.qcow2");
            let mut command = Command::new("qemu-img");
            command.args(["convert", "-f", "raw", "-O", "qcow2"]).args(options).arg(&raw).arg(&qcow2);
            if !command.status().is_ok_and(|status| status.success()) {
                eprintln!("SKIPPED of images in qcow2: they need qemu-img");
                break;
            }
            found.push(bios_problem(&qcow2, DiskFormat::Qcow2));
        }
        found
    }

    #[test]
    fn a_disk_without_a_program_for_bios_is_told_in_every_form() {
        let mut sector = vec![0; SECTOR];
        let all = |sector: &[u8], expected: Option<&str>| {
            let found = problems(sector);
            assert!(found.iter().all(|one| *one == expected), "{found:?}, not {expected:?}");
        };
        all(&sector, Some("it has no boot sector"));
        sector[510..].copy_from_slice(&SIGNATURE);
        // The protective partition of a disk with a GPT.
        sector[PROGRAM + 6..PROGRAM + 10].copy_from_slice(&[0, 0, 2, 0]);
        sector[450] = 0xee;
        all(&sector, Some("its boot sector has no program"));
        sector[0] = 0xeb;
        all(&sector, None);
    }

    #[test]
    fn what_cannot_be_read_is_not_judged() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("disk.qcow2");
        assert_eq!(bios_problem(&path, DiskFormat::Raw), None);
        std::fs::write(&path, "short").unwrap();
        assert_eq!(bios_problem(&path, DiskFormat::Raw), None);
        std::fs::write(&path, [0xff; 4096]).unwrap();
        assert_eq!(bios_problem(&path, DiskFormat::Qcow2), None);
        assert_eq!(bios_problem(place.path(), DiskFormat::Raw), None);
    }
}
