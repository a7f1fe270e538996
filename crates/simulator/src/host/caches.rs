//! Last-level caches of the modelled host: who shares one, and what hits.
//!
//! **Problem.** Four cores of Rome share 16 MiB. Two VMs that would each fit are slower under one
//! cache than under two; one that streams drives out what the others come back to.
//!
//! **Rule.** Part of a client's lines ([`Reuse::part`]) comes back to its working set, the rest is
//! used once. Under a cache with `n` of its `N` threads it wants room for `working set x (shared +
//! (1 - shared) n / N)`. Lines leave in the order of their last use: after a time T at rate r a
//! client has brought in `r T` bytes, of a working set at most all of it. T is such that the cache
//! is full: capacity is divided by traffic, no working set getting more than its size (linear form
//! of Che's approximation, 2002). Hits are `part x room got / room wanted`. Rates are those of a
//! core alone with its node's memory: hits do not feed back.
//!
//! **Example.** 16 MiB; A comes back to 8 MiB with half of its lines, B streams as fast. Weights
//! 1/2, 1/2 and 1: A's set gets 16 x 1/4 = 4 MiB, half of it: a quarter of its lines hit. Alone it
//! would get all 8, and half would.

use super::cpus::{Claim, share};
use super::shape::Reuse;
use crate::{MachineModel, Profile};
use topology::{LlcId, NodeId};

/// Who runs under a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(crate) reuse: Reuse,
    /// Part of its client's threads that are here.
    pub(crate) part_here: f64,
    /// Lines in a nanosecond that it asks for.
    pub(crate) traffic: f64,
}

impl Reuse {
    /// Room wanted under a cache with this part of the client's threads, in bytes.
    fn wanted(&self, part_here: f64) -> f64 {
        let shared = self.shared_part;
        self.working_set.0 as f64 * (shared + (1.0 - shared) * part_here)
    }
}

/// Part of each tenant's lines that hit in a cache of so many bytes.
pub(crate) fn hits(bytes: f64, tenants: &[Tenant]) -> Vec<f64> {
    let claims = |tenant: &Tenant| {
        let (back, once) = (tenant.traffic * tenant.reuse.part, tenant.traffic * (1.0 - tenant.reuse.part));
        let set = Claim { demand: tenant.reuse.wanted(tenant.part_here), most: f64::INFINITY, weight: back };
        [set, Claim { demand: f64::INFINITY, most: f64::INFINITY, weight: once }]
    };
    // Who asks for nothing takes nothing.
    let claims: Vec<Claim> = tenants.iter().flat_map(claims).collect();
    let able: Vec<Claim> = claims.iter().filter(|claim| claim.weight > 0.0).copied().collect();
    let mut given = share(bytes, &able).into_iter();
    let given: Vec<f64> =
        claims.iter().map(|claim| if claim.weight > 0.0 { given.next().unwrap_or(0.0) } else { 0.0 }).collect();
    let of = |(index, tenant): (usize, &Tenant)| {
        let wanted = tenant.reuse.wanted(tenant.part_here);
        if wanted > 0.0 { tenant.reuse.part * (given[2 * index] / wanted).min(1.0) } else { 0.0 }
    };
    tenants.iter().enumerate().map(of).collect()
}

/// Capacity of a cache in bytes, where hits are modelled: its size and the latency of a hit are
/// known.
pub(crate) fn capacity(model: &MachineModel, llc: Option<LlcId>) -> Option<f64> {
    model.rates().llc_latency_ns.as_ref()?;
    model.llc_size(llc).map(|size| size.0 as f64)
}

/// Lines in a nanosecond of one core alone with its node's memory.
pub(crate) fn alone(model: &MachineModel, profile: &Profile, node: NodeId) -> f64 {
    let lines = profile.lines_in_flight.min(model.rates().lines_in_flight_per_core.value);
    let by_latency = lines / (model.latency_ns(node, node) + profile.core_ns_per_line);
    if profile.core_ns_per_line > 0.0 { by_latency.min(1.0 / profile.core_ns_per_line) } else { by_latency }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::Bytes;

    fn tenant(mib: u64, part: f64, shared_part: f64, part_here: f64, traffic: f64) -> Tenant {
        Tenant { reuse: Reuse { working_set: Bytes::from_mib(mib), part, shared_part }, part_here, traffic }
    }

    const CACHE: f64 = 16.0 * 1024.0 * 1024.0;

    #[test]
    fn who_streams_drives_out_what_others_come_back_to() {
        let (returns, streams) = (tenant(8, 0.5, 0.0, 1.0, 1.0), tenant(0, 0.0, 0.0, 1.0, 1.0));
        assert_eq!(hits(CACHE, &[returns, streams]), [0.25, 0.0]);
        assert_eq!(hits(CACHE, &[returns]), [0.5]);
        assert!(hits(CACHE, &[]).is_empty());
    }

    #[test]
    fn two_working_sets_under_one_cache_get_half_each_and_apart_all() {
        // Each 16 MiB with all lines coming back: 8 of 16 under one cache; all under an own one.
        let one = tenant(16, 1.0, 0.0, 1.0, 2.0);
        assert_eq!(hits(CACHE, &[one, one]), [0.5, 0.5]);
        assert_eq!(hits(CACHE, &[one]), [1.0]);
        // Half of the threads: half of a set that is each thread's own, all of a shared one.
        assert_eq!(hits(CACHE / 2.0, &[Tenant { part_here: 0.5, ..one }]), [1.0]);
        let shared = Tenant { reuse: Reuse { shared_part: 1.0, ..one.reuse }, part_here: 0.5, ..one };
        assert_eq!(hits(CACHE / 2.0, &[shared]), [0.5]);
    }

    #[test]
    fn who_asks_for_nothing_takes_nothing() {
        let (idle, one) = (tenant(16, 1.0, 0.0, 1.0, 0.0), tenant(16, 1.0, 0.0, 1.0, 1.0));
        assert_eq!(hits(CACHE, &[idle, one]), [0.0, 1.0]);
    }
}
