//! What this process may do to VMs of others.

use crate::error::read_text;
use crate::root::Root;

/// Bits of `CapEff` in `/proc/self/status` (capabilities(7)).
const SYS_PTRACE: u32 = 19;
const SYS_NICE: u32 = 23;

/// What setting the affinity of another user's thread needs.
pub const NEEDS_NICE: &str = "CAP_SYS_NICE, to set the affinity of threads of another user";
/// What looking at another user's memory and moving it needs.
pub const NEEDS_PTRACE: &str =
    "CAP_SYS_PTRACE, to see where the memory of a process of another user is, and to move it";

/// The rights of this process that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// User that it acts as.
    pub user: u32,
    /// `CAP_SYS_NICE`.
    pub nice: bool,
    /// `CAP_SYS_PTRACE`.
    pub ptrace: bool,
}

impl Rights {
    /// Those of this process; none where they cannot be read.
    pub fn own() -> Self {
        let text = read_text(&Root::default().join("proc/self/status")).unwrap_or_default();
        Self::parse(&text, crate::sys::effective_user_id())
    }

    fn parse(status: &str, user: u32) -> Self {
        let mask = effective(status);
        Self { user, nice: mask >> SYS_NICE & 1 == 1, ptrace: mask >> SYS_PTRACE & 1 == 1 }
    }
}

/// What a root needs that starts a program as another user and then watches over it: the program's
/// users and groups, the affinity of its threads, where its memory is, its end.
const TO_START_AS_ANOTHER: [(u32, &str); 5] =
    [(5, "CAP_KILL"), (6, "CAP_SETGID"), (7, "CAP_SETUID"), (SYS_PTRACE, "CAP_SYS_PTRACE"), (SYS_NICE, "CAP_SYS_NICE")];

/// The first right that this process lacks to start a program as another user and watch over it;
/// `None` where it has all. A container's root often lacks some.
pub fn missing_to_start_as_another() -> Option<&'static str> {
    let held = effective(&read_text(&Root::default().join("proc/self/status")).unwrap_or_default());
    TO_START_AS_ANOTHER.iter().find(|(bit, _)| held >> bit & 1 == 0).map(|(_, name)| *name)
}

/// The effective capabilities in a process's status; none where it does not say.
fn effective(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits() {
        let status = "Name:\tx\nCapEff:\t0000000000880000\n"; // 0x80000 = bit 19, 0x800000 = bit 23
        assert_eq!(Rights::parse(status, 7), Rights { user: 7, nice: true, ptrace: true });
        assert_eq!(Rights::parse("CapEff:\t0000000000080000\n", 7), Rights { user: 7, nice: false, ptrace: true });
        assert_eq!(Rights::parse("", 7), Rights { user: 7, nice: false, ptrace: false });
    }
}
