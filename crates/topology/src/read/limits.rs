//! What the process that looked may use: its affinity and its cgroup's cpuset.
//!
//! `/proc/self/status` says both at once, on a live host and in captures of homenode. Captures that
//! others made (hwloc's gatherer for one) have `/proc/self/cpuset` instead, the name of a cpuset,
//! and its files below the mount point.

use super::error::ReadError;
use super::tree::{LONGEST_FILE, Tree};
use crate::{CpuSet, Id, IdSet, NodeSet};

/// The CPUs and nodes that are allowed; `None` where nothing says.
pub(super) struct Limits {
    pub(super) cpus: Option<CpuSet>,
    pub(super) nodes: Option<NodeSet>,
}

impl Limits {
    /// Reads them from the first source that is there.
    pub(super) fn read(tree: &Tree, notes: &mut Vec<String>) -> Result<Self, ReadError> {
        const FILE: &str = "proc/self/status";
        const KEYS: [&str; 2] = ["Cpus_allowed_list", "Mems_allowed_list"];
        let lines = tree.lines(FILE, &KEYS, LONGEST_FILE).unwrap_or_default();
        if lines.is_empty() {
            return of_cpuset(tree, notes);
        }
        let value = |key: &str| lines.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
        Ok(Self { cpus: set(tree, FILE, value(KEYS[0]))?, nodes: set(tree, FILE, value(KEYS[1]))? })
    }
}

fn set<T: Id>(tree: &Tree, file: &str, text: Option<&str>) -> Result<Option<IdSet<T>>, ReadError> {
    let bad = |text: &str| tree.error(file, text, "a list of numbers and ranges such as `0-3,8`");
    text.map(|text| text.parse().map_err(|_| bad(text))).transpose()
}

/// Where the files of a cpuset may be: the directory, and what its file names begin and end with.
struct Mount {
    directory: String,
    prefix: &'static str,
    suffix: &'static str,
}

fn of_cpuset(tree: &Tree, notes: &mut Vec<String>) -> Result<Limits, ReadError> {
    let name = tree.read("proc/self/cpuset").unwrap_or_default();
    let name = name.trim().trim_end_matches('/');
    let mounts = tree.lines_kept("proc/mounts", LONGEST_FILE, |line| mount(line).map(|_| line.to_owned()));
    for Mount { directory, prefix, suffix } in mounts.iter().flatten().filter_map(|line| mount(line)) {
        let file = |kind: &str| format!("{directory}{name}/{prefix}{kind}{suffix}");
        if name.contains("..") || directory.contains("..") {
            continue;
        }
        if let Some(cpus) = tree.list::<crate::CpuId>(&file("cpus"))? {
            let nodes = tree.list::<crate::NodeId>(&file("mems"))?;
            // A cpuset that nobody has filled allows nothing, and no process is in it.
            let cpus = Some(cpus).filter(|cpus| !cpus.is_empty());
            return Ok(Limits { cpus, nodes: nodes.filter(|nodes| !nodes.is_empty()) });
        }
    }
    if !name.is_empty() {
        notes.push(format!(
            "The process that made this capture was in the cpuset {}, and the capture does not say what that has: \
            every CPU and node is taken as allowed.",
            crate::input::excerpt(name)
        ));
    }
    Ok(Limits { cpus: None, nodes: None })
}

/// A line of `/proc/mounts` that mounts cpusets: `none /dev/cpuset cpuset rw 0 0`.
fn mount(line: &str) -> Option<Mount> {
    let mut words = line.split_ascii_whitespace();
    let (_, directory, kind, options) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let has = |option: &str| options.split(',').any(|given| given == option);
    let (prefix, suffix) = match kind {
        "cgroup2" => ("cpuset.", ".effective"),
        "cgroup" if has("cpuset") && !has("noprefix") => ("cpuset.", ""),
        "cgroup" if has("cpuset") => ("", ""),
        "cpuset" => ("", ""),
        _ => return None,
    };
    Some(Mount { directory: directory.trim_start_matches('/').to_owned(), prefix, suffix })
}
