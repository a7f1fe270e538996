//! `homenode vm migrate` of a VM that libvirt runs: libvirt sends it, to homes that are planned
//! from what its libvirt says of the other host.
//!
//! **Order.** Planned; written down as being sent, and to whom; sent by libvirt, which keeps the
//! guest to one of the two; both asked where it is; its record goes where the VM went. A kill in
//! between leaves a record that says to whom it was being sent: `vm migrate --resolve` asks both.

use crate::args_migrate::{ItRuns, MigrateArguments};
use crate::commands::vm::disks;
use crate::commands::vm::migrate::{dry_run, tuning};
use crate::failure::bad_input;
use crate::measuring::stop_wanted;
use crate::transfer_view::TransferView;
use crate::{backend, kept, output, remote_host};
use anyhow::anyhow;
use inventory::Held;
use libvirt::Connection;
use migration::{Parts, Report, To};
use qemu::RuntimeDir;
use scheduler::PlanError;
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Instant;
use topology::Bytes;
use topology::words::named;
use vm::backend::{DomainOf, ErrorKind};
use vm::history::{HandedOver, LifeEvent};
use vm::life::{State, Step};
use vm::sending::{Route, Sending, Sent};
use vm::{BackendError, Plan};

/// Seconds that a guest is watched for how fast it writes.
const WATCHED_SECONDS: u64 = 1;

/// Sends a domain to another host.
pub(super) fn send(
    directory: &RuntimeDir,
    mut held: Held,
    domain: &DomainOf,
    to: &str,
    arguments: &MigrateArguments,
) -> anyhow::Result<()> {
    held.may(Step::Send).map_err(kept::failure)?;
    let uri = uri_of(to)?;
    let spec = held.record().spec.clone();
    disks::check(&spec, "what it wrote to that disk is not sent; it cannot be sent")?;
    let plan = plan(&held, &uri)?;
    let memory: Bytes = held.record().sizes().iter().map(|size| size.memory).sum();
    let began = Instant::now();
    let mut vm = backend::reach(directory, held.record())?;
    qemu::migration::check_connections(vm.name(), vm.version(), &tuning(arguments)).map_err(failure)?;
    if arguments.dry_run {
        let dirty = vm.dirty_rate(WATCHED_SECONDS).map_err(failure)?;
        let report = Report {
            host: to.to_owned(),
            plan,
            progress: None,
            dirty,
            all_ms: 0,
            parts: Parts::default(),
            still_ms: 0,
        };
        return dry_run(&report, memory, arguments);
    }
    output::note(format_args!("VM {} will live on {to}, {}", spec.name, named("node", &plan.homes())));
    let stop = stop_wanted()?;
    let deadline = arguments.timeout.map(|timeout| began + timeout);
    let is_over_time = || deadline.is_some_and(|deadline| Instant::now() > deadline);
    let is_stopped = || stop.load(Ordering::Relaxed);
    let route = Route::Manager { uri: &uri, plan: &plan, shared_storage: arguments.shared_storage };
    let sending = Sending { route, tuning: tuning(arguments) };
    held.step(Step::Send, None, kept::now()).map_err(kept::failure)?;
    // libvirt hands it over by itself.
    let handed_over = HandedOver { to: uri.clone(), receipt: domain.uuid.clone(), placement: None };
    held.change_life(|life| life.handed_over = Some(handed_over)).map_err(kept::failure)?;
    let view = TransferView::new(memory);
    let sent = vm.send(sending, &mut |progress| {
        progress.ram.iter().for_each(|&ram| view.tell(ram.into()));
        !is_stopped() && !is_over_time()
    });
    view.finish();
    let still_ms = match sent {
        Ok(Sent::Went { still_ms }) => still_ms,
        Ok(Sent::Stayed(error)) if error.kind() == ErrorKind::CalledOff && !is_stopped() => {
            let said = BackendError::new(ErrorKind::CalledOff, format!("{error}: it took longer than --timeout"));
            return Err(stays(held, said));
        }
        Ok(Sent::Stayed(error)) => return Err(stays(held, error)),
        Ok(Sent::Undecided(error)) => return Err(undecided(&spec.name, &error)),
        Ok(sent @ (Sent::AllThere(_) | Sent::Follows)) => return Err(anyhow!("VM {}: {sent:?}", spec.name)),
        // Nothing was begun.
        Err(error) => return Err(stays(held, error)),
    };
    held.delete().map_err(kept::failure)?;
    let all_ms = began.elapsed().as_millis() as u64;
    say(&spec.name, to, &plan, (all_ms, still_ms), arguments)
}

/// What libvirt is told: a host means its system's libvirt, by ssh.
fn uri_of(to: &str) -> anyhow::Result<String> {
    if to.contains("://") {
        return Ok(to.to_owned());
    }
    match To::parse(to).map_err(bad_input)? {
        To::Host(host) => Ok(format!("qemu+ssh://{host}/system")),
        To::ThisHost => Err(bad_input(
            "--to unix: libvirt runs this VM, and sends none to the host that it is on; `homenode vm suspend` and \
            `homenode vm resume` give it another home here",
        )),
    }
}

/// Its homes there, for the virtual topology that it has for life.
fn plan(held: &Held, uri: &str) -> anyhow::Result<Plan> {
    let record = held.record();
    let name = &record.spec.name;
    let unknown = || anyhow!("VM {name}: nothing is kept of its virtual topology");
    let topology = record.topology.as_ref().ok_or_else(unknown)?;
    let (machine, occupancy) = remote_host::machine_and_occupancy(uri)?;
    let planned = scheduler::rehome(&machine, &occupancy, &record.spec, topology, &record.sizes());
    planned.map_err(|error: PlanError| {
        let text = format!("VM {name}: there is no home for it there: {error}");
        if error.is_bad_input() { bad_input(text) } else { anyhow!(text) }
    })
}

fn failure(error: BackendError) -> anyhow::Error {
    backend::failure(error)
}

/// It is here as before: its record says so.
fn stays(mut held: Held, error: BackendError) -> anyhow::Error {
    match written_as_stayed(&mut held, error.to_string()) {
        Ok(()) => failure(error),
        Err(unwritten) => failure(error).context(format!(
            "its record could not be written ({unwritten:#}); `homenode vm migrate {} --resolve` tries again",
            held.record().spec.name
        )),
    }
}

fn written_as_stayed(held: &mut Held, because: String) -> anyhow::Result<()> {
    let back_to = held.record().life.before.map_or(State::Running, |before| before.state);
    held.change_life(|life| life.handed_over = None).map_err(kept::failure)?;
    let event = LifeEvent::Failed { because };
    held.step(Step::Fails { back_to }, Some(event), kept::now()).map_err(kept::failure)
}

fn undecided(vm: &str, error: &BackendError) -> anyhow::Error {
    anyhow!(
        "{error}. `homenode vm migrate {vm} --resolve` asks both again; if the other host is gone for good, \
        --it-runs says where it runs"
    )
}

fn say(
    vm: &str,
    to: &str,
    plan: &Plan,
    (all_ms, still_ms): (u64, Option<u64>),
    arguments: &MigrateArguments,
) -> anyhow::Result<()> {
    if arguments.json {
        let content = json!({ "vm": vm, "host": to, "homes": plan.placement, "all_ms": all_ms, "still_ms": still_ms });
        return output::json("vm.migrate", &content);
    }
    let still = still_ms.map_or_else(String::new, |still| format!("; it stood still for {still} ms"));
    output::line(format_args!(
        "VM {vm} runs on {to}, {}: {:.1} s{still}\nlibvirt keeps it there; `homenode vm adopt {vm}` over \
        there has homenode keep it too",
        named("node", &plan.homes()),
        all_ms as f64 / 1000.0
    ))
}

/// Finds out where a domain is whose migration was cut short.
pub(super) fn resolve(
    directory: &RuntimeDir,
    held: Held,
    domain: &DomainOf,
    arguments: &MigrateArguments,
) -> anyhow::Result<()> {
    let life = held.record().life.clone();
    let (name, state) = (&arguments.name, life.state);
    if state != State::MigratingOut {
        return Err(bad_input(format!("VM {name} is {state}: no migration of it was cut short")));
    }
    let connection = Connection::new(Some(&domain.uri));
    libvirt::is_over(&connection, &domain.uuid, name).map_err(failure)?;
    let ran = life.before.is_none_or(|before| before.state == State::Running);
    let sent = match (&arguments.it_runs, &life.handed_over) {
        (Some(ItRuns::There), _) => libvirt::leave(&connection, &domain.uuid).map_err(failure)?,
        (None, Some(to)) => libvirt::where_it_is(&connection, &to.to, (&domain.uuid, name), ran),
        (Some(ItRuns::Here), _) | (None, None) => {
            backend::reach(directory, held.record())?.stay(ran).map_err(failure)?;
            return stayed(held, name);
        }
    };
    match sent {
        Sent::Stayed(_) => stayed(held, name),
        Sent::Went { .. } => {
            held.delete().map_err(kept::failure)?;
            output::line(format_args!("VM {name} runs at the destination; what was left of it here was removed"))
        }
        Sent::AllThere(_) | Sent::Follows => Err(anyhow!("VM {name}: {sent:?}")),
        Sent::Undecided(error) => Err(undecided(name, &error)),
    }
}

fn stayed(mut held: Held, name: &str) -> anyhow::Result<()> {
    written_as_stayed(&mut held, "homenode was ended while it was sent".to_owned())?;
    output::line(format_args!("VM {name} was not sent; it goes on here"))
}
