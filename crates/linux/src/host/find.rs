//! Which processes are watched: VMs that are new take turns by their users.
//!
//! To examine a VM for the first time takes as long as twenty later looks at it, and any user may
//! have thousands of processes that look like VMs. So a balancer examines for a few milliseconds of
//! a look, one of each user in turn. Until all are examined, nobody knows what is promised of a
//! node's memory; but a user who always has more waits alone after a while.

use super::Depth;
use super::owners::Owners;
use super::refused::{Refused, Why};
use super::scan::Scan;
use super::share::{Shares, Work, in_turns};
use super::tracked::Tracked;
use crate::error::LinuxError;
use crate::root::{Root, numbered_inodes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use topology::limits::{MOST_THREADS_OF_A_USER, MOST_VMS_OF_A_USER};

/// Looks for which a user's processes may make everybody wait: those at 256 VMs.
const PATIENCE: u32 = 32;
/// Looks without such, after which one of these is given back.
const GIVEN_BACK: u32 = 16;

/// One look for VMs.
pub(super) struct Look<'a> {
    pub(super) root: &'a Root,
    pub(super) depth: Depth,
    /// Time for VMs that are new; `None`: not limited.
    pub(super) within: Option<Duration>,
    pub(super) now_ns: u64,
}

/// Finds VMs.
#[derive(Debug, Default)]
pub(super) struct Finder {
    owners: Owners,
    scan: Scan,
    refused: Refused,
    /// Looks in which a user's processes made everybody wait, in parts of [`GIVEN_BACK`].
    waited: BTreeMap<u32, u32>,
    /// Processes of each user for which its share of the last look was not enough.
    left_out: BTreeMap<u32, usize>,
    unexamined: usize,
    turn: u32,
}

impl Finder {
    pub(super) fn new(owners: Owners) -> Self {
        Self { owners, ..Self::default() }
    }

    /// VMs for which everybody waits.
    pub(super) fn unexamined(&self) -> usize {
        self.unexamined
    }

    /// Whose share a VM is looked at from.
    pub(super) fn share_of(&self, tracked: &Tracked) -> Option<u32> {
        tracked.vm.owner_uid.and_then(|owner| self.owners.share_of(owner))
    }

    /// Whether a user's VMs are taken at their word.
    pub(super) fn trusts(&self, user: u32) -> bool {
        self.owners.trusts(user)
    }

    /// A VM that is known was left out of this look.
    pub(super) fn leave_out(&mut self, user: Option<u32>) {
        if let Some(user) = user {
            *self.left_out.entry(user).or_default() += 1;
        }
    }

    /// What is not watched, as sentences.
    pub(super) fn sentences(&self, now_ns: u64) -> Vec<String> {
        let left_out = |(user, number): (&u32, &usize)| {
            let what = if *number == 1 { "process of user" } else { "processes of user" };
            format!("{number} {what} {user} had no time in this look: those before used up what one user gets")
        };
        let mut sentences = self.scan.foreign();
        sentences.extend(self.refused.sentences(now_ns));
        sentences.extend(self.left_out.iter().map(left_out));
        sentences
    }

    /// Begins to watch new VMs with `begin`, and forgets those that ended.
    ///
    /// # Errors
    /// The list of processes cannot be read, or descriptors or memory do not suffice to look at
    /// them.
    pub(super) fn run(
        &mut self,
        vms: &mut BTreeMap<u32, Tracked>,
        shares: &mut Shares,
        look: &Look<'_>,
        begin: impl Fn(u32, u64) -> Result<Option<Tracked>, LinuxError>,
        found: &mut u64,
    ) -> Result<(), LinuxError> {
        let Look { root, now_ns, .. } = *look;
        self.turn = self.turn.wrapping_add(1);
        self.left_out.clear();
        let listed = numbered_inodes(&root.join("proc"))?;
        let inode_of = |pid: u32| Some(listed[listed.binary_search_by_key(&pid, |(pid, _)| *pid).ok()?].1);
        vms.retain(|&pid, tracked| inode_of(pid).is_some() && tracked.is_there(root) && !tracked.is_no_vm);
        let mut room = Room::default();
        self.keep_to_room(vms, &mut room, inode_of, now_ns);
        self.refused.begin(inode_of, self.turn, now_ns);
        let known = |pid: u32| vms.contains_key(&pid) || self.refused.holds(pid);
        let candidates = self.scan.run(look, &listed, known, &self.owners, shares)?;
        self.refused.keep(|pid| candidates.contains(&pid));
        let mut waiting = BTreeMap::<Option<u32>, usize>::new();
        let owned = candidates.into_iter().filter_map(|pid| {
            let (user, share) = self.owners.of_process(root, pid)?;
            Some((share, (pid, user)))
        });
        let in_turns = in_turns(owned);
        // Who they are, of thousands, takes longer than this time.
        let mut time = Newcomers::new(look.within);
        for (share, (pid, user)) in in_turns {
            let mut refuse = |why| self.refused.add(pid, inode_of(pid).unwrap_or(0), user, why, now_ns);
            if !room.has_any(share) {
                refuse(Why::TooMany);
            } else if !shares.suffices(share, Work::New) {
                self.left_out.entry(user).and_modify(|number| *number += 1).or_insert(1);
            } else if !time.next_may() {
                *waiting.entry(share).or_default() += 1;
            } else {
                match shares.charge(share, || begin(pid, *found)) {
                    Ok(Some(tracked)) if room.take(share, &tracked) => {
                        *found += 1;
                        self.refused.remove(pid);
                        vms.insert(pid, tracked);
                    }
                    Ok(Some(_)) => refuse(Why::TooMany),
                    Ok(None) => refuse(Why::NoVm),
                    Err(error) if error.is_short_of_resources() => return Err(error),
                    // Without a reason it ended meanwhile.
                    Err(error) => Why::of(&error).into_iter().for_each(refuse),
                }
            }
        }
        self.unexamined = self.waited_for(&waiting);
        Ok(())
    }

    /// Refuses what a user has more than there is room for: threads may have come.
    fn keep_to_room(
        &mut self,
        vms: &mut BTreeMap<u32, Tracked>,
        room: &mut Room,
        inode_of: impl Fn(u32) -> Option<u64>,
        now_ns: u64,
    ) {
        vms.retain(|&pid, tracked| {
            let share = self.owners.share_of(tracked.vm.owner_uid.unwrap_or(0));
            let fits = room.take(share, tracked);
            if let (false, Some(user)) = (fits, share) {
                self.refused.add(pid, inode_of(pid).unwrap_or(0), user, Why::TooMany, now_ns);
            }
            fits
        });
    }

    /// Of the processes that had no time, those for which everybody waits.
    fn waited_for(&mut self, waiting: &BTreeMap<Option<u32>, usize>) -> usize {
        let waits: BTreeSet<u32> = waiting.keys().flatten().copied().collect();
        self.waited.retain(|user, waited| {
            *waited -= u32::from(!waits.contains(user));
            *waited > 0
        });
        let mut of = |(share, number): (&Option<u32>, &usize)| {
            let Some(user) = share else { return *number };
            let waited = self.waited.entry(*user).or_default();
            if *waited + GIVEN_BACK > PATIENCE * GIVEN_BACK {
                return 0;
            }
            *waited += GIVEN_BACK;
            *number
        };
        waiting.iter().map(&mut of).sum()
    }
}

/// What of each user is watched.
#[derive(Debug, Default)]
struct Room(BTreeMap<u32, (usize, usize)>);

impl Room {
    fn has_any(&self, share: Option<u32>) -> bool {
        let taken = share.and_then(|user| self.0.get(&user));
        taken.is_none_or(|(vms, threads)| *vms < MOST_VMS_OF_A_USER && *threads < MOST_THREADS_OF_A_USER)
    }

    /// Whether a VM fits; then it has its room.
    fn take(&mut self, share: Option<u32>, tracked: &Tracked) -> bool {
        let Some(user) = share else { return true };
        let (vms, threads) = self.0.entry(user).or_default();
        let of = &tracked.vm;
        let more = of.threads.vcpus.len() + of.threads.others.len() + of.clients.len();
        let fits = *vms < MOST_VMS_OF_A_USER && *threads + more <= MOST_THREADS_OF_A_USER;
        if fits {
            (*vms, *threads) = (*vms + 1, *threads + more);
        }
        fits
    }
}

/// The time of one look for VMs that it sees for the first time.
#[derive(Debug)]
struct Newcomers {
    within: Option<Duration>,
    began: Instant,
    any: bool,
}

impl Newcomers {
    /// Begins now. `None`: the time is not limited.
    fn new(within: Option<Duration>) -> Self {
        Self { within, began: Instant::now(), any: false }
    }

    /// Whether the next one is examined in this look: the first in any case.
    fn next_may(&mut self) -> bool {
        let may = !self.any || self.within.is_none_or(|within| self.began.elapsed() < within);
        self.any = true;
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_wait_where_time_is_up_and_the_first_never_does() {
        let mut none = Newcomers::new(Some(Duration::ZERO));
        assert_eq!([none.next_may(), none.next_may(), none.next_may()], [true, false, false]);
        let mut all = Newcomers::new(None);
        assert_eq!((0..1000).filter(|_| all.next_may()).count(), 1000);
    }

    #[test]
    fn a_user_who_always_has_more_makes_others_wait_for_a_while_only() {
        let mut finder = Finder::default();
        let waiting = BTreeMap::from([(Some(1000), 3000), (None, 2)]);
        let waits: Vec<usize> = (0..100).map(|_| finder.waited_for(&waiting)).collect();
        assert_eq!(waits.iter().filter(|&&number| number == 3002).count(), PATIENCE as usize);
        assert!(waits[PATIENCE as usize..].iter().all(|&number| number == 2), "root's are waited for always");
        // 16 looks without any give one back.
        (0..GIVEN_BACK).for_each(|_| assert_eq!(finder.waited_for(&BTreeMap::new()), 0));
        assert_eq!([(); 2].map(|()| finder.waited_for(&waiting)), [3002, 2]);
    }
}
