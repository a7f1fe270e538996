//! How far a migration has come, in QEMU's words (`query-migrate`): pure.

use serde_json::Value;
use topology::Bytes;
use topology::input::cut;
use vm::sending::{Progress, Ram};

/// Longest part of an error of QEMU's that is kept.
const LONGEST_WORDS: usize = 500;

/// What a migration is doing (`MigrationStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nothing yet.
    None,
    /// It copies memory, or is about to; a newer QEMU has many words for it.
    Underway,
    /// The guest stands still, and the rest of it goes when somebody says so
    /// (`migrate-continue`).
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
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What QEMU says of its migration.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// What it is doing.
    pub(crate) status: Status,
    /// How far it has come.
    pub(crate) progress: Progress,
    /// Why it failed, in QEMU's words.
    pub(crate) error: Option<String>,
    /// Why it cannot be, in QEMU's words.
    pub(crate) blocked: Vec<String>,
}

impl Look {
    /// Whether all memory was sent once, and what was written since goes now.
    pub(super) fn sent_all_once(&self) -> bool {
        self.status == Status::Underway && self.progress.ram.is_some_and(|ram| ram.rounds > 1)
    }

    /// From the answer of `query-migrate`. What it does not say is not known.
    pub(super) fn of(answer: &Value) -> Self {
        let number = |name: &str| answer[name].as_u64();
        let words = |value: &Value| value.as_str().map(|text| cut(text, LONGEST_WORDS));
        let blocked = answer["blocked-reasons"].as_array().into_iter().flatten().filter_map(words).collect();
        let progress = Progress {
            ram: answer.get("ram").map(ram),
            total_ms: number("total-time"),
            downtime_ms: number("downtime"),
            expected_downtime_ms: number("expected-downtime"),
            throttle_percent: number("cpu-throttle-percentage").unwrap_or(0),
            switches: false,
        };
        Self {
            status: Status::of(answer["status"].as_str().unwrap_or_default()),
            progress,
            error: words(&answer["error-desc"]),
            blocked,
        }
    }
}

fn ram(ram: &Value) -> Ram {
    let number = |name: &str| ram[name].as_u64().unwrap_or(0);
    // Pages of the guest have 4 KiB on x86; older ones do not say.
    let page = ram["page-size"].as_u64().unwrap_or(4096);
    Ram {
        total: Bytes(number("total")),
        remaining: Bytes(number("remaining")),
        transferred: Bytes(number("transferred")),
        dirty_per_second: Bytes(number("dirty-pages-rate").saturating_mul(page)),
        rounds: number("dirty-sync-count"),
        mbps: ram["mbps"].as_f64().filter(|mbps| mbps.is_finite()).unwrap_or(0.0),
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
        let Look { status, progress, .. } = Look::of(&answer);
        assert_eq!((status, progress.total_ms, progress.throttle_percent), (Status::Underway, Some(1200), 20));
        let ram = progress.ram.unwrap();
        assert_eq!(ram.dirty_per_second, Bytes(40_960)); // 10 pages of 4096
        assert_eq!((ram.remaining, ram.rounds), (Bytes(4096), 2));
    }

    #[test]
    fn words_that_are_not_known_are_not_the_end() {
        for word in ["setup", "active", "device", "failing", "postcopy-recover-setup", "something-new"] {
            assert!(!Status::of(word).is_over(), "{word}");
        }
        assert_eq!(Look::of(&json!({})).status, Status::None);
        let blocked = json!({ "blocked-reasons": ["a", 7, "b"], "status": "failed", "error-desc": "no" });
        let look = Look::of(&blocked);
        assert_eq!((look.blocked.len(), look.error.as_deref()), (2, Some("no")));
        assert!(look.status.is_over());
    }
}
