//! Processes that look like QEMU and are not watched: why, and when they are looked at again.
//!
//! There may be thousands, so that one which is known costs nothing in a look. QEMU that starts has
//! no guest yet and is looked at again at once; all others in turn, since a process may become
//! another program.

use super::scan::is_due;
use crate::error::LinuxError;
use std::collections::BTreeMap;
use topology::limits::{MOST_THREADS_OF_A_USER, MOST_VMS_OF_A_USER};

/// How long a process without a guest may be QEMU that starts.
const STARTING_NS: u64 = 10_000_000_000;
/// Sentences about single processes of one user; of more there is one for all.
const SENTENCES: usize = 4;
/// Numbers of processes that a sentence about many has.
const NUMBERS: usize = 3;

/// Why a process is not watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is another program.
    NotQemu,
    /// It has no guest, or not yet.
    NoGuest,
    /// It says of itself what no VM has: the sentence.
    Doubtful(String),
    /// It only starts another process, or has options like QEMU's.
    NoVm,
    /// Its user has too many.
    TooMany,
}

impl Why {
    /// What an examination said; `None`: it ended.
    pub(super) fn of(error: &LinuxError) -> Option<Self> {
        match error {
            LinuxError::NotQemu { .. } => Some(Self::NotQemu),
            LinuxError::NoGuest { .. } => Some(Self::NoGuest),
            LinuxError::Doubtful { .. } => Some(Self::Doubtful(error.to_string())),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Refusal {
    inode: u64,
    user: u32,
    why: Why,
    since_ns: u64,
    /// It is looked at again in this look.
    due: bool,
}

/// All of them, by process.
#[derive(Debug, Default)]
pub(super) struct Refused(BTreeMap<u32, Refusal>);

impl Refused {
    /// Begins a look: forgets who ended, and decides who is looked at again.
    pub(super) fn begin(&mut self, inode_of: impl Fn(u32) -> Option<u64>, turn: u32, now_ns: u64) {
        self.0.retain(|&pid, refusal| inode_of(pid) == Some(refusal.inode));
        for (&pid, refusal) in &mut self.0 {
            let starts = matches!(refusal.why, Why::NoGuest | Why::NoVm) && now_ns < refusal.since_ns + STARTING_NS;
            refusal.due = starts || is_due(pid, turn);
        }
    }

    /// Whether a process is known, and not looked at in this look.
    pub(super) fn holds(&self, pid: u32) -> bool {
        self.0.get(&pid).is_some_and(|refusal| !refusal.due)
    }

    /// Forgets those that were to be looked at again and do not look like QEMU any more.
    pub(super) fn keep(&mut self, is_candidate: impl Fn(u32) -> bool) {
        self.0.retain(|&pid, refusal| !refusal.due || is_candidate(pid));
    }

    pub(super) fn add(&mut self, pid: u32, inode: u64, user: u32, why: Why, now_ns: u64) {
        let since_ns = self.0.get(&pid).filter(|known| known.inode == inode).map_or(now_ns, |known| known.since_ns);
        self.0.insert(pid, Refusal { inode, user, why, since_ns, due: false });
    }

    pub(super) fn remove(&mut self, pid: u32) {
        self.0.remove(&pid);
    }

    /// Each user's, as sentences; QEMU that starts is none.
    pub(super) fn sentences(&self, now_ns: u64) -> Vec<String> {
        let mut users = BTreeMap::<u32, [Vec<u32>; 4]>::new();
        let mut sentences = Vec::new();
        for (&pid, refusal) in &self.0 {
            let of_user = users.entry(refusal.user).or_default();
            match &refusal.why {
                Why::NotQemu => of_user[0].push(pid),
                Why::NoGuest if now_ns >= refusal.since_ns + STARTING_NS => of_user[1].push(pid),
                Why::Doubtful(sentence) => {
                    of_user[2].push(pid);
                    if of_user[2].len() <= SENTENCES {
                        sentences.push(sentence.clone());
                    }
                }
                Why::TooMany => of_user[3].push(pid),
                Why::NoGuest | Why::NoVm => {}
            }
        }
        for (user, [not_qemu, no_guest, doubtful, too_many]) in users {
            let many = format!(
                "not watched: of one user at most {MOST_VMS_OF_A_USER} VMs are, with {MOST_THREADS_OF_A_USER} threads"
            );
            let doubtful = &doubtful[doubtful.len().min(SENTENCES)..];
            let kinds = [
                (&not_qemu[..], "calls itself QEMU and is not", "call themselves QEMU and are not"),
                (&no_guest, "runs QEMU's program and has no guest", "run QEMU's program and have no guest"),
                (doubtful, "says of itself what no VM has", "say of themselves what no VM has"),
                (&too_many, &format!("is {many}"), &format!("are {many}")),
            ];
            sentences.extend(kinds.into_iter().filter_map(|(pids, one, several)| sentence(user, pids, one, several)));
        }
        sentences
    }
}

/// `12 processes of user 1000 call themselves QEMU and are not (12, 14, 15, ...)`.
fn sentence(user: u32, pids: &[u32], one: &str, several: &str) -> Option<String> {
    let shown: Vec<String> = pids.iter().take(NUMBERS).map(ToString::to_string).collect();
    let more = if pids.len() > NUMBERS { ", ..." } else { "" };
    match pids {
        [] => None,
        [pid] => Some(format!("process {pid} of user {user} {one}")),
        _ => Some(format!("{} processes of user {user} {several} ({}{more})", pids.len(), shown.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_of_one_user_are_one_sentence() {
        let mut refused = Refused::default();
        refused.add(7, 1, 1000, Why::NotQemu, 0);
        assert_eq!(refused.sentences(0), ["process 7 of user 1000 calls itself QEMU and is not"]);
        (8..3007).for_each(|pid| refused.add(pid, 1, 1000, Why::NotQemu, 0));
        (4000..4009).for_each(|pid| refused.add(pid, 1, 1001, Why::Doubtful(format!("{pid}: no")), 0));
        refused.add(5000, 1, 1001, Why::NoGuest, 0);
        let said = refused.sentences(0);
        assert_eq!(said[..4], ["4000: no", "4001: no", "4002: no", "4003: no"]);
        assert_eq!(said[4], "3000 processes of user 1000 call themselves QEMU and are not (7, 8, 9, ...)");
        assert_eq!(said[5], "5 processes of user 1001 say of themselves what no VM has (4004, 4005, 4006, ...)");
        assert_eq!(said.len(), 6, "QEMU may start for 10 s");
        assert_eq!(refused.sentences(STARTING_NS)[5], "process 5000 of user 1001 runs QEMU's program and has no guest");
    }

    #[test]
    fn one_that_starts_is_asked_at_once_and_others_in_turn() {
        let mut refused = Refused::default();
        refused.add(1, 10, 1000, Why::NotQemu, 0);
        refused.add(2, 20, 1000, Why::NoGuest, 0);
        let held = |refused: &Refused| [1, 2].map(|pid| refused.holds(pid));
        let of = |pid| Some(u64::from(pid) * 10);
        refused.begin(of, 0, 1); // 0 + 1 and 0 + 2 are no multiples of 16
        assert_eq!(held(&refused), [true, false]);
        refused.add(2, 20, 1000, Why::NoGuest, 1); // again no guest: it began at 0 all the same
        refused.begin(of, 0, STARTING_NS);
        assert_eq!(held(&refused), [true, true]);
        refused.begin(of, 15, STARTING_NS); // 15 + 1
        assert_eq!(held(&refused), [false, true]);
        refused.keep(|_| false);
        refused.begin(|_| Some(20), 0, STARTING_NS);
        assert_eq!(refused.0.keys().collect::<Vec<_>>(), [&2], "1 is no candidate any more");
        refused.begin(|_| Some(21), 0, STARTING_NS);
        assert!(refused.0.is_empty(), "another process has its number");
    }
}
