//! Whether a command's result is right.

use super::Ended;
use super::section::{Figure, Verify};

/// Whether a result is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked for holds.
    Verified,
    /// Something does not hold: there is no figure.
    Wrong(String),
    /// Nothing was asked for: the figure is shown as "not verified".
    NotChecked,
}

impl Verify {
    /// Judges one repetition: how its last program ended, whether its pattern was there, its
    /// figures in their order.
    pub fn judge(&self, ended: Ended, has_matched: Option<bool>, figures: &[Figure], values: &[f64]) -> Verdict {
        if self.is_empty() {
            return Verdict::NotChecked;
        }
        if let Some(wanted) = self.exit_status
            && ended != Ended::Status(wanted)
        {
            return Verdict::Wrong(format!("it {}; verify.exit_status is {wanted}", ended.in_words()));
        }
        if has_matched == Some(false) {
            let pattern = self.pattern.as_deref().unwrap_or_default();
            return Verdict::Wrong(format!("no line of standard output matches verify.pattern = `{pattern}`"));
        }
        let off = self.values.iter().find_map(|value| {
            let index = figures.iter().position(|figure| figure.name == value.figure)?;
            let found = *values.get(index)?;
            // Written so that what is no number is off too.
            let is_near = (found - value.expected).abs() <= value.tolerance;
            (!is_near).then(|| {
                let (name, expected, tolerance) = (&value.figure, value.expected, value.tolerance);
                format!("{name} is {found}, and must be {expected} within {tolerance}")
            })
        });
        off.map_or(Verdict::Verified, Verdict::Wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Value;

    fn judged(verify: &Verify, ended: Ended, has_matched: Option<bool>, energy: f64) -> Verdict {
        let figures = [Figure::wall_time(), Figure { name: "energy".to_owned(), ..Figure::default() }];
        verify.judge(ended, has_matched, &figures, &[1.0, energy])
    }

    #[test]
    fn a_value_within_its_tolerance_verifies() {
        let values = vec![Value { figure: "energy".to_owned(), expected: -4.6, tolerance: 0.05 }];
        let verify = Verify { values, ..Verify::default() };
        assert_eq!(judged(&verify, Ended::Status(0), None, -4.62), Verdict::Verified);
        let Verdict::Wrong(reason) = judged(&verify, Ended::Status(0), None, -4.7) else { panic!("it is off by 0.1") };
        assert_eq!(reason, "energy is -4.7, and must be -4.6 within 0.05");
    }

    #[test]
    fn all_that_is_asked_for_must_hold() {
        let verify = Verify { pattern: Some("^ok$".to_owned()), exit_status: Some(3), ..Verify::default() };
        assert_eq!(judged(&verify, Ended::Status(3), Some(true), 0.0), Verdict::Verified);
        assert!(matches!(judged(&verify, Ended::Status(0), Some(true), 0.0), Verdict::Wrong(_)));
        assert!(matches!(judged(&verify, Ended::Status(3), Some(false), 0.0), Verdict::Wrong(_)));
    }

    #[test]
    fn what_nobody_checks_is_neither_right_nor_wrong() {
        assert_eq!(judged(&Verify::default(), Ended::Status(0), None, 1.0), Verdict::NotChecked);
    }
}
