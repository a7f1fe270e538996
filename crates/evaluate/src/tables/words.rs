//! Figures as text: the only place where marks are made.

use crate::figure::{Figure, GAIN, Provenance, SHARE};
use crate::interval::Interval;
use crate::validation::cell::Role;
use workloads::workload::Quantity;

/// Stands where there is no figure.
pub(crate) const NONE: &str = "-";
/// What a source shows only as a picture, or not at all.
pub(crate) const NOT_IN_TEXT: &str = "not published in text";

/// A figure with its marks, printed as `quantity` is: `≈ 6388`, `[6388]`, `6388 ~`.
pub(crate) fn figure(figure: &Figure, quantity: &Quantity) -> String {
    let number = number(figure.value, quantity);
    match figure.provenance {
        Provenance::Measured { disturbed, verified, .. } => {
            let disturbed = if disturbed { " ~" } else { "" };
            let checked = if verified { "" } else { " ?" };
            format!("{number}{disturbed}{checked}")
        }
        Provenance::Modelled { .. } => format!("≈ {number}"),
        Provenance::Published { .. } => format!("[{number}]"),
    }
}

/// Where a ratio is: `0.91-0.95`.
pub(crate) fn interval(figure: &Figure, quantity: &Quantity) -> Option<String> {
    let Interval { low, high } = figure.interval()?;
    Some(format!("{}-{}", number(low, quantity), number(high, quantity)))
}

pub(crate) fn number(value: f64, quantity: &Quantity) -> String {
    match quantity.unit.as_str() {
        SHARE => format!("{:.0} %", 100.0 * value),
        GAIN => format!("{:.1} %", 100.0 * (value - 1.0)),
        _ => format!("{value:.*}", quantity.decimals),
    }
}

/// How far a modelled figure is from another: `+2.9 % (held out)`, `+2.9 % (of measured)`.
pub(crate) fn error(modelled: &Figure, other: &Figure) -> String {
    let against = match other.provenance {
        Provenance::Published { role, .. } => role_name(role),
        _ => "of measured",
    };
    format!("{:+.1} % ({against})", 100.0 * (modelled.value / other.value - 1.0))
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Calibrated => "calibrated",
        Role::HeldOut => "held out",
        Role::Reported => "reported",
    }
}
