//! The columns of the VMs' table, and which of them fit.
//!
//! **Rule.** Where the screen is too narrow, columns go in a stated order ([`Column::drop`]), the
//! highest number first, until the rest fits: first what one can do without, last what `top` is
//! there for. The VM, where it lives, and its memory elsewhere stay ([`Column::drop`] 0); names are
//! cut to a quarter of the screen, but not below 12 characters.
//!
//! **Example.** 80 columns hold all but the process, the moves, and the memory that is resident.

use super::VmRow;
use crate::cells::{bytes, dash, figure, mib};
use scheduler::{Mobility, RunState};
use std::cmp::Ordering;
use topology::{Bytes, NodeSet};

/// Blanks between two columns.
pub(super) const GAP: usize = 2;
/// Names are never cut shorter.
const SHORTEST_NAME: usize = 12;

/// A figure or word, to be sorted and written as data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Word(String),
    Figure(f64),
    Unknown,
}

impl Value {
    fn figure(value: Option<f64>) -> Self {
        value.map_or(Self::Unknown, Self::Figure)
    }

    fn bytes(value: Option<Bytes>) -> Self {
        Self::figure(value.map(|bytes| bytes.0 as f64))
    }

    /// Words rise, figures fall, the unknown is last.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Word(one), Self::Word(other)) => one.cmp(other),
            (Self::Figure(one), Self::Figure(other)) => other.total_cmp(one),
            (Self::Unknown, Self::Unknown) => Ordering::Equal,
            (Self::Unknown, _) => Ordering::Greater,
            (_, Self::Unknown) => Ordering::Less,
            (Self::Word(_), Self::Figure(_)) => Ordering::Less,
            (Self::Figure(_), Self::Word(_)) => Ordering::Greater,
        }
    }
}

/// One column.
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Its name as data.
    pub(super) key: &'static str,
    pub(super) right: bool,
    /// The higher, the sooner it goes; 0 stays.
    drop: u8,
    pub(super) value: ValueOf,
    pub(super) cell: CellOf,
}

type ValueOf = fn(&VmRow) -> Value;
type CellOf = fn(&VmRow) -> String;

impl Column {
    const fn left(title: &'static str, key: &'static str, drop: u8, value: ValueOf, cell: CellOf) -> Self {
        Self { title, key, right: false, drop, value, cell }
    }

    const fn right(title: &'static str, key: &'static str, drop: u8, value: ValueOf, cell: CellOf) -> Self {
        Self { right: true, ..Self::left(title, key, drop, value, cell) }
    }
}

/// No VM has no memory: of one that has none nobody knows how much.
fn known(size: Bytes) -> Option<Bytes> {
    (size > Bytes(0)).then_some(size)
}

/// All of them, from left to right: title, name as data, when it goes, value, cell.
pub(super) const COLUMNS: [Column; 16] = [
    Column::left("VM", "vm", 0, |row| Value::Word(row.name.clone()), |row| row.name.clone()),
    Column::right(
        "Process",
        "process",
        9,
        |row| Value::figure(row.pid.map(f64::from)),
        |row| row.pid.map_or_else(dash, |pid| pid.to_string()),
    ),
    Column::left("Lives on", "lives_on", 0, |row| Value::Word(home(row)), home),
    Column::left("Bound to", "bound_to", 11, |row| Value::Word(bound(row)), bound),
    Column::right("vCPUs", "vcpus", 3, |row| Value::Figure(row.vcpus.into()), |row| row.vcpus.to_string()),
    Column::right(
        "Memory",
        "memory_bytes",
        5,
        |row| Value::bytes(known(row.memory_size)),
        |row| bytes(known(row.memory_size)),
    ),
    Column::right("Resident", "resident_bytes", 7, |row| Value::bytes(row.resident), |row| mib(row.resident)),
    Column::right("At home", "local_bytes", 8, |row| Value::bytes(row.local), |row| mib(row.local)),
    Column::right("Elsewhere", "remote_bytes", 0, |row| Value::bytes(row.remote), |row| mib(row.remote)),
    Column::right(
        "N%L",
        "local_percent",
        2,
        |row| Value::figure(row.local_percent),
        |row| row.local_percent.map_or_else(dash, |percent| format!("{:.0}", percent.floor())),
    ),
    Column::right(
        "Moves",
        "moves",
        10,
        |row| Value::figure(row.migrations.map(|moves| moves as f64)),
        |row| row.migrations.map_or_else(dash, |moves| moves.to_string()),
    ),
    Column::right("Used", "cpu_used", 1, |row| Value::figure(row.cpu_used), |row| figure(row.cpu_used, 2)),
    Column::right(
        "%Ready",
        "ready_percent",
        4,
        |row| Value::figure(row.ready_percent),
        |row| figure(row.ready_percent, 1),
    ),
    Column::left("", "note", 6, |row| Value::Word(note(row)), note),
    Column::left("State", "state", 13, |row| Value::Word(state(row)), state),
    Column::left("Virtual topology", "virtual_topology", 12, |row| Value::Word(topology(row)), topology),
];

/// Empty for one that homenode does not keep.
fn state(row: &VmRow) -> String {
    row.kept.as_ref().map_or_else(String::new, |kept| kept.state.to_string())
}

fn topology(row: &VmRow) -> String {
    row.kept.as_ref().map_or_else(String::new, |kept| kept.virtual_topology.clone())
}

fn home(row: &VmRow) -> String {
    row.home.as_ref().map_or_else(|| "floats".to_owned(), NodeSet::to_string)
}

fn bound(row: &VmRow) -> String {
    row.chosen_nodes.as_ref().map_or_else(String::new, NodeSet::to_string)
}

fn note(row: &VmRow) -> String {
    let mobility = match &row.mobility {
        Mobility::Movable => None,
        Mobility::MemoryFixed { .. } => Some("memory fixed"),
        Mobility::Fixed { .. } => Some("fixed"),
    };
    let paused = (row.state == Some(RunState::Paused)).then_some("paused");
    paused.into_iter().chain(mobility).collect::<Vec<_>>().join(", ")
}

/// The columns that fit, with their widths. `width`: that of the screen; `None`: nothing is dropped
/// or cut.
pub(super) fn fit(rows: &[&VmRow], width: Option<usize>) -> Vec<(usize, usize)> {
    let longest = |column: &Column| rows.iter().map(|row| (column.cell)(row).chars().count()).max().unwrap_or(0);
    let mut fitting: Vec<(usize, usize)> = COLUMNS.iter().map(longest).enumerate().collect();
    // What nobody has, such as a note, needs no column.
    fitting.retain(|&(_, width)| width > 0);
    fitting.iter_mut().for_each(|(index, width)| *width = COLUMNS[*index].title.len().max(*width));
    let Some(width) = width else { return fitting };
    fitting[0].1 = fitting[0].1.min(SHORTEST_NAME.max(width / 4));
    let needed = |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + GAP).sum::<usize>() - GAP;
    while needed(&fitting) > width {
        let next = fitting.iter().map(|&(index, _)| index).max_by_key(|&index| COLUMNS[index].drop);
        match next.filter(|&index| COLUMNS[index].drop > 0) {
            Some(index) => fitting.retain(|&(known, _)| known != index),
            None => break,
        }
    }
    fitting
}

/// A word in at most `width` characters; the last one says that it was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{seen, vm};
    use super::super::{KeptRow, view};
    use super::*;
    use crate::source::Remembered;
    use vm::history::UnixSeconds;
    use vm::life::State;

    fn titles(width: Option<usize>) -> Vec<&'static str> {
        let (machine, mut observation) = seen("0-1");
        let mut fixed = vm("a-vm-with-a-long-name-that-does-not-fit", 1_234_567, "0-3");
        fixed.clients[0].chosen_nodes = Some("0-1".parse().unwrap());
        fixed.mobility = Mobility::MemoryFixed { because: "VFIO".into() };
        observation.vms.push(fixed);
        let mut view = view("this host", &machine, &observation, &Remembered::default());
        view.add_kept(|_, pid| {
            let virtual_topology = "2 x 4 vCPUs, 2 x 8 GiB".to_owned();
            (pid == 1_234_567).then_some(KeptRow { state: State::Paused, since: UnixSeconds(1), virtual_topology })
        });
        let rows: Vec<&VmRow> = view.vms.iter().collect();
        let fitting = fit(&rows, width);
        if let Some(width) = width {
            let needed: usize = fitting.iter().map(|(_, width)| width + GAP).sum();
            assert!(needed - GAP <= width, "{needed} of {width}");
        }
        fitting.into_iter().map(|(index, _)| COLUMNS[index].title).collect()
    }

    #[test]
    fn memory_that_nobody_knows_is_no_zero() {
        assert_eq!([known(Bytes(0)), known(Bytes(1))], [None, Some(Bytes(1))]);
    }

    #[test]
    fn columns_go_in_their_order() {
        assert_eq!(titles(None).len(), COLUMNS.len());
        assert_eq!(titles(Some(200)), titles(None));
        // 20 + 8 + 5 + 7 + 9 + 3 + 4 + 6 + 12 and 8 gaps of 2 are 90: the note goes too, 76 are
        // left.
        let at_80 = ["VM", "Lives on", "vCPUs", "Memory", "Elsewhere", "N%L", "Used", "%Ready"];
        assert_eq!(titles(Some(80)), at_80);
        assert_eq!(titles(Some(40)), ["VM", "Lives on", "Elsewhere", "Used"]);
    }

    #[test]
    fn every_column_but_three_has_its_place_in_the_order() {
        let mut places: Vec<u8> = COLUMNS.iter().map(|column| column.drop).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!((cut("abcdef", 6).as_str(), cut("abcdef", 4).as_str()), ("abcdef", "abc…"));
    }
}
