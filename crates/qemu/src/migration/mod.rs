//! A guest goes from one QEMU to another while it runs: both ends of it, through their monitors.
//!
//! **Problem.** QEMU takes a guest over without a look at its NUMA nodes, says `completed` where
//! the other end has died (without `return-path`), and lets the guest run at the destination as
//! soon as it has it, which is before anybody could say that it should not.
//!
//! **Rule.** Both QEMUs are given one connected socket (`Vm::send`, [`Incoming::listen`]):
//! nothing listens, and QEMU needs no right to open anything. `return-path` is always on. The
//! destination's vCPU threads are bound before the first byte, and wait until somebody lets them go
//! ([`Incoming::run`]): a guest that has arrived does not run by itself.
//!
//! ```text
//! source:       running ── send ──> running, its memory goes ──> stopped, completed ── quit
//!                  ^                        │ fails, cancelled            │
//!                  └────────────────────────┴────── stay <────────────────┘  (the other never ran)
//! destination:  built, waiting ── listen ──> receives ──> has it, waiting ── run ──> running
//! ```
//!
//! A guest that goes over several connections is the exception: [`channels`].
//!
//! **Postcopy** ([`Tuning::postcopy`]): the guest's devices go, and it may be let run, while memory
//! that it has written since is still at the source ([`Status::Follows`]). From then on it needs
//! both QEMUs. A cut link interrupts it ([`Status::Interrupted`]) until both are given another one
//! (`Vm::send_rest`, [`resume_at`]).
//!
//! **Properties.** A guest runs at no more than one end as long as nobody calls both
//! [`Incoming::run`] and `Vm::stay`: who may call which is not decided here.
//!
//! **Example.** 256 MiB that are empty take 30 ms over a socket pair (QEMU 7.2, TCG).

mod blocker;
pub(crate) mod channels;
mod incoming;
mod outgoing;
mod progress;

pub use channels::{Arriving, check as check_connections, of as connections_of};
pub use incoming::{Arrived, Incoming, came_paused, left_waiting, resume_at, settle, take_name, took_over};
pub(crate) use outgoing::{Over, check, dirty_rate, follows, send, send_rest, stay};
pub(crate) use progress::{Look, Status};

use crate::QemuError;
use crate::qmp::Qmp;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use topology::Bytes;
use vm::sending::Tuning;

/// What QEMU calls the connection that it was given.
const CONNECTION: &str = "migration";

/// Bytes a second that no link has: QEMU would otherwise send 128 MiB in a second at most.
const NO_LIMIT: u64 = 1 << 40;

/// What [`tune`] sets at either end.
const OF_ENDS: [&str; 7] = [
    "return-path",
    "events",
    "late-block-activate",
    "pause-before-switchover",
    "auto-converge",
    "postcopy-ram",
    "multifd",
];

/// How long QEMU may take to tidy up a migration that failed: 0.2 s were seen.
const TIDIES_UP: Duration = Duration::from_secs(5);
/// How often it is asked again.
const AGAIN: Duration = Duration::from_millis(20);

/// An end of a migration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sends,
    /// `runs`: whether the guest is let run there; a paused one stays paused.
    Receives {
        runs: bool,
    },
}

/// QEMU's own settings, with which it begins; of its two channels none is used until it is told to.
const USUAL: Tuning = Tuning {
    bandwidth: Some(Bytes::from_mib(128)),
    downtime_ms: 300,
    auto_converge: false,
    postcopy: false,
    connections: 2,
};

/// Takes back what [`tune`] told one end: QEMU leaves it as it is where a guest was not sent, and
/// whoever asks its monitor to send the guest next would send it so. Refused as long as QEMU is
/// not done with the last one.
fn untune(qmp: &mut Qmp) -> Result<(), QemuError> {
    let off = OF_ENDS.map(|name| json!({ "capability": name, "state": false }));
    once_tidied_up(qmp, "migrate-set-capabilities", &json!({ "capabilities": off }))?;
    qmp.execute("migrate-set-parameters", &limits(&USUAL)).map(drop)
}

/// Tells one end how.
fn tune(qmp: &mut Qmp, tuning: &Tuning, end: End) -> Result<(), QemuError> {
    let sends = end == End::Sends;
    let capability = |name: &str, state: bool| json!({ "capability": name, "state": state });
    let capabilities = [
        capability("return-path", true),
        capability("events", true),
        // The disks of a guest that waits stay the source's until `cont`. A paused guest gets
        // none, and QEMU 7.2 ends where a guest leaves whose disks it never took.
        capability("late-block-activate", end != (End::Receives { runs: false })),
        // It can be called off safely until it is let go on, and no later: QEMU 7.2 was seen to
        // end where it is called off while it hands its devices over.
        capability("pause-before-switchover", sends),
        capability("auto-converge", sends && tuning.auto_converge),
        capability("postcopy-ram", tuning.postcopy),
        capability("multifd", tuning.connections > 1),
    ];
    qmp.execute("migrate-set-capabilities", &json!({ "capabilities": capabilities }))?;
    qmp.execute("migrate-set-parameters", &limits(tuning)).map(drop)
}

fn limits(tuning: &Tuning) -> Value {
    let bandwidth = tuning.bandwidth.map_or(NO_LIMIT, |bandwidth| bandwidth.0);
    let mut parameters = json!({ "max-bandwidth": bandwidth, "downtime-limit": tuning.downtime_ms });
    if let (true, Some(limit)) = (tuning.postcopy, tuning.bandwidth) {
        // Without it what follows takes all of the link.
        parameters["max-postcopy-bandwidth"] = json!(limit.0);
    }
    if tuning.connections > 1 {
        parameters["multifd-channels"] = json!(tuning.connections);
    }
    parameters
}

/// Waits until an earlier migration is tidied up, which it is not yet when QEMU says that it
/// failed.
///
/// Until then QEMU must be told nothing of another. 7.2 and 10.0 were seen to refuse `migrate`
/// (`duplicate yank instance`) and to be in `setup` from there on: they refuse each further one,
/// and 7.2 does not even call it off. 10.0 was seen to end where `multifd` was taken back. What can
/// be cut (`query-yank`) says when the earlier one is gone. It may never be: in 10.0
/// `multifd_send_sync_main` was seen to wait for good for a thread whose connection was cut (one of
/// three cuts at the start).
pub(crate) fn tidied_up(qmp: &mut Qmp) -> Result<(), QemuError> {
    let deadline = Instant::now() + TIDIES_UP;
    while has_a_migration(qmp)? {
        if Instant::now() > deadline {
            return Err(QemuError::NotTidiedUp { vm: qmp.vm().to_owned(), seconds: TIDIES_UP.as_secs() });
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

fn has_a_migration(qmp: &mut Qmp) -> Result<bool, QemuError> {
    match qmp.execute("query-yank", &json!({})) {
        Ok(all) => Ok(all.as_array().into_iter().flatten().any(|one| one["type"] == "migration")),
        // QEMU before 6.0 does not have it.
        Err(QemuError::Refused { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has QEMU carry out a command that it refuses as long as an earlier migration is not tidied up.
/// One that failed is not in the moment in which QEMU says so: QEMU 10 was seen to refuse to let
/// the guest go on until then.
pub(crate) fn once_tidied_up(qmp: &mut Qmp, command: &str, arguments: &Value) -> Result<(), QemuError> {
    let deadline = Instant::now() + TIDIES_UP;
    loop {
        match qmp.execute(command, arguments) {
            Err(QemuError::Refused { message, .. }) if is_not_tidied_up(&message) && Instant::now() < deadline => {
                std::thread::sleep(AGAIN);
            }
            begun => return begun.map(drop),
        }
    }
}

/// In words of QEMU's, to `cont`, to `migrate-incoming`, and to new settings.
fn is_not_tidied_up(words: &str) -> bool {
    const SIGNS: [&str; 3] =
        ["duplicate yank instance", "Migration is not finalized yet", "There's a migration process in progress"];
    SIGNS.iter().any(|sign| words.contains(sign))
}

/// Whether its guest is all at the other end, and its disks with it.
pub(crate) fn was_sent(qmp: &mut Qmp) -> Result<bool, QemuError> {
    Ok(look(qmp)?.status == Status::Completed && run_state(qmp)?.1 == "postmigrate")
}

/// Takes the disks back for a paused guest that was sent and that nobody took: only `cont` does
/// that, and without it QEMU sends it no second time.
pub(crate) fn take_disks_back(qmp: &mut Qmp) -> Result<(), QemuError> {
    if run_state(qmp)?.1 == "postmigrate" {
        qmp.execute("cont", &json!({}))?;
        qmp.execute("stop", &json!({}))?;
    }
    Ok(())
}

/// Waits up to `within` until QEMU says that its migration has come further, and asks it how far.
pub(crate) fn next(qmp: &mut Qmp, within: Duration) -> Result<Look, QemuError> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match qmp.event(left)? {
            Some(event) if event["event"] != "MIGRATION" => {}
            _ => return look(qmp),
        }
    }
}

pub(crate) fn look(qmp: &mut Qmp) -> Result<Look, QemuError> {
    Ok(Look::of(&qmp.execute("query-migrate", &json!({}))?))
}

/// Whether its vCPUs run, and QEMU's word for what it does (`RunState`).
pub(crate) fn run_state(qmp: &mut Qmp) -> Result<(bool, String), QemuError> {
    let answer = qmp.execute("query-status", &json!({}))?;
    let word = answer["status"].as_str().unwrap_or_default().to_owned();
    Ok((answer["running"] == Value::Bool(true), word))
}
