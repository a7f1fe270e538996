//! Rows of several seeds: their means, and by how much rivals differ, seed by seed.
//!
//! **Problem.** Traces differ more from each other than rivals do on one of them: a mean over seeds
//! says little of who is better. And the worst VM of one run is one VM, which any change of any
//! move makes another.
//!
//! **Rule.** Each rival meets the same seeds. Its difference to the first series is taken seed by
//! seed; of these differences the mean and its 95 % interval by Student's t. The first series is
//! *best* where all intervals lie below zero, *behind* whoever's lies above, else *equal within the
//! interval* to those whose interval holds zero.
//!
//! **Example.** 90, 92, 94 and 96 % against 88, 91, 93 and 94 %: differences -2, -1, -1, -2, mean
//! -1.5, standard error 0.289, t of 3 degrees of freedom 3.182: -1.5 +- 0.92. The first is best.

use super::Row;
use std::fmt;

/// One rival on all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// By seed; never empty.
    pub rows: Vec<Row>,
    /// Whether the first series is measured against it; false for another way of its own.
    pub is_rival: bool,
}

/// A figure of a row.
pub type Figure = fn(&Row) -> Option<f64>;

/// A mean difference and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The mean.
    pub mean: f64,
    /// From the mean to either end of the interval.
    pub half: f64,
}

impl Difference {
    /// Of the differences of pairs; `None` of fewer than two.
    pub fn of(differences: &[f64]) -> Option<Self> {
        let count = differences.len() as f64;
        if differences.len() < 2 {
            return None;
        }
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        Some(Self { mean, half: error * student(differences.len() - 1) })
    }

    fn is_below_zero(&self) -> bool {
        self.mean + self.half < 0.0
    }

    fn is_above_zero(&self) -> bool {
        self.mean - self.half > 0.0
    }
}

/// Times 100: of parts in percentage points.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.1} ± {:.1}", 100.0 * self.mean, 100.0 * self.half)
    }
}

impl Series {
    /// Who.
    pub fn rival(&self) -> &str {
        self.rows.first().map_or("", |row| &row.rival)
    }

    /// The mean over the seeds that have the figure.
    pub fn mean(&self, figure: Figure) -> Option<f64> {
        let values: Vec<f64> = self.rows.iter().filter_map(figure).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// This less the other, seed by seed, where both have the figure.
    pub fn against(&self, other: &Self, figure: Figure) -> Option<Difference> {
        let pairs = self.rows.iter().zip(&other.rows);
        let differences: Vec<f64> = pairs.filter_map(|(this, other)| Some(figure(this)? - figure(other)?)).collect();
        Difference::of(&differences)
    }
}

/// How the first series stands among its rivals, as a sentence; larger is better.
pub fn standing(series: &[Series], figure: Figure) -> String {
    let Some((first, others)) = series.split_first() else { return "nobody was compared".to_owned() };
    let rivals = others.iter().filter(|one| one.is_rival);
    let mut rivals: Vec<(&str, Difference)> =
        rivals.filter_map(|rival| Some((rival.rival(), rival.against(first, figure)?))).collect();
    rivals.sort_by(|one, other| other.1.mean.total_cmp(&one.1.mean));
    let told = |of: &[&(&str, Difference)]| -> String {
        of.iter().map(|(name, by)| format!("{name} ({by})")).collect::<Vec<_>>().join(", ")
    };
    let ahead: Vec<_> = rivals.iter().filter(|(_, by)| by.is_above_zero()).collect();
    let equal: Vec<_> = rivals.iter().filter(|(_, by)| !by.is_above_zero() && !by.is_below_zero()).collect();
    match (rivals.first(), ahead.is_empty(), equal.is_empty()) {
        (None, ..) => "no rival to compare it with: two seeds at least, and one rival".to_owned(),
        (_, false, _) => format!("{} is BEHIND {}", first.rival(), told(&ahead)),
        (_, true, false) => format!("{} is equal within the interval to {}", first.rival(), told(&equal)),
        (Some(next), true, true) => format!("{} is best; next: {}", first.rival(), told(&[next])),
    }
}

/// The 97.5 % quantile of Student's t: a table up to 30 degrees of freedom, beyond it the first two
/// terms of its expansion (within 0.0002 there).
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    const Z: f64 = 1.959_964;
    let at = degrees as f64;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    TABLE.get(degrees - 1).copied().unwrap_or(Z + first / at + second / at.powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::Moment;

    fn series(name: &str, throughput: &[f64]) -> Series {
        let row = |&throughput: &f64| {
            let row = super::super::row(name.to_owned(), Moment(3_600_000), &[]);
            Row { throughput: Some(throughput), ..row }
        };
        Series { rows: throughput.iter().map(row).collect(), is_rival: true }
    }

    const OURS: [f64; 4] = [0.90, 0.92, 0.94, 0.96];

    fn standing_beside(others: &[[f64; 4]]) -> String {
        let others = others.iter().zip(["one", "two"]).map(|(values, name)| series(name, values));
        let all: Vec<Series> = std::iter::once(series("ours", &OURS)).chain(others).collect();
        standing(&all, |row| row.throughput)
    }

    #[test]
    fn the_example_holds() {
        let by = series("one", &[0.88, 0.91, 0.93, 0.94]).against(&series("ours", &OURS), |row| row.throughput);
        let by = by.expect("four pairs");
        assert!((by.mean + 0.015).abs() < 1e-12 && (by.half - 0.009_186).abs() < 1e-6, "{by:?}");
        assert_eq!(by.to_string(), "-1.5 ± 0.9");
        assert_eq!(Difference::of(&[0.1]), None);
    }

    #[test]
    fn best_equal_and_behind_are_told_apart() {
        let (worse, better) = ([0.88, 0.91, 0.93, 0.94], [0.92, 0.94, 0.95, 0.97]);
        // To and fro by the same: the mean is 0.
        let same = [0.91, 0.91, 0.95, 0.95];
        assert_eq!(standing_beside(&[worse]), "ours is best; next: one (-1.5 ± 0.9)");
        assert_eq!(standing_beside(&[worse, same]), "ours is equal within the interval to two (+0.0 ± 1.8)");
        assert_eq!(standing_beside(&[same, better]), "ours is BEHIND two (+1.5 ± 0.9)");
        assert!(standing_beside(&[]).starts_with("no rival"));
    }

    #[test]
    fn students_quantiles_go_on_where_the_table_ends() {
        // 2.0395 for 31, 1.9840 for 100 degrees of freedom.
        assert!((student(31) - 2.0395).abs() < 5e-4 && (student(100) - 1.9840).abs() < 5e-4);
        assert_eq!(student(19), 2.093);
    }
}
