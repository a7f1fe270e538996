//! `homenode vm`.

use crate::args::VmCommand;
use crate::commands::libvirt_vms;
use crate::output;
use crate::residence_view;
use crate::text::{lines, table};
use anyhow::{Context, bail};
use linux::sys::CtrlC;
use qemu::background;
use qemu::{BackgroundVm, Keyboard, RuntimeDir};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use vm::backend::Stopped;

/// How long a guest may take to power off.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the command.
pub(crate) fn run(command: &VmCommand) -> anyhow::Result<()> {
    let directory = RuntimeDir::open()?;
    match command {
        VmCommand::List { json } => list(&directory, *json),
        VmCommand::Console { name } => console(&directory, name),
        VmCommand::Stop { name, force } => stop(&directory, name, *force),
    }
}

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    state: &'a BackgroundVm,
    uptime_seconds: Option<f64>,
}

fn list(directory: &RuntimeDir, json: bool) -> anyhow::Result<()> {
    // Taking the lock removes what killed starters reserved.
    drop(directory.lock_placement(Duration::ZERO)?);
    let listing = background::list(directory)?;
    for cleaned in &listing.cleaned {
        output::note(cleaned);
    }
    libvirt_vms::say()?;
    if json {
        let listed = |state| Listed { state, uptime_seconds: state.uptime_seconds() };
        return output::json(
            "vm.list",
            &serde_json::json!({ "vms": listing.vms.iter().map(listed).collect::<Vec<_>>() }),
        );
    }
    if listing.vms.is_empty() {
        output::line("No VM runs in the background.")?;
        return Ok(());
    }
    let header = ["Name", "Process", "vCPUs", "Memory", "Virtual nodes", "Home nodes", "Accelerator", "Up"];
    let mut table = table(header, &[1, 2, 3, 4]);
    for vm in &listing.vms {
        table.add_row([
            vm.name.clone(),
            vm.qemu.map_or_else(|| "starting".to_owned(), |qemu| qemu.pid.to_string()),
            vm.vcpus.to_string(),
            vm.memory.to_string(),
            vm.virtual_nodes.to_string(),
            vm.home.to_string(),
            residence_view::short(&vm.accelerator).to_owned(),
            vm.uptime_seconds().map_or_else(|| "-".to_owned(), uptime),
        ]);
    }
    output::line(lines(&table))?;
    Ok(())
}

/// `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

fn stop(directory: &RuntimeDir, name: &str, force: bool) -> anyhow::Result<()> {
    let grace = if force { Duration::ZERO } else { GRACE };
    match background::stop(directory, name, grace).map_err(|error| libvirt_vms::explain(error, name))? {
        Stopped::ByGuest => output::line(format_args!("VM {name} powered off"))?,
        Stopped::ByForce if force => output::line(format_args!("VM {name} was ended"))?,
        Stopped::ByForce => {
            output::line(format_args!("VM {name} did not power off within {} s and was ended", GRACE.as_secs()))?
        }
    }
    Ok(())
}

enum Event {
    Leave,
    Ended,
}

fn console(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let console = background::console(directory, name).map_err(|error| libvirt_vms::explain(error, name))?;
    let Some((stream, _held)) = console else {
        bail!("VM {name}: somebody else is at its console; QEMU serves one at a time");
    };
    let (send, events) = channel();
    let leave = send.clone();
    let output = stream.try_clone().context("cannot copy the console's socket")?;
    let keyboard = Keyboard::connect(stream, CtrlC::Passed, move || {
        let _ = leave.send(Event::Leave);
    });
    if keyboard.is_terminal() {
        output::note(format_args!("this is the console of VM {name}; Ctrl-] leaves it, the VM goes on"));
    }
    thread::spawn(move || show(output, &send));
    let event = events.recv().context("nobody watches the console any more")?;
    drop(keyboard);
    match event {
        Event::Leave => output::say(format_args!("\nhomenode: left the console of VM {name}, which goes on\n")),
        Event::Ended => output::say(format_args!("\nhomenode: VM {name} ended\n")),
    }
    Ok(())
}

/// Copies what the guest writes to standard output until either end closes.
fn show(mut from: UnixStream, events: &Sender<Event>) {
    let mut chunk = [0u8; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let mut stdout = io::stdout().lock();
        if stdout.write_all(&chunk[..count]).and_then(|()| stdout.flush()).is_err() {
            break;
        }
    }
    // Nobody waits any more if this fails.
    let _ = events.send(Event::Ended);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(uptime(59.9), "59 s");
        assert_eq!(uptime(60.0), "1 min");
        assert_eq!(uptime(3.0 * 3600.0 + 300.0), "3 h 5 min");
        assert_eq!(uptime(2.0 * 86_400.0 + 4.0 * 3600.0), "2 d 4 h");
    }
}
