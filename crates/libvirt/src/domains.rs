//! Domains of a libvirt: which there are, what they are, and what becomes of them.

use crate::connection::STDIN;
use crate::{Connection, LibvirtError, LocalLibvirt};
use linux::Root;
use linux::vm::RunningVm;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use topology::Bytes;
use vm::truth::Process;

/// How long a domain may take to start: QEMU fills its memory first.
pub(crate) const START: Duration = Duration::from_secs(600);

/// State of a domain, as `virsh domstate` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainState {
    /// It runs, or waits for a CPU.
    Running,
    /// It has a process, but its vCPUs stand still.
    Paused,
    /// The guest was asked to power off.
    ShuttingDown,
    /// It has no process.
    ShutOff,
    /// It ended by a failure.
    Crashed,
    /// The guest sleeps.
    Suspended,
    /// libvirt does not say.
    Unknown,
}

impl DomainState {
    fn from_words(words: &str) -> Self {
        match words {
            "running" | "idle" => Self::Running,
            "paused" => Self::Paused,
            "in shutdown" => Self::ShuttingDown,
            "shut off" => Self::ShutOff,
            "crashed" => Self::Crashed,
            "pmsuspended" => Self::Suspended,
            _ => Self::Unknown,
        }
    }

    /// As `virsh` says it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::ShuttingDown => "in shutdown",
            Self::ShutOff => "shut off",
            Self::Crashed => "crashed",
            Self::Suspended => "suspended by the guest",
            Self::Unknown => "in no state that libvirt says",
        }
    }

    /// Whether it has a process.
    pub fn has_process(self) -> bool {
        matches!(self, Self::Running | Self::Paused | Self::ShuttingDown | Self::Suspended)
    }
}

/// One domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedDomain {
    /// Its UUID: the one way to name it that means no other (a name may look like another's
    /// number).
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Its number while it has a process.
    pub id: Option<u32>,
    /// What it does.
    pub state: DomainState,
    /// vCPUs that it has now.
    pub vcpus: u32,
    /// Memory that it has now.
    pub memory: Bytes,
    /// Whether it stays defined when its process ends.
    pub persistent: bool,
}

impl Connection {
    /// All domains, by name: those that run and those that do not. One that goes away meanwhile is
    /// left out.
    ///
    /// # Errors
    /// libvirt cannot be reached, or answers strangely.
    pub fn domains(&self) -> Result<Vec<ListedDomain>, LibvirtError> {
        let uuids = self.ask(&["list", "--all", "--uuid"])?;
        let uuids: Vec<&str> = uuids.split_whitespace().collect();
        let commands: Vec<Vec<String>> = uuids.iter().map(|uuid| words(&["dominfo", "--domain", uuid])).collect();
        let mut domains = Vec::new();
        for (uuid, answer) in uuids.iter().zip(self.ask_all(&commands)?) {
            match answer {
                Ok(text) => domains.push(self.listed(uuid, &text)?),
                Err(error) if error.is_no_such_domain() => {}
                Err(error) => return Err(error),
            }
        }
        domains.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(domains)
    }

    fn listed(&self, uuid: &str, text: &str) -> Result<ListedDomain, LibvirtError> {
        // `Used memory:    2097152 KiB`: a name may hold anything but the end of the line.
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim())).collect();
        let field = |key: &str| {
            fields
                .get(key)
                .copied()
                .ok_or_else(|| self.strange("dominfo", format!("it does not say `{key}` of {uuid}")))
        };
        let number = |key: &str| {
            let value = field(key)?;
            let digits = value.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            digits.ok_or_else(|| self.strange("dominfo", format!("`{key}` of {uuid} is {value}, not a number")))
        };
        Ok(ListedDomain {
            uuid: uuid.to_owned(),
            // `Name:` and 12 spaces before it; a name may begin with a space.
            name: text
                .lines()
                .find_map(|line| line.strip_prefix("Name:           "))
                .unwrap_or(field("Name")?)
                .to_owned(),
            id: field("Id")?.parse().ok(),
            state: DomainState::from_words(field("State")?),
            vcpus: number("CPU(s)")? as u32,
            memory: Bytes::from_kib(number("Used memory")?),
            persistent: field("Persistent")? == "yes",
        })
    }

    /// The domain of this name or UUID; `None` if there is none. A name is compared as it is:
    /// libvirt's own look-up would take `3` for a number.
    ///
    /// # Errors
    /// As [`domains`](Self::domains).
    pub fn find(&self, name: &str) -> Result<Option<ListedDomain>, LibvirtError> {
        Ok(self.domains()?.into_iter().find(|domain| domain.name == name || domain.uuid == name))
    }

    /// The XML of a domain: as it runs, or as it is defined if it does not.
    ///
    /// # Errors
    /// There is no such domain, or libvirt cannot be reached.
    pub fn domain_xml(&self, domain: &str) -> Result<String, LibvirtError> {
        self.ask(&["dumpxml", "--domain", domain])
    }

    /// The XML of several domains at once, in their order.
    ///
    /// # Errors
    /// libvirt cannot be reached.
    pub fn domain_xmls(&self, domains: &[&str]) -> Result<Vec<Result<String, LibvirtError>>, LibvirtError> {
        let commands: Vec<Vec<String>> = domains.iter().map(|domain| words(&["dumpxml", "--domain", domain])).collect();
        self.ask_all(&commands)
    }

    /// What a domain does.
    ///
    /// # Errors
    /// There is no such domain, or libvirt cannot be reached.
    pub fn state(&self, domain: &str) -> Result<DomainState, LibvirtError> {
        Ok(DomainState::from_words(self.ask(&["domstate", "--domain", domain])?.trim()))
    }

    /// What a domain's process does, and, where it has none, how that ended.
    ///
    /// # Errors
    /// There is no such domain, or libvirt cannot be reached.
    pub fn process(&self, domain: &str) -> Result<Process, LibvirtError> {
        Ok(process_of(self.ask(&["domstate", "--reason", "--domain", domain])?.trim()))
    }

    /// The definition of a domain that libvirt keeps, with its passwords; `None` where it keeps
    /// none.
    ///
    /// # Errors
    /// libvirt cannot be reached, or does not show them to this user.
    pub fn definition(&self, domain: &str) -> Result<Option<String>, LibvirtError> {
        match self.ask(&["dumpxml", "--inactive", "--security-info", "--domain", domain]) {
            Err(error) if error.is_no_such_domain() => Ok(None),
            definition => definition.map(Some),
        }
    }

    /// Defines a domain; it does not start.
    ///
    /// # Errors
    /// libvirt refuses the XML, or cannot be reached.
    pub fn define(&self, xml: &str) -> Result<(), LibvirtError> {
        self.ask_with(&["define", "--file", STDIN], Some(xml)).map(drop)
    }

    /// Ends the process of a domain; the guest is not asked.
    ///
    /// # Errors
    /// It does not run, or libvirt cannot be reached.
    pub fn destroy(&self, domain: &str) -> Result<(), LibvirtError> {
        self.ask(&["destroy", "--domain", domain]).map(drop)
    }
}

/// `shut off (destroyed)`: what that means for a VM that somebody keeps.
fn process_of(words: &str) -> Process {
    let (state, reason) =
        words.split_once(" (").map_or((words, ""), |(state, rest)| (state, rest.trim_end_matches(')')));
    match (DomainState::from_words(state), reason) {
        (DomainState::Paused, "starting up" | "migrating" | "saving" | "dumping" | "creating snapshot") => {
            Process::Starts
        }
        (DomainState::Paused, _) => Process::Managed { paused: true },
        (DomainState::Running | DomainState::ShuttingDown | DomainState::Suspended, _) => {
            Process::Managed { paused: false }
        }
        (DomainState::ShutOff, "shutdown" | "destroyed") => Process::Ended,
        (DomainState::ShutOff | DomainState::Crashed, _) => Process::Gone { because: format!("libvirt says: {words}") },
        (DomainState::Unknown, _) => Process::Unknown,
    }
}

/// The QEMU of a domain on this host, by the UUID that libvirt gives it; `None` if this host runs
/// none, or hides it from this user.
///
/// # Errors
/// `/proc` cannot be read.
pub fn local_process(uuid: &str) -> Result<Option<RunningVm>, linux::LinuxError> {
    local_process_of(&LocalLibvirt::of_this_user(), uuid)
}

/// As [`local_process`]. Where several processes say that they have the UUID, the one that these
/// libvirts have.
///
/// # Errors
/// As [`local_process`].
pub fn local_process_of(libvirts: &[LocalLibvirt], uuid: &str) -> Result<Option<RunningVm>, linux::LinuxError> {
    let root = Root::default();
    let has_uuid = |vm: &RunningVm| vm.uuid.as_deref().is_some_and(|seen| seen.eq_ignore_ascii_case(uuid));
    let mut claimants: Vec<RunningVm> = RunningVm::all(&root)?.filter(has_uuid).collect();
    if claimants.len() > 1 {
        claimants.retain(|vm| libvirts.iter().any(|libvirt| libvirt.has(vm).is_ok()));
    }
    Ok(claimants.pop())
}

/// Names of the VMs that libvirt runs on this host, for whomever, as far as this user sees them.
///
/// # Errors
/// `/proc` cannot be read.
pub fn local_names() -> Result<Vec<String>, linux::LinuxError> {
    let root = Root::default();
    let vms = RunningVm::all(&root)?.filter(|vm| vm.origin.manager.is_libvirt());
    let mut names: Vec<String> = vms.map(|vm| vm.key.name).collect();
    names.sort_unstable();
    Ok(names)
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What virsh 9.0 prints.
    #[test]
    fn what_became_of_a_domain_is_told_from_its_reason() {
        assert_eq!(process_of("running (unpaused)"), Process::Managed { paused: false });
        assert_eq!(process_of("paused (user)"), Process::Managed { paused: true });
        assert_eq!(process_of("paused (starting up)"), Process::Starts);
        assert_eq!(process_of("shut off (shutdown)"), Process::Ended);
        let because = "libvirt says: shut off (crashed)".to_owned();
        assert_eq!(process_of("shut off (crashed)"), Process::Gone { because });
        assert_eq!(process_of("no state"), Process::Unknown);
    }
}
