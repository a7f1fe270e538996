//! `homenode vm suspend`: a VM goes into a file, and its process ends.
//!
//! **Order.** Written down as paused, its vCPUs stopped, its guest written, the file synced and
//! renamed, written down as suspended, its process ended. A kill in between leaves a VM that is
//! paused and that the next look lets go on, or one that is suspended and goes on by `vm resume`:
//! the record says which. A stale file of the first kind is in nobody's way: the next suspend
//! replaces it, and no VM goes on from it any more.

use crate::args_vm::SuspendArguments;
use crate::commands::run::Start;
use crate::commands::vm::beside::{self, Place};
use crate::commands::vm::disks;
use crate::failure::{bad_input, unwritable};
use crate::transfer_view::{TransferView, rate};
use crate::{backend, kept, output};
use anyhow::{Context, anyhow};
use inventory::Held;
use qemu::RuntimeDir;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use suspended::{About, FileError, Unfinished, Written};
use topology::Bytes;
use vm::backend::{ErrorKind, GuestBytes};
use vm::history::LifeEvent;
use vm::life::{State, Step};
use vm::{BackendError, Manifest, Vm};

/// How long the disk may take for what was on its way to it: some 40 MiB.
const LAST_BYTES: Duration = Duration::from_secs(60);
/// The same where nobody wants the file any more.
const CLOSES: Duration = Duration::from_secs(5);
/// How long a QEMU whose monitor is closed may take to end.
const ENDS: Duration = Duration::from_secs(10);

/// What is said of it, in JSON.
#[derive(Serialize)]
struct Suspended<'a> {
    vm: &'a str,
    file: &'a Path,
    guest_bytes: Bytes,
    stored_bytes: Bytes,
    seconds: f64,
}

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &SuspendArguments) -> anyhow::Result<()> {
    let mut held = kept::hold(directory, &arguments.name)?;
    held.may(Step::Suspend).map_err(kept::failure)?;
    let lost = "what it wrote to that disk is lost when its process ends; it cannot be suspended";
    disks::check(&held.record().spec, lost)?;
    let name = &arguments.name;
    let path = place(arguments)?;
    let mut vm = backend::reach(directory, held.record())?;
    let vm_mut = &mut vm;
    let manifest = manifest(vm_mut.as_mut(), &held)?;
    let beside =
        held.record().life.backend.kind().saves_files().then(|| Place::of(vm_mut.as_ref(), &path)).transpose()?;
    // From here on a signal must leave no file, and let it go on.
    let signals = Start::watch()?;
    let file = Unfinished::create(&path).map_err(failure)?;
    file.has_room(in_memory(vm_mut.pid(), &manifest)).map_err(failure)?;
    let called_off = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&called_off);
    signals.call_off.has_process(Box::new(move || flag.store(true, Ordering::Relaxed)));
    let view = TransferView::new(manifest.memory());
    // Before it is paused: on another host its life goes on as it was.
    let about = About::new(kept::now(), held.record().life.clone(), manifest).context("cannot read /dev/urandom")?;
    let ran = begin(&mut held)?;
    let paused = if ran { vm_mut.pause() } else { Ok(()) };
    let written = match (paused, &beside) {
        (Ok(()), Some(place)) => beside::write(vm_mut.as_mut(), &mut held, place, (file, &about), (&view, called_off)),
        (Ok(()), None) => write(vm_mut.as_mut(), file, &about, (&view, called_off)),
        (Err(error), _) => Err(error.into()),
    };
    let seconds = view.finish();
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            if let Some(ended) = ended(vm_mut.as_mut(), &error) {
                return Err(anyhow!(
                    "{ended}; it was not suspended, and is lost: `homenode vm start {name}` starts it anew"
                ));
            }
            let became = match go_on(vm_mut.as_mut(), &mut held, ran) {
                Ok(()) if ran => "and goes on".to_owned(),
                Ok(()) => "and stays paused".to_owned(),
                Err(error) => format!("and does not go on ({error:#}): `homenode vm list` says what became of it"),
            };
            return Err(match signals.signal() {
                Some(signal) => anyhow!("VM {name}: {signal}: it was not suspended {became}"),
                None => error.context(format!("VM {name} was not suspended {became}")),
            });
        }
    };
    suspended(&mut held, &path, &about).with_context(|| {
        format!(
            "VM {name} is in {}, and that could not be written down; `homenode vm list` says what became \
            of it",
            path.display()
        )
    })?;
    if let Err(error) = vm.stop(Duration::ZERO) {
        output::note(format_args!(
            "{error}. VM {name} is suspended all the same; what is left of its process is ended when it is resumed"
        ));
    }
    say(arguments, &path, &written, seconds)
}

/// Where its file goes. The place beside its record is free: whoever holds a VM that is in no file
/// has removed what lay there.
fn place(arguments: &SuspendArguments) -> anyhow::Result<PathBuf> {
    if let Some(path) = &arguments.to {
        return std::path::absolute(path).map_err(|error| unwritable(path.display(), &error));
    }
    Ok(kept::inventory().memory_file(&arguments.name))
}

fn manifest(vm: &mut dyn Vm, held: &Held) -> anyhow::Result<Manifest> {
    let record = held.record();
    let missing = || anyhow!("VM {}: nothing is kept of its virtual topology", record.spec.name);
    let topology = record.topology.as_ref().ok_or_else(missing)?;
    let added = record.placement.as_ref().map(|kept| kept.added.clone()).unwrap_or_default();
    let manifest = vm.manifest(&record.spec, topology, &added)?;
    match added.keeps_guest_here(manifest.run_by.hardware) {
        None => Ok(manifest),
        Some(why) => Err(bad_input(format!("VM {} cannot be suspended: {why}", record.spec.name))),
    }
}

/// Memory of the guest that there is: no more of it is written.
fn in_memory(pid: u32, manifest: &Manifest) -> Bytes {
    linux::process::resident(pid).map_or(manifest.memory(), |resident| resident.min(manifest.memory()))
}

/// Writes down that it is paused, where it runs; whether it does.
fn begin(held: &mut Held) -> anyhow::Result<bool> {
    if held.record().life.state == State::Paused {
        return Ok(false);
    }
    held.may(Step::Pause).map_err(kept::failure)?;
    // It may: that was asked above.
    held.change_life(|life| _ = life.pause_to_suspend(kept::now())).map_err(kept::failure)?;
    Ok(true)
}

/// How its process ended, where it did while its guest was written.
fn ended(vm: &mut dyn Vm, error: &anyhow::Error) -> Option<String> {
    error.downcast_ref::<BackendError>().filter(|error| error.kind() == ErrorKind::Gone)?;
    let deadline = Instant::now() + ENDS;
    loop {
        let ended = vm.exited();
        if ended.is_some() || Instant::now() > deadline {
            return ended;
        }
        // Its monitor is closed before it is gone.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets a VM go on that ran.
fn go_on(vm: &mut dyn Vm, held: &mut Held, ran: bool) -> anyhow::Result<()> {
    if ran {
        vm.unpause()?;
        held.step(Step::Continue, None, kept::now())?;
    }
    Ok(())
}

fn write(
    vm: &mut dyn Vm,
    file: Unfinished,
    about: &About,
    (view, called_off): (&TransferView, Arc<AtomicBool>),
) -> anyhow::Result<Written> {
    let (from, into) = linux::sys::wide_pipe().context("cannot make a pipe")?;
    let most = about.manifest.topology.max_memory();
    let filling = file.fill_from(from, most, Arc::clone(&called_off)).map_err(failure)?;
    let saved = vm.save(GuestBytes::Stream(into), &mut |transfer| view.tell(transfer));
    // A QEMU that says nothing more may never close its end.
    let by_signal = called_off.load(Ordering::Relaxed);
    called_off.fetch_or(saved.is_err(), Ordering::Relaxed);
    let limit = if saved.is_ok() { LAST_BYTES } else { CLOSES };
    let written = match (filling.all_within(limit), saved) {
        (Err(error @ FileError::Hangs { .. }), _) => {
            file.leave();
            return Err(failure(error));
        }
        (Err(FileError::CalledOff { .. }), Err(error)) if !by_signal => return Err(error.into()),
        // What went wrong with the file is why QEMU could not write.
        (Err(error), _) => return Err(failure(error)),
        (Ok(_), Err(error)) => return Err(error.into()),
        (Ok(written), Ok(())) => written,
    };
    file.finish(&about.to_text()?, &written).map_err(failure)?;
    Ok(written)
}

/// Writes down that it is in the file, all at once.
fn suspended(held: &mut Held, path: &Path, about: &About) -> anyhow::Result<()> {
    held.may(Step::Suspend).map_err(kept::failure)?;
    let event = LifeEvent::Suspended { file: path.to_owned(), id: about.id.clone() };
    held.change_life(|life| {
        life.suspended_in = Some(path.to_owned());
        // It may: that was asked above.
        let _ = life.step(Step::Suspend, Some(event), about.saved_at);
    })
    .map_err(kept::failure)
}

fn say(arguments: &SuspendArguments, path: &Path, written: &Written, seconds: f64) -> anyhow::Result<()> {
    let (vm, guest_bytes, stored_bytes) = (&arguments.name, written.guest(), written.stored());
    if arguments.json {
        return output::json("vm.suspend", &Suspended { vm, file: path, guest_bytes, stored_bytes, seconds });
    }
    output::line(format_args!(
        "VM {vm} is suspended in {}: {guest_bytes} of memory in a file of {stored_bytes}, {seconds:.1} s, \
        {}\n`homenode vm resume {vm}` lets it go on",
        path.display(),
        rate(guest_bytes, seconds)
    ))
}

/// Marks what the user can mend as bad input.
pub(super) fn failure(error: FileError) -> anyhow::Error {
    match &error {
        FileError::Io { action, path, source } => {
            unwritable(format_args!("cannot {action} {}", path.display()), source)
        }
        error if error.is_bad_input() => bad_input(error),
        _ => error.into(),
    }
}
