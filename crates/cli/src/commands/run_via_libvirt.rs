//! `homenode run --via libvirt`: the same plan, started by libvirt, which then knows the VM as any
//! other of its domains. homenode keeps it as it keeps those of its own.

use crate::args::RunArguments;
use crate::commands::run::{self, Placed, Start};
use crate::commands::run_check;
use crate::failure::bad_input;
use crate::{backend, kept, output};
use inventory::Record;
use libvirt::{Connection, Domains, LibvirtError};
use qemu::RuntimeDir;
use vm::backend::{DomainOf, ReachedBy};
use vm::{Backend, BackendError, Launch, VmSpec};

/// Runs the command.
pub(super) fn run(spec: VmSpec, arguments: &RunArguments) -> anyhow::Result<()> {
    let connection = Connection::new(arguments.through.connect.as_deref()).starting_session();
    on_this_host(&connection)?;
    if arguments.dry_run {
        let Placed { plan, .. } = run::plan(&spec, &run::whose(arguments), None)?;
        let launch = run::launch(spec, plan, arguments);
        return output::exact(Domains::kept(connection).xml(&launch).map_err(|error| unfit(error, arguments))?);
    }
    let directory = kept::runtime_dir()?;
    if arguments.check {
        return check(&directory, &connection, spec, arguments);
    }
    let name = spec.name.clone();
    run::keep(&directory, spec, arguments, |record, spec| match record {
        Some(record) => again(record, spec, &connection),
        None => new(&connection),
    })?;
    let virsh = connection.command_by_hand();
    output::note(format_args!("libvirt keeps VM {name}, too: {virsh} console {name} is its console"));
    Ok(())
}

/// Another host has other nodes and other files.
fn on_this_host(connection: &Connection) -> anyhow::Result<()> {
    let Some(host) = connection.other_host().map_err(unreached)? else { return Ok(()) };
    let uri = connection.uri().unwrap_or_default();
    Err(bad_input(format!(
        "--connect {uri}: this is the libvirt of {host}, and `run --via libvirt` starts VMs on this host only; \
        `homenode plan VM.toml --connect {uri} --emit libvirt` plans for that host and prints its XML for `virsh \
        define`"
    )))
}

/// A domain that is not there yet.
fn new(connection: &Connection) -> anyhow::Result<ReachedBy> {
    let uri = match connection.uri() {
        Some(uri) => uri.to_owned(),
        // It may be another one for the next command.
        None => connection.effective_uri().map_err(unreached)?,
    };
    Ok(ReachedBy::Libvirt(DomainOf { uri, uuid: libvirt::new_uuid()?, adopted: false }))
}

/// One that is kept: its definition is there, and only what is said of its home changes in it.
fn again(record: &Record, spec: &VmSpec, connection: &Connection) -> anyhow::Result<ReachedBy> {
    let name = &spec.name;
    let ReachedBy::Libvirt(domain) = &record.life.backend else {
        return Err(bad_input(format!(
            "VM {name}: QEMU runs it without libvirt: `homenode vm start {name}`, or `homenode vm delete {name}` first"
        )));
    };
    if let Some(uri) = connection.uri().filter(|uri| *uri != domain.uri) {
        let problem = format!("--connect {uri}: VM {name} is kept by {}", domain.uri);
        return Err(bad_input(problem));
    }
    let shaped = VmSpec { shape: spec.shape.clone(), ..record.spec.clone() };
    if shaped != *spec {
        return Err(bad_input(format!(
            "VM {name}: what its spec says of boot, disks, networks, console or `run_as` is not what libvirt has \
            of it: `virsh edit {name}` changes its definition; `homenode vm delete {name}` forgets it, and a `run` \
            makes it anew"
        )));
    }
    Ok(record.life.backend.clone())
}

/// A VM that ends with this command.
fn check(
    directory: &RuntimeDir,
    connection: &Connection,
    spec: VmSpec,
    arguments: &RunArguments,
) -> anyhow::Result<()> {
    let domains = Domains::transient(connection.clone());
    let lock = run::lock(directory)?;
    kept::look(directory)?;
    let placed = run::plan(&spec, &run::whose(arguments), None)?;
    let named = run::free_name(&placed, &lock);
    let Placed { plan, running, .. } = placed;
    let launch: Launch = run::launch(spec, plan, arguments);
    let accelerator = domains.check(&launch).map_err(|error| unfit(error, arguments))?;
    named?;
    run::warn(&launch, &accelerator);
    // From here on a signal must take back what is reserved and started.
    let start = Start::watch()?;
    let reservation = lock.reserve(&[&launch.plan], &running)?;
    let started = domains.start(&launch, &start.call_off);
    drop(reservation);
    let vm = started.map_err(|error| start.failure(&launch.spec.name, error))?;
    run_check::check(vm, &launch.plan).map_err(|error| start.or_signal(&launch.spec.name, error))
}

/// What cannot be said to libvirt, named by the spec's file.
fn unfit(error: BackendError, arguments: &RunArguments) -> anyhow::Error {
    match error.is_bad_input() {
        true => bad_input(format!("{}: {error}", arguments.spec.display())),
        false => error.into(),
    }
}

/// Marks what the user can mend as bad input.
fn unreached(error: LibvirtError) -> anyhow::Error {
    backend::failure(error.into())
}
