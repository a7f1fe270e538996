//! What the switches of each configuration carried.

use super::words::NONE;
use super::{Kind, Row, Table};
use crate::carried::Carried;
use crate::summary::{Cell, Summary};
use std::collections::BTreeSet;
use topology::Bytes;

/// A row for each switch and each direction of a link; no table where nothing was plugged in.
pub(super) fn table(summary: &Summary) -> Option<Table> {
    let of_cell = |name: &str, cell: &Cell| -> Vec<Row> {
        let point = cell.point.to_string();
        let carried = cell.carried.iter().map(|carried| row(name, &point, carried));
        carried.chain((!cell.uncounted.is_empty()).then(|| unknown(name, &point))).collect()
    };
    let each = summary.configurations.iter().flat_map(|one| one.cells.iter().map(|cell| of_cell(&one.name, cell)));
    let rows: Vec<Row> = each.flatten().collect();
    let header = ["Configuration", "Point", "Switch", "Sent", "Frames", "Dropped", "Waited for the rate"];
    let note = "By the counters of the kernel, or of vde_switch, over all repetitions, warm-ups too. A switch: what \
        its VMs sent, and the \
                frames that guests did not take. A link (->): what went that way. Where frames wait, the link is as \
                busy as its rate allows; where it drops them, more came than that.";
    let all = || summary.configurations.iter().flat_map(|one| one.cells.iter().map(move |cell| (one, cell)));
    let why = all().flat_map(|(one, cell)| {
        let reasons = BTreeSet::from_iter(&cell.uncounted);
        reasons.into_iter().map(move |why| format!("{}, {}: not counted in each visit: {why}.", one.name, cell.point))
    });
    let notes = std::iter::once(note.to_owned()).chain(why).collect();
    (!rows.is_empty()).then(|| Table {
        title: "What the switches carried".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows,
        notes,
    })
}

/// A row that says that a sum is not whole.
fn unknown(configuration: &str, point: &str) -> Row {
    let cells = [configuration, point, "not counted", NONE, NONE, NONE, NONE].map(str::to_owned).to_vec();
    Row { cells, kind: Kind::Measured }
}

fn row(configuration: &str, point: &str, carried: &Carried) -> Row {
    let (name, waits) = match &carried.to {
        Some(to) => (format!("{} -> {to}", carried.switch), format!("{} times", carried.waits)),
        None => (carried.switch.clone(), NONE.to_owned()),
    };
    let amounts = [Bytes(carried.bytes).to_string(), carried.frames.to_string(), carried.dropped.to_string(), waits];
    let cells = [configuration.to_owned(), point.to_owned(), name].into_iter().chain(amounts).collect();
    Row { cells, kind: Kind::Measured }
}
