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
use qemu::migration::resume_at;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use vm::Vm;
use vm::backend::ErrorKind;
use vm::history::LifeEvent;
use vm::life::Step;
use vm::sending::{Progress, Rest};
use vm::spec::name_problem;

/// How often a new connection is tried, one second after the other.
const TRIED: u64 = 5;

/// Waits until all memory has gone; where the link is cut, over another one. `look` is called all
/// the time. Says how far it had come at the end.
///
/// # Errors
/// QEMU has ended here: the guest is lost. Or the destination cannot be reached
/// ([`MigrationError::MemoryHere`]): the guest waits there.
pub(crate) fn until_all_went(
    source: &mut dyn Vm,
    to: &To,
    vm: &str,
    receipt: &str,
    mut look: impl FnMut(&Progress),
) -> Result<Progress, MigrationError> {
    // The program that carries the memory ends with the value.
    let (mut carrier, mut over) = (None, None);
    let mut tried = 0;
    loop {
        let progress = match source.send_rest(over.take(), &mut look) {
            Ok(Rest::Went(progress)) => return Ok(progress),
            Ok(Rest::Interrupted { progress, resumed }) => {
                tried = if resumed { 0 } else { tried };
                progress
            }
            Err(error) if error.kind() == ErrorKind::Gone => {
                return Err(MigrationError::SourceLost { vm: vm.to_owned(), because: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        };
        if tried == TRIED {
            let left = progress.ram.map(|ram| ram.remaining).unwrap_or_default();
            let (vm, host) = (vm.to_owned(), to.name().to_owned());
            return Err(MigrationError::MemoryHere { vm, host, left });
        }
        thread::sleep(Duration::from_secs(tried));
        tried += 1;
        drop(carrier.take());
        let (program, socket) = to.carry(&["vm", "receive", "--memory", receipt, "--vm", vm])?;
        (carrier, over) = (Some(program), Some(socket));
    }
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
pub(crate) fn lost(mut held: Held, source: Box<dyn Vm>, host: &str) -> MigrationError {
    let vm = held.record().spec.name.clone();
    let because = format!("{host} failed while it was switching to it (--postcopy)");
    // Where it cannot be written, whoever looks next sees that it has ended.
    let _ = held.step(Step::Vanished, Some(LifeEvent::Lost { because: because.clone() }), now());
    match end(source) {
        Ok(()) => MigrationError::SourceLost { vm, because },
        Err(error) => error,
    }
}

/// Ends what is left here of a VM that runs elsewhere or nowhere, where that has not ended by
/// itself.
pub(crate) fn end(source: Box<dyn Vm>) -> Result<(), MigrationError> {
    match source.stop(Duration::ZERO) {
        Err(error) if error.kind() != ErrorKind::Gone => Err(error.into()),
        _ => Ok(()),
    }
}
