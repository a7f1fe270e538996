//! The rules, each in the file of what it is about.

mod caches;
mod cores;
mod distances;
mod helpers;
mod locality;
mod start;
mod width;

pub(crate) use distances::told;
pub(crate) use helpers::taken;

use crate::finding::Finding;
use crate::scene::Scene;

/// Everything that is wrong, worst first.
pub(crate) fn all(scene: &Scene<'_>) -> Vec<Finding> {
    let rules = [
        start::findings,
        width::findings,
        locality::findings,
        cores::findings,
        helpers::findings,
        caches::findings,
        distances::findings,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(scene)).collect();
    findings.sort_by(Finding::order);
    findings
}

/// `0, 2 and 3`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 core`, `2 cores`.
fn plural(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// `vCPU 3`, `vCPUs 0-3`.
fn vcpus(set: &topology::CpuSet) -> String {
    if set.len() == 1 { format!("vCPU {set}") } else { format!("vCPUs {set}") }
}

/// `CPU 3`, `CPUs 0-3`.
fn cpus(set: &topology::CpuSet) -> String {
    if set.len() == 1 { format!("CPU {set}") } else { format!("CPUs {set}") }
}
