//! `homenode vm console`.

use crate::commands::libvirt_vms;
use crate::failure::bad_input;
use crate::{kept, output};
use anyhow::{Context, bail};
use libvirt::Connection;
use linux::sys::CtrlC;
use qemu::{Keyboard, RuntimeDir, background};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use vm::backend::ReachedBy;

enum Event {
    Leave,
    Ended,
}

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    // Before what is left of it is cleaned up.
    let record = kept::look(directory)?.remove(name).and_then(|known| known.record);
    if let Some(ReachedBy::Libvirt(domain)) = record.map(|record| record.life.backend) {
        let virsh = Connection::new(Some(&domain.uri)).command_by_hand();
        return Err(bad_input(format!("VM {name}: libvirt has its console: `{virsh} console {}`", domain.uuid)));
    }
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
