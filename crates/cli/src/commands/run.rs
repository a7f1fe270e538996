//! `homenode run`.

use crate::args::{RunArguments, Via};
use crate::commands::{run_check, run_via_libvirt};
use crate::failure::bad_input;
use crate::output;
use crate::{balancer_place, residence_view, vm_spec_file};
use anyhow::{Context, bail};
use linux::sys::CtrlC;
use qemu::{Accelerator, ConsoleTo, Ending, Keyboard, Launch, QemuError, Residence, RunningVm, RuntimeDir, background};
use scheduler::spec::Console;
use scheduler::{Plan, PlanError, VmSpec};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use topology::Machine;

/// How long QEMU has to end after the user asked for it; the guest is not asked.
const NO_GRACE: Duration = Duration::ZERO;
/// Lines of the console that are shown of a guest that panics.
const CONSOLE_LINES: usize = 12;

/// Runs the command.
pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    if let Some(Via::Libvirt) = arguments.through.via {
        return run_via_libvirt::run(arguments);
    }
    let spec = vm_spec_file::read(&arguments.spec)?;
    let directory = RuntimeDir::open()?;
    let mut lock = directory.lock_placement()?;
    if !arguments.dry_run {
        clean(&directory)?;
    }
    let (_, plan) = plan(&spec, arguments)?;
    let launch = launch(spec, plan, arguments);
    if arguments.dry_run {
        output::exact(qemu::command_by_hand(&launch).map_err(failure)? + "\n")?;
        return Ok(());
    }
    warn(&launch, &Accelerator::detect(launch.spec.vcpus));
    if arguments.daemonize {
        let residence = background::start(&directory, &launch).map_err(failure)?;
        return print(&residence, arguments.json, Output::Standard);
    }
    lock.reserve([&launch.plan])?;
    let mut vm = RunningVm::start(&launch).map_err(failure)?;
    drop(lock);
    if arguments.check {
        return run_check::check(vm, &launch.plan);
    }
    let events = watch(&vm)?;
    print(&vm.residence()?, arguments.json, Output::Error)?;
    attend(vm, &launch, events)
}

/// What a QEMU that died left behind, or a start that was cut short: its memory would count as taken.
pub(super) fn clean(directory: &RuntimeDir) -> anyhow::Result<()> {
    for cleaned in background::list(directory)?.cleaned {
        eprintln!("homenode: {cleaned}");
    }
    Ok(())
}

pub(super) fn launch(mut spec: VmSpec, plan: Plan, arguments: &RunArguments) -> Launch {
    if arguments.check {
        run_check::boot_tiny_guest(&mut spec);
    }
    let console = match &spec.console {
        _ if arguments.check => ConsoleTo::Kept,
        Console::Terminal => ConsoleTo::Terminal,
        Console::File { path } => ConsoleTo::File(path.clone()),
    };
    Launch { spec, plan, kernel: arguments.kernel.clone(), console, agent: arguments.check }
}

/// Sizes and places the VM beside all that run on this host.
pub(super) fn plan(spec: &VmSpec, arguments: &RunArguments) -> anyhow::Result<(Machine, Plan)> {
    let machine = topology::read::live().context("this host cannot be read")?;
    let running = linux::vms::running().context("the running VMs cannot be read")?;
    if let Some(same) = running.iter().find(|vm| vm.name.as_deref() == Some(&spec.name)).filter(|_| !arguments.dry_run)
    {
        return Err(QemuError::NameTaken { vm: spec.name.clone(), pid: same.identity.pid }.into());
    }
    let occupancy = balancer_place::occupancy(&running, &machine);
    let plan = scheduler::plan(&machine, &occupancy, spec).map_err(|error| plan_failure(&error, arguments))?;
    Ok((machine, plan))
}

fn plan_failure(error: &PlanError, arguments: &RunArguments) -> anyhow::Error {
    let text = format!("{}: {error}", arguments.spec.display());
    if error.is_bad_input() { bad_input(text) } else { anyhow::anyhow!(text) }
}

/// Marks what the user can mend in the spec as bad input.
pub(super) fn failure(error: QemuError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}

pub(super) fn warn(launch: &Launch, accelerator: &Accelerator) {
    if !accelerator.is_hardware() {
        eprintln!("homenode: NO HARDWARE VIRTUALIZATION: {accelerator}. Speeds in this VM say nothing about KVM.");
    }
    for warning in &launch.plan.warnings {
        eprintln!("homenode: warning: {warning}");
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
        (Output::Error, true) => eprint!("{}", output::json_text("run", residence)?),
        (Output::Error, false) => eprint!("{}", output::readable(residence_view::view(residence))),
    }
    Ok(())
}

/// What ends an attached VM.
enum Event {
    Signal(&'static str),
    Leave,
    Exited,
}

type Events = (Sender<Event>, Receiver<Event>);

fn watch(vm: &RunningVm) -> anyhow::Result<Events> {
    let (send, receive) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let (on_signal, on_exit, exit) = (send.clone(), send.clone(), vm.exit_watch());
    // A send fails only when nobody waits any more.
    thread::spawn(move || {
        for signal in signals.forever() {
            let name = match signal {
                SIGINT => "Ctrl-C",
                SIGHUP => "hang-up of the terminal",
                _ => "SIGTERM",
            };
            let _ = on_signal.send(Event::Signal(name));
        }
    });
    thread::spawn(move || {
        while exit.wait(Duration::from_secs(3600)).is_none() {}
        let _ = on_exit.send(Event::Exited);
    });
    Ok((send, receive))
}

/// Stays with the VM until the guest powers off or somebody ends it.
fn attend(mut vm: RunningVm, launch: &Launch, (send, receive): Events) -> anyhow::Result<()> {
    let name = &launch.spec.name;
    let leave = send;
    let keyboard = (launch.console == ConsoleTo::Terminal)
        .then(|| {
            let input = vm.console_input()?;
            Ok::<_, QemuError>(Keyboard::connect(input, CtrlC::Interrupts, move || {
                let _ = leave.send(Event::Leave);
            }))
        })
        .transpose()?;
    if keyboard.as_ref().is_some_and(Keyboard::is_terminal) {
        eprintln!("homenode: this is the console of VM {name}; Ctrl-] or Ctrl-C ends the VM");
    }
    let event = receive.recv().context("nobody watches the VM any more")?;
    let (ending, console) = (vm.ending(), vm.console_tail(CONSOLE_LINES).join("\n  "));
    vm.stop(NO_GRACE)?;
    if keyboard.as_ref().is_some_and(Keyboard::is_terminal) {
        eprintln!();
    }
    drop(keyboard);
    match (event, ending) {
        (Event::Exited, Some(Ending::Failed(words))) => bail!("{words}"),
        (Event::Exited, Some(Ending::Reset)) => {
            bail!("VM {name}: the guest reset itself: a kernel panic. Its console's last lines:\n  {console}")
        }
        (Event::Exited, _) => eprintln!("homenode: VM {name} powered off"),
        (Event::Signal(signal), _) => eprintln!("homenode: VM {name} ended by {signal}"),
        (Event::Leave, _) => eprintln!("homenode: VM {name} ended by Ctrl-]"),
    }
    Ok(())
}
