//! `homenode vm list`.

use crate::commands::libvirt_vms::{self, OwnVm};
use crate::kept::{self, Known};
use crate::text::{lines, table_of};
use crate::{backend, life_words, output};
use inventory::Record;
use libvirt::{DomainState, ListedDomain};
use linux::{HostOptions, LinuxHost};
use qemu::{BackgroundVm, Phase, RuntimeDir};
use scheduler::{ClientObservation, Observe};
use serde::Serialize;
use std::time::Duration;
use topology::words::count;
use topology::{Bytes, NodeSet};
use vm::backend::BackendKind;
use vm::history::UnixSeconds;
use vm::life::State;
use vm::spec::Fill;

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, connect: Option<&str>, json: bool) -> anyhow::Result<()> {
    // Taking the lock removes what killed starters reserved.
    drop(directory.lock_placement(Duration::ZERO)?);
    let known = kept::look(directory)?;
    let on_their_way: Vec<String> = known.iter().filter_map(|(name, known)| of_migration(name, known)).collect();
    let records: Vec<&Record> = known.values().filter_map(|known| known.record.as_ref()).collect();
    let own = libvirt_vms::own(&records, connect)?;
    let rows = known.into_iter().map(|(name, known)| Row::new(name, known));
    let mut rows: Vec<Row> = rows.chain(own.into_iter().map(Row::of_libvirt)).collect();
    add_taken(&mut rows);
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
    // Only where memory is promised and taken later.
    let of_taken = rows.iter().any(|row| row.taken.is_some()).then_some("Memory taken");
    let header = ["Name", "State", "Since", "Process", "Virtual topology", "Home nodes", "Accelerator"];
    let mut table = table_of(header.into_iter().chain(of_taken).map(str::to_owned).collect(), &[3]);
    let taken = |row: &Row| row.taken.map_or_else(crate::cells::dash, |taken| format!("{taken} of {}", row.memory));
    rows.iter().for_each(|row| table.add_row(row.cells().into_iter().chain(of_taken.map(|_| taken(row)))));
    output::line(lines(&table))?;
    on_their_way.iter().for_each(output::note);
    Ok(())
}

/// What is there of memory that is taken on touch. Without such a VM nobody looks.
fn add_taken(rows: &mut [Row]) {
    let of_touch = |row: &&mut Row| row.fill == Some(Fill::OnTouch) && row.pid().is_some();
    let mut rows = rows.iter_mut().filter(of_touch).peekable();
    if rows.peek().is_none() {
        return;
    }
    let look = || anyhow::Ok(LinuxHost::new(HostOptions::default())?.observe()?);
    let seen = match look() {
        Ok(seen) => seen,
        Err(error) => return output::note(format_args!("what VMs took of their memory cannot be seen: {error}")),
    };
    for row in rows {
        let vm = seen.vms.iter().find(|vm| Some(vm.vm.pid) == row.pid());
        row.taken = vm.and_then(|vm| vm.clients.iter().map(ClientObservation::resident).sum());
    }
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
    /// When it takes its memory; `None` where nothing is kept of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fill: Option<Fill>,
    /// Memory that is there, of a VM that takes it on touch.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken: Option<Bytes>,
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
            fill: None,
            taken: None,
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
            fill: Some(record.spec.backing.fill),
            taken: None,
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
            fill: None,
            taken: None,
            virtual_nodes,
            home: process.map(|vm| vm.home.clone()).unwrap_or_default(),
            uptime_seconds: None,
            process: None,
            topology: format!("{}, {}, {memory}", count(virtual_nodes, "node"), count(vcpus as usize, "vCPU")),
        }
    }

    fn pid(&self) -> Option<u32> {
        Some(self.process.as_ref()?.qemu?.pid)
    }

    fn cells(&self) -> [String; 7] {
        let dash = crate::cells::dash;
        [
            self.name.clone(),
            self.state.to_string(),
            self.since.map_or_else(dash, life_words::moment),
            self.pid().map_or_else(dash, |pid| pid.to_string()),
            self.topology.clone(),
            if self.home.is_empty() { dash() } else { self.home.to_string() },
            self.process.as_ref().and_then(|process| process.accelerator.as_ref()).map_or_else(dash, |accelerator| {
                if accelerator.is_hardware() { "KVM".to_owned() } else { "TCG".to_owned() }
            }),
        ]
    }
}
