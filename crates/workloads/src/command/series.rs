//! Figures that a command says once for each of several sizes or loads: a series.
//!
//! **Rule.** A figure with `over` stands for as many figures as `over.at` has values. Each is read
//! from the lines in which the group `over.group` is its value.
//!
//! **Example.** NetPIPE says a line for each message size. `name = "bandwidth"` with
//! `over.at = [64, 1024]` becomes the figures `bandwidth at 64 B` and `bandwidth at 1024 B`.

use super::section::Figure;
use crate::workload::{At, ParameterFault};
use serde::{Deserialize, Serialize};

/// Most values of one series.
const MOST_VALUES: usize = 100;

/// What rises along a series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Over {
    /// Its name in tables: `message size`.
    pub name: String,
    /// Its unit: see [`super::check_unit`].
    pub unit: String,
    /// The group of the figure's pattern that is its value. Default: 1. The figure's own group is
    /// then 2 unless it says another.
    #[serde(default = "first")]
    pub group: usize,
    /// The values that count, rising.
    pub at: Vec<u64>,
}

fn first() -> usize {
    1
}

impl Figure {
    /// The figures that it stands for: itself, without a series.
    pub(super) fn each(&self) -> Vec<Self> {
        let Some(over) = &self.over else { return vec![self.clone()] };
        let one = |&value: &u64| Self {
            name: format!("{} at {value} {}", self.name, over.unit),
            over: Some(Over { at: vec![value], ..over.clone() }),
            ..self.clone()
        };
        over.at.iter().map(one).collect()
    }

    /// The group of its pattern that is the number.
    pub(super) fn number_group(&self, has_groups: bool) -> usize {
        self.group.unwrap_or(if self.over.is_some() { 2 } else { usize::from(has_groups) })
    }

    /// Of one of [`Self::each`]: the group that says where it stands, and the value there.
    pub(super) fn only_at(&self) -> Option<(usize, u64)> {
        let over = self.over.as_ref()?;
        Some((over.group, *over.at.first()?))
    }

    /// Where in its series one of [`Self::each`] stands.
    pub(super) fn place(&self) -> Option<At> {
        let over = self.over.as_ref()?;
        let value = *over.at.first()?;
        let suffix = format!(" at {value} {}", over.unit);
        let series = self.name.strip_suffix(&suffix).unwrap_or(&self.name).to_owned();
        Some(At { series, parameter: over.name.clone(), unit: over.unit.clone(), value })
    }

    /// Whether its series can be used; `field` names a field of the figure.
    pub(super) fn check_series(&self, field: &dyn Fn(&str) -> String) -> Result<(), ParameterFault> {
        let Some(over) = &self.over else { return Ok(()) };
        let fault = |name: &str, value: String, valid: String| Err(ParameterFault::new(field(name), value, valid));
        if self.regex.is_none() {
            return fault("over", over.name.clone(), "regex: a series is read by a pattern with two groups".to_owned());
        }
        if over.name.trim().is_empty() || over.name.len() > 60 || over.name.chars().any(char::is_control) {
            return fault("over.name", over.name.clone(), "1 to 60 letters on one line".to_owned());
        }
        if let Err(unknown) = super::check_unit(&over.unit) {
            return fault("over.unit", over.unit.clone(), unknown.to_string());
        }
        if over.group == self.number_group(true) {
            let valid = "another group of regex than the number's: one is what rises, one is the figure";
            return fault("over.group", over.group.to_string(), valid.to_owned());
        }
        let rises = over.at.windows(2).all(|pair| pair[0] < pair[1]);
        if over.at.is_empty() || over.at.len() > MOST_VALUES || !rises {
            let valid = format!("1 to {MOST_VALUES} whole numbers, each more than the one before it");
            return fault("over.at", format!("{:?}", over.at), valid);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::command::Section;

    fn section(over: &str) -> Section {
        let figure = format!(
            "argv = ['NPtcp']\n[[figure]]\nname = 'bandwidth'\nunit = 'Mbit/s'\n\
             regex = '([0-9]+) bytes .* ([0-9.]+) Mbps'\nover = {over}\n"
        );
        toml::from_str(&figure).expect(&figure)
    }

    #[test]
    fn a_series_is_a_figure_at_each_value() {
        let section = section("{ name = 'message size', unit = 'B', at = [64, 1024] }");
        assert_eq!(section.first_fault(), Ok(()));
        let figures = section.figures();
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["bandwidth at 64 B", "bandwidth at 1024 B"]);
        let at = figures[1].place().expect("a place");
        assert_eq!((at.series.as_str(), at.parameter.as_str(), at.value), ("bandwidth", "message size", 1024));
        assert_eq!(figures[1].only_at(), Some((1, 1024)));
    }

    #[test]
    fn a_series_that_cannot_be_read_is_refused_with_its_field() {
        for (over, field, value) in [
            ("{ name = '', unit = 'B', at = [1] }", "figure[0].over.name", ""),
            ("{ name = 'size', unit = 'bytes', at = [1] }", "figure[0].over.unit", "bytes"),
            ("{ name = 'size', unit = 'B', group = 2, at = [1] }", "figure[0].over.group", "2"),
            ("{ name = 'size', unit = 'B', at = [] }", "figure[0].over.at", "[]"),
            ("{ name = 'size', unit = 'B', at = [2, 2] }", "figure[0].over.at", "[2, 2]"),
        ] {
            let fault = section(over).first_fault().expect_err(over);
            assert_eq!((fault.field.as_str(), fault.value.as_str()), (field, value), "{over}");
        }
        let mut taken = section("{ name = 'size', unit = 'B', at = [1] }");
        taken.figures[0].regex = None;
        taken.figures[0].csv_column = Some("Mbps".to_owned());
        assert_eq!(taken.first_fault().expect_err("a column").field, "figure[0].over");
    }
}
