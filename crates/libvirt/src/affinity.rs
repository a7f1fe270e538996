//! Affinities of domains, changed through libvirt, so that `virsh vcpuinfo` and `virsh vcpupin` say
//! what is true.
//!
//! Only what runs is changed (`--live`), never the definition (`--config`): that is its owner's,
//! and the next start begins from it.

use crate::{Connection, LibvirtError};
use linux::host::AffinityManager;
use linux::vm::RunningVm;
use scheduler::VmKey;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use topology::CpuSet;
use vm::Manager;

/// How long libvirt has to bind one client. It may itself wait for up to 30 s for whoever else
/// changes the domain.
const ANSWER: Duration = Duration::from_secs(10);
/// For how long a libvirt that did not answer in time is not asked again: the balancer's loop waits
/// meanwhile.
const REST: Duration = Duration::from_secs(60);

/// Where libvirt's system service listens and writes the process numbers of its VMs.
const SYSTEM: &str = "/run/libvirt";
/// Where it keeps a secret of each VM.
const SYSTEM_SECRETS: &str = "/var/lib/libvirt/qemu";

/// Binds vCPUs of VMs that a libvirt of this host manages through that libvirt.
pub fn affinity_manager() -> AffinityManager {
    affinity_manager_within(ANSWER)
}

/// As [`affinity_manager`], with another time for an answer than 10 s.
pub fn affinity_manager_within(limit: Duration) -> AffinityManager {
    let silent = Mutex::new(BTreeMap::<String, Instant>::new());
    Box::new(move |vm, vcpus, cpus| {
        if !vm.origin.manager.is_libvirt() {
            return None;
        }
        let mut silent = silent.lock().unwrap_or_else(PoisonError::into_inner);
        Some(bind(vm, vcpus, cpus, limit, &mut silent).map_err(Into::into))
    })
}

/// Why vCPUs were not bound through libvirt.
#[derive(Debug, thiserror::Error)]
enum NotBound {
    #[error("its libvirt is in a container with it, out of reach")]
    InContainer,
    #[error("which libvirt has it cannot be told")]
    Unknown,
    #[error("the path of its libvirt's socket cannot be part of a URI: {0}")]
    Socket(String),
    #[error("its command line has no UUID, so that libvirt cannot be asked for it")]
    Unnamed,
    #[error("libvirt at {0} did not answer in time within the last {rest} s", rest = REST.as_secs())]
    Silent(String),
    #[error("libvirt at {uri} gave no answer within {seconds} s")]
    Timeout { uri: String, seconds: u64 },
    #[error(
        "libvirt at {uri} does not answer: {words}; start it (systemctl start libvirtd.socket, or virtqemud.socket)"
    )]
    NoDaemon { uri: String, words: String },
    #[error(transparent)]
    Libvirt(LibvirtError),
}

/// Through the libvirt that has the VM; one that gives no answer is noted in `silent`.
fn bind(
    vm: &RunningVm,
    vcpus: &[u32],
    cpus: &CpuSet,
    limit: Duration,
    silent: &mut BTreeMap<String, Instant>,
) -> Result<(), NotBound> {
    let uri = Facts::read(vm).uri()?;
    if silent.get(&uri).is_some_and(|since| since.elapsed() < REST) {
        return Err(NotBound::Silent(uri));
    }
    let uuid = vm.uuid.as_deref().ok_or(NotBound::Unnamed)?;
    let libvirt = Connection::new(Some(&uri)).with_limit(limit);
    pin(&libvirt, uuid, vcpus, cpus).map_err(|error| match error {
        LibvirtError::Timeout { seconds, .. } => {
            silent.insert(uri.clone(), Instant::now());
            NotBound::Timeout { uri, seconds }
        }
        LibvirtError::NoDaemon { words, .. } => NotBound::NoDaemon { uri, words },
        error => NotBound::Libvirt(error),
    })
}

/// CPUs of each vCPU, by its index.
pub type Pins = BTreeMap<u32, CpuSet>;

/// Where libvirt says that the vCPUs of these VMs may run; each libvirt is asked once. VMs that no
/// libvirt has, or none that answers, are left out.
pub fn pins<'a>(vms: impl IntoIterator<Item = &'a RunningVm>) -> BTreeMap<VmKey, Pins> {
    let mut by_uri = BTreeMap::<String, Vec<(&VmKey, Vec<String>)>>::new();
    for vm in vms.into_iter().filter(|vm| vm.origin.manager.is_libvirt()) {
        if let (Ok(uri), Some(uuid)) = (Facts::read(vm).uri(), &vm.uuid) {
            let command = ["vcpupin", "--domain", uuid, "--live"].map(str::to_owned).to_vec();
            by_uri.entry(uri).or_default().push((&vm.key, command));
        }
    }
    let mut all = BTreeMap::new();
    for (uri, domains) in by_uri {
        let commands: Vec<Vec<String>> = domains.iter().map(|(_, command)| command.clone()).collect();
        let Ok(answers) = Connection::new(Some(&uri)).with_limit(ANSWER).ask_all(&commands) else { continue };
        for ((vm, _), answer) in domains.into_iter().zip(answers) {
            all.extend(answer.ok().map(|table| (vm.clone(), parse_pins(&table))));
        }
    }
    all
}

/// Lines such as ` 0      6-7`.
fn parse_pins(table: &str) -> Pins {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    };
    table.lines().filter_map(line).collect()
}

/// All vCPUs in one run of `virsh`. The domain is named by its UUID: names are used again.
fn pin(libvirt: &Connection, uuid: &str, vcpus: &[u32], cpus: &CpuSet) -> Result<(), LibvirtError> {
    let command = |vcpu: &u32| {
        let (vcpu, cpus) = (vcpu.to_string(), cpus.to_string());
        ["vcpupin", "--domain", uuid, "--vcpu", &vcpu, "--cpulist", &cpus, "--live"].map(str::to_owned).to_vec()
    };
    let commands: Vec<Vec<String>> = vcpus.iter().map(command).collect();
    libvirt.ask_all(&commands)?.into_iter().try_for_each(|answer| answer.map(drop))
}

/// What tells which libvirt has a VM.
#[derive(Debug)]
struct Facts {
    manager: Manager,
    /// Whether it has process numbers of its own: its libvirt is in there too.
    in_container: bool,
    /// The file with its number, which QEMU keeps open and locked for libvirt.
    pid_file: Option<PathBuf>,
    /// Whether its secret is where libvirt's system service keeps secrets.
    is_system: bool,
    /// Whose process it is.
    user: Option<u32>,
    /// Whether libvirt's newer, separate service listens in the same directory.
    modular: fn(&Path) -> bool,
}

impl Facts {
    fn read(vm: &RunningVm) -> Self {
        let process = PathBuf::from(format!("/proc/{}", vm.key.pid));
        let numbers_of = |process: &Path| std::fs::read_link(process.join("ns/pid")).ok();
        let (its, ours) = (numbers_of(&process), numbers_of(Path::new("/proc/self")));
        let arguments = linux::process::command_line(vm.key.pid).unwrap_or_default();
        let user = std::fs::metadata(&process).ok().map(|metadata| metadata.uid());
        Self {
            manager: vm.origin.manager,
            in_container: its.is_some() && ours.is_some() && its != ours,
            pid_file: pid_file(&process, vm.key.pid),
            is_system: has_secret_below(Path::new(SYSTEM_SECRETS), &arguments, user),
            user,
            modular: |directory| directory.join("virtqemud-sock").exists(),
        }
    }

    /// The URI of its libvirt.
    fn uri(&self) -> Result<String, NotBound> {
        if self.manager == Manager::Kubevirt || self.in_container {
            return Err(NotBound::InContainer);
        }
        let directory = match &self.pid_file {
            Some(file) => service_directory(file),
            None if self.is_system => Some(PathBuf::from(SYSTEM)),
            None => self.user.map(|user| PathBuf::from(format!("/run/user/{user}/libvirt"))),
        };
        let directory = directory.ok_or(NotBound::Unknown)?;
        if directory == Path::new(SYSTEM) {
            return Ok("qemu:///system".to_owned());
        }
        let socket = directory.join(if (self.modular)(&directory) { "virtqemud-sock" } else { "libvirt-sock" });
        let socket = socket.to_string_lossy().into_owned();
        // Other letters would have to be written as numbers in a URI; no runtime directory has
        // them.
        if !socket.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter)) {
            return Err(NotBound::Socket(socket));
        }
        Ok(format!("qemu+unix:///session?socket={socket}"))
    }
}

/// The file with its number that a process has open, as far as this user may know.
///
/// Any process may be named as a QEMU, and may open a file of another one, or, in a mount namespace
/// of its own, one that only looks like libvirt's. So one of the system's must be the file that is
/// there for us too, and hold this process's number.
fn pid_file(process: &Path, pid: u32) -> Option<PathBuf> {
    let of_system = |file: &Path| service_directory(file).is_some_and(|directory| directory == Path::new(SYSTEM));
    let is_its_own = |file: &Path, open: &Path| -> std::io::Result<bool> {
        let (here, there) = (std::fs::metadata(file)?, std::fs::metadata(open)?);
        let is_same = (here.dev(), here.ino()) == (there.dev(), there.ino());
        Ok(is_same && std::fs::read_to_string(file)?.trim() == pid.to_string())
    };
    let entries = std::fs::read_dir(process.join("fd")).ok()?.flatten();
    let mut found = entries.filter_map(|entry| Some((std::fs::read_link(entry.path()).ok()?, entry.path())));
    let genuine = |(file, open): &(PathBuf, PathBuf)| {
        is_pid_file(file) && (!of_system(file) || is_its_own(file, open).unwrap_or(false))
    };
    found.find(genuine).map(|(file, _)| file)
}

/// Whether a QEMU's secret is where libvirt's system service keeps secrets, and is its user's:
/// nobody else can have made that so. Where this user may not look, libvirt itself lets nobody do
/// what he may not.
fn has_secret_below(secrets: &Path, arguments: &[String], user: Option<u32>) -> bool {
    let secret = |argument: &String| {
        let (_, rest) = argument.split_once(&format!("\"{}/", secrets.display()))?;
        Some(secrets.join(rest.split('"').next()?))
    };
    let owner = |file: PathBuf| -> std::io::Result<Option<u32>> {
        let (file, secrets) = (file.canonicalize()?, secrets.canonicalize()?);
        let owner = file.metadata()?.uid();
        Ok(Some(owner).filter(|_| file.starts_with(secrets)))
    };
    arguments.iter().filter_map(secret).any(|file| match owner(file) {
        Ok(owner) => owner.is_some() && owner == user,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    })
}

fn is_pid_file(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "pid") && service_directory(path).is_some()
}

/// `/run/libvirt` of `/run/libvirt/qemu/NAME.pid`; `R/libvirt` of a user's
/// `R/libvirt/qemu/run/NAME.pid`.
fn service_directory(pid_file: &Path) -> Option<PathBuf> {
    let directory = pid_file.parent()?;
    let directory = if directory.ends_with("libvirt/qemu/run") { directory.parent()? } else { directory };
    directory.ends_with("libvirt/qemu").then(|| directory.parent().map(Path::to_path_buf))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(pid_file: &str) -> Facts {
        Facts {
            manager: Manager::Libvirt,
            in_container: false,
            pid_file: (!pid_file.is_empty()).then(|| PathBuf::from(pid_file)),
            is_system: false,
            user: Some(1000),
            modular: |_| false,
        }
    }

    #[test]
    fn the_libvirt_of_a_vm_is_told_by_the_file_that_qemu_keeps_open() {
        assert_eq!(facts("/run/libvirt/qemu/web.pid").uri().unwrap(), "qemu:///system");
        let session = facts("/run/user/7/libvirt/qemu/run/web.pid");
        assert_eq!(session.uri().unwrap(), "qemu+unix:///session?socket=/run/user/7/libvirt/libvirt-sock");
        let modular = Facts { modular: |_| true, ..session };
        assert_eq!(modular.uri().unwrap(), "qemu+unix:///session?socket=/run/user/7/libvirt/virtqemud-sock");
        assert!(is_pid_file(Path::new("/run/libvirt/qemu/a b.pid")));
        assert!(!is_pid_file(Path::new("/tmp/web.pid")) && !is_pid_file(Path::new("/run/libvirt/qemu/web.log")));
    }

    #[test]
    fn a_table_of_virsh_is_read() {
        let pins = parse_pins(" 0      0,2-3\n 1      6-7\n\n");
        assert_eq!(pins, BTreeMap::from([(0, "0,2-3".parse().unwrap()), (1, "6-7".parse().unwrap())]));
        assert!(parse_pins(" VCPU   CPU Affinity\n----------------------\n").is_empty());
    }

    #[test]
    fn without_that_file_the_secret_or_the_user_tells() {
        let system = Facts { is_system: true, ..facts("") };
        assert_eq!(system.uri().unwrap(), "qemu:///system");
        assert_eq!(facts("").uri().unwrap(), "qemu+unix:///session?socket=/run/user/1000/libvirt/libvirt-sock");
        assert!(Facts { user: None, ..facts("") }.uri().unwrap_err().to_string().contains("cannot be told"));
    }

    #[test]
    fn a_vm_of_the_system_is_not_told_by_its_words_alone() {
        let directory = tempfile::tempdir().unwrap();
        let secrets = directory.path().canonicalize().unwrap().join("qemu");
        std::fs::create_dir_all(secrets.join("domain-1-web")).unwrap();
        std::fs::write(secrets.join("domain-1-web/key"), "").unwrap();
        std::fs::write(directory.path().join("key"), "").unwrap();
        let told = |file: &str, user: u32| {
            let argument = format!("{{\"qom-type\":\"secret\",\"file\":\"{}/{file}\"}}", secrets.display());
            has_secret_below(&secrets, &["qemu".to_owned(), argument], Some(user))
        };
        let us = std::fs::metadata(&secrets).unwrap().uid();
        assert!(told("domain-1-web/key", us));
        assert!(!told("domain-1-web/key", us + 1) && !told("domain-2-db/key", us) && !told("../key", us));
        assert!(!has_secret_below(&secrets, &["qemu".to_owned()], Some(us)));
    }

    #[test]
    fn a_libvirt_in_a_container_is_out_of_reach() {
        let contained = Facts { in_container: true, ..facts("/run/libvirt/qemu/web.pid") };
        assert!(contained.uri().unwrap_err().to_string().contains("container"));
        let kubevirt = Facts { manager: Manager::Kubevirt, ..facts("/run/libvirt/qemu/web.pid") };
        assert!(kubevirt.uri().unwrap_err().to_string().contains("container"));
        assert!(facts("/tmp/a&b/libvirt/qemu/run/web.pid").uri().unwrap_err().to_string().contains("a&b"));
    }
}
