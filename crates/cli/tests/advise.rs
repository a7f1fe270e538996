//! `homenode advise`, as a process.

use std::path::Path;
use std::process::{Command, Output};

const SPEC: &str = "name = \"wide\"\nvcpus = 16\nmemory = \"16 GiB\"\n";

fn advise(directory: &Path, spec: &str, arguments: &[&str]) -> Output {
    let file = directory.join("wide.toml");
    std::fs::write(&file, spec).expect("a spec");
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .env("LC_ALL", "C.UTF-8")
        .arg("advise")
        .arg(file)
        .args(arguments)
        .output()
        .expect("homenode runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn shapes_are_ranked_with_their_uncertainty_and_what_binds() {
    let directory = tempfile::tempdir().expect("a directory");
    let on = ["--on", "hp-dl380-g6", "--workload", "stream-gcc-o2-nehalem"];
    let output = advise(directory.path(), SPEC, &on);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for words in ["MODELLED", "≈ ", "one VM, no vNUMA", "link 0 to 1", "published bandwidths", "Comes out the same"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let json = advise(directory.path(), SPEC, &[&on[..], &["--json"]].concat());
    let advice: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((&advice["modelled"], &advice["candidates"][0]["relative"]), (&true.into(), &1.0.into()));
    assert!(advice["uncertainty"]["figures"].as_u64().is_some_and(|figures| figures >= 31), "{advice}");
}

#[test]
fn what_cannot_be_asked_is_bad_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let huge = SPEC.replace("16 GiB", "900 GiB");
    let wide = SPEC.replace("vcpus = 16", "vcpus = 17");
    let cases = [
        (SPEC, vec!["--on", "hp-dl380-g6", "--workload", "fortnite"], "namd-stmv"),
        (SPEC, vec!["--on", "nowhere", "--workload", "swim"], "hp-dl380-g6"),
        (SPEC, vec!["--on", "pack:2 [numa] core:4 pu:1", "--workload", "swim"], "[rates]"),
        (SPEC, vec!["--on", "hp-dl380-g6", "--workload", "swim", "--threads", "17"], "--threads 17"),
        (&wide, vec!["--on", "hp-dl380-g6", "--workload", "swim"], "vcpus = 17: hp-dl380-g6 has 16 hardware threads"),
        (&huge, vec!["--on", "hp-dl380-g6", "--workload", "swim"], "900 GiB"),
    ];
    for (spec, arguments, named) in cases {
        let output = advise(directory.path(), spec, &arguments);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}");
        assert!(complaint.contains(named) && output.stdout.is_empty(), "{arguments:?}: {complaint}");
    }
}
