//! NPB's charge: each point draws a random number; the ten largest get +1, the ten smallest -1.

use super::grid::Grid;
use crate::crew::Crew;
use crate::kernel::Random;

/// Points of each sign.
const POINTS: usize = 10;

/// A random number and the point that drew it.
type Drawn = (f64, usize);

pub(super) fn place(charge: &mut Grid, crew: &Crew) {
    let n = charge.points();
    let found = crew.each(crew.shares(n), |_, planes| {
        let mut random = Random::new(314_159_265).ahead((planes.start * n * n) as u64);
        let (mut smallest, mut largest): (Vec<Drawn>, Vec<Drawn>) = (Vec::new(), Vec::new());
        for point in planes.start * n * n..planes.end * n * n {
            let drawn = (random.next(), point);
            keep(&mut smallest, drawn, |a, b| a < b);
            keep(&mut largest, drawn, |a, b| a > b);
        }
        (smallest, largest)
    });
    let (mut smallest, mut largest) = (Vec::new(), Vec::new());
    for (small, large) in found {
        small.into_iter().for_each(|drawn| keep(&mut smallest, drawn, |a, b| a < b));
        large.into_iter().for_each(|drawn| keep(&mut largest, drawn, |a, b| a > b));
    }
    charge.clear(crew);
    for (drawn, value) in [(smallest, -1.0), (largest, 1.0)] {
        for (_, point) in drawn {
            charge.set([point / (n * n), point / n % n, point % n], value);
        }
    }
    charge.wrap(crew);
}

/// Keeps the best ten, the best first.
fn keep(best: &mut Vec<Drawn>, drawn: Drawn, better: impl Fn(f64, f64) -> bool) {
    if best.len() == POINTS && !better(drawn.0, best[POINTS - 1].0) {
        return;
    }
    let at = best.iter().position(|other| better(drawn.0, other.0)).unwrap_or(best.len());
    best.insert(at, drawn);
    best.truncate(POINTS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_best_are_kept_in_order() {
        let mut best = Vec::new();
        for point in 0..100 {
            // 37 is coprime to 100: each number from 0 to 99 comes once.
            keep(&mut best, ((point * 37 % 100) as f64, point), |a, b| a > b);
        }
        let numbers: Vec<f64> = best.iter().map(|drawn| drawn.0).collect();
        assert_eq!(numbers, [99.0, 98.0, 97.0, 96.0, 95.0, 94.0, 93.0, 92.0, 91.0, 90.0]);
    }
}
