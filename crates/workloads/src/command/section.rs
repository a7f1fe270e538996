//! The section `[command]` of an experiment, as it is written.

use super::ended::Used;
use super::problem::Problem;
use super::series::Over;
use crate::choice::Choice;
use crate::workload::{Better, Together};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use topology::Bytes;

/// `[command]`: what is run, and what is read out of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Section {
    /// The program and its arguments. `{threads}`, `{ranks}` and `{memory_mib}` stand for numbers,
    /// and so do the variables of a problem.
    pub argv: Option<Vec<String>>,
    /// Instead of `argv`: a line for `/bin/sh -c`.
    pub shell: Option<String>,
    /// Name of the problem that is solved. Default: the largest that suits the host.
    pub size: Option<String>,
    /// The same problem in several sizes, the smallest first.
    #[serde(rename = "problem")]
    pub problems: Vec<Problem>,
    /// Instead of both: commands that run one after the other in each repetition.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
    /// Added to the environment, which is else that of [`crate::workload::Site::environment`].
    pub environment: BTreeMap<String, String>,
    /// Files that it reads, relative to the experiment's file. Each repetition runs in a new
    /// directory with a copy of them, under their last names.
    pub files: Vec<PathBuf>,
    /// Other programs that it starts, libraries that it opens by name, directories: the tiny guest
    /// gets them too, under the same paths.
    pub needs: Vec<PathBuf>,
    /// Threads of each rank: `{threads}` is this number and `{ranks}` the width divided by it.
    /// Default: both are the width.
    pub threads_per_rank: Option<u32>,
    /// Memory that it needs, over all VMs. Default: a quarter of what is available, at most 8 GiB,
    /// and 1 GiB under software emulation.
    pub memory: Choice<Bytes>,
    /// Longest time of one run, in seconds. What is still running then is ended.
    pub time_limit_seconds: u32,
    /// Runs before those that are measured, besides the first repetition, which never counts.
    pub warm_up: u32,
    /// Empties the page cache before each repetition. Needs root.
    pub drop_caches: bool,
    /// What is read out of it. Default: the wall time.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// When its figures are believed. Default: they are shown as "not verified".
    pub verify: Verify,
}

impl Section {
    /// Longest time of a run, where the section says none, in seconds.
    pub const TIME_LIMIT_SECONDS: u32 = 300;

    /// A command without a file: its wall time.
    pub fn of_argv(argv: Vec<String>) -> Self {
        Self { argv: Some(argv), ..Self::default() }
    }

    /// Longest time of a run, in seconds.
    pub fn time_limit(&self) -> u32 {
        if self.time_limit_seconds == 0 { Self::TIME_LIMIT_SECONDS } else { self.time_limit_seconds }
    }

    /// What runs in each repetition, in order.
    pub fn programs_in_order(&self) -> Vec<Phase> {
        if !self.phases.is_empty() {
            return self.phases.clone();
        }
        vec![Phase { name: "command".to_owned(), argv: self.argv.clone(), shell: self.shell.clone() }]
    }

    /// The figures, those of a series one by one; the wall time where none is named.
    pub fn figures(&self) -> Vec<Figure> {
        if self.figures.is_empty() {
            return vec![Figure::wall_time()];
        }
        self.figures.iter().flat_map(Figure::each).collect()
    }
}

/// One of several commands that run one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Phase {
    /// Its name, which figures refer to.
    pub name: String,
    /// The program and its arguments.
    pub argv: Option<Vec<String>>,
    /// Instead of `argv`: a line for `/bin/sh -c`.
    pub shell: Option<String>,
}

impl Phase {
    /// In one line for people.
    pub fn line(&self) -> String {
        match (&self.argv, &self.shell) {
            (Some(argv), _) => argv.join(" "),
            (None, Some(shell)) => shell.lines().collect::<Vec<_>>().join("; "),
            (None, None) => String::new(),
        }
    }
}

/// A figure that is read out of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Figure {
    /// Its name in tables.
    pub name: String,
    /// Its unit: see [`super::check_unit`].
    pub unit: String,
    /// Whether more or less of it is better.
    pub better: Better,
    /// The phase that it is read out of. Default: the last one.
    pub phase: Option<String>,
    /// Where it is said.
    pub source: Source,
    /// Where it is written: a file in the directory in which the command runs, instead of `source`.
    pub file: Option<PathBuf>,
    /// A pattern that the line with the figure matches.
    pub regex: Option<String>,
    /// The group of `regex` that is the number. Default: 1, or the whole match without groups.
    pub group: Option<usize>,
    /// Where the number is in a JSON document (RFC 6901).
    pub json_pointer: Option<String>,
    /// Name of a column of a CSV table with a header.
    pub csv_column: Option<String>,
    /// The row of that table, from 1. Default: `which` decides.
    pub row: Option<u64>,
    /// Instead of a text: what the kernel says of the run.
    pub taken: Option<Taken>,
    /// Which of several matches counts.
    pub which: Which,
    /// What the values of VMs that run at the same time make. Default: the sum of rates and of what
    /// is used, the largest of times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
    /// It is said once for each of several sizes or loads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// Digits after the point in tables.
    pub decimals: usize,
}

impl Default for Figure {
    fn default() -> Self {
        Self {
            name: String::new(),
            unit: String::new(),
            better: Better::Less,
            phase: None,
            source: Source::Stdout,
            file: None,
            regex: None,
            group: None,
            json_pointer: None,
            csv_column: None,
            row: None,
            taken: None,
            which: Which::Only,
            together: None,
            over: None,
            decimals: 3,
        }
    }
}

impl Figure {
    /// The wall time of the last phase.
    pub fn wall_time() -> Self {
        let (name, unit) = ("wall time".to_owned(), "s".to_owned());
        Self { name, unit, taken: Some(Taken::WallTime), ..Self::default() }
    }
}

/// Where a figure is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// What the kernel says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// Seconds from its start to its end.
    WallTime,
    /// Seconds of all CPUs in its processes, user and system.
    CpuTime,
    /// MiB of the largest of its processes, at its largest.
    PeakMemory,
}

impl Taken {
    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::WallTime | Self::CpuTime => "s",
            Self::PeakMemory => "MiB",
        }
    }

    /// What a run says of it.
    pub(super) fn of(self, used: &Used) -> f64 {
        match self {
            Self::WallTime => used.wall_seconds,
            Self::CpuTime => used.cpu_seconds(),
            Self::PeakMemory => used.peak_memory_bytes as f64 / f64::from(1 << 20),
        }
    }
}

/// Which of several matches counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// There must be one.
    #[default]
    Only,
    /// The first.
    First,
    /// The last.
    Last,
}

/// When a command's figures are believed. All that stands here must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verify {
    /// A line of the last phase's standard output matches this pattern.
    pub pattern: Option<String>,
    /// The last phase ends with this exit status: then 0 is not demanded of it.
    pub exit_status: Option<i32>,
    /// Figures that are known.
    pub values: Vec<Value>,
}

impl Verify {
    /// Whether anything is looked at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A figure whose value is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Name of the figure.
    pub figure: String,
    /// What it must be.
    pub expected: f64,
    /// Largest distance from it, in the figure's unit.
    pub tolerance: f64,
}
