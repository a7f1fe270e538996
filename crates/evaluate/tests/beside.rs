//! Measured, modelled and published figures of one experiment side by side: a scripted run is the
//! measured one.

use crate::scripted::{Script, ScriptedWorld, resolved};
use evaluate::charts;
#[allow(dead_code, reason = "each test program uses a part of the script")]
use evaluate::environment::Environment;
use evaluate::experiment::Experiment;
use evaluate::figure::Origin;
use evaluate::modelled::beside::{MeasuredRun, beside};
use evaluate::modelled::{Prediction, page};
use evaluate::progress::Silent;
use evaluate::results::Results;
use evaluate::tables::{self, Table};
use evaluate::{parse, session, validation::shipped};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use topology::read::{Described, shipped_described};

const EXPERIMENT: &str = r#"
name = "three"
title = "Three worlds"
workload = "stream"
machine = "hp-dl380-g6"
threads = [1, 2]
repetitions = 3
rounds = 1
[stream]
elements = 1_000_000
[limits]
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
title = "HP DL380"
source = "A paper"
threads = [1, 2]
figure = [{ quantity = "Copy", unit = "MB/s", values = [6388, 12163] }]
"#;

fn experiment() -> Experiment {
    parse::parse(EXPERIMENT, Path::new("three.toml")).expect("valid")
}

fn machine() -> Described {
    shipped_described("hp-dl380-g6").expect("shipped").expect("valid")
}

/// A scripted run in a results directory, as the command leaves it, measured on the machine of this
/// name.
pub(crate) fn measured(parent: &Path, name: &str, script: Script) -> std::path::PathBuf {
    let resolved = resolved(EXPERIMENT);
    let machine = topology::Machine { name: name.to_owned(), ..machine().machine };
    let at = "2026-01-01T00:00:00Z".to_owned();
    let environment = Environment::of_host(&machine, topology::Bytes(1 << 30), "none".to_owned(), Vec::new(), at);
    let results = Results::create(parent, "run", EXPERIMENT, &resolved, &environment).expect("written");
    let mut world = ScriptedWorld::new(script);
    let never = AtomicBool::new(false);
    session::run(&results, &resolved, &environment, &[], &mut world, &mut Silent, &never).expect("it runs");
    results.path().to_owned()
}

fn predicted() -> Prediction {
    shipped::run(&experiment(), "three.toml", Some(&machine()), 1).expect("figures")
}

pub(crate) fn run_of(name: &str, script: Script) -> MeasuredRun {
    let directory = tempfile::tempdir().expect("a directory");
    Results::measured(&measured(directory.path(), name, script)).expect("a measured run")
}

fn row<'a>(table: &'a Table, after: &str, label: &str) -> &'a [String] {
    let start = table.rows.iter().position(|row| row.cells[0] == after).expect(after);
    let mut following = table.rows[start + 1..].iter();
    &following.find(|row| row.cells[0].trim() == label).unwrap_or_else(|| panic!("{label}: {table:?}")).cells
}

#[test]
fn tables_show_all_three_with_the_errors_against_each() {
    let run = run_of("hp-dl380-g6", Script::default());
    let mut prediction = predicted();
    beside(&experiment(), &mut prediction, &run).expect("of the same experiment");
    let tables = tables::modelled(&experiment(), &prediction);
    let native = &tables[0];
    // The script measures 1000 MB/s a thread, / 1.01 in the best repetition that counts.
    assert_eq!(row(native, "Copy", "measured")[1..], ["990", "1980"]);
    let modelled =
        prediction.figures.iter().find(|one| one.is_of("Copy") && one.threads() == Some(1)).expect("a figure");
    let error = 100.0 * (modelled.value / (1000.0 / 1.01) - 1.0);
    assert_eq!(row(native, "Copy", "error")[1], format!("{error:+.1} % (of measured)"));
    assert_eq!(row(native, "Copy", "published")[1..], ["[6388]", "[12163]"]);
    let errors: Vec<&str> =
        native.rows.iter().map(|row| row.cells[1].as_str()).filter(|cell| cell.contains('%')).collect();
    assert!(errors.len() == 5 && errors[1].ends_with("(held out)"), "{errors:?}");
    let ratios = tables.iter().find(|table| table.title.contains("virtual / native")).expect("ratios");
    assert!(ratios.rows.iter().any(|row| row.cells[1].trim() == "measured" && row.cells[2] == "1.00"), "{ratios:?}");
    assert!(prediction.notes[0].contains("2026-01-01") && !prediction.notes[0].contains("nothing here was measured"));

    let page = page::html(&experiment(), &prediction, &tables, &[], "again");
    for name in ["MEASURED: native", "MODELLED: native", "PUBLISHED: HP DL380"] {
        assert!(page.contains(name), "{name}");
    }
    for kind in ["modelled", "published", "error"] {
        assert!(page.contains(&format!("<tr class=\"{kind}\">")), "{kind}");
    }
    assert!(page.contains("<tr><td>  measured</td>"), "a measured row looks like no other");
    let charts = charts::modelled(&experiment(), &prediction);
    let of = |origin: Origin| {
        let kernels = charts.iter().filter(|chart| chart.value == "MB/s").flat_map(|chart| &chart.series);
        kernels.filter(|series| series.origin == origin).count()
    };
    let all = (of(Origin::Measured), of(Origin::Modelled), of(Origin::Published));
    assert_eq!(all, (8, 8, 1), "four kernels of two configurations; one published table");
}

#[test]
fn another_machine_or_a_disturbed_run_is_said() {
    let script = Script { others: vec![1.0; 1000].into(), ..Script::default() };
    let run = run_of("another", script);
    let mut prediction = predicted();
    beside(&experiment(), &mut prediction, &run).expect("of the same experiment");
    let notes = prediction.notes.join("\n");
    assert!(notes.contains("not modelled on another") && notes.contains("every repetition was disturbed"), "{notes}");
    let tables = tables::modelled(&experiment(), &prediction);
    let text: Vec<&String> = tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells).collect();
    assert!(text.iter().any(|cell| *cell == "990 ~") && text.iter().all(|cell| !cell.contains("of measured")));
}

#[test]
fn what_is_not_a_measured_run_of_the_experiment_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let reason = |path: &Path| Results::measured(path).expect_err("unfit").to_string();
    assert!(reason(&directory.path().join("none")).contains("no such directory"));
    assert!(reason(directory.path()).contains("records.jsonl"));
    std::fs::write(directory.path().join("predictions.json"), "{}").expect("written");
    assert!(reason(directory.path()).contains("modelled figures"));
    let mut run = run_of("hp-dl380-g6", Script::default());
    run.summary.configurations.iter_mut().for_each(|configuration| configuration.name.push('!'));
    let reason = beside(&experiment(), &mut predicted(), &run).expect_err("no figure");
    assert!(
        reason.to_string().contains("native, one VM per node") && reason.to_string().contains("native!"),
        "{reason}"
    );
    run.summary.name = "other".to_owned();
    let reason = beside(&experiment(), &mut predicted(), &run).expect_err("another experiment");
    assert!(reason.to_string().contains("\"other\"") && reason.to_string().contains("\"three\""), "{reason}");
}

/// Names and kinds of everything in a JSON value; of a list, of its first element.
fn structure(value: &serde_json::Value, at: &str, into: &mut std::collections::BTreeSet<String>) {
    use serde_json::Value;
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    into.insert(format!("{at}: {kind}"));
    match value {
        Value::Array(all) => all.iter().for_each(|one| structure(one, &format!("{at}[]"), into)),
        Value::Object(all) => all.iter().for_each(|(name, one)| structure(one, &format!("{at}.{name}"), into)),
        _ => {}
    }
}

#[test]
fn predictions_json_keeps_its_structure() {
    let mut all = std::collections::BTreeSet::new();
    for name in ["stream-esx41", "namd"] {
        let experiment = shipped::experiment(name).expect("shipped").expect("valid");
        let mut prediction = shipped::run(&experiment, name, None, 1).expect("figures");
        // A build that knows its commit and one that does not.
        prediction.commit = None;
        structure(&serde_json::to_value(&prediction).expect("JSON"), "predictions", &mut all);
    }
    let mut prediction = Prediction { commit: Some("0123abcd".to_owned()), ..predicted() };
    beside(&experiment(), &mut prediction, &run_of("hp-dl380-g6", Script::default())).expect("of the same experiment");
    let value = serde_json::to_value(&prediction).expect("JSON");
    structure(&value, "predictions", &mut all);
    let again: Prediction = serde_json::from_value(value).expect("it is read again");
    assert_eq!(again.beside, prediction.beside);
    let lines: Vec<String> = all.into_iter().collect();
    insta::assert_snapshot!("predictions", lines.join("\n"));
}
