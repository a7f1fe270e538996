//! The VMs that homenode keeps, brought up to what runs.
//!
//! **Rule.** Every command that looks at VMs or changes one looks here first, before anything is
//! removed that tells how a process ended. Where a record is not what runs ([`vm::truth`]) it is
//! mended; where somebody is at work on the VM it stays, and where it cannot be written it is only
//! shown mended.

use crate::commands::libvirt_vms;
use crate::failure::{bad_input, text, unwritable};
use crate::{backend, kept_moves, kept_sizes, life_words, nearest, output, switches};
pub(crate) use inventory::now;
use inventory::{Held, Inventory, InventoryError, Record};
use qemu::{BackgroundVm, QemuError, RuntimeDir, background};
use std::collections::BTreeMap;
use vm::backend::BackendKind;
use vm::history::Life;
use vm::life::{State, Step};
use vm::truth::{Mend, Process, mend, mend_vcpus};

/// The VMs of this user.
pub(crate) fn inventory() -> Inventory {
    let named = std::env::var_os(qemu::DIRECTORY_VARIABLE).is_some_and(|name| !name.is_empty());
    let runtime = named.then(RuntimeDir::of_this_user);
    Inventory::of_this_user(runtime.as_deref())
}

/// The directory of what runs here; one that cannot be used is bad input.
///
/// # Errors
/// It cannot be used.
pub(crate) fn runtime_dir() -> anyhow::Result<RuntimeDir> {
    RuntimeDir::open().map_err(|error| match error {
        QemuError::Directory { action, source } => unwritable(format_args!("cannot {action}"), &source),
        error => error.into(),
    })
}

/// A VM that is kept, or that runs in the background, or both.
pub(crate) struct Known {
    /// What is kept of it.
    pub(crate) record: Option<Record>,
    /// Its process.
    pub(crate) process: Option<BackgroundVm>,
}

/// All VMs of this user that homenode knows, by name; what was cleaned up or cannot be read is
/// said on standard error.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn look(directory: &RuntimeDir) -> anyhow::Result<BTreeMap<String, Known>> {
    let inventory = inventory();
    let names = inventory.names().map_err(failure)?;
    if let Err(error) = inventory.remove_unfinished() {
        output::note(error);
    }
    let mut known = BTreeMap::new();
    for name in names {
        match brought_up(directory, &inventory, &name) {
            Ok(record) => known.extend(record.map(|record| (name, Known { record: Some(record), process: None }))),
            Err(error) => output::note(format_args!("VM {name} cannot be shown: {}", text(&error))),
        }
    }
    switches::sweep(directory);
    let listing = background::list(directory)?;
    for cleaned in &listing.cleaned {
        output::note(cleaned);
    }
    for vm in listing.vms {
        let seen = known.entry(vm.name.clone()).or_insert(Known { record: None, process: None });
        seen.process = Some(vm);
    }
    Ok(known)
}

/// The record of a VM as it is now; `None` where there is none (any more).
fn brought_up(directory: &RuntimeDir, inventory: &Inventory, name: &str) -> anyhow::Result<Option<Record>> {
    let read = || match inventory.read(name) {
        Err(InventoryError::NoSuchVm { .. }) => Ok(None),
        read => read.map(Some),
    };
    let Some(mut record) = read()? else { return Ok(None) };
    // Who is at work on it mostly has its monitor, which serves one visitor at a time.
    let vcpus_run = |name: &str| if inventory.is_held(name) { None } else { background::vcpus_run(directory, name) };
    let Some(wrong) = wrong(directory, &record, vcpus_run)? else {
        let record = kept_moves::brought_up(inventory, record)?;
        return kept_sizes::brought_up(directory, inventory, record).map(Some);
    };
    match inventory.hold_now(name) {
        // Whoever has it writes what has become of it.
        Err(InventoryError::Busy { .. }) => Ok(Some(record)),
        Err(InventoryError::NoSuchVm { .. }) => Ok(None),
        Err(InventoryError::Io { .. }) => Ok(shown_mended(&mut record, wrong).then_some(record)),
        held => {
            let held = held?;
            // It may have been changed before it was ours.
            match self::wrong(directory, held.record(), |name| background::vcpus_run(directory, name))? {
                Some(wrong) => {
                    if is_to_go_on(held.record(), &wrong) {
                        backend::reach(directory, held.record())?.unpause()?;
                    }
                    say_what_file_is_too_old(held.record(), &wrong);
                    match held.mend(wrong.clone(), now()) {
                        Err(InventoryError::Io { .. }) => return Ok(shown_mended(&mut record, wrong).then_some(record)),
                        mended => mended?,
                    }
                }
                None => drop(held),
            }
            Ok(read()?)
        }
    }
}

/// Whether vCPUs may wait for a homenode that was killed before it let them run.
fn is_to_go_on(record: &Record, wrong: &Mend) -> bool {
    match wrong {
        Mend::LetGoOn(_) => true,
        // A guest that arrives from another host may be one that its owner has paused.
        Mend::Complete { paused } => {
            !paused && record.life.state == State::Starting && record.life.backend.kind() == BackendKind::Qemu
        }
        _ => false,
    }
}

/// That somebody else let a VM go on that was suspended: the disks are newer than its file from
/// then on.
fn say_what_file_is_too_old(record: &Record, wrong: &Mend) {
    let (Mend::Started, Some(file)) = (wrong, &record.life.suspended_in) else { return };
    let (name, file) = (&record.spec.name, file.display());
    output::note(format_args!(
        "VM {name} was suspended in {file}, and runs: somebody else resumed or started it. It must not be resumed \
        from that file again: its disks are newer"
    ));
}

/// What of a record is not so. `vcpus_run`: asks the monitor of a VM.
fn wrong(
    directory: &RuntimeDir,
    record: &Record,
    vcpus_run: impl Fn(&str) -> Option<bool>,
) -> anyhow::Result<Option<Mend>> {
    let (life, name) = (&record.life, &record.spec.name);
    let process = process(directory, record)?;
    if let Some(wrong) = mend(life, &process) {
        return Ok(Some(wrong));
    }
    let may_wait =
        matches!(process, Process::Runs | Process::CamePaused) && matches!(life.state, State::Running | State::Paused);
    let run = may_wait.then(|| vcpus_run(name)).flatten();
    Ok(run.and_then(|run| mend_vcpus(life, run)))
}

/// The process of a VM. QEMU that is not found here may have been started with another runtime
/// directory, by a session that had another environment: then it is not for us to say what it does.
fn process(directory: &RuntimeDir, record: &Record) -> anyhow::Result<Process> {
    let (name, reached_by) = (&record.spec.name, &record.life.backend);
    let seen = match (backend::of(directory, reached_by).process(name), reached_by.kind()) {
        (Err(error), BackendKind::Libvirt) => {
            output::note(format_args!("VM {name} is shown as it was last written down: {error}"));
            return Ok(Process::Unknown);
        }
        (seen, _) => seen?,
    };
    let is_gone = matches!(seen, Process::Gone { .. } | Process::Ended);
    if is_gone && reached_by.kind().saves_files() && is_in_file(record) {
        return Ok(Process::InFile);
    }
    if reached_by.kind() != BackendKind::Qemu || !matches!(seen, Process::Gone { .. }) {
        return Ok(seen);
    }
    let running = linux::examine_this_host()?;
    let elsewhere = running.vms.iter().any(|other| other.vm.name == *name && !other.stranger);
    Ok(if elsewhere { Process::Unknown } else { seen })
}

/// Whether what runs the VM has written its guest to the end of the file that its record names.
fn is_in_file(record: &Record) -> bool {
    record.life.suspended_in.as_ref().is_some_and(|file| libvirt::is_whole(&suspended::beside::guest_of(file)))
}

/// Mends a record that cannot be written; false where it is gone.
fn shown_mended(record: &mut Record, wrong: Mend) -> bool {
    let homes = record.homes();
    let life = &mut record.life;
    let paused = wrong == Mend::Complete { paused: true };
    let (step, event) = match (wrong, life.before) {
        (Mend::Step(step, event), _) => (step, Some(event)),
        (Mend::LetGoOn(event), _) => (Step::Continue, Some(event)),
        (Mend::Complete { .. }, _) => (Step::Runs, None),
        (Mend::CallBack, Some(before)) => (Step::Fails { back_to: before.state }, None),
        (Mend::CallBack, None) => return false,
        (Mend::Started, _) => {
            // Whoever starts a VM that does not run takes a step that can be taken.
            let _ = life.started_elsewhere(homes, now());
            return true;
        }
    };
    // A step that mends is one that can be taken.
    let _ = life.step(step, event, now());
    if paused {
        let _ = life.step(Step::Pause, None, now());
    }
    true
}

/// What is known of a VM's migration, as a sentence, and what to do where that was cut short;
/// `None` where there is none.
pub(crate) fn on_its_way(name: &str, life: &Life) -> Option<String> {
    life_words::on_its_way(name, life, || inventory().is_held(name))
}

/// Holds a VM whose record is what runs.
///
/// # Errors
/// There is no such VM, or another homenode is at work on it.
pub(crate) fn hold(directory: &RuntimeDir, name: &str) -> anyhow::Result<Held> {
    hold_if_kept(directory, name)?.ok_or_else(|| missing(name))
}

/// As [`hold`]; `None` where homenode keeps no such VM.
///
/// # Errors
/// Another homenode is at work on it, or its files cannot be read.
pub(crate) fn hold_if_kept(directory: &RuntimeDir, name: &str) -> anyhow::Result<Option<Held>> {
    let inventory = inventory();
    if brought_up(directory, &inventory, name)?.is_none() {
        return Ok(None);
    }
    match inventory.hold(name) {
        Err(InventoryError::NoSuchVm { .. }) => Ok(None),
        held => held.map(Some).map_err(failure),
    }
}

/// That homenode keeps no such VM, and whose it is where it is libvirt's.
pub(crate) fn missing(name: &str) -> anyhow::Error {
    libvirt_vms::way_to(name).map_or_else(|| bad_input(unknown(name)), bad_input)
}

/// That nobody here has a VM of this name, with the nearest that somebody has.
pub(crate) fn unknown(name: &str) -> String {
    let kept = inventory().names().unwrap_or_default();
    let of_libvirt = libvirt::local_names().unwrap_or_default();
    let nearest = nearest::sentence(name, kept.iter().chain(&of_libvirt).map(String::as_str));
    format!("{}{nearest}", InventoryError::NoSuchVm { vm: name.to_owned() })
}

/// Marks what the user can mend as bad input.
pub(crate) fn failure(error: InventoryError) -> anyhow::Error {
    match &error {
        InventoryError::Io { action, source } => unwritable(format_args!("cannot {action}"), source),
        error if error.is_bad_input() => bad_input(error),
        _ => error.into(),
    }
}
