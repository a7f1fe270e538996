//! `top --batch`: every look as rows of one CSV table, for spreadsheets and programs.
//!
//! **Problem.** esxtop's batch mode has a column for each figure of each VM and a row for each
//! look: its header is right only for the VMs of the first look.
//!
//! **Rule.** A row for each node and each VM at each look, always with the same columns; `row` says
//! which of both it is. Amounts are in bytes, times in seconds. What is unknown, or is no figure of
//! this kind of row, is empty.

use super::columns::{COLUMNS, Value};
use super::{NodeRow, View, VmRow};
use std::io::{self, Write};

/// Columns of nodes that VMs do not have.
const OF_NODES: [&str; 5] = ["node", "cpus", "cpu_used_percent", "free_bytes", "promised_bytes"];

/// Columns of VMs that the screen does not show: hardware seldom counts them.
const OF_VMS: [&str; 3] = ["traffic_bytes_per_second", "remote_traffic_bytes_per_second", "cache_bytes"];

/// Writes looks.
pub(crate) struct Batch<W: Write> {
    csv: csv::Writer<W>,
}

impl<W: Write> Batch<W> {
    /// Writes the header.
    ///
    /// # Errors
    /// Nothing can be written.
    pub(crate) fn start(out: W) -> io::Result<Self> {
        let mut csv = csv::Writer::from_writer(out);
        let keys = COLUMNS.iter().map(|column| column.key);
        csv.write_record(["time", "at_seconds", "row"].into_iter().chain(OF_NODES).chain(keys).chain(OF_VMS))?;
        csv.flush()?;
        Ok(Self { csv })
    }

    /// Writes a look; `time`: when it was, empty for what is not now.
    ///
    /// # Errors
    /// Nothing can be written.
    pub(crate) fn add(&mut self, time: &str, view: &View) -> io::Result<()> {
        let at = format!("{:.3}", view.at_ms as f64 / 1000.0);
        for node in &view.nodes {
            self.csv.write_record([time, &at, "node"].into_iter().map(str::to_owned).chain(of_node(node)))?;
        }
        for vm in &view.vms {
            self.csv.write_record([time, &at, "vm"].into_iter().map(str::to_owned).chain(of_vm(vm)))?;
        }
        self.csv.flush()
    }
}

fn of_node(row: &NodeRow) -> Vec<String> {
    let own = [
        row.node.to_string(),
        row.cpus.len().to_string(),
        row.cpu_used_percent.map(plain).unwrap_or_default(),
        row.memory_free.map(|bytes| bytes.0.to_string()).unwrap_or_default(),
        row.promised.0.to_string(),
    ];
    let shared = |key: &str| match key {
        "vcpus" => row.vcpus.to_string(),
        "memory_bytes" => row.memory.0.to_string(),
        "cpu_used" => row.cpu_used.map(plain).unwrap_or_default(),
        _ => String::new(),
    };
    let none = OF_VMS.iter().map(|_| String::new());
    own.into_iter().chain(COLUMNS.iter().map(|column| shared(column.key))).chain(none).collect()
}

fn of_vm(row: &VmRow) -> Vec<String> {
    let written = |value: Value| match value {
        Value::Word(word) => word,
        Value::Figure(figure) => plain(figure),
        Value::Unknown => String::new(),
    };
    let none = OF_NODES.iter().map(|_| String::new());
    let figures = [
        row.traffic_bytes_per_second,
        row.remote_traffic_bytes_per_second,
        row.cache_bytes.map(|bytes| bytes.0 as f64),
    ];
    let figures = figures.into_iter().map(|figure| figure.map(plain).unwrap_or_default());
    none.chain(COLUMNS.iter().map(|column| written((column.value)(row)))).chain(figures).collect()
}

/// A number as programs read it, at most six digits after the point.
fn plain(figure: f64) -> String {
    let rounded = (figure * 1e6).round() / 1e6;
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tests::seen;
    use super::super::view;
    use super::*;
    use crate::source::Remembered;
    use topology::Bytes;

    #[test]
    fn every_row_has_every_column_and_the_unknown_is_empty() {
        let (machine, mut observation) = seen("0-1");
        observation.vms[0].vm.name = "a, \"b\"".into();
        observation.vms[0].clients[0].traffic_unsplit = Some(1.5e9);
        observation.vms[0].clients[0].cache_occupancy = Some(Bytes::from_mib(1));
        observation.nodes.values_mut().for_each(|node| node.memory_free = None);
        let mut out = Vec::new();
        let mut batch = Batch::start(&mut out).unwrap();
        batch.add("2026-01-02T03:04:05Z", &view("this host", &machine, &observation, &Remembered::default())).unwrap();
        drop(batch);
        let mut csv = csv::Reader::from_reader(&out[..]);
        let header: Vec<String> = csv.headers().unwrap().iter().map(str::to_owned).collect();
        let rows: Vec<csv::StringRecord> = csv.records().map(Result::unwrap).collect();
        let cell = |row: usize, key: &str| rows[row].get(header.iter().position(|one| one == key).unwrap()).unwrap();
        assert_eq!(rows.len(), 3, "two nodes and a VM");
        assert_eq!(
            (cell(0, "row"), cell(0, "node"), cell(0, "cpu_used_percent"), cell(0, "free_bytes")),
            ("node", "0", "50", "")
        );
        assert_eq!((cell(2, "row"), cell(2, "vm"), cell(2, "lives_on"), cell(2, "node")), ("vm", "a, \"b\"", "0", ""));
        assert_eq!((cell(2, "remote_bytes"), cell(2, "ready_percent"), cell(2, "moves")), ("104857600", "5", ""));
        let counted = ["traffic_bytes_per_second", "remote_traffic_bytes_per_second", "cache_bytes"];
        assert_eq!(counted.map(|key| cell(2, key)), ["1500000000", "", "1048576"]);
        assert_eq!(counted.map(|key| cell(0, key)), ["", "", ""]);
    }
}
