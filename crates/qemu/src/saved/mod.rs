//! A guest goes out of a QEMU whose vCPUs wait, and comes into another one later.
//!
//! **Problem.** QEMU's own ways to a file differ: `file:` came with 8.2, `exec:` starts a program,
//! which the sandbox forbids, and both open files as a user who may have no right to. None has a
//! checksum, and QEMU lets a guest run as soon as it has read the last byte.
//!
//! **Rule.** QEMU is given a pipe (`getfd`), and whoever called it writes or reads the other end:
//! the same on every version, and a guest of QEMU 7.2 comes into a QEMU 10 by the same bytes. A
//! QEMU that takes a guest is built with the homes of the new plan, the machine type that the guest
//! knows, and `-incoming defer`. Its manifest is compared with the guest's before it gets a byte;
//! its vCPU threads are bound before; the guest runs when everything that was read is known to be
//! right.
//!
//! **Properties.** Saving changes nothing of the guest. A guest that comes back runs at most once:
//! before it runs its VM is written down as one that runs, so that nobody takes it for half started
//! and ends it. Memory lands by the policy of each backend, whoever writes it first.

mod load;
mod run_by;
mod save;

pub(crate) use load::resume;
pub use run_by::host_cpu;
pub(crate) use run_by::run_by;
pub(crate) use save::{SILENCE, save};

use crate::QemuError;
use crate::migration::tidied_up;
use crate::qmp::Qmp;
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};

/// What QEMU calls the pipe that it was given.
const PIPE: &str = "saved-guest";

/// Bytes a second that no disk has: QEMU would otherwise write 128 MiB in a second at most.
const NO_LIMIT: u64 = 1 << 40;

/// Settings for a guest that goes through a pipe: nobody answers at its other end.
fn prepare(qmp: &mut Qmp) -> Result<(), QemuError> {
    let off =
        ["return-path", "postcopy-ram", "auto-converge", "multifd", "late-block-activate", "pause-before-switchover"];
    let off = off.map(|name| json!({ "capability": name, "state": false }));
    let mut capabilities = off.to_vec();
    capabilities.push(json!({ "capability": "events", "state": true }));
    qmp.execute("migrate-set-capabilities", &json!({ "capabilities": capabilities }))?;
    qmp.execute("migrate-set-parameters", &json!({ "max-bandwidth": NO_LIMIT })).map(drop)
}

/// Gives QEMU the pipe and begins.
fn begin(qmp: &mut Qmp, command: &str, pipe: OwnedFd) -> Result<(), QemuError> {
    tidied_up(qmp)?;
    prepare(qmp)?;
    qmp.give(PIPE, pipe.as_fd())?;
    // QEMU's copy is the only one: where it closes it, the other end sees that.
    drop(pipe);
    qmp.execute(command, &json!({ "uri": format!("fd:{PIPE}") })).map(drop)
}
