//! Into another QEMU.

use super::begin;
use crate::QemuError;
use crate::at_home::bind_threads;
use crate::attached::{Prepared, explain, with_or_without_sandbox};
use crate::background::{Awaits, Built, build, claim, remove};
use crate::migration::{Status, next, run_state};
use crate::runtime_dir::{RuntimeDir, VmDirectory};
use crate::saved::run_by;
use crate::state::Phase;
use serde_json::json;
use std::os::fd::OwnedFd;
use std::time::Duration;
use topology::Bytes;
use vm::backend::{Saved, Transfer};
use vm::manifest::Verdict;
use vm::{BackendError, CallOff, Launch, Manifest};

/// How often somebody is told how far it has come.
const TELL: Duration = Duration::from_millis(100);

/// Starts a VM in the background with a guest that was saved. Says what its owner should know.
pub(crate) fn resume(
    directory: &RuntimeDir,
    launch: &Launch,
    saved: Saved<'_>,
    call_off: &CallOff,
) -> Result<Vec<String>, BackendError> {
    let prepared = Prepared::new(launch)?;
    let vm = &launch.spec.name;
    let place = claim(directory, vm, &directory.of_vm(vm))?;
    let awaits = Awaits::GuestOf(saved.manifest);
    let built = with_or_without_sandbox(|sandbox| build(&place, launch, &prepared, sandbox, awaits, call_off));
    let of_user = prepared.user.note().map(str::to_owned);
    let resumed = built.map_err(BackendError::from).and_then(|(built, note)| {
        let warnings = load(&place, built, launch, saved, call_off)?;
        Ok(of_user.into_iter().chain(note).chain(warnings).collect())
    });
    if resumed.is_err() {
        remove(place, vm)?;
    }
    resumed
}

fn load(
    place: &VmDirectory,
    mut built: Built,
    launch: &Launch,
    saved: Saved<'_>,
    call_off: &CallOff,
) -> Result<Vec<String>, BackendError> {
    let Saved { manifest, from, was_right, told } = saved;
    let from = from.stream(&launch.spec.name)?;
    let total = manifest.memory();
    let taken = agrees(&mut built, launch, manifest).and_then(|warnings| {
        take(&mut built, launch, from, &mut |remaining| {
            told(Transfer { done: total.saturating_sub(remaining), remaining });
        })?;
        Ok(warnings)
    });
    let taken = taken.map_err(|error| explain(error, &mut built.process, call_off));
    if taken.is_err() {
        // Whoever writes into the pipe sees that nobody reads.
        built.process.kill();
    }
    match (was_right(), taken) {
        // Bytes that were wrong, or that ended early, explain all that QEMU says of them.
        (Err(error), Err(_)) if error.is_bad_input() => Err(error),
        (_, Err(error)) => Err(error.into()),
        (Err(error), Ok(_)) => Err(error),
        (Ok(()), Ok(warnings)) => {
            run(place, built, call_off)?;
            Ok(warnings)
        }
    }
}

/// Compares the machine that was built with the one that the guest knows.
fn agrees(built: &mut Built, launch: &Launch, manifest: &Manifest) -> Result<Vec<String>, QemuError> {
    let hardware = built.state.accelerator.is_hardware();
    let run_by = run_by(&mut built.qmp, built.process.pid(), &launch.spec, hardware)?;
    let here = Manifest::of(&launch.spec, &launch.plan.topology, &manifest.added, run_by);
    let differences = manifest.differences(&here);
    let (refuse, warn): (Vec<_>, Vec<_>) = differences.iter().partition(|found| found.verdict == Verdict::Refuses);
    if refuse.is_empty() {
        return Ok(warn.iter().map(ToString::to_string).collect());
    }
    let sentences: Vec<String> = refuse.iter().map(|found| format!("  {found}")).collect();
    let problem = format!("its guest cannot go on here:\n{}", sentences.join("\n"));
    Err(QemuError::Spec { vm: launch.spec.name.clone(), problem })
}

/// Binds the vCPUs, and takes the guest in.
fn take(built: &mut Built, launch: &Launch, from: OwnedFd, told: &mut dyn FnMut(Bytes)) -> Result<(), QemuError> {
    let (pid, qmp) = (built.process.pid(), &mut built.qmp);
    let threads = qmp.vcpu_threads(pid)?;
    bind_threads(&launch.plan, pid, &threads)?;
    begin(qmp, "migrate-incoming", from)?;
    loop {
        let look = next(qmp, TELL)?;
        if let Some(ram) = look.progress.ram {
            told(ram.remaining);
        }
        match look.status {
            Status::Completed => return Ok(()),
            status if status.is_over() => {
                let message = look.error.unwrap_or_else(|| "its guest could not be read".to_owned());
                let (vm, command) = (launch.spec.name.clone(), "migrate-incoming".to_owned());
                return Err(QemuError::Refused { vm, command, message });
            }
            _ => {}
        }
    }
}

/// Lets the guest run, and leaves its QEMU alone.
fn run(place: &VmDirectory, mut built: Built, call_off: &CallOff) -> Result<(), QemuError> {
    let vm = built.process.vm().to_owned();
    // From here on it may have run: nobody ends it as one that is half started.
    if !call_off.complete() {
        return Err(QemuError::CalledOff { vm });
    }
    built.state.phase = Phase::Running;
    built.state.write(&place.path)?;
    let runs = built.qmp.execute("cont", &json!({})).and_then(|_| run_state(&mut built.qmp));
    let runs = runs.map_err(|error| explain(error, &mut built.process, call_off))?;
    built.process.leave_running();
    match runs {
        (true, _) => Ok(()),
        (false, word) => {
            let message = format!("it does not run: {word}");
            Err(QemuError::Refused { vm, command: "cont".to_owned(), message })
        }
    }
}
