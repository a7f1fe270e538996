//! The table `[rates]` of a machine file, before it is read: which of its fields no model can do
//! without.

use crate::{TomlError, TomlText};

/// Field, what it is, and how it is written.
const REQUIRED: [(&str, &str, &str); 3] = [
    ("lines_in_flight_per_core", "cache lines that a core can have in flight", "10"),
    ("local_latency_ns", "unloaded nanoseconds of a load from the own node's memory", "90.5"),
    ("node_bandwidth_gb_per_s", "traffic that one node's memory sustains, in GB/s of 10^9 bytes", "38.4"),
];

/// All fields without which a machine file describes no machine that can be modelled; each with
/// what to write. All three where the file has no table `[rates]` at all. Empty where the text is
/// not TOML: reading it says so.
pub fn missing_rates(text: &str, file: &str) -> Vec<TomlError> {
    match text.parse::<toml::Table>() {
        Ok(table) => lacking(&TomlText::new(text, file), table.get("rates").unwrap_or(&toml::Table::new().into())),
        Err(_) => Vec::new(),
    }
}

/// The first that the table `[rates]` of a file lacks; `None` where there is no such table.
pub(super) fn first_missing(text: &str, file: &str) -> Option<TomlError> {
    let rates = text.parse::<toml::Table>().ok()?.remove("rates")?;
    lacking(&TomlText::new(text, file), &rates).into_iter().next()
}

fn lacking(toml: &TomlText<'_>, rates: &toml::Value) -> Vec<TomlError> {
    // What is no table is refused as such when it is read.
    let Some(rates) = rates.as_table() else { return Vec::new() };
    REQUIRED.iter().filter(|(field, _, _)| !rates.contains_key(*field)).map(|required| fault(toml, required)).collect()
}

fn fault(toml: &TomlText<'_>, (field, meaning, example): &(&str, &str, &str)) -> TomlError {
    let problem = format!(
        "it is missing: {meaning}. Write {field} = {{ value = {example}, source = \"measured\", from = \"how\" }}; \
        source is document, datasheet, measured, calibrated or assumed"
    );
    TomlError { line: toml.line_of("rates"), ..toml.fault(&format!("rates.{field}"), problem) }
}

#[cfg(test)]
mod tests {
    use crate::read::{described, missing_rates};

    const MACHINE: &str = "sockets = 1\ncores_per_llc = 2\nmemory_per_node = \"4 GiB\"\n";
    const RATES: &str = r#"[rates]
lines_in_flight_per_core = { value = 10, source = "measured", from = "here" }
local_latency_ns = { value = 90.5, source = "measured", from = "here" }
node_bandwidth_gb_per_s = { value = 20, source = "measured", from = "here" }
"#;

    #[test]
    fn a_file_with_rates_gives_them_and_one_without_gives_none() {
        let whole = described(&format!("{MACHINE}{RATES}"), "m.toml").expect("valid");
        assert_eq!(whole.rates.expect("rates").local_latency_ns.value, 90.5);
        assert_eq!(described(MACHINE, "m.toml").expect("valid").rates, None);
        assert_eq!(missing_rates(&format!("{MACHINE}{RATES}"), "m.toml"), []);
        assert_eq!(missing_rates(MACHINE, "m.toml").len(), 3);
        assert_eq!(missing_rates(&format!("{MACHINE}[rates]\n"), "m.toml").len(), 3);
    }

    #[test]
    fn a_field_that_is_missing_or_of_a_wrong_kind_is_named_with_its_line() {
        // What is written, what instead; then the place, and what would be valid.
        let cases = [
            ("local_latency_ns", "# local_latency_ns", "m.toml:4: rates.local_latency_ns", "value = 90.5"),
            ("lines_in_flight", "lines_in_fligth", "m.toml:4: rates.lines_in_flight_per_core", "value = 10"),
            ("value = 20", "value = \"20\"", "m.toml:7: rates.node_bandwidth_gb_per_s.value = \"20\"", "a number"),
            (
                "source = \"measured\"",
                "source = \"guessed\"",
                "m.toml:5: rates.lines_in_flight_per_core.source",
                "assumed",
            ),
            (", from = \"here\"", "", "m.toml:5: rates.lines_in_flight_per_core", "from"),
            ("[rates]", "[rates]\nspeed = 3", "m.toml:5: rates.speed", "expected one of"),
            (
                "[rates]",
                "[[rates.link]]\nbetween = [0, 1.5]\n[rates]",
                "m.toml:5: rates.link[0].between = [0, 1.5]",
                "name of a switch",
            ),
            ("[rates]", "[[rates.link]]\nbetween = [0]\n[rates]", "rates.link[0].between", "tuple of size 2"),
            ("[rates]", "[[rates.link]]\nbetween = [0, 1]\n[rates]", "rates.link[0]", "gb_per_s"),
            ("[rates]", "[[rates.route]]\nway = [0, 1]\n[rates]", "rates.route[0].way", "path"),
        ];
        for (old, new, place, valid) in cases {
            let text = format!("{MACHINE}{RATES}").replacen(old, new, 1);
            let error = described(&text, "m.toml").expect_err(new).to_string();
            assert!(error.contains(place) && error.contains(valid), "{new}: {error}");
        }
        let error = described(&format!("{MACHINE}rates = 3\n"), "m.toml").expect_err("no table").to_string();
        assert!(error.contains("m.toml:4: rates = 3") && error.contains("a table [rates]"), "{error}");
    }
}
