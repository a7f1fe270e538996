//! `homenode vm stop`.

use crate::commands::libvirt_vms;
use crate::output;
use qemu::{RuntimeDir, background};
use std::time::Duration;
use vm::backend::Stopped;

/// How long a guest may take to power off.
const GRACE: Duration = Duration::from_secs(60);

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, force: bool) -> anyhow::Result<()> {
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
