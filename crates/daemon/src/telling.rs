//! What a balancer says to people: a line when something changes, a cause of trouble once, and
//! memory that follows for minutes in a few lines.

use crate::{Event, Outcome, Period, PutRight};
use scheduler::balance::{Decision, MoveKind};
use scheduler::{Action, ActionError, ClientId, Done, Moment, VmKey};
use std::collections::{BTreeMap, BTreeSet};
use topology::input::one_line;
use topology::words::{count, named};
use topology::{Bytes, NodeId, NodeSet};

/// How often memory that is still being moved is told of, in milliseconds.
const MEMORY_EVERY_MS: u64 = 30_000;
/// Causes that are remembered at most, so that a strange host cannot fill memory.
const MOST_CAUSES: usize = 1000;
/// Sentences about what counts memory traffic that are remembered: then they are said again.
const MOST_METERED: usize = 1000;
/// The most characters of a line.
const LONGEST_LINE: usize = 1000;

/// A line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The words.
    pub text: String,
    /// Whether something went wrong.
    pub trouble: bool,
}

impl Line {
    /// A log has a line for it, whatever words of others are in it.
    fn new(text: &str, trouble: bool) -> Self {
        Self { text: one_line(text, LONGEST_LINE), trouble }
    }

    fn news(text: &str) -> Self {
        Self::new(text, false)
    }

    fn trouble(text: &str) -> Self {
        Self::new(text, true)
    }
}

/// Memory of one client that is being moved to one node.
#[derive(Clone, Debug)]
struct Moving {
    since: Moment,
    told: Moment,
    seen: Moment,
    moved: Bytes,
    first: Bytes,
}

/// Trouble that was told of.
#[derive(Debug)]
struct Cause {
    text: String,
    /// How often it came again since.
    again: u64,
}

/// Turns periods into lines.
#[derive(Debug, Default)]
pub struct Telling {
    started: bool,
    nodes: usize,
    causes: BTreeMap<String, Cause>,
    planned: BTreeMap<(VmKey, ClientId), String>,
    /// What was said of what counts memory traffic.
    meter: BTreeSet<String>,
    // By target: what went to one node and then on to another was moved twice, and is no larger for
    // it.
    moving: BTreeMap<(VmKey, ClientId, NodeId), Moving>,
}

impl Telling {
    /// What to say of a period.
    pub fn period(&mut self, period: &Period) -> Vec<Line> {
        let mut lines = self.host(period);
        for event in &period.events {
            match event {
                Event::Appeared { vm } if self.started => {
                    lines.push(Line::news(&format!("VM {} appeared: process {}", vm.name, vm.pid)));
                }
                Event::Appeared { .. } => {}
                Event::Ended { vm } => lines.push(self.ended(vm)),
                Event::Acted { decision, from, wide, outcome } => {
                    self.acted(decision, from, *wide, outcome, period.at, &mut lines);
                }
                Event::PutRight { vm, outcome: PutRight::Done(what) } => {
                    lines.push(Line::news(&format!("VM {}: {what}", vm.name)));
                }
                Event::PutRight { vm, outcome: PutRight::Failed(error) } => {
                    lines.extend(self.trouble(error.to_string(), Some(vm), &error.to_string()));
                }
                Event::NotWritten { problem } => lines.extend(self.trouble(problem.clone(), None, problem)),
            }
        }
        self.finished(period.at, &mut lines);
        lines.extend(self.metered(period));
        self.started = true;
        lines
    }

    /// What to say of a period in which the host could not be read.
    pub fn unreadable(&mut self, why: &str) -> Vec<Line> {
        let text = format!("this host cannot be read: {why}; trying again every period");
        self.trouble(text, None, why).into_iter().collect()
    }

    /// What was left unsaid: how often each cause came again.
    pub fn summary(&self) -> Vec<Line> {
        let again = self.causes.values().filter(|cause| cause.again > 0);
        again.map(|Cause { text, again }| Line::trouble(&format!("{again} more times: {text}"))).collect()
    }

    fn host(&mut self, period: &Period) -> Vec<Line> {
        if self.nodes == period.nodes {
            return Vec::new();
        }
        let (nodes, vms) = (period.nodes, count(period.vms, "VM"));
        let text = match (self.nodes, nodes) {
            (_, 0 | 1) => format!("this host has one NUMA node, so every VM is at home: nothing to balance; {vms}"),
            (0, _) => format!("balancing {vms} on {nodes} NUMA nodes"),
            (before, _) => format!("the host has {nodes} NUMA nodes now, {before} before"),
        };
        self.nodes = nodes;
        vec![Line::news(&text)]
    }

    /// What counts memory traffic and what it misses, each once. Where there is one node, nothing
    /// depends on it.
    fn metered(&mut self, period: &Period) -> Vec<Line> {
        let sentences: Vec<String> = match &period.traffic_meter {
            Some(meter) if period.nodes > 1 => meter.sentences().collect(),
            _ => Vec::new(),
        };
        if self.meter.len() > MOST_METERED {
            self.meter.clear();
        }
        let new = sentences.into_iter().filter(|sentence| self.meter.insert(sentence.clone()));
        new.map(|sentence| Line::news(&sentence)).collect()
    }

    fn ended(&mut self, vm: &VmKey) -> Line {
        self.planned.retain(|(of, _), _| of != vm);
        self.moving.retain(|(of, ..), _| of != vm);
        Line::news(&format!("VM {} ended", vm.name))
    }

    fn acted(
        &mut self,
        decision: &Decision,
        from: &NodeSet,
        wide: bool,
        outcome: &Outcome,
        at: Moment,
        lines: &mut Vec<Line>,
    ) {
        let who = who(decision, wide);
        match (&decision.action, outcome) {
            (_, Outcome::Failed(ActionError::Gone { .. })) => {}
            (_, Outcome::Failed(error)) => {
                let cause = error.to_string();
                let text = format!("VM {error} ({})", words(decision.kind));
                lines.extend(self.trouble(text, Some(decision.action.vm()), &cause));
            }
            (action, Outcome::Planned) => {
                let key = (action.vm().clone(), action.client());
                let text = format!("{who}: {}", planned(decision, from));
                // The same plan is made anew each period, since nothing is changed.
                let same = self.planned.insert(key, essence(decision)) == Some(essence(decision));
                lines.extend((!same).then(|| Line::news(&text)));
            }
            (Action::Bind { .. }, Outcome::Done(done)) => {
                lines.push(Line::news(&format!("{who}: {}", did(decision, from))));
                let said = done.because.as_ref();
                lines.extend(
                    said.and_then(|said| self.trouble(format!("{who}: {said}"), Some(decision.action.vm()), said)),
                );
            }
            (Action::MoveMemory { to, .. }, Outcome::Done(done)) => {
                self.memory(decision, &who, *to, done, at, lines);
            }
        }
    }

    fn memory(&mut self, decision: &Decision, who: &str, to: NodeId, done: &Done, at: Moment, lines: &mut Vec<Line>) {
        if done.left > Bytes(0) {
            let why = done.because.as_deref().unwrap_or("the kernel does not say why");
            let text = format!("{who}: {} of memory would not move to node {to}: {why}", done.left);
            lines.extend(self.trouble(text, Some(decision.action.vm()), why));
        }
        let key = (decision.action.vm().clone(), decision.action.client(), to);
        match self.moving.get_mut(&key) {
            None => {
                lines.push(Line::news(&format!("{who}: {} ({} moved)", did(decision, &NodeSet::new()), done.moved)));
                let moving = Moving { since: at, told: at, seen: at, moved: done.moved, first: done.moved };
                self.moving.insert(key, moving);
            }
            Some(moving) => {
                moving.moved = moving.moved.saturating_add(done.moved);
                moving.seen = at;
                if at.0.saturating_sub(moving.told.0) >= MEMORY_EVERY_MS {
                    moving.told = at;
                    let seconds = at.0.saturating_sub(moving.since.0) / 1000;
                    let text = format!("{who}: {} of memory moved to node {to} in {seconds} s, going on", moving.moved);
                    lines.push(Line::news(&text));
                }
            }
        }
    }

    /// Memory that was being moved and was not in this period.
    fn finished(&mut self, at: Moment, lines: &mut Vec<Line>) {
        self.moving.retain(|(vm, _, to), moving| {
            if moving.seen == at {
                return true;
            }
            if moving.moved > moving.first {
                let seconds = moving.seen.0.saturating_sub(moving.since.0) / 1000;
                let moved = moving.moved;
                lines.push(Line::news(&format!("VM {}: {moved} of memory moved to node {to} in {seconds} s", vm.name)));
            }
            false
        });
    }

    /// A line for a cause that was not told of yet. Figures in it do not make it another cause.
    fn trouble(&mut self, text: String, vm: Option<&VmKey>, cause: &str) -> Option<Line> {
        let whose = vm.map_or_else(String::new, |vm| format!("{} {}", vm.name, vm.pid));
        let words: Vec<&str> = cause.split(|c: char| c.is_ascii_digit()).filter(|words| !words.is_empty()).collect();
        let key = format!("{whose}: {}", words.join("#"));
        if let Some(known) = self.causes.get_mut(&key) {
            known.again += 1;
            return None;
        }
        if self.causes.len() >= MOST_CAUSES {
            self.causes.clear();
        }
        let line = Line::trouble(&text);
        self.causes.insert(key, Cause { text, again: 0 });
        Some(line)
    }
}

fn who(decision: &Decision, wide: bool) -> String {
    let name = &decision.action.vm().name;
    if wide { format!("VM {name}, client {}", decision.action.client().0) } else { format!("VM {name}") }
}

fn essence(decision: &Decision) -> String {
    match &decision.action {
        Action::Bind { home, groups, .. } => {
            let groups: String = groups.iter().map(|group| format!(" {}", group.cpus)).collect();
            format!("{:?} {home}{groups}", decision.kind)
        }
        Action::MoveMemory { from, to, .. } => format!("{:?} {from} {to}", decision.kind),
    }
}

/// A move in the administrator's words.
fn words(kind: MoveKind) -> &'static str {
    match kind {
        MoveKind::Adopt => "gets a home",
        MoveKind::Load => "load move",
        MoveKind::LoadSwap => "load swap",
        MoveKind::Locality => "locality move",
        MoveKind::LocalitySwap => "locality swap",
        MoveKind::Bandwidth => "bandwidth move",
        MoveKind::Fairness => "fairness move",
        MoveKind::Evacuate => "evacuation",
        MoveKind::Cache => "cache move",
        MoveKind::Follow => "memory follows",
    }
}

fn did(decision: &Decision, from: &NodeSet) -> String {
    let Decision { action, kind, because } = decision;
    match action {
        Action::Bind { home, .. } if *kind == MoveKind::Cache => {
            format!("{} on {}: {because}", words(*kind), named("node", home))
        }
        // A VM that floats comes from nowhere.
        Action::Bind { home, .. } if from.is_empty() => {
            format!("{}, {}: {because}", words(*kind), named("node", home))
        }
        Action::Bind { home, .. } => {
            format!("{}, {} -> {}: {because}", words(*kind), named("node", from), named("node", home))
        }
        Action::MoveMemory { from, to, .. } => format!("{}, node {from} -> node {to}: {because}", words(*kind)),
    }
}

/// A decision as a sentence: who, what, where to, why.
pub fn sentence(decision: &Decision) -> String {
    let Decision { action, kind, because } = decision;
    let who = who(decision, action.client() != ClientId(0));
    match action {
        Action::Bind { .. } if *kind == MoveKind::Cache => format!("{who}: {}", did(decision, &NodeSet::new())),
        Action::Bind { home, .. } => format!("{who}: {}, -> {}: {because}", words(*kind), named("node", home)),
        Action::MoveMemory { .. } => format!("{who}: {}", did(decision, &NodeSet::new())),
    }
}

fn planned(decision: &Decision, from: &NodeSet) -> String {
    format!("would do: {}", did(decision, from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bind, vm};
    use scheduler::TrafficMeter;

    fn period(at_seconds: u64, events: Vec<Event>) -> Period {
        Period { at: Moment(at_seconds * 1000), nodes: 2, vms: 1, traffic_meter: None, events }
    }

    fn acted(decision: Decision, outcome: Outcome) -> Event {
        Event::Acted { decision, from: "0-1".parse().unwrap(), wide: false, outcome }
    }

    fn follow(moved_mib: u64, left_mib: u64) -> Event {
        follow_to(1, moved_mib, left_mib)
    }

    fn follow_to(node: u32, moved_mib: u64, left_mib: u64) -> Event {
        let action = Action::MoveMemory {
            vm: vm(1),
            client: ClientId(0),
            from: NodeId(0),
            to: NodeId(node),
            at_most: Bytes::from_mib(64),
        };
        let decision = Decision { action, kind: MoveKind::Follow, because: "200 MiB are away".into() };
        let because = (left_mib > 0).then(|| format!("{left_mib} MiB are pinned"));
        let done = Done { moved: Bytes::from_mib(moved_mib), left: Bytes::from_mib(left_mib), because };
        acted(decision, Outcome::Done(done))
    }

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_host_is_told_once_and_a_move_with_where_and_why() {
        let mut telling = Telling::default();
        let first = period(0, vec![Event::Appeared { vm: vm(1) }]);
        assert_eq!(texts(&telling.period(&first)), ["balancing 1 VM on 2 NUMA nodes"]);
        let done = acted(bind(vm(1), "1", "2-3"), Outcome::Done(Done::default()));
        let second = period(2, vec![Event::Appeared { vm: vm(2) }, done, Event::Ended { vm: vm(2) }]);
        let lines = telling.period(&second);
        let expected =
            ["VM vm2 appeared: process 2", "VM vm1: gets a home, nodes 0-1 -> node 1: it is new", "VM vm2 ended"];
        assert_eq!(texts(&lines), expected);
        let one = Period { nodes: 1, ..period(4, Vec::new()) };
        assert!(telling.period(&one)[0].text.contains("one NUMA node"));
        assert_eq!(telling.period(&one), []);
    }

    #[test]
    fn what_counts_traffic_is_said_once_and_what_it_misses_when_it_is_new() {
        let mut telling = Telling::default();
        let mut said = |nodes, source, notes: &[&str]| {
            let notes = notes.iter().map(|note| (*note).to_owned()).collect();
            let period = Period { nodes, traffic_meter: Some(TrafficMeter { source, notes }), ..period(0, Vec::new()) };
            telling.period(&period).into_iter().map(|line| line.text).filter(|text| !text.contains("NUMA")).collect()
        };
        let none: Vec<String> = said(1, None, &["resctrl is not mounted"]);
        assert_eq!(none, Vec::<String>::new());
        let first: Vec<String> = said(2, None, &["resctrl is not mounted"]);
        assert_eq!(first, ["memory traffic is not counted", "resctrl is not mounted"]);
        let resctrl = Some(scheduler::TrafficSource::Resctrl);
        assert_eq!(said(2, resctrl, &[]), ["memory traffic is counted by resctrl"]);
        assert_eq!(said(2, resctrl, &["of vm9 is unknown"]), ["of vm9 is unknown"]);
        assert_eq!(said(2, resctrl, &["of vm9 is unknown"]), Vec::<String>::new());
    }

    #[test]
    fn what_is_to_be_said_of_a_binding_is_said_once() {
        let mut telling = Telling::default();
        let done = Done { because: Some("its manager does not know".into()), ..Done::default() };
        let bound = |at| period(at, vec![acted(bind(vm(1), "1", "2-3"), Outcome::Done(done.clone()))]);
        let lines = telling.period(&bound(0));
        assert_eq!(texts(&lines)[2], "VM vm1: its manager does not know");
        assert!(lines[2].trouble && !lines[1].trouble);
        assert_eq!(telling.period(&bound(2)).len(), 1);
    }

    #[test]
    fn a_cause_is_told_once_whatever_its_figures_and_counted() {
        let mut telling = Telling::default();
        let failed = |vm: VmKey, pages: u32| {
            let reason = format!("{pages} pages were left");
            let error = ActionError::Failed { vm: vm.name.clone(), operation: "move memory".into(), reason };
            acted(bind(vm, "1", "2-3"), Outcome::Failed(error))
        };
        let first = period(0, vec![failed(vm(1), 5), failed(vm(2), 5)]);
        let trouble = |lines: Vec<Line>| lines.into_iter().filter(|line| line.trouble).count();
        assert_eq!(trouble(telling.period(&first)), 2);
        for seconds in 1..5 {
            assert_eq!(trouble(telling.period(&period(seconds, vec![failed(vm(1), seconds as u32)]))), 0);
        }
        let summary = telling.summary();
        assert_eq!(summary.len(), 1);
        assert!(summary[0].text.starts_with("4 more times: VM vm1: move memory"), "{summary:?}");
    }

    #[test]
    fn memory_that_follows_for_a_minute_is_four_lines() {
        let mut telling = Telling::default();
        let mut lines = Vec::new();
        // 31 periods of 2 s, from 0 s to 60 s, 10 MiB each.
        for seconds in (0..=60).step_by(2) {
            lines.extend(telling.period(&period(seconds, vec![follow(10, 0)])));
        }
        lines.extend(telling.period(&period(62, Vec::new())));
        let expected = [
            "balancing 1 VM on 2 NUMA nodes",
            "VM vm1: memory follows, node 0 -> node 1: 200 MiB are away (10 MiB moved)",
            "VM vm1: 160 MiB of memory moved to node 1 in 30 s, going on",
            "VM vm1: 310 MiB of memory moved to node 1 in 60 s, going on",
            "VM vm1: 310 MiB of memory moved to node 1 in 60 s",
        ];
        assert_eq!(texts(&lines), expected);
    }

    #[test]
    fn memory_that_went_on_to_another_node_is_not_counted_as_more_memory() {
        // A VM of 64 MiB: 40 and 24 MiB go to node 1, then 40 and 24 MiB on to node 2. Nobody moved
        // 128 MiB to node 2.
        let mut telling = Telling::default();
        let mut lines = Vec::new();
        for (seconds, node, mib) in [(0, 1, 40), (2, 1, 24), (4, 2, 40), (6, 2, 24)] {
            lines.extend(telling.period(&period(seconds, vec![follow_to(node, mib, 0)])));
        }
        lines.extend(telling.period(&period(8, Vec::new())));
        let ends =
            ["VM vm1: 64 MiB of memory moved to node 1 in 2 s", "VM vm1: 64 MiB of memory moved to node 2 in 2 s"];
        let sums: Vec<&str> =
            texts(&lines).into_iter().filter(|line| line.contains(" s") && line.contains(" in ")).collect();
        assert_eq!(sums, ends);
    }

    #[test]
    fn memory_that_would_not_move_is_told_with_its_cause() {
        let mut telling = Telling::default();
        let lines = telling.period(&period(0, vec![follow(10, 7), follow(10, 8)]));
        let trouble: Vec<&Line> = lines.iter().filter(|line| line.trouble).collect();
        assert_eq!(trouble.len(), 1);
        assert!(trouble[0].text.contains("7 MiB of memory would not move to node 1: 7 MiB are pinned"));
    }

    #[test]
    fn a_plan_that_stays_the_same_is_told_once() {
        let mut telling = Telling::default();
        let plan = |home, cpus| period(0, vec![acted(bind(vm(1), home, cpus), Outcome::Planned)]);
        assert!(telling.period(&plan("1", "2-3")).last().unwrap().text.contains("would do: gets a home"));
        assert_eq!(telling.period(&plan("1", "2-3")), []);
        assert_eq!(telling.period(&plan("0", "0-1")).len(), 1);
    }
}
