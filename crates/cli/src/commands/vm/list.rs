//! `homenode vm list`.

use crate::commands::libvirt_vms::{self, OwnVm};
use crate::kept::{self, Known};
use crate::text::{lines, table};
use crate::{backend, life_words, output};
use inventory::Record;
use libvirt::{DomainState, ListedDomain};
use qemu::{BackgroundVm, Phase, RuntimeDir};
use serde::Serialize;
use std::time::Duration;
use topology::words::count;
use topology::{Bytes, NodeSet};
use vm::backend::BackendKind;
use vm::history::UnixSeconds;
use vm::life::State;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, connect: Option<&str>, json: bool) -> anyhow::Result<()> {
    // Taking the lock removes what killed starters reserved.
    drop(directory.lock_placement(Duration::ZERO)?);
    let known = kept::look(directory)?;
    let on_their_way: Vec<String> = known.iter().filter_map(|(name, known)| of_migration(name, known)).collect();
    let records: Vec<&Record> = known.values().filter_map(|known| known.record.as_ref()).collect();
    let own = libvirt_vms::own(&records, connect)?;
    let rows = known.into_iter().map(|(name, known)| Row::new(name, known));
    let rows: Vec<Row> = rows.chain(own.into_iter().map(Row::of_libvirt)).collect();
    libvirt_vms::say_others(&rows.iter().map(|row| row.name.as_str()).collect())?;
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
    /// What runs it.
    backend: BackendKind,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    starter: Option<linux::process::Identity>,
    qemu: Option<linux::process::Identity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accelerator: Option<vm::Accelerator>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qemu_version: Option<String>,
}

impl Process {
    /// libvirt's: what is not known without asking it stays unsaid.
    fn of_libvirt(pid: u32) -> Self {
        let qemu = linux::process::Identity::of(pid).ok();
        Self { starter: None, qemu, accelerator: None, qemu_version: None }
    }
}

impl Row {
    fn new(name: String, known: Known) -> Self {
        let Known { record, process } = known;
        let mut row = match (&record, &process) {
            (Some(record), _) => Self::of_record(name, record),
            (None, process) => Self::of_process(name, process.as_ref()),
        };
        row.uptime_seconds = process.as_ref().and_then(BackgroundVm::uptime_seconds);
        let of_background = |BackgroundVm { starter, qemu, accelerator, qemu_version, .. }| Process {
            starter: Some(starter),
            qemu,
            accelerator: Some(accelerator),
            qemu_version: Some(qemu_version),
        };
        let of_libvirt = || {
            let record = record.as_ref().filter(|record| record.life.backend.kind() == BackendKind::Libvirt)?;
            record.life.state.has_process().then(|| backend::pid(record))?.map(Process::of_libvirt)
        };
        row.process = process.map(of_background).or_else(of_libvirt);
        row
    }

    /// One that libvirt has and nobody adopted.
    fn of_libvirt(own: OwnVm) -> Self {
        let OwnVm { domain, process } = own;
        let ListedDomain { name, state, vcpus, memory, .. } = domain;
        let state = match state {
            DomainState::Paused => State::Paused,
            state if state.has_process() => State::Running,
            _ => State::Stopped,
        };
        Self {
            name,
            state,
            since: None,
            backend: BackendKind::Libvirt,
            kept: false,
            vcpus,
            memory,
            virtual_nodes: 0,
            home: process.as_ref().map(|(_, home)| home.clone()).unwrap_or_default(),
            uptime_seconds: None,
            process: process.map(|(pid, _)| Process::of_libvirt(pid)),
            topology: format!("libvirt's own: {}, {memory}", count(vcpus as usize, "vCPU")),
        }
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
            backend: record.life.backend.kind(),
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
            backend: BackendKind::Qemu,
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
            self.process.as_ref().and_then(|process| process.accelerator.as_ref()).map_or_else(dash, |accelerator| {
                if accelerator.is_hardware() { "KVM".to_owned() } else { "TCG".to_owned() }
            }),
        ]
    }
}
