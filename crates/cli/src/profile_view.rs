//! A fitted profile for people.

use crate::text::{Table, lines, table, width, wrapped};
use evaluate::fitted_profile::{Candidate, FittedProfile, Parts, Residual, word};
use simulator::workload::{Class, WorkloadProfile};
use std::fmt::Write as _;

/// Notes, what the program asks for, and how well that fits.
pub(crate) fn view(fitted: &FittedProfile) -> String {
    let mut text = format!("{}\n", fitted.profile.title);
    for note in &fitted.notes {
        for (index, line) in wrapped(note, width() - 2).into_iter().enumerate() {
            let _ = writeln!(text, "{} {line}", if index == 0 { "!" } else { " " });
        }
    }
    if let Some(parts) = &fitted.parts {
        let _ = write!(text, "\n{}\n", lines(&asks(fitted, parts)));
    }
    if fitted.candidates.len() > 1 {
        let _ = write!(text, "\nKinds of program that were tried\n{}\n", lines(&candidates(fitted)));
    }
    let _ = write!(text, "\nThe scan\n{}\n", lines(&residuals(&fitted.residuals)));
    text += "fitted: the profile was fitted on it. test: it had no say. Left out: the error there of a fit without \
        it.\nSpread: median repetition against the best, which is the figure.\n";
    if !fitted.vms.is_empty() {
        let _ = write!(text, "\nVMs, which the fit never saw\n{}\n", lines(&vms(fitted)));
    }
    text
}

fn asks(fitted: &FittedProfile, parts: &Parts) -> Table {
    let mut rows = table(["what it asks for", "value", "unit"], &[1]);
    let mut add = |name: &str, value: f64, digits: usize, unit: &str| {
        rows.add_row([name.to_owned(), format!("{value:.digits$}"), unit.to_owned()]);
    };
    add("serial part", parts.serial_s, 3, "s");
    add("computing, all threads together", parts.compute_core_s, 3, "core-s");
    if parts.lines > 0.0 {
        add("memory traffic", parts.lines * 64.0 / 1e9, 2, "GB");
        add("the same of one thread", parts.gb_per_s_of_one_thread, 2, "GB/s");
        add("core time of a line, beside memory", parts.core_ns_per_line, 2, "ns");
    }
    if let Some(class) = class(&fitted.profile) {
        rows.add_row([format!("class {class}, work of {}", fitted.work), String::new(), String::new()]);
    }
    rows
}

fn class(profile: &WorkloadProfile) -> Option<&'static str> {
    profile.application.as_ref().map(|application| word(application.class))
}

fn candidates(fitted: &FittedProfile) -> Table {
    let mut rows = table(["class", "fit", "left out", "traffic of one thread", ""], &[1, 2, 3]);
    for candidate in &fitted.candidates {
        let Candidate { class, fit_percent, left_out_percent, parts, fits_as_well } = candidate;
        let taken = class_is_taken(fitted, *class);
        rows.add_row([
            word(*class).to_owned(),
            format!("{fit_percent:.1} %"),
            left_out_percent.map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
            format!("{:.2} GB/s", parts.gb_per_s_of_one_thread),
            match (taken, fits_as_well) {
                (true, _) => "taken",
                (false, true) => "cannot be told from the best",
                (false, false) => "",
            }
            .to_owned(),
        ]);
    }
    rows
}

fn class_is_taken(fitted: &FittedProfile, class: Class) -> bool {
    fitted.profile.application.as_ref().is_some_and(|application| application.class == class)
}

fn residuals(residuals: &[Residual]) -> Table {
    let mut rows =
        table(["figure", "threads", "measured", "modelled", "error", "", "left out", "spread"], &[1, 2, 3, 4, 6, 7]);
    for one in residuals {
        rows.add_row([
            one.figure.clone(),
            one.threads.to_string(),
            format!("{} {}", short(one.measured), one.unit),
            format!("≈ {} {}", short(one.modelled), one.unit),
            format!("{:+.1} %", one.error_percent()),
            if one.fitted { "fitted" } else { "test" }.to_owned(),
            one.left_out_percent().map_or("-".to_owned(), |percent| format!("{percent:+.1} %")),
            format!("{:.1} %", one.spread_percent),
        ]);
    }
    rows
}

fn vms(fitted: &FittedProfile) -> Table {
    let mut rows = table(["configuration", "figure", "threads", "measured", "modelled", "error"], &[2, 3, 4, 5]);
    for vm in &fitted.vms {
        rows.add_row([
            vm.configuration.clone(),
            vm.figure.clone(),
            vm.threads.to_string(),
            format!("{} {}", short(vm.measured), vm.unit),
            format!("≈ {} {}", short(vm.modelled), vm.unit),
            match vm.error_percent() {
                Some(percent) => format!("{percent:+.1} %"),
                None => "EMULATED (TCG): not covered".to_owned(),
            },
        ]);
    }
    rows
}

/// Four digits.
fn short(value: f64) -> String {
    let before = value.abs().max(1e-9).log10().floor() as i32;
    let digits = (3 - before).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}
