//! Files that people write: specs, experiments, policies, traces, profiles.

use crate::{read_or_printed, text};
use daemon::PolicyFile;
use linux::Users;
use serde::Serialize;
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
        assert_eq!(read(&written(&experiment)).expect("what was written"), experiment);
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
