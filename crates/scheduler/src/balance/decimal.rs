//! Figures in sentences.

/// `value` with so many digits after the point; what rounds to zero has no sign.
pub fn decimal(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|byte| matches!(byte, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn nothing_is_never_less_than_nothing() {
        assert_eq!((decimal(-0.0, 0), decimal(-0.004, 2)), ("0".to_owned(), "0.00".to_owned()));
        assert_eq!((decimal(-0.006, 2), decimal(1.25, 1)), ("-0.01".to_owned(), "1.2".to_owned()));
    }
}
