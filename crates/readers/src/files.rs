//! Files that people write: specs, experiments, policies, traces, profiles.

use crate::{read_or_printed, text};
use daemon::PolicyFile;
use evaluate::experiment::Experiment;
use linux::Users;
use serde::Serialize;
use serde_json::Value;
use simulator::traces::Trace;
use std::path::Path;
use topology::{NodeId, NodeSet};
use vm::{Manifest, VmSpec};

/// A VM spec.
pub(crate) fn vm_spec(input: &[u8]) {
    let read = |text: &str| VmSpec::from_toml(text, "vm.toml");
    if let Some(spec) = read_or_printed(read(&text(input))) {
        assert_eq!(read(&written(&spec)).as_ref(), Ok(&spec));
    }
}

/// The manifest of a guest that comes from a file or from another host.
pub(crate) fn manifest(input: &[u8]) {
    if let Some(manifest) = read_or_printed(Manifest::from_text(&text(input))) {
        assert_eq!(manifest.differences(&manifest), []);
        let again = Manifest::from_text(&manifest.to_text().expect("it was read")).expect("what was written");
        again.differences(&Manifest { homenode: String::new(), ..manifest.clone() });
        assert_eq!(again, manifest);
    }
}

/// An experiment.
pub(crate) fn experiment(input: &[u8]) {
    let read = |text: &str| evaluate::parse::parse(text, Path::new("experiment.toml"));
    if let Some(experiment) = read_or_printed(read(&text(input))) {
        let again = read(&as_a_user_writes(&experiment)).expect("what was written");
        assert_eq!(again, experiment);
    }
}

/// An experiment with a table for each workload, as in a file, where records have a list of them.
fn as_a_user_writes(experiment: &Experiment) -> String {
    let mut value = serde_json::to_value(experiment).expect("it was read");
    let sections = value.as_object_mut().and_then(|fields| fields.remove("sections"));
    for section in sections.as_ref().and_then(Value::as_array).into_iter().flatten() {
        let name = section["workload"].as_str().expect("a name");
        value[name] = section["parameters"].clone();
    }
    without_null(&mut value);
    written(&value)
}

/// TOML has no null: what is not there is left out.
fn without_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_null);
        }
        Value::Array(items) => items.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// The balancer's policy, for a host of four nodes.
pub(crate) fn policy(input: &[u8]) {
    let nodes: NodeSet = (0..4).map(NodeId).collect();
    let users = Users::parse("alice:x:1000:1000::/:\n");
    let read = |text: &str| PolicyFile::from_toml(text, "balance.toml", &nodes, &users);
    if let Some(policy) = read_or_printed(read(&text(input))) {
        assert_eq!(read(&written(&policy)).as_ref(), Ok(&policy));
    }
}

/// A trace of VMs that come and go.
pub(crate) fn trace(input: &[u8]) {
    if let Some(trace) = read_or_printed(Trace::from_toml(&text(input), "day.trace.toml")) {
        read_or_printed(trace.check());
    }
}

/// What a workload asks of a core.
pub(crate) fn profile(input: &[u8]) {
    read_or_printed(evaluate::profiles::parse(&text(input), "profile.toml"));
}

fn written(value: &impl Serialize) -> String {
    toml::to_string(value).expect("written")
}
