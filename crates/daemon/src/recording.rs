//! A recording of a host under a balancer, as JSON lines, and its replay: what the same or another policy would have decided.
//!
//! A replay sees what was observed then. It cannot know what the host would have done after a different decision.

use crate::{DaemonError, Event, Outcome, PolicyFile, Rules};
use scheduler::balance::{BalanceState, Decision, record, step};
use scheduler::{Moment, Observation, VmKey};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use topology::Machine;

/// The format of the file.
const VERSION: u32 = 1;

// Not internally tagged: serde cannot read maps with numbers as keys, such as memory by node, inside of such.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry<'a> {
    Start(Box<Start<'a>>),
    Identified { vm: Cow<'a, VmKey>, uuid: Cow<'a, str> },
    Observed { observation: Cow<'a, Observation> },
    Decided { decisions: Vec<Decided<'a>> },
}

#[derive(Serialize, Deserialize)]
struct Start<'a> {
    version: u32,
    machine: Cow<'a, Machine>,
    policy: Cow<'a, PolicyFile>,
    state: Cow<'a, BalanceState>,
}

#[derive(Serialize, Deserialize)]
struct Decided<'a> {
    decision: Cow<'a, Decision>,
    #[serde(flatten)]
    outcome: Cow<'a, Outcome>,
}

/// Writes a recording.
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Recorder {
    /// Starts a recording in a new or emptied file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(
        path: &Path,
        machine: &Machine,
        policy: &PolicyFile,
        state: &BalanceState,
    ) -> Result<Self, DaemonError> {
        let file = File::create(path).map_err(|source| DaemonError::file(path, "write the recording", source))?;
        let mut this = Self { path: path.to_owned(), file: BufWriter::new(file) };
        let (machine, policy, state) = (Cow::Borrowed(machine), Cow::Borrowed(policy), Cow::Borrowed(state));
        this.write(&Entry::Start(Box::new(Start { version: VERSION, machine, policy, state })))?;
        Ok(this)
    }

    pub(crate) fn identified(&mut self, vm: &VmKey, uuid: &str) -> Result<(), DaemonError> {
        self.write(&Entry::Identified { vm: Cow::Borrowed(vm), uuid: uuid.into() })
    }

    pub(crate) fn observed(&mut self, observation: &Observation) -> Result<(), DaemonError> {
        self.write(&Entry::Observed { observation: Cow::Borrowed(observation) })
    }

    pub(crate) fn decided(&mut self, events: &[Event]) -> Result<(), DaemonError> {
        let acted = events.iter().filter_map(|event| match event {
            Event::Acted { decision, outcome, .. } => Some((decision, outcome)),
            _ => None,
        });
        let borrow =
            |(decision, outcome)| Decided { decision: Cow::Borrowed(decision), outcome: Cow::Borrowed(outcome) };
        self.write(&Entry::Decided { decisions: acted.map(borrow).collect() })
    }

    fn write(&mut self, entry: &Entry) -> Result<(), DaemonError> {
        let mut write = || {
            serde_json::to_writer(&mut self.file, entry)?;
            self.file.write_all(b"\n")?;
            self.file.flush()
        };
        write().map_err(|source| DaemonError::file(&self.path, "write the recording", source))
    }
}

/// What one recorded period leads to now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayedPeriod {
    /// When it was.
    pub at: Moment,
    /// What was decided then; `None` where the recording ends before it.
    pub recorded: Option<Vec<Decision>>,
    /// What is decided now.
    pub decisions: Vec<Decision>,
}

/// A recording that is read.
pub struct Recording {
    path: PathBuf,
    lines: std::io::Lines<BufReader<File>>,
    line: usize,
    machine: Machine,
    policy: PolicyFile,
    state: BalanceState,
}

impl Recording {
    /// Opens a recording and reads what it starts with.
    ///
    /// # Errors
    /// It cannot be read, or does not start as a recording does.
    pub fn open(path: &Path) -> Result<Self, DaemonError> {
        let file = File::open(path).map_err(|source| DaemonError::file(path, "read the recording", source))?;
        let mut lines = BufReader::new(file).lines();
        let fail = |problem: String| DaemonError::Recording { path: path.to_owned(), line: 1, problem };
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        match serde_json::from_str(&first) {
            Ok(Entry::Start(start)) if start.version == VERSION => {
                let Start { machine, policy, state, .. } = *start;
                let (machine, policy, state) = (machine.into_owned(), policy.into_owned(), state.into_owned());
                Ok(Self { path: path.to_owned(), lines, line: 1, machine, policy, state })
            }
            Ok(Entry::Start(start)) => {
                Err(fail(format!("a recording of version {}; this homenode reads {VERSION}", start.version)))
            }
            Ok(_) => Err(fail("expected the line that `homenode balance --record` starts with".into())),
            Err(error) => Err(fail(format!("not a recording of `homenode balance --record`: {error}"))),
        }
    }

    /// The machine that it was made on.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Decides every recorded period again, by the recorded policy or by another one.
    ///
    /// # Errors
    /// A line in the middle cannot be understood. A last line that is cut off ends the recording.
    pub fn replay(
        mut self,
        policy: Option<PolicyFile>,
        mut each: impl FnMut(ReplayedPeriod),
    ) -> Result<(), DaemonError> {
        let policy = policy.unwrap_or_else(|| self.policy.clone());
        let uuids = std::rc::Rc::new(std::cell::RefCell::new(BTreeMap::<VmKey, String>::new()));
        let known = uuids.clone();
        let mut rules = Rules::new(policy.vms.clone(), Box::new(move |vm| known.borrow().get(vm).cloned()));
        let mut pending: Option<ReplayedPeriod> = None;
        while let Some(entry) = self.next_entry()? {
            match entry {
                Entry::Start(_) => {}
                Entry::Identified { vm, uuid } => {
                    uuids.borrow_mut().insert(vm.into_owned(), uuid.into_owned());
                }
                Entry::Observed { observation } => {
                    pending.take().into_iter().for_each(&mut each);
                    let mut observation = observation.into_owned();
                    rules.apply(&mut observation);
                    let many = observation.nodes.len() > 1;
                    let decide = || step(&self.machine, &policy.balance, &mut self.state, &observation);
                    let decisions = many.then(decide).unwrap_or_default();
                    pending = Some(ReplayedPeriod { at: observation.at, recorded: None, decisions });
                }
                Entry::Decided { decisions } => {
                    if let Some(mut period) = pending.take() {
                        tell_outcomes(&policy, &mut self.state, &period.decisions, &decisions);
                        period.recorded = Some(decisions.into_iter().map(|one| one.decision.into_owned()).collect());
                        each(period);
                    }
                }
            }
        }
        pending.take().into_iter().for_each(each);
        Ok(())
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
                let (path, line, problem) = (self.path.clone(), self.line, error.to_string());
                Err(DaemonError::Recording { path, line, problem })
            }
        }
    }
}

/// Where the same is decided as then, the same became of it.
fn tell_outcomes(policy: &PolicyFile, state: &mut BalanceState, now: &[Decision], then: &[Decided]) {
    for Decided { decision, outcome } in then {
        let result = match outcome.as_ref() {
            Outcome::Planned => continue,
            Outcome::Done(done) => Ok(done.clone()),
            Outcome::Failed(error) => Err(error.clone()),
        };
        if now.contains(decision) {
            record(&policy.balance, state, decision, &result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ScriptedHost, balancer, vm};
    use crate::{Mode, VmRule};

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
}
