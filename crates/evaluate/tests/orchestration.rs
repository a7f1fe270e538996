//! The whole orchestration against a scripted host.

use crate::scripted::{Script, ScriptedWorld, resolved};
use evaluate::RunError;
use evaluate::journal::{self, Journal};
use evaluate::progress::Silent;
use evaluate::records::{Clock, Record};
use evaluate::resolve::Resolved;
use evaluate::runner::Runner;
use evaluate::summary::{State, summarise};
use evaluate::{estimate, results, tables, text};
use std::path::Path;
use std::sync::atomic::AtomicBool;

const EXPERIMENT: &str = r#"
name = "test"
title = "Scripted"
workload = "stream"
threads = [1, 2]
repetitions = 3
rounds = 2
[stream]
elements = 1_000_000
[limits]
boot_seconds = 1
repetition_seconds = 1
repeat_disturbed = 1
quiet_seconds = 0
[[configuration]]
name = "native"
runs = "native"
[[configuration]]
name = "one VM per node"
runs = "vms"
vms = "per_node"
[[published]]
configuration = "native"
title = "A machine"
source = "A paper"
threads = [1, 4]
figure = [
    { quantity = "Copy", unit = "MB/s", values = [6388, 20473] },
    { quantity = "Triad", unit = "MB/s", values = [6617, 21058] },
]
[[published]]
configuration = "one VM per node"
title = "A machine, 2 VMs"
source = "A paper"
threads = [4]
figure = [{ quantity = "Copy", unit = "MB/s", values = [22526] }]
"#;

fn session(resolved: &Resolved, world: &mut ScriptedWorld, path: &Path) -> (Result<(), RunError>, Vec<Record>) {
    let before = if path.exists() { journal::recover(path).expect("records").records } else { Vec::new() };
    let mut journal = Journal::open(path).expect("a journal");
    let cancelled = AtomicBool::new(false);
    let visits = results::remaining(resolved, &before);
    let next = results::next_job(&before);
    let outcome = Runner::new(resolved, world, &mut journal, &mut Silent, &cancelled, next).run(&visits);
    (outcome, journal::recover(path).expect("records").records)
}

fn visits_in(records: &[Record]) -> Vec<(String, String, u32)> {
    let visit = |record: &Record| match record {
        Record::Visit { configuration, point, round, .. } => Some((configuration.clone(), point.to_string(), *round)),
        _ => None,
    };
    records.iter().filter_map(visit).collect()
}

#[test]
fn configurations_take_turns_and_the_tables_are_laid_out_like_the_article() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script::default());
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let order: Vec<String> = visits_in(&records).into_iter().map(|visit| format!("{} {}", visit.0, visit.1)).collect();
    assert_eq!(
        order,
        [
            "native 1 thread",
            "native 1 thread",
            "native 2 threads",
            "one VM per node 2 threads",
            "one VM per node 2 threads",
            "native 2 threads"
        ]
    );
    let log = &world.script.borrow().log;
    let starts = log.iter().filter(|line| line.starts_with("start")).count();
    let stops = log.iter().filter(|line| line.starts_with("stop")).count();
    assert_eq!((starts, stops), (3, 3), "{log:?}");

    let summary = summarise(&resolved, &records);
    assert!(summary.complete);
    // Native, 1 thread: the second of a job's repetitions is the best that counts: 1000 MB/s / 1.01
    // = 990.1.
    let cell = &summary.configurations[0].cells[0];
    assert!((cell.figures[0].best - 1000.0 / 1.01).abs() < 0.1, "{cell:?}");
    assert_eq!(cell.counted, 4, "two of three repetitions, two rounds");
    let mut steady = summary.clone();
    for cell in steady.configurations.iter_mut().flat_map(|configuration| &mut configuration.cells) {
        // How long the test's own process took between two answers is not to be compared.
        cell.overlap = cell.overlap.map(|_| (1.0, 0.9));
    }
    insta::assert_snapshot!("tables", text::render(&steady, &tables::all(&resolved, &steady), None));
}

#[test]
fn a_disturbed_repetition_is_rejected_and_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    // The second repetition of the first job: others take half a CPU. It is repeated by a job of
    // two.
    let script = Script { others: [0.0, 0.5, 0.0].into(), ..Script::default() };
    let mut world = ScriptedWorld::new(script);
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let summary = summarise(&resolved, &records);
    let cell = &summary.configurations[0].cells[0];
    // Round 0: 1 of 2 counts, and 1 of the repeated; round 1: 2.
    assert_eq!((cell.counted, cell.rejected, cell.state), (4, 1, State::Measured));
}

#[test]
fn a_cell_whose_every_repetition_is_disturbed_is_marked() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let script = Script { others: vec![1.0; 1000].into(), ..Script::default() };
    let mut world = ScriptedWorld::new(script);
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let summary = summarise(&resolved, &records);
    assert!(summary.configurations.iter().flat_map(|c| &c.cells).all(|cell| cell.state == State::Disturbed));
    let text = text::render(&summary, &tables::all(&resolved, &summary), None);
    assert!(text.contains("990 ~") && text.contains("every repetition was disturbed"), "{text}");
}

#[test]
fn a_switch_that_nobody_counted_is_not_one_that_carried_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script { uncounted: true, ..Script::default() });
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs: figures are figures");
    let why = |record: &Record| match record {
        Record::Visit { uncounted, .. } => uncounted.clone(),
        _ => None,
    };
    let reasons: Vec<String> = records.iter().filter_map(why).collect();
    assert_eq!(reasons.len(), visits_in(&records).len(), "each visit says it");
    let summary = summarise(&resolved, &records);
    let text = text::render(&summary, &tables::all(&resolved, &summary), None);
    let row = text.lines().find(|line| line.contains("not counted ")).expect("a row").to_owned();
    assert!(row.contains("native"), "{row}");
    assert!(text.contains("not counted in each visit: lan: the keeper is gone"), "{text}");
}

#[test]
fn a_wrong_result_has_no_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script { wrong: true, ..Script::default() });
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let summary = summarise(&resolved, &records);
    assert!(summary.configurations.iter().flat_map(|c| &c.cells).all(|cell| cell.figures.is_empty()));
    let text = text::render(&summary, &tables::all(&resolved, &summary), None);
    assert!(text.contains("wrong") && !text.contains("990"), "{text}");
}

#[test]
fn a_vm_that_dies_ends_all_others_and_resuming_repeats_only_what_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("records.jsonl");
    let resolved = resolved(EXPERIMENT);
    let script = Script { dies: Some(("test-1-1".to_owned(), 5)), ..Script::default() };
    let mut world = ScriptedWorld::new(script);
    let (outcome, records) = session(&resolved, &mut world, &path);
    let error = outcome.expect_err("a VM died");
    let message = error.to_string();
    assert!(matches!(error, RunError::Died { .. }), "{message}");
    assert!(message.contains("test-1-1") && message.contains("signal 9") && message.contains("Booting"), "{message}");
    let log = world.script.borrow().log.join(",");
    assert_eq!(log.matches("start").count(), log.matches("stop").count(), "{log}");
    let kept = visits_in(&records);
    assert_eq!(kept.len(), 4);
    assert!(!summarise(&resolved, &records).complete);

    let mut world = ScriptedWorld::new(Script::default());
    let (outcome, records) = session(&resolved, &mut world, &path);
    outcome.expect("it runs");
    let all = visits_in(&records);
    assert_eq!(all.len(), 6);
    assert_eq!(all[..4], kept);
    let summary = summarise(&resolved, &records);
    assert!(summary.complete);
    // The repetitions of the job that never ended are not counted: its result was never verified.
    assert!(summary.configurations.iter().flat_map(|c| &c.cells).all(|cell| cell.counted == 4));
}

#[test]
fn a_guest_that_starts_again_is_not_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = Script { restarts: Some(("test-1-1".to_owned(), 2)), ..Script::default() };
    let mut world = ScriptedWorld::new(script);
    let path = directory.path().join("records.jsonl");
    let message = session(&resolved(EXPERIMENT), &mut world, &path).0.expect_err("it knows of no job").to_string();
    assert!(message.contains("test-1-1: it ended") && message.contains("has started again"), "{message}");
}

#[test]
fn a_guests_clock_that_runs_fast_is_told_under_emulation_alone() {
    // The script's participants say that they took seconds, and answer at once.
    for emulated in [true, false] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut resolved = resolved(EXPERIMENT);
        resolved.emulated = emulated;
        let mut world = ScriptedWorld::new(Script::default());
        let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
        outcome.expect("it runs");
        let summary = summarise(&resolved, &records);
        let text = text::render(&summary, &tables::all(&resolved, &summary), None);
        assert_eq!(text.matches("WRONG TIMES").count(), usize::from(emulated), "{text}");
        assert!(summary.native().is_none_or(|native| native.cells.iter().all(|cell| cell.guest_clock.is_none())));
    }
}

#[test]
fn a_guests_clock_that_runs_slow_is_told_under_emulation_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script::default());
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    for (speed, emulated, is_told) in [(0.5, true, true), (1.0, true, false), (0.5, false, false)] {
        resolved.emulated = emulated;
        let mut records = records.clone();
        let mut begun = 0.0;
        for record in &mut records {
            let Record::Repetition(repetition) = record else { continue };
            // One a minute, each answered after a second.
            begun += 60.0;
            let clock = Clock { own_seconds: speed * begun, asked_seconds: begun, heard_seconds: begun + 1.0 };
            repetition.clocks = vec![clock; repetition.participants.len()];
        }
        let summary = summarise(&resolved, &records);
        let text = text::render(&summary, &tables::all(&resolved, &summary), None);
        // 30 s of its own in the 59 s, and more, that passed at least.
        assert_eq!(text.contains("ran only 0.5"), is_told, "{speed}: {text}");
        assert_eq!(text.contains("too short, and rates too high"), is_told, "{text}");
    }
}

#[test]
fn a_vm_that_hangs_in_boot_is_ended_after_a_time_out_with_its_console() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script { hangs: Some("test-1-0".to_owned()), ..Script::default() });
    let (outcome, _) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    let message = outcome.expect_err("a VM hangs").to_string();
    assert!(message.contains("test-1-0: no first line within 1 s"), "{message}");
    assert!(message.contains("Booting the kernel."), "{message}");
}

#[test]
fn a_guest_that_never_stops_talking_is_ended_in_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script { floods: Some("test-1-0".to_owned()), ..Script::default() });
    let (outcome, _) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    let message = outcome.expect_err("a VM says nothing that is wanted").to_string();
    assert!(message.contains("test-1-0: no first line within 1 s"), "{message}");
}

#[test]
fn all_participants_are_told_to_go_before_any_is_waited_for() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script::default());
    session(&resolved, &mut world, &directory.path().join("records.jsonl")).0.expect("it runs");
    let log = &world.script.borrow().log;
    let goes: Vec<&String> = log.iter().filter(|line| line.starts_with("go test")).collect();
    assert!(goes.chunks(2).all(|pair| pair[0] == "go test-1-0" && pair[1] == "go test-1-1"), "{goes:?}");
}

#[test]
fn an_interrupted_session_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = resolved(EXPERIMENT);
    let mut world = ScriptedWorld::new(Script::default());
    let mut journal = Journal::open(&directory.path().join("records.jsonl")).expect("a journal");
    let cancelled = AtomicBool::new(true);
    let visits = estimate::visits(&resolved);
    let outcome = Runner::new(&resolved, &mut world, &mut journal, &mut Silent, &cancelled, 1).run(&visits);
    assert!(matches!(outcome, Err(RunError::Interrupted)));
    drop(world);
}

#[test]
fn a_numa_matrix_has_a_field_for_each_pair_of_nodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let experiment = "name = \"matrix\"\ntitle = \"Matrix\"\nworkload = \"numa_matrix\"\nrounds = 1\nrepetitions = 2\n\
        [stream]\nelements = 1000000\n[[configuration]]\nname = \"native\"\nruns = \"native\"\n";
    let resolved = resolved(experiment);
    let mut world = ScriptedWorld::new(Script::default());
    let (outcome, records) = session(&resolved, &mut world, &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let summary = summarise(&resolved, &records);
    insta::assert_snapshot!("matrix", text::render(&summary, &tables::all(&resolved, &summary)[..2], None));
}
