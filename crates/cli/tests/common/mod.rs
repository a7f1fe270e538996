//! What the process tests share.

use std::time::{Duration, Instant};

/// Whether a program is in no directory of PATH; says then that `test` is skipped.
pub(crate) fn lacks(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("SKIPPED {test}: no {program} in PATH");
    }
    !found
}

/// Whether `what` becomes true in time.
pub(crate) fn within_seconds(seconds: u64, mut what: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < deadline {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
