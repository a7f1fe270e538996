//! `[application]` of an experiment.

use crate::validation::cell::Role;
use serde::{Deserialize, Serialize};

/// `[application]` of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Profiles: names that come with homenode, or files. Each is a row of the tables.
    pub profiles: Vec<String>,
    /// Whether tables show seconds. Where the sources give no time of a run, only ratios mean
    /// anything.
    #[serde(default = "yes")]
    pub shows_seconds: bool,
    /// Ratios of times, as the sources print them.
    #[serde(default, rename = "ratio")]
    pub ratios: Vec<RatioTable>,
    /// What the sources say of several ratios together.
    #[serde(default, rename = "comparison")]
    pub comparisons: Vec<Comparison>,
}

impl Default for Section {
    fn default() -> Self {
        Self { profiles: Vec::new(), shows_seconds: yes(), ratios: Vec::new(), comparisons: Vec::new() }
    }
}

fn yes() -> bool {
    true
}

/// A table of ratios: rows are applications, columns numbers of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioTable {
    /// One line above it.
    pub title: String,
    /// Where the published figures stand.
    pub source: String,
    /// Cells whose errors are averaged together.
    pub group: String,
    /// How the ratio is printed.
    pub shows: Shows,
    /// Configuration whose time is divided. Of several the first that runs with the number of
    /// processes.
    pub time_of: Vec<String>,
    /// Configuration by whose time it is divided. Of several the first that runs with the number of
    /// processes.
    pub divided_by: Vec<String>,
    /// Number of processes of `time_of`, where it is not that of the column: scaling.
    #[serde(default)]
    pub base: Option<u32>,
    /// Columns.
    pub processes: Vec<u32>,
    /// Applications. Default: all.
    #[serde(default)]
    pub figures: Vec<String>,
    /// What is published in text; all other cells are not.
    #[serde(default)]
    pub published: Vec<PublishedRatio>,
}

/// How a ratio is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// As per cent above 1.
    Gain,
    /// As it is.
    Ratio,
}

/// A published ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRatio {
    /// The application.
    pub figure: String,
    /// Processes.
    pub processes: u32,
    /// As printed: per cent for a gain.
    pub value: f64,
    /// What it was used for.
    pub role: Role,
}

/// What a source says of several ratios together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Short, unique in the experiment, for example `V12`.
    pub id: String,
    /// What the source says, in its sense.
    pub text: String,
    /// Title of the ratio table that it is about.
    pub ratio: String,
    /// Columns. Default: all.
    #[serde(default)]
    pub processes: Vec<u32>,
    /// Applications. Default: all of the table.
    #[serde(default)]
    pub figures: Vec<String>,
    /// Each ratio is above this.
    #[serde(default)]
    pub above: Option<f64>,
    /// Each ratio is below this.
    #[serde(default)]
    pub below: Option<f64>,
    /// Each ratio is below each of these applications, at the same number of processes.
    #[serde(default)]
    pub below_figures: Vec<String>,
    /// So many of the applications have a ratio above `above`; without it, all.
    #[serde(default)]
    pub count: Option<usize>,
    /// What it was used for.
    #[serde(default = "held_out")]
    pub role: Role,
}

fn held_out() -> Role {
    Role::HeldOut
}
