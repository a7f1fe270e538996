//! `homenode vm show`: all that is known of a VM.

use crate::kept::{self, Known};
use crate::text::{lines, table};
use crate::{backend, failure, life_words, output, residence_view};
use anyhow::anyhow;
use inventory::Record;
use qemu::RuntimeDir;
use serde::Serialize;
use std::fmt::Write;
use topology::words::count;
use topology::{Bytes, CpuId, CpuSet};
use vm::history::Life;
use vm::spec::{Fill, Firmware};
use vm::{Added, NodeSize, Placement, Residence, VirtualTopology, VmSpec};

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, name: &str, json: bool) -> anyhow::Result<()> {
    let known = kept::look(directory)?.remove(name);
    let runs = known.is_some();
    let Some(Known { record: Some(record), process }) = known else { return Err(no_record(name, runs)) };
    let has_process = process.is_some() || record.life.state.has_process();
    let (residence, unseen) = match has_process.then(|| residence(directory, &record)) {
        Some(Ok(residence)) => (residence, None),
        Some(Err(error)) => (None, Some(failure::text(&error))),
        None => (None, None),
    };
    let mut shown = Shown::new(name, &record, residence, unseen);
    shown.on_its_way = kept::on_its_way(name, &record.life);
    if json { output::json("vm.show", &shown) } else { output::print(shown.text()) }
}

/// Why there is nothing to show. A file that cannot be read has been named already.
fn no_record(name: &str, runs: bool) -> anyhow::Error {
    match (kept::inventory().is_kept(name), runs) {
        (true, _) => {
            anyhow!("VM {name}: what is kept of it cannot be read; `homenode vm delete {name} --force` forgets it")
        }
        (false, true) => anyhow!(
            "VM {name} runs, and nothing is kept of it: an older homenode started it, or its files were removed"
        ),
        (false, false) => kept::missing(name),
    }
}

/// Where it is now, as the kernel says.
fn residence(directory: &RuntimeDir, record: &Record) -> anyhow::Result<Option<Residence>> {
    let Some(plan) = record.plan() else { return Ok(None) };
    let vm = backend::of(directory, &record.life.backend).adopt(&record.spec.name)?;
    Ok(vm.map(|mut vm| vm.residence(&plan)).transpose()?)
}

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    spec: &'a VmSpec,
    #[serde(flatten)]
    life: &'a Life,
    topology: Option<&'a VirtualTopology>,
    /// What each virtual node has now.
    nodes: Vec<NodeSize>,
    host: Option<&'a str>,
    placement: Option<&'a Placement>,
    added: Option<&'a Added>,
    residence: Option<Residence>,
    /// Memory that is there of what was promised to it; `None` where that is not known.
    taken: Option<Bytes>,
    /// Why it is not known where it is.
    unseen: Option<String>,
    /// What is known of its migration, and what to do where that was cut short.
    on_its_way: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(name: &'a str, record: &'a Record, residence: Option<Residence>, unseen: Option<String>) -> Self {
        let Record { spec, topology, placement, life } = record;
        Self {
            name,
            spec,
            life,
            topology: topology.as_ref(),
            nodes: record.sizes(),
            host: placement.as_ref().map(|kept| kept.host.as_str()),
            placement: placement.as_ref().map(|kept| &kept.placement),
            added: placement.as_ref().map(|kept| &kept.added),
            taken: residence.as_ref().and_then(Residence::taken),
            residence,
            unseen,
            on_its_way: None,
        }
    }

    fn text(&self) -> String {
        let Life { state, since, topology_anew, history, suspended_in, .. } = self.life;
        let lasts = life_words::duration(kept::now().0.saturating_sub(since.0));
        let mut text = format!("VM {}: {state} since {} ({lasts})\n", self.name, life_words::moment(*since));
        // Writing to a string cannot fail.
        if let Some(on_its_way) = &self.on_its_way {
            let _ = writeln!(text, "{on_its_way}");
        }
        if let Some(file) = suspended_in {
            let _ = writeln!(text, "Its memory is in {}", file.display());
        }
        if self.spec.boot.firmware() == Firmware::Uefi {
            text.push_str("It boots its first disk by UEFI.\n");
        }
        match self.topology {
            Some(topology) => self.add_topology(&mut text, topology),
            None => text.push_str("It was never started: it is sized at its first power-on.\n"),
        }
        if *topology_anew {
            text.push_str("It is sized anew at its next power-on.\n");
        }
        if let Some(residence) = &self.residence {
            let _ = write!(text, "\n{}", residence_view::view(residence));
            self.add_taken(&mut text);
            self.add_kept(&mut text, residence);
        }
        if let Some(unseen) = &self.unseen {
            let _ = writeln!(text, "\nWhere it is now cannot be seen: {unseen}");
        }
        text.push('\n');
        for chapter in history {
            let _ = writeln!(text, "{}  {}", life_words::moment(chapter.at), life_words::event(chapter));
        }
        text
    }

    /// How much is there of memory that is not taken at the start.
    fn add_taken(&self, text: &mut String) {
        if let (Fill::OnTouch, Some(taken)) = (self.spec.backing.fill, self.taken) {
            let promised: Bytes = self.nodes.iter().map(|size| size.memory).sum();
            let _ = writeln!(text, "Memory is taken when its guest touches it: {taken} of {promised} so far.");
        }
    }

    /// Memory that its guest was asked to give back, and has not.
    fn add_kept(&self, text: &mut String, residence: &Residence) {
        for memory in residence.memory.iter().filter(|memory| memory.unknown.is_none()) {
            let there: Bytes = Residence::bytes_by_node(memory).into_values().sum();
            let asked = self.nodes.iter().find(|size| size.virtual_node == memory.virtual_node);
            let kept = asked.map_or(Bytes(0), |size| there.saturating_sub(size.memory));
            if kept.0 > 0 {
                let node = memory.virtual_node;
                let _ =
                    writeln!(text, "Virtual node {node}: its guest has not given back {kept} that it was asked for.");
            }
        }
    }

    /// The nodes that the guest sees, and the home of each.
    fn add_topology(&self, text: &mut String, topology: &VirtualTopology) {
        let VirtualTopology { sockets, cores_per_socket, dies_per_socket: dies, threads_per_core, .. } = topology;
        let dies = if *dies == 1 { String::new() } else { format!(" in {dies} dies") };
        let told = if topology.exposed { "" } else { "; the guest is not told of it" };
        let _ = writeln!(
            text,
            "Virtual topology, fixed since its first power-on: {}; {}, {} each{dies}, {} each{told}",
            life_words::nodes(&self.nodes),
            count(*sockets as usize, "socket"),
            count(*cores_per_socket as usize, "core"),
            count(*threads_per_core as usize, "hardware thread"),
        );
        let header = ["Virtual node", "vCPUs", "Memory", "At most", "Home nodes", "Plugged in"];
        let mut table = table(header, &[0, 2]);
        for (node, size) in topology.nodes.iter().zip(&self.nodes) {
            let vcpus: CpuSet = size.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect();
            let clients = self.placement.iter().flat_map(|placement| &placement.clients);
            let home = clients.filter(|client| client.virtual_nodes.contains(&node.id)).map(|client| &client.home);
            let most = node.memory.saturating_add(node.growth);
            table.add_row([
                node.id.to_string(),
                vcpus.to_string(),
                size.memory.to_string(),
                format!("{}, {most}", count(node.vcpus.len(), "vCPU")),
                home.map(ToString::to_string).collect::<Vec<_>>().join(","),
                self.plugged(node.id, node.present().count(), size),
            ]);
        }
        let _ = writeln!(text, "{}", lines(&table));
        if let Some(host) = self.host {
            let _ = writeln!(text, "Home nodes are nodes of the host {host}, as last planned or moved.");
        }
    }

    fn plugged(&self, virtual_node: u32, at_power_on: usize, size: &NodeSize) -> String {
        let memory = self.added.iter().flat_map(|added| &added.memory);
        let given = memory.filter(|device| device.virtual_node == virtual_node && device.requested.0 > 0);
        let memory = given.map(|device| device.requested.to_string());
        let more = size.vcpus.len().saturating_sub(at_power_on);
        let vcpus = (more > 0).then(|| count(more, "vCPU"));
        let plugged: Vec<String> = vcpus.into_iter().chain(memory).collect();
        if plugged.is_empty() { crate::cells::dash() } else { plugged.join(" + ") }
    }
}
