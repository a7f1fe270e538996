//! The profile as a file like those in `profiles/`, read back before anybody gets it.

use super::scan::Scan;
use super::{FitError, FittedProfile, shapes};
use crate::profiles;
use simulator::workload::{Application, Binding, Kernel, MemoryWork};
use std::fmt::Write as _;
use topology::rates::{Source, Sourced};

/// Significant digits of a fitted value: more than a measurement has.
const DIGITS: i32 = 5;

/// The text.
pub(super) fn text(scan: &Scan, fitted: &FittedProfile) -> Result<String, FitError> {
    let profile = &fitted.profile;
    let mut text = format!(
        "# Fitted by homenode profile to {}, measured on {} at {}.\n",
        one_line(&scan.directory),
        one_line(&scan.machine),
        one_line(&scan.at)
    );
    if profile.application.is_some() {
        let _ = writeln!(text, "# Its time is that of {}.", one_line(&fitted.work));
    }
    for note in &fitted.notes {
        let _ = writeln!(text, "# {}", one_line(note));
    }
    let _ = writeln!(text, "\nname = {}\ntitle = {}", quoted(&profile.name), quoted(&profile.title));
    for kernel in &profile.kernels {
        text += &of_kernel(kernel);
    }
    if let Some(application) = &profile.application {
        text += &of_application(application);
    }
    text += &residuals(fitted);
    profiles::parse(&text, &format!("{}.toml", profile.name))?;
    Ok(text)
}

fn of_kernel(kernel: &Kernel) -> String {
    let mut text = format!("\n[[kernel]]\nname = {}\n", quoted(&kernel.name));
    number(&mut text, "lines_in_flight", Some(&kernel.lines_in_flight));
    number(&mut text, "core_ns_per_line", Some(&kernel.core_ns_per_line));
    number(&mut text, "write_share", Some(&kernel.write_share));
    number(&mut text, "counted_bytes_per_line", Some(&kernel.counted_bytes_per_line));
    text
}

fn of_application(application: &Application) -> String {
    let mut text = format!(
        "\n[application]\nclass = \"{}\"\nclass_from = {}\n",
        shapes::word(application.class),
        quoted(&application.class_from)
    );
    let binding = match application.binding.value {
        Binding::Pinned => "\"pinned\"",
        Binding::Unpinned => "\"unpinned\"",
    };
    sourced(&mut text, "binding", binding, &application.binding);
    number(&mut text, "serial_s", application.serial_s.as_ref());
    number(&mut text, "compute_core_s", application.compute_core_s.as_ref());
    number(&mut text, "virtual_overhead", application.virtual_overhead.as_ref());
    if let Some(MemoryWork { lines, lines_in_flight, core_ns_per_line, write_share, .. }) = &application.memory {
        text += "\n[application.memory]\n";
        number(&mut text, "lines", Some(lines));
        number(&mut text, "lines_in_flight", Some(lines_in_flight));
        number(&mut text, "core_ns_per_line", Some(core_ns_per_line));
        number(&mut text, "write_share", Some(write_share));
    }
    text
}

fn number(text: &mut String, field: &str, value: Option<&Sourced<f64>>) {
    if let Some(value) = value {
        sourced(text, field, &rounded(value.value), value);
    }
}

fn sourced<T>(text: &mut String, field: &str, written: &str, value: &Sourced<T>) {
    let source = match value.source {
        Source::Document => "document",
        Source::Datasheet => "datasheet",
        Source::Measured => "measured",
        Source::Calibrated => "calibrated",
        Source::Assumed => "assumed",
    };
    let _ = writeln!(text, "{field} = {{ value = {written}, source = \"{source}\", from = {} }}", quoted(&value.from));
}

/// A float of TOML: `5e-5`, `1234.5`, `0.0`.
fn rounded(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let scale = 10f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if (1e-4..1e7).contains(&rounded.abs()) { format!("{rounded}") } else { format!("{rounded:e}") }
}

/// How well it fits, as comments: a reader is to see them, and nothing is to use them.
fn residuals(fitted: &FittedProfile) -> String {
    let mut text =
        "\n# The model with this profile against what was measured. A star: the profile was fitted on it.\n".to_owned();
    for one in &fitted.residuals {
        let _ = writeln!(
            text,
            "# {} {:<24} {:>4} threads  measured {:>12.4}  modelled {:>12.4} {}  {:>+6.1} %",
            if one.fitted { "*" } else { " " },
            one_line(&one.figure),
            one.threads,
            one.measured,
            one.modelled,
            one_line(&one.unit),
            one.error_percent()
        );
    }
    text
}

/// A TOML string.
fn quoted(text: &str) -> String {
    toml::Value::String(one_line(text)).to_string()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_five_digits() {
        let cases = [(0.0, "0"), (1234.5678, "1234.6"), (0.012, "0.012"), (1.234_567e-5, "1.2346e-5")];
        for (value, written) in cases {
            assert_eq!(rounded(value), written);
        }
        let lines: f64 = rounded(1.234_567_8e12).parse().unwrap();
        assert!((lines / 1.234_6e12 - 1.0).abs() < 1e-12, "{lines}");
    }
}
