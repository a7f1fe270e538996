//! A VM goes to another host while it runs, or to another home on its own: two homenodes that talk.
//!
//! **Problem.** Two programs on two hosts have one guest, and a link between them that may be cut
//! at any moment. Whatever happens, the guest must not run twice, and must not be lost.
//!
//! **Rule.** The source starts `homenode vm receive` on the other host (by ssh; on its own host for
//! `unix:`) and talks with it a JSON object a line ([`protocol`]). The guest goes through a second
//! such program (`vm receive --data`): nothing listens on a network. The destination plans, holds
//! its reservation, builds a QEMU, and receives; **the guest that has arrived waits**. Then comes
//! the hand-over:
//!
//! ```text
//!   source                                             destination
//!   ------                                             -----------
//! 1 hello, offer ──────────────────────────────────>  plans under its lock, reserves
//! 2                  <───────────────── planned, built QEMU waits for a guest, threads bound
//! 3 compares; begins to send ────────────────────────> receives
//!   guest runs here
//! 4 completed: guest stands still here
//!   writes down: handed over, to whom, which receipt
//! 5 go ────────────────────────────────────────────>   writes down: THE GUEST IS HERE (receipts)
//! 6                                                    lets it run
//! 7                  <──────────────────────── runs
//! 8 ends its QEMU, forgets the VM
//! 9 gone ──────────────────────────────────────────>   forgets the receipt
//! ```
//!
//! The destination's file of the receipt decides ([`receipts`]): it holds `here` or `never`, it is
//! made once, and the first word stands. Who finds none writes `never` before it says so. So:
//!
//! | what happens | before 5 | 5, and no answer |
//! |---|---|---|
//! | link cut, time-out, Ctrl-C | guest goes on at the source; the destination ends its QEMU | the source asks the destination for the receipt; `never`: goes on; `here`: ends its own; no answer: stays paused and says so |
//! | source's homenode killed | QEMU goes on; paused if it had completed: `vm migrate --resolve` lets it go on | `vm migrate --resolve` asks |
//! | destination's homenode killed | as link cut; its QEMU is ended by the next homenode there | whoever asks for the receipt lets the guest run, or ends it |
//! | source's QEMU killed | guest is lost, as without a migration | it is here |
//! | destination's QEMU killed | guest goes on at the source | before 6: it says `never`; after: lost there |
//!
//! **Properties.** A destination runs the guest only after its file says `here`; a source lets it
//! go on only where no `go` was said, or the destination's file says `never`. So never both. Where
//! neither can be known (the destination cannot be reached after 5) the guest stands still at the
//! source until somebody can ask: one, or none that runs, and never two.

mod destination;
pub mod disks;
mod error;
pub mod estimate;
mod link;
mod outcome;
pub mod protocol;
pub mod receipts;
mod source;

pub use destination::{Accepted, Destination, pass_on, receive};
pub use error::MigrationError;
pub use link::{SSH_VARIABLE, To};
pub use outcome::{Outcome, answer, resolve};
pub use source::{Options, Report, Say, send};

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use vm::history::UnixSeconds;

/// The time now.
pub(crate) fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// This host's name, as it names itself.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    topology::input::one_line(name.trim(), 64)
}
