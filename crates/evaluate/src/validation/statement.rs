//! What a source says in words, as something that modelled figures fulfil or not.

use super::cell::Role;
use serde::{Deserialize, Serialize};

/// A `[[statement]]` of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Short, unique in the experiment, for example `S6`.
    pub id: String,
    /// What the source says, in its sense.
    pub text: String,
    /// Cells whose errors are averaged together. Default: statements of the experiment.
    #[serde(default)]
    pub group: Option<String>,
    /// How it is checked.
    pub kind: Kind,
    /// Value and inequality: what is compared.
    #[serde(default)]
    pub of: Option<Selection>,
    /// Value and inequality: what it is divided by. Default: nothing.
    #[serde(default)]
    pub against: Option<Selection>,
    /// Ordinal: at least two, the largest first.
    #[serde(default)]
    pub order: Vec<Selection>,
    /// Value: the published one.
    #[serde(default)]
    pub published: Option<f64>,
    /// Value: largest difference to the published one, in its own unit.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Inequality: the ratio must be below this.
    #[serde(default)]
    pub below: Option<f64>,
    /// Inequality: the ratio must be above this.
    #[serde(default)]
    pub above: Option<f64>,
    /// What it was used for.
    pub role: Role,
}

/// How a statement is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A number, within a tolerance.
    Value,
    /// Which figures are larger than which.
    Ordinal,
    /// A ratio above or below a bound.
    Inequality,
}

/// Modelled figures of a configuration. Several are taken together by their geometric mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The configuration.
    pub configuration: String,
    /// Kernels or applications. Default: all that the configuration has at these thread counts.
    #[serde(default)]
    pub figures: Vec<String>,
    /// Thread counts. Default: all that it has.
    #[serde(default)]
    pub threads: Vec<u32>,
}
