//! Memory that follows a guest that is at the destination already (postcopy).
//!
//! **Problem.** From the switch on the guest needs both hosts: what it has written is at the
//! destination, and what was not sent yet is at the source. The source must not end its QEMU, and
//! can never let its guest go on.
//!
//! **Rule.** After the hand-over the source waits until QEMU says that all memory has gone. Where
//! the link is cut meanwhile, it starts another program at the destination (`vm receive --memory`),
//! which gives the QEMU there a new connection; so does `vm migrate --resolve`, where the source's
//! homenode was killed, or the destination could not be reached for longer. A QEMU whose own
//! threads wait for the missing memory does not answer it (seen with QEMU 10).
//!
//! **Example.** 1 GiB, of which 40 MiB were written since they were sent: the guest runs at the
//! destination after some ms, and 40 MiB later the source ends.

use crate::MigrationError;
use crate::door::carry;
use crate::link::To;
use crate::now;
use inventory::Held;
use qemu::RuntimeDir;
use qemu::migration::{Outgoing, Progress, Status, resume_at};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use vm::history::LifeEvent;
use vm::life::Step;
use vm::spec::name_problem;

/// How often QEMU is asked how far it has come.
const LOOK: Duration = Duration::from_millis(50);
/// How often a new connection is tried, one second after the other.
const TRIED: u32 = 5;
/// How long a new connection may take until memory goes again.
const RESUMES: Duration = Duration::from_secs(20);

/// Waits until all memory has gone; where the link is cut, over another one. `look` is called all
/// the time. Says how far it had come at the end.
///
/// # Errors
/// QEMU has ended here: the guest is lost. Or the destination cannot be reached
/// ([`MigrationError::MemoryHere`]): the guest waits there.
pub(crate) fn until_all_went(
    source: &mut Outgoing,
    to: &To,
    vm: &str,
    receipt: &str,
    mut look: impl FnMut(&Progress),
) -> Result<Progress, MigrationError> {
    // The program that carries the memory ends with the value.
    let mut carrier = None;
    let mut tried = 0;
    loop {
        let progress = source.next(LOOK)?;
        look(&progress);
        match progress.status {
            Status::Completed => return Ok(progress),
            Status::Interrupted if tried == TRIED => {
                let left = progress.ram.map(|ram| ram.remaining).unwrap_or_default();
                let (vm, host) = (vm.to_owned(), to.name().to_owned());
                return Err(MigrationError::MemoryHere { vm, host, left });
            }
            Status::Interrupted => {
                thread::sleep(Duration::from_secs(u64::from(tried)));
                tried += 1;
                drop(carrier.take());
                let (program, socket) = to.carry(&["vm", "receive", "--memory", receipt, "--vm", vm])?;
                source.resume(socket)?;
                carrier = Some(program);
                if resumed(source)? {
                    tried = 0;
                }
            }
            Status::Failed | Status::Cancelled | Status::None => {
                let because = progress.error.unwrap_or_else(|| "QEMU does not send its memory any more".to_owned());
                return Err(MigrationError::SourceLost { vm: vm.to_owned(), because });
            }
            Status::Underway | Status::Ready | Status::Follows => {}
        }
    }
}

/// Whether memory goes again; if not, it is interrupted as before.
fn resumed(source: &mut Outgoing) -> Result<bool, MigrationError> {
    let deadline = Instant::now() + RESUMES;
    while Instant::now() < deadline {
        match source.next(LOOK)?.status {
            Status::Follows | Status::Completed => return Ok(true),
            Status::Interrupted => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}

/// `vm receive --memory`: gives the QEMU that has the guest of a receipt a new connection.
///
/// # Errors
/// It is not here.
pub fn pass_memory(
    directory: &RuntimeDir,
    vm: &str,
    receipt: &str,
    input: OwnedFd,
    output: OwnedFd,
) -> Result<(), MigrationError> {
    if let Some(problem) = name_problem(vm) {
        return Err(MigrationError::BadInput(format!("--vm {vm:?}: {problem}")));
    }
    let (ours, theirs) = UnixStream::pair().map_err(MigrationError::io("make a socket pair"))?;
    resume_at(directory, vm, receipt, theirs.into())?;
    carry(ours, input, output).map_err(MigrationError::io("pass its memory on"))
}

/// A guest that stood between both when one of them failed: it can go on at neither. Its QEMU here
/// ends, and its record says so.
pub(crate) fn lost(mut held: Held, source: Outgoing, host: &str) -> MigrationError {
    let vm = held.record().spec.name.clone();
    let because = format!("{host} failed while it was switching to it (--postcopy)");
    // Where it cannot be written, whoever looks next sees that it has ended.
    let _ = held.step(Step::Vanished, Some(LifeEvent::Lost { because: because.clone() }), now());
    match source.end() {
        Ok(()) => MigrationError::SourceLost { vm, because },
        Err(error) => error.into(),
    }
}

/// Whether it was on its way so that it can go on at the destination only.
pub(crate) fn follows(status: &Status) -> bool {
    matches!(status, Status::Follows | Status::Interrupted)
}
