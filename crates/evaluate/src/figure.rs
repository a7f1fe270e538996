//! A figure, wherever it comes from: measured on this host, given by the model of a machine, or
//! published by others. Tables, charts and reports know no other kind.
//!
//! **Rule.** Figures of the same configuration, point and quantity stand beside each other,
//! whatever their provenance. Which mark a figure carries (`≈`, `[ ]`, `~`) follows from its
//! provenance, where text is made of it, and nowhere else.
//!
//! **Example.** `native`, 4 threads, `Copy`: measured 19 800 MB/s, modelled 20 100 MB/s (1.5 %
//! more), published 20 473 MB/s.

use crate::interval::{self, Interval};
use crate::kernels::median;
use crate::point::Point;
use crate::validation::cell::Role;
use serde::{Deserialize, Serialize};
use workloads::workload::{Better, Quantity, Together};

/// Unit of a bandwidth: 10^6 bytes a second.
pub const MB_PER_S: &str = "MB/s";
/// Unit of a time.
pub const SECONDS: &str = "s";
/// Unit of a latency.
pub const NS: &str = "ns";
/// Unit of one figure divided by another.
pub const RATIO: &str = "";
/// Unit of a part of a whole: 0.5 is printed as `50 %`.
pub const SHARE: &str = "share";
/// Unit of a ratio that is printed as per cent above 1: 1.5 is `50.0 %`.
pub const GAIN: &str = "gain";

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the configuration.
    pub configuration: String,
    /// What was run.
    pub point: Point,
    /// What is counted, with its unit and which of two values is better.
    pub quantity: Quantity,
    /// In the quantity's unit. Measured: each participant's best repetition, taken together.
    pub value: f64,
    /// How the repetitions differ, of measured figures; of their ratios, how the rounds do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Where it comes from.
    pub provenance: Provenance,
}

/// How the repetitions of a measured figure differ, in its unit; or, of a ratio, how the rounds do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Best repetition of all participants together: what they reached at the same time.
    pub best_together: f64,
    /// Median repetition of all together.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation; `None` of one repetition.
    pub standard_deviation: Option<f64>,
    /// Every repetition that counts, of all together, in the order of time.
    pub repetitions: Vec<f64>,
    /// Every rejected repetition, of all together, where others count.
    pub rejected: Vec<f64>,
    /// The figure of each round that has one.
    pub rounds: Vec<OfRound>,
    /// Of a ratio of figures that were measured in turns: where it is, with a confidence of 95 %.
    /// `None` of too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
}

/// The figure of one round: each participant's best repetition of it, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfRound {
    /// From 0.
    pub round: u32,
    /// In the figure's unit.
    pub value: f64,
}

impl Spread {
    /// Of some repetitions; `None` of none.
    pub(crate) fn of(better: Better, repetitions: Vec<f64>, rejected: Vec<f64>, rounds: Vec<OfRound>) -> Option<Self> {
        Some(Self {
            best_together: better.best(repetitions.iter().copied())?,
            median: median(&repetitions)?,
            mean: interval::mean(&repetitions)?,
            standard_deviation: interval::standard_deviation(&repetitions),
            repetitions,
            rejected,
            rounds,
            interval: None,
        })
    }

    /// The figures of its rounds.
    pub fn of_rounds(&self) -> Vec<f64> {
        self.rounds.iter().map(|one| one.value).collect()
    }
}

/// Where a figure comes from, and what belongs to figures from there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Provenance {
    /// It was measured.
    Measured {
        /// Whether other processes disturbed every repetition.
        disturbed: bool,
        /// Whether all results were checked.
        verified: bool,
        /// Whether VMs ran by software emulation, which no machine's model covers.
        emulated: bool,
    },
    /// The model gives it, by the closed queueing network.
    Modelled {
        /// The same by max-min fairness.
        cross_check: Option<f64>,
    },
    /// Others published it.
    Published {
        /// Title of what it stands in.
        title: String,
        /// What the model used it for.
        role: Role,
    },
}

/// A provenance without what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// [`Provenance::Measured`].
    Measured,
    /// [`Provenance::Modelled`].
    Modelled,
    /// [`Provenance::Published`].
    Published,
}

impl Figure {
    /// Where it comes from.
    pub fn origin(&self) -> Origin {
        match self.provenance {
            Provenance::Measured { .. } => Origin::Measured,
            Provenance::Modelled { .. } => Origin::Modelled,
            Provenance::Published { .. } => Origin::Published,
        }
    }

    /// Whether it is of this quantity; kernels are `copy` in files and `Copy` in tables.
    pub fn is_of(&self, quantity: &str) -> bool {
        same_name(&self.quantity.name, quantity)
    }

    /// Whether it stands beside another: of the same configuration, point and quantity.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.configuration == other.configuration
            && self.point.is_beside(&other.point)
            && self.is_of(&other.quantity.name)
    }

    /// Threads or processes over all VMs, where they distinguish the point.
    pub fn threads(&self) -> Option<u32> {
        self.point.width()
    }

    /// The cross-check, of a modelled figure.
    pub fn cross_check(&self) -> Option<f64> {
        match self.provenance {
            Provenance::Modelled { cross_check } => cross_check,
            _ => None,
        }
    }

    /// Whether VMs ran by software emulation.
    pub fn is_emulated(&self) -> bool {
        matches!(self.provenance, Provenance::Measured { emulated: true, .. })
    }

    /// Whether other processes disturbed every repetition.
    pub fn is_disturbed(&self) -> bool {
        matches!(self.provenance, Provenance::Measured { disturbed: true, .. })
    }

    /// How many times as good it is as another of its quantity: over 1 if it is better. A figure of
    /// the same provenance.
    ///
    /// Where both were measured in the same rounds it is the geometric mean of the rounds' ratios:
    /// what is compared was measured within the same minutes.
    pub(crate) fn ratio(&self, other: &Self) -> Self {
        let rounds = self.paired(other);
        let of_rounds: Vec<f64> = rounds.iter().map(|one| one.value).collect();
        let interval = interval::of_pairs(&of_rounds);
        let mean = interval::geometric_mean(&of_rounds);
        let spread = Spread::of(Better::More, of_rounds, Vec::new(), rounds);
        Self {
            quantity: Quantity {
                decimals: 2,
                at: self.quantity.at.clone(),
                ..quantity(&self.quantity.name, RATIO, Better::More)
            },
            value: mean.unwrap_or_else(|| self.quantity.better.ratio(self.value, other.value)),
            spread: spread.map(|spread| Spread { interval, ..spread }),
            provenance: match &self.provenance {
                Provenance::Measured { emulated, .. } => Provenance::Measured {
                    disturbed: false,
                    verified: true,
                    emulated: *emulated || other.is_emulated(),
                },
                own => own.clone(),
            },
            ..self.clone()
        }
    }

    /// How many times as good it is as that of another run, whose rounds are others, and where that
    /// ratio is: of the geometric means of both runs' rounds.
    pub(crate) fn ratio_of_runs(&self, other: &Self) -> (f64, Option<Interval>) {
        let rounds = |figure: &Self| figure.spread.as_ref().map(Spread::of_rounds).unwrap_or_default();
        let (own, others) = (rounds(self), rounds(other));
        let better = self.quantity.better;
        let (over, of) = if better == Better::More { (&own, &others) } else { (&others, &own) };
        let means = interval::geometric_mean(&own).zip(interval::geometric_mean(&others));
        let (value, against) = means.unwrap_or((self.value, other.value));
        (better.ratio(value, against), interval::of_runs(over, of))
    }

    /// The ratio to another in each round that both have.
    fn paired(&self, other: &Self) -> Vec<OfRound> {
        let Some((own, other)) = self.spread.as_ref().zip(other.spread.as_ref()) else { return Vec::new() };
        let pair = |one: &OfRound| {
            let against = other.rounds.iter().find(|against| against.round == one.round)?;
            Some(OfRound { round: one.round, value: self.quantity.better.ratio(one.value, against.value) })
        };
        own.rounds.iter().filter_map(pair).collect()
    }

    /// Where a ratio is, with a confidence of 95 %; `None` of anything else, and of too few rounds.
    pub fn interval(&self) -> Option<Interval> {
        self.spread.as_ref()?.interval
    }
}

/// Kernels are `copy` in files and `Copy` in tables.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn quantity(name: &str, unit: &str, better: Better) -> Quantity {
    Quantity { name: name.to_owned(), unit: unit.to_owned(), better, together: Together::Mean, decimals: 0, at: None }
}

/// A bandwidth.
pub(crate) fn bandwidth(name: &str) -> Quantity {
    Quantity { together: Together::Sum, ..quantity(name, MB_PER_S, Better::More) }
}

/// The time of a run.
pub(crate) fn seconds(name: &str) -> Quantity {
    Quantity { together: Together::Largest, ..quantity(name, SECONDS, Better::Less) }
}

/// The latency of a load.
pub(crate) fn latency(name: &str) -> Quantity {
    Quantity { decimals: 1, ..quantity(name, NS, Better::Less) }
}

/// A part of a whole.
pub(crate) fn share(name: &str) -> Quantity {
    quantity(name, SHARE, Better::Less)
}

/// A ratio that is printed with two decimals, or as a gain.
pub(crate) fn ratio_of(name: &str, unit: &str) -> Quantity {
    Quantity { decimals: 2, ..quantity(name, unit, Better::More) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(quantity: Quantity, value: f64, emulated: bool) -> Figure {
        Figure {
            configuration: "native".to_owned(),
            point: Point::over_threads("stream", 4),
            quantity,
            value,
            spread: None,
            provenance: Provenance::Measured { disturbed: false, verified: true, emulated },
        }
    }

    #[test]
    fn a_ratio_is_above_one_for_what_is_better() {
        // Twice the bandwidth is 2; twice the time is 1/2.
        let of = |quantity: fn(&str) -> Quantity| {
            figure(quantity("one"), 20.0, true).ratio(&figure(quantity("one"), 10.0, false))
        };
        assert!((of(bandwidth).value - 2.0).abs() < 1e-12 && (of(seconds).value - 0.5).abs() < 1e-12);
        assert!(of(bandwidth).is_emulated() && of(bandwidth).quantity.unit == RATIO);
    }

    #[test]
    fn a_measured_ratio_is_that_of_the_pairs() {
        let of = |values: &[(u32, f64)]| {
            let rounds: Vec<OfRound> = values.iter().map(|&(round, value)| OfRound { round, value }).collect();
            let repetitions = values.iter().map(|(_, value)| *value).collect();
            let best = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
            let spread = Spread::of(Better::More, repetitions, Vec::new(), rounds);
            Figure { spread, ..figure(bandwidth("Copy"), best, false) }
        };
        // The machine is twice as fast in round 1: the pairs say 0.5, 0.5; the bests 20 / 20.
        let ratio = of(&[(0, 5.0), (1, 10.0), (3, 20.0)]).ratio(&of(&[(1, 20.0), (0, 10.0), (2, 7.0)]));
        assert!((ratio.value - 0.5).abs() < 1e-12, "{ratio:?}");
        assert_eq!(ratio.spread.as_ref().map(|spread| spread.rounds.len()), Some(2));
        assert_eq!(ratio.interval(), None, "two pairs");
        let steady: Vec<(u32, f64)> =
            [1.0, 1.1, 1.05, 1.02].into_iter().zip(0..).map(|(value, round)| (round, value)).collect();
        let base = of(&(0..4).map(|round| (round, 1.0)).collect::<Vec<_>>());
        assert!(of(&steady).ratio(&base).interval().is_some_and(|interval| interval.holds(1.04)));
    }

    #[test]
    fn figures_stand_beside_each_other_by_configuration_point_and_quantity() {
        let one = figure(bandwidth("Copy"), 1.0, false);
        let published = Provenance::Published { title: "t".to_owned(), role: Role::HeldOut };
        assert!(one.is_beside(&Figure { quantity: bandwidth("copy"), provenance: published, ..one.clone() }));
        assert!(!one.is_beside(&Figure { quantity: bandwidth("Add"), ..one.clone() }));
        assert!(!one.is_beside(&Figure { point: Point::over_threads("stream", 2), ..one.clone() }));
        assert!(!one.is_beside(&Figure { configuration: "VM".to_owned(), ..one.clone() }));
        // Of a pair of nodes the number of threads is not part of what is compared.
        let pair = |threads| Figure { point: Point::of_pair("stream", 0, 1, threads), ..one.clone() };
        assert!(pair(4).is_beside(&pair(8)) && !pair(4).is_beside(&one));
        let latency = Figure { point: Point::of_pair("chase", 0, 1, 4), ..one.clone() };
        assert!(!pair(4).is_beside(&latency), "another workload at the same pair");
    }
}
