//! What a chart says, without how it is drawn.
//!
//! **Rule.** Every value stands at a place: a number of threads, or a row with words above it. Each
//! series has one provenance, from which its marks follow.
//!
//! **Example.** `Triad` over 1, 2 and 4 threads: places 0, 1, 2; a measured series `native` with
//! three marks, a modelled one with three more.

use crate::figure::Origin;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Short, unique among the charts of a report, fit for a file's name.
    pub name: String,
    /// One line above it.
    pub title: String,
    /// What is counted, with its unit.
    pub value: String,
    /// A value that others are compared with: a line through the chart.
    pub reference: Option<f64>,
    /// The places.
    pub over: Over,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// The places of a chart.
#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    /// Counts, rising, at equal distances: each is mostly twice the one before it.
    Counts {
        /// What is counted.
        title: String,
        /// Each once.
        counts: Vec<u32>,
    },
    /// Sizes or loads over several powers of ten, and values that are as far apart: both axes are
    /// logarithmic.
    Sizes {
        /// What rises, with its unit.
        title: String,
        /// Rising, each over 0.
        sizes: Vec<u64>,
    },
    /// Rows, from the top, with words of any length above each.
    Rows(Vec<String>),
}

/// Values that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Where its values come from.
    pub origin: Origin,
    /// Which colour: the same for what is of one configuration.
    pub colour: usize,
    /// Its values.
    pub marks: Vec<Mark>,
    /// Every repetition that counts: place and value.
    pub repetitions: Vec<(usize, f64)>,
    /// Every rejected one.
    pub rejected: Vec<(usize, f64)>,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Which place.
    pub place: usize,
    /// The value.
    pub value: f64,
    /// Least and largest that it may be, where that is known.
    pub spread: Option<(f64, f64)>,
    /// What a mouse shows that stands on it.
    pub says: String,
}

impl Over {
    /// How many places.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Counts { counts, .. } => counts.len(),
            Self::Sizes { sizes, .. } => sizes.len(),
            Self::Rows(rows) => rows.len(),
        }
    }

    /// Whether its values are joined by lines.
    pub(super) fn has_curves(&self) -> bool {
        !matches!(self, Self::Rows(_))
    }
}

/// A name for a file: `Virtual / native` is `virtual-native`.
pub(crate) fn file_name(words: &str) -> String {
    let only = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' };
    let parts: String = words.chars().map(only).collect();
    parts.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
