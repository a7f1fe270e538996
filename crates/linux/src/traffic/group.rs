//! One monitoring group of resctrl: a directory with the threads in it and, for each last-level
//! cache, files with what was counted.

use super::readings::{DomainReading, Reading};
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use topology::input;

/// Domains of a machine at most: last-level caches.
const MOST_DOMAINS: usize = 1024;
/// Bytes of a list of threads at most: 64 Ki threads.
const LONGEST_TASKS: u64 = 1 << 20;

/// Counters that a CPU has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) total: bool,
    pub(super) local: bool,
    pub(super) occupancy: bool,
}

impl Counters {
    /// As `info/L3_MON/mon_features` says.
    pub(super) fn parse(features: &str) -> Self {
        let has = |feature: &str| features.lines().any(|line| line.trim() == feature);
        Self {
            total: has("mbm_total_bytes"),
            local: has("mbm_total_bytes") && has("mbm_local_bytes"),
            occupancy: has("llc_occupancy"),
        }
    }
}

/// A group that is read.
#[derive(Debug)]
pub(super) struct Group {
    domains: Vec<Domain>,
}

/// A file that stays open where there are descriptors to spare: to open one takes longer than to
/// read it.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    file: Option<File>,
}

#[derive(Debug)]
struct Domain {
    total: Option<Source>,
    local: Option<Source>,
    occupancy: Option<Source>,
}

impl Group {
    /// The group in a directory. Where caches are divided (sub-NUMA clusters), the directory of
    /// each has the sums of its parts, `mon_sub_L3_*`.
    ///
    /// # Errors
    /// It is gone, or shows no domain.
    pub(super) fn open(directory: &Path, counters: Counters) -> io::Result<Self> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory.join("mon_data"))?.take(MOST_DOMAINS) {
            names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with("mon_L3_")));
        }
        names.sort_unstable();
        let domain = |name: &String| {
            let source = |is_there: bool, file: &str| {
                is_there.then(|| Source { path: directory.join("mon_data").join(name).join(file), file: None })
            };
            Domain {
                total: source(counters.total, "mbm_total_bytes"),
                local: source(counters.local, "mbm_local_bytes"),
                occupancy: source(counters.occupancy, "llc_occupancy"),
            }
        };
        let domains: Vec<Domain> = names.iter().map(domain).collect();
        if domains.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(Self { domains }) }
    }

    /// What all domains say now. `spare`: files that may stay open.
    ///
    /// # Errors
    /// The group is gone, or a domain of it is.
    pub(super) fn read(&mut self, spare: &Cell<usize>) -> io::Result<Vec<DomainReading>> {
        let read = |source: &mut Option<Source>| source.as_mut().map(|source| source.read(spare)).transpose();
        let domain = |domain: &mut Domain| {
            Ok(DomainReading {
                total: read(&mut domain.total)?,
                local: read(&mut domain.local)?,
                occupancy: read(&mut domain.occupancy)?,
            })
        };
        self.domains.iter_mut().map(domain).collect()
    }

    /// Files of it that are open.
    pub(super) fn open_files(&self) -> usize {
        let sources = self.domains.iter().flat_map(|domain| [&domain.total, &domain.local, &domain.occupancy]);
        sources.flatten().filter(|source| source.file.is_some()).count()
    }
}

impl Source {
    fn read(&mut self, spare: &Cell<usize>) -> io::Result<Reading> {
        let mut buffer = [0u8; 64];
        let said = |file: &File, buffer: &mut [u8]| file.read_at(buffer, 0);
        let length = match &self.file {
            Some(file) => said(file, &mut buffer)?,
            None => {
                let file = File::open(&self.path)?;
                let length = said(&file, &mut buffer)?;
                if spare.get() > 0 {
                    spare.set(spare.get() - 1);
                    self.file = Some(file);
                }
                length
            }
        };
        Ok(std::str::from_utf8(&buffer[..length]).map_or(Reading::Unavailable, Reading::parse))
    }
}

/// The threads in a group.
///
/// # Errors
/// It cannot be read, or lists more than any VM has.
pub(super) fn tasks(directory: &Path) -> io::Result<Vec<u32>> {
    let text = input::text(directory.join("tasks"), LONGEST_TASKS)?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Puts a thread into a group; it leaves the one that it was in. The kernel takes one in each
/// write.
///
/// # Errors
/// It ended, this process may not, or it is in another control group.
pub(super) fn add(directory: &Path, thread: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(directory.join("tasks"))?;
    file.write_all(format!("{thread}\n").as_bytes())
}
