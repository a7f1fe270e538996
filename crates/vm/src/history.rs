//! What became of a VM: its state, since when, and how it came there.

use crate::backend::ReachedBy;
use crate::life::{NotNow, State, Step};
use crate::{NodeSize, Placement};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use topology::input::one_line;
use topology::{Bytes, NodeSet};

/// Most chapters that are kept: the first one and the last ones.
const MOST_CHAPTERS: usize = 200;

/// Most characters of a sentence in one: 200 of them are far from what a record may have.
const LONGEST_SENTENCE: usize = 1000;

/// Seconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

/// The life of a VM so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// What it is doing.
    pub state: State,
    /// Since when.
    pub since: UnixSeconds,
    /// What runs it, and what it takes to reach it there.
    pub backend: ReachedBy,
    /// The file that it is in while it is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_in: Option<PathBuf>,
    /// What it was before somebody began to start, resume, receive or send it, or paused it to
    /// suspend it; `None` while that is not so, and where nothing was known of it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// To whom it was handed over, where that has not come to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_over: Option<HandedOver>,
    /// Whether somebody asked it to end: if its process is gone, that was on purpose.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_to_end: bool,
    /// Whether its virtual topology is sized anew at its next power-on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topology_anew: bool,
    /// How it came there, the oldest first.
    pub history: Vec<Chapter>,
}

/// A guest that another homenode was told to let run: it decides whether it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// Where that homenode is, as the user named it.
    pub to: String,
    /// By which it knows the guest.
    pub receipt: String,
    /// Where it lives once it went, if that is on this host: the record stays, and must say so
    /// whoever settles it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// What a VM was before something that has not come to its end yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// What it was doing.
    pub state: State,
    /// Since when.
    pub since: UnixSeconds,
}

/// One thing that happened to a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chapter {
    /// When.
    pub at: UnixSeconds,
    /// What.
    #[serde(flatten)]
    pub event: LifeEvent,
}

/// What can happen to a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LifeEvent {
    /// It was made known.
    Planned,
    /// It was powered on.
    Started {
        /// Homes of its clients, by client.
        homes: Vec<NodeSet>,
    },
    /// Its vCPUs were stopped.
    Paused,
    /// Its vCPUs went on.
    Continued,
    /// Its machine was reset.
    Reset,
    /// vCPUs or memory were added or taken away.
    Resized {
        /// vCPUs before and after.
        vcpus: (u32, u32),
        /// Memory before and after.
        memory: (Bytes, Bytes),
    },
    /// A client got another home.
    Moved {
        /// The client.
        client: u32,
        /// Its home before.
        from: NodeSet,
        /// Its home now.
        to: NodeSet,
    },
    /// It was written into a file.
    Suspended {
        /// The file.
        file: PathBuf,
        /// The same word as in the file, and in no other one.
        #[serde(default)]
        id: String,
    },
    /// It went on from a file.
    Resumed {
        /// Homes of its clients, by client.
        homes: Vec<NodeSet>,
    },
    /// It came from another host, running.
    Arrived {
        /// That host.
        from: String,
        /// Homes of its clients, by client.
        homes: Vec<NodeSet>,
    },
    /// Its virtual topology was sized anew.
    TopologyAnew,
    /// What was begun failed.
    Failed {
        /// Why, as a sentence.
        because: String,
    },
    /// It was stopped.
    Stopped,
    /// Its process vanished.
    Lost {
        /// What is known of why, as a sentence.
        #[serde(default)]
        because: String,
    },
}

impl LifeEvent {
    /// That virtual nodes got more or less.
    pub fn resized(before: &[NodeSize], after: &[NodeSize]) -> Self {
        let vcpus = |sizes: &[NodeSize]| sizes.iter().map(|size| size.vcpus.len() as u32).sum();
        let memory = |sizes: &[NodeSize]| sizes.iter().map(|size| size.memory).sum();
        Self::Resized { vcpus: (vcpus(before), vcpus(after)), memory: (memory(before), memory(after)) }
    }

    /// With sentences of one line: QEMU, a guest or another host may have worded them.
    fn shortened(self) -> Self {
        let sentence = |text: String| one_line(&text, LONGEST_SENTENCE);
        match self {
            Self::Arrived { from, homes } => Self::Arrived { from: sentence(from), homes },
            Self::Failed { because } => Self::Failed { because: sentence(because) },
            Self::Lost { because } => Self::Lost { because: sentence(because) },
            event => event,
        }
    }
}

impl Life {
    /// That of a VM that has just become known.
    pub fn planned(backend: ReachedBy, at: UnixSeconds) -> Self {
        let history = vec![Chapter { at, event: LifeEvent::Planned }];
        Self {
            state: State::Planned,
            since: at,
            backend,
            suspended_in: None,
            before: None,
            handed_over: None,
            asked_to_end: false,
            topology_anew: false,
            history,
        }
    }

    /// That of a VM of which nothing is known before somebody starts it.
    pub fn starting(backend: ReachedBy, at: UnixSeconds) -> Self {
        Self { state: State::Starting, ..Self::planned(backend, at) }
    }

    /// Takes a step, and writes down what happened where that is worth a chapter.
    ///
    /// # Errors
    /// The step is not possible now; nothing has changed.
    pub fn step(&mut self, step: Step, event: Option<LifeEvent>, at: UnixSeconds) -> Result<(), NotNow> {
        let state = self.state.after(step)?;
        let before = Before { state: self.state, since: self.since };
        match (step, self.before) {
            (Step::Start | Step::Resume | Step::Send, _) => self.before = Some(before),
            (Step::Fails { back_to }, Some(before)) if before.state == back_to => {
                (self.state, self.since, self.before) = (before.state, before.since, None);
            }
            (Step::Pause, _) => {}
            _ => self.before = None,
        }
        if !state.has_process() || step == Step::Runs {
            self.asked_to_end = false;
        }
        if matches!(step, Step::Runs | Step::Stop | Step::Continue) {
            self.suspended_in = None;
        }
        if state != State::MigratingOut {
            self.handed_over = None;
        }
        if state != self.state {
            (self.state, self.since) = (state, at);
        }
        if let Some(event) = event {
            self.tell(event, at);
        }
        Ok(())
    }

    /// Its vCPUs are stopped so that it can be suspended: where that comes to no end, it goes on.
    ///
    /// # Errors
    /// The step is not possible now; nothing has changed.
    pub fn pause_to_suspend(&mut self, at: UnixSeconds) -> Result<(), NotNow> {
        let before = Before { state: self.state, since: self.since };
        self.step(Step::Pause, None, at)?;
        self.before = Some(before);
        Ok(())
    }

    /// Whether its vCPUs wait only because somebody began to suspend it.
    pub fn is_paused_to_suspend(&self) -> bool {
        self.state == State::Paused && self.before.is_some()
    }

    /// That somebody else started it, at these homes.
    ///
    /// # Errors
    /// It runs, or is being worked on; nothing has changed.
    pub fn started_elsewhere(&mut self, homes: Vec<NodeSet>, at: UnixSeconds) -> Result<(), NotNow> {
        let mut life = self.clone();
        let begun = if life.state == State::Suspended { Step::Resume } else { Step::Start };
        life.step(begun, None, at)?;
        life.step(Step::Runs, Some(LifeEvent::Started { homes }), at)?;
        *self = life;
        Ok(())
    }

    /// That of a VM that came from a file or another host, with the life that it had there, before
    /// it runs here. Only its history counts here, as far as one is kept.
    pub fn from_elsewhere(theirs: &Self, state: State, backend: ReachedBy, at: UnixSeconds) -> Self {
        let mut life = Self { state, history: Vec::new(), ..Self::planned(backend, at) };
        let later = theirs.history.len().saturating_sub(MOST_CHAPTERS - 1).max(1);
        let kept = theirs.history.iter().take(1).chain(theirs.history.iter().skip(later));
        kept.for_each(|chapter| life.tell(chapter.event.clone(), chapter.at));
        life
    }

    /// Writes down what happened.
    pub fn tell(&mut self, event: LifeEvent, at: UnixSeconds) {
        let event = event.shortened();
        if self.history.len() >= MOST_CHAPTERS {
            self.history.remove(1);
        }
        self.history.push(Chapter { at, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_life_keeps_its_beginning_and_its_end() {
        let mut life = Life::planned(ReachedBy::Qemu, UnixSeconds(1));
        for second in 2..1000 {
            life.tell(LifeEvent::Paused, UnixSeconds(second));
        }
        assert_eq!(life.history.len(), MOST_CHAPTERS);
        assert_eq!(life.history[0].event, LifeEvent::Planned);
        assert_eq!(life.history.last().map(|chapter| chapter.at), Some(UnixSeconds(999)));
    }

    /// A destination, or QEMU's last words, made a record that nobody could read any more.
    #[test]
    fn what_others_worded_is_one_line_of_a_life() {
        let mut life = Life::planned(ReachedBy::Qemu, UnixSeconds(1));
        let because = format!("no\u{1b}[2J\nVM web: running {}", "x".repeat(1 << 20));
        for second in 0..1000 {
            life.history.push(Chapter { at: UnixSeconds(second), event: LifeEvent::Lost { because: because.clone() } });
        }
        let handed_over = HandedOver { to: "mallory".to_owned(), receipt: String::new(), placement: None };
        let theirs = Life { handed_over: Some(handed_over), suspended_in: Some("/x".into()), ..life };
        let ours = Life::from_elsewhere(&theirs, State::Starting, ReachedBy::Qemu, UnixSeconds(2));
        assert_eq!((ours.history.len(), ours.history[0].at), (MOST_CHAPTERS, UnixSeconds(1)));
        assert_eq!(ours.history.last().map(|chapter| chapter.at), Some(UnixSeconds(999)));
        let LifeEvent::Lost { because } = &ours.history[1].event else { panic!("{ours:?}") };
        assert!(because.starts_with("no\u{fffd}[2J VM web") && because.len() < 1100, "{because}");
        assert_eq!((ours.state, ours.handed_over, ours.suspended_in), (State::Starting, None, None));
    }

    /// Records of before libvirt's VMs had one say `"backend": "qemu"`.
    #[test]
    fn what_runs_a_vm_is_read_from_old_and_new_records() {
        let read = |text: &str| serde_json::from_str::<ReachedBy>(text);
        assert_eq!(read("\"qemu\"").unwrap(), ReachedBy::Qemu);
        let (uri, uuid) = ("qemu:///system".to_owned(), "6695eb01".to_owned());
        let libvirt = ReachedBy::Libvirt(crate::backend::DomainOf { uri, uuid, adopted: false });
        let text = serde_json::to_string(&libvirt).unwrap();
        assert_eq!(text, r#"{"libvirt":{"uri":"qemu:///system","uuid":"6695eb01"}}"#);
        assert_eq!(read(&text).unwrap(), libvirt);
        assert!(read("\"libvirt\"").is_err());
    }

    #[test]
    fn a_refused_step_changes_nothing() {
        let mut life = Life::planned(ReachedBy::Qemu, UnixSeconds(1));
        let before = life.clone();
        assert!(life.step(Step::Pause, Some(LifeEvent::Paused), UnixSeconds(2)).is_err());
        assert_eq!(life, before);
        life.step(Step::Start, None, UnixSeconds(3)).unwrap();
        assert_eq!((life.state, life.since), (State::Starting, UnixSeconds(3)));
    }

    #[test]
    fn a_vm_that_goes_on_or_is_stopped_is_in_no_file() {
        let mut life = Life::planned(ReachedBy::Qemu, UnixSeconds(1));
        (life.state, life.suspended_in) = (State::Suspended, Some("/web.memory".into()));
        let mut stopped = life.clone();
        stopped.step(Step::Stop, None, UnixSeconds(2)).unwrap();
        life.step(Step::Resume, None, UnixSeconds(2)).unwrap();
        assert!(life.suspended_in.is_some() && stopped.suspended_in.is_none());
        life.step(Step::Runs, None, UnixSeconds(3)).unwrap();
        assert_eq!(life.suspended_in, None);
    }

    #[test]
    fn a_suspend_that_comes_to_an_end_leaves_nothing_to_go_back_to() {
        for step in [Step::Continue, Step::Suspend, Step::Stop] {
            let mut life = Life { state: State::Running, ..Life::planned(ReachedBy::Qemu, UnixSeconds(1)) };
            life.pause_to_suspend(UnixSeconds(2)).unwrap();
            assert!(life.is_paused_to_suspend());
            assert!(life.pause_to_suspend(UnixSeconds(2)).is_err() && life.is_paused_to_suspend());
            life.step(step, None, UnixSeconds(3)).unwrap();
            assert!(!life.is_paused_to_suspend() && life.before.is_none(), "{step:?}");
        }
    }

    #[test]
    fn what_fails_leaves_the_life_as_it_was() {
        let mut life = Life::planned(ReachedBy::Qemu, UnixSeconds(1));
        let before = life.clone();
        life.step(Step::Start, None, UnixSeconds(2)).unwrap();
        life.step(Step::Fails { back_to: State::Planned }, None, UnixSeconds(3)).unwrap();
        assert_eq!(life, before);
    }
}
