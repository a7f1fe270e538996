//! `homenode run --via libvirt`: the same plan, started by libvirt, which then knows the VM as any
//! other of its domains.

use crate::args::RunArguments;
use crate::commands::run::{self, Output, Placed, Start};
use crate::commands::run_check;
use crate::failure::bad_input;
use crate::output;
use crate::{kept, vm_spec_file};
use libvirt::{Connection, Domains, LibvirtError};
use topology::Machine;
use vm::{Backend, BackendError, Launch};

/// Runs the command.
pub(super) fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let spec = vm_spec_file::read(&arguments.spec)?;
    let connection = Connection::new(arguments.through.connect.as_deref()).starting_session();
    on_this_host(&connection)?;
    let domains = |machine: Machine| Domains::new(connection.clone(), machine, !arguments.check).map_err(unreached);
    if arguments.dry_run {
        let Placed { machine, plan, .. } = run::plan(&spec, &run::whose(arguments), None)?;
        return output::exact(xml(&domains(machine)?, &run::launch(spec, plan, arguments), arguments)?);
    }
    let directory = kept::runtime_dir()?;
    let lock = run::lock(&directory)?;
    kept::look(&directory)?;
    libvirt::check_name(&connection, &spec.name).map_err(unreached)?;
    let Placed { machine, plan, running, .. } = run::free_name(run::plan(&spec, &run::whose(arguments), None)?, &lock)?;
    let launch = run::launch(spec, plan, arguments);
    let domains = domains(machine)?;
    // What cannot be said to libvirt is bad input: nothing is reserved for it.
    xml(&domains, &launch, arguments)?;
    run::warn(&launch, domains.accelerator());
    // From here on a signal must take back what is reserved and started.
    let start = Start::watch()?;
    let reservation = lock.reserve(&[&launch.plan], &running)?;
    let failed = |error: BackendError| start.failure(&launch.spec.name, error);
    let started = domains.start(&launch, &start.call_off).map_err(failed);
    drop(reservation);
    let mut vm = started?;
    if arguments.check {
        return run_check::check(vm, &launch.plan).map_err(|error| start.or_signal(&launch.spec.name, error));
    }
    let residence = vm.residence(&launch.plan).map_err(failed)?;
    run::print(&residence, arguments.json, Output::Standard)?;
    let (name, virsh) = (&launch.spec.name, connection.command_by_hand());
    output::note(format_args!("libvirt keeps VM {name}: {virsh} console | shutdown | start | undefine {name}"));
    Ok(())
}

/// Another host has other nodes and other files.
fn on_this_host(connection: &Connection) -> anyhow::Result<()> {
    let Some(host) = connection.other_host().map_err(unreached)? else { return Ok(()) };
    let uri = connection.uri().unwrap_or_default();
    Err(bad_input(format!(
        "--connect {uri}: this is the libvirt of {host}, and `run --via libvirt` starts VMs on this host only; `homenode plan VM.toml --connect {uri} --emit libvirt` plans for that host and prints its XML for `virsh define`"
    )))
}

/// The XML.
fn xml(domains: &Domains, launch: &Launch, arguments: &RunArguments) -> anyhow::Result<String> {
    domains.xml(launch).map_err(|error| match error.is_bad_input() {
        true => bad_input(format!("{}: {error}", arguments.spec.display())),
        false => error.into(),
    })
}

/// Marks what the user can mend as bad input.
fn unreached(error: LibvirtError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}
