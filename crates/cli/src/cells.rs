//! Figures in the cells of a table; what is unknown is a dash, never zero.

use topology::Bytes;

pub(crate) fn dash() -> String {
    "-".to_owned()
}

pub(crate) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(dash, |value| format!("{value:.digits$}"))
}

pub(crate) fn bytes(amount: Option<Bytes>) -> String {
    amount.map_or_else(dash, |amount| amount.to_string())
}

/// MiB, so that columns of moving memory can be compared.
pub(crate) fn mib(amount: Option<Bytes>) -> String {
    amount.map_or_else(dash, |amount| format!("{} MiB", amount.mib()))
}
