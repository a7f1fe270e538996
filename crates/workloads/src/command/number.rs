//! Numbers as programs print them.

/// The number in `text`: as C prints it, or with Fortran's exponent (`1.5D+03`). `None` for what is
/// no finite number.
pub(super) fn read(text: &str) -> Option<f64> {
    let text = text.trim();
    let number = text.parse::<f64>().ok().or_else(|| text.replace(['D', 'd'], "e").parse().ok());
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn numbers_of_c_and_of_fortran_are_read() {
        assert_eq!(read(" 12.5 "), Some(12.5));
        assert_eq!(read("-1e-3"), Some(-0.001));
        assert_eq!(read("1.5D+03"), Some(1500.0));
        for none in ["", "1,234", "12 s", "nan", "inf", "1e999"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
