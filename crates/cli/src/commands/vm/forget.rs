//! `homenode vm forget`: homenode keeps a domain of libvirt's no longer, and the domain stays as it
//! is.
//!
//! **Rule.** Only the record goes: the undoing of `homenode vm adopt`. A VM that nobody else knows
//! is not forgotten while it runs, since nobody could find it then; `homenode vm delete` ends it.
//!
//! **Example.** `vm adopt web`, `vm forget web`: the guest has seen neither.

use crate::commands::vm::stop;
use crate::failure::bad_input;
use crate::{kept, output};
use qemu::RuntimeDir;
use vm::backend::ReachedBy;
use vm::life::State;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str) -> anyhow::Result<()> {
    let held = kept::hold(directory, name)?;
    stop::handed_over(&held)?;
    let (by, state) = (held.record().life.backend.clone(), held.record().life.state);
    if let ReachedBy::Qemu = by {
        return Err(bad_input(format!(
            "VM {name}: nobody but homenode keeps it, so that nobody would know it any more. `homenode vm delete {name}` \
            forgets one that does not run; --force ends it first"
        )));
    }
    if state == State::Suspended {
        return Err(bad_input(format!(
            "VM {name} is suspended: its memory is in homenode's file, which libvirt does not know. `homenode vm resume \
            {name}` first"
        )));
    }
    held.delete().map_err(kept::failure)?;
    let runs = if state.has_process() { format!("it is {state} as before, ") } else { String::new() };
    output::line(format_args!("VM {name} is forgotten: {runs}its definition, its disks and the file of its spec stay"))
}
