//! Whose monitor a look asks, in which order, and how long each may take.
//!
//! Any user can have VMs whose monitors say nothing, and each would hold up whoever looks. So a
//! look has a time for all monitors together, and the users whose VMs are to be asked share it.
//! Those who are trusted share one, all others another that is shorter:
//!
//! - The next VM is one of the user who has had least of the time. Of users with equally little,
//!   root is first, then those whose monitors answered last time, then who waited longest.
//! - It gets at most an equal part of what is left. What it does not use is left for the others.
//! - A monitor that said nothing rests for a minute, or less if it had little time. So do all of a
//!   user who has several such.
//! - Who had no turn is first of its user in the next look.
//!
//! Example: 2 s for a look, half a second at most for a monitor. User 7 has 20 VMs whose monitors
//! are silent, user 8 one that answers in 2 ms. A VM of 7 is asked for 500 ms, then that of 8, then
//! two more of 7; now three of 7 were silent, and its other 17 wait for a minute. The look took
//! 1.5 s.
//!
//! No clock is read here: whoever asks says how long it took.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topology::limits::{
    ABSENT_MONITOR_RESTS, LEAST_FOR_A_MONITOR, MONITOR_WITHIN, MONITOR_WITHIN_WHOLE, MONITORS_IN_A_LOOK,
    MONITORS_IN_A_WHOLE_LOOK, MOST_SILENT_MONITORS, SILENT_MONITOR_RESTS, TRUSTED_MONITOR_WITHIN,
    TRUSTED_MONITORS_IN_A_LOOK,
};

/// A process: its number, and its start in clock ticks since boot.
pub(super) type Process = (u32, u64);

/// The time of one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// For all monitors together.
    all: Duration,
    /// For one of them.
    each: Duration,
}

impl Budget {
    pub(super) const USUAL: Self = Self { all: MONITORS_IN_A_LOOK, each: MONITOR_WITHIN };
    pub(super) const WHOLE: Self = Self { all: MONITORS_IN_A_WHOLE_LOOK, each: MONITOR_WITHIN_WHOLE };
    /// For VMs of users who are trusted, in any look.
    pub(super) const TRUSTED: Self = Self { all: TRUSTED_MONITORS_IN_A_LOOK, each: TRUSTED_MONITOR_WITHIN };
}

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// It is in use, or not there.
    Absent,
    /// It is there, and says nothing.
    Silent,
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Looks so far.
    looks: u64,
    vms: BTreeMap<Process, Vm>,
    users: BTreeMap<u32, User>,
}

#[derive(Debug, Default)]
struct Vm {
    /// The look in which it was asked last.
    asked: u64,
    rests_until: Duration,
    silent: bool,
}

#[derive(Debug, Default)]
struct User {
    /// The look in which one of its VMs was asked last.
    asked: u64,
    answered: bool,
    /// When its silent monitors may be asked again.
    silent_until: Vec<Duration>,
}

/// Order among users: time they had, not root, did not answer, last asked, number.
type Place = (Duration, bool, bool, u64, u32);

/// One look's turns.
#[derive(Debug)]
pub(super) struct Look<'a> {
    turns: &'a mut Turns,
    now: Duration,
    budget: Budget,
    left: Duration,
    /// VMs that may be asked, by user, the next one last.
    waiting: BTreeMap<u32, Vec<Process>>,
    order: BTreeSet<Place>,
    unheard: Vec<Process>,
}

/// Somebody's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) process: Process,
    /// Time that it may take.
    pub(super) within: Duration,
    place: Place,
}

impl Turns {
    /// Begins a look at `now`, on any clock that never goes back. `wanting` are the VMs that have
    /// to be asked something, each with its user.
    pub(super) fn begin(&mut self, now: Duration, budget: Budget, wanting: &[(Process, u32)]) -> Look<'_> {
        self.looks += 1;
        let processes: BTreeSet<Process> = wanting.iter().map(|(process, _)| *process).collect();
        let uids: BTreeSet<u32> = wanting.iter().map(|(_, uid)| *uid).collect();
        self.vms.retain(|process, vm| processes.contains(process) || vm.rests_until > now);
        self.users.values_mut().for_each(|user| user.silent_until.retain(|until| *until > now));
        self.users.retain(|uid, user| uids.contains(uid) || !user.silent_until.is_empty());
        let (mut waiting, mut unheard) = (BTreeMap::<u32, Vec<Process>>::new(), Vec::new());
        for &(process, uid) in wanting {
            let rests = self.vms.get(&process).filter(|vm| vm.rests_until > now);
            match rests {
                Some(Vm { silent: true, .. }) => unheard.push(process),
                Some(_) => {}
                None if self.rests(uid) => unheard.push(process),
                None => waiting.entry(uid).or_default().push(process),
            }
        }
        let asked = |process: &Process| self.vms.get(process).map_or(0, |vm| vm.asked);
        waiting.values_mut().for_each(|vms| vms.sort_by_key(|process| std::cmp::Reverse((asked(process), *process))));
        let order = waiting.keys().map(|&uid| self.place(uid, Duration::ZERO)).collect();
        Look { turns: self, now, budget, left: budget.all, waiting, order, unheard }
    }

    /// Whether a user has as many silent monitors as nobody but root may have.
    fn rests(&self, uid: u32) -> bool {
        uid != 0 && self.users.get(&uid).is_some_and(|user| user.silent_until.len() >= MOST_SILENT_MONITORS)
    }

    fn place(&self, uid: u32, spent: Duration) -> Place {
        let (answered, asked) = self.users.get(&uid).map_or((false, 0), |user| (user.answered, user.asked));
        (spent, uid != 0, !answered, asked, uid)
    }
}

impl Look<'_> {
    /// Whose turn it is; [`took`](Self::took) has to be told what came of it.
    pub(super) fn next(&mut self) -> Option<Turn> {
        if self.left < LEAST_FOR_A_MONITOR {
            return None;
        }
        let part = self.left / u32::try_from(self.order.len()).unwrap_or(u32::MAX).max(1);
        let place = self.order.pop_first()?;
        let process = self.waiting.get_mut(&place.4)?.pop()?;
        Some(Turn { process, within: part.clamp(LEAST_FOR_A_MONITOR, self.budget.each), place })
    }

    /// What came of a turn, and how long it took.
    pub(super) fn took(&mut self, turn: Turn, time: Duration, outcome: Outcome) {
        let Turn { process, place: (spent, .., uid), .. } = turn;
        self.left = self.left.saturating_sub(time);
        let silent = outcome == Outcome::Silent;
        let rest = match outcome {
            Outcome::Answered => Duration::ZERO,
            Outcome::Absent => ABSENT_MONITOR_RESTS,
            Outcome::Silent => SILENT_MONITOR_RESTS.mul_f64(turn.within.div_duration_f64(self.budget.each)),
        };
        let (look, rests_until) = (self.turns.looks, self.now + rest);
        self.turns.vms.insert(process, Vm { asked: look, rests_until, silent });
        let user = self.turns.users.entry(uid).or_default();
        (user.asked, user.answered) = (look, outcome == Outcome::Answered);
        if silent {
            user.silent_until.push(rests_until);
            self.unheard.push(process);
        }
        let has_more = self.waiting.get(&uid).is_some_and(|vms| !vms.is_empty());
        if has_more && !self.turns.rests(uid) {
            let (_, root, answered, asked, _) = turn.place;
            self.order.insert((spent + time, root, answered, asked, uid));
        }
    }

    /// Ends the look: the VMs that had no turn, or said nothing.
    pub(super) fn unheard(self) -> Vec<Process> {
        self.waiting.into_values().flatten().chain(self.unheard).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Absent, Answered, Silent};

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A look at VMs, each with its user; a monitor takes `takes` at most. Who was asked, with the
    /// time that it might take, and how many were not heard.
    fn look(
        turns: &mut Turns,
        now: u64,
        budget: Budget,
        wanting: &[(u32, u32)],
        takes: impl Fn(u32) -> (u64, Outcome),
    ) -> (Vec<(u32, u128)>, usize) {
        let wanting: Vec<(Process, u32)> = wanting.iter().map(|&(pid, uid)| ((pid, 1), uid)).collect();
        let mut look = turns.begin(Duration::from_secs(now), budget, &wanting);
        let mut asked = Vec::new();
        while let Some(turn) = look.next() {
            asked.push((turn.process.0, turn.within.as_millis()));
            let (time, outcome) = takes(turn.process.0);
            look.took(turn, ms(time).min(turn.within), outcome);
        }
        (asked, look.unheard().len())
    }

    #[test]
    fn who_is_silent_does_not_take_the_time_of_others() {
        let of_7: Vec<(u32, u32)> = (100..120).map(|pid| (pid, 7)).collect();
        let wanting = [&of_7[..], &[(1, 8)]].concat();
        let takes = |pid| if pid == 1 { (2, Answered) } else { (9999, Silent) };
        let mut turns = Turns::default();
        // 2000 / 2 = 1000, and 500 are the most; 1500 are left for two users, and 1498 for one.
        let (asked, unheard) = look(&mut turns, 1000, Budget::WHOLE, &wanting, takes);
        assert_eq!((asked, unheard), (vec![(100, 500), (1, 500), (101, 500), (102, 500)], 20));
        // Three of 7 rest, and so its others do.
        let (asked, unheard) = look(&mut turns, 1059, Budget::WHOLE, &wanting, takes);
        assert_eq!((asked, unheard), (vec![(1, 500)], 20));
        // A minute later those that had no turn are first.
        let (asked, unheard) = look(&mut turns, 1060, Budget::WHOLE, &wanting, takes);
        assert_eq!((asked, unheard), (vec![(1, 500), (103, 500), (104, 500), (105, 500)], 20));
    }

    #[test]
    fn root_is_first_and_all_of_its_vms_are_asked() {
        let wanting: Vec<(u32, u32)> = (1..=6).map(|pid| (pid, 0)).chain([(9, 5)]).collect();
        let (asked, unheard) = look(&mut Turns::default(), 0, Budget::USUAL, &wanting, |_| (15, Silent));
        // 100 / 2 = 50; 85 / 2 = 42; then both had 15 ms, and root has 70 ms for itself.
        assert_eq!(asked, [(1, 50), (9, 42), (2, 50), (3, 50), (4, 40), (5, 25), (6, 10)]);
        assert_eq!(unheard, 7);
    }

    #[test]
    fn many_users_take_turns_over_several_looks() {
        let wanting: Vec<(u32, u32)> = (1..=25).map(|number| (number, 1000 + number)).collect();
        let mut turns = Turns::default();
        let mut asked = BTreeSet::new();
        // 10 ms each: ten of 25 in a look of 100 ms.
        for (now, users) in [(1, 10), (2, 10), (3, 5), (4, 0)] {
            let (now_asked, unheard) = look(&mut turns, now, Budget::USUAL, &wanting, |_| (9999, Silent));
            assert_eq!((now_asked.len(), unheard), (users, 25));
            asked.extend(now_asked);
        }
        assert_eq!(asked.len(), 25);
        // Each had 10 of 50 ms, and so rests for a fifth of a minute.
        assert_eq!(look(&mut turns, 1 + 12, Budget::USUAL, &wanting, |_| (1, Answered)).0.len(), 10);
    }

    #[test]
    fn who_answered_is_before_new_users_and_who_is_absent_is_asked_again_soon() {
        let mut turns = Turns::default();
        let takes = |pid| if pid == 1 { (1, Answered) } else { (0, Absent) };
        assert_eq!(look(&mut turns, 1, Budget::USUAL, &[(1, 9), (2, 10)], takes).0.len(), 2);
        let asked = look(&mut turns, 2, Budget::USUAL, &[(1, 9), (2, 10), (3, 8)], takes).0;
        assert_eq!(asked.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [1, 3]);
        // Nobody misses the answer of one that is absent.
        let (asked, unheard) = look(&mut turns, 3, Budget::USUAL, &[(2, 10)], takes);
        assert_eq!((asked.len(), unheard), (1, 0));
    }

    #[test]
    fn no_look_takes_longer_than_its_time_and_memory_ends_with_its_cause() {
        let mut turns = Turns::default();
        for now in 0..200_u32 {
            let wanting: Vec<(u32, u32)> = (0..50).map(|vm| (50 * now + vm, vm % (1 + now % 7))).collect();
            let processes: Vec<(Process, u32)> = wanting.iter().map(|&(pid, uid)| ((pid, 1), uid)).collect();
            let mut look = turns.begin(Duration::from_secs(now.into()), Budget::USUAL, &processes);
            let mut all = Duration::ZERO;
            while let Some(turn) = look.next() {
                let time = turn.within.mul_f64(f64::from(turn.process.0 % 10) / 9.0);
                all += time;
                look.took(turn, time, [Answered, Absent, Silent][turn.process.0 as usize % 3]);
            }
            assert!(all <= MONITORS_IN_A_LOOK, "{all:?}");
        }
        turns.begin(Duration::from_secs(1000), Budget::USUAL, &[]);
        assert!(turns.vms.is_empty() && turns.users.is_empty());
    }
}
