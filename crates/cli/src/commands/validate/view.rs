//! The errors of the model, for people.

use crate::text;
use evaluate::validation::cell::{Role, ValidationCell};
use evaluate::validation::gates::Gate;
use evaluate::validation::outcome::StatementOutcome;
use evaluate::validation::report::{GroupErrors, Validation};
use std::fmt::Write;

/// What no source prints as text.
const NOT_IN_TEXT: &str = "not published in text";

/// Everything that was compared; with `cells` each figure too.
pub(crate) fn render(validation: &Validation, cells: bool) -> String {
    let mut page = String::from(
        "Published figures on the MODEL. Nothing here was measured; \u{2248} marks what the model gives.\n\
         Mean and largest: absolute relative errors, in %. Queueing: closed queueing network. Max-min: the \
         cross-check.\n",
    );
    for (role, title) in [
        (Role::HeldOut, "HELD OUT: figures that the model never saw"),
        (
            Role::Calibrated,
            "CALIBRATED: figures that a value of the model was fitted to; their errors say nothing about it",
        ),
        (Role::Reported, "REPORTED: outside of what the model covers, or not published in text"),
    ] {
        let _ = write!(page, "\n{title}\n{}\n", groups(validation, role));
    }
    let fitted = validation.cells.iter().filter(|cell| cell.role == Role::Calibrated && cell.published.is_some());
    let _ = writeln!(
        page,
        "\nAll {} held-out figures: {}.\nAll {} figures that were never fitted, those reported included: {}; {} more \
        were fitted.",
        validation.held_out.queueing.cells,
        sum(&validation.held_out),
        validation.never_fitted.queueing.cells,
        sum(&validation.never_fitted),
        fitted.count()
    );
    statements(&mut page, &validation.statements);
    gates(&mut page, &validation.gates);
    if cells {
        all_cells(&mut page, &validation.cells);
    }
    page
}

/// `mean 2.1 %, largest 11.2 % (Default / vNUMA, swim at 64)`.
fn sum(all: &GroupErrors) -> String {
    let worst = all.worst.as_ref().map_or(String::new(), |cell| format!(" ({})", place(cell)));
    format!("mean {:.1} %, largest {:.1} %{worst}", all.queueing.mape_percent, all.queueing.max_percent)
}

fn groups(validation: &Validation, role: Role) -> String {
    let header = ["Group", "Figures", "Mean", "Largest", "Max-min", "Largest", "Worst"];
    let mut table = text::table(header, &[1, 2, 3, 4, 5]);
    for group in validation.groups.iter().filter(|group| group.role == role) {
        table.add_row(row(group));
    }
    text::lines(&table)
}

fn row(group: &GroupErrors) -> Vec<String> {
    let percent = |of: f64, cells: usize| if cells == 0 { "-".to_owned() } else { format!("{of:.1}") };
    let (own, other) = (group.queueing, group.max_min);
    let none = || format!("{} {NOT_IN_TEXT}", group.not_in_text);
    vec![
        group.group.clone(),
        own.cells.to_string(),
        percent(own.mape_percent, own.cells),
        percent(own.max_percent, own.cells),
        percent(other.mape_percent, other.cells),
        percent(other.max_percent, other.cells),
        group.worst.as_ref().map_or_else(none, worst),
    ]
}

fn worst(cell: &ValidationCell) -> String {
    let (digits, published) = (digits(cell), cell.published.unwrap_or_default());
    let unit = if cell.unit.is_empty() { String::new() } else { format!(" {}", cell.unit) };
    format!("{}: \u{2248}{:.digits$} [{published:.digits$}]{unit}", place(cell), cell.modelled)
}

/// Which cell it is, in few words.
fn place(cell: &ValidationCell) -> String {
    match cell.threads {
        None => cell.figure.clone(),
        Some(threads) => format!("{}, {} at {threads}", cell.configuration, cell.figure),
    }
}

fn digits(cell: &ValidationCell) -> usize {
    if cell.modelled < 10.0 { 2 } else { 0 }
}

fn statements(page: &mut String, statements: &[StatementOutcome]) {
    let held = statements.iter().filter(|one| one.holds).count();
    let _ = writeln!(page, "\nWhat the sources say in words: the model agrees with {held} of {}.", statements.len());
    for one in statements.iter().filter(|one| !one.holds) {
        let figures: Vec<String> = one.modelled.iter().map(|value| number(*value)).collect();
        let modelled = if figures.is_empty() { String::new() } else { format!(": \u{2248} {}", figures.join(", ")) };
        let role = if one.role == Role::HeldOut { "FAILS" } else { "fails, reported" };
        let _ = writeln!(page, "  {role}  {} {}{modelled}; expected {}", one.id, one.text, one.expected);
    }
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

fn gates(page: &mut String, gates: &[Gate]) {
    let broken: Vec<&Gate> = gates.iter().filter(|gate| !gate.holds()).collect();
    let _ = writeln!(page, "\nLimits that a test keeps: {} of {} hold.", gates.len() - broken.len(), gates.len());
    for gate in broken {
        let _ = writeln!(page, "  BROKEN  {}: {:.2}, at most {}", gate.what, gate.value, gate.limit);
    }
}

fn all_cells(page: &mut String, cells: &[ValidationCell]) {
    let header = ["Group", "Configuration", "Figure", "Threads", "Modelled", "Published", "Error", "Used for"];
    let mut table = text::table(header, &[3, 4, 5, 6]);
    for cell in cells {
        let digits = digits(cell);
        let percent = |error: f64| format!("{:+.1} %", 100.0 * error);
        table.add_row(vec![
            cell.group.clone(),
            cell.configuration.clone(),
            cell.figure.clone(),
            cell.threads.map_or(String::new(), |threads| threads.to_string()),
            format!("\u{2248} {:.digits$}", cell.modelled),
            cell.published.map_or(NOT_IN_TEXT.to_owned(), |published| format!("[{published:.digits$}]")),
            cell.error().map_or("-".to_owned(), percent),
            used_for(cell).to_owned(),
        ]);
    }
    let _ = write!(page, "\n{}\n", text::lines(&table));
}

fn used_for(cell: &ValidationCell) -> &'static str {
    match cell.role {
        Role::Calibrated => "calibrated",
        Role::HeldOut => "held out",
        Role::Reported => "reported",
    }
}
