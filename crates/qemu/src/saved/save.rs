//! Out of a QEMU.

use super::begin;
use crate::QemuError;
use crate::migration::{Status, look, next, run_state, take_disks_back};
use crate::qmp::Qmp;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use vm::backend::Transfer;

/// How often somebody is told how far it has come.
const TELL: Duration = Duration::from_millis(100);
/// After so long without a byte it is given up: a QEMU or a disk that hangs would keep the guest
/// paused for good. No disk is taken for that slow.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// Writes the guest of a QEMU whose vCPUs wait into a pipe; gives up after `silence`.
pub(crate) fn save(
    qmp: &mut Qmp,
    into: OwnedFd,
    silence: Duration,
    told: &mut dyn FnMut(Transfer),
) -> Result<(), QemuError> {
    let vm = qmp.vm().to_owned();
    let refused = |message: String| QemuError::Refused { vm: vm.clone(), command: "migrate".to_owned(), message };
    if run_state(qmp)?.0 {
        return Err(refused("its vCPUs run".to_owned()));
    }
    take_disks_back(qmp)?;
    let blocked = look(qmp)?.blocked;
    if !blocked.is_empty() {
        return Err(refused(blocked.join("; ")));
    }
    begin(qmp, "migrate", into)?;
    let (mut sent, mut got_on) = (None, Instant::now());
    loop {
        let look = qmp.until(got_on + silence, |qmp| next(qmp, TELL)).map_err(|error| match error {
            // Without a look at its process: one that was stopped says nothing either.
            QemuError::Timeout { vm, .. } => QemuError::Silent { vm, seconds: got_on.elapsed().as_secs() },
            error => error,
        })?;
        if let Some(ram) = look.progress.ram {
            told(ram.into());
            if sent.replace(ram.transferred) != Some(ram.transferred) {
                got_on = Instant::now();
            }
        }
        if got_on.elapsed() > silence {
            return Err(QemuError::Silent { vm, seconds: silence.as_secs() });
        }
        match look.status {
            Status::Completed => return Ok(()),
            status if status.is_over() => {
                let why = look.error.unwrap_or_else(|| "its guest could not be written".to_owned());
                return Err(refused(why));
            }
            _ => {}
        }
    }
}
