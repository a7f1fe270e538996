//! `homenode validate`, and `homenode evaluate --on`: the model through the program.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn experiment(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
}

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode")).args(arguments).output().expect("homenode runs")
}

fn evaluate(file: &Path, on: &str, results: &Path, more: &[&str]) -> Output {
    let (file, results) = (file.display().to_string(), results.display().to_string());
    let mut arguments = vec!["evaluate", &file, "--on", on, "--results", &results];
    arguments.extend(more);
    homenode(&arguments)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes `content` as an experiment into a new directory; nothing else is in it.
fn written(content: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("small.toml");
    std::fs::write(&file, content).expect("written");
    (directory, file)
}

const SMALL: &str = "name = \"small\"\ntitle = \"Small\"\nworkload = \"stream\"\nthreads = [1, \
    16]\n[[configuration]]\nname = \"native\"\nruns = \"native\"\n";

#[test]
fn the_errors_are_printed_by_group_with_calibrated_ones_apart() {
    let output = homenode(&["validate", "--cells"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    let (held_out, calibrated) =
        (page.find("HELD OUT").expect("held out"), page.find("CALIBRATED").expect("calibrated"));
    assert!(held_out < calibrated, "{page}");
    for part in ["MODEL", "STREAM Table 2", "Rome STREAM", "NAMD", "the knee", "not published in text", "Limits"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // The worst cell of Table 1 is named, with the modelled and the published figure.
    assert!(page.contains("native, Add at 4: \u{2248}") && page.contains("[21481]"), "{page}");
    // Every cell has a line of its own: 15 held out and 5 calibrated in Table 1, and so on.
    let (held_out, calibrated) = (page.matches(" held out\n").count(), page.matches(" calibrated\n").count());
    assert!(held_out >= 55 && calibrated >= 20, "{held_out} {calibrated}");
}

/// README says no figure of the model that this does not print.
#[test]
fn readme_says_what_validate_prints_of_figures_that_were_never_fitted() {
    let value: Value = serde_json::from_slice(&homenode(&["validate", "--json"]).stdout).expect("JSON");
    let cells = value["cells"].as_array().expect("cells").iter().filter(|cell| cell["published"].is_number());
    let (fitted, never): (Vec<_>, Vec<_>) = cells.partition(|cell| cell["role"] == "calibrated");
    let page = text(&homenode(&["validate"]).stdout);
    let line = page.lines().find(|line| line.starts_with("All ") && line.contains("never fitted")).expect("a line");
    assert!(line.starts_with(&format!("All {} figures", never.len())), "{line}");
    assert!(line.contains("applu at 64") && line.ends_with(&format!("{} more were fitted.", fitted.len())), "{line}");
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("README");
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let held_out = &value["held_out"]["queueing"];
    let figure = |key: &str, digits: usize| format!("{:.digits$} %", held_out[key].as_f64().expect("a number"));
    let said = format!(
        "{} on average over the {} that it covers and that nothing in it was fitted to, {} at worst",
        figure("mape_percent", 1),
        held_out["cells"],
        figure("max_percent", 0)
    );
    assert!(readme.contains(&said), "{said}");
    let applu = never.iter().find(|cell| cell["figure"] == "applu" && cell["threads"] == 64).expect("applu");
    let high = applu["modelled"].as_f64().expect("modelled") / applu["published"].as_f64().expect("published") - 1.0;
    let said = format!("applu at 64 threads, never fitted either, is {:.0} % high", 100.0 * high);
    assert!(readme.contains(&said), "{said}");
}

#[test]
fn the_json_of_validate_holds_every_cell_and_gate() {
    let output = homenode(&["validate", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["modelled"], true);
    let cells = value["cells"].as_array().expect("cells");
    let copy = cells.iter().find(|cell| cell["group"] == "STREAM Table 1" && cell["threads"] == 4).expect("a cell");
    assert_eq!((copy["published"].as_f64(), copy["role"].as_str()), (Some(20473.0), Some("held_out")));
    let gates = value["gates"].as_array().expect("gates");
    assert!(gates.iter().all(|gate| gate["value"].as_f64() <= gate["limit"].as_f64()), "{gates:?}");
}

#[test]
fn a_modelled_evaluation_never_looks_measured_and_replays_bit_for_bit() {
    let directory = tempfile::tempdir().expect("a directory");
    let results = directory.path().join("results");
    let run = || evaluate(&experiment("stream-esx41.toml"), "hp-dl380-g6", &results, &[]);
    let output = run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    for part in ["MODELLED", "\u{2248} 21", "[20473]", "% (held out)", "% (calibrated)", "half of what two get"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(run().status.success());
    let made: Vec<PathBuf> =
        std::fs::read_dir(&results).expect("results").filter_map(|entry| Some(entry.ok()?.path())).collect();
    assert_eq!(made.len(), 2);
    let read = |one: &Path, name: &str| std::fs::read(one.join(name)).expect(name);
    assert_eq!(read(&made[0], "predictions.json"), read(&made[1], "predictions.json"));
    assert!(made.iter().all(|one| one.display().to_string().contains("-modelled")));
    assert!(!made[0].join("records.jsonl").exists(), "nothing was measured");
    let prediction: Value = serde_json::from_slice(&read(&made[0], "predictions.json")).expect("JSON");
    assert_eq!((&prediction["modelled"], &prediction["seed"]), (&Value::Bool(true), &Value::from(1)));
    let machines: Value = serde_json::from_slice(&read(&made[0], "machines.json")).expect("JSON");
    assert_eq!(machines[0]["rates"]["local_latency_ns"]["source"], "calibrated");
    let report = text(&read(&made[0], "report.html"));
    for part in [
        "<title>MODELLED: ",
        "class=\"modelled\"",
        "class=\"published\"",
        "MODELLED: native",
        "PUBLISHED: ",
        "--seed 1",
    ] {
        assert!(report.contains(part), "{part}");
    }
    let again = homenode(&["evaluate", "--resume", &made[0].display().to_string()]);
    assert_eq!(again.status.code(), Some(2), "a model has nothing to continue");
}

#[test]
fn on_another_machine_published_figures_get_no_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let output =
        evaluate(&experiment("stream-esx41.toml"), "dell-r910", &directory.path().join("results"), &["--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["cells"].as_array().map(Vec::len), Some(0));
    assert_eq!(value["statements"].as_array().map(Vec::len), Some(0));
    assert!(value["notes"][1].as_str().is_some_and(|note| note.contains("dell-r910")), "{}", value["notes"]);
    assert!(value["figures"].as_array().is_some_and(|figures| figures.len() > 50));
}

#[test]
fn beside_wants_a_measured_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let modelled = evaluate(&experiment("stream.toml"), "hp-dl380-g6", &directory.path().join("results"), &[]);
    assert!(modelled.status.success(), "{}", text(&modelled.stderr));
    let results =
        std::fs::read_dir(directory.path().join("results")).expect("results").next().expect("one").expect("one");
    let of_model = results.path().display().to_string();
    let empty = directory.path().display().to_string();
    for (beside, part) in
        [("/no/such", "no such directory"), (&of_model, "modelled figures"), (&empty, "records.jsonl")]
    {
        let more = ["--beside", beside];
        let output = evaluate(&experiment("stream.toml"), "hp-dl380-g6", &directory.path().join("none"), &more);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("--beside") && message.contains(part) && message.contains("measured run"),
            "{message}"
        );
    }
    assert!(!directory.path().join("none").exists());
}

#[test]
fn on_that_changes_nothing_and_cores_of_another_machine_are_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let shown = |name: &str| {
        text(&evaluate(&experiment(&format!("{name}.toml")), "altra-max-2s", directory.path(), &[]).stdout)
    };
    assert!(shown("rome-stream").contains("none is altra-max-2s: --on changes nothing"));
    assert!(shown("namd").contains("time of computing stays that of hp-dl380-g6's cores on altra-max-2s too"));
    assert!(shown("stream-esx41").contains("lines in flight of a core stays that of hp-dl380-g6's cores"));
    assert!(!shown("stream").contains("cores"));
}

/// Exit code 2, all parts in the message, and no results.
fn refused(content: &str, on: &str, parts: &[&str]) {
    let (directory, file) = written(content);
    let results = directory.path().join("results");
    let output = evaluate(&file, on, &results, &[]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!results.exists(), "nothing was written");
}

#[test]
fn more_threads_or_memory_than_the_machine_has_are_refused_with_both_numbers() {
    let many = SMALL.replace("[1, 16]", "[1, 17]");
    refused(&many, "hp-dl380-g6", &["small.toml", "configuration \"native\"", "threads", "17", "16", "hp-dl380-g6"]);
    let vm = "[[configuration]]\nname = \"2 VMs\"\nruns = \"vms\"\nvms = 2\nvcpus = 8\nmemory = \"40 GiB\"\n";
    refused(&format!("{SMALL}{vm}"), "hp-dl380-g6", &["configuration \"2 VMs\"", "memory", "80 GiB", "48 GiB"]);
}

#[test]
fn a_machine_that_cannot_be_modelled_is_named() {
    refused(SMALL, "pack:2 [numa(memory=8GB)] core:4 pu:2", &["rates", "homenode calibrate"]);
    refused(SMALL, "no-such-machine", &["no-such-machine", "hp-dl380-g6"]);
    refused(
        &format!("machine = \"hp-dl999\"\n{SMALL}"),
        "hp-dl380-g6",
        &["small.toml:1", "machine", "hp-dl999", "hp-dl380-g6"],
    );
}

#[test]
fn a_bad_field_of_the_model_is_named() {
    let published = "[[published]]\nconfiguration = \"native\"\ntitle = \"t\"\nsource = \"s\"\nthreads = [1]\nfigure = \
        [{ quantity = \"Copy\", unit = \"MB/s\", values = [1000]";
    let cases: [(String, &[&str]); 5] = [
        (format!("{SMALL}{published}, calibrated = [2] }}]\n"), &["published[0].figure[0].calibrated", "2"]),
        (format!("{SMALL}{published}, only_pictures = [1] }}]\n"), &["published[0].figure[0].only_pictures", "1"]),
        (
            format!("{SMALL}[native_os.random_thread_share]\nvalue = 1.5\nsource = \"assumed\"\nfrom = \"f\"\n"),
            &["native_os.random_thread_share.value", "1.5", "0 to 1"],
        ),
        (
            format!("{SMALL}[[statement]]\nid = \"S1\"\ntext = \"t\"\nkind = \"value\"\nrole = \"held_out\"\n"),
            &["statement[0].kind", "tolerance"],
        ),
        (format!("profile = \"strem\"\n{SMALL}"), &["strem", "stream-ordinary"]),
    ];
    for (content, parts) in cases {
        refused(&content, "hp-dl380-g6", parts);
    }
}

#[test]
fn what_only_the_model_runs_is_not_measured() {
    let namd = std::fs::read_to_string(experiment("namd.toml")).expect("a shipped experiment");
    let (before, rest) = namd.split_once("[guest]").expect("packages of what runs in the place of NAMD");
    let (_, after) = rest.split_once("[limits]").expect("limits");
    let (_directory, on_the_model) =
        written(&format!("{before}[limits]{after}").replace("ranks_per_vm = \"auto\"\n", ""));
    for (file, why) in [(on_the_model, "application"), (experiment("rome-stream.toml"), "only = true")] {
        let output = homenode(&["evaluate", &file.display().to_string()]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("--on") && message.contains(why), "{message}");
    }
}
