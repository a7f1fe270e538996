//! `homenode plan --emit kubevirt` and `--emit nova` as processes. What the texts mean is judged in
//! the tests of `stacks`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const MACHINE: &str = "pack:2 [numa(memory=64GiB)] core:8 pu:1";

fn planned(spec: &Path, kind: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.arg("plan").arg(spec).args(["--on", MACHINE, "--emit", kind]).output().expect("homenode starts")
}

#[test]
fn the_examples_are_written_for_both() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for (kind, holds) in
        [("kubevirt", "\napiVersion: kubevirt.io/v1\n"), ("nova", "\nopenstack flavor create --vcpus ")]
    {
        for name in ["small", "wide", "disk"] {
            let output = planned(&examples.join(name).with_extension("toml"), kind);
            let text = String::from_utf8_lossy(&output.stdout);
            // Nothing but whom one text did not look at.
            let note = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && note.lines().count() == 1, "{note}");
            assert!(note.contains("planned alone") && note.contains("3 specs beside it were not looked at"), "{note}");
            assert!(text.starts_with(&format!("# VM {name} on ")) && text.contains(holds), "{text}");
            assert!(text.contains("# NOT EXPRESSED: "), "{text}");
        }
    }
}

#[test]
fn a_file_name_that_no_text_can_hold_is_bad_input() {
    let directory = tempfile::tempdir().expect("a directory");
    let spec = directory.path().join("vm.toml");
    let disk = "[[disk]]\npath = \"/images/a\\nkind: Pod\"\nformat = \"raw\"\n";
    fs::write(&spec, format!("name = \"vm\"\nvcpus = 2\nmemory = \"1 GiB\"\nboot.from = \"disk\"\n{disk}"))
        .expect("a spec");
    for kind in ["kubevirt", "nova"] {
        let output = planned(&spec, kind);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains("vm.toml: disk[0].path = \"/images/a\\nkind: Pod\""), "{said}");
    }
}
