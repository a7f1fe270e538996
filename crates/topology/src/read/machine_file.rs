//! Machine files: a regular machine in a few lines of TOML.

use super::error::{ReadError, check_size};
use super::shape::{Place, Shape, node};
use crate::rates::Rates;
use crate::{Bandwidths, Bytes, CoreId, CpuId, Distances, Llc, LlcId, Machine, NodeId, SocketId, TomlText};
use serde::Deserialize;

/// How Linux numbers the hardware threads.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CpuNumbering {
    /// First one thread of every core, then their siblings: x86.
    #[default]
    CoresFirst,
    /// All threads of a core, then the next core: POWER, arm.
    ThreadsFirst,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    name: Option<String>,
    cpu_model: Option<String>,
    sockets: u32,
    #[serde(default = "one")]
    nodes_per_socket: u32,
    #[serde(default = "one")]
    llcs_per_node: u32,
    cores_per_llc: u32,
    #[serde(default = "one")]
    threads_per_core: u32,
    #[serde(default)]
    cpu_numbering: CpuNumbering,
    memory_per_node: Bytes,
    llc_size: Option<Bytes>,
    #[serde(default = "level_3")]
    llc_level: u8,
    distances: Option<Vec<Vec<u32>>>,
    rates: Option<Rates>,
}

/// A machine file as a whole: the machine, and what its memory system can do where the file says
/// so.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The machine.
    pub machine: Machine,
    /// Its table `[rates]`.
    pub rates: Option<Rates>,
}

fn one() -> u32 {
    1
}

fn level_3() -> u8 {
    3
}

/// A machine from a machine file; `file` is what errors call it, and without its extension the
/// machine's name unless the file gives one.
///
/// # Errors
/// Where a field is unknown, missing, of the wrong type or out of range: the file, the field, its
/// value, what would be valid.
pub fn from_toml(text: &str, file: &str) -> Result<Machine, ReadError> {
    described(text, file).map(|described| described.machine)
}

/// Like [`from_toml`], with the rates. That they are possible is for `simulator::MachineModel` to
/// say.
///
/// # Errors
/// Those of [`from_toml`].
pub fn described(text: &str, file: &str) -> Result<Described, ReadError> {
    let fail = |reason: String| ReadError::Document { file: file.to_owned(), reason };
    if let Some(fault) = super::rates::first_missing(text, file) {
        return Err(fault.into());
    }
    let file_content: MachineFile = TomlText::new(text, file).read()?;
    file_content.check(file)?;
    let shape = file_content.shape();
    let nodes: Vec<NodeId> = shape.nodes.iter().map(|node| node.id).collect();
    let distances = file_content.distances.map(|rows| table(file, nodes, rows)).transpose()?;
    let name = file_content.name.unwrap_or_else(|| super::stem(file));
    let mut machine = shape.finish(&name, distances, fail)?;
    if let Some(rates) = &file_content.rates {
        let nodes: Vec<NodeId> = machine.node_ids().iter().collect();
        machine.bandwidth = Bandwidths::of_rates(&nodes, rates);
    }
    Ok(Described { machine, rates: file_content.rates })
}

impl MachineFile {
    fn check(&self, file: &str) -> Result<(), ReadError> {
        let counts = [
            ("sockets", self.sockets),
            ("nodes_per_socket", self.nodes_per_socket),
            ("llcs_per_node", self.llcs_per_node),
            ("cores_per_llc", self.cores_per_llc),
            ("threads_per_core", self.threads_per_core),
        ];
        if let Some((field, count)) = counts.into_iter().find(|&(_, count)| count == 0) {
            let valid = "expected a whole number from 1 up".to_owned();
            return Err(ReadError::Field { file: file.to_owned(), field, value: count.to_string(), valid });
        }
        if !(1..=5).contains(&self.llc_level) {
            let valid = "expected a cache level from 1 to 5".to_owned();
            return Err(ReadError::Field {
                file: file.to_owned(),
                field: "llc_level",
                value: self.llc_level.to_string(),
                valid,
            });
        }
        let product =
            |counts: &[(&str, u32)]| counts.iter().fold(1_usize, |all, &(_, count)| all.saturating_mul(count as usize));
        check_size(file, product(&counts), product(&counts[..2]))
    }

    fn shape(&self) -> Shape {
        let nodes = self.sockets * self.nodes_per_socket;
        let llcs = nodes * self.llcs_per_node;
        let cores = llcs * self.cores_per_llc;
        let mut shape = Shape { cpu_model: self.cpu_model.clone(), ..Shape::default() };
        shape.nodes = (0..nodes).map(|id| node(NodeId(id), Some(self.memory_per_node), Vec::new())).collect();
        shape.llcs = (0..llcs).map(|id| Llc { id: LlcId(id), level: self.llc_level, size: self.llc_size }).collect();
        for core in 0..cores {
            let llc = core / self.cores_per_llc;
            let node = llc / self.llcs_per_node;
            let place = Place {
                socket: Some(SocketId(node / self.nodes_per_socket)),
                llc: Some(LlcId(llc)),
                core: Some(CoreId(core)),
                node: Some(node as usize),
            };
            for thread in 0..self.threads_per_core {
                let id = match self.cpu_numbering {
                    CpuNumbering::CoresFirst => thread * cores + core,
                    CpuNumbering::ThreadsFirst => core * self.threads_per_core + thread,
                };
                shape.threads.push((CpuId(id), place));
            }
        }
        shape
    }
}

fn table(file: &str, nodes: Vec<NodeId>, rows: Vec<Vec<u32>>) -> Result<Distances, ReadError> {
    let field =
        |value: String, valid: String| ReadError::Field { file: file.to_owned(), field: "distances", value, valid };
    let count = nodes.len();
    for (from, row) in rows.iter().enumerate() {
        let wrong = |(to, &distance): (usize, &u32)| {
            if from == to { distance != Distances::LOCAL } else { !(11..255).contains(&distance) }
        };
        if row.iter().enumerate().any(wrong) {
            let valid =
                format!("row {from} must have 10 for node {from} itself, and 11 to 254 for the others (ACPI's SLIT)");
            return Err(field(format!("{row:?}"), valid));
        }
    }
    let shown = format!("{} rows", rows.len());
    Distances::new(nodes, rows)
        .ok_or_else(|| field(shown, format!("expected {count} rows of {count} numbers, one for each node")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "sockets = 2\ncores_per_llc = 2\nthreads_per_core = 2\nmemory_per_node = \"4 GiB\"\n";

    #[test]
    fn cpus_are_numbered_cores_first_or_threads_first() {
        let cpus = |more: &str| {
            let machine = from_toml(&format!("{SMALL}{more}"), "m.toml").expect("a machine");
            machine.usable_cpus(NodeId(1)).to_string()
        };
        // 2 sockets x 2 cores: CPUs 0-3 are the cores' first threads, 4-7 the second; node 1 has
        // cores 2 and 3.
        assert_eq!(cpus(""), "2-3,6-7");
        assert_eq!(cpus("cpu_numbering = \"threads-first\""), "4-7");
    }

    #[test]
    fn an_error_names_file_field_value_and_what_is_valid() {
        let cases = [
            (SMALL.replace("sockets = 2", "sockets = 0"), "sockets = 0", "from 1 up"),
            (SMALL.replace("sockets = 2", "sockets = -2"), "sockets = -2", "whole number from 0"),
            (SMALL.replace("4 GiB", "4 GB"), "4 GB", "4 GiB"),
            (SMALL.replace("sockets", "sokets"), "sokets", "sockets"),
            (format!("{SMALL}distances = [[10, 21]]"), "distances = 1 rows", "2 rows of 2"),
            (format!("{SMALL}distances = [[10, 9], [21, 10]]"), "[10, 9]", "11 to 254"),
            (format!("{SMALL}llc_level = 9"), "llc_level = 9", "1 to 5"),
            (format!("{SMALL}llcs_per_node = 4000000000"), "hardware threads", "8192"),
        ];
        for (text, place, valid) in cases {
            let error = from_toml(&text, "m.toml").expect_err(&text).to_string();
            assert!(error.contains("m.toml") && error.contains(place) && error.contains(valid), "{error}");
        }
    }
}
