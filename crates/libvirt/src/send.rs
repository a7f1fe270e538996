//! A domain goes to another host's libvirt while it runs.
//!
//! **Problem.** libvirt sends a domain with the XML that it has: with CPUs and nodes of this host,
//! which that one may not have, or has given to others.
//!
//! **Rule.** `virsh migrate --live --persistent --undefinesource` with XML and a definition
//! (`--xml`, `--persistent-xml`) whose homes are a plan for that host: QEMU is born there, and
//! memory arrives there. libvirt's own protocol keeps the guest to one of the two. What became of
//! it is then asked of both, whatever `virsh` said:
//!
//! ```text
//! here            there           so it
//! has ended       runs            went
//! runs            -               stayed
//! waits           has ended       stayed: it is let go on
//! waits           runs            went: what is left of it here is ended
//! anything else                   nobody knows: nothing is let run
//! ```
//!
//! **Example.** The link is cut in the last moment: this libvirt keeps a domain that waits, and
//! does not know whether the other one let it run. It does: so it went.

use crate::{Connection, DomainState, LibvirtError, job};
use stacks::domain::{DomainError, rehomed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::BackendError;
use vm::backend::{ErrorKind, Transfer, Watch};
use vm::sending::{DirtyRate, Progress, Ram, Route, Sending, Sent, Tuning};

/// How much longer libvirt may take for it than it watches.
const MEASURED: Duration = Duration::from_secs(10);
/// How long both libvirts may take to tidy up, once `virsh` has ended.
const TIDIED: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Sends a domain.
pub(crate) fn send(
    (connection, uuid, vm): (&Connection, &str, &str),
    sending: &Sending<'_>,
    watch: &mut Watch<'_>,
) -> Result<Sent, BackendError> {
    let Route::Manager { uri, plan, shared_storage } = sending.route else { return Err(sending.route.refused(vm)) };
    let there = Connection::new(Some(uri));
    check(&there, uuid, vm)?;
    let ran = connection.state(uuid)? != DomainState::Paused;
    let edited = |xml: String| rehomed(&xml, &format!("the domain of VM {vm}"), plan);
    let wrong = |error: DomainError| BackendError::new(ErrorKind::Failed, error);
    let now = edited(connection.ask(&["dumpxml", "--domain", uuid, "--migratable"])?).map_err(wrong)?;
    let kept = edited(connection.ask(&["dumpxml", "--domain", uuid, "--inactive"])?).map_err(wrong)?;
    let failed = |error: std::io::Error| BackendError::new(ErrorKind::Failed, error);
    let (now, kept) = (in_memory(&now).map_err(failed)?, in_memory(&kept).map_err(failed)?);
    connection.ask(&["migrate-setmaxdowntime", "--domain", uuid, &sending.tuning.downtime_ms.to_string()])?;
    let command = command((uuid, uri), (&sending.tuning, shared_storage), (&path_of(&now), &path_of(&kept)));
    let mut called_off = false;
    let said = job::run(connection, uuid, (command, None), &mut |transfer| {
        let goes_on = watch(&progress(transfer));
        called_off |= !goes_on;
        goes_on
    });
    let said = said.map_err(|error| in_words(error, called_off));
    let still_ms = job::still_ms(&there, uuid);
    Ok(settled(connection, &there, (uuid, vm), ran, said.map(|_| still_ms)))
}

fn progress(transfer: Option<Transfer>) -> Progress {
    let ram = transfer.map(|Transfer { done, remaining }| Ram {
        total: Bytes(done.0.saturating_add(remaining.0)),
        remaining,
        transferred: done,
        ..Ram::default()
    });
    Progress { ram, ..Progress::default() }
}

/// `called_off`: whether we had libvirt give it up.
fn in_words(error: LibvirtError, called_off: bool) -> BackendError {
    match error {
        LibvirtError::Refused { words, .. } if called_off && words.contains("canceled by client") => {
            BackendError::new(ErrorKind::CalledOff, "it was called off")
        }
        LibvirtError::Refused { libvirt, words, .. } if words.contains("Unsafe migration") => {
            let problem = format!(
                "{libvirt} does not take its disks for shared ones ({words}); if both hosts reach the same disks, say \
                so with --shared-storage"
            );
            BackendError::new(ErrorKind::BadInput, problem)
        }
        // Called off as QEMU was about to switch over, libvirt says what it could not do then, such
        // as QEMU's `migrate-continue`.
        error @ (LibvirtError::Refused { .. } | LibvirtError::NoSuchDomain { .. }) if called_off => {
            BackendError::new(ErrorKind::CalledOff, format!("it was called off ({error})"))
        }
        error => error.into(),
    }
}

/// Refuses what libvirt would find out late, or say in riddles.
fn check(there: &Connection, uuid: &str, vm: &str) -> Result<(), BackendError> {
    let problem = |problem: String| Err(BackendError::new(ErrorKind::BadInput, problem));
    // Also whether somebody answers there.
    match there.find(vm)? {
        Some(other) if other.uuid != uuid => {
            problem(format!("VM {vm}: {} has another domain of this name ({})", there.which(), other.uuid))
        }
        Some(same) if same.state.has_process() => {
            problem(format!("VM {vm}: {} has this very domain, and it is {}", there.which(), same.state.words()))
        }
        _ => Ok(()),
    }
}

/// A text that `virsh` reads as a file, without one on a disk.
fn in_memory(text: &str) -> std::io::Result<OwnedFd> {
    linux::sys::memory_file(c"homenode-domain", text.as_bytes())
}

fn path_of(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn command(
    (uuid, to): (&str, &str),
    (tuning, shared_storage): (&Tuning, bool),
    (xml, kept): (&str, &str),
) -> Vec<String> {
    let mut words = vec!["migrate", "--domain", uuid, "--desturi", to, "--live", "--persistent"];
    words.extend(["--undefinesource", "--abort-on-error", "--xml", xml, "--persistent-xml", kept]);
    if tuning.auto_converge {
        words.push("--auto-converge");
    }
    if shared_storage {
        words.push("--unsafe");
    }
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if let Some(bandwidth) = tuning.bandwidth {
        // In MiB, and 0 is no limit.
        words.extend(["--bandwidth".to_owned(), bandwidth.0.div_ceil(Bytes::MIB.0).to_string()]);
    }
    if tuning.connections > 1 {
        let connections = ["--parallel", "--parallel-connections"].map(str::to_owned);
        words.extend(connections.into_iter().chain([tuning.connections.to_string()]));
    }
    words
}

/// What a libvirt has of the domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Runs,
    Waits,
    HasEnded,
    Unknown,
}

fn seen(connection: &Connection, uuid: &str) -> Seen {
    match connection.state(uuid) {
        Ok(DomainState::Paused) => Seen::Waits,
        Ok(state) if state.has_process() => Seen::Runs,
        Ok(DomainState::Unknown) => Seen::Unknown,
        Ok(_) => Seen::HasEnded,
        Err(error) if error.is_no_such_domain() => Seen::HasEnded,
        Err(_) => Seen::Unknown,
    }
}

/// Where the guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    There,
    Here { goes_on: bool },
    Nobody,
}

/// `ran`: whether it ran before: one that waited waits wherever it is, and then only libvirt's word
/// tells.
fn place(here: Seen, there: Seen, ran: bool, went: bool) -> Place {
    match (here, there) {
        (Seen::HasEnded, Seen::Runs) => Place::There,
        (Seen::HasEnded, Seen::Waits) if !ran && went => Place::There,
        (Seen::Runs, Seen::HasEnded | Seen::Unknown | Seen::Waits) => Place::Here { goes_on: false },
        (Seen::Waits, Seen::HasEnded) => Place::Here { goes_on: ran },
        (Seen::Waits, Seen::Runs) => Place::There,
        _ => Place::Nobody,
    }
}

fn settled(
    connection: &Connection,
    there: &Connection,
    (uuid, vm): (&str, &str),
    ran: bool,
    said: Result<Option<u64>, BackendError>,
) -> Sent {
    let look = || (seen(connection, uuid), seen(there, uuid));
    let (mut here, mut is_there) = look();
    let end = Instant::now() + TIDIED;
    // Both wait as long as one of them has not ended its part.
    while place(here, is_there, ran, said.is_ok()) == Place::Nobody
        && ![here, is_there].contains(&Seen::Unknown)
        && Instant::now() < end
    {
        std::thread::sleep(LOOK_AGAIN);
        (here, is_there) = look();
    }
    let because = |said: &Result<Option<u64>, BackendError>| match said {
        Err(error) => error.to_string(),
        Ok(_) => "libvirt says that it went".to_owned(),
    };
    match place(here, is_there, ran, said.is_ok()) {
        Place::There => {
            if here == Seen::Waits {
                // It may have ended meanwhile. A definition that stays is the same VM's.
                let _ = connection.destroy(uuid);
                let _ = connection.undefine(uuid);
            }
            Sent::Went { still_ms: said.ok().flatten() }
        }
        Place::Here { goes_on } => {
            let went_on = if goes_on { connection.ask(&["resume", "--domain", uuid]).map(drop) } else { Ok(()) };
            let why = because(&said);
            let text = match went_on {
                Ok(()) => format!("VM {vm} was not sent, and goes on here: {why}"),
                Err(error) => format!("VM {vm} was not sent; it waits here, and does not go on ({error}): {why}"),
            };
            let kind = said.as_ref().err().map_or(ErrorKind::Failed, BackendError::kind);
            Sent::Stayed(BackendError::new(kind, text))
        }
        Place::Nobody => {
            let (here, is_there) = (word(here), word(is_there));
            let text = format!(
                "VM {vm}: it is not known where it is: {} says that it {here}, {} says that it {is_there}: {}",
                connection.which(),
                there.which(),
                because(&said)
            );
            Sent::Undecided(BackendError::new(ErrorKind::Failed, text))
        }
    }
}

fn word(seen: Seen) -> &'static str {
    match seen {
        Seen::Runs => "runs",
        Seen::Waits => "waits",
        Seen::HasEnded => "does not run",
        Seen::Unknown => "(no answer)",
    }
}

/// Fails where libvirt still sends a domain: it goes on with that where homenode was killed, and
/// who has the guest in the end is not decided before.
///
/// # Errors
/// It does, or libvirt does not answer.
pub fn is_over(connection: &Connection, uuid: &str, vm: &str) -> Result<(), BackendError> {
    if !job::is_active(connection, uuid)? {
        return Ok(());
    }
    let text = format!(
        "VM {vm}: {} still sends it, also without homenode: wait until that is over, or call it off: `{} domjobabort \
        {uuid}`",
        connection.which(),
        connection.command_by_hand()
    );
    Err(BackendError::new(ErrorKind::Failed, text))
}

/// Where a domain is whose migration was cut short; it is let go on here if it is only here. `ran`:
/// whether it ran before.
pub fn where_it_is(connection: &Connection, to: &str, (uuid, vm): (&str, &str), ran: bool) -> Sent {
    let there = Connection::new(Some(to));
    let cut = BackendError::new(ErrorKind::Failed, "homenode was ended while it was sent");
    settled(connection, &there, (uuid, vm), ran, Err(cut))
}

/// Lets a domain go on here that is nowhere else.
pub(crate) fn stay(connection: &Connection, uuid: &str, ran: bool) -> Result<(), BackendError> {
    match connection.state(uuid)? {
        DomainState::Paused if ran => Ok(connection.ask(&["resume", "--domain", uuid]).map(drop)?),
        state if state.has_process() => Ok(()),
        state => {
            let text = format!("{} says that domain {uuid} is {} here", connection.which(), state.words());
            Err(BackendError::new(ErrorKind::Gone, text))
        }
    }
}

/// Ends what is left here of a domain that runs elsewhere, as somebody knows who has seen to it.
///
/// # Errors
/// libvirt refuses.
pub fn leave(connection: &Connection, uuid: &str) -> Result<Sent, BackendError> {
    // It has ended, or was not kept: what is asked next says so, where it matters.
    let gone = |asked: Result<String, LibvirtError>| match asked {
        Ok(_) | Err(LibvirtError::Refused { .. } | LibvirtError::NoSuchDomain { .. }) => Ok(()),
        Err(error) => Err(error),
    };
    gone(connection.ask(&["destroy", "--domain", uuid]))?;
    gone(connection.undefine(uuid))?;
    match seen(connection, uuid) {
        Seen::HasEnded => Ok(Sent::Went { still_ms: None }),
        _ => Err(BackendError::new(ErrorKind::Failed, format!("{} does not end it", connection.which()))),
    }
}

/// Watches for some seconds how fast the guest of a domain writes to its memory; `None` where
/// libvirt or its QEMU cannot say.
pub(crate) fn dirty_rate(connection: &Connection, uuid: &str, seconds: u64) -> Option<DirtyRate> {
    connection.ask(&["domdirtyrate-calc", "--domain", uuid, "--seconds", &seconds.to_string()]).ok()?;
    let deadline = Instant::now() + Duration::from_secs(seconds) + MEASURED;
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
        let said = connection.ask(&["domstats", "--dirtyrate", "--domain", uuid]).ok()?;
        if let Some(per_second) = measured(&said) {
            return Some(DirtyRate { per_second, seconds });
        }
    }
    None
}

/// `dirtyrate.calc_status=2` is measured (`VIR_DOMAIN_DIRTYRATE_MEASURED`).
fn measured(text: &str) -> Option<Bytes> {
    let field = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.parse::<u64>().ok());
    (field("dirtyrate.calc_status=") == Some(2)).then_some(())?;
    field("dirtyrate.megabytes_per_second=").map(Bytes::from_mib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_of_two_is_let_run_and_none_where_nobody_knows() {
        use Seen::{HasEnded, Runs, Unknown, Waits};
        for ran in [true, false] {
            for went in [true, false] {
                for here in [Runs, Waits, HasEnded, Unknown] {
                    for there in [Runs, Waits, HasEnded, Unknown] {
                        let place = place(here, there, ran, went);
                        let lets_go_on = place == (Place::Here { goes_on: true });
                        assert!(!lets_go_on || (there == HasEnded && here == Waits && ran), "{here:?} {there:?}");
                        // What is ended here runs there.
                        assert!(place != Place::There || here != Waits || there == Runs, "{here:?} {there:?}");
                        assert!(place != Place::There || here != Runs, "{here:?} {there:?}");
                    }
                }
            }
        }
        assert_eq!(place(HasEnded, Runs, true, true), Place::There);
        assert_eq!(place(Runs, HasEnded, true, false), Place::Here { goes_on: false });
        assert_eq!(place(Waits, Unknown, true, false), Place::Nobody);
        assert_eq!(place(HasEnded, HasEnded, true, false), Place::Nobody);
    }

    #[test]
    fn libvirt_is_told_how() {
        let tuning = Tuning { bandwidth: Some(Bytes(3 << 19)), ..Tuning::default() };
        let words = command(("u", "qemu+ssh://b/system"), (&tuning, true), ("/x", "/k"));
        assert_eq!(words[..5], ["migrate", "--domain", "u", "--desturi", "qemu+ssh://b/system"]);
        let xml = ["--xml", "/x", "--persistent-xml", "/k"];
        assert!(words.windows(4).any(|part| part == xml), "{words:?}");
        assert!(words.ends_with(&["--auto-converge", "--unsafe", "--bandwidth", "2"].map(str::to_owned)), "{words:?}");
        let tuning = Tuning { connections: 3, ..Tuning::default() };
        let words = command(("u", "qemu+ssh://b/system"), (&tuning, false), ("/x", "/k"));
        assert!(words.ends_with(&["--parallel", "--parallel-connections", "3"].map(str::to_owned)), "{words:?}");
    }

    #[test]
    fn what_we_called_off_is_said_in_our_words() {
        let which = crate::Which(None);
        let said = |words: &str, called_off| {
            in_words(LibvirtError::told(&which, "migrate", &format!("error: {words}")), called_off)
        };
        // virsh 9.0.
        let canceled = "operation aborted: migration out job: canceled by client";
        let ours = said(canceled, true);
        assert_eq!((ours.kind(), ours.to_string().as_str()), (ErrorKind::CalledOff, "it was called off"));
        // Somebody else's `virsh domjobabort`.
        let others = said(canceled, false);
        assert!(others.kind() == ErrorKind::Failed && others.to_string().contains("canceled by client"));
        // What failed in that moment, by that or by itself.
        let words = "unable to execute QEMU command 'migrate-continue': Migration not in expected state: cancelled";
        let late = said(words, true);
        assert_eq!(late.kind(), ErrorKind::CalledOff);
        let text = late.to_string();
        assert!(text.starts_with("it was called off (") && text.contains(words), "{text}");
        assert_eq!(said(words, false).kind(), ErrorKind::Failed);
        assert_eq!(said("Unsafe migration: no shared storage", true).kind(), ErrorKind::BadInput);
    }

    #[test]
    fn a_dirty_rate_is_read_once_it_is_measured() {
        let text = "Domain: 'a'\n  dirtyrate.calc_status=2\n  dirtyrate.megabytes_per_second=3\n";
        assert_eq!(measured(text), Some(Bytes::from_mib(3)));
        assert_eq!(measured(&text.replace("status=2", "status=1")), None);
    }
}
