//! In which order configurations are visited.
//!
//! The machine's ceiling moves by the minute. What is compared is therefore measured in turns: A B
//! C, then C B A, at one point after the other.

use crate::point::Point;
use serde::{Deserialize, Serialize};

/// One visit: a configuration at a point, in a round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Visit {
    /// Index of the configuration.
    pub configuration: usize,
    /// What is measured.
    pub point: Point,
    /// From 0.
    pub round: u32,
}

/// All visits: point by point, each round in the opposite order of the one before. `points[c]` are
/// those of configuration `c`.
pub fn interleaved(points: &[Vec<Point>], rounds: u32) -> Vec<Visit> {
    let of_point = |point: &Point| (0..rounds).flat_map(|round| turn(points, point, round)).collect::<Vec<_>>();
    all_points(points).iter().flat_map(of_point).collect()
}

/// Every point of any configuration, each once, in the order in which they are visited.
pub fn all_points(points: &[Vec<Point>]) -> Vec<Point> {
    let mut all: Vec<Point> = points.iter().flatten().cloned().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The visits of one point in one round.
pub fn turn(points: &[Vec<Point>], point: &Point, round: u32) -> Vec<Visit> {
    let measured = (0..points.len()).filter(|&index| points[index].contains(point));
    let mut visits: Vec<Visit> =
        measured.map(|configuration| Visit { configuration, point: point.clone(), round }).collect();
    if round % 2 == 1 {
        visits.reverse();
    }
    visits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one() -> Point {
        Point::over_threads("stream", 1)
    }
    fn two() -> Point {
        Point::over_threads("stream", 2)
    }

    #[test]
    fn configurations_take_turns_a_b_b_a() {
        let visits = interleaved(&[vec![one(), two()], vec![two(), one()]], 2);
        let order: Vec<(usize, Point)> =
            visits.iter().map(|visit| (visit.configuration, visit.point.clone())).collect();
        assert_eq!(
            order,
            [(0, one()), (1, one()), (1, one()), (0, one()), (0, two()), (1, two()), (1, two()), (0, two())]
        );
    }

    #[test]
    fn a_point_that_a_configuration_lacks_is_left_out() {
        let visits = interleaved(&[vec![one(), two()], vec![two()]], 1);
        assert_eq!(visits.len(), 3);
    }

    properties::properties! {
        #[test]
        fn every_visit_comes_once_in_every_round(counts in prop::collection::vec(1u32..6, 1..5), rounds in 1u32..5) {
            let points: Vec<Vec<Point>> =
                counts.iter().map(|&count| (1..=count).map(|threads| Point::over_threads("stream", threads)).collect()).collect();
            let visits = interleaved(&points, rounds);
            let unique: std::collections::BTreeSet<_> = visits.iter().collect();
            prop_assert_eq!(unique.len(), visits.len());
            prop_assert_eq!(visits.len() as u32, counts.iter().sum::<u32>() * rounds);
        }
    }
}
