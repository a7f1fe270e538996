//! The rules of ARCHITECTURE.md that a program can check: who may use whom, where unsafe code may
//! be, how long a file may get.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each crate and the crates of ours that it may use.
const MAY_USE: [(&str, &[&str]); 21] = [
    ("properties", &[]),
    ("topology", &[]),
    ("vm", &["topology"]),
    ("scheduler", &["topology", "vm"]),
    ("judge", &["scheduler", "topology", "vm"]),
    ("simulator", &["scheduler", "topology", "vm"]),
    ("workloads", &["topology"]),
    ("linux", &["scheduler", "topology", "vm"]),
    ("guest", &["linux", "topology", "workloads"]),
    (
        "readers",
        &[
            "daemon",
            "evaluate",
            "judge",
            "libvirt",
            "linux",
            "migration",
            "qemu",
            "scheduler",
            "simulator",
            "stacks",
            "suspended",
            "topology",
            "vm",
            "workloads",
        ],
    ),
    ("images", &["linux", "topology", "vm"]),
    ("network", &["linux", "vm"]),
    ("inventory", &["linux", "topology", "vm"]),
    ("suspended", &["linux", "topology", "vm"]),
    ("qemu", &["linux", "scheduler", "topology", "vm", "workloads"]),
    ("migration", &["inventory", "linux", "qemu", "topology", "vm"]),
    ("daemon", &["linux", "scheduler", "topology", "vm"]),
    ("stacks", &["judge", "qemu", "scheduler", "topology", "vm"]),
    ("libvirt", &["linux", "qemu", "scheduler", "stacks", "topology", "vm"]),
    ("evaluate", &["images", "linux", "network", "qemu", "scheduler", "simulator", "topology", "vm", "workloads"]),
    (
        "cli",
        &[
            "daemon",
            "evaluate",
            "images",
            "inventory",
            "judge",
            "libvirt",
            "linux",
            "migration",
            "network",
            "qemu",
            "scheduler",
            "simulator",
            "stacks",
            "suspended",
            "topology",
            "vm",
            "workloads",
        ],
    ),
];

/// Where `unsafe` may be written.
const MAY_BE_UNSAFE: [&str; 3] = ["linux/src/sys", "workloads/src/crew.rs", "workloads/src/stream"];

/// Crates that touch no clock, file, thread, environment or random source that was not handed to
/// them, beside what their clippy.toml forbids.
const PURE: [&str; 4] = ["judge", "scheduler", "simulator", "vm"];

/// What the sources of a pure crate do not name.
const IMPURE: [&str; 12] = [
    "std::fs",
    "std::time",
    "std::thread",
    "std::env",
    "std::process",
    "std::net",
    "std::io",
    "println!",
    "eprintln!",
    "rand::",
    "HashMap",
    "HashSet",
];

/// Words of tests that draw other cases in each run. `properties::properties!` draws those that
/// follow from a property's name.
const UNSTEADY: [&str; 8] = [
    "proptest!",
    "proptest_config",
    "ProptestConfig",
    "RngSeed",
    "TestRunner::new",
    "TestRunner::default",
    "rand::",
    "fastrand",
];

const LONGEST_FILE_LINES: usize = 500;

/// What a test says that `make test` leaves out and `make test-long` runs.
const RUN_BY_TEST_LONG: &str = "takes long: make test-long and .ci/run run it";
/// What one begins with that neither runs, and that `scripts/test` therefore skips by its name.
const RUN_BY_NEITHER: [&str; 2] = ["by hand: `", "no test but "];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates/").to_owned()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    rust_files(&crates(), &mut found);
    assert!(found.len() > 20, "found only {} files", found.len());
    found
}

#[test]
fn crates_use_only_what_lies_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    for entry in fs::read_dir(crates()).expect("crates/") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("a manifest in TOML");
        let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("crate {name} is not in MAY_USE"));
        let used = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
        for dependency in used.filter(|dependency| allowed.contains_key(dependency.as_str())) {
            assert!(may.contains(&dependency.as_str()), "{name} must not use {dependency}");
        }
    }
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    for path in all_rust_files() {
        let shown = path.display().to_string();
        if MAY_BE_UNSAFE.iter().any(|place| shown.contains(place)) || shown.ends_with("architecture.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        let found = text.lines().find(|line| !line.trim_start().starts_with("//") && line.contains("unsafe "));
        assert!(found.is_none(), "{shown}: {found:?}");
    }
}

/// systemd puts the directory of a service with `DynamicUser=` that is preserved into
/// `/run/private`, which no user may enter.
#[test]
fn every_user_may_read_what_the_service_decided() {
    let packaging = crates().join("../packaging");
    let read = |name: &str| std::fs::read_to_string(packaging.join(name)).expect(name);
    let unit = read("homenode-balance.service");
    let has = |wanted: &str| unit.lines().any(|line| line == wanted);
    assert!(has("RuntimeDirectoryPreserve=yes") && has("RuntimeDirectoryMode=0755") && has("User=homenode-balance"));
    assert!(!unit.lines().any(|line| line.starts_with("DynamicUser=")));
    assert!(read("homenode-balance.sysusers").lines().any(|line| line.starts_with("u homenode-balance ")));
}

#[test]
fn files_stay_short() {
    for path in all_rust_files() {
        let lines = fs::read_to_string(&path).expect("a source file").lines().count();
        assert!(lines <= LONGEST_FILE_LINES, "{} has {lines} lines: is it still one idea?", path.display());
    }
}

#[test]
fn a_test_that_is_ignored_says_who_runs_it() {
    let script = fs::read_to_string(crates().join("../scripts/test")).expect("scripts/test");
    let skips: Vec<&str> = script.split("--skip ").skip(1).filter_map(|rest| rest.split([' ', ')']).next()).collect();
    let mut used = BTreeSet::<&str>::new();
    for path in all_rust_files() {
        let text = fs::read_to_string(&path).expect("a source file");
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("#[ignore")) {
            let reason = line.split('"').nth(1).unwrap_or_default();
            let named = lines[at..].iter().find_map(|line| line.strip_prefix("fn "));
            let test = named.and_then(|rest| rest.split('(').next()).expect("a test");
            let test = format!("{}::{test}", path.file_stem().expect("a name").display());
            let by_neither = RUN_BY_NEITHER.iter().any(|begin| reason.starts_with(begin));
            assert!(by_neither || reason == RUN_BY_TEST_LONG, "{test}: {reason}");
            let skip = skips.iter().find(|skip| test.contains(**skip));
            assert_eq!(skip.is_some(), by_neither, "{test} and --skip in scripts/test: {reason}");
            used.extend(skip.copied());
        }
    }
    assert_eq!(used.len(), skips.len(), "a --skip of scripts/test skips no test: {skips:?}");
}

/// But for tables, which cannot be wrapped.
#[test]
fn comments_end_at_column_100() {
    let mut longer = Vec::new();
    for path in all_rust_files() {
        let text = fs::read_to_string(&path).expect("a source file");
        let comment = |line: &str| line.trim_start().starts_with("//") && !line.contains(" | ");
        let lines = text.lines().filter(|line| comment(line) && line.chars().count() > 100);
        longer.extend(lines.map(|line| format!("{}: {line}", path.display())));
    }
    assert!(longer.is_empty(), "{}", longer.join("\n"));
}

#[test]
fn every_run_of_a_property_draws_the_same_cases() {
    let elsewhere =
        |path: &PathBuf| !path.starts_with(crates().join("properties")) && !path.ends_with("architecture.rs");
    for path in all_rust_files().into_iter().filter(elsewhere) {
        let text = fs::read_to_string(&path).expect("a source file");
        let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code().find(|line| UNSTEADY.iter().any(|word| line.contains(word)));
        assert!(
            found.is_none(),
            "{}: {found:?}: properties::properties! draws the same cases in every run",
            path.display()
        );
    }
}

/// Each test program is linked with all crates below it, so that a crate has one; and a file that
/// no program names would never run.
#[test]
fn a_crate_has_one_test_program_of_all_its_files() {
    // The tests of `balance` act on all VMs of the host, and are kept apart; those of the lab run
    // beside all others.
    let apart = [("cli", "balance"), ("cli", "lab")];
    for entry in fs::read_dir(crates()).expect("crates/") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let Ok(files) = fs::read_dir(path.join("tests")) else { continue };
        let all = fs::read_to_string(path.join("tests/all.rs")).unwrap_or_default();
        let mut programs = 0;
        for file in files {
            let file = file.expect("an entry").path();
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            if all.contains(&format!("mod {stem};")) || apart.contains(&(name.as_str(), stem)) {
                continue;
            }
            programs += 1;
            assert!(programs == 1, "{}: make it a module of tests/all.rs", file.display());
        }
    }
}

/// What a caller can tell apart is an error of the crate; what is printed is the program's to
/// print.
#[test]
fn errors_have_types_and_libraries_print_nothing() {
    let programs = [crates().join("cli"), crates().join("guest"), crates().join("properties")];
    let in_src = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "src") && !is_test(path);
    for path in all_rust_files().into_iter().filter(in_src) {
        let text = fs::read_to_string(&path).expect("a source file");
        let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let code = || own.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found = code().find(|line| line.contains("Result<") && line.contains(", String>"));
        assert!(found.is_none(), "{}: {found:?}: an error is a type of its crate", path.display());
        let prints = |line: &&str| ["println!", "print!", "dbg!"].iter().any(|print| line.contains(print));
        if !programs.iter().any(|program| path.starts_with(program)) {
            let found = code().find(prints);
            assert!(found.is_none(), "{}: {found:?}: a library prints nothing", path.display());
        }
    }
}

/// What others wrote must not steer a terminal: the module that writes sees to it.
#[test]
fn the_program_prints_in_one_place_only() {
    let mut files = Vec::new();
    rust_files(&crates().join("cli/src"), &mut files);
    for path in files.into_iter().filter(|path| !path.ends_with("src/output.rs")) {
        let text = fs::read_to_string(&path).expect("a source file");
        let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let found = ["println!(", "print!("].iter().find(|print| own.contains(**print));
        assert!(found.is_none(), "{}: {found:?}: src/output.rs prints", path.display());
    }
}

/// Whether all of a file is tests.
fn is_test(path: &Path) -> bool {
    path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| stem.ends_with("tests"))
}

#[test]
fn pure_crates_name_nothing_impure() {
    for name in PURE {
        let mut files = Vec::new();
        rust_files(&crates().join(name).join("src"), &mut files);
        assert!(files.len() > 3, "{name}: only {} files were found", files.len());
        for path in files {
            let text = fs::read_to_string(&path).expect("a source file");
            let found = IMPURE.iter().find(|impure| text.contains(**impure));
            assert!(found.is_none(), "{}: {found:?}", path.display());
        }
    }
}
