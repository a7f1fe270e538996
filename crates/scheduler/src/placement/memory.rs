//! Where the memory of clients lies whose CPUs are chosen.
//!
//! **Problem.** A node may lack room for the memory of the clients that live there. Somebody's
//! memory must lie elsewhere.
//!
//! **Rule.** Memory lies where its client lives, in equal parts where the home has several nodes.
//! Where that does not fit, memory is divided so that the least CPU time is lost to remote memory:
//! what must leave goes to the nearest node with room, and the client that uses its memory least
//! gives way. A node that lends, or that runs over, keeps a reserve.
//!
//! **Properties.** No node takes more than it has to give. For homes of one node no other division
//! loses less.
//!
//! **Example.** Client 0 of 8 vCPUs wants 40 GiB of node 0, which has 32 GiB free of 64 and keeps
//! 2: 30 GiB lie there, 10 on the nearest node that has them. A quarter of its memory is twice as
//! far: 8 vCPUs x 30 % x 1/4 x 1 = 0.6 CPUs are lost.

use super::Problem;
use super::homes::{CpuHome, Demand, Home};
use super::{far, transport};
use crate::host::Host;
use topology::Bytes;

/// The homes with their memory, and what is lost by its distance, in millionths of CPUs. The nodes
/// together must have room.
pub(super) fn divide(problem: &Problem<'_>, homes: &[&CpuHome]) -> (Vec<Home>, u64) {
    let mut room: Vec<u64> = problem.host.nodes.iter().map(|node| node.available).collect();
    let far = far::parts(problem.host, problem.demands, homes, &mut room);
    let of_client = |(demand, far): (&Demand, &Vec<u64>)| demand.memory - far.iter().sum::<u64>();
    let near: Vec<u64> = problem.demands.iter().zip(&far).map(of_client).collect();
    let mut parts: Vec<Option<Vec<u64>>> = vec![None; homes.len()];
    let at_home: Vec<Vec<u64>> =
        homes.iter().zip(&near).map(|(home, &bytes)| page_by_page(problem, bytes, home)).collect();
    let mut wanted = vec![0u64; room.len()];
    for (home, bytes) in homes.iter().zip(&at_home) {
        home.nodes.iter().zip(bytes).for_each(|(&node, &bytes)| wanted[node] += bytes);
    }
    let all_fit = wanted.iter().zip(&room).all(|(wanted, room)| wanted <= room);
    for (client, (home, bytes)) in homes.iter().zip(&at_home).enumerate() {
        let fits = home.nodes.iter().zip(bytes).all(|(&node, &bytes)| bytes <= room[node]);
        if all_fit || (home.nodes.len() > 1 && fits) {
            home.nodes.iter().zip(bytes).for_each(|(&node, &bytes)| room[node] -= bytes);
            parts[client] = Some(bytes.clone());
        }
    }
    let rest: Vec<usize> = (0..homes.len()).filter(|&client| parts[client].is_none()).collect();
    let elsewhere = by_distance(problem, homes, &near, &rest, &room);
    let built = homes.iter().enumerate().map(|(client, home)| match &parts[client] {
        Some(bytes) => Home { nodes: home.nodes.clone(), micro: home.micro.clone(), bytes: bytes.clone(), equal: true },
        None => spread_out(home, &elsewhere[client]),
    });
    let built: Vec<Home> = built.zip(&far).map(|(home, far)| far::with(home, far)).collect();
    let lost = built.iter().zip(homes).map(|(home, cpus)| remote(problem, cpus, home)).sum();
    (built, problem.rates.memory(lost))
}

/// Equal parts of so many bytes for the nodes of a home. A huge page is not cut.
fn page_by_page(problem: &Problem<'_>, memory: u64, home: &CpuHome) -> Vec<u64> {
    let page = problem.host.page.unwrap_or(1);
    crate::divide::evenly(memory / page, home.nodes.len()).into_iter().map(|pages| pages * page).collect()
}

/// A home of CPU nodes with memory on these nodes, by index.
fn spread_out(home: &CpuHome, bytes: &[u64]) -> Home {
    let of_cpu = |node: usize| home.nodes.iter().position(|&other| other == node);
    let nodes: Vec<usize> = (0..bytes.len()).filter(|&node| bytes[node] > 0 || of_cpu(node).is_some()).collect();
    let micro = nodes.iter().map(|&node| of_cpu(node).map_or(0, |position| home.micro[position])).collect();
    let bytes = nodes.iter().map(|&node| bytes[node]).collect();
    Home { nodes, micro, bytes, equal: false }
}

/// vCPUs, in millionths, times the extra distance to their memory, in thousandths.
fn remote(problem: &Problem<'_>, cpus: &CpuHome, home: &Home) -> u64 {
    let all: u128 = home.bytes.iter().map(|&bytes| u128::from(bytes)).sum();
    let on = |(&node, &bytes): (&usize, &u64)| u128::from(bytes) * u128::from(problem.extra_to(cpus, node));
    (home.nodes.iter().zip(&home.bytes).map(on).sum::<u128>() / all.max(1)) as u64
}

/// Bytes of a home on nodes where none of its vCPUs run, but for those that lie there by bandwidth.
pub(super) fn away(host: &Host, home: &Home) -> u64 {
    let on_purpose: u64 = far::of(host, home).iter().map(|&(_, bytes)| bytes).sum();
    let elsewhere = home.micro.iter().zip(&home.bytes).filter(|(micro, _)| **micro == 0);
    elsewhere.map(|(_, bytes)| bytes).sum::<u64>().saturating_sub(on_purpose)
}

/// Bytes of each client in `rest` on each node, so that the least is lost.
fn by_distance(problem: &Problem<'_>, homes: &[&CpuHome], near: &[u64], rest: &[usize], room: &[u64]) -> Vec<Vec<u64>> {
    let mut divided = vec![Vec::new(); homes.len()];
    if rest.is_empty() {
        return divided;
    }
    let demand = |client: usize| near[client];
    let needed: u64 = rest.iter().map(|&client| demand(client)).sum();
    let (unit, capacity) = capacities(problem, homes, (near, rest), room, needed);
    let supply: Vec<u64> = rest.iter().map(|&client| demand(client) / unit).collect();
    // Scaled up, so that the cost of one unit keeps its digits.
    let of_unit = |&client: &usize, node: usize| {
        let scaled = u128::from(problem.extra_to(homes[client], node)) << 10;
        (scaled / u128::from((demand(client) / unit).max(1))).min(1 << 50) as i64
    };
    let cost: Vec<Vec<i64>> =
        rest.iter().map(|client| (0..room.len()).map(|node| of_unit(client, node)).collect()).collect();
    for (&client, sent) in rest.iter().zip(transport::cheapest(&supply, &capacity, &cost)) {
        divided[client] = sent.into_iter().map(|units| units * unit).collect();
    }
    divided
}

/// The unit in which memory is divided, and the units that each node gives: with a reserve and in
/// huge pages where that is enough.
fn capacities(
    problem: &Problem<'_>,
    homes: &[&CpuHome],
    (near, rest): (&[u64], &[usize]),
    room: &[u64],
    needed: u64,
) -> (u64, Vec<u64>) {
    let mut own = vec![0u64; room.len()];
    for &client in rest {
        let home = homes[client];
        home.nodes.iter().for_each(|&node| own[node] += near[client] / home.nodes.len() as u64);
    }
    let reserved = |node: usize| {
        let kept = room[node].saturating_sub(problem.host.reserve(node));
        // Who finds room at home is not sent away for the reserve.
        if own[node] <= room[node] { kept.max(own[node]) } else { kept }
    };
    let mib = Bytes::MIB.0;
    let whole = |unit: &u64| rest.iter().all(|&client| near[client].is_multiple_of(*unit));
    let units = problem.host.page.map_or_else(|| vec![2 * mib, mib], |page| vec![page]);
    let units: Vec<u64> = units.into_iter().filter(whole).take(1).collect();
    let with_reserve = units.iter().map(|&unit| (unit, (0..room.len()).map(|node| reserved(node) / unit).collect()));
    let without = units.iter().map(|&unit| (unit, room.iter().map(|bytes| bytes / unit).collect()));
    let enough = |(unit, capacity): &(u64, Vec<u64>)| capacity.iter().sum::<u64>() >= needed / unit;
    with_reserve.chain(without).find(enough).unwrap_or((1, room.to_vec()))
}
