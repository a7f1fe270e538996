//! `[until]`: rounds that go on until intervals are narrow, or the time is spent, against a
//! scripted host.

use crate::scripted::{Script, ScriptedWorld, resolved};
use evaluate::RunError;
use evaluate::journal::{self, Journal};
use evaluate::progress::Silent;
use evaluate::records::Record;
use evaluate::resolve::Resolved;
use evaluate::results;
use evaluate::runner::Runner;
use evaluate::summary::{Summary, summarise};
use evaluate::until::EndedBy;
use evaluate::{tables, text};
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn experiment(interval_percent: f64, at_most_minutes: f64) -> Resolved {
    resolved(&format!(
        "name = \"until\"\ntitle = \"Until\"\nworkload = \"stream\"\nthreads = [1, 2]\nrepetitions = 2\nrounds = 1\n\
         [until]\ninterval_percent = {interval_percent}\nat_most_minutes = {at_most_minutes}\n\
         [stream]\nelements = 1_000_000\n[limits]\nboot_seconds = 1\nrepetition_seconds = 1\n\
         [[configuration]]\nname = \"native\"\nruns = \"native\"\n\
         [[configuration]]\nname = \"VMs\"\nruns = \"vms\"\nvms = \"per_node\"\n"
    ))
}

/// A session that may continue an earlier one.
fn session(resolved: &Resolved, script: Script, path: &Path) -> (Result<(), RunError>, Summary, Vec<Record>) {
    let before = if path.exists() { journal::recover(path).expect("records").records } else { Vec::new() };
    let mut journal = Journal::open(path).expect("a journal");
    let mut world = ScriptedWorld::new(script);
    let never = AtomicBool::new(false);
    let mut silent = Silent;
    let runner = Runner::new(resolved, &mut world, &mut journal, &mut silent, &never, results::next_job(&before));
    let outcome = runner.run_while(|fresh| results::remaining(resolved, &[&before[..], fresh].concat()));
    let records = journal::recover(path).expect("records").records;
    (outcome, summarise(resolved, &records), records)
}

/// Rounds of each configuration and point, as they were visited.
fn visits(records: &[Record]) -> Vec<(String, u32, u32)> {
    let visit = |record: &Record| match record {
        Record::Visit { configuration, point, round, .. } => Some((configuration.clone(), point.threads, *round)),
        _ => None,
    };
    records.iter().filter_map(visit).collect()
}

fn noisy() -> Script {
    // Jobs differ by up to 1 %, in an order that looks random.
    Script { speed: Some(|job| 1.0 + 0.01 * ((job * 7919 % 101) as f64 / 101.0)), ..Script::default() }
}

#[test]
fn steady_ratios_end_after_the_fewest_rounds_and_the_table_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = experiment(3.0, 20.0);
    let (outcome, summary, records) = session(&resolved, Script::default(), &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let (native, vms) = ("native".to_owned(), "VMs".to_owned());
    // Rounds of everything, A B and B A; one thread cannot be shared by two VMs.
    assert_eq!(
        visits(&records)[..6],
        [
            (native.clone(), 1, 0),
            (native.clone(), 2, 0),
            (vms.clone(), 2, 0),
            (native.clone(), 1, 1),
            (vms, 2, 1),
            (native, 2, 1)
        ]
    );
    assert_eq!(visits(&records).len(), 12);
    let reached = summary.reached.as_ref().expect("until");
    assert_eq!((reached.ended_by, reached.rounds, summary.complete), (Some(EndedBy::Intervals), 4, true));
    let text = text::render(&summary, &tables::all(&resolved, &summary), None);
    assert!(text.contains("Rounds ended because the interval of each ratio is at most 3 % of it wide"), "{text}");
    assert!(text.contains("95 %"), "{text}");
}

#[test]
fn a_wide_interval_gets_more_rounds_where_it_is_wide() {
    let directory = tempfile::tempdir().expect("a directory");
    let (outcome, summary, records) = session(&experiment(0.8, 20.0), noisy(), &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    let reached = summary.reached.as_ref().expect("until");
    assert_eq!(reached.ended_by, Some(EndedBy::Intervals));
    assert!(reached.rounds > 4 && reached.widest.as_ref().is_some_and(|one| one.percent <= 0.8), "{reached:?}");
    // There is no ratio at one thread, so that nothing there is to be known better.
    let rounds =
        |threads: u32| visits(&records).iter().filter(|visit| visit.1 == threads && visit.0 == "native").count();
    assert_eq!((rounds(1), rounds(2)), (4, reached.rounds as usize));
}

#[test]
fn the_time_ends_it_and_the_first_round_is_always_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let resolved = experiment(0.001, 1e-9);
    let (outcome, summary, records) = session(&resolved, noisy(), &directory.path().join("records.jsonl"));
    outcome.expect("it runs");
    assert_eq!(visits(&records).len(), 3, "one round of both points");
    let reached = summary.reached.as_ref().expect("until");
    assert_eq!((reached.ended_by, reached.without, summary.complete), (Some(EndedBy::Time), 4, true));
    let text = text::render(&summary, &tables::all(&resolved, &summary), None);
    assert!(text.contains("min were spent") && text.contains("4 ratios have none yet"), "{text}");
}

#[test]
fn what_was_cut_short_is_continued_to_the_same_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("records.jsonl");
    let resolved = experiment(0.8, 20.0);
    let script = Script { dies: Some(("until-1-0".to_owned(), 9)), ..noisy() };
    let (outcome, summary, records) = session(&resolved, script, &path);
    assert!(outcome.is_err() && !summary.complete, "a VM died in its fifth visit");
    let kept = visits(&records);
    let (outcome, summary, records) = session(&resolved, noisy(), &path);
    outcome.expect("it runs");
    let all = visits(&records);
    assert!(summary.complete && all.len() > kept.len() && all[..kept.len()] == kept);
    let once: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(once.len(), all.len(), "no visit twice");
}
