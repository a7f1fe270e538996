//! How fast memory is moved.

use std::time::{Duration, Instant};
use topology::Bytes;

/// Longest time that one chunk takes of the limit: a move that is limited comes in many small
/// steps.
const CHUNK_SECONDS: f64 = 0.05;
const SMALLEST_CHUNK: u64 = 1 << 20;
const LARGEST_CHUNK: u64 = 256 << 20;

/// Time that a move may be late and make up for.
const LATE_SECONDS: f64 = 0.5;

/// Keeps moves to a rate. A chunk that took long is made up for by those after it.
#[derive(Debug)]
pub struct Pace {
    limit: Option<f64>,
    since: Instant,
    paid: f64,
}

impl Pace {
    /// At most so many bytes a second; `None`: no limit.
    pub fn new(limit: Option<Bytes>) -> Self {
        Self { limit: limit.map(|bytes| (bytes.0 as f64).max(1.0)), since: Instant::now(), paid: 0.0 }
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Bytes of one chunk.
    pub fn chunk(&self) -> Bytes {
        let bytes = self.limit.map_or(LARGEST_CHUNK, |limit| (limit * CHUNK_SECONDS) as u64);
        let page = crate::residence::PAGE;
        Bytes(bytes.clamp(SMALLEST_CHUNK, LARGEST_CHUNK) / page * page)
    }

    /// Begins a move. Time in which nothing was moved buys nothing: else a pause would be followed
    /// by a burst.
    pub fn begin(&mut self) {
        self.paid = self.paid.max(self.since.elapsed().as_secs_f64());
    }

    /// Accounts for bytes that moved, and waits until the limit allows more.
    pub fn pay(&mut self, moved: Bytes) {
        let Some(limit) = self.limit else { return };
        let now = self.since.elapsed().as_secs_f64();
        self.paid = self.paid.max(now - LATE_SECONDS) + moved.0 as f64 / limit;
        let ahead = self.paid - now;
        if ahead > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(ahead));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_a_twentieth_of_a_second() {
        assert_eq!(Pace::new(Some(Bytes::from_mib(200))).chunk(), Bytes::from_mib(10)); // 200 x 0.05
        assert_eq!(Pace::new(Some(Bytes::from_mib(1))).chunk(), Bytes::from_mib(1));
        assert_eq!(Pace::new(None).chunk(), Bytes::from_mib(256));
    }

    #[test]
    fn a_limit_is_kept() {
        let mut pace = Pace::new(Some(Bytes::from_mib(1000)));
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        pace.begin();
        for _ in 0..4 {
            pace.pay(Bytes::from_mib(50));
        }
        // 200 MiB at 1000 MiB a second take 0.2 s; the pause before buys nothing.
        let seconds = start.elapsed().as_secs_f64();
        assert!((0.199..0.5).contains(&seconds), "{seconds}");
    }
}
