//! The report's first screen, of a scripted run and of shipped experiments on the model.

use crate::beside::measured;
use crate::scripted::Script;
use evaluate::charts::{self, Over};
use evaluate::modelled::page;
use evaluate::validation::shipped;
use evaluate::{parse, tables};
use std::path::Path;

/// The sentences of a page.
fn sentences(page: &str) -> Vec<String> {
    let (_, after) = page.split_once("<div class=\"sentences\">").expect("an answer");
    let (inside, _) = after.split_once("</div>").expect("its end");
    inside.lines().filter_map(|line| Some(line.strip_prefix("<p>")?.strip_suffix("</p>")?.to_owned())).collect()
}

fn modelled(name: &str, on: Option<&str>) -> (String, Vec<charts::Chart>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/{name}.toml"));
    let experiment = parse::parse(&std::fs::read_to_string(&path).expect("readable"), &path).expect("valid");
    let machine = on.map(|name| topology::read::shipped_described(name).expect("shipped").expect("valid"));
    let prediction = shipped::run(&experiment, name, machine.as_ref(), 1).expect("figures");
    let tables = tables::modelled(&experiment, &prediction);
    (page::html(&experiment, &prediction, &tables, &[], "again"), charts::modelled(&experiment, &prediction))
}

#[test]
fn a_measured_run_is_answered_by_a_picture_and_three_sentences() {
    let directory = tempfile::tempdir().expect("a directory");
    let results = measured(directory.path(), "host", Script::default());
    let page = std::fs::read_to_string(results.join("report.html")).expect("a report");
    // The script measures the same everywhere, in two rounds.
    let sentences = sentences(&page);
    assert_eq!(sentences.len(), 3, "{sentences:?}");
    assert_eq!(sentences[0], "Compared with native: Triad (MB/s, more is better) in one VM per node, at 2 threads.");
    let expected = "one VM per node reaches 1.00 times native; too few rounds for an interval.";
    assert_eq!(sentences[1], expected);
    assert!(sentences[2].contains("0 were rejected"), "{sentences:?}");
    // One picture, then four kernels. Of the ratio to native there is one number of threads only.
    assert_eq!(page.matches("<figure>").count(), 5);
    assert!(page.len() < 150_000, "{} bytes", page.len());
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("<script src=") && !outside.contains("://"), "it needs no network");
    assert_eq!(page.matches("<ul class=\"warning\">").count(), 1, "warnings stand once");
    assert!(page.contains("color-scheme: light;") && !page.contains("prefers-color-scheme"), "charts are on white");
    // Each chart's clipping path has a name that no other has.
    let mut clips: Vec<&str> =
        page.match_indices("clipPath id=").map(|(at, _)| page[at..].split('"').nth(1).expect("a name")).collect();
    let all = clips.len();
    clips.sort_unstable();
    clips.dedup();
    assert_eq!((clips.len(), all), (5, 5));
}

#[test]
fn a_modelled_run_compares_within_one_machine_and_says_its_error() {
    let (page, charts) = modelled("stream-esx41", None);
    let sentences = sentences(&page);
    // Two of its configurations are on another machine, where no native run is.
    let Over::Rows(rows) = &charts[0].over else { panic!("{:?}", charts[0].over) };
    assert!(!rows.is_empty() && rows.iter().all(|row| !row.starts_with("8 nodes")), "{rows:?}");
    assert!(sentences[2].contains("not fitted to, the model is off by"), "{sentences:?}");
    let names: Vec<String> = charts::files(&charts).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["answer.svg", "copy.svg", "scale.svg", "add.svg", "triad.svg", "triad-to-native.svg"]);
}

#[test]
fn programs_are_answered_by_their_first_table_of_ratios() {
    let (page, charts) = modelled("spec-omp", None);
    let sentences = sentences(&page);
    assert!(
        sentences[1].starts_with("With vNUMA ") && sentences[1].contains("in the geometric mean: from"),
        "{sentences:?}"
    );
    let published = charts[0].series.iter().find(|series| series.name == "published by others");
    assert!(published.is_some_and(|series| !series.marks.is_empty()), "{:?}", charts[0]);
    assert_eq!(charts.len(), 1, "its sources give no seconds");
    let sources = modelled("spec-omp", Some("dell-r910")).1;
    assert!(sources[0].series.iter().all(|series| series.name == "MODELLED"), "published elsewhere: {sources:?}");
}

#[test]
fn pairs_of_nodes_are_answered_by_how_far_remote_memory_is() {
    let (page, charts) = modelled("numa-matrix", Some("dell-r910"));
    let sentences = sentences(&page);
    // 163.2 / 96.0 = 1.70, whichever the pair.
    assert!(sentences[1].contains("1.70 times as much in the mean, 1.70 at worst"), "{sentences:?}");
    // Four nodes: 4 pairs with a node's own memory, 12 with that of others.
    assert_eq!(charts[0].series[0].marks.len(), 16);
    // The experiment asks for both, at the same pairs.
    assert!(page.contains("MODELLED latency of a dependent load, ns"), "{page}");
    assert!(page.contains("bandwidth of all CPUs of a node, MB/s"), "{page}");
}
