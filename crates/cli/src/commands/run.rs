//! `homenode run`.

use crate::args::{RunArguments, Via};
use crate::commands::power_on::{PowerOn, power_on};
use crate::commands::{run_check, run_via_libvirt};
use crate::failure::bad_input;
use crate::guest_images::{self, Missing};
use crate::output;
use crate::{balancer_host, balancer_place, hidden_vms, kept, residence_view, switches, this_host, vm_spec_file};
use anyhow::{Context, bail};
use inventory::{Held, Record};
use linux::sys::CtrlC;
use qemu::{AttachedVm, Ending, Keyboard, PlacementLock, QemuError, RuntimeDir};
use scheduler::{Occupancy, PlanError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use topology::Machine;
use vm::backend::{BackendKind, ErrorKind, ReachedBy};
use vm::spec::{Boot, Console};
use vm::{
    Accelerator, BackendError, CallOff, ConsoleTo, Launch, NodeSize, Plan, Residence, VirtualTopology, Vm, VmSpec,
};

/// How long QEMU has to end after the user asked for it; the guest is not asked.
const NO_GRACE: Duration = Duration::ZERO;
/// Lines of the console that are shown of a guest that panics.
const CONSOLE_LINES: usize = 12;

/// Runs the command.
pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let missing = if arguments.dry_run { Missing::Refuse } else { Missing::Build };
    let spec = guest_images::realized(vm_spec_file::read(&arguments.spec)?, &arguments.spec, missing)?;
    if let Some(Via::Libvirt) = arguments.through.via {
        return run_via_libvirt::run(spec, arguments);
    }
    if arguments.dry_run {
        let placed = plan(&spec, &whose(arguments), None)?;
        let launch = launch(spec, placed.plan, arguments);
        return output::exact(qemu::command_by_hand(&launch).map_err(failure)? + "\n");
    }
    let directory = kept::runtime_dir()?;
    if arguments.daemonize {
        return keep(&directory, spec, arguments, by_qemu);
    }
    let lock = lock(&directory)?;
    kept::look(&directory)?;
    let placed = plan(&spec, &whose(arguments), None)?;
    free_name(&placed, &lock)?;
    let Placed { plan, running, .. } = placed;
    let mut launch = launch(spec, plan, arguments);
    qemu::check(&launch).map_err(failure)?;
    switches::plug(&directory, &ReachedBy::Qemu, &mut launch)?;
    // From here on a signal must take back what is reserved and started.
    let start = Start::watch()?;
    let reservation = lock.reserve(&[&launch.plan], &running)?;
    warn(&launch, &qemu::accelerator(launch.spec.most_vcpus()));
    warn_of_disk(&launch.spec);
    let mut vm =
        AttachedVm::start(&launch, &start.call_off).map_err(|error| start.failure(&launch.spec.name, error))?;
    drop(reservation);
    notes(vm.notes());
    if arguments.check {
        start.ends_us(&launch.spec.name);
        return run_check::check(Box::new(vm), &launch.plan);
    }
    start.also_watch(&vm);
    print(&vm.residence(&launch.plan)?, arguments.json, Output::Error)?;
    let attended = attend(vm, &launch, &start);
    // What it held open says that its devices are used.
    drop(launch);
    switches::sweep(&directory);
    attended
}

/// Starts a VM that outlives this command and keeps it; one that is kept starts again. `by`: what
/// runs it.
pub(super) fn keep(
    directory: &RuntimeDir,
    spec: VmSpec,
    arguments: &RunArguments,
    by: impl FnOnce(Option<&Record>, &VmSpec) -> anyhow::Result<ReachedBy>,
) -> anyhow::Result<()> {
    let spec_to_keep = vm_spec_file::absolute(spec.clone(), arguments.kernel.as_deref())?;
    let launch_spec = vm_spec_file::absolute(spec, None)?;
    let name = launch_spec.name.clone();
    let held = kept::hold_if_kept(directory, &name)?;
    let by = by(held.as_ref().map(Held::record), &spec_to_keep)?;
    let (kernel, whose) = (arguments.kernel.clone(), whose(arguments));
    power_on(directory, PowerOn { held, launch_spec, spec_to_keep, kernel, whose, by }, arguments.json)
}

/// QEMU in the background; that one VM has two backends in turns is not possible.
fn by_qemu(record: Option<&Record>, spec: &VmSpec) -> anyhow::Result<ReachedBy> {
    match record.map(|record| record.life.backend.kind()) {
        Some(BackendKind::Libvirt) => Err(bad_input(format!(
            "VM {name}: libvirt runs it: `homenode vm start {name}`, or `homenode run` with `--via libvirt`",
            name = spec.name
        ))),
        _ => Ok(ReachedBy::Qemu),
    }
}

/// What errors name.
pub(super) fn whose(arguments: &RunArguments) -> String {
    arguments.spec.display().to_string()
}

/// How long somebody who places a VM may take before the next one says what it waits for.
const SILENT_WAIT: Duration = Duration::from_secs(2);

/// Waits until nobody else places a VM.
pub(super) fn lock(directory: &RuntimeDir) -> anyhow::Result<PlacementLock> {
    let mut lock = directory.lock_placement(SILENT_WAIT)?;
    if lock.is_none() {
        output::note(format_args!("waiting for another homenode that plans a VM"));
    }
    loop {
        match lock {
            Some(lock) => return Ok(lock),
            None => lock = directory.lock_placement(SILENT_WAIT)?,
        }
    }
}

pub(super) fn notes(notes: &[String]) {
    for note in notes {
        output::note(note);
    }
}

pub(super) fn launch(mut spec: VmSpec, plan: Plan, arguments: &RunArguments) -> Launch {
    if arguments.check {
        run_check::boot_tiny_guest(&mut spec);
    }
    let console = if arguments.check { ConsoleTo::Kept } else { console(&spec) };
    Launch {
        spec,
        plan,
        kernel: arguments.kernel.clone(),
        console,
        agent: arguments.check,
        taps: vm::Taps::new(),
        variables: None,
    }
}

/// Where the spec has the console go.
pub(super) fn console(spec: &VmSpec) -> ConsoleTo {
    match &spec.console {
        Console::Terminal => ConsoleTo::Terminal,
        Console::File { path } => ConsoleTo::File(path.clone()),
    }
}

/// A plan, and the host that it was made for.
pub(super) struct Placed {
    pub(super) machine: Machine,
    pub(super) running: scheduler::Observation,
    pub(super) plan: Plan,
    pub(super) occupancy: Occupancy,
}

/// A virtual topology that is fixed, and what its nodes have now where that is not what they have
/// at power-on.
pub(super) type Fixed<'a> = (&'a VirtualTopology, &'a [NodeSize]);

/// Places the VM beside all that run or are being started on this host: with this virtual topology,
/// or sized for the host. `whose`: what an error names.
pub(super) fn plan(spec: &VmSpec, whose: &str, fixed: Option<Fixed<'_>>) -> anyhow::Result<Placed> {
    // In this order: memory that is filled between the two looks counts as taken twice, never as
    // free.
    let running = balancer_host::examine()?;
    // The VM starts all the same: its exit code is not about others.
    hidden_vms::say(&running);
    let machine = this_host::machine()?;
    let mut occupancy = balancer_place::occupancy(&running, &machine);
    occupancy.balanced = balancer_place::balances();
    qemu::set_aside(&mut occupancy, &machine, spec);
    let plan = match fixed {
        Some((topology, sizes)) => scheduler::rehome(&machine, &occupancy, spec, topology, sizes),
        None => scheduler::plan(&machine, &occupancy, spec),
    };
    let plan = plan.map_err(|error| plan_failure(&error, whose))?;
    Ok(Placed { machine, running, plan, occupancy })
}

/// Refuses a name that a VM has that runs or is being started. What a stranger calls his VM keeps
/// nobody from a name.
pub(super) fn free_name(placed: &Placed, lock: &PlacementLock) -> anyhow::Result<()> {
    let vm = &placed.plan.vm;
    let same = placed.running.vms.iter().find(|other| other.vm.name == *vm && !other.stranger).map(|same| same.vm.pid);
    let starting = || lock.starting().iter().any(|other| other.vm == *vm).then_some(0);
    match same.or_else(starting) {
        Some(pid) => Err(failure(QemuError::NameTaken { vm: vm.clone(), pid })),
        None => Ok(()),
    }
}

fn plan_failure(error: &PlanError, whose: &str) -> anyhow::Error {
    let mut text = format!("{whose}: {error}");
    if matches!(error, PlanError::Memory { .. }) {
        text += super::plan::KEPT;
    }
    if error.is_bad_input() { bad_input(text) } else { anyhow::anyhow!(text) }
}

/// Marks what the user can mend in the spec as bad input.
pub(super) fn failure(error: QemuError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}

pub(super) fn warn(launch: &Launch, accelerator: &Accelerator) {
    if !accelerator.is_hardware() {
        output::note(format_args!(
            "NO HARDWARE VIRTUALIZATION: {accelerator}. Speeds in this VM say nothing about KVM."
        ));
    }
    for warning in &launch.plan.warnings {
        output::note(format_args!("warning: {warning}"));
    }
}

/// Says that a VM which is powered on will wait for ever: its firmware finds nothing to boot.
pub(super) fn warn_of_disk(spec: &VmSpec) {
    let first = spec.disks.first().filter(|_| spec.boot == Boot::BIOS_DISK);
    let problem = first.and_then(|disk| Some((disk, images::bios_problem(&disk.path, disk.format)?)));
    if let Some((disk, problem)) = problem {
        output::note(format_args!(
            "warning: disk[0].path = {}: BIOS starts nothing of it: {problem}. For a disk that UEFI boots write \
             boot = {{ from = \"disk\", firmware = \"uefi\" }}",
            disk.path.display()
        ));
    }
}

#[derive(Clone, Copy)]
pub(super) enum Output {
    Standard,
    Error,
}

/// Says where the VM is: on standard error where standard output is the guest's console.
pub(super) fn print(residence: &Residence, json: bool, output: Output) -> anyhow::Result<()> {
    match (output, json) {
        (Output::Standard, true) => output::json_line("run", residence)?,
        (Output::Standard, false) => output::print(residence_view::view(residence))?,
        (Output::Error, true) => output::json_to_errors("run", residence)?,
        (Output::Error, false) => output::say(residence_view::view(residence)),
    }
    Ok(())
}

/// What ends an attached VM.
enum Event {
    Signal(&'static str),
    Leave,
    Exited,
}

/// A start that a signal calls off, and, once it is complete, what ends the VM.
pub(super) struct Start {
    pub(super) call_off: CallOff,
    signal: Arc<OnceLock<&'static str>>,
    send: Sender<Event>,
    events: Receiver<Event>,
}

impl Start {
    /// Watches for signals from now on.
    pub(super) fn watch() -> anyhow::Result<Self> {
        let (send, events) = channel();
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
        let (call_off, signal) = (CallOff::default(), Arc::new(OnceLock::new()));
        let this = Self { call_off: call_off.clone(), signal: Arc::clone(&signal), send: send.clone(), events };
        thread::spawn(move || {
            for number in signals.forever() {
                let name = match number {
                    SIGINT => "Ctrl-C",
                    SIGHUP => "hang-up of the terminal",
                    _ => "SIGTERM",
                };
                // Only the first one counts; a send fails only when nobody waits any more.
                let _ = signal.set(name);
                call_off.call_off();
                let _ = send.send(Event::Signal(name));
            }
        });
        Ok(this)
    }

    /// The signal that called it off.
    pub(super) fn signal(&self) -> Option<&'static str> {
        self.signal.get().copied()
    }

    /// A start that failed: by a signal, or else by itself.
    pub(super) fn failure(&self, vm: &str, error: impl Into<BackendError>) -> anyhow::Error {
        let error = error.into();
        match (error.kind(), self.signal.get()) {
            (ErrorKind::CalledOff, Some(signal)) => {
                anyhow::anyhow!("VM {vm}: {signal} ended its start; nothing of it is left")
            }
            _ if error.is_bad_input() => bad_input(error),
            _ => error.into(),
        }
    }

    /// Why a VM that ends with us ended: by a signal, or else as `error` says.
    pub(super) fn or_signal(&self, vm: &str, error: anyhow::Error) -> anyhow::Error {
        self.signal.get().map_or(error, |signal| anyhow::anyhow!("VM {vm} ended by {signal}"))
    }

    /// From now on a signal ends this process, and the kernel then ends its QEMU.
    fn ends_us(self, vm: &str) {
        let vm = vm.to_owned();
        thread::spawn(move || {
            for event in self.events {
                if let Event::Signal(signal) = event {
                    output::note(format_args!("VM {vm} ended by {signal}"));
                    std::process::exit(1);
                }
            }
        });
    }

    /// Tells when QEMU has ended, too.
    fn also_watch(&self, vm: &AttachedVm) {
        let (send, exit) = (self.send.clone(), vm.exit_watch());
        thread::spawn(move || {
            while exit.wait(Duration::from_secs(3600)).is_none() {}
            let _ = send.send(Event::Exited);
        });
    }
}

/// Stays with the VM until the guest powers off or somebody ends it.
fn attend(mut vm: AttachedVm, launch: &Launch, start: &Start) -> anyhow::Result<()> {
    let name = &launch.spec.name;
    let leave = start.send.clone();
    let keyboard = (launch.console == ConsoleTo::Terminal)
        .then(|| {
            let input = vm.console_input()?;
            Ok::<_, QemuError>(Keyboard::connect(input, CtrlC::Interrupts, move || {
                let _ = leave.send(Event::Leave);
            }))
        })
        .transpose()?;
    if keyboard.as_ref().is_some_and(Keyboard::is_terminal) {
        output::note(format_args!("this is the console of VM {name}; Ctrl-] or Ctrl-C ends the VM"));
    }
    let event = start.events.recv().context("nobody watches the VM any more")?;
    let (ending, console) = (vm.ending(), vm.console_tail(CONSOLE_LINES).join("\n  "));
    let dropped = vm.console_dropped().map(str::to_owned);
    Box::new(vm).stop(NO_GRACE)?;
    if keyboard.as_ref().is_some_and(Keyboard::is_terminal) {
        output::say("\n");
    }
    drop(keyboard);
    if let Some(dropped) = dropped {
        output::note(dropped);
    }
    match (event, ending) {
        (Event::Exited, Some(Ending::Failed(words))) => bail!("{words}"),
        (Event::Exited, Some(Ending::Reset)) => {
            bail!("VM {name}: the guest reset itself: a kernel panic. Its console's last lines:\n  {console}")
        }
        (Event::Exited, _) => output::note(format_args!("VM {name} powered off")),
        (Event::Signal(signal), _) => output::note(format_args!("VM {name} ended by {signal}")),
        (Event::Leave, _) => output::note(format_args!("VM {name} ended by Ctrl-]")),
    }
    Ok(())
}
