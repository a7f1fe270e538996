//! `homenode vm resume`: a VM that is in a file goes on, on this host or on another one, at homes
//! that are planned anew.
//!
//! **Order.** The file's beginning is checked, and that it is this VM's and its last one; homes are
//! planned and reserved; the record says `starting`; QEMU is built and its machine compared with
//! the guest's; the guest is read, each piece checked before it is passed on; then it runs, the
//! record says so, and the file is removed. A kill before it runs leads back to `suspended`.

use crate::args_vm::ResumeArguments;
use crate::commands::power_on::unfit;
use crate::commands::run::{self, Output, Placed, Start};
use crate::commands::vm::suspend::failure;
use crate::commands::vm::{beside, stop};
use crate::failure::bad_input;
use crate::transfer_view::TransferView;
use crate::{backend, kept, output, plan_view, switches};
use anyhow::{Context, anyhow};
use inventory::{Held, Kept, Proposal, Record};
use qemu::{Reservation, RuntimeDir};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use suspended::{About, FileError, Opened, Pouring};
use vm::backend::{BackendError, ErrorKind, GuestBytes, ReachedBy, Saved};
use vm::history::{Life, LifeEvent};
use vm::life::{State, Step};
use vm::spec::name_problem;
use vm::{Launch, Plan, Vm, VmSpec};

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &ResumeArguments) -> anyhow::Result<()> {
    let (held, path) = find(directory, arguments)?;
    if let Some(held) = &held {
        beside::recover(held.record(), &path)?;
    }
    let file = Opened::open(&path).map_err(failure)?;
    let about = About::from_text(file.about()).map_err(|error| bad_input(format!("{}: {error}", path.display())))?;
    let kept_name = (held.is_some() || arguments.from.is_some()).then_some(&arguments.vm);
    if let Some(other) = kept_name.filter(|name| **name != about.manifest.spec.name) {
        let problem = format!("{}: it holds VM {}, not {other}", path.display(), about.manifest.spec.name);
        return Err(bad_input(problem));
    }
    let held = its_record(directory, held, &about, &path)?;
    let spec = about.manifest.spec.clone();
    if let Some(held) = &held {
        stop::end_what_was_left(directory, held.record())?;
    }
    let lock = run::lock(directory)?;
    kept::look(directory)?;
    let sizes = about.manifest.added.sizes(&about.manifest.topology);
    let fixed = (&about.manifest.topology, sizes.as_slice());
    let placed = run::plan(&spec, &format!("VM {}", spec.name), Some(fixed))?;
    run::free_name(&placed, &lock)?;
    if arguments.dry_run {
        return show(&placed, held.is_none().then_some(&spec), arguments.json);
    }
    let Placed { machine, plan, running, .. } = placed;
    let variables = Some(kept::inventory().variables_file(&spec.name));
    let (console, taps) = (run::console(&spec), vm::Taps::new());
    let mut launch = Launch { spec, plan, kernel: None, console, agent: false, taps, variables };
    let by = reached_by(held.as_ref(), &about, &file);
    let accelerator = backend::of(directory, &by).check(&launch);
    let accelerator = accelerator.map_err(|error| unfit(error, &format!("VM {}", launch.spec.name)))?;
    switches::plug(directory, &by, &mut launch)?;
    // From here on a signal must take back what is reserved, written and started.
    let start = Start::watch()?;
    let reservation = lock.reserve(&[&launch.plan], &running)?;
    run::warn(&launch, &accelerator);
    let held = begin(held, (&about, &file), &launch.plan, machine.name)?;
    go_on(directory, Going { arguments, file, about, launch, held, start, reservation })
}

/// What is needed once homes are reserved.
struct Going<'a> {
    arguments: &'a ResumeArguments,
    file: Opened,
    about: About,
    launch: Launch,
    held: Held,
    start: Start,
    reservation: Reservation,
}

/// The VM that is meant, where one is kept, and its file.
fn find(directory: &RuntimeDir, arguments: &ResumeArguments) -> anyhow::Result<(Option<Held>, PathBuf)> {
    let said = Path::new(&arguments.vm);
    let held = match name_problem(&arguments.vm) {
        None => kept::hold_if_kept(directory, &arguments.vm)?,
        Some(_) => None,
    };
    let in_record = held.as_ref().and_then(|held| held.record().life.suspended_in.clone());
    if let Some(held) = &held {
        held.may(Step::Resume).map_err(kept::failure)?;
    }
    match (&arguments.from, in_record, &held) {
        (Some(from), _, _) => Ok((held, from.clone())),
        (None, Some(file), _) => Ok((held, file)),
        (None, None, Some(_)) => Err(bad_input(format!(
            "VM {}: its record does not say which file it is in; name the file with --from",
            arguments.vm
        ))),
        (None, None, None) if said.exists() => Ok((None, said.to_owned())),
        (None, None, None) => Err(bad_input(format!(
            "no VM named {} is kept, and there is no file of that name; `homenode vm list` shows the VMs",
            arguments.vm
        ))),
    }
}

/// The record of the VM in a file. Where there is one, the file must be its last.
fn its_record(directory: &RuntimeDir, named: Option<Held>, about: &About, path: &Path) -> anyhow::Result<Option<Held>> {
    let name = &about.manifest.spec.name;
    let other = |problem: String| Err(bad_input(format!("{}: {problem}", path.display())));
    let held = match named {
        Some(held) => Some(held),
        None => kept::hold_if_kept(directory, name)?,
    };
    let Some(held) = held else { return Ok(None) };
    let record = held.record();
    if !about.is_of(&record.life) || record.topology.as_ref() != Some(&about.manifest.topology) {
        return other(format!("it holds another VM named {name}, not the one that is kept here"));
    }
    held.may(Step::Resume).map_err(kept::failure)?;
    if !about.is_last_of(&record.life) {
        return other(format!(
            "VM {name} has run since this file was written, and its disks have changed; its last file is {}",
            record.life.suspended_in.as_ref().map_or_else(|| "unknown".to_owned(), |file| file.display().to_string())
        ));
    }
    Ok(Some(held))
}

/// Where it would live, and why; and what a file says that nobody here wrote.
fn show(placed: &Placed, foreign: Option<&VmSpec>, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json("vm.resume", &placed.plan);
    }
    output::print(plan_view::view(&placed.machine, &placed.occupancy, &placed.plan))?;
    let Some(spec) = foreign else { return Ok(()) };
    let text = toml::to_string(spec).context("its spec cannot be written")?;
    output::print(format_args!(
        "\nThe file's spec: which files and ports of this host it would use, and as whom QEMU would run\n\n{text}"
    ))
}

/// What runs it from now on: what its record says; where none is kept, what wrote a file of its own
/// reads it here, too.
fn reached_by(held: Option<&Held>, about: &About, file: &Opened) -> ReachedBy {
    match held {
        Some(held) => held.record().life.backend.clone(),
        None if file.beside().is_some() => about.life.backend.clone(),
        None => ReachedBy::Qemu,
    }
}

/// Writes down that it is being resumed.
fn begin(held: Option<Held>, (about, file): (&About, &Opened), plan: &Plan, host: String) -> anyhow::Result<Held> {
    let (spec, topology) = (about.manifest.spec.clone(), plan.topology.clone());
    let placement = Kept { host, placement: plan.placement.clone(), added: about.manifest.added.clone() };
    let now = kept::now();
    let begun = match held {
        Some(mut held) => held.begin(Step::Resume, Proposal { spec, topology, placement }, now).map(|()| held),
        None => {
            // Its life goes on here; where it does not, nothing of it stays here.
            let by = reached_by(None, about, file);
            let life = Life::from_elsewhere(&about.life, State::Starting, by, now);
            kept::inventory().create(&Record { spec, topology: Some(topology), placement: Some(placement), life })
        }
    };
    begun.map_err(kept::failure)
}

fn go_on(directory: &RuntimeDir, going: Going<'_>) -> anyhow::Result<()> {
    let Going { arguments, file, about, launch, mut held, start, reservation } = going;
    let own_file = held.record().life.suspended_in.as_deref() == Some(file.path());
    let view = TransferView::new(about.manifest.memory());
    let by = held.record().life.backend.clone();
    let resumed = resume(directory, &by, &file, &about, &launch, (&view, &start));
    let seconds = view.finish();
    let mut vm = match resumed {
        Ok(vm) => vm,
        Err(error) => {
            if let Err(unwritten) = held.call_back() {
                output::note(unwritten);
            }
            let (vm, file) = (&launch.spec.name, file.path().display());
            return Err(match (error.kind(), start.signal()) {
                (ErrorKind::CalledOff, Some(signal)) => {
                    anyhow!("VM {vm}: {signal}: it does not go on, and is in {file} as before")
                }
                _ => start.failure(vm, error),
            });
        }
    };
    drop(reservation);
    run::notes(vm.notes());
    let homes = launch.plan.placement.clients.iter().map(|client| client.home.clone()).collect();
    let completed = held.complete(LifeEvent::Resumed { homes }, kept::now());
    completed.with_context(|| format!("VM {} goes on, and that could not be written down", launch.spec.name))?;
    clean_up(&file, own_file);
    output::note(format_args!("VM {} goes on after {seconds:.1} s", launch.spec.name));
    run::print(&vm.residence(&launch.plan)?, arguments.json, Output::Standard)
}

fn resume(
    directory: &RuntimeDir,
    reached_by: &ReachedBy,
    file: &Opened,
    about: &About,
    launch: &Launch,
    (view, start): (&TransferView, &Start),
) -> Result<Box<dyn Vm>, BackendError> {
    let failed = |error: FileError| {
        let kind = if error.is_bad_input() { ErrorKind::BadInput } else { ErrorKind::Failed };
        BackendError::new(kind, error)
    };
    let backend = backend::of(directory, reached_by);
    if let Some(guest) = file.beside() {
        let all = about.manifest.memory();
        let mut read = beside::read(view, all);
        let mut was_right = || file.check_beside(&mut read).map_err(failed);
        let called_off = AtomicBool::new(false);
        let from = GuestBytes::File { path: &guest, called_off: &called_off };
        let (was_right, told) = (&mut was_right, &mut |transfer| view.tell(transfer));
        return backend.resume(launch, Saved { manifest: &about.manifest, from, was_right, told }, &start.call_off);
    }
    // A socket: QEMU 7.2 waits for ever for the first byte of a pipe that was closed without one.
    let (from, into) = UnixStream::pair().map_err(|error| BackendError::new(ErrorKind::Failed, error))?;
    let mut pouring = Some(file.pour_into(into.into()).map_err(failed)?);
    let mut was_right = || pouring.take().map_or(Ok(()), |pouring: Pouring| pouring.all().map_err(failed));
    let saved = Saved {
        manifest: &about.manifest,
        from: GuestBytes::Stream(from.into()),
        was_right: &mut was_right,
        told: &mut |transfer| view.tell(transfer),
    };
    backend.resume(launch, saved, &start.call_off)
}

/// A file that would start the guest a second time goes; one that somebody brought is his.
fn clean_up(file: &Opened, own: bool) {
    let path = file.path().display();
    if !own {
        output::note(format_args!("{path} stays; do not resume from it again: the VM's disks are newer from now on"));
    } else if let Err(error) = suspended::beside::remove(file.path()) {
        output::note(format_args!("{path} is not needed any more and cannot be removed: {error}"));
    }
}
