//! Where a balancer keeps its memory and its lock, and where to look for one that runs.

use crate::args_balance::StateArguments;
use anyhow::Context;
use daemon::{DaemonError, Instance, Saved, SavedFile, Start, holder};
use linux::vms::QemuProcess;
use qemu::{RuntimeDir, background};
use scheduler::Occupancy;
use std::path::{Path, PathBuf};
use topology::Machine;

/// Name of the state's file in a directory of its own.
const STATE: &str = "balance.json";
/// The directory of the service that comes with homenode (packaging/homenode-balance.service).
const OF_SERVICE: &str = "/run/homenode-balance";
/// The runtime directory of root.
const OF_ROOT: &str = "/run/homenode";

/// The state file of a balancer of this user.
pub(crate) fn own(arguments: &StateArguments) -> anyhow::Result<SavedFile> {
    let path = match &arguments.state {
        Some(path) => path.clone(),
        None => RuntimeDir::open()?.path().join(STATE),
    };
    Ok(SavedFile::new(path, SavedFile::this_boot()))
}

/// Takes the right to balance this host, as the owner of the state file.
///
/// # Errors
/// Another balancer runs.
pub(crate) fn take(file: &SavedFile) -> anyhow::Result<Instance> {
    let path = lock_of(file.path());
    // A balancer of the system has all VMs, also ours. Tests and containers name a directory of their own.
    if std::env::var_os(qemu::DIRECTORY_VARIABLE).is_none() {
        for directory in [OF_SERVICE, OF_ROOT] {
            let other = lock_of(&Path::new(directory).join(STATE));
            if let Some(pid) = holder(&other).filter(|_| other != path) {
                return Err(DaemonError::Running { pid }.into());
            }
        }
    }
    Ok(Instance::take(&path)?)
}

/// VMs that homenode is starting, of this user and of root, as far as they can be read.
pub(crate) fn starts() -> Vec<Start> {
    let own = RuntimeDir::open().ok().map(|directory| directory.path().to_owned());
    let of_root = PathBuf::from(OF_ROOT);
    let other = (own.as_ref() != Some(&of_root)).then_some(of_root);
    let in_background = |directory: &Path| {
        let states = background::starting(directory).into_iter();
        states.map(|state| Start { vm: state.name, pid: state.qemu.map(|qemu| qemu.pid), holdings: state.holdings })
    };
    let reserved = |directory: &Path| {
        let vms = qemu::reserved(directory).into_iter();
        vms.map(|reserved| Start { vm: reserved.vm, pid: None, holdings: reserved.holdings })
    };
    let of = |directory: PathBuf| in_background(&directory).chain(reserved(&directory)).collect::<Vec<_>>();
    own.into_iter().chain(other).flat_map(of).collect()
}

/// What the VMs that run hold of each node, and what a balancer that runs is going to bring home.
pub(crate) fn occupancy(running: &[QemuProcess], machine: &Machine) -> Occupancy {
    let mut occupancy = linux::vms::occupancy(running, machine);
    let moves = |seen: Seen| seen.pid.is_some() && seen.saved.policy.balance.move_memory;
    if look(&StateArguments { state: None }).is_some_and(moves) {
        linux::vms::expect_home(&mut occupancy, running, machine);
    }
    occupancy
}

/// A balancer, as somebody who only looks sees it.
pub(crate) struct Seen {
    /// What it remembers.
    pub(crate) saved: Saved,
    /// Its process; `None` where it does not run any more.
    pub(crate) pid: Option<u32>,
}

/// The balancer to ask: one that runs, else the memory of the last one of this user or of the system.
pub(crate) fn look(arguments: &StateArguments) -> Option<Seen> {
    let boot = SavedFile::this_boot();
    let at = |path: PathBuf| {
        let saved = SavedFile::new(path.clone(), boot.clone()).peek()?;
        Some(Seen { saved, pid: holder(&lock_of(&path)).flatten() })
    };
    if let Some(path) = &arguments.state {
        return at(path.clone());
    }
    let own = RuntimeDir::open().ok().map(|directory| directory.path().join(STATE));
    let named = std::env::var_os(qemu::DIRECTORY_VARIABLE).is_some();
    let of_system = [OF_SERVICE, OF_ROOT].map(|directory| Path::new(directory).join(STATE));
    let places = own.into_iter().chain(of_system.into_iter().filter(|_| !named));
    let mut seen: Vec<Seen> = places.filter_map(at).collect();
    let running = seen.iter().position(|seen| seen.pid.is_some()).unwrap_or(0);
    (!seen.is_empty()).then(|| seen.swap_remove(running))
}

fn lock_of(state: &Path) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    state.with_file_name(name)
}

/// The directory of the state file, made if it is not there.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_directory(file: &SavedFile) -> anyhow::Result<()> {
    let directory = file.path().parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.map_or(Ok(()), |directory| {
        std::fs::create_dir_all(directory).with_context(|| format!("{}: cannot be made", directory.display()))
    })
}
