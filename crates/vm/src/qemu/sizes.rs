//! Sizes and numbers as QEMU reads them (`qemu_strtosz` and `parse_uint` of its util/cutils.c).

use topology::Bytes;

/// Reads a size: `4G`, `1.5G`, `8388608k`, `0x1000`. A number without a suffix counts `unit` bytes.
///
/// Suffixes are B, K, M, G, T, P and E, large or small, of 1024. A fraction is rounded to a whole
/// byte, and needs a suffix above B. There is no exponent, and no octal number. A suffix behind a
/// hexadecimal number is taken by QEMU before 8.0 (`0x40M`); B and E are digits there.
pub fn memory_size(text: &str, unit: Bytes) -> Option<Bytes> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Some(digits) = hexadecimal(text) {
        let (digits, suffix) = split_at_other(digits, |letter| letter.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16).ok()?;
        return number.checked_mul(scale(suffix, unit)?).map(Bytes);
    }
    let (whole, rest) = split_at_other(text, |letter| letter.is_ascii_digit());
    let fraction = rest.strip_prefix('.').map(|rest| split_at_other(rest, |letter| letter.is_ascii_digit()));
    let (fraction, suffix) = fraction.unwrap_or(("", rest));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let scale = scale(suffix, unit)?;
    let part = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse::<f64>().ok()? };
    if part > 0.0 && scale == 1 {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    whole.checked_mul(scale)?.checked_add((part * scale as f64 + 0.5) as u64).map(Bytes)
}

/// Reads the size of `-m`: MiB where its last letter is a digit, so that `0x40` are 64 MiB and
/// `0x2a` are 42 bytes. `None`: no size of QEMU's; zero: as if nothing was said.
pub(crate) fn guest_size(text: &str) -> Option<Bytes> {
    let bytes = memory_size(text, Bytes(1))?;
    if !text.ends_with(|letter: char| letter.is_ascii_digit()) || bytes.0 == 0 {
        return Some(bytes);
    }
    bytes.0.checked_mul(Bytes::MIB.0).map(Bytes)
}

/// Reads a number: decimal, hexadecimal behind `0x`, octal behind `0`.
pub(crate) fn number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = match (hexadecimal(text), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    if digits.starts_with('+') { None } else { u32::from_str_radix(digits, radix).ok() }
}

/// Whether a word means yes (`qapi_bool_parse`).
pub(crate) fn is_yes(text: &str) -> bool {
    matches!(text, "on" | "yes" | "true" | "y")
}

fn hexadecimal(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

fn split_at_other(text: &str, wanted: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !wanted(letter)).unwrap_or(text.len()))
}

/// What a suffix multiplies by; `None`: it is none.
fn scale(suffix: &str, unit: Bytes) -> Option<u64> {
    let powers = ["B", "K", "M", "G", "T", "P", "E"];
    match suffix {
        "" => Some(unit.0),
        suffix => powers.iter().position(|one| one.eq_ignore_ascii_case(suffix)).map(|power| 1 << (10 * power)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes_and_fractions() {
        let cases = [
            ("512", 512 << 20),
            ("4G", 4 << 30),
            ("8388608k", 8 << 30),
            ("1048576B", 1 << 20),
            ("1.5g", 3 << 29),
            (".25G", 1 << 28),
            ("1.M", 1 << 20),
            ("010", 10 << 20),
            (" +1T", 1 << 40),
            ("1p", 1 << 50),
            ("1e", 1 << 60), // an exbibyte: there are no exponents
            ("0x1000", 4096 << 20),
            ("0x40M", 64 << 20),
            ("0x1b", 27 << 20),      // b is a digit
            ("12.345M", 12_944_671), // 12.345 x 1048576 = 12944670.72
            ("0.0B", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(memory_size(text, Bytes::MIB), Some(Bytes(bytes)), "{text}");
        }
        assert_eq!(memory_size("1073741824", Bytes(1)), Some(Bytes(1 << 30)));
        for text in ["", "G", ".", "4 apples", "-1", "1e2M", "0x", "0x1.8", "1.5B", "99999999999999999T", "4GiB"] {
            assert_eq!(memory_size(text, Bytes::MIB), None, "{text}");
        }
        assert_eq!(memory_size("1.5", Bytes(1)), None, "no part of a byte");
    }

    #[test]
    fn a_guests_memory_counts_mebibytes_where_it_ends_with_a_digit() {
        let cases = [("64", 64 << 20), ("0x40", 64 << 20), ("0x2a", 42), ("1.5G", 3 << 29), ("0", 0), ("64b", 64)];
        for (text, bytes) in cases {
            assert_eq!(guest_size(text), Some(Bytes(bytes)), "{text}");
        }
        assert_eq!((guest_size("1.5"), guest_size("x")), (None, None));
    }

    #[test]
    fn numbers_have_a_base() {
        let read = ["4", "0x10", "010", " +7", "0", "0x", "08", "", "-1", "4x", "++1"].map(number);
        let expected = [Some(4), Some(16), Some(8), Some(7), Some(0), None, None, None, None, None, None];
        assert_eq!(read, expected);
    }
}
