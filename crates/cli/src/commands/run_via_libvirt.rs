//! `homenode run --via libvirt`: the same plan, started by libvirt, which then knows the VM as any
//! other of its domains.

use crate::args::RunArguments;
use crate::commands::run::{self, Output, Placed};
use crate::commands::run_check;
use crate::failure::bad_input;
use crate::output;
use crate::vm_spec_file;
use anyhow::{Context, bail};
use libvirt::start::{self, NewDomain};
use libvirt::{Connection, LibvirtError};
use qemu::{Reservation, RuntimeDir};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stacks::emit::{Emission, Kind, emit};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use topology::Machine;
use vm::Accelerator;
use vm::Launch;
use workloads::protocol::PORT_NAME;

/// Runs the command.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let spec = vm_spec_file::read(&arguments.spec)?;
    let connection = Connection::new(arguments.through.connect.as_deref()).starting_session();
    on_this_host(&connection)?;
    let accelerator = start::accelerator(&connection).map_err(failure)?;
    if arguments.dry_run {
        let Placed { machine, plan, .. } = run::plan(&spec, arguments)?;
        return output::exact(domain(&run::launch(spec, plan, arguments), &machine, &accelerator, arguments)?);
    }
    let directory = RuntimeDir::open()?;
    let lock = run::lock(&directory)?;
    run::clean(&directory)?;
    start::check_name(&connection, &spec.name).map_err(failure)?;
    let Placed { machine, plan, running } = run::free_name(run::plan(&spec, arguments)?, &lock)?;
    let launch = run::launch(spec, plan, arguments);
    let xml = domain(&launch, &machine, &accelerator, arguments)?;
    run::warn(&launch, &accelerator);
    let uuid = start::new_uuid().context("the kernel gives no UUID")?;
    let xml = start::with_mark(&start::with_uuid(&xml, &uuid)?)?;
    let reservation = Arc::new(Mutex::new(None));
    let ended_by_signal = EndedBySignal::watch(&connection, &uuid, &launch.spec.name, Arc::clone(&reservation))?;
    let keep = |kept| *reservation.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    keep(Some(lock.reserve(&[&launch.plan], &running)?));
    let started = NewDomain::start(&connection, xml, uuid).map_err(failure);
    keep(None);
    let started = started?;
    if arguments.check {
        return check(started, &launch);
    }
    let residence = started.residence(&launch.plan, &accelerator).map_err(failure)?;
    ended_by_signal.not_any_more();
    started.keep().map_err(failure)?;
    run::print(&residence, arguments.json, Output::Standard)?;
    let (name, virsh) = (&launch.spec.name, connection.command_by_hand());
    output::note(format_args!("libvirt keeps VM {name}: {virsh} console | shutdown | start | undefine {name}"));
    Ok(())
}

/// Another host has other nodes and other files.
fn on_this_host(connection: &Connection) -> anyhow::Result<()> {
    let Some(host) = connection.other_host().map_err(failure)? else { return Ok(()) };
    let uri = connection.uri().unwrap_or_default();
    Err(bad_input(format!(
        "--connect {uri}: this is the libvirt of {host}, and `run --via libvirt` starts VMs on this host only; `homenode plan VM.toml --connect {uri} --emit libvirt` plans for that host and prints its XML for `virsh define`"
    )))
}

/// The XML.
fn domain(
    launch: &Launch,
    machine: &Machine,
    accelerator: &Accelerator,
    arguments: &RunArguments,
) -> anyhow::Result<String> {
    qemu::check(launch).map_err(run::failure)?;
    let boot = qemu::boot_files(launch, accelerator).map_err(run::failure)?;
    let emission = Emission { machine, spec: &launch.spec, plan: &launch.plan, boot: &boot, accelerator };
    let spec = arguments.spec.display();
    let xml = emit(Kind::Libvirt, &emission).map_err(|problem| bad_input(format!("{spec}: {problem}")))?;
    Ok(if arguments.check { start::with_port(&xml, PORT_NAME)? } else { xml })
}

/// Waits for the guest's report, compares it with the plan, prints both. Nothing of the VM is left.
fn check(mut started: NewDomain, launch: &Launch) -> anyhow::Result<()> {
    let plan = &launch.plan;
    let socket = started.port(PORT_NAME).map_err(failure)?;
    let agent = linux::sys::connect_at_once(&socket).with_context(|| {
        format!(
            "VM {}: the agent's socket {} is closed to this user; run --check as root, or with the libvirt of this user (qemu:///session)",
            plan.vm,
            socket.display()
        )
    })?;
    let report = match run_check::hello(plan, agent) {
        Ok(report) => report,
        Err(error) if started.ended(Duration::ZERO).unwrap_or(false) => {
            bail!("{error}: QEMU ended; libvirt keeps its last words in /var/log/libvirt/qemu/{}.log", plan.vm)
        }
        Err(error) => return Err(error),
    };
    report.print(plan)?;
    // A guest that does not power off is ended.
    started.ended(run_check::POWER_OFF).map_err(failure)?;
    drop(started);
    report.verdict(plan)
}

/// Ends the domain when a signal comes before libvirt keeps it. One that comes later changes
/// nothing: little is left to do.
struct EndedBySignal(Arc<Mutex<bool>>);

impl EndedBySignal {
    /// How often the domain is looked for: it may only just be in the making.
    const TRIES: u32 = 50;

    /// `reservation`: what is reserved for it, and given back.
    fn watch(
        connection: &Connection,
        uuid: &str,
        name: &str,
        reservation: Arc<Mutex<Option<Reservation>>>,
    ) -> anyhow::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
        let kept = Arc::new(Mutex::new(false));
        let (connection, uuid, name, is_kept) =
            (connection.clone(), uuid.to_owned(), name.to_owned(), Arc::clone(&kept));
        std::thread::spawn(move || {
            for _ in signals.forever() {
                // Held until the process ends: what is being ended is not to be kept meanwhile.
                let kept = is_kept.lock().unwrap_or_else(PoisonError::into_inner);
                if *kept {
                    continue;
                }
                output::note(format_args!("VM {name}: ended by a signal"));
                for _ in 0..Self::TRIES {
                    match connection.destroy(&uuid) {
                        Err(error) if error.is_no_such_domain() => std::thread::sleep(Duration::from_millis(100)),
                        _ => break,
                    }
                }
                drop(reservation.lock().unwrap_or_else(PoisonError::into_inner).take());
                std::process::exit(1);
            }
        });
        Ok(Self(kept))
    }

    /// Returns only if no signal has come.
    fn not_any_more(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Marks what the user can mend as bad input.
fn failure(error: LibvirtError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}
