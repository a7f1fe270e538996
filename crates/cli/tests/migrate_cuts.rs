//! Migrations that are cut: whoever is killed, and whenever, exactly one guest is left.
//!
//! A moment is a word of what the two homenodes say to each other ([`Taps`]), or a file that one of
//! them writes between two words. Half of the cuts are made while that word is held up, so that
//! nobody can come further; the others soon after it.

use crate::common::kept_vm::Drawn;
use crate::common::taps::{Hold, Taps};
use crate::common::within_seconds;
use crate::migrate::Hosts;
use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use vm::life::State;

/// How far a migration has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The source has said what it has.
    Offer,
    /// The destination holds a place, and builds a QEMU.
    Planned,
    /// That QEMU waits.
    Built,
    /// Both machines are the same.
    Compared,
    /// The memory goes.
    Sending,
    /// All is there; the source has not written yet that it hands over.
    Completed,
    /// The source has said `go`.
    HandedOver,
    /// The destination has written that it takes over.
    Decided,
    /// The destination has said that it runs.
    Runs,
    /// The source has ended its own.
    Ended,
}

use Phase::{Built, Compared, Completed, Decided, Ended, HandedOver, Offer, Planned, Runs, Sending};

const PHASES: [Phase; 10] = [Offer, Planned, Built, Compared, Sending, Completed, HandedOver, Decided, Runs, Ended];

impl Phase {
    /// The word with which it begins; `None` where a file tells it.
    fn word(self) -> Option<&'static str> {
        match self {
            Offer => Some("offer"),
            Planned => Some("planned"),
            Built => Some("built"),
            Compared => Some("listen"),
            Sending => Some("receives"),
            HandedOver => Some("go"),
            Runs => Some("runs"),
            Ended => Some("gone"),
            Completed | Decided => None,
        }
    }
}

/// What is done to a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    SourceHomenode,
    DestinationHomenode,
    BothHomenodes,
    /// The connection over which the two homenodes talk.
    ControlLink,
    /// The one over which the guest goes; one of them, where it goes over several.
    DataLink,
    SourceQemu,
    DestinationQemu,
    CtrlC,
    Timeout,
}

use Cut::{
    BothHomenodes, ControlLink, CtrlC, DataLink, DestinationHomenode, DestinationQemu, SourceHomenode, SourceQemu,
    Timeout,
};

/// Which of them there are at a moment.
fn cuts_at(phase: Phase) -> Vec<Cut> {
    let mut cuts = vec![SourceHomenode, DestinationHomenode, BothHomenodes, ControlLink, SourceQemu, CtrlC];
    if phase >= Built {
        cuts.push(DestinationQemu);
    }
    if (Sending..=HandedOver).contains(&phase) {
        cuts.push(DataLink);
    }
    if phase <= Sending {
        cuts.push(Timeout);
    }
    cuts
}

/// A round that takes longer is printed: somebody waited for a time to be over.
const SLOW: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_millis(700);

/// One migration that is cut.
#[derive(Clone, Copy, Debug)]
struct Round {
    phase: Phase,
    cut: Cut,
    /// Whether the word is held up until the cut is made.
    held: bool,
    /// Between the word and the cut.
    after: Duration,
    /// Whether its owner had paused the VM.
    paused: bool,
}

impl Round {
    /// Phases in turn, so that each has its share; the rest is drawn.
    fn draw(number: usize, drawn: &mut Drawn) -> Self {
        let phase = PHASES[number % PHASES.len()];
        let cuts = cuts_at(phase);
        let cut = cuts[drawn.below(cuts.len() as u64) as usize];
        let held = phase.word().is_some() && (drawn.below(2) == 0 || cut == Timeout);
        let after = Duration::from_micros(if held { 0 } else { drawn.below(20_000) });
        // Between the two files of a moment are a few milliseconds.
        let after = if phase.word().is_none() { after / 10 } else { after };
        Self { phase, cut, held, after, paused: drawn.below(4) == 0 }
    }
}

/// Whether these are the arguments of the homenode that a VM comes to.
fn receives(words: &[String]) -> bool {
    words.get(2).is_some_and(|word| word == "receive")
}

fn kill(pid: u32, signal: i32) -> bool {
    linux::sys::send_signal(pid, signal).is_ok()
}

fn kill_all(pids: Vec<u32>) -> bool {
    pids.into_iter().filter(|&pid| kill(pid, libc::SIGKILL)).count() > 0
}

impl Hosts {
    pub(crate) fn taps(&self) -> Taps {
        let directory = self.0.place.path("taps");
        std::fs::create_dir_all(&directory).expect("a directory");
        let taps = Taps::new(&directory);
        for host in ["a", "b"] {
            let script = self.0.place.path(&format!("to-{host}"));
            taps.write_script(&script, env!("CARGO_BIN_EXE_homenode"), &self.runtime(host));
        }
        taps
    }

    /// Whether a process was given this host's directory.
    fn of_host(&self, host: &str, pid: u32) -> bool {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let wanted = format!("HOMENODE_RUNTIME_DIR={}", self.runtime(host).display());
        variables.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    pub(crate) fn receivers(&self, host: &str, carries: bool) -> Vec<u32> {
        let is_one = |words: &[String]| receives(words) && words.iter().any(|word| word == "--data") == carries;
        self.processes(is_one).into_iter().filter(|&pid| self.of_host(host, pid)).collect()
    }

    /// The QEMU of a host: the one whose directory it has open.
    fn qemus_of(&self, host: &str) -> Vec<u32> {
        let runtime = self.runtime(host);
        let ours = [runtime.join(self.vm()), runtime.join(format!("{}+arriving", self.vm()))];
        let holds = |pid: &u32| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|target| ours.contains(&target))
        };
        self.qemus().into_iter().filter(holds).collect()
    }

    pub(crate) fn migrate(&self, from: &str, more: &[&str]) -> Child {
        let to = if from == "a" { "b" } else { "a" };
        let arguments = [&["vm", "migrate", self.vm(), "--to", to, "--shared-storage"], more].concat();
        let errors = File::create(self.0.place.path("errors")).expect("a file");
        self.homenode(from, &arguments).stdout(Stdio::null()).stderr(errors).spawn().expect("homenode")
    }

    /// Waits until a migration has come so far; false where it has ended before.
    fn comes_to(&self, phase: Phase, taps: &Taps, migrate: &mut Child, from: &str, to: &str) -> bool {
        let draft = self.inventory(from).path().join(self.vm()).join(format!("life.json.{}", migrate.id()));
        let arriving = self.runtime(to).join(format!("{}+arriving/state.json", self.vm()));
        let said = |word: &str| taps.said().iter().any(|said| said == word);
        let is_so = || match phase {
            // Its life is written next where it hands over.
            Completed => said("receives") && draft.exists(),
            Decided => std::fs::read_to_string(&arriving).is_ok_and(|state| state.contains("taking_over")),
            _ => phase.word().is_some_and(said),
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            if migrate.try_wait().expect("a child").is_some() {
                return is_so();
            }
            assert!(Instant::now() < deadline, "it never came to {phase:?}: {:?}", taps.said());
        }
        true
    }

    /// Makes the cut; false where there was nothing to cut.
    fn cut(&self, cut: Cut, taps: &Taps, migrate: u32, (from, to): (&str, &str)) -> bool {
        match cut {
            Timeout => true,
            CtrlC => kill(migrate, libc::SIGINT),
            SourceHomenode => kill(migrate, libc::SIGKILL),
            DestinationHomenode => kill_all(self.receivers(to, false)),
            BothHomenodes => {
                let there = self.receivers(to, false);
                kill(migrate, libc::SIGKILL) & kill_all(there)
            }
            ControlLink => kill_all(taps.link()),
            DataLink => kill_all(self.receivers(to, true).into_iter().rev().take(1).collect()),
            SourceQemu => kill_all(self.qemus_of(from)),
            DestinationQemu => kill_all(self.qemus_of(to)),
        }
    }

    /// After a cut: what homenode is asked to settle is settled, and exactly one guest is there, as
    /// its owner had it. A QEMU that was killed takes its guest along, where that was in no other,
    /// as at any time: then it is started anew.
    fn settled(&self, round: &Round, at_destination_first: bool, what: &str) {
        let hosts = if self.state("b").is_some() && at_destination_first { ["b", "a"] } else { ["a", "b"] };
        for host in hosts {
            // What a killed homenode left goes at the next look, which says what to type.
            let said = self.says(host, &["vm", "list"], 0);
            let state = self.state(host);
            let is_cut = state == Some(State::MigratingOut) || state == Some(State::MigratingIn);
            assert_eq!(is_cut, said.contains("--resolve"), "{what}: {state:?}: {said}");
            if state == Some(State::MigratingOut) || (is_cut && at_destination_first) {
                let shown = self.says(host, &["vm", "show", self.vm()], 0);
                assert!(shown.contains("--resolve"), "{what}: {shown}");
                let resolve = self.homenode(host, &["vm", "migrate", self.vm(), "--resolve"]).output();
                let resolve = resolve.expect("homenode");
                let said = String::from_utf8_lossy(&resolve.stderr).into_owned();
                let is_lost = said.contains("it is lost, and can be started anew") && round.cut == SourceQemu;
                assert!(resolve.status.success() || is_lost, "{what}: {said}");
            }
        }
        for host in ["a", "b"] {
            self.says(host, &["vm", "list"], 0);
        }
        let may_be_lost = matches!(round.cut, DestinationQemu | SourceQemu);
        let mut paused = round.paused;
        if may_be_lost && self.qemus().is_empty() {
            let lost = |host: &str| self.state(host) == Some(State::Lost);
            let states = [self.state("a"), self.state("b")];
            assert!(lost("a") != lost("b") && states.contains(&None), "{what}: {states:?}");
            self.says(if lost("a") { "a" } else { "b" }, &["vm", "start", self.vm()], 0);
            paused = false;
        }
        let (runs, states) = ([self.runs("a"), self.runs("b")], [self.state("a"), self.state("b")]);
        let state = if paused { State::Paused } else { State::Running };
        let at = |host: usize| (runs[host], states[host]) == (Some(!paused), Some(state));
        let not_at = |host: usize| (runs[host], states[host]) == (None, None);
        assert!((at(0) && not_at(1)) || (not_at(0) && at(1)), "{what}: {runs:?} {states:?}");
        assert!(within_seconds(10, || self.qemus().len() == 1), "{what}: {} QEMUs", self.qemus().len());
        let mut left = [self.left("a"), self.left("b")].concat();
        // A receipt that nobody asked for any more may stay: it is a word of a few bytes.
        left.retain(|name| name != ".receipts");
        assert_eq!(left, [""; 0], "{what}");
        if paused {
            self.says(if at(0) { "a" } else { "b" }, &["vm", "continue", self.vm()], 0);
        }
    }

    /// Cuts one migration; says at which phase, where it was cut.
    fn round(
        &self,
        (round, more): (&Round, &[&str]),
        taps: &Taps,
        at_destination_first: bool,
        what: &str,
    ) -> Option<Phase> {
        let (from, to) = if self.state("a").is_some() { ("a", "b") } else { ("b", "a") };
        if round.paused {
            self.says(from, &["vm", "pause", self.vm()], 0);
        }
        taps.clear();
        let hold: Option<Hold> = round.phase.word().filter(|_| round.held).map(|word| taps.hold(word));
        let seconds = TIMEOUT.as_secs_f64().to_string();
        let timeout = if round.cut == Timeout { &["--timeout", &seconds][..] } else { &[] };
        let mut migrate = self.migrate(from, &[timeout, more].concat());
        let mut was_cut = false;
        if self.comes_to(round.phase, taps, &mut migrate, from, to) || round.cut == Timeout {
            sleep(if round.cut == Timeout { TIMEOUT } else { round.after });
            was_cut = self.cut(round.cut, taps, migrate.id(), (from, to));
        }
        let said = taps.said();
        drop(hold);
        let ended = migrate.wait().expect("the end");
        let gone = || ["a", "b"].iter().all(|host| [true, false].iter().all(|&c| self.receivers(host, c).is_empty()));
        let errors = std::fs::read_to_string(self.0.place.path("errors")).unwrap_or_default();
        let what = format!("{what}, from {from}: {round:?}; {said:?}; {ended}: {errors}");
        // A destination whose source was killed notices that by itself.
        assert!(within_seconds(60, gone), "{what}: a destination stays");
        self.settled(round, at_destination_first, &what);
        let came = |phase: &Phase| phase.word().is_some_and(|word| said.iter().any(|said| said == word));
        let furthest = PHASES.into_iter().rfind(came);
        was_cut.then_some(furthest.max((round.phase.word().is_none()).then_some(round.phase))).flatten()
    }
}

/// Cuts so many migrations that have these arguments too, and says how many at each phase.
fn cuts(test: &str, hosts: Option<Hosts>, (seed, times): (u64, usize), more: &[&str]) {
    let Some(hosts) = hosts else { return };
    let taps = hosts.taps();
    let (mut drawn, mut count, mut number) = (Drawn(seed), BTreeMap::<Phase, usize>::new(), 0);
    // Some end before they are cut.
    while count.values().sum::<usize>() < times {
        assert!(number < 3 * times, "of {number} too few were cut: {count:?}");
        let round = Round::draw(number, &mut drawn);
        let at_destination_first = drawn.below(3) == 0;
        let what = format!("HOMENODE_SEED={seed}, round {number}");
        let began = Instant::now();
        if let Some(phase) = hosts.round((&round, more), &taps, at_destination_first, &what) {
            *count.entry(phase).or_default() += 1;
        }
        if began.elapsed() > SLOW {
            eprintln!("{what}: {round:?} took {:.1} s", began.elapsed().as_secs_f64());
        }
        number += 1;
    }
    eprintln!("{test}: seed {seed}, {number} migrations, cut at {count:?}");
    let missing: Vec<Phase> = PHASES.into_iter().filter(|phase| !count.contains_key(phase)).collect();
    assert!(times < 100 || missing.is_empty(), "none was cut at {missing:?}: {count:?}");
}

/// The seed of a run: `HOMENODE_SEED` draws other cuts.
fn seed(usual: u64) -> u64 {
    let named = std::env::var("HOMENODE_SEED").ok();
    named.map_or(usual, |named| named.parse().expect("HOMENODE_SEED is a number"))
}

#[test]
fn however_a_migration_is_cut_one_guest_runs() {
    const TEST: &str = "however_a_migration_is_cut_one_guest_runs";
    cuts(TEST, Hosts::with_vm(TEST, "migrate-cut"), (7, 6), &[]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn however_200_migrations_are_cut_one_guest_runs() {
    const TEST: &str = "however_200_migrations_are_cut_one_guest_runs";
    cuts(TEST, Hosts::with_vm(TEST, "migrate-cuts"), (seed(20_261_123), 200), &[]);
}

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn however_one_of_several_connections_is_cut_one_guest_runs() {
    const TEST: &str = "however_one_of_several_connections_is_cut_one_guest_runs";
    cuts(TEST, Hosts::with_the_newer_qemu(TEST, "migrate-cut-several"), (seed(3), 12), &["--connections", "3"]);
}
