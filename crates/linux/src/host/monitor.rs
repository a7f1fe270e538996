//! What only a VM's monitor can say: whoever may ask it gives this to
//! [`HostOptions`](super::HostOptions).

use super::Depth;
use super::tracked::{Around, Tracked};
use super::turns::{Budget, Look, Outcome, Process, Turns};
use crate::root::Root;
use crate::vm::{PluggedMemory, RunningVm};
use scheduler::{RunState, Unseen};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Asks the monitor of a VM.
pub trait AskMonitor: Send {
    /// Asks the [monitor](RunningVm::monitor) of a VM, and takes no longer than `within`.
    fn ask(&mut self, vm: &RunningVm, questions: Questions, within: Duration) -> Heard;
}

/// What a monitor is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Questions {
    /// The thread that runs each vCPU: of VMs whose threads have no names.
    pub vcpu_threads: bool,
    /// Memory that the guest has as devices: of VMs that may come to have more than they started
    /// with.
    pub plugged_memory: bool,
    /// Whether its vCPUs are stopped: of VMs that used no CPU time, where
    /// [`HostOptions::run_states`](super::HostOptions) wants it.
    pub run_state: bool,
}

/// What came of asking a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It may not be asked: it is in use, is not there, or is not the VM's.
    Absent,
    /// It did not answer in time, or not as a monitor does.
    Silent,
    /// Its answers.
    Said(Said),
}

/// Answers of a monitor; empty where it was not asked, or does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The thread of each vCPU. All are the process's own.
    pub vcpu_threads: Option<BTreeMap<u32, u32>>,
    /// The blocks.
    pub plugged_memory: Option<Vec<PluggedMemory>>,
    /// Whether it runs.
    pub run_state: Option<RunState>,
}

/// Users that one sentence names.
const NAMED_USERS: usize = 4;

/// The turns of VMs whose users are trusted, and those of all others.
#[derive(Debug, Default)]
pub(super) struct Visits {
    trusted: Turns,
    others: Turns,
}

/// Asks those VMs that have something to say, within the time that a look has for it. `trusts` says
/// whether a user is trusted.
pub(super) fn ask(
    monitor: Option<&mut (dyn AskMonitor + 'static)>,
    visits: &mut Visits,
    vms: &mut BTreeMap<u32, Tracked>,
    trusts: impl Fn(u32) -> bool,
    (root, around): (&Root, &Around<'_>),
    depth: Depth,
) -> Option<Unseen> {
    let monitor = monitor?;
    let process = |tracked: &Tracked| (tracked.vm.key.pid, tracked.vm.key.started);
    let wants = |tracked: &Tracked| {
        let may = tracked.vm.may_be_asked() && tracked.wants(around) != Questions::default();
        may.then_some((process(tracked), tracked.vm.owner_uid?))
    };
    let (trusted, others): (Vec<(Process, u32)>, Vec<_>) =
        vms.values().filter_map(wants).partition(|(_, uid)| trusts(*uid));
    let of_others = if depth == Depth::Whole { Budget::WHOLE } else { Budget::USUAL };
    let now = Duration::from_nanos(around.now_ns);
    let mut visit = |mut look: Look<'_>| {
        while let Some(turn) = look.next() {
            let began = Instant::now();
            let outcome = match vms.get_mut(&turn.process.0) {
                None => Outcome::Absent,
                Some(tracked) => match monitor.ask(&tracked.vm, tracked.wants(around), turn.within) {
                    Heard::Said(said) => {
                        tracked.told(said, root, around);
                        Outcome::Answered
                    }
                    nothing => {
                        tracked.told_nothing();
                        if nothing == Heard::Silent { Outcome::Silent } else { Outcome::Absent }
                    }
                },
            };
            look.took(turn, began.elapsed(), outcome);
        }
        look.unheard()
    };
    let mut unheard = visit(visits.trusted.begin(now, Budget::TRUSTED, &trusted));
    unheard.extend(visit(visits.others.begin(now, of_others, &others)));
    let lacks = unheard.iter().filter_map(|(pid, _)| vms.get(pid).filter(|tracked| tracked.lacks(around)));
    unseen(&lacks.map(|tracked| &tracked.vm).collect::<Vec<_>>())
}

/// One sentence about all whose monitors said nothing.
fn unseen(vms: &[&RunningVm]) -> Option<Unseen> {
    let mut by_user = BTreeMap::<u32, usize>::new();
    vms.iter().filter_map(|vm| vm.owner_uid).for_each(|uid| *by_user.entry(uid).or_default() += 1);
    let mut by_user: Vec<(u32, usize)> = by_user.into_iter().collect();
    by_user.sort_by_key(|&(uid, count)| (std::cmp::Reverse(count), uid));
    let named = by_user.iter().take(NAMED_USERS).map(|(uid, count)| format!("{count} of user {uid}"));
    let others: usize = by_user.iter().skip(NAMED_USERS).map(|(_, count)| count).sum();
    let others = (others > 0).then(|| format!("{others} of other users"));
    let list: Vec<String> = named.chain(others).collect();
    (!list.is_empty()).then(|| Unseen {
        vms: vms.iter().map(|vm| vm.key.clone()).collect(),
        what: format!(
            "VMs whose monitors did not answer, or for which there was no time: {}; whether they are paused, and what \
            only their monitors know, is unknown",
            list.join(", ")
        ),
        ..Unseen::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_says_how_many_are_whose() {
        let vm = |owner: u32| RunningVm { owner_uid: Some(owner), ..RunningVm::default() };
        let vms: Vec<RunningVm> = [7, 7, 9, 1, 2, 3, 4].into_iter().map(vm).collect();
        let said = unseen(&vms.iter().collect::<Vec<_>>()).unwrap();
        assert!(said.what.contains(": 2 of user 7, 1 of user 1, 1 of user 2, 1 of user 3, 2 of other users;"));
        assert_eq!((said.vms.len(), unseen(&[])), (7, None));
    }
}
