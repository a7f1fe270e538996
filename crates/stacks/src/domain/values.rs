//! Values as libvirt reads them.

use super::error::ValueError;
use topology::{Bytes, Id, IdSet};

/// Numbers in libvirt's lists are below this (its `VIR_DOMAIN_CPUMASK_LEN`), and a list names no
/// more of them, each as often as it is named.
pub(super) const LIST_END: u32 = 16_384;

/// A list such as `0-3,^2,8`: ranges, and numbers that are taken out again, in their order.
pub(super) fn list<T: Id>(text: &str) -> Result<IdSet<T>, ValueError> {
    let mut members = std::collections::BTreeSet::new();
    let mut named = 0;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(excluded) = part.strip_prefix('^') {
            members.remove(&listed(excluded)?);
            continue;
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (listed(first)?, listed(last)?);
        if first > last {
            return Err(ValueError::Backwards);
        }
        named += last - first + 1;
        if named > LIST_END {
            return Err(ValueError::NamedAgain);
        }
        members.extend(first..=last);
    }
    if members.is_empty() {
        return Err(ValueError::NamesNothing);
    }
    Ok(members.into_iter().map(T::from_number).collect())
}

fn listed(text: &str) -> Result<u32, ValueError> {
    let number: u32 = text.trim().parse().map_err(|_| ValueError::NoList)?;
    if number >= LIST_END {
        return Err(ValueError::ListEnd);
    }
    Ok(number)
}

/// A whole number up to `most`.
pub(super) fn number(text: &str, most: u32) -> Result<u32, ValueError> {
    let number: Option<u32> = text.trim().parse().ok();
    number.filter(|&number| number <= most).ok_or(ValueError::Number(most))
}

/// A number in libvirt's C notation: `0x3b`, `59`.
pub(super) fn address(text: &str, most: u32) -> Result<u32, ValueError> {
    let text = text.trim();
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|&number| number <= most).ok_or(ValueError::Address(most))
}

/// An amount with libvirt's `unit`, KiB where it says none. libvirt keeps whole KiB and rounds up
/// to them.
pub(super) fn memory(text: &str, unit: Option<&str>) -> Result<Bytes, ValueError> {
    let amount: u64 = text.trim().parse().map_err(|_| ValueError::Amount)?;
    let unit = unit.unwrap_or("KiB").trim();
    let scale = scale(unit).ok_or_else(|| ValueError::Unit(unit.to_owned()))?;
    let bytes = amount.checked_mul(scale).filter(|&bytes| bytes <= MOST_MEMORY);
    Ok(Bytes(bytes.ok_or(ValueError::Memory)?.next_multiple_of(1024)))
}

/// 4 PiB: what x86 can address with 52 bits.
pub(super) const MOST_MEMORY: u64 = 1 << 52;

/// Units as libvirt's `virScaleInteger` takes them: `k` and `KiB` are 1024, `KB` is 1000, in any
/// case.
fn scale(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "b" | "byte" | "bytes") {
        return Some(1);
    }
    let letter = unit.chars().next()?;
    let power = "kmgtpe".find(letter)? as u32 + 1;
    match &unit[1..] {
        "" | "ib" => 1024_u64.checked_pow(power),
        "b" => 1000_u64.checked_pow(power),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::CpuSet;

    #[test]
    fn lists_are_read_as_libvirt_reads_them() {
        let read = |text: &str| list::<topology::CpuId>(text).map(|cpus: CpuSet| cpus.to_string());
        assert_eq!(read("0-3,^2"), Ok("0-1,3".to_owned()));
        assert_eq!(read(" 8 , 0 - 1"), Ok("0-1,8".to_owned()));
        // In order: what is taken out first may be put in again.
        assert_eq!(read("^2,0-3"), Ok("0-3".to_owned()));
        for wrong in ["", ",", "1,^1", "3-1", "a", "0-", "-1", "16384", "0-4000000000", "^0-3", "0-16383,1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn units_are_libvirts() {
        let read = |text, unit| memory(text, unit).map(|bytes| bytes.0);
        assert_eq!(read("4", None), Ok(4096));
        assert_eq!(read("2", Some("MiB")), Ok(2 << 20));
        assert_eq!(read("2", Some("M")), Ok(2 << 20));
        assert_eq!(read("1", Some("gib")), Ok(1 << 30));
        // 1 MB = 1 000 000 bytes = 976.56 KiB; libvirt rounds up to 977 KiB.
        assert_eq!(read("1", Some("MB")), Ok(977 * 1024));
        assert_eq!(read("1", Some("b")), Ok(1024));
        assert_eq!(read("4096", Some("bytes")), Ok(4096));
        for (text, unit) in
            [("x", None), ("1", Some("XB")), ("1", Some("")), ("5", Some("EiB")), ("99999999999999999999", None)]
        {
            assert!(memory(text, unit).is_err(), "{text} {unit:?}");
        }
    }
}
