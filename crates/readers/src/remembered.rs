//! What homenode itself wrote down, and somebody else may have changed: the balancer's state and
//! journal, recordings, results.

use crate::{Tree, printed, read_or_printed, same_from_json};
use daemon::{Balancer, Mode, PolicyFile, Recorder, Recording, Restored, Rules, SavedFile};
use evaluate::environment::Environment;
use evaluate::resolve::{Host, resolve};
use evaluate::results::Results;
use evaluate::summary::summarise;
use scheduler::balance::BalanceState;
use simulator::traces::{RecordedTrace, Trace, TracedHost};
use simulator::{Amva, MachineModel};
use std::fs;
use std::path::Path;
use topology::Bytes;
use topology::read::{Described, shipped_described};

/// The boot that seeds are of.
const BOOT: &str = "boot";
/// The balancer's state; its journal has the same name and `.journal` behind it.
const STATE: &str = "balance.json";
/// A machine with rates, for seeds.
const MACHINE: &str = "hp-dl380-g6";
/// Periods of a seed.
const PERIODS: usize = 3;

/// The balancer's state and its journal, as a tree.
pub(crate) fn state(input: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    Tree::of(input).write(directory.path());
    let file = SavedFile::new(directory.path().join(STATE), BOOT.to_owned());
    read_or_printed(SavedFile::check(file.path()));
    let peeked = file.peek();
    file.doing();
    match read_or_printed(file.restore()) {
        Some(Restored::SetAside { because, .. }) => printed(&because),
        Some(Restored::Memory(saved)) => {
            assert_eq!(peeked.as_ref(), Some(&*saved));
            file.save(&saved).expect("saved");
            assert_eq!(file.restore().expect("what was saved"), Restored::Memory(saved));
        }
        _ => {}
    }
}

/// A recording: looked at, decided on again, and made a trace of.
pub(crate) fn recording(input: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), input).expect("written");
    let mut trace = RecordedTrace::default();
    if let Some(mut recording) = read_or_printed(Recording::open(file.path())) {
        while let Some(Some(seen)) = read_or_printed(recording.look()) {
            same_from_json(&seen);
            trace.add(&seen);
        }
        let (trace, left_out) = trace.finish("trace");
        read_or_printed(trace.check());
        left_out.iter().for_each(|sentence| printed(sentence));
    }
    if let Some(recording) = read_or_printed(Recording::open(file.path())) {
        read_or_printed(recording.replay(None, |_| ()));
    }
}

/// A results directory, as a tree.
pub(crate) fn results(input: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory");
    Tree::of(input).write(directory.path());
    read_or_printed(Results::measured(directory.path()));
    if let Some((_, resolved, environment, recovered)) = read_or_printed(Results::open(directory.path())) {
        same_from_json(&resolved);
        same_from_json(&environment);
        same_from_json(&recovered.records);
        evaluate::results::remaining(&resolved, &recovered.records);
        evaluate::results::next_job(&recovered.records);
        same_from_json(&summarise(&resolved, &recovered.records));
    }
}

/// What a balancer of a modelled host with this trace writes down: directory, and what it kept.
fn balanced(trace: &[u8]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let trace = Trace::from_toml(&String::from_utf8_lossy(trace), "seed").expect("a trace");
    let described = shipped_described(MACHINE).expect(MACHINE).expect(MACHINE);
    let Described { machine, rates: Some(rates) } = described else { panic!("{MACHINE}: no rates") };
    let model = MachineModel::new(&machine, &rates).expect("a model");
    let host = TracedHost::new(model, Box::new(Amva::default()), &trace, 2000);
    let file = SavedFile::new(directory.path().join(STATE), BOOT.to_owned());
    let policy = PolicyFile::default();
    let mut balancer = Balancer::new(host, &policy, Rules::new(Vec::new()), Mode::Act, file, Restored::Nothing);
    let recorder = Recorder::start(&directory.path().join("recording"), &machine, &policy, &BalanceState::default());
    balancer.record_to(recorder.expect("a recording"));
    for _ in 0..PERIODS {
        balancer.period().expect("a period");
    }
    let journal = directory.path().join(format!("{STATE}.journal"));
    let begun = fs::read(&journal).unwrap_or_default();
    balancer.save().expect("saved");
    fs::write(journal, begun).expect("written");
    directory
}

/// A seed of [`state`] from a trace.
pub(crate) fn state_of(trace: &[u8]) -> Vec<u8> {
    let directory = balanced(trace);
    let file = |name: &str| fs::read(directory.path().join(name)).expect(name);
    let journal = format!("{STATE}.journal");
    [format!("@ {STATE}\n").into_bytes(), file(STATE), format!("@ {journal}\n").into_bytes(), file(&journal)].concat()
}

/// A seed of [`recording`] from a trace.
pub(crate) fn recording_of(trace: &[u8]) -> Vec<u8> {
    fs::read(balanced(trace).path().join("recording")).expect("a recording")
}

/// A seed of [`results`] from an experiment that is resolved on a small machine; nothing for one
/// that is too large for it.
pub(crate) fn results_of(experiment: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(experiment);
    let machine = topology::read::from_synthetic("pack:2 [numa(memory=8GiB)] core:4 pu:1").expect("a machine");
    let available = Bytes::from_mib(16 << 10);
    let host = Host { machine: &machine, available, emulated: false };
    let nothing = scheduler::Occupancy::default();
    let plan = |machine: &topology::Machine, specs: &[vm::VmSpec]| scheduler::plan_together(machine, &nothing, specs);
    let experiment = evaluate::parse::parse(&text, Path::new("seed.toml")).expect("an experiment");
    let Ok(resolved) = resolve(&experiment, &host, &plan) else { return Vec::new() };
    let environment = Environment::of_host(&machine, available, "kvm".to_owned(), Vec::new(), String::new());
    let directory = tempfile::tempdir().expect("a directory");
    let results = Results::create(directory.path(), "seed", &text, &resolved, &environment).expect("results");
    let mut input = Vec::new();
    for name in ["resolved.json", "environment.json", "experiment.toml"] {
        input.extend(format!("@ {name}\n").bytes());
        input.extend(fs::read(results.path().join(name)).expect(name));
        input.push(b'\n');
    }
    let summary = serde_json::to_string(&summarise(&resolved, &[])).expect("tables");
    input.extend(format!("@ tables.json\n{summary}\n@ records.jsonl\n").bytes());
    let records = [
        r#"{"schema":2,"record":"session","homenode":"0","at":"","resumed":false}"#,
        r#"{"schema":2,"record":"visit","configuration":"native","point":{"workload":"stream","cpu_node":null,"memory_node":null,"threads":1},"round":0}"#,
    ];
    input.extend(records.join("\n").bytes());
    input.push(b'\n');
    input
}
