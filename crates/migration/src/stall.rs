//! Whether a guest that is sent comes no further: pure.
//!
//! **Rule.** What sends it counts the bytes that have gone. Where that number stays the same for
//! [`SILENCE`], the connection that the guest goes over carries nothing any more, though the one
//! that both homenodes talk over may be well: an ssh that was stopped, for example.
//!
//! **Example.** 10 MiB have gone at 0 s, at 29 s 10 MiB, at 31 s 10 MiB: it stands still.

use crate::link::SILENCE;
use std::time::Instant;
use topology::Bytes;
use vm::sending::Progress;

/// What has gone, and since when it is so much.
#[derive(Debug)]
pub(crate) struct Stall {
    gone: Option<Bytes>,
    since: Instant,
}

impl Stall {
    /// Nothing has gone yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { gone: None, since: now }
    }

    /// Whether it stands still, after another look.
    pub(crate) fn stands_still(&mut self, progress: &Progress, now: Instant) -> bool {
        let gone = progress.ram.map(|ram| ram.transferred);
        if gone != self.gone {
            *self = Self { gone, since: now };
        }
        now.duration_since(self.since) > SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use vm::sending::Ram;

    /// A guest whose ssh was stopped was sent for ever.
    #[test]
    fn a_guest_of_which_nothing_goes_stands_still() {
        let progress = |transferred: Option<u64>| {
            let ram = transferred.map(|bytes| Ram { transferred: Bytes(bytes), ..Ram::default() });
            Progress { ram, ..Progress::default() }
        };
        let began = Instant::now();
        let mut stall = Stall::new(began);
        let mut at = |second: u64, gone| stall.stands_still(&progress(gone), began + Duration::from_secs(second));
        assert!(!at(0, None) && !at(29, Some(10)) && !at(58, Some(11)), "it comes further");
        assert!(!at(88, Some(11)) && at(89, Some(11)), "30 s are over at 88 s");
        assert!(!at(90, Some(12)));
    }
}
