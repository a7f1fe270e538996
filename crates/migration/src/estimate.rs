//! How long a migration would take, before it begins: pure.
//!
//! **Rule.** QEMU sends all memory once, then what was written meanwhile, and so on, until what is
//! left fits into the downtime that is allowed. A guest that writes as fast as the link sends never
//! gets there by itself: it is slowed down (auto-converge), and how long that takes nobody can say.
//!
//! **Example.** 8 GiB at 1 GiB/s with 128 MiB/s written: 8 s, then 1 GiB (1 s), 128 MiB (0.125 s):
//! these fit into 300 ms, so 9 s and a downtime of 0.125 s.

use topology::Bytes;

/// Most rounds that are counted: more change nothing that anybody could see.
const MOST_ROUNDS: u32 = 100;

/// What is to be expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Until the guest runs at the destination; `None` where it would not get there by itself.
    pub seconds: Option<f64>,
    /// For how long the guest stands still at the end.
    pub downtime_ms: u64,
    /// What goes over the link.
    pub bytes: Bytes,
}

/// For memory that is written at `dirty` bytes a second, over a link of `bandwidth` bytes a second.
pub fn estimate(memory: Bytes, dirty: Bytes, bandwidth: Bytes, downtime_ms: u64) -> Estimate {
    let (bandwidth, dirty) = ((bandwidth.0 as f64).max(1.0), dirty.0 as f64);
    let allowed = downtime_ms as f64 / 1000.0;
    let (mut left, mut seconds, mut bytes) = (memory.0 as f64, 0.0, 0.0);
    for _ in 0..MOST_ROUNDS {
        let round = left / bandwidth;
        bytes += left;
        if round <= allowed {
            let downtime_ms = (round * 1000.0).ceil() as u64;
            return Estimate { seconds: Some(seconds + round), downtime_ms, bytes: Bytes(bytes as u64) };
        }
        seconds += round;
        let written = (dirty * round).min(memory.0 as f64);
        if written >= left {
            break;
        }
        left = written;
    }
    Estimate { seconds: None, downtime_ms, bytes: Bytes(bytes as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_get_shorter_until_the_rest_fits_into_the_downtime() {
        let mib = Bytes::from_mib;
        let expected = estimate(mib(8192), mib(128), mib(1024), 300);
        // 8 + 1 + 0.125 s; 8192 + 1024 + 128 MiB
        assert_eq!(expected, Estimate { seconds: Some(9.125), downtime_ms: 125, bytes: mib(9344) });
        assert_eq!(estimate(mib(100), mib(0), mib(1024), 300).seconds, Some(100.0 / 1024.0));
    }

    #[test]
    fn a_guest_that_writes_as_fast_as_the_link_never_gets_there() {
        let mib = Bytes::from_mib;
        assert_eq!(estimate(mib(8192), mib(2048), mib(1024), 300).seconds, None);
        assert_eq!(estimate(mib(8192), mib(1024), mib(1024), 300).seconds, None);
    }
}
