//! An experiment whose machine is a file of the user's own.

use evaluate::experiment::Experiment;
use evaluate::parse;
use evaluate::validation::shipped;
use std::path::Path;

fn experiment(machine: &str) -> Experiment {
    let text = include_str!("../../../experiments/stream-esx41.toml");
    let text = text.replace("machine = \"hp-dl380-g6\"", &format!("machine = {machine:?}"));
    parse::parse(&text, Path::new("mine.toml")).expect("valid")
}

#[test]
fn errors_against_published_figures_are_given_on_it_as_on_a_shipped_machine() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("my-host.toml");
    let text = include_str!("../../../machines/hp-dl380-g6.toml");
    std::fs::write(&file, format!("name = \"my-host\"\n{text}")).expect("written");
    let own = shipped::run(&experiment(&file.display().to_string()), "mine.toml", None, 1).expect("figures");
    let known = shipped::run(&experiment("hp-dl380-g6"), "mine.toml", None, 1).expect("figures");
    assert_eq!(own.configurations[0].machine, "my-host");
    assert!(!own.cells.is_empty() && own.cells == known.cells, "{} and {} cells", own.cells.len(), known.cells.len());

    // Modelled on another machine, its errors would mean nothing.
    let other = topology::read::shipped_described("dell-r910").expect("shipped").expect("valid");
    let other = shipped::run(&experiment(&file.display().to_string()), "mine.toml", Some(&other), 1).expect("figures");
    let on_r910: Vec<&str> =
        other.configurations.iter().filter(|one| one.machine == "dell-r910").map(|one| one.name.as_str()).collect();
    assert!(!on_r910.is_empty() && other.notes.iter().any(|note| note.contains("dell-r910")), "{:?}", other.notes);
    assert!(other.cells.iter().all(|cell| !on_r910.contains(&cell.configuration.as_str())));
}

#[test]
fn a_file_that_is_none_is_named() {
    let run = |machine: &str| shipped::run(&experiment(machine), "mine.toml", None, 1).expect_err("none").to_string();
    let said = run("/nowhere/my-host.toml");
    assert!(
        said.starts_with("mine.toml: machine = \"/nowhere/my-host.toml\"") && said.contains("cannot read"),
        "{said}"
    );
    let text = "name = \"e\"\ntitle = \"e\"\nworkload = \"stream\"\nmachine = \"my-host\"\n[[configuration]]\nname = \
        \"n\"\nruns = \"native\"\n";
    let said = parse::parse(text, Path::new("e.toml")).expect_err("no such machine").to_string();
    assert!(said.contains("machine = \"my-host\"") && said.contains("a machine file (.toml)"), "{said}");
}
