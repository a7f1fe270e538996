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
//! made once, and the first word stands. Who finds none writes `never` before it says so. What a
//! cut or a kill leaves at each moment is the table in `docs/migrate.md`.
//!
//! **Properties.** A destination runs the guest only after its file says `here`; a source lets it
//! go on only where no `go` was said, or the destination's file says `never`. So never both. Where
//! neither can be known (the destination cannot be reached after 5) the guest stands still at the
//! source until somebody can ask: one, or none that runs, and never two.

mod checks;
mod destination;
pub mod disks;
mod door;
mod error;
pub mod estimate;
mod last_words;
mod link;
mod outcome;
mod parts;
mod postcopy;
pub mod protocol;
pub mod receipts;
mod several;
mod source;
mod stall;

pub use destination::{Accepted, Destination, receive};
pub use door::pass_on;
pub use error::MigrationError;
pub use link::{SSH_VARIABLE, To};
pub use outcome::{Outcome, answer, resolve};
pub use parts::Parts;
pub use postcopy::pass_memory;
pub use several::pass_one_on;
pub use source::{Options, Report, Say, send};

use inventory::now;
use topology::read::host_name;
