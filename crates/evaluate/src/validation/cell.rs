//! A modelled figure and the published one.

use serde::{Deserialize, Serialize};

/// What a published figure was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A value of the model was fitted to it: its error says nothing about the model.
    Calibrated,
    /// The model never saw it.
    HeldOut,
    /// Shown and never gated: the model is known not to cover it.
    Reported,
}

/// A modelled figure with the published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationCell {
    /// Name of the experiment.
    pub experiment: String,
    /// Cells whose errors are averaged together, for example `STREAM Table 1`.
    pub group: String,
    /// The configuration.
    pub configuration: String,
    /// A kernel, an application, or a statement's id.
    pub figure: String,
    /// Threads or processes over all VMs; `None` where it has no number of them.
    pub threads: Option<u32>,
    /// Of all figures here: `MB/s`; empty for a ratio.
    pub unit: String,
    /// The published figure; `None`: not published in text.
    pub published: Option<f64>,
    /// The modelled figure, by the closed queueing network.
    pub modelled: f64,
    /// The same by max-min fairness.
    pub cross_check: Option<f64>,
    /// What the published figure was used for.
    pub role: Role,
}

impl ValidationCell {
    /// Relative error: 0.02 is 2 % too much. `None` without a published figure.
    pub fn error(&self) -> Option<f64> {
        self.published.map(|published| self.modelled / published - 1.0)
    }

    /// Relative error of the cross-check.
    pub fn cross_check_error(&self) -> Option<f64> {
        self.published.zip(self.cross_check).map(|(published, cross_check)| cross_check / published - 1.0)
    }
}

/// Errors of several cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Cells with a published figure.
    pub cells: usize,
    /// Mean absolute relative error, in per cent; 0 of none.
    pub mape_percent: f64,
    /// Largest absolute relative error, in per cent.
    pub max_percent: f64,
}

impl Errors {
    /// Of these relative errors.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Self {
        let absolute: Vec<f64> = errors.into_iter().map(|error| 100.0 * error.abs()).collect();
        // An empty sum of f64 is -0.0.
        let mean = absolute.iter().fold(0.0, |sum, error| sum + error) / absolute.len().max(1) as f64;
        let max_percent = absolute.iter().copied().fold(0.0, f64::max);
        Self { cells: absolute.len(), mape_percent: mean, max_percent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative_to_the_published_figure() {
        let mut cell = ValidationCell {
            experiment: "e".to_owned(),
            group: "g".to_owned(),
            configuration: "native".to_owned(),
            figure: "copy".to_owned(),
            threads: Some(4),
            unit: crate::figure::MB_PER_S.to_owned(),
            published: Some(20_000.0),
            modelled: 21_000.0,
            cross_check: Some(18_000.0),
            role: Role::HeldOut,
        };
        assert!((cell.error().expect("published") - 0.05).abs() < 1e-12);
        assert!((cell.cross_check_error().expect("published") + 0.1).abs() < 1e-12);
        cell.published = None;
        assert_eq!(cell.error(), None);
        // 5 % and -10 %: mean 7.5 %, largest 10 %.
        let errors = Errors::of([0.05, -0.1]);
        assert!((errors.mape_percent - 7.5).abs() < 1e-9 && (errors.max_percent - 10.0).abs() < 1e-9);
        assert_eq!(Errors::of([]), Errors::default());
    }
}
