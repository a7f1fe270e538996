//! `homenode vm list`.

use crate::commands::libvirt_vms;
use crate::kept::{self, Known};
use crate::text::{lines, table};
use crate::{life_words, output};
use inventory::Record;
use qemu::{BackgroundVm, Phase, RuntimeDir};
use serde::Serialize;
use std::time::Duration;
use topology::words::count;
use topology::{Bytes, NodeSet};
use vm::history::UnixSeconds;
use vm::life::State;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, json: bool) -> anyhow::Result<()> {
    // Taking the lock removes what killed starters reserved.
    drop(directory.lock_placement(Duration::ZERO)?);
    let known = kept::look(directory)?;
    libvirt_vms::say()?;
    let on_their_way: Vec<String> = known.iter().filter_map(|(name, known)| of_migration(name, known)).collect();
    let rows: Vec<Row> = known.into_iter().map(|(name, known)| Row::new(name, known)).collect();
    if json {
        return output::json("vm.list", &serde_json::json!({ "vms": rows }));
    }
    // Those that cannot be read have been named already.
    if rows.is_empty() && !kept::inventory().names()?.is_empty() {
        return Ok(());
    }
    if rows.is_empty() {
        return output::line("No VM is kept, and none runs in the background.");
    }
    let header = ["Name", "State", "Since", "Process", "Virtual topology", "Home nodes", "Accelerator"];
    let mut table = table(header, &[3]);
    rows.iter().for_each(|row| table.add_row(row.cells()));
    output::line(lines(&table))?;
    on_their_way.iter().for_each(output::note);
    Ok(())
}

/// What is known of a VM's migration.
fn of_migration(name: &str, known: &Known) -> Option<String> {
    let on_its_way = kept::on_its_way(name, &known.record.as_ref()?.life)?;
    Some(format!("VM {name}: {on_its_way}"))
}

/// A VM. Fields of its process are there while it has one.
#[derive(Serialize)]
struct Row {
    name: String,
    state: State,
    /// Seconds since 1970.
    since: Option<UnixSeconds>,
    /// Whether it is kept: whether it starts again with the same virtual topology.
    kept: bool,
    vcpus: u32,
    memory: Bytes,
    virtual_nodes: usize,
    home: NodeSet,
    uptime_seconds: Option<f64>,
    #[serde(flatten)]
    process: Option<Process>,
    #[serde(skip)]
    topology: String,
}

/// What is said of its process besides.
#[derive(Serialize)]
struct Process {
    starter: linux::process::Identity,
    qemu: Option<linux::process::Identity>,
    accelerator: vm::Accelerator,
    qemu_version: String,
}

impl Row {
    fn new(name: String, known: Known) -> Self {
        let Known { record, process } = known;
        let mut row = match (&record, &process) {
            (Some(record), _) => Self::of_record(name, record),
            (None, process) => Self::of_process(name, process.as_ref()),
        };
        row.uptime_seconds = process.as_ref().and_then(BackgroundVm::uptime_seconds);
        row.process = process.map(|BackgroundVm { starter, qemu, accelerator, qemu_version, .. }| Process {
            starter,
            qemu,
            accelerator,
            qemu_version,
        });
        row
    }

    fn of_record(name: String, record: &Record) -> Self {
        let sizes = record.sizes();
        let homes = record.homes();
        let (vcpus, memory) = match sizes.is_empty() {
            true => (record.spec.vcpus, record.spec.memory),
            false => {
                (sizes.iter().map(|size| size.vcpus.len() as u32).sum(), sizes.iter().map(|size| size.memory).sum())
            }
        };
        Self {
            name,
            state: record.life.state,
            since: Some(record.life.since),
            kept: true,
            vcpus,
            memory,
            virtual_nodes: sizes.len(),
            home: homes.iter().fold(NodeSet::new(), |all, home| all.union(home)),
            uptime_seconds: None,
            process: None,
            topology: if sizes.is_empty() { "-".to_owned() } else { life_words::nodes(&sizes) },
        }
    }

    /// One that an older homenode started: nothing is kept of it.
    fn of_process(name: String, process: Option<&BackgroundVm>) -> Self {
        let (vcpus, memory) = process.map_or((0, Bytes(0)), |vm| (vm.vcpus, vm.memory));
        let virtual_nodes = process.map_or(0, |vm| vm.virtual_nodes);
        let runs = process.is_some_and(|vm| vm.phase == Phase::Running);
        let since = process.and_then(BackgroundVm::uptime_seconds);
        Self {
            name,
            state: if runs { State::Running } else { State::Starting },
            since: since.map(|seconds| UnixSeconds(kept::now().0.saturating_sub(seconds as u64))),
            kept: false,
            vcpus,
            memory,
            virtual_nodes,
            home: process.map(|vm| vm.home.clone()).unwrap_or_default(),
            uptime_seconds: None,
            process: None,
            topology: format!("{}, {}, {memory}", count(virtual_nodes, "node"), count(vcpus as usize, "vCPU")),
        }
    }

    fn cells(&self) -> [String; 7] {
        let qemu = self.process.as_ref().and_then(|process| process.qemu);
        let dash = crate::cells::dash;
        [
            self.name.clone(),
            self.state.to_string(),
            self.since.map_or_else(dash, life_words::moment),
            qemu.map_or_else(dash, |qemu| qemu.pid.to_string()),
            self.topology.clone(),
            if self.home.is_empty() { dash() } else { self.home.to_string() },
            self.process.as_ref().map_or_else(dash, |process| {
                if process.accelerator.is_hardware() { "KVM".to_owned() } else { "TCG".to_owned() }
            }),
        ]
    }
}
