//! The directory of the VMs that are kept.

use crate::{InventoryError, Kept, Record};
use linux::named_file;
use linux::sys::{OPEN_NO_LINK, effective_user_id, try_lock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use topology::input::LONGEST_FILE;
use vm::history::{Life, LifeEvent, UnixSeconds};
use vm::life::Step;
use vm::spec::name_problem;
use vm::{VirtualTopology, VmSpec};

/// Names another directory than the default.
pub const STATE_VARIABLE: &str = "HOMENODE_STATE_DIR";

/// The format of the JSON files.
const VERSION: u32 = 1;

const SPEC: &str = "spec.toml";
const TOPOLOGY: &str = "topology.json";
const PLACEMENT: &str = "placement.json";
const LIFE: &str = "life.json";

/// In the order in which they are removed.
const FILES: [&str; 4] = [LIFE, PLACEMENT, TOPOLOGY, SPEC];

/// The VMs that homenode keeps for a user.
///
/// They are in `$HOMENODE_STATE_DIR/vms`; without it in `/var/lib/homenode/vms` for root and in
/// `$XDG_STATE_HOME/homenode/vms` (`~/.local/state/homenode/vms`) for everyone else. Who names a
/// runtime directory and no state directory has them in there (`.vms`): a world of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory(PathBuf);

/// A JSON file: what it holds, and in which format.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

impl Inventory {
    /// That of this user; nothing is made. `of_runtime` is the runtime directory, where its owner
    /// named one.
    pub fn of_this_user(of_runtime: Option<&Path>) -> Self {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || variable("HOME").map(|home| home.join(".local/state"));
        let of_user =
            || variable("XDG_STATE_HOME").or_else(home).unwrap_or_else(std::env::temp_dir).join("homenode/vms");
        Self(match (variable(STATE_VARIABLE), of_runtime) {
            (Some(named), _) => named.join("vms"),
            (None, Some(runtime)) => runtime.join(".vms"),
            (None, None) if effective_user_id() == 0 => PathBuf::from("/var/lib/homenode/vms"),
            (None, None) => of_user(),
        })
    }

    /// One in this directory.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Names of the VMs that are kept, sorted.
    ///
    /// # Errors
    /// The directory is there and cannot be read.
    pub fn names(&self) -> Result<Vec<String>, InventoryError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(InventoryError::io(format!("read {}", self.0.display())))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name_problem(name).is_none() && self.has(name)).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).join(LIFE).symlink_metadata().is_ok_and(|seen| seen.is_file())
    }

    /// What is kept of a VM.
    ///
    /// # Errors
    /// There is no such VM, or a file of it cannot be read or understood.
    pub fn read(&self, name: &str) -> Result<Record, InventoryError> {
        if name_problem(name).is_some() || !self.has(name) {
            return Err(InventoryError::NoSuchVm { vm: name.to_owned() });
        }
        let place = self.0.join(name);
        let life: Option<Life> = json(&place.join(LIFE))?;
        let life = life.ok_or_else(|| InventoryError::NoSuchVm { vm: name.to_owned() })?;
        let (topology, placement) = (json(&place.join(TOPOLOGY))?, json(&place.join(PLACEMENT))?);
        Ok(Record { spec: spec(&place.join(SPEC))?, topology, placement, life })
    }

    /// Makes a VM known that was not, and holds it.
    ///
    /// # Errors
    /// The name is taken or no name, or the files cannot be written.
    pub fn create(&self, record: &Record) -> Result<Held, InventoryError> {
        let name = &record.spec.name;
        let path = self.0.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(cannot_write(&path))?;
        let held = self.lock(name)?;
        if self.has(name) {
            return Err(InventoryError::NameTaken { vm: name.clone() });
        }
        let new = Held { record: record.clone(), ..held };
        new.write_spec()?;
        new.write_topology()?;
        new.write_placement()?;
        new.write_life()?;
        Ok(new)
    }

    /// Holds a VM: nobody else changes it until the value is dropped.
    ///
    /// # Errors
    /// There is no such VM, another homenode holds it, or a file of it cannot be read.
    pub fn hold(&self, name: &str) -> Result<Held, InventoryError> {
        if name_problem(name).is_some() || !self.has(name) {
            return Err(InventoryError::NoSuchVm { vm: name.to_owned() });
        }
        let held = self.lock(name)?;
        // It may have been deleted or changed before the lock was ours.
        Ok(Held { record: self.read(name)?, ..held })
    }

    /// Whether another homenode is at work on a VM now.
    pub fn is_held(&self, name: &str) -> bool {
        matches!(self.lock(name), Err(InventoryError::Busy { .. }))
    }

    fn lock(&self, name: &str) -> Result<Held, InventoryError> {
        let path = self.0.join(name);
        let lock = || {
            let directory = File::options().read(true).custom_flags(OPEN_NO_LINK).open(&path)?;
            Ok::<_, io::Error>((try_lock(&directory)?, directory))
        };
        match lock() {
            Ok((true, directory)) => {
                let spec = VmSpec::default();
                let life = Life::planned(Default::default(), UnixSeconds(0));
                let record = Record { spec, topology: None, placement: None, life };
                Ok(Held { record, path, _lock: directory })
            }
            Ok((false, _)) => Err(InventoryError::Busy { vm: name.to_owned() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(InventoryError::NoSuchVm { vm: name.to_owned() }),
            Err(error) => Err(InventoryError::io(format!("lock {}", path.display()))(error)),
        }
    }
}

/// A VM that nobody else changes meanwhile.
#[derive(Debug)]
pub struct Held {
    record: Record,
    path: PathBuf,
    _lock: File,
}

impl Held {
    /// What is kept of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Takes a step of its life and writes it down.
    ///
    /// # Errors
    /// The step is not possible now, or it cannot be written; then it has not been taken.
    pub fn step(&mut self, step: Step, event: Option<LifeEvent>, at: UnixSeconds) -> Result<(), InventoryError> {
        let before = self.record.life.clone();
        let taken = self.record.life.step(step, event, at);
        taken.map_err(|source| InventoryError::NotNow { vm: self.record.spec.name.clone(), source })?;
        let written = self.write_life();
        if written.is_err() {
            self.record.life = before;
        }
        written
    }

    /// Changes its life otherwise, and writes it down.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn change_life(&mut self, change: impl FnOnce(&mut Life)) -> Result<(), InventoryError> {
        change(&mut self.record.life);
        self.write_life()
    }

    /// Another spec of the same name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_spec(&mut self, spec: VmSpec) -> Result<(), InventoryError> {
        self.record.spec = spec;
        self.write_spec()
    }

    /// What the guest sees from its next power-on: the first one, or one at which it is sized anew.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_topology(&mut self, topology: Option<VirtualTopology>) -> Result<(), InventoryError> {
        self.record.topology = topology;
        self.write_topology()
    }

    /// Where it lives now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_placement(&mut self, placement: Option<Kept>) -> Result<(), InventoryError> {
        self.record.placement = placement;
        self.write_placement()
    }

    /// Forgets the VM.
    ///
    /// # Errors
    /// A file of it cannot be removed.
    pub fn delete(self) -> Result<(), InventoryError> {
        for file in FILES {
            remove(&self.path.join(file))?;
        }
        match fs::remove_dir(&self.path) {
            // What homenode did not make stays.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed.map_err(InventoryError::io(format!("remove {}", self.path.display()))),
        }
    }

    fn write_spec(&self) -> Result<(), InventoryError> {
        let path = self.path.join(SPEC);
        let text = toml::to_string(&self.record.spec).map_err(|error| content(&path, error.to_string()))?;
        named_file::replace(&path, text.as_bytes()).map_err(cannot_write(&path))
    }

    fn write_topology(&self) -> Result<(), InventoryError> {
        write_json(&self.path.join(TOPOLOGY), self.record.topology.as_ref())
    }

    fn write_placement(&self) -> Result<(), InventoryError> {
        write_json(&self.path.join(PLACEMENT), self.record.placement.as_ref())
    }

    fn write_life(&self) -> Result<(), InventoryError> {
        write_json(&self.path.join(LIFE), Some(&self.record.life))
    }
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> InventoryError {
    InventoryError::io(format!("write {} (another directory in {STATE_VARIABLE})", path.display()))
}

fn content(path: &Path, problem: impl Into<String>) -> InventoryError {
    InventoryError::Content { path: path.to_owned(), problem: problem.into() }
}

fn remove(path: &Path) -> Result<(), InventoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(InventoryError::io(format!("remove {}", path.display()))),
    }
}

/// Writes a file, or removes it where there is nothing to be written.
fn write_json<T: Serialize>(path: &Path, content: Option<&T>) -> Result<(), InventoryError> {
    let Some(content) = content else { return remove(path) };
    let versioned = Versioned { version: VERSION, content };
    let text = serde_json::to_vec_pretty(&versioned).map_err(|error| self::content(path, error.to_string()))?;
    named_file::replace(path, &text).map_err(cannot_write(path))
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
    VmSpec::from_toml(&text, &path.display().to_string()).map_err(|error| content(path, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Bytes;
    use vm::life::State;
    use vm::{Added, Placement, Shape, VirtualNode};

    fn record() -> Record {
        let shape = Shape { name: "web".to_owned(), vcpus: 2, memory: Bytes::from_mib(512), ..Shape::default() };
        let spec = VmSpec { shape, ..VmSpec::default() };
        let life = Life::planned(Default::default(), UnixSeconds(7));
        Record { spec, topology: None, placement: None, life }
    }

    fn topology() -> VirtualTopology {
        let node = VirtualNode { vcpus: vec![0, 1], memory: Bytes::from_mib(512), ..VirtualNode::default() };
        let distances = vec![vec![10]];
        let nodes = vec![node];
        VirtualTopology { exposed: false, nodes, sockets: 1, cores_per_socket: 2, threads_per_core: 1, distances }
    }

    #[test]
    fn a_vm_is_read_as_it_was_written_and_held_by_one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let inventory = Inventory::at(directory.path().join("vms"));
        assert_eq!(inventory.names().unwrap(), Vec::<String>::new());
        let mut held = inventory.create(&record()).unwrap();
        assert!(matches!(inventory.hold("web"), Err(InventoryError::Busy { .. })) && inventory.is_held("web"));
        held.set_topology(Some(topology())).unwrap();
        let kept = Kept { host: "a".to_owned(), placement: Placement { clients: vec![] }, added: Added::default() };
        held.set_placement(Some(kept)).unwrap();
        held.step(Step::Start, None, UnixSeconds(8)).unwrap();
        let written = held.record().clone();
        drop(held);
        assert_eq!(inventory.read("web").unwrap(), written);
        assert_eq!((written.life.state, inventory.names().unwrap()), (State::Starting, vec!["web".to_owned()]));
        assert!(matches!(inventory.create(&record()), Err(InventoryError::NameTaken { .. })));
        inventory.hold("web").unwrap().delete().unwrap();
        assert!(matches!(inventory.read("web"), Err(InventoryError::NoSuchVm { .. })));
        assert!(!directory.path().join("vms/web").exists());
    }

    #[test]
    fn what_a_killed_creator_left_is_no_vm_and_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let inventory = Inventory::at(directory.path().to_owned());
        fs::create_dir(directory.path().join("web")).unwrap();
        fs::write(directory.path().join("web/spec.toml"), "name = ").unwrap();
        assert!(inventory.names().unwrap().is_empty());
        assert!(matches!(inventory.hold("web"), Err(InventoryError::NoSuchVm { .. })));
        drop(inventory.create(&record()).unwrap());
        assert_eq!(inventory.read("web").unwrap(), record());
    }

    #[test]
    fn what_another_homenode_wrote_is_named_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let inventory = Inventory::at(directory.path().to_owned());
        drop(inventory.create(&record()).unwrap());
        fs::write(directory.path().join("web/life.json"), "{\"version\": 9}").unwrap();
        let error = inventory.hold("web").unwrap_err().to_string();
        assert!(error.ends_with("life.json: version 9: this homenode reads version 1"), "{error}");
        for name in ["..", "a/b", "", "-x"] {
            assert!(matches!(inventory.read(name), Err(InventoryError::NoSuchVm { .. })), "{name}");
        }
    }
}
