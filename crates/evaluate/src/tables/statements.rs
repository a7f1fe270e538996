//! What the sources say in words, and whether the model agrees.

use super::{Kind, Row, Table};
use crate::validation::cell::Role;
use crate::validation::outcome::StatementOutcome;

/// A table of the statements, if there is any.
pub(super) fn table(statements: &[StatementOutcome]) -> Option<Table> {
    let rows: Vec<Row> = statements.iter().map(row).collect();
    let header = ["", "On the model", "Modelled", "Expected", "Statement"].map(str::to_owned).to_vec();
    let title = "What the source says, MODELLED".to_owned();
    (!rows.is_empty()).then_some(Table { title, header, rows, notes: Vec::new() })
}

fn row(one: &StatementOutcome) -> Row {
    let text = |value: &f64| if *value < 10.0 { format!("≈ {value:.2}") } else { format!("≈ {value:.0}") };
    let modelled: Vec<String> = one.modelled.iter().map(text).collect();
    let verdict = match (one.holds, one.role) {
        (true, _) => "holds",
        (false, Role::HeldOut) => "FAILS",
        (false, _) => "fails",
    };
    let cells = [&one.id, verdict, &modelled.join(", "), &one.expected, &one.text];
    Row { cells: cells.map(str::to_owned).to_vec(), kind: Kind::Modelled }
}
