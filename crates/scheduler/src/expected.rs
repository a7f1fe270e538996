//! How local a VM's memory is where it is to live.
//!
//! **Problem.** A plan says which nodes; its reader wants to know what that is worth.
//!
//! **Rule.** vCPUs run on the nodes of their home as the plan divides them, and touch memory
//! evenly. An access is local where both are on one node. Distances between virtual nodes are the
//! mean over the vCPUs of the one and the memory of the other.
//!
//! **Example.** A client interleaved over nodes 0 and 1, half of its vCPUs on each: half of each
//! half's accesses are local, so 500 of 1000. The nodes are 12 apart: its own memory is at
//! (10 + 12 + 12 + 10) / 4 = 11, and the guest was told 10.

use crate::host::Host;
use crate::placement::Home;
use vm::Expected;

/// What is to be expected of these homes, by client.
pub(crate) fn of(host: &Host, homes: &[Home]) -> Expected {
    let row = |one: &Home| homes.iter().map(|other| mean_distance(host, one, other)).collect();
    Expected { local_permille: homes.iter().map(local_permille).collect(), distances: homes.iter().map(row).collect() }
}

/// Parts of a whole: equal ones where there is nothing yet.
fn parts(amounts: &[u64]) -> Vec<f64> {
    let all: f64 = amounts.iter().map(|&amount| amount as f64).sum();
    let part = |&amount: &u64| if all > 0.0 { amount as f64 / all } else { 1.0 / amounts.len() as f64 };
    amounts.iter().map(part).collect()
}

fn local_permille(home: &Home) -> u32 {
    let local: f64 = parts(&home.micro).iter().zip(parts(&home.bytes)).map(|(cpus, memory)| cpus * memory).sum();
    (local * 1000.0).round() as u32
}

fn mean_distance(host: &Host, one: &Home, other: &Home) -> u32 {
    let mut sum = 0.0;
    for (&from, cpus) in one.nodes.iter().zip(parts(&one.micro)) {
        for (&to, memory) in other.nodes.iter().zip(parts(&other.bytes)) {
            sum += cpus * memory * f64::from(host.distances[from][to]);
        }
    }
    sum.round() as u32
}
