//! Which part of a migration took how long: what the source can tell by its own clock.
//!
//! **Example.** A guest of 1 GiB takes 0.45 s: 300 ms until the other host is ready (280 of them
//! for its QEMU, which fills the guest's memory), 100 until all is sent, 10 to hand the guest over,
//! 40 until the old QEMU has ended.

use serde::Serialize;
use std::time::{Duration, Instant};

/// The parts of a migration, one after the other, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Until the other host had planned and its QEMU waited for the guest.
    pub ready_ms: u64,
    /// Of these, until that QEMU was built: started, the guest's memory filled. As the other host
    /// says; 0 where its homenode is too old to say.
    pub starts_ms: u64,
    /// Until all was sent: the guest stands still at the end of it.
    pub sends_ms: u64,
    /// Until the guest ran there.
    pub hands_over_ms: u64,
    /// Until the memory that follows it was there (`--postcopy`); else 0.
    pub follows_ms: u64,
    /// Until the old QEMU had ended, and both records said so.
    pub ends_ms: u64,
}

/// A clock that says how long each part was.
#[derive(Debug)]
pub(crate) struct Laps(Instant);

impl Laps {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Milliseconds since the last time, or since the beginning.
    pub(crate) fn lap_ms(&mut self) -> u64 {
        let now = Instant::now();
        in_ms(now.duration_since(std::mem::replace(&mut self.0, now)))
    }
}

/// In whole milliseconds.
pub(crate) fn in_ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}
