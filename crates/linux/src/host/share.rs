//! How much of one look goes to each user's processes.
//!
//! What a process costs to look at, its user chooses: threads, mappings, descriptors, a command
//! line of a MiB. So the time is measured, and a user whose share of a look is used up waits for
//! the next look, at which those that waited longest come first. Others have their own shares.
//!
//! CPU time counts, so that a busy host is no reason to leave VMs out; or a quarter of the time
//! that passed, where that is more: a process can make the kernel wait for it.

use crate::sys;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::limits::{MILLISECONDS_OF_A_USER, MOST_PAGE_TABLES_OF_A_USER};

/// Of the time that passed, the part that counts.
const OF_PASSED: u32 = 4;

/// Work of one look, in its order; the percentage of a share with which it may still begin. What
/// comes early leaves something for what makes it complete.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    /// Finding out what a process is.
    New = 60,
    /// What seldom changes, of a VM that is known.
    Renew = 70,
    /// What is said of it.
    Observe = 85,
    /// What only a whole look asks for.
    Complete = 100,
}

/// What one look spent so far.
#[derive(Debug, Default)]
pub(super) struct Shares {
    spent: BTreeMap<u32, Duration>,
    page_tables: BTreeMap<u32, u64>,
}

impl Shares {
    /// Whether enough of a share is left to begin some work; `None` has no bound.
    pub(super) fn suffices(&self, user: Option<u32>, work: Work) -> bool {
        let most = Duration::from_millis(MILLISECONDS_OF_A_USER) * work as u32 / 100;
        user.and_then(|user| self.spent.get(&user)).is_none_or(|spent| *spent < most)
    }

    /// Does some work from a user's share.
    pub(super) fn charge<T>(&mut self, user: Option<u32>, work: impl FnOnce() -> T) -> T {
        let Some(user) = user else { return work() };
        let (cpu_ns, begun) = (sys::thread_cpu_ns(), Instant::now());
        let done = work();
        let cpu = Duration::from_nanos(sys::thread_cpu_ns() - cpu_ns);
        *self.spent.entry(user).or_default() += cpu.max(begun.elapsed() / OF_PASSED);
        done
    }

    /// Whether page tables of so many bytes may be walked for a user.
    pub(super) fn may_walk(&mut self, user: Option<u32>, bytes: u64) -> bool {
        let Some(user) = user else { return true };
        let walked = self.page_tables.entry(user).or_default();
        let may = walked.saturating_add(bytes) <= MOST_PAGE_TABLES_OF_A_USER;
        *walked += if may { bytes } else { 0 };
        may
    }
}

/// One of each share in turn, those without bounds before all others: `a1 a2 a3 b1 c1 c2` becomes
/// `a1 b1 c1 a2 c2 a3`.
pub(super) fn in_turns<T>(all: impl Iterator<Item = (Option<u32>, T)>) -> Vec<(Option<u32>, T)> {
    let mut before = BTreeMap::<Option<u32>, usize>::new();
    let numbered = all.map(|(user, one)| {
        let number = before.entry(user).or_default();
        *number += 1;
        (*number, user, one)
    });
    let mut numbered: Vec<(usize, Option<u32>, T)> = numbered.collect();
    numbered.sort_by_key(|(number, user, _)| (user.is_some(), *number));
    numbered.into_iter().map(|(_, user, one)| (user, one)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_used_up_by_its_user_alone() {
        let mut shares = Shares::default();
        let busy = || {
            let until = Instant::now() + Duration::from_millis(20);
            while Instant::now() < until {}
        };
        // At least a quarter of the time counts: 20 such pieces are 100 ms of CPU time, or more.
        let pieces = (0..20)
            .take_while(|_| shares.suffices(Some(7), Work::Complete) && [shares.charge(Some(7), busy)] == [()])
            .count();
        assert!((1..20).contains(&pieces) && !shares.suffices(Some(7), Work::Complete), "{pieces}");
        assert!(shares.suffices(Some(8), Work::New) && shares.suffices(None, Work::New));
        shares.charge(None, busy);
        assert!(shares.suffices(None, Work::New));
    }

    #[test]
    fn page_tables_are_walked_while_they_fit() {
        let mut shares = Shares::default();
        let of = |user, mib: u64, shares: &mut Shares| shares.may_walk(user, mib << 20);
        // 64 MiB: 40 and 30 do not fit together, 40 and 24 do.
        assert_eq!([40, 30, 24, 1].map(|mib| of(Some(7), mib, &mut shares)), [true, false, true, false]);
        assert!(of(Some(8), 64, &mut shares) && of(None, 1 << 20, &mut shares));
    }

    #[test]
    fn users_take_turns_and_root_goes_first() {
        let all = [(Some(7), "a1"), (Some(7), "a2"), (Some(7), "a3"), (Some(8), "b1"), (None, "r1"), (None, "r2")];
        let turns: Vec<&str> = in_turns(all.into_iter()).into_iter().map(|(_, one)| one).collect();
        assert_eq!(turns, ["r1", "r2", "a1", "b1", "a2", "a3"]);
    }
}
