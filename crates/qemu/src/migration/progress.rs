//! How far a migration has come, in QEMU's words (`query-migrate`): pure.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use topology::Bytes;
use topology::input::cut;

/// Longest part of an error of QEMU's that is kept.
const LONGEST_WORDS: usize = 500;

/// What a migration is doing (`MigrationStatus`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing yet.
    None,
    /// It copies memory, or is about to; a newer QEMU has many words for it.
    Underway,
    /// The guest stands still, and the rest of it goes when somebody says so
    /// ([`super::Outgoing::switch_over`]).
    Ready,
    /// The guest is at the destination, and memory of it still follows (postcopy).
    Follows,
    /// The same, and the link was cut: it waits for another one.
    Interrupted,
    /// All is there.
    Completed,
    /// It failed.
    Failed,
    /// It was called off.
    Cancelled,
}

impl Status {
    fn of(word: &str) -> Self {
        match word {
            "" | "none" => Self::None,
            "pre-switchover" => Self::Ready,
            "postcopy-active" => Self::Follows,
            "postcopy-paused" => Self::Interrupted,
            "completed" => Self::Completed,
            "failed" => Self::Failed,
            "cancelled" => Self::Cancelled,
            // setup, active, device, wait-unplug, cancelling, failing, and what a
            // newer one has: it is not over until it says so.
            _ => Self::Underway,
        }
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// How far a migration has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// What it is doing.
    pub status: Status,
    /// Its memory; `None` where QEMU says nothing of it.
    pub ram: Option<Ram>,
    /// Since its begin, in milliseconds.
    pub total_ms: Option<u64>,
    /// How long the guest stood still, in milliseconds; once it is over.
    pub downtime_ms: Option<u64>,
    /// How long it would stand still now, in milliseconds.
    pub expected_downtime_ms: Option<u64>,
    /// CPU time that is taken from the guest so that it writes less, in percent.
    pub throttle_percent: u64,
    /// Why it failed, in QEMU's words.
    pub error: Option<String>,
    /// Why it cannot be, in QEMU's words.
    pub blocked: Vec<String>,
}

/// The memory of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ram {
    /// All of the guest's.
    pub total: Bytes,
    /// Not there yet.
    pub remaining: Bytes,
    /// Sent so far.
    pub transferred: Bytes,
    /// What the guest writes anew in a second.
    pub dirty_per_second: Bytes,
    /// Rounds over its memory.
    pub rounds: u64,
    /// Millions of bits in a second, now.
    pub mbps: f64,
}

impl Progress {
    /// Whether all memory was sent once, and what was written since goes now.
    pub fn sent_all_once(&self) -> bool {
        self.status == Status::Underway && self.ram.is_some_and(|ram| ram.rounds > 1)
    }

    /// From the answer of `query-migrate`. What it does not say is not known.
    pub(super) fn of(answer: &Value) -> Self {
        let number = |name: &str| answer[name].as_u64();
        let words = |value: &Value| value.as_str().map(|text| cut(text, LONGEST_WORDS));
        let blocked = answer["blocked-reasons"].as_array().into_iter().flatten().filter_map(words).collect();
        Self {
            status: Status::of(answer["status"].as_str().unwrap_or_default()),
            ram: answer.get("ram").map(Ram::of),
            total_ms: number("total-time"),
            downtime_ms: number("downtime"),
            expected_downtime_ms: number("expected-downtime"),
            throttle_percent: number("cpu-throttle-percentage").unwrap_or(0),
            error: words(&answer["error-desc"]),
            blocked,
        }
    }
}

impl Ram {
    fn of(ram: &Value) -> Self {
        let number = |name: &str| ram[name].as_u64().unwrap_or(0);
        // Pages of the guest have 4 KiB on x86; older ones do not say.
        let page = ram["page-size"].as_u64().unwrap_or(4096);
        Self {
            total: Bytes(number("total")),
            remaining: Bytes(number("remaining")),
            transferred: Bytes(number("transferred")),
            dirty_per_second: Bytes(number("dirty-pages-rate").saturating_mul(page)),
            rounds: number("dirty-sync-count"),
            mbps: ram["mbps"].as_f64().filter(|mbps| mbps.is_finite()).unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_of_qemu_is_read() {
        let answer = json!({
            "status": "active", "total-time": 1200, "expected-downtime": 40, "setup-time": 3,
            "cpu-throttle-percentage": 20,
            "ram": { "total": 270_000_000, "remaining": 4096, "transferred": 99, "dirty-pages-rate": 10,
                     "page-size": 4096, "dirty-sync-count": 2, "mbps": 800.5 }
        });
        let progress = Progress::of(&answer);
        assert_eq!((progress.status, progress.total_ms, progress.throttle_percent), (Status::Underway, Some(1200), 20));
        let ram = progress.ram.unwrap();
        assert_eq!(ram.dirty_per_second, Bytes(40_960)); // 10 pages of 4096
        assert_eq!((ram.remaining, ram.rounds), (Bytes(4096), 2));
    }

    #[test]
    fn words_that_are_not_known_are_not_the_end() {
        for word in ["setup", "active", "device", "failing", "postcopy-recover-setup", "something-new"] {
            assert!(!Status::of(word).is_over(), "{word}");
        }
        assert_eq!(Progress::of(&json!({})).status, Status::None);
        let blocked = json!({ "blocked-reasons": ["a", 7, "b"], "status": "failed", "error-desc": "no" });
        let progress = Progress::of(&blocked);
        assert_eq!((progress.blocked.len(), progress.error.as_deref()), (2, Some("no")));
        assert!(progress.status.is_over());
    }
}
