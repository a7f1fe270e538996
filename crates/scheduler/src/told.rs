//! What a guest was told of distances, beside what is so.
//!
//! **Problem.** A guest learns at its first power-on how far its virtual nodes are from each other.
//! Homes change later: by a start on another host, by the balancer, by hand. Where a pair is
//! farther than the guest believes, its threads pay for what they took to be near.
//!
//! **Rule.** A pair misleads where it is farther than told by more than a quarter of what was told.
//! Of several the worst is named. A pair that is nearer costs the guest nothing.
//!
//! **Example.** Told 12 between virtual nodes 0 and 1, which live 32 apart: that is 167 % more.

use topology::Distances;

/// A pair misleads its guest where it is farther than told by more than this part of what was told.
const MISLEADING_PART: u32 = 4;

/// All distances between virtual nodes, from those that are written: what is missing is the way
/// back, else what Linux and libvirt assume, 10 and 20.
pub fn table(nodes: &[u32], written: impl Fn(u32, u32) -> Option<u32>) -> Vec<Vec<u32>> {
    let value = |from: u32, to: u32| match from == to {
        true => Distances::LOCAL,
        false => written(from, to).or_else(|| written(to, from)).unwrap_or(Distances::REMOTE),
    };
    nodes.iter().map(|&from| nodes.iter().map(|&to| value(from, to)).collect()).collect()
}

/// An ordered pair of virtual nodes, with SLIT values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The virtual node whose vCPUs go the way.
    pub from: u32,
    /// The one whose memory they go to.
    pub to: u32,
    /// What the guest was told.
    pub told: u32,
    /// What is so.
    pub real: u32,
}

impl Pair {
    /// All pairs of different virtual nodes: their ids, what was told, what is so.
    pub fn all(nodes: &[u32], told: &[Vec<u32>], real: &[Vec<u32>]) -> Vec<Self> {
        let count = nodes.len();
        let indices = (0..count).flat_map(|i| (0..count).map(move |j| (i, j))).filter(|(i, j)| i != j);
        indices.map(|(i, j)| Self { from: nodes[i], to: nodes[j], told: told[i][j], real: real[i][j] }).collect()
    }

    /// How much farther it is than told, in thousandths of what was told.
    pub fn excess_permille(&self) -> u32 {
        self.real.saturating_sub(self.told).saturating_mul(1000) / self.told.max(1)
    }

    /// Whether it is so much farther than told that it misleads the guest.
    pub fn misleads(&self) -> bool {
        self.real > self.told.saturating_add(self.told / MISLEADING_PART)
    }

    /// `from virtual node 0 to 1 it is 32, and the guest was told 12`.
    pub fn text(&self) -> String {
        format!(
            "from virtual node {} to {} it is {}, and the guest was told {}",
            self.from, self.to, self.real, self.told
        )
    }
}

/// The pairs that mislead a guest, as a sentence about the worst; `None` where none does.
pub fn misleading(mut pairs: Vec<Pair>) -> Option<String> {
    pairs.retain(Pair::misleads);
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.excess_permille()));
    let worst = pairs.first()?.text();
    Some(match pairs.len() {
        1 => worst,
        count => format!("{worst}; {} more pairs of virtual nodes are farther than told too", count - 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_the_way_back_or_what_linux_assumes() {
        let written = |from: u32, to: u32| (from == 0 && to == 3).then_some(12);
        assert_eq!(table(&[0, 3, 5], written), [[10, 12, 20], [12, 10, 20], [20, 20, 10]]);
    }

    #[test]
    fn the_pair_that_is_farthest_beyond_what_was_told_is_named() {
        let pair = |to, told, real| Pair { from: 0, to, told, real };
        // 25 for 20 is a quarter more: still as told. 26 misleads; 32 for 12 is 1667 thousandths.
        assert_eq!(misleading(vec![pair(1, 20, 25), pair(2, 32, 12)]), None);
        let said = misleading(vec![pair(1, 20, 26), pair(2, 12, 32)]).expect("two mislead");
        assert!(said.starts_with("from virtual node 0 to 2 it is 32, and the guest was told 12; 1 more"), "{said}");
        assert_eq!(pair(2, 12, 32).excess_permille(), 1666);
    }
}
