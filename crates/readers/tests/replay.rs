//! Seeds and inputs that once failed; that the fuzzer has a target for each reader, and is locked.

use readers::{READERS, Reader, reader};
use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

/// What an input of a megabyte may take, on a CPU of its own.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);
/// After so long on a machine that others use too, it is taken to go on for ever.
const NEVER: Duration = Duration::from_secs(120);
/// What the whole test program may have resident, all readers at once.
const MOST_MEMORY_KIB: u64 = 512 << 10;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// CPU time of this thread: others use the machine too.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
}

/// The most that this program had resident so far.
fn most_resident_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").expect("status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Reads an input on a thread of its own, which is left alone where it does not end; what was
/// beyond its bounds.
fn beyond_bounds(reader: &'static Reader, name: &str, input: Vec<u8>, longest: Duration) -> Option<String> {
    let resident_before = most_resident_kib();
    let (done, ended) = channel();
    // A stack that overflows ends the program, with the name of the thread.
    let thread = Builder::new().name(format!("{} {}", reader.name, name.replace('\0', " ")));
    let started = thread.spawn(move || {
        let began = cpu_time();
        let panicked = catch_unwind(|| (reader.read)(&input)).is_err();
        done.send((panicked, cpu_time() - began))
    });
    started.expect("a thread");
    let ended = ended.recv_timeout(NEVER);
    let resident = most_resident_kib();
    match ended {
        Err(_) => Some(format!("did not end within {NEVER:?}")),
        Ok((true, _)) => Some("panicked".to_owned()),
        Ok((false, took)) if took > longest => Some(format!("took {took:?}")),
        Ok(_) => {
            (resident > MOST_MEMORY_KIB && resident > resident_before).then(|| format!("{resident} KiB are resident"))
        }
    }
}

/// Gives each reader its inputs, each of which may take so long. All that fail are told of, and not
/// the first one alone.
pub(crate) fn all_within_bounds(longest: Duration, inputs: impl Fn(&Reader) -> Vec<(String, Vec<u8>)>) {
    let mut failed = Vec::new();
    for reader in READERS {
        for (name, input) in inputs(reader) {
            let length = input.len();
            if let Some(why) = beyond_bounds(reader, &name, input, longest) {
                failed.push(format!("{} {name}, {length} bytes: {why}", reader.name));
                eprintln!("{}", failed[failed.len() - 1]);
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_is_understood_and_what_once_failed_is_read_within_bounds() {
    all_within_bounds(LONGEST, |reader| {
        let inputs = reader.inputs(&repository()).unwrap_or_else(|error| panic!("{}: {error}", reader.name));
        assert!(!inputs.is_empty(), "{}: no seeds", reader.name);
        inputs
    });
}

#[test]
fn the_fuzzer_has_a_target_for_each_reader() {
    let fuzz = repository().join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("a manifest in TOML");
    let targets = manifest["bin"].as_array().expect("targets");
    let targets: BTreeSet<&str> = targets.iter().map(|bin| bin["name"].as_str().expect("a name")).collect();
    assert_eq!(targets, READERS.iter().map(|reader| reader.name).collect());
    for target in targets {
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{target}.rs"))).expect(target);
        assert!(source.contains(&format!("\"{target}\"")), "{target}: {source}");
    }
    for directory in ["regressions", "seeds"] {
        for entry in fs::read_dir(fuzz.join(directory)).into_iter().flatten() {
            let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
            assert!(reader(&name).is_some(), "fuzz/{directory}/{name} is no reader's");
        }
    }
}

#[test]
fn what_the_fuzzer_is_built_of_is_locked() {
    let read = |path: &str| -> toml::Table {
        let text = fs::read_to_string(repository().join(path)).expect(path);
        text.parse().expect(path)
    };
    for package in read("fuzz/Cargo.lock")["package"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        let manifest = format!("crates/{name}/Cargo.toml");
        if package.get("source").is_some() || !repository().join(&manifest).exists() {
            continue;
        }
        let locked = package["dependencies"].as_array().expect("dependencies");
        // "name", or "name version" where there are two of them.
        let locked = locked.iter().filter_map(|it| it.as_str()?.split(' ').next());
        for (needed, _) in read(&manifest)["dependencies"].as_table().expect("dependencies") {
            assert!(
                locked.clone().any(|it| it == needed),
                "fuzz/Cargo.lock: {name} without {needed}: cargo metadata --manifest-path fuzz/Cargo.toml"
            );
        }
    }
}
