//! A balancer, as somebody who only looks sees it: whether it lives, what it is doing, what it
//! remembers.

use crate::{Saved, SavedFile};
use linux::process::{Identity, run_state};
use scheduler::balance::Decision;
use serde::Serialize;
use std::time::SystemTime;

/// Whether a balancer that wrote a state still keeps its VMs at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// It runs.
    Running,
    /// It was stopped (SIGSTOP, a debugger, a frozen terminal): it does nothing until it is
    /// continued.
    Stopped,
    /// Its process has ended: VMs stay where it left them.
    Dead,
}

impl Life {
    /// Whether a process that holds the lock of balancers works.
    pub fn of_holder(pid: Option<u32>) -> Self {
        match pid.and_then(run_state) {
            Some('T' | 't') => Self::Stopped,
            _ => Self::Running,
        }
    }
}

/// A decision that is being carried out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doing {
    /// What, and why.
    pub decision: Decision,
    /// When it began.
    pub since: Option<SystemTime>,
}

/// What a state file says of its balancer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Watched {
    /// What it remembers, with what it has begun since.
    pub saved: Saved,
    /// Whether it lives.
    pub life: Life,
    /// Its process; `None` where that has ended.
    pub pid: Option<u32>,
    /// When it last wrote something down: at least every 30 s while it runs. A stopped or dead one
    /// has done nothing since.
    pub heard: Option<SystemTime>,
    /// What it is doing; of a stopped or dead one, what it was doing then. `None`: it is between
    /// two periods.
    pub doing: Option<Doing>,
}

impl Watched {
    /// The balancer whose state this is; `None` where there is no state of this boot.
    pub fn look(file: &SavedFile) -> Option<Self> {
        let saved = file.peek()?;
        let life = life(saved.pid, saved.started);
        let pid = (life != Life::Dead).then_some(saved.pid);
        let doing = file.doing().map(|(decision, since)| Doing { decision, since });
        Some(Self { saved, life, pid, heard: file.written_at(), doing })
    }
}

fn life(pid: u32, started_ticks: u64) -> Life {
    let there = Identity { pid, started_ticks }.is_alive();
    match run_state(pid) {
        _ if !there => Life::Dead,
        Some('T' | 't') => Life::Stopped,
        _ => Life::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bind, vm};
    use crate::{PolicyFile, Restored};
    use std::process::Command;

    #[test]
    fn a_balancer_lives_is_stopped_and_is_dead() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let started = Identity::of(child.id()).unwrap().started_ticks;
        assert_eq!(life(child.id(), started), Life::Running);
        linux::sys::send_signal(child.id(), 19).unwrap();
        let stopped = || life(child.id(), started) == Life::Stopped;
        assert!(
            (0..1000).any(|_| stopped() || {
                std::thread::yield_now();
                false
            }),
            "SIGSTOP is seen"
        );
        // The same number, another process.
        assert_eq!(life(child.id(), started + 1), Life::Dead);
        assert_eq!([Life::of_holder(Some(child.id())), Life::of_holder(None)], [Life::Stopped, Life::Running]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(life(child.id(), started), Life::Dead);
    }

    #[test]
    fn who_looks_sees_what_is_being_done() {
        let directory = tempfile::tempdir().unwrap();
        let file = SavedFile::new(directory.path().join("balance.json"), "boot".into());
        assert_eq!(Watched::look(&file), None);
        let mut saved = file.fresh();
        saved.owned_by_us(PolicyFile::default());
        file.save(&saved).unwrap();
        let watched = Watched::look(&file).unwrap();
        assert_eq!((watched.life, watched.pid, watched.doing), (Life::Running, Some(std::process::id()), None));
        let decision = bind(vm(1), "0", "0-1");
        file.begin(&decision, Some(&"0-3".parse::<topology::CpuSet>().unwrap().into()), &Default::default()).unwrap();
        let watched = Watched::look(&file).unwrap();
        assert_eq!(watched.doing.map(|doing| doing.decision), Some(decision));
        assert_eq!(watched.saved.vms[0].clients[0].pending.as_ref().map(ToString::to_string), Some("0-1".into()));
        assert!(matches!(file.restore().unwrap(), Restored::Memory(saved) if saved.vms.len() == 1));
    }
}
