//! Cores with one and with two busy hardware threads.

/// How many cores have one busy hardware thread and how many have two. Not whole where the counts
/// are means over placements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BusyCores {
    /// Cores with one busy thread.
    pub single: f64,
    /// Cores with two.
    pub double: f64,
}

impl BusyCores {
    /// Threads that take an idle core while there is one, and then the second hardware thread of a
    /// busy one. `None` if the cores are too few. Cores have one or two hardware threads.
    pub fn spread(cores: u32, threads_per_core: u32, threads: u32) -> Option<Self> {
        if threads > cores * threads_per_core.min(2) {
            return None;
        }
        let double = f64::from(threads.saturating_sub(cores));
        Some(Self { single: f64::from(threads) - 2.0 * double, double })
    }

    /// Mean over the placements of a kernel that gives each thread, with probability
    /// `random_share`, a uniformly random idle hardware thread, and else an idle core while there
    /// is one, wherever it is. Exact: only the numbers of idle and of half-busy cores matter.
    pub fn random(cores: u32, threads_per_core: u32, threads: u32, random_share: f64) -> Option<Self> {
        let best = Self::spread(cores, threads_per_core, threads)?;
        if threads_per_core < 2 || threads == 0 {
            return Some(best);
        }
        // Probability of each number of cores with two busy threads; with the number of threads so
        // far it gives all else.
        let mut doubles = vec![1.0];
        for placed in 0..threads {
            let mut next = vec![0.0; doubles.len() + 1];
            for (double, probability) in doubles.iter().enumerate().filter(|(_, probability)| **probability > 0.0) {
                let single = placed.saturating_sub(2 * double as u32);
                let idle = (cores - double as u32).saturating_sub(single);
                let free = f64::from(2 * idle + single);
                let on_busy_core = match (single, idle) {
                    (0, _) => 0.0,
                    (_, 0) => 1.0,
                    _ => random_share * f64::from(single) / free,
                };
                next[double + 1] += probability * on_busy_core;
                next[double] += probability * (1.0 - on_busy_core);
            }
            doubles = next;
        }
        let double = doubles.iter().enumerate().map(|(double, probability)| double as f64 * probability).sum();
        Some(Self { single: f64::from(threads) - 2.0 * double, double })
    }

    /// Work that the cores do together, in multiples of a core with one busy thread; `yield_of_two`
    /// is that of a core with two.
    pub fn capacity(self, yield_of_two: f64) -> f64 {
        self.single + yield_of_two * self.double
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::{Cores, random};
    use topology::NodeId;

    #[test]
    fn idle_cores_come_first() {
        assert_eq!(BusyCores::spread(8, 2, 5), Some(BusyCores { single: 5.0, double: 0.0 }));
        // 11 threads on 8 cores: 3 cores have two, 5 one. 5 + 3 x 1.167 = 8.501.
        let eleven = BusyCores::spread(8, 2, 11).expect("room");
        assert_eq!(eleven, BusyCores { single: 5.0, double: 3.0 });
        assert!((eleven.capacity(1.167) - 8.501).abs() < 1e-9);
        assert_eq!(BusyCores::spread(8, 1, 9), None);
        assert_eq!(BusyCores::spread(8, 2, 17), None);
    }

    #[test]
    fn random_placement_is_that_of_the_threads_module() {
        let machine = topology::read::from_synthetic("pack:2 [numa(memory=24GB)] l3:1 core:4 pu:2").expect("a machine");
        let nodes = [NodeId(0), NodeId(1)].into_iter().collect();
        for threads in 1..=8 {
            let ways = random::linux(&Cores::of(&machine), &nodes, threads, 0.48, 1).expect("room");
            let pairs = |busy: &[u32]| busy.iter().filter(|&&busy| busy == 2).count() as f64;
            let double: f64 = ways.iter().map(|way| way.weight * pairs(&way.busy)).sum();
            let mean = BusyCores::random(8, 2, threads, 0.48).expect("room");
            assert!((mean.double - double).abs() < 1e-9, "{threads} threads: {} against {double}", mean.double);
            assert!((mean.single + 2.0 * mean.double - f64::from(threads)).abs() < 1e-9);
        }
    }

    #[test]
    fn two_threads_lie_as_the_arithmetic_says() {
        // The second thread takes the sibling with probability 0.48 x 1/15.
        let two = BusyCores::random(8, 2, 2, 0.48).expect("room");
        assert!((two.double - 0.48 / 15.0).abs() < 1e-12, "{two:?}");
        assert_eq!(BusyCores::random(8, 2, 8, 0.0), BusyCores::spread(8, 2, 8));
        assert_eq!(BusyCores::random(8, 1, 8, 0.48), BusyCores::spread(8, 1, 8));
        assert_eq!(BusyCores::random(8, 2, 16, 0.48), BusyCores::spread(8, 2, 16));
    }
}
