//! The benches of `bench/`: each runs, as root and as a user. What they print says nothing here.

use crate::common::tiny_guest;
use std::path::Path;
use std::process::Command;

#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn each_bench_runs_for_one_round_as_root_and_as_a_user() {
    let test = "each_bench_runs_for_one_round_as_root_and_as_a_user";
    let Some(guest) = tiny_guest(test) else { return };
    let directory = guest.agent_program().parent().expect("a directory").canonicalize().expect("a directory");
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/one-round");
    let mut command = Command::new(bench);
    command.env("HOMENODE", env!("CARGO_BIN_EXE_homenode")).env("HOMENODE_GUEST_DIR", directory);
    let output = command.output().expect("bench/one-round");
    let said = String::from_utf8_lossy(&output.stdout);
    for line in said.lines().filter_map(|line| line.strip_prefix("SKIPPED ")) {
        println!("SKIPPED {test}: {}", line.trim());
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("ok       start-time"), "{said}");
}
