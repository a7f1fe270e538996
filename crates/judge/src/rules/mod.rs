//! The rules, each in the file of what it is about.

pub(crate) mod balancer;
mod caches;
mod cores;
mod cpuset;
mod devices;
mod distances;
mod growth;
pub(crate) mod host;
pub(crate) mod huge_pages;
mod interleaving;
mod isolated;
mod kinds;
mod latency;
mod limits;
mod locality;
mod manager;
mod other_threads;
mod policy;
mod promised;
mod sockets;
mod start;
mod unknown;
mod vcpu_cores;
mod width;

pub(crate) use distances::told;
pub(crate) use latency::hold as hold_latency_sensitive;
pub(crate) use other_threads::taken;

use crate::finding::{Aspect, Finding};
use crate::scene::Scene;

/// Everything that is wrong, worst first.
pub(crate) fn all(scene: &Scene<'_>) -> Vec<Finding> {
    let rules = [
        start::findings,
        width::findings,
        growth::findings,
        locality::findings,
        devices::findings,
        cores::findings,
        interleaving::findings,
        isolated::findings,
        kinds::findings,
        other_threads::findings,
        vcpu_cores::findings,
        caches::findings,
        sockets::findings,
        distances::findings,
        // Of a VM that runs.
        cpuset::findings,
        policy::findings,
        unknown::findings,
        limits::findings,
        latency::findings,
        manager::findings,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(scene)).collect();
    findings.sort_by(Finding::order);
    findings
}

/// Whether a cure gives vCPUs other CPUs: where their threads belong is there then.
pub(crate) fn moves_vcpus(scene: &Scene<'_>) -> bool {
    if scene.target.as_ref().is_ok_and(|target| target.reshaped) {
        return true;
    }
    let found = [locality::findings(scene), cores::findings(scene), caches::findings(scene)];
    let moves = |finding: &Finding| {
        let changes = &finding.cure.changes;
        [Aspect::Home, Aspect::Pins].iter().any(|aspect| changes.contains(aspect))
    };
    found.iter().flatten().any(moves)
}

/// `0, 2 and 3`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `vCPU 3`, `vCPUs 0-3`.
fn vcpus(set: &topology::CpuSet) -> String {
    topology::words::named("vCPU", set)
}

/// `CPU 3`, `CPUs 0-3`.
fn cpus(set: &topology::CpuSet) -> String {
    topology::words::named("CPU", set)
}

/// The file that says how many huge pages of a size a node sets aside.
fn pool(node: topology::NodeId, size: topology::Bytes) -> String {
    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB/nr_hugepages", size.0 >> 10)
}
