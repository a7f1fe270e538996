//! Where a balancer keeps its memory and its lock, and where to look for one that runs.
//!
//! The lock is one for the host, wherever the state is: root and the service have it in a directory
//! of the system, where everybody sees that it is held and nobody else can open it. A balancer of a
//! user, who can move that user's VMs only, has one in the runtime directory of the user, and does
//! not start beside one of the system.

use crate::args_balance::StateArguments;
use crate::failure::unwritable;
use crate::kept;
use anyhow::Context;
use daemon::{DaemonError, Instance, OF_SERVICE, SavedFile, Start, Watched, holder};
use qemu::{Reserved, RuntimeDir};
use scheduler::{Observation, Occupancy};
use std::path::{Path, PathBuf};
use topology::Machine;

/// Name of the state's file in a directory of its own.
const STATE: &str = "balance.json";
/// Name of the lock.
const LOCK: &str = "balance.lock";
/// In which systemd names a service's directory to it.
const OF_UNIT: &str = "RUNTIME_DIRECTORY";
/// The runtime directory of root.
const OF_ROOT: &str = "/run/homenode";

/// The state file of a balancer of this user.
pub(crate) fn own(arguments: &StateArguments) -> anyhow::Result<SavedFile> {
    let path = match &arguments.state {
        Some(path) => path.clone(),
        None => kept::runtime_dir()?.path().join(STATE),
    };
    Ok(SavedFile::new(path, SavedFile::this_boot()))
}

/// Takes the right to balance this host, whatever the state file.
///
/// # Errors
/// Another balancer runs.
pub(crate) fn take() -> anyhow::Result<Instance> {
    let of_host = Path::new(OF_SERVICE).join(LOCK);
    let own = own_lock(&of_host)?;
    if own != of_host
        && !is_apart()
        && let Some(pid) = holder(&of_host)
    {
        return Err(DaemonError::Running { pid }.into());
    }
    Ok(Instance::take(&own)?)
}

/// Whether a directory was named for all that homenode keeps while it runs: tests and containers
/// do, and are hosts of their own.
fn is_apart() -> bool {
    std::env::var_os(qemu::DIRECTORY_VARIABLE).is_some()
}

/// The lock of this process.
fn own_lock(of_host: &Path) -> anyhow::Result<PathBuf> {
    if is_apart() {
        return Ok(kept::runtime_dir()?.path().join(LOCK));
    }
    if let Some(of_unit) = std::env::var_os(OF_UNIT).filter(|directory| Path::new(directory) == Path::new(OF_SERVICE)) {
        return Ok(Path::new(&of_unit).join(LOCK));
    }
    if linux::sys::effective_user_id() != 0 {
        return Ok(kept::runtime_dir()?.path().join(LOCK));
    }
    std::fs::create_dir_all(OF_SERVICE).with_context(|| format!("{OF_SERVICE}: cannot be made"))?;
    Ok(of_host.to_owned())
}

/// VMs that homenode is starting, of this user and of root, as far as they can be read.
fn starting() -> Vec<Reserved> {
    let (own, of_root) = (RuntimeDir::of_this_user(), PathBuf::from(OF_ROOT));
    let other = (own != of_root).then_some(of_root);
    std::iter::once(own).chain(other).flat_map(|directory| qemu::reserved(&directory)).collect()
}

/// The same, as a balancer wants to know it.
pub(crate) fn starts() -> Vec<Start> {
    starting().into_iter().map(|reserved| Start { vm: reserved.vm, holdings: reserved.holdings }).collect()
}

/// What the VMs that run or are being started hold of each node, and what a balancer that runs is
/// going to bring home.
pub(crate) fn occupancy(running: &Observation, machine: &Machine) -> Occupancy {
    occupancy_without(running, machine, |_| false)
}

/// The same, as if the VMs of some names were not there: what is left for them. A stranger's VM is
/// none of them, whatever its name.
pub(crate) fn occupancy_without(
    running: &Observation,
    machine: &Machine,
    left_out: impl Fn(&str) -> bool,
) -> Occupancy {
    let (mut running, mut starting) = (running.clone(), starting());
    running.vms.retain(|vm| vm.stranger || !left_out(&vm.vm.name));
    starting.retain(|reserved| !left_out(&reserved.vm));
    let mut occupancy = qemu::occupancy(&starting, &running, machine);
    let moves = |seen: Watched| seen.pid.is_some() && seen.saved.policy.balance.move_memory;
    if look(&StateArguments { state: None }).is_some_and(moves) {
        occupancy.expect_home(&running, machine);
    }
    occupancy
}

/// Whether a balancer runs that moves VMs where they should be by what they do.
pub(crate) fn balances() -> bool {
    look(&StateArguments { state: None }).is_some_and(|seen| seen.pid.is_some() && seen.saved.policy.balance.rebalance)
}

/// The balancer to ask: one that lives, else the memory of the last one of this user or of the
/// system.
pub(crate) fn look(arguments: &StateArguments) -> Option<Watched> {
    let boot = SavedFile::this_boot();
    let at = |path: PathBuf| Watched::look(&SavedFile::new(path, boot.clone()));
    if let Some(path) = &arguments.state {
        return at(path.clone());
    }
    let own = RuntimeDir::of_this_user().join(STATE);
    let of_system = [OF_SERVICE, OF_ROOT].map(|directory| Path::new(directory).join(STATE));
    let places = std::iter::once(own).chain(of_system.into_iter().filter(|_| !is_apart()));
    let mut seen: Vec<Watched> = places.filter_map(at).collect();
    let living = seen.iter().position(|seen| seen.pid.is_some()).unwrap_or(0);
    (!seen.is_empty()).then(|| seen.swap_remove(living))
}

/// The process that holds the lock of this user or of the system, by its number where that is
/// known; `None` where nobody does. One that has just started, or was stopped then, has no state
/// yet.
pub(crate) fn lock_holder() -> Option<Option<u32>> {
    let own = RuntimeDir::of_this_user().join(LOCK);
    let of_system = Some(Path::new(OF_SERVICE).join(LOCK)).filter(|_| !is_apart());
    std::iter::once(own).chain(of_system).find_map(|lock| holder(&lock))
}

/// The directory of the state file, made if it is not there.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_directory(file: &SavedFile) -> anyhow::Result<()> {
    let directory = file.path().parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.map_or(Ok(()), |directory| {
        std::fs::create_dir_all(directory)
            .map_err(|error| unwritable(format_args!("{}: cannot be made", directory.display()), &error))
    })
}
