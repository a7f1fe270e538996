//! Links between nodes that carry less than the VM draws over them.
//!
//! **Problem.** vCPUs on one node draw from memory on another: where a home has several nodes, or
//! memory lies elsewhere for want of room. Of two pairs of nodes that are as far apart one may be
//! joined by half as many links.
//!
//! **Rule.** A client draws from where its memory lies, in proportion, and from each node in
//! proportion to the vCPUs there. What goes from one node to another takes the way between them;
//! what is drawn beyond what the narrowest link on it carries is waited for, by the balancer's
//! measure.
//!
//! **Properties.** Local memory takes no link. A way that nobody knows counts nothing. What others
//! draw over links is not known: only the balancer sees that.
//!
//! **Example.** A client of 8 vCPUs on two nodes draws 20 GB/s from both in equal parts. A quarter,
//! 5 GB/s, goes each way between them. A link that carries 4 lets 1 GB/s wait each way: 2 / 2.84 =
//! 0.7 CPUs.

use super::Problem;
use super::homes::{CpuHome, Home};

/// What all clients lose to links, in millionths of CPUs.
pub(super) fn lost(problem: &Problem<'_>, cpus: &[&CpuHome], homes: &[Home]) -> u64 {
    let (links, demands) = (&problem.host.links, problem.demands);
    if links.is_empty() || demands.iter().all(|demand| demand.traffic == 0) {
        return 0;
    }
    let mut drawn = vec![vec![0u64; links.len()]; links.len()];
    for ((demand, cpus), home) in demands.iter().zip(cpus).zip(homes) {
        let all = u128::from(cpus.micro.iter().sum::<u64>()) * u128::from(home.bytes.iter().sum::<u64>());
        for (&from, &micro) in cpus.nodes.iter().zip(&cpus.micro) {
            for (&to, &bytes) in home.nodes.iter().zip(&home.bytes).filter(|(to, _)| **to != from) {
                // In parts of 2^20: the whole product would not fit.
                let part = ((u128::from(micro) * u128::from(bytes)) << PART_BITS) / all.max(1);
                drawn[from][to] += ((u128::from(demand.traffic) * part) >> PART_BITS) as u64;
            }
        }
    }
    let at = |(given, drawn): (&Option<u64>, &u64)| given.map_or(0, |given| problem.rates.at_passage(*drawn, given));
    links.iter().flatten().zip(drawn.iter().flatten()).map(at).sum()
}

/// Bits of a part of a client's traffic.
const PART_BITS: u32 = 20;
