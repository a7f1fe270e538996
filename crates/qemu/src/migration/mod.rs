//! A guest goes from one QEMU to another while it runs: both ends of it, through their monitors.
//!
//! **Problem.** QEMU takes a guest over without a look at its NUMA nodes, says `completed` where
//! the other end has died (without `return-path`), and lets the guest run at the destination as
//! soon as it has it, which is before anybody could say that it should not.
//!
//! **Rule.** Both QEMUs are given one connected socket ([`Outgoing::send`], [`Incoming::listen`]):
//! nothing listens, and QEMU needs no right to open anything. `return-path` is always on. The
//! destination's vCPU threads are bound before the first byte, and wait until somebody lets them go
//! ([`Incoming::run`]): a guest that has arrived does not run by itself.
//!
//! ```text
//! source:       running ── send ──> running, its memory goes ──> stopped, completed ── quit
//!                  ^                        │ fails, cancelled            │
//!                  └────────────────────────┴────── go_on <───────────────┘  (the other never ran)
//! destination:  built, waiting ── listen ──> receives ──> has it, waiting ── run ──> running
//! ```
//!
//! **Postcopy** ([`Tuning::postcopy`], [`Outgoing::follow_later`]): the guest's devices go, and it
//! may be let run, while memory that it has written since is still at the source
//! ([`Status::Follows`]). From then on it needs both QEMUs. A cut link interrupts it
//! ([`Status::Interrupted`]) until both are given another one ([`Outgoing::resume`],
//! [`resume_at`]).
//!
//! **Properties.** A guest runs at no more than one end as long as nobody calls both
//! [`Incoming::run`] and [`Outgoing::go_on`]: who may call which is not decided here.
//!
//! **Example.** 256 MiB that are empty take 30 ms over a socket pair (QEMU 7.2, TCG).

mod incoming;
mod outgoing;
mod progress;

pub use incoming::{Arrived, Incoming, came_paused, left_waiting, resume_at, settle, take_name, took_over};
pub use outgoing::{DirtyRate, Outgoing};
pub use progress::{Progress, Ram, Status};

use crate::QemuError;
use crate::qmp::Qmp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use topology::Bytes;

/// What QEMU calls the connection that it was given.
const CONNECTION: &str = "migration";

/// Bytes a second that no link has: QEMU would otherwise send 128 MiB in a second at most.
const NO_LIMIT: u64 = 1 << 40;

/// How a guest is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Bytes in a second, at most. Default: as many as the link takes.
    pub bandwidth: Option<Bytes>,
    /// For how long the guest may stand still at the end, in milliseconds: QEMU goes on copying
    /// until it expects no more.
    pub downtime_ms: u64,
    /// Slows the guest down where it writes memory faster than the link takes it.
    pub auto_converge: bool,
    /// The rest of the memory goes after the guest, once all of it was sent once.
    #[serde(default)]
    pub postcopy: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { bandwidth: None, downtime_ms: 300, auto_converge: true, postcopy: false }
    }
}

/// An end of a migration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Sends,
    /// `runs`: whether the guest is let run there; a paused one stays paused.
    Receives {
        runs: bool,
    },
}

impl Tuning {
    /// Tells one end.
    fn set(&self, qmp: &mut Qmp, end: End) -> Result<(), QemuError> {
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
            capability("auto-converge", sends && self.auto_converge),
            capability("postcopy-ram", self.postcopy),
        ];
        qmp.execute("migrate-set-capabilities", &json!({ "capabilities": capabilities }))?;
        let bandwidth = self.bandwidth.map_or(NO_LIMIT, |bandwidth| bandwidth.0);
        let mut parameters = json!({ "max-bandwidth": bandwidth, "downtime-limit": self.downtime_ms });
        if let (true, Some(limit)) = (self.postcopy, self.bandwidth) {
            // Without it what follows takes all of the link.
            parameters["max-postcopy-bandwidth"] = json!(limit.0);
        }
        qmp.execute("migrate-set-parameters", &parameters).map(drop)
    }
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
pub(crate) fn next(qmp: &mut Qmp, within: Duration) -> Result<Progress, QemuError> {
    let deadline = Instant::now() + within;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match qmp.event(left)? {
            Some(event) if event["event"] != "MIGRATION" => {}
            _ => return progress(qmp),
        }
    }
}

pub(crate) fn progress(qmp: &mut Qmp) -> Result<Progress, QemuError> {
    Ok(Progress::of(&qmp.execute("query-migrate", &json!({}))?))
}

/// Whether its vCPUs run, and QEMU's word for what it does (`RunState`).
pub(crate) fn run_state(qmp: &mut Qmp) -> Result<(bool, String), QemuError> {
    let answer = qmp.execute("query-status", &json!({}))?;
    let word = answer["status"].as_str().unwrap_or_default().to_owned();
    Ok((answer["running"] == Value::Bool(true), word))
}
