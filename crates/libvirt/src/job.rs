//! What takes libvirt long: saving, restoring, sending a domain. It is watched meanwhile, and can
//! be called off.

use crate::{Connection, LibvirtError};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use topology::Bytes;
use vm::backend::Transfer;

/// How long it may take.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How often libvirt is asked how far it has come.
const LOOK: Duration = Duration::from_millis(250);

/// Runs a command about a domain to its end. `watch` is told how far it has come, as far as libvirt
/// says. Where it says no libvirt is asked to give the command up, which then says itself what
/// became of it.
pub(crate) fn run(
    connection: &Connection,
    uuid: &str,
    (command, input): (Vec<String>, Option<String>),
    watch: &mut dyn FnMut(Option<Transfer>) -> bool,
) -> Result<String, LibvirtError> {
    let (say, hear) = channel();
    let long = connection.with_limit(LONGEST);
    std::thread::spawn(move || {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        // Nobody listens any more only where this process ends.
        let _ = say.send(long.ask_with(&words, input.as_deref()));
    });
    let mut aborted = false;
    loop {
        match hear.recv_timeout(LOOK) {
            Ok(Err(LibvirtError::Refused { libvirt, words, operation })) => {
                // Its arguments are the caller's, who names what matters of them.
                let operation = operation.split(' ').next().unwrap_or_default().to_owned();
                return Err(LibvirtError::Refused { libvirt, words, operation });
            }
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(connection.strange("virsh", "the thread that waited for it ended".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // It may have come to its end in this moment.
        let said = connection.ask(&["domjobinfo", "--domain", uuid, "--rawstats"]);
        if !watch(said.ok().and_then(|text| transfer(&text))) && !aborted {
            // It may not have begun: then the next look asks again.
            aborted = connection.ask(&["domjobabort", "--domain", uuid]).is_ok();
        }
    }
}

/// Whether libvirt is at work on a domain: `Job type: 0` is none.
pub(crate) fn is_active(connection: &Connection, uuid: &str) -> Result<bool, LibvirtError> {
    match connection.ask(&["domjobinfo", "--domain", uuid, "--rawstats"]) {
        Ok(text) => Ok(field(&text, "Job type").is_some_and(|kind| kind != 0)),
        // Without a process it has no job.
        Err(LibvirtError::NoSuchDomain { .. } | LibvirtError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok();
    text.lines().find_map(of)
}

/// How far it has come: `memory_total`, `memory_remaining` of `virsh domjobinfo --rawstats`.
fn transfer(text: &str) -> Option<Transfer> {
    let (total, remaining) = (field(text, "memory_total")?, field(text, "memory_remaining")?);
    Some(Transfer { done: Bytes(total.saturating_sub(remaining)), remaining: Bytes(remaining) })
}

/// For how long the guest of the last job stood still, in milliseconds.
pub(crate) fn still_ms(connection: &Connection, uuid: &str) -> Option<u64> {
    let text = connection.ask(&["domjobinfo", "--domain", uuid, "--completed", "--rawstats"]).ok()?;
    field(&text, "downtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libvirt_says_of_a_job_is_read() {
        // virsh 9.0; 671621120 - 600000000 = 71621120.
        let text = "Job type: 2\n\noperation: 4\ntime_elapsed: 1493\ndowntime: 29\nmemory_total: 671621120\n\
                    memory_remaining: 600000000\nmemory_total_other: 1\n";
        let seen = transfer(text).unwrap();
        assert_eq!((seen.done, seen.remaining), (Bytes(71_621_120), Bytes(600_000_000)));
        assert_eq!(field(text, "downtime"), Some(29));
        assert_eq!(transfer("Job type: 0\n"), None);
    }
}
