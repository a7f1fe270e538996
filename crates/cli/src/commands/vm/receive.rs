//! `homenode vm receive`: the destination of a migration. `homenode vm migrate` starts it.

use crate::args_migrate::ReceiveArguments;
use crate::commands::run::console;
use crate::commands::vm::migrate::failure;
use crate::{balancer_host, balancer_place, kept, switches};
use migration::protocol::Offer;
use migration::{Accepted, Destination, MigrationError};
use qemu::RuntimeDir;
use std::io::{stdin, stdout};
use std::os::fd::AsFd;
use std::time::Duration;
use vm::backend::ReachedBy;
use vm::{Launch, Plan};

/// How long somebody who places a VM may take.
const PLACES: Duration = Duration::from_secs(20);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &ReceiveArguments) -> anyhow::Result<()> {
    let (input, output) = (stdin().as_fd().try_clone_to_owned()?, stdout().as_fd().try_clone_to_owned()?);
    let close = linux::sys::close_standard_streams;
    let inventory = kept::inventory();
    if let (Some(receipt), Some(vm)) = (&arguments.memory, &arguments.vm) {
        return migration::pass_memory(directory, vm, receipt, input, output).map_err(failure);
    }
    if let (Some(vm), Some(number)) = (&arguments.data, arguments.connection) {
        return migration::pass_one_on(directory, vm, number, input, output).map_err(failure);
    }
    let done = match (&arguments.data, &arguments.outcome, &arguments.vm) {
        (Some(vm), ..) => migration::pass_on(directory, vm, input, output, close),
        (None, Some(receipt), Some(vm)) => migration::answer(directory, &inventory, vm, receipt, stdout()),
        _ => {
            let mut host = ThisHost(directory);
            let (input, output) = (std::fs::File::from(input), std::fs::File::from(output));
            // What went wrong has been said to the other homenode.
            return migration::receive(directory, &inventory, &mut host, input, output).or(Ok(()));
        }
    };
    done.map_err(failure)
}

/// Plans on this host.
struct ThisHost<'a>(&'a RuntimeDir);

struct Looked {
    running: scheduler::Observation,
    plan: Plan,
}

fn refused(error: impl std::fmt::Display) -> MigrationError {
    MigrationError::BadInput(error.to_string())
}

fn look(offer: &Offer) -> Result<Looked, MigrationError> {
    let running = balancer_host::examine().map_err(|error| refused(format!("{error:#}")))?;
    let machine = topology::read::live().map_err(refused)?;
    let mut occupancy = balancer_place::occupancy(&running, &machine);
    let vm::Manifest { spec, topology, added, .. } = &offer.manifest;
    qemu::set_aside(&mut occupancy, &machine, spec);
    let plan = scheduler::rehome(&machine, &occupancy, spec, topology, &added.sizes(topology)).map_err(refused)?;
    Ok(Looked { running, plan })
}

impl Destination for ThisHost<'_> {
    fn look(&mut self, offer: &Offer) -> Result<Plan, MigrationError> {
        look(offer).map(|looked| looked.plan)
    }

    fn accept(&mut self, offer: &Offer, leaves: Option<u32>) -> Result<Accepted, MigrationError> {
        let lock = self
            .0
            .lock_placement(PLACES)?
            .ok_or_else(|| refused("another homenode is placing a VM there; try again"))?;
        kept::look(self.0).map_err(refused)?;
        let Looked { running, plan } = look(offer)?;
        let spec = &offer.manifest.spec;
        let name = &spec.name;
        let is_other = |other: &scheduler::VmObservation| {
            other.vm.name == *name && !other.stranger && Some(other.vm.pid) != leaves
        };
        if running.vms.iter().any(is_other) || lock.starting().iter().any(|other| other.vm == *name) {
            return Err(refused(format_args!("a VM named {name} runs there already")));
        }
        let console = console(spec);
        let mut launch = Launch {
            spec: spec.clone(),
            plan,
            kernel: None,
            console,
            agent: false,
            taps: vm::Taps::new(),
            variables: None,
        };
        qemu::check(&launch)?;
        switches::plug(self.0, &ReachedBy::Qemu, &mut launch).map_err(|error| refused(format_args!("{error:#}")))?;
        // Where there is no room for it, too, another host is what helps.
        let reservation = Box::new(lock.reserve(&[&launch.plan], &running).map_err(|error| match error {
            qemu::QemuError::Memory { .. } => refused(error),
            error => error.into(),
        })?);
        Ok(Accepted { launch, reservation })
    }
}
