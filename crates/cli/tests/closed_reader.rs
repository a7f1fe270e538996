//! Whoever reads, `head` for one, leaves before the command has said all: that is no failure.

use std::path::Path;
use std::process::{Command, Stdio};

fn root(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

#[test]
fn no_command_minds_that_nobody_reads_on() {
    let place = tempfile::tempdir().expect("a directory");
    let (wide, spec_mpi) = (root("examples/wide.toml"), root("experiments/spec-mpi.toml"));
    let results = place.path().join("results").display().to_string();
    let commands: &[&[&str]] = &[
        &["topology"],
        &["topology", "--json"],
        &["plan", &wide, "--on", "hp-dl380-g6"],
        &["plan", &wide, "--on", "hp-dl380-g6", "--json"],
        &["evaluate", &spec_mpi, "--on", "hp-dl980-g7", "--results", &results],
        &["evaluate", &root("experiments/stream.toml"), "--dry-run", "--results", &results],
        &["validate"],
        &["advise", &wide, "--on", "hp-dl380-g6", "--workload", "swim"],
        &["machine", "list"],
        &["machine", "check", "hp-dl380-g6"],
        &["vm", "list"],
        &["top", "--once", "--interval", "0.1"],
        &["top", "--json", "--interval", "0.1"],
        &["doctor", "--json"],
        &["completions", "bash"],
        &["man"],
    ];
    for &arguments in commands {
        let run = |out: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
            command.args(arguments).env("HOMENODE_RUNTIME_DIR", place.path().join("runtime"));
            command.stdin(Stdio::null()).stdout(out).output().expect("homenode")
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (read, unread) = (run(Stdio::piped()), run(writer.into()));
        let complaint = String::from_utf8_lossy(&unread.stderr);
        assert!(!read.stdout.is_empty(), "{arguments:?} says something to whoever listens");
        assert_eq!(unread.status.code(), read.status.code(), "{arguments:?}: {complaint}");
        assert!(!complaint.contains("Broken pipe") && !complaint.contains("panicked"), "{arguments:?}: {complaint}");
    }
}
