//! Units, as UCUM writes them: known words with prefixes, and what is counted in braces.

/// Units that take no prefix.
const WHOLE: [&str; 9] = ["1", "%", "min", "h", "d", "day", "year", "K", "FLOP"];
/// Units that take a decimal prefix.
const WITH_PREFIX: [&str; 18] =
    ["s", "B", "bit", "Hz", "flop", "FLOPS", "flops", "FLOP", "W", "J", "m", "g", "op", "OP", "V", "A", "mol", "cal"];
/// Units that take a binary prefix.
const WITH_BINARY_PREFIX: [&str; 2] = ["B", "bit"];
const PREFIXES: [&str; 12] = ["f", "p", "n", "u", "µ", "m", "k", "M", "G", "T", "P", "E"];
const BINARY_PREFIXES: [&str; 5] = ["Ki", "Mi", "Gi", "Ti", "Pi"];

/// Whether `unit` is one: known words (`s`, `ms`, `MB/s`, `Gflop/s`, `ns/d`, `1` of a plain
/// number), joined by `/` and `*`; what is counted stands in braces (`{cell}/s`, `M{step}/s`).
/// The error says which word is not known.
///
/// # Errors
/// A word of it is not known.
pub fn check_unit(unit: &str) -> Result<(), UnknownUnit> {
    let unknown = |word: &str| UnknownUnit { word: word.to_owned() };
    if unit.len() > 40 || unit.chars().any(char::is_control) {
        return Err(unknown("a long unit"));
    }
    unit.split(['/', '*']).find(|word| !is_known(word)).map_or(Ok(()), |word| Err(unknown(word)))
}

/// A word that is no unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a unit: `{word}` is not known. Known are s, ms, us, min, h, d, B, MB, GiB, bit, Hz, flop, op, J, cal, mol, W, K, \
    % and 1 with the usual prefixes, joined by / or *; write what is counted in braces, for example {{step}}/s"
)]
pub struct UnknownUnit {
    word: String,
}

fn is_known(word: &str) -> bool {
    let with = |prefixes: &[&str], units: &[&str]| {
        let rest = prefixes.iter().filter_map(|prefix| word.strip_prefix(prefix));
        rest.into_iter().any(|rest| units.contains(&rest))
    };
    let counted = |word: &str| {
        let inside = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        inside.is_some_and(|inside| !inside.trim().is_empty() && !inside.contains(['{', '}']))
    };
    WHOLE.contains(&word)
        || WITH_PREFIX.contains(&word)
        || with(&PREFIXES, &WITH_PREFIX)
        || with(&BINARY_PREFIXES, &WITH_BINARY_PREFIX)
        || counted(word)
        || PREFIXES.iter().filter_map(|prefix| word.strip_prefix(prefix)).any(counted)
}

#[cfg(test)]
mod tests {
    use super::check_unit;

    #[test]
    fn units_of_the_field_are_known() {
        for unit in [
            "s",
            "ms",
            "µs",
            "ns/d",
            "MB/s",
            "GiB/s",
            "Gflop/s",
            "GFLOPS",
            "{step}/s",
            "M{cell}/s",
            "1",
            "%",
            "J",
            "s*K",
            "kcal/mol",
            "kbit/s",
            "{timestep}/day",
        ] {
            assert_eq!(check_unit(unit), Ok(()), "{unit}");
        }
    }

    #[test]
    fn a_unit_that_does_not_exist_is_named_with_the_cure() {
        for (unit, word) in
            [("furlong/s", "furlong"), ("MB/sec", "`sec`"), ("", "``"), ("{}/s", "{}"), ("steps", "steps")]
        {
            let error = check_unit(unit).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("{step}/s"), "{unit}: {error}");
        }
    }
}
