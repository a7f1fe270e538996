//! What the QEMU of this host can do of what differs between versions, asked of itself.
//!
//! **Problem.** How a VM is suspended, grown and migrated depends on its QEMU, and a version number
//! says little: distributions leave parts out and bring others back.
//!
//! **Rule.** QEMU is started without a machine and asked over QMP: for its capabilities of
//! migration, its device and object types, its machine types and what they can. Nothing is guessed
//! from its version.
//!
//! **Example.** QEMU 7.2 has no `mapped-ram`; QEMU 10 has it. homenode does not use it yet: what a
//! VM that is suspended has in memory goes through homenode, which writes the file.

use crate::qmp::Qmp;
use crate::{QemuError, binary, process};
use linux::sys::{ChildSetup, Tie};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// What QEMU is called in errors while it has no VM.
const NAME: &str = "(none)";
/// How long it may take to greet.
const GREETING: Duration = Duration::from_secs(30);

/// A QEMU, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Features {
    /// The program.
    pub program: PathBuf,
    /// Its version, as it says it.
    pub qemu_version: String,
    /// The machine type that `q35` stands for: it is part of every VM that is started, and must be
    /// there wherever that VM is resumed or received.
    pub machine: Option<String>,
    /// Machine types of the same kind that it still has, the newest first.
    pub machines: Vec<String>,
    /// What differs between versions.
    pub features: Vec<Feature>,
}

/// Something that one QEMU has and another has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// What it is for.
    pub purpose: Purpose,
    /// QEMU's own word for it.
    pub name: &'static str,
    /// Whether this one has it.
    pub has: bool,
    /// What homenode does with it, and what happens without it.
    pub meaning: &'static str,
}

/// What a feature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// vCPUs and memory while a VM runs.
    HotAdd,
    /// Memory in huge pages.
    HugePages,
    /// A VM in a file.
    Suspend,
    /// A VM that is sent.
    Migrate,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HotAdd => "hot-add",
            Self::HugePages => "huge pages",
            Self::Suspend => "suspend",
            Self::Migrate => "migrate",
        })
    }
}

/// Where a feature is looked for.
enum Sought {
    /// Among the capabilities of migration.
    Capability,
    /// Among the types of devices and objects.
    Type,
    /// Among the commands of QMP.
    Command,
    /// Of the machine type that VMs get.
    Machine,
}

const FEATURES: [(Purpose, &str, Sought, &str); 13] = [
    (
        Purpose::HotAdd,
        "hotpluggable-cpus",
        Sought::Machine,
        "vCPUs are added and taken away while a VM runs; without: only at its next power-on",
    ),
    (
        Purpose::HotAdd,
        "virtio-mem-pci",
        Sought::Type,
        "memory is added and taken away in blocks of 2 MiB; without: added as DIMMs",
    ),
    (
        Purpose::HotAdd,
        "virtio-md-pci",
        Sought::Type,
        "a virtio-mem device that is empty is removed; without: it stays, empty, until the VM is stopped",
    ),
    (
        Purpose::HotAdd,
        "pc-dimm",
        Sought::Type,
        "memory for guests without a driver for virtio-mem; without: none for them",
    ),
    (
        Purpose::HotAdd,
        "x-query-virtio-status",
        Sought::Command,
        "says whether a guest has a driver for virtio-mem; without: no DIMM for it",
    ),
    (
        Purpose::HotAdd,
        "query-memory-devices",
        Sought::Command,
        "says how much of its memory a guest has taken; without: nobody can wait for it",
    ),
    (
        Purpose::HugePages,
        "memory-backend-memfd",
        Sought::Type,
        "huge pages without a mounted hugetlbfs; without: no huge pages",
    ),
    (
        Purpose::Suspend,
        "mapped-ram",
        Sought::Capability,
        "QEMU writes the file itself: homenode does not use it yet, and writes the file on every QEMU",
    ),
    (
        Purpose::Migrate,
        "return-path",
        Sought::Capability,
        "the destination tells QEMU here that it has all; without: no migration",
    ),
    (
        Purpose::Migrate,
        "auto-converge",
        Sought::Capability,
        "a guest that writes too fast is slowed down; without: it may not end",
    ),
    (
        Purpose::Migrate,
        "postcopy-ram",
        Sought::Capability,
        "`vm migrate --postcopy`: memory follows the guest; without: it is refused",
    ),
    (
        Purpose::Migrate,
        "calc-dirty-rate",
        Sought::Command,
        "`vm migrate --dry-run` measures how fast the guest writes; without: unknown",
    ),
    (
        Purpose::Migrate,
        "multifd",
        Sought::Capability,
        "`vm migrate --connections` (QEMU 10 or newer): several carry the memory",
    ),
];

/// Asks the QEMU that would be started.
///
/// # Errors
/// There is none, or it does not answer.
pub fn features() -> Result<Features, QemuError> {
    let program = binary::locate(NAME)?;
    let (ours, theirs) = UnixStream::pair().map_err(QemuError::io(NAME, "make a socket pair"))?;
    let monitor = format!("socket,id=monitor,fd={}", theirs.as_raw_fd());
    let arguments = ["-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S"];
    let arguments = arguments.into_iter().map(str::to_owned);
    let wired = ["-chardev".to_owned(), monitor, "-mon".to_owned(), "chardev=monitor,mode=control".to_owned()];
    let arguments: Vec<String> = arguments.chain(wired).collect();
    let setup = ChildSetup { tie: Tie::DiesWithUs, inherited: vec![theirs.into()], cpus: None, user: None };
    let mut process = process::Process::start(NAME, &program, &arguments, &process::ErrorsTo::Us, setup)?;
    let asked = Qmp::handshake(NAME, ours, GREETING).and_then(|mut qmp| ask(&mut qmp, program));
    // Where it has ended, its own last words say more.
    asked.map_err(|error| process.ended(Duration::from_secs(1)).unwrap_or(error))
}

fn ask(qmp: &mut Qmp, program: PathBuf) -> Result<Features, QemuError> {
    let mut names = |command: &str, field: &str| -> Result<BTreeSet<String>, QemuError> {
        let answer = qmp.execute(command, &json!({}))?;
        let entries = answer.as_array().into_iter().flatten();
        Ok(entries.filter_map(|entry| entry[field].as_str().map(str::to_owned)).collect())
    };
    let capabilities = names("query-migrate-capabilities", "capability")?;
    let commands = names("query-commands", "name")?;
    let types = qmp.execute("query-machines", &json!({}))?;
    let (machine, machines) = machines(&types);
    let mut of_machine = types.as_array().into_iter().flatten().filter(|entry| entry["alias"] == "q35");
    let ours = of_machine.next().cloned().unwrap_or_default();
    let mut features = Vec::with_capacity(FEATURES.len());
    for (purpose, name, sought, meaning) in FEATURES {
        let has = match sought {
            Sought::Capability => capabilities.contains(name),
            Sought::Command => commands.contains(name),
            Sought::Machine => ours[name] == true,
            // The list of all types would load every module of QEMU's, among them ones that do not
            // fit it.
            Sought::Type => match qmp.execute("qom-list-properties", &json!({ "typename": name })) {
                Err(QemuError::Refused { .. }) => false,
                answer => answer.map(|_| true)?,
            },
        };
        features.push(Feature { purpose, name, has, meaning });
    }
    Ok(Features { program, qemu_version: qmp.version().to_owned(), machine, machines, features })
}

/// What `q35` stands for, and all machine types of its kind, the newest first.
fn machines(answer: &Value) -> (Option<String>, Vec<String>) {
    let entries = || answer.as_array().into_iter().flatten();
    let name = |entry: &Value| entry["name"].as_str().map(str::to_owned);
    let meant = entries().find(|entry| entry["alias"] == "q35").and_then(name);
    let mut versions: Vec<(Vec<u32>, String)> =
        entries().filter_map(name).filter_map(|name| Some((version(name.strip_prefix("pc-q35-")?)?, name))).collect();
    versions.sort_by(|one, other| other.cmp(one));
    (meant, versions.into_iter().map(|(_, name)| name).collect())
}

/// `[7, 2]` of `7.2`; `None` of what is no version.
fn version(text: &str) -> Option<Vec<u32>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_is_found_and_the_newest_machine_comes_first() {
        let answer = json!([
            { "name": "pc-q35-7.1" }, { "name": "pc-q35-10.0", "alias": "q35" }, { "name": "none" },
            { "name": "pc-q35-7.2" }, { "name": "pc-i440fx-10.0", "alias": "pc" }, { "name": "pc-q35-x" },
        ]);
        let (machine, machines) = machines(&answer);
        assert_eq!(machine.as_deref(), Some("pc-q35-10.0"));
        assert_eq!(machines, ["pc-q35-10.0", "pc-q35-7.2", "pc-q35-7.1"]);
    }
}
