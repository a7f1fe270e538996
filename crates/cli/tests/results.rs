//! `homenode results` and `homenode compare`, of real small runs.

use crate::common::unique;
use crate::evaluate::guest_files;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_homenode");

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(PROGRAM).args(arguments).current_dir(self.0.path()).output().expect("homenode runs")
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Exit code 2, and a message that says all of this.
    fn refused(&self, arguments: &[&str], parts: &[&str]) {
        let output = self.run(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(parts.iter().all(|part| message.contains(part)), "{arguments:?}: {message}");
    }

    /// A run of two native configurations, by `elements` of each array.
    fn measured(&self, elements: u32) -> String {
        let name = unique("results");
        let experiment = format!(
            "name = '{name}'\ntitle = 'Results'\nworkload = 'stream'\nthreads = [1]\nrepetitions = 2\nrounds = 4\n\
             [stream]\nelements = {elements}\n[limits]\nother_cpu_percent = 10000\n\
             [[configuration]]\nname = 'native'\nruns = 'native'\n"
        );
        fs::write(self.path("run.toml"), experiment).expect("written");
        let shown = self.said(&["evaluate", "run.toml", "--results", "results"]);
        let report = shown.lines().find_map(|line| line.strip_prefix("Report: ")).expect("a report");
        report.strip_suffix("/report.html").expect("in its directory").to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_was_measured_is_listed_shown_exported_and_compared() {
    let Some(()) = guest_files("what_was_measured_is_listed", false) else { return };
    let place = Place::new();
    let (first, second) = (place.measured(200_000), place.measured(300_000));
    let before = files(&place.path(&first));

    let listed: Value = serde_json::from_str(&place.said(&["results", "list", "--json"])).expect("JSON");
    let entries = listed["results"].as_array().expect("a list");
    assert_eq!(entries.len(), 2, "{listed}");
    assert!(entries.iter().all(|one| one["state"] == "measured" && one["title"] == "Results"), "{listed}");
    assert!(place.said(&["results", "list"]).contains(&first));

    let shown = place.said(&["results", "show", &first]);
    for part in ["Native memory bandwidth", "How well it was measured", "Mean/best", "Where it ran", "CPU use"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let figures: Value = serde_json::from_str(&place.said(&["results", "show", &first, "--json"])).expect("JSON");
    let copy = &figures["configurations"][0]["cells"][0]["figures"][0];
    assert_eq!((&figures["format"], copy["rounds"].as_array().map(Vec::len)), (&"homenode.evaluate".into(), Some(4)));
    assert!(copy["mean"].as_f64() <= copy["best"].as_f64(), "{copy}");
    let cell = &figures["configurations"][0]["cells"][0];
    assert!(cell["own_cpu_percent"].as_f64().is_some(), "{cell}");

    let said = place.said(&["results", "export", &first, "--csv", "out/tables", "--json", "figures.json"]);
    assert!(said.contains("4 files in out/tables") && said.contains("figures.json"), "{said}");
    let table = fs::read_to_string(place.path("out/tables/figures.csv")).expect("figures");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let value = |row: usize, name: &str| rows[row][rows[0].iter().position(|column| *column == name).expect(name)];
    assert_eq!((rows.len(), value(1, "quantity"), value(1, "unit"), value(1, "rounds")), (5, "Copy", "MB/s", "4"));
    assert_eq!(value(1, "value").parse::<f64>().ok(), copy["best"].as_f64());
    assert_eq!(value(1, "ratio_to_native"), "", "native against itself is no ratio");
    let kept: Value = serde_json::from_slice(&fs::read(place.path("figures.json")).expect("figures")).expect("JSON");
    assert_eq!(kept, figures);

    let compared = place.said(&["compare", &first, &second]);
    for part in ["stream.elements", "200000", "300000", "What differs", "B / A"] {
        assert!(compared.contains(part), "{part}: {compared}");
    }
    assert_eq!(files(&place.path(&first)), before, "nothing was changed");
}

#[test]
fn wrong_results_are_named_with_what_would_be_right() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).expect("a directory");
    place.refused(&["results", "show", "none"], &["none", "no such directory", "results/<time>-<name>"]);
    place.refused(&["results", "show", "empty"], &["empty", "records.jsonl"]);
    place.refused(&["results", "export", "empty", "--csv", "out"], &["empty", "records.jsonl"]);
    place.refused(&["results", "export", "empty"], &["--csv", "--json", "--svg"]);
    place.refused(&["results", "list", "none"], &["none", "holds the results"]);
    place.refused(&["compare", "empty", "none"], &["empty", "measured run"]);
    place.refused(&["compare", "empty", "./empty"], &["./empty", "given twice"]);
    fs::write(place.path("empty/page.html"), "").expect("a file");
    place.refused(&["results", "show", "empty/page.html"], &["page.html", "it is a file", "results/<time>-<name>"]);
    fs::create_dir_all(place.path("several/one")).expect("a directory");
    fs::write(place.path("several/one/resolved.json"), "{}").expect("a file");
    place.refused(&["results", "show", "several"], &["several", "1 results directories", "homenode results list"]);
    fs::write(place.path("several/one/records.jsonl"), "").expect("a file");
    place.refused(&["results", "show", "several/one"], &["resolved.json", "another version of homenode"]);
    assert!(place.said(&["results", "list", "empty"]).contains("no results"));
    assert!(!place.path("out").exists());
}

#[test]
fn a_prediction_is_shown_and_exported() {
    let place = Place::new();
    let experiment = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/stream-esx41.toml");
    let printed = place.said(&["evaluate", experiment, "--on", "hp-dl380-g6", "--results", "results"]);
    let name = files(&place.path("results")).pop().expect("a directory");
    let results = format!("results/{name}");
    let shown = place.said(&["results", "show", &results]);
    assert!(printed.starts_with(&shown), "the same tables:\n{shown}");
    assert!(place.said(&["results", "list"]).contains("modelled"));
    place.said(&["results", "export", &results, "--csv", "tables", "--svg", "pictures"]);
    let table = fs::read_to_string(place.path("tables/figures.csv")).expect("figures");
    assert!(table.lines().skip(1).all(|line| line.contains(",modelled,")), "{table}");
    let pictures = files(&place.path("pictures"));
    assert!(!pictures.is_empty());
    for picture in pictures {
        let svg = fs::read_to_string(place.path("pictures").join(&picture)).expect("a picture");
        assert!(svg.starts_with("<svg") && svg.contains("http://www.w3.org/2000/svg"), "{picture}");
    }
    place.refused(&["compare", &results, "none"], &["modelled figures", "measured run"]);
    place.refused(&["evaluate", "--resume", &results], &["modelled figures", "measured run"]);
    place.refused(&["results", "export", &results, "--csv", "tables/figures.csv"], &["it is a file", "a directory"]);
}
