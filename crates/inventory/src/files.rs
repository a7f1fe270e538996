//! The files of one VM, each replaced whole.

use crate::{InventoryError, Kept, Proposal, STATE_VARIABLE};
use linux::named_file;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use topology::input::LONGEST_FILE;
use vm::history::Life;
use vm::{VirtualTopology, VmSpec};

/// The format of the JSON files.
const VERSION: u32 = 1;

/// Without it nobody knows what the VM is doing.
pub(crate) const LIFE: &str = "life.json";
/// While the VM is made, and while it is deleted: its directory is no VM then.
const UNFINISHED_LIFE: &str = "unfinished-life.json";

const SPEC: &str = "spec.toml";
const TOPOLOGY: &str = "topology.json";
const PLACEMENT: &str = "placement.json";
/// Where a VM is suspended unless its owner names another place.
pub(crate) const MEMORY: &str = "memory.homenode";
/// Its guest, where what runs it writes a file of its own.
const MEMORY_BESIDE: &str = "memory.homenode.guest";
/// The variables of its UEFI firmware, from its first power-on.
pub(crate) const VARIABLES: &str = "uefi-variables.fd";
/// While it is written.
const UNFINISHED_MEMORY: &str = "memory.homenode.unfinished";

/// What a start writes beside them until it is complete.
const PROPOSED: [(&str, &str); 3] =
    [("next-spec.toml", SPEC), ("next-topology.json", TOPOLOGY), ("next-placement.json", PLACEMENT)];

/// In the order in which they are removed, once there is no life.
const ALL: [&str; 11] = [
    VARIABLES,
    PLACEMENT,
    TOPOLOGY,
    SPEC,
    PROPOSED[2].0,
    PROPOSED[1].0,
    PROPOSED[0].0,
    UNFINISHED_MEMORY,
    MEMORY_BESIDE,
    MEMORY,
    UNFINISHED_LIFE,
];

/// A VM's life as it is on disk.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SavedLife {
    #[serde(flatten)]
    pub(crate) life: Life,
    /// Whether what a start wrote beside the files is what they are from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) adopting: bool,
}

/// A JSON file: what it holds, and in which format.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

/// The directory of one VM.
#[derive(Clone, Debug)]
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    /// Whether they are a VM's: one whose life was lost by somebody's hand still is.
    pub(crate) fn are_kept(&self) -> bool {
        let is_there = |name: &str| self.0.join(name).symlink_metadata().is_ok_and(|seen| seen.is_file());
        is_there(LIFE) || (!is_there(UNFINISHED_LIFE) && [PLACEMENT, TOPOLOGY, SPEC, MEMORY].into_iter().any(is_there))
    }

    /// That nothing says what a VM is doing.
    pub(crate) fn without_life(&self) -> InventoryError {
        content(&self.0.join(LIFE), "it is missing; what else is kept of the VM stays until somebody deletes it")
    }

    pub(crate) fn life(&self) -> Result<Option<SavedLife>, InventoryError> {
        json(&self.0.join(LIFE))
    }

    /// The files; where `proposed`, what a start wrote beside them where that is there. A VM that
    /// was `powered_on` has all of them: without its topology it would be sized anew, unsaid.
    pub(crate) fn content(
        &self,
        proposed: bool,
        powered_on: bool,
    ) -> Result<(VmSpec, Option<VirtualTopology>, Option<Kept>), InventoryError> {
        let path = |(next, name): (&str, &str)| {
            let next = self.0.join(next);
            if proposed && next.symlink_metadata().is_ok() { next } else { self.0.join(name) }
        };
        let [of_spec, of_topology, of_placement] = PROPOSED.map(path);
        let (spec, topology, placement) = (spec(&of_spec)?, json(&of_topology)?, json(&of_placement)?);
        if self.0.file_name().is_none_or(|directory| directory != spec.name.as_str()) {
            return Err(content(&of_spec, format!("`name` is {}: it is the file of another VM", spec.name)));
        }
        for (path, missing) in [(of_topology, topology.is_none()), (of_placement, placement.is_none())] {
            if powered_on && missing {
                return Err(content(&path, "it is missing"));
            }
        }
        Ok((spec, topology, placement))
    }

    /// Writes that of a VM that is being made.
    pub(crate) fn begin_life(&self, life: &Life) -> Result<(), InventoryError> {
        write_json(&self.0.join(UNFINISHED_LIFE), Some(&SavedLife { life: life.clone(), adopting: false }))
    }

    /// From now on there is a VM.
    pub(crate) fn finish_life(&self) -> Result<(), InventoryError> {
        rename(&self.0.join(UNFINISHED_LIFE), &self.0.join(LIFE))
    }

    pub(crate) fn write_life(&self, life: &Life, adopting: bool) -> Result<(), InventoryError> {
        write_json(&self.0.join(LIFE), Some(&SavedLife { life: life.clone(), adopting }))
    }

    pub(crate) fn write_spec(&self, spec: &VmSpec) -> Result<(), InventoryError> {
        write_spec(&self.0.join(SPEC), spec)
    }

    pub(crate) fn write_topology(&self, topology: Option<&VirtualTopology>) -> Result<(), InventoryError> {
        write_json(&self.0.join(TOPOLOGY), topology)
    }

    pub(crate) fn write_placement(&self, placement: Option<&Kept>) -> Result<(), InventoryError> {
        write_json(&self.0.join(PLACEMENT), placement)
    }

    /// Writes beside the files what is to take their place.
    pub(crate) fn propose(&self, proposal: &Proposal) -> Result<(), InventoryError> {
        let [spec, topology, placement] = PROPOSED.map(|(next, _)| self.0.join(next));
        write_spec(&spec, &proposal.spec)?;
        write_json(&topology, Some(&proposal.topology))?;
        write_json(&placement, Some(&proposal.placement))
    }

    /// Puts what was proposed in the files' place.
    pub(crate) fn adopt(&self) -> Result<(), InventoryError> {
        for (next, name) in PROPOSED {
            rename(&self.0.join(next), &self.0.join(name))?;
        }
        Ok(())
    }

    /// Forgets what was proposed.
    pub(crate) fn withdraw(&self) -> Result<(), InventoryError> {
        PROPOSED.iter().try_for_each(|(next, _)| remove(&self.0.join(next)))
    }

    /// Removes all of them, and the directory if nothing else is in it.
    pub(crate) fn remove(&self) -> Result<(), InventoryError> {
        rename(&self.0.join(LIFE), &self.0.join(UNFINISHED_LIFE))?;
        ALL.iter().try_for_each(|name| remove(&self.0.join(name)))?;
        may_write(&self.0)?;
        match fs::remove_dir(&self.0) {
            // What homenode did not make stays.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(InventoryError::io(format!("remove {}", self.0.display()))),
        }
    }

    /// Removes the guest of a VM that is in no file of ours: written half, or one that was let go
    /// on since.
    pub(crate) fn remove_old_memory(&self) -> Result<(), InventoryError> {
        [UNFINISHED_MEMORY, MEMORY_BESIDE, MEMORY].iter().try_for_each(|name| remove(&self.0.join(name)))
    }

    /// Removes what writes left that were cut short: `FILE.PID`.
    pub(crate) fn remove_unfinished(&self) -> Result<(), InventoryError> {
        let entries = fs::read_dir(&self.0).map_err(InventoryError::io(format!("read {}", self.0.display())))?;
        let unfinished = |name: &str| {
            name.rsplit_once('.').is_some_and(|(of, pid)| {
                (of == LIFE || ALL.contains(&of)) && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            if unfinished(&name) {
                remove(&self.0.join(name))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> InventoryError {
    InventoryError::io(format!("write {} (another directory in {STATE_VARIABLE})", path.display()))
}

fn content(path: &Path, problem: impl Into<String>) -> InventoryError {
    InventoryError::Content { path: path.to_owned(), problem: problem.into() }
}

fn remove(path: &Path) -> Result<(), InventoryError> {
    may_write(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(InventoryError::io(format!("remove {}", path.display()))),
    }
}

/// Gives a file another name, where it is there.
fn rename(from: &Path, to: &Path) -> Result<(), InventoryError> {
    may_write(to)?;
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed.map_err(cannot_write(to)),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), InventoryError> {
    may_write(path)?;
    named_file::replace(path, bytes).map_err(cannot_write(path))
}

fn write_spec(path: &Path, spec: &VmSpec) -> Result<(), InventoryError> {
    let text = toml::to_string(spec).map_err(|error| content(path, error.to_string()))?;
    replace(path, text.as_bytes())
}

/// Writes a file, or removes it where there is nothing to be written.
fn write_json<T: Serialize>(path: &Path, content: Option<&T>) -> Result<(), InventoryError> {
    let Some(content) = content else { return remove(path) };
    let versioned = Versioned { version: VERSION, content };
    let text = serde_json::to_vec_pretty(&versioned).map_err(|error| self::content(path, error.to_string()))?;
    replace(path, &text)
}

fn bytes(path: &Path) -> Result<Option<Vec<u8>>, InventoryError> {
    match named_file::read(path, LONGEST_FILE, &[]) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(InventoryError::io(format!("read {}", path.display()))),
    }
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, InventoryError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Some(bytes) = bytes(path)? else { return Ok(None) };
    // What a newer homenode wrote may have any shape.
    let version: Version = serde_json::from_slice(&bytes).map_err(|error| content(path, error.to_string()))?;
    if version.version != VERSION {
        let problem = format!("version {}: this homenode reads version {VERSION}", version.version);
        return Err(content(path, problem));
    }
    let versioned: Versioned<T> = serde_json::from_slice(&bytes).map_err(|error| content(path, error.to_string()))?;
    Ok(Some(versioned.content))
}

fn spec(path: &Path) -> Result<VmSpec, InventoryError> {
    let bytes = bytes(path)?.ok_or_else(|| content(path, "it is missing"))?;
    let text = String::from_utf8(bytes).map_err(|error| content(path, error.to_string()))?;
    Ok(VmSpec::from_toml(&text, &path.display().to_string())?)
}

#[cfg(not(test))]
fn may_write(_path: &Path) -> Result<(), InventoryError> {
    Ok(())
}

#[cfg(test)]
use kill::may_write;

/// A kill between two writes, for tests.
#[cfg(test)]
pub(crate) mod kill {
    use super::{InventoryError, cannot_write};
    use std::cell::Cell;
    use std::io;
    use std::path::Path;

    thread_local! {
        static WRITES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    /// Lets this thread make so many writes, and none after them.
    pub(crate) fn after(writes: Option<u32>) {
        WRITES_LEFT.set(writes);
    }

    pub(crate) fn may_write(path: &Path) -> Result<(), InventoryError> {
        match WRITES_LEFT.get() {
            Some(0) => Err(cannot_write(path)(io::Error::other("killed"))),
            left => {
                WRITES_LEFT.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}
