//! Captured machines: a `.tar.gz` of just the files that reading needs.

use super::error::ReadError;
use super::tree::{Files, LONGEST_FILE, Tree};
use super::{MOST_THREADS, sysfs};
use crate::Machine;
use crate::input::excerpt;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::io::{self, Read};
use std::path::{Component, Path};

/// The most that an archive may hold unpacked.
const LARGEST_ARCHIVE: u64 = 256 << 20;
/// The most that its files may have together: some 200 bytes in each of sixteen files a thread.
const MOST_TEXT: usize = 64 << 20;
/// The most entries: sixteen files and directories a thread.
const MOST_ENTRIES: usize = MOST_THREADS * 16;

/// Packs what [`from_root`](super::from_root) reads of a directory (`/` for this host) as a
/// `.tar.gz`.
///
/// Of `/proc/cpuinfo`, `/proc/meminfo` and `/proc/self/status` it takes only the lines that are
/// read.
///
/// # Errors
/// Where the machine itself cannot be read.
pub fn capture(root: &Path) -> Result<Vec<u8>, ReadError> {
    let tree = Tree::in_directory(root.to_owned()).recording();
    sysfs::machine(&tree, "captured")?;
    pack(&tree.into_record()).map_err(|source| ReadError::Io { path: root.to_owned(), source })
}

/// A machine from an archive as [`capture`] writes it; the tree may lie in one directory inside it.
///
/// # Errors
/// Where the archive is damaged or too large, or describes no machine.
pub fn from_archive(archive: &[u8], name: &str) -> Result<Machine, ReadError> {
    let files = unpack(archive, name)?;
    sysfs::machine(&Tree::captured(files, name.to_owned()), name)
}

fn pack(files: &Files) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (path, text) in files {
        let mut header = tar::Header::new_ustar();
        match text {
            Some(text) => {
                header.set_mode(0o644);
                header.set_size(text.len() as u64);
                archive.append_data(&mut header, path, text.as_bytes())?;
            }
            None => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                archive.append_data(&mut header, format!("{path}/"), io::empty())?;
            }
        }
    }
    archive.into_inner()?.finish()
}

fn unpack(archive: &[u8], name: &str) -> Result<Files, ReadError> {
    const ZIPPED: [u8; 2] = [0x1f, 0x8b];
    if archive.starts_with(&ZIPPED) {
        unpack_tar(GzDecoder::new(archive).take(LARGEST_ARCHIVE), name)
    } else {
        unpack_tar(archive.take(LARGEST_ARCHIVE), name)
    }
}

fn unpack_tar(stream: impl Read, name: &str) -> Result<Files, ReadError> {
    let fail = |reason: String| ReadError::Archive { archive: name.to_owned(), reason };
    let damaged = |error: io::Error| {
        fail(format!(
            "not a complete tar archive ({}); pack one with `homenode topology --capture`",
            excerpt(&error.to_string())
        ))
    };
    let (mut files, mut kept) = (Files::new(), 0);
    let mut tar = tar::Archive::new(stream);
    for (count, entry) in tar.entries().map_err(damaged)?.enumerate() {
        let mut entry = entry.map_err(damaged)?;
        if count >= MOST_ENTRIES {
            return Err(fail(format!("more than {MOST_ENTRIES} entries: no machine needs so many")));
        }
        let Some(path) = entry.path().ok().and_then(|path| path_in_tree(&path)) else { continue };
        let mut text = None;
        if entry.header().entry_type().is_file() {
            if entry.size() > LONGEST_FILE {
                return Err(fail(format!(
                    "{} has {} bytes: at most {LONGEST_FILE} are read",
                    excerpt(&path),
                    entry.size()
                )));
            }
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(damaged)?;
            // Some captures pad each file with zeros.
            let whole = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
            kept += whole.len();
            if kept > MOST_TEXT {
                return Err(fail(format!(
                    "its files have more than {MOST_TEXT} bytes together: no machine needs so much"
                )));
            }
            text = Some(whole);
        }
        files.insert(path, text);
    }
    Ok(files)
}

/// An entry's path from its `sys` or `proc` on, or from where cpusets were mounted in old days;
/// that may be one directory down. `None` for anything else.
fn path_in_tree(path: &Path) -> Option<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_str()?),
            Component::CurDir => {}
            _ => return None,
        }
    }
    let start = names.iter().take(2).position(|name| ["sys", "proc", "dev", "cgroup"].contains(name))?;
    Some(names[start..].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn golden(name: &str) -> Files {
        let file = format!("{}/tests/golden/{name}.tar.gz", env!("CARGO_MANIFEST_DIR"));
        unpack(&std::fs::read(file).expect(name), name).expect(name)
    }

    #[test]
    fn a_small_archive_that_unpacks_to_much_is_refused() {
        let text = "0".repeat(1 << 20);
        let files = (0..100).map(|number| (format!("sys/{number}"), Some(text.clone()))).collect();
        let packed = pack(&files).expect("an archive");
        assert!(packed.len() < 1 << 20, "{}", packed.len());
        let error = unpack(&packed, "small.tar.gz").unwrap_err().to_string();
        assert!(error.contains("more than 67108864 bytes together"), "{error}");
    }

    properties::properties! {
        #![cases(300)]

        /// Whatever the files say, a machine is whole or there is an error.
        #[test]
        fn damaged_files_give_a_whole_machine_or_an_error(
            name in prop::sample::select(vec!["x86-hybrid", "offline-by-maxcpus", "cpuless-and-memory-only", "arm-big-little"]),
            damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(DAMAGE.to_vec())), 1..6),
        ) {
            let mut files = golden(name);
            for (index, text) in damage {
                let path = index.get(&files.keys().cloned().collect::<Vec<_>>()).clone();
                if text.is_empty() {
                    files.remove(&path);
                } else {
                    files.insert(path, Some(text.to_owned()));
                }
            }
            if let Ok(machine) = sysfs::machine(&Tree::captured(files, name.to_owned()), name) {
                prop_assert!(machine.threads.windows(2).all(|pair| pair[0].id < pair[1].id));
                prop_assert!(machine.threads.iter().all(|thread| machine.node(thread.node).is_some()));
                prop_assert!(machine.threads.iter().all(|thread| thread.llc.is_none_or(|id| machine.llcs.iter().any(|llc| llc.id == id))));
                prop_assert_eq!(machine.distances.rows().len(), machine.nodes.len());
            }
        }
    }

    /// What a file is replaced by; nothing removes it.
    const DAMAGE: [&str; 12] = [
        "",
        "0",
        "0-3",
        "7",
        "-1",
        "10 20",
        "10 21 31 41",
        "4294967295",
        "18446744073709551615",
        "65535",
        "Node 0 MemTotal: 18446744073709551615 kB",
        "Cpus_allowed_list: 0\nMems_allowed_list: 9",
    ];

    #[test]
    fn only_paths_of_the_tree_are_taken() {
        let taken = |path: &str| path_in_tree(Path::new(path));
        assert_eq!(taken("./host/sys/devices/x"), Some("sys/devices/x".to_owned()));
        assert_eq!(taken("proc/meminfo"), Some("proc/meminfo".to_owned()));
        for path in ["../sys/x", "/sys/x", "a/b/sys/x", "etc/passwd"] {
            assert_eq!(taken(path), None, "{path}");
        }
    }

    #[test]
    fn damage_is_named() {
        for bytes in [&b"\x1f\x8bnot gzip"[..], &b"short"[..]] {
            let error = from_archive(bytes, "report.tar.gz").expect_err("damaged").to_string();
            assert!(error.contains("report.tar.gz"), "{error}");
        }
        let empty = from_archive(&[0; 1024], "empty.tar").expect_err("no files").to_string();
        assert!(empty.contains("sys/devices/system/cpu"), "{empty}");
    }
}
