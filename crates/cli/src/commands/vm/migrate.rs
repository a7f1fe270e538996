//! `homenode vm migrate`.

use crate::args_migrate::{ItRuns, MigrateArguments};
use crate::commands::vm::migrate_libvirt;
use crate::failure::bad_input;
use crate::measuring::stop_wanted;
use crate::{backend, kept, output};
use inventory::Held;
use migration::estimate::{Estimate, estimate};
use migration::{MigrationError, Options, Outcome, Parts, Report, Say, To};
use qemu::RuntimeDir;
use serde_json::json;
use topology::Bytes;
use topology::words::named;
use vm::Plan;
use vm::backend::ReachedBy;
use vm::life::State;
use vm::sending::{Progress, Tuning};

/// The link that is assumed where nobody says how fast it is: 10 Gbit/s.
const ASSUMED_LINK: Bytes = Bytes(1_250_000_000);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, arguments: &MigrateArguments) -> anyhow::Result<()> {
    let name = &arguments.name;
    if arguments.to.is_none() && !arguments.resolve {
        return Err(bad_input(format!(
            "vm migrate {name}: say where to: `--to HOST`, a host as ssh knows it, or `--to unix:`, another home on \
             this host; or `--resolve`, where an earlier migration of it was cut short"
        )));
    }
    if arguments.postcopy && arguments.connections > 1 {
        return Err(bad_input(
            "--postcopy and --connections: memory follows its guest over one connection only; leave one of them out",
        ));
    }
    let held = kept::hold(directory, name)?;
    if arguments.postcopy && matches!(held.record().life.backend, ReachedBy::Libvirt(_)) {
        return Err(bad_input(format!("--postcopy: VM {name} is libvirt's, and homenode sends such a VM without it")));
    }
    let by = held.record().life.backend.clone();
    match (&arguments.to, &by) {
        (Some(to), ReachedBy::Qemu) => send(directory, held, to, arguments),
        (None, ReachedBy::Qemu) => resolve(directory, held, arguments),
        (Some(to), ReachedBy::Libvirt(domain)) => migrate_libvirt::send(directory, held, domain, to, arguments),
        (None, ReachedBy::Libvirt(domain)) => migrate_libvirt::resolve(directory, held, domain, arguments),
    }
}

/// Marks what the user can mend as bad input.
pub(super) fn failure(error: MigrationError) -> anyhow::Error {
    if error.is_bad_input() { bad_input(error) } else { error.into() }
}

/// How its guest is sent.
pub(super) fn tuning(arguments: &MigrateArguments) -> Tuning {
    Tuning {
        bandwidth: arguments.bandwidth,
        downtime_ms: arguments.downtime,
        auto_converge: !arguments.no_auto_converge,
        postcopy: arguments.postcopy,
        connections: arguments.connections,
    }
}

fn send(directory: &RuntimeDir, held: Held, to: &str, arguments: &MigrateArguments) -> anyhow::Result<()> {
    let options = Options {
        to: To::parse(to).map_err(failure)?,
        tuning: tuning(arguments),
        timeout: arguments.timeout,
        shared_storage: arguments.shared_storage,
        dry_run: arguments.dry_run,
    };
    let memory: Bytes = held.record().sizes().iter().map(|size| size.memory).sum();
    let stop = stop_wanted()?;
    let (backend, inventory) = (backend::of(directory, &held.record().life.backend), kept::inventory());
    let sent = migration::send(backend.as_ref(), directory, &inventory, held, &options, &stop, &mut say);
    let report = sent.map_err(failure)?;
    if arguments.dry_run {
        return dry_run(&report, memory, arguments);
    }
    if arguments.json {
        let content = json!({
            "vm": arguments.name, "host": report.host, "homes": report.plan.placement, "progress": report.progress,
            "all_ms": report.all_ms, "parts": report.parts, "still_ms": report.still_ms,
        });
        return output::json("vm.migrate", &content);
    }
    let sent = report.progress.and_then(|progress| progress.ram).map_or(Bytes(0), |ram| ram.transferred);
    let (name, seconds) = (&arguments.name, report.all_ms as f64 / 1000.0);
    let homes = named("node", &report.plan.homes());
    output::line(format_args!(
        "VM {name} runs on {}, {homes}: {seconds:.1} s, {sent} sent; it stood still for {} ms",
        report.host, report.still_ms
    ))?;
    let Parts { ready_ms, starts_ms, sends_ms, hands_over_ms, follows_ms, ends_ms } = report.parts;
    let [ready, starts, sends] = [ready_ms, starts_ms, sends_ms].map(in_seconds);
    let [hands_over, follows, ends] = [hands_over_ms, follows_ms, ends_ms].map(in_seconds);
    output::line(format_args!(
        "  until a QEMU was ready there: {ready}, of it {starts} to start it and to fill its memory"
    ))?;
    let follows =
        if arguments.postcopy { format!(", until its memory had followed: {follows}") } else { String::new() };
    output::line(format_args!("  to send: {sends}, to hand over: {hands_over}{follows}, to end the old QEMU: {ends}"))
}

fn in_seconds(milliseconds: u64) -> String {
    format!("{:.2} s", milliseconds as f64 / 1000.0)
}

fn resolve(directory: &RuntimeDir, held: Held, arguments: &MigrateArguments) -> anyhow::Result<()> {
    let receives = held.record().life.state == State::MigratingIn;
    let forced = arguments.it_runs.map(|it_runs| match (it_runs, receives) {
        (ItRuns::Here, false) | (ItRuns::There, true) => Outcome::Stayed,
        (ItRuns::There, false) | (ItRuns::Here, true) => Outcome::Went,
    });
    let name = &arguments.name;
    let backend = backend::of(directory, &held.record().life.backend);
    let outcome = migration::resolve(backend.as_ref(), directory, &kept::inventory(), held, forced).map_err(failure)?;
    let is_here = (outcome == Outcome::Went) == receives;
    if arguments.json {
        return output::json("vm.resolve", &json!({ "vm": name, "is_here": is_here }));
    }
    match (outcome, receives) {
        (Outcome::Stayed, false) => output::line(format_args!("VM {name} was not sent; it goes on here")),
        (Outcome::Went, true) => output::line(format_args!("VM {name} has arrived; it goes on here")),
        (Outcome::Went, false) => {
            output::line(format_args!("VM {name} is at the destination; what was left of it here was removed"))
        }
        (Outcome::Stayed, true) => {
            output::line(format_args!("VM {name} did not come here; what was left of it here was removed"))
        }
    }
}

fn say(what: &Say<'_>) {
    match what {
        Say::Planned(plan) => output::note(planned(plan)),
        Say::Note(note) => output::note(note),
        Say::Progress(progress) => output::note(came(progress)),
    }
}

fn planned(plan: &Plan) -> String {
    let because = plan.reasons.last().map(|reason| format!(": {}", reason.because)).unwrap_or_default();
    format!("VM {} will live on {}{because}", plan.vm, named("node", &plan.homes()))
}

fn came(progress: &Progress) -> String {
    let Some(ram) = progress.ram else { return "it starts".to_owned() };
    let slowed = match progress.throttle_percent {
        0 => String::new(),
        percent => format!(", the guest is slowed down by {percent} %"),
    };
    format!(
        "{} of {} are left, {} sent at {:.0} Mbit/s, round {}{slowed}",
        ram.remaining, ram.total, ram.transferred, ram.mbps, ram.rounds
    )
}

/// Says what would be.
pub(super) fn dry_run(report: &Report, memory: Bytes, arguments: &MigrateArguments) -> anyhow::Result<()> {
    let link = arguments.bandwidth.unwrap_or(ASSUMED_LINK);
    let dirty = report.dirty.map(|dirty| dirty.per_second);
    let expected = estimate(memory, dirty.unwrap_or(Bytes(0)), link, arguments.downtime);
    if arguments.json {
        let content = json!({
            "vm": arguments.name, "host": report.host, "memory_bytes": memory, "dirty_bytes_per_second": dirty,
            "connections": arguments.connections, "assumed_bytes_per_second": link, "expected_seconds": expected.seconds,
            "expected_downtime_ms": expected.downtime_ms, "expected_bytes": expected.bytes, "plan": report.plan,
        });
        return output::json("vm.migrate", &content);
    }
    output::line(format_args!(
        "VM {} would live on {}, {}",
        arguments.name,
        report.host,
        named("node", &report.plan.homes())
    ))?;
    for reason in &report.plan.reasons {
        output::line(format_args!("  {}: {}", reason.choice, reason.because))?;
    }
    for warning in &report.plan.warnings {
        output::line(format_args!("  warning: {warning}"))?;
    }
    let dirty = dirty.map_or_else(|| "not known (this QEMU cannot say)".to_owned(), |dirty| format!("{dirty}/s"));
    output::line(format_args!("memory: {memory}; written by the guest: {dirty}"))?;
    let assumed = if arguments.bandwidth.is_some() { "" } else { " (assumed; --bandwidth gives another)" };
    if arguments.postcopy {
        output::line(format_args!(
            "with --postcopy the guest goes after all was sent once; until the rest has followed it needs both \
             hosts, and is lost if one of them fails"
        ))?;
    }
    let connections = match arguments.connections {
        1 => String::new(),
        several => format!(", by {several} connections"),
    };
    output::line(format_args!("over a link of {link}/s{assumed}{connections}: {}", in_words(&expected)))
}

fn in_words(expected: &Estimate) -> String {
    match expected.seconds {
        Some(seconds) => {
            format!("{} in {seconds:.1} s, standing still for {} ms", expected.bytes, expected.downtime_ms)
        }
        None => "the guest writes as fast as the link sends: it would have to be slowed down".to_owned(),
    }
}
