//! A recording of a host under a balancer, as JSON lines: what was seen, what was decided, and what
//! became of that.
//!
//! A [`Recording`] is a source of observations like a host ([`scheduler::Observe`]), so that
//! whatever looks at a host looks at it. What the balancer knew when it took the last observation
//! is [`Recording::state`]: worked out again from what the recording began with, by the recorded
//! policy and outcomes.

mod format;
mod recorder;
mod replay;

pub use recorder::Recorder;
pub use replay::ReplayedPeriod;

use crate::{DaemonError, Outcome, PolicyFile};
use format::{Entry, Start, VERSION};
use replay::Decider;
use scheduler::balance::{BalanceState, Decision};
use scheduler::{Moment, Observation, Observe, ObserveError, Unseen, VmKey};
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use topology::{Machine, input};

/// A recorded period.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedPeriod {
    /// What was seen, before the administrator's rules.
    pub observation: Observation,
    /// What was decided on it and what became of that; `None` where the recording ends before it.
    pub decided: Option<Vec<(Decision, Outcome)>>,
}

/// A recording that is read.
pub struct Recording {
    path: PathBuf,
    lines: Peekable<input::Lines>,
    line: usize,
    machine: Machine,
    policy: PolicyFile,
    uuids: BTreeMap<VmKey, String>,
    decider: Decider,
    /// The period that was looked at last: the balancer has not decided on it yet.
    looked_at: Option<RecordedPeriod>,
    now: Moment,
}

impl Recording {
    /// Opens a recording and reads what it starts with.
    ///
    /// # Errors
    /// It cannot be read, or does not start as a recording does.
    pub fn open(path: &Path) -> Result<Self, DaemonError> {
        let lines = input::lines(path).map_err(|source| DaemonError::file(path, "read the recording", source))?;
        let mut lines = lines.peekable();
        let fail = |problem: String| DaemonError::Recording { path: path.to_owned(), line: 1, problem };
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        match serde_json::from_str(&first) {
            Ok(Entry::Start(start)) if start.version == VERSION => {
                let Start { machine, policy, state, .. } = *start;
                let (machine, policy, state) = (machine.into_owned(), policy.into_owned(), state.into_owned());
                Ok(Self {
                    path: path.to_owned(),
                    lines,
                    line: 1,
                    machine,
                    decider: Decider::new(policy.clone(), state),
                    policy,
                    uuids: BTreeMap::new(),
                    looked_at: None,
                    now: Moment(0),
                })
            }
            Ok(Entry::Start(start)) => {
                Err(fail(format!("a recording of version {}; this homenode reads {VERSION}", start.version)))
            }
            Ok(_) => Err(fail("expected the line that `homenode balance --record` starts with".into())),
            Err(error) => {
                let why = input::shortened(&error.to_string());
                Err(fail(format!("not a recording of `homenode balance --record`: {why}")))
            }
        }
    }

    /// The policy that the balancer decided by.
    pub fn policy(&self) -> &PolicyFile {
        &self.policy
    }

    /// What the balancer remembered when it took the observation that [`observe`](Observe::observe)
    /// gave last; at the beginning, what the recording starts with.
    pub fn state(&self) -> &BalanceState {
        &self.decider.state
    }

    /// The next period; `None` at the end. A line that is cut off is the end: the balancer was
    /// killed while it wrote. Leaves [`state`](Self::state) as it is.
    ///
    /// # Errors
    /// A line in the middle cannot be understood.
    pub fn next_period(&mut self) -> Result<Option<RecordedPeriod>, DaemonError> {
        let mut observation = loop {
            match self.next_entry()? {
                None => return Ok(None),
                Some(Entry::Observed { observation }) => break observation.into_owned(),
                Some(Entry::Identified { vm, uuid }) => {
                    self.uuids.insert(vm.into_owned(), uuid.into_owned());
                }
                Some(Entry::Start(_) | Entry::Decided { .. }) => {}
            }
        };
        for seen in observation.vms.iter_mut().filter(|seen| seen.uuid.is_none()) {
            seen.uuid = self.uuids.get(&seen.vm).cloned();
        }
        let decided = match self.decides_next() {
            true => self.next_entry()?.and_then(|entry| match entry {
                Entry::Decided { decisions } => Some(decisions),
                _ => None,
            }),
            false => None,
        };
        let owned = |one: format::Decided<'_>| (one.decision.into_owned(), one.outcome.into_owned());
        let decided = decided.map(|decisions| decisions.into_iter().map(owned).collect());
        Ok(Some(RecordedPeriod { observation, decided }))
    }

    /// The last observation, all before it looked at.
    ///
    /// # Errors
    /// Nothing was observed, or a line cannot be understood.
    pub fn last(&mut self) -> Result<Observation, ObserveError> {
        let mut last = self.observe()?;
        while let Some(observation) = self.look()? {
            last = observation;
        }
        Ok(last)
    }

    /// The next observation, `None` at the end; the balancer has decided on the one before it by
    /// then.
    ///
    /// # Errors
    /// A line cannot be understood.
    pub fn look(&mut self) -> Result<Option<Observation>, ObserveError> {
        let of = format!("recording {}", self.path.display());
        let next = self.next_period().map_err(|error| ObserveError::new(of, error.to_string()))?;
        let Some(next) = next else { return Ok(None) };
        if let Some(before) = self.looked_at.take() {
            self.decider.decide(&self.machine, before.observation, before.decided.as_deref());
        }
        self.now = next.observation.at;
        let observation = next.observation.clone();
        self.looked_at = Some(next);
        Ok(Some(observation))
    }

    /// Whether the next line tells of decisions.
    fn decides_next(&mut self) -> bool {
        let starts = |line: &Result<String, _>| line.as_ref().is_ok_and(|line| line.starts_with("{\"decided\""));
        self.lines.peek().is_some_and(starts)
    }

    fn next_entry(&mut self) -> Result<Option<Entry<'static>>, DaemonError> {
        let Some(text) = self.lines.next() else { return Ok(None) };
        let text = text.map_err(|source| DaemonError::file(&self.path, "read the recording", source))?;
        self.line += 1;
        match serde_json::from_str(&text) {
            Ok(entry) => Ok(Some(entry)),
            // The balancer was killed while it wrote.
            Err(error) if error.is_eof() => Ok(None),
            Err(error) => {
                let (path, line, problem) = (self.path.clone(), self.line, input::shortened(&error.to_string()));
                Err(DaemonError::Recording { path, line, problem })
            }
        }
    }
}

/// What the balancer does not look at, and a recording of it does not hold.
const NOT_RECORDED: &str = "a recording does not hold what the kernel is set to do, policies of memory, what limits a \
    VM, nor where threads are that run no vCPU";

impl Observe for Recording {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        let of = format!("recording {}", self.path.display());
        self.look()?.ok_or_else(|| ObserveError::new(of, "it ends here"))
    }

    /// The last observation, and what it lacks.
    fn examine(&mut self) -> Result<Observation, ObserveError> {
        let mut last = self.last()?;
        let vms = last.vms.iter().map(|seen| seen.vm.clone()).collect();
        last.unseen.push(Unseen { vms, what: NOT_RECORDED.to_owned(), ..Unseen::default() });
        Ok(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ScriptedHost, balancer, vm};
    use crate::{Mode, VmRule};
    use scheduler::balance::why;

    /// Three periods of a VM that gets a home.
    fn recorded(directory: &Path) -> PathBuf {
        let path = directory.join("recording.jsonl");
        let mut balancer = balancer(ScriptedHost::two_nodes(&[vm(1)]), Mode::Act, directory);
        let start = Recorder::start(&path, balancer.machine(), &PolicyFile::default(), &BalanceState::default());
        balancer.record_to(start.unwrap());
        for _ in 0..3 {
            balancer.period().unwrap();
        }
        path
    }

    fn replayed(path: &Path, policy: Option<PolicyFile>) -> Result<Vec<ReplayedPeriod>, DaemonError> {
        let mut periods = Vec::new();
        Recording::open(path)?.replay(policy, |period| periods.push(period))?;
        Ok(periods)
    }

    #[test]
    fn a_replay_decides_what_was_decided() {
        let directory = tempfile::tempdir().unwrap();
        let periods = replayed(&recorded(directory.path()), None).unwrap();
        assert_eq!(periods.len(), 3);
        assert!(!periods[0].decisions.is_empty(), "a VM that floats gets a home");
        for period in &periods {
            assert_eq!(period.recorded.as_ref(), Some(&period.decisions));
        }
    }

    #[test]
    fn another_policy_decides_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let out = VmRule { name: Some("vm*".into()), opt_out: true, ..VmRule::default() };
        let policy = PolicyFile { vms: vec![out], ..PolicyFile::default() };
        let periods = replayed(&recorded(directory.path()), Some(policy)).unwrap();
        assert!(periods.iter().all(|period| period.decisions.is_empty()));
        assert!(periods[0].recorded.as_ref().is_some_and(|decisions| !decisions.is_empty()));
    }

    #[test]
    fn a_cut_off_end_is_the_end_and_a_bad_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = recorded(directory.path());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let periods = replayed(&path, None).unwrap();
        assert_eq!(periods.iter().filter(|period| period.recorded.is_some()).count(), 2);
        let (first, rest) = text.split_once('\n').unwrap();
        std::fs::write(&path, format!("{first}\n{{}}\n{rest}")).unwrap();
        let error = replayed(&path, None).unwrap_err();
        assert!(error.is_bad_input() && error.to_string().contains("recording.jsonl:2:"), "{error}");
        std::fs::write(&path, rest).unwrap();
        assert!(replayed(&path, None).unwrap_err().to_string().contains("expected the line"));
    }

    #[test]
    fn a_recording_is_looked_at_as_a_host_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut recording = Recording::open(&recorded(directory.path())).unwrap();
        let first = recording.observe().unwrap();
        assert_eq!((first.at, first.vms.len(), recording.now()), (Moment(2000), 1, Moment(2000)));
        assert_eq!(recording.state().steps, 0, "before the first decision");
        recording.observe().unwrap();
        // The home that the first period gave is known when the second is looked at.
        assert!(recording.state().home(&vm(1), scheduler::ClientId(0)).is_some());
        let last = recording.last().unwrap();
        assert_eq!((last.at, recording.state().steps), (Moment(6000), 2));
        let policy = recording.policy().balance.clone();
        let told = why(recording.machine(), &policy, recording.state(), &last, &vm(1)).unwrap();
        assert_eq!(told.clients[0].home.lives.as_ref().map(ToString::to_string).as_deref(), Some("0"));
        let ended = recording.observe().unwrap_err();
        assert!(ended.to_string().contains("it ends"), "{ended}");
    }

    #[test]
    fn a_uuid_that_an_older_homenode_told_apart_is_put_where_it_belongs() {
        let directory = tempfile::tempdir().unwrap();
        let path = recorded(directory.path());
        let text = std::fs::read_to_string(&path).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let uuid = "3f2504e0-4f89-11d3-9a0c-0305e82c3301";
        let told = serde_json::json!({"identified": {"vm": vm(1), "uuid": uuid}});
        std::fs::write(&path, format!("{first}\n{told}\n{rest}")).unwrap();
        let seen = Recording::open(&path).unwrap().observe().unwrap();
        assert_eq!(seen.vms[0].uuid.as_deref(), Some(uuid));
    }
}
