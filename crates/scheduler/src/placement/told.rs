//! The distances that a guest was told, beside those between its clients' homes.
//!
//! **Problem.** A guest learns at its first power-on how far its virtual nodes are from each other,
//! and arranges its threads by it for life. On another host other distances are true.
//!
//! **Rule.** Each pair of clients on different homes is charged the difference between the distance
//! told and the real one, nearer or farther, at the price of as much distance between clients. A
//! pair on one home is charged nothing: all is local there, whatever was told.
//!
//! **Properties.** Homes that are as far apart as told are charged nothing. Of all maps in which no
//! two clients share a home, none loses less to distances than such a one: what another saves by
//! nearness it is charged as difference, and what is farther is paid twice. So likeness decides
//! wherever CPUs and memory do not.
//!
//! **Example.** Told 12 between 0 and 1; the homes are 22 apart. That is 1.0 more than told, in
//! parts of the local distance: with 8 vCPUs each 16 x 0.06 x 1.0 = 0.96 CPUs are charged, beside
//! the 16 x 0.06 x 1.2 = 1.15 that distance between clients loses in any case.
//!
//! The balancer charges a VM that runs by the same measure (`balance::loss`).

use super::homes::{CpuHome, Demand, VCPU, WHOLE};
use crate::caches::Division;
use crate::host::Host;
use topology::Distances;

/// What the guest was told, by client.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// `extra[i][j]`: how much farther than its own memory client i was told to have it to j's, in
    /// thousandths.
    extra: Vec<Vec<u64>>,
}

impl Told {
    /// From SLIT values, one row for each client.
    pub(crate) fn of(distances: &[Vec<u32>]) -> Self {
        let of = |&to: &u32| (u64::from(to) * 1000 / u64::from(Distances::LOCAL)).saturating_sub(1000);
        Self { extra: distances.iter().map(|row| row.iter().map(of).collect()).collect() }
    }

    /// What client `one` at `home` is charged for client `other` at `there`: millionths of vCPUs
    /// times parts of [`WHOLE`] times thousandths of extra distance.
    pub(super) fn difference(&self, real: &[Vec<u64>], one: (usize, &CpuHome), other: (usize, &CpuHome)) -> u128 {
        let ((one, home), (other, there)) = (one, other);
        if home.nodes == there.nodes {
            return 0;
        }
        let mut sum = 0u128;
        for (&from, micro) in home.nodes.iter().zip(&home.micro) {
            for (&to, part) in there.nodes.iter().zip(&there.part) {
                sum += u128::from(micro * part) * u128::from(real[from][to]);
            }
        }
        let weight = home.micro.iter().sum::<u64>() * there.part.iter().sum::<u64>();
        self.charge((one, other), weight.into(), sum)
    }

    /// The SLIT value that a pair was told.
    pub(crate) fn slit(&self, one: usize, other: usize) -> u32 {
        u32::try_from((self.extra[one][other] + 1000) * u64::from(Distances::LOCAL) / 1000).unwrap_or(u32::MAX)
    }

    /// What a pair on different homes is charged: `weight` times the difference, in thousandths,
    /// between the extra distance told and the real one. `real` is `weight` times the latter.
    pub(crate) fn charge(&self, (one, other): (usize, usize), weight: u128, real: u128) -> u128 {
        real.abs_diff(weight * u128::from(self.extra[one][other]))
    }

    /// Whether two clients may change places unseen: every other one was told to be as far from the
    /// one as from the other.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let extra = &self.extra;
        let third = |third: usize| {
            third == one
                || third == other
                || (extra[one][third] == extra[other][third] && extra[third][one] == extra[third][other])
        };
        extra[one][other] == extra[other][one] && (0..extra.len()).all(third)
    }
}

/// What each pair of clients costs at least, by distance and by difference, in the units of
/// [`Told::difference`]: what it loses where it is as far apart as told. 0 for a pair that may
/// share a home, one that has a hardware thread for each vCPU of both.
pub(super) fn least_of_pairs(host: &Host, demands: &[Demand], homes: &[Vec<CpuHome>], told: &Told) -> Vec<Vec<u128>> {
    let threads = |home: &CpuHome| home.nodes.iter().map(|&node| host.nodes[node].threads).sum::<u32>();
    let widest: Vec<u32> = homes.iter().map(|homes| homes.iter().map(threads).max().unwrap_or(0)).collect();
    let apart = |one: usize, other: usize| {
        one != other && demands[one].vcpus + demands[other].vcpus > widest[one].min(widest[other])
    };
    // Each part of a home is rounded down.
    let rounded = |amount: u64| amount.saturating_sub(host.nodes.len() as u64);
    let weight = |one: usize| u128::from(rounded(u64::from(demands[one].vcpus) * VCPU) * rounded(WHOLE));
    let way = |one: usize, other: usize| weight(one) * u128::from(told.extra[one][other]);
    let least = |one, other| if apart(one, other) { way(one, other) + way(other, one) } else { 0 };
    let clients = 0..demands.len();
    clients.clone().map(|one| clients.clone().map(|other| least(one, other)).collect()).collect()
}

/// For each client the first one that it may change places with unseen: it asks for the same, was
/// told the same, and is divided alike.
pub(super) fn kinds(demands: &[Demand], told: Option<&Told>, division: Option<&Division>) -> Vec<usize> {
    let mut kinds: Vec<usize> = Vec::new();
    for (client, demand) in demands.iter().enumerate() {
        let same = |&other: &usize| {
            kinds[other] == other
                && demands[other] == *demand
                && told.is_none_or(|told| told.are_alike(other, client))
                && division.is_none_or(|division| division.are_alike(other, client))
        };
        let kind = (0..client).find(same).unwrap_or(client);
        kinds.push(kind);
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_were_told_the_same_change_places_unseen() {
        let demand = Demand { vcpus: 2, memory: 1 << 30, least_home: 1, traffic: 0 };
        // Two pairs, near inside (12), far outside (32).
        let told = Told::of(&[vec![10, 12, 32, 32], vec![12, 10, 32, 32], vec![32, 32, 10, 12], vec![32, 32, 12, 10]]);
        assert_eq!(kinds(&[demand; 4], Some(&told), None), [0, 0, 2, 2]);
        assert_eq!(kinds(&[demand; 4], None, None), [0; 4]);
        let larger = Demand { vcpus: 3, ..demand };
        assert_eq!(kinds(&[demand, larger, demand, demand], Some(&told), None), [0, 1, 2, 2]);
    }

    #[test]
    fn a_pair_is_charged_by_the_difference_either_way() {
        let home = |node: usize| CpuHome { nodes: vec![node], micro: vec![2 * VCPU], part: vec![WHOLE] };
        let told = Told::of(&[vec![10, 12], vec![12, 10]]);
        let real = |extra: u64| vec![vec![0, extra], vec![extra, 0]];
        let charged = |extra: u64| told.difference(&real(extra), (0, &home(0)), (1, &home(1)));
        // 2 vCPUs, told 200 thousandths more than local; really 1200, 200, 100.
        let of = |extra: u64| u128::from(2 * VCPU * WHOLE * extra);
        assert_eq!([charged(1200), charged(200), charged(100)], [of(1000), 0, of(100)]);
        assert_eq!(told.difference(&real(0), (0, &home(0)), (1, &home(0))), 0);
    }
}
