//! What runs on a machine that is not here, from a file: so that `--on` need not be an empty
//! machine.
//!
//! **Rule.** Two kinds of file say it. What `homenode top --json` printed there has the whole
//! observation. libvirt's XML of the domains that run (`virsh dumpxml`, one after the other in a
//! file, or a directory of them) says what they are bound to; how much of their memory is resident
//! it does not say: then all of it counts as taken.
//!
//! A file of another machine is refused: its CPUs and nodes would be taken for others. What `top`
//! prints names nodes, their CPUs and their memory; a domain names CPUs and nodes that it is bound
//! to.
//!
//! **Example.** `for d in $(virsh list --name); do virsh dumpxml $d; done > node7-runs.xml`, then
//! `homenode plan vm.toml --on node7.xml --occupied node7-runs.xml`.

use crate::failure::bad_input;
use crate::text::count;
use anyhow::{anyhow, bail};
use scheduler::{Observation, Occupancy};
use serde::Deserialize;
use stacks::domain::Domain;
use std::path::Path;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// What `top --json` prints, as far as it matters here.
#[derive(Deserialize)]
struct Top {
    format: String,
    version: u32,
    #[serde(default)]
    nodes: Vec<TopNode>,
    observation: Observation,
}

/// A node there.
#[derive(Deserialize)]
struct TopNode {
    node: NodeId,
    cpus: CpuSet,
    memory: Bytes,
}

/// The version of `top --json` that is understood.
const VERSION: u32 = 1;
/// Memory of the same node as two sources have it differs by no more than one part of so many.
const MEMORY_PART: u64 = 8;
/// Larger files are none of these: a thousand domains have 10 MB.
const LARGEST_FILE: u64 = 256 << 20;

/// What the VMs of the file hold of the machine; the machine's free memory becomes what the file
/// says of it.
///
/// # Errors
/// Bad input: the file cannot be read, is neither of both kinds, or is of another machine.
pub(crate) fn read(path: &Path, machine: &mut Machine) -> anyhow::Result<Occupancy> {
    let shown = path.display().to_string();
    let fail = |problem: anyhow::Error| bad_input(format!("--occupied {shown}: {problem}"));
    if path.is_dir() {
        let is_xml = |file: &Path| file.extension().is_some_and(|extension| extension == "xml");
        let files = topology::input::entries(path, is_xml).map_err(|error| fail(anyhow!("cannot be read: {error}")))?;
        let texts = files.iter().map(|file| text(file)).collect::<anyhow::Result<Vec<_>>>()?;
        return of_domains(&texts.concat(), &shown, machine);
    }
    let text = text(path)?;
    if text.trim_start().starts_with('<') {
        return of_domains(&text, &shown, machine);
    }
    let top: Top = serde_json::from_str(&text)
        .map_err(|error| fail(anyhow!("{}. {}", topology::input::shortened(&error.to_string()), valid())))?;
    if top.format != "homenode.top" || top.version != VERSION {
        return Err(fail(anyhow!("it is {} of version {}. {}", top.format, top.version, valid())));
    }
    same_machine(&top, machine).map_err(fail)?;
    for node in &mut machine.nodes {
        let free = top.observation.nodes.get(&node.id).and_then(|seen| seen.memory_free);
        node.free = free.map(|free| free.min(node.memory)).or(node.free);
    }
    Ok(Occupancy::of_observation(&top.observation, machine))
}

fn valid() -> String {
    format!(
        "Give what `homenode top --json` prints there (homenode.top of version {VERSION}), or the XML of the domains \
        that run there (virsh dumpxml)"
    )
}

fn text(path: &Path) -> anyhow::Result<String> {
    let unreadable =
        |error: std::io::Error| bad_input(format!("--occupied {}: cannot be read: {error}", path.display()));
    topology::input::text(path, LARGEST_FILE).map_err(unreadable)
}

/// The domains of one or several XML documents in one text.
fn of_domains(text: &str, shown: &str, machine: &mut Machine) -> anyhow::Result<Occupancy> {
    const END: &str = "</domain>";
    let documents = text.split_inclusive(END).filter(|document| document.contains(END));
    let domains = documents
        .enumerate()
        .map(|(index, document)| {
            stacks::domain::parse(document.trim(), &format!("--occupied {shown}, domain {}", index + 1))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(bad_input)?;
    if domains.is_empty() {
        return Err(bad_input(format!("--occupied {shown}: no <domain> is in it. {}", valid())));
    }
    for domain in &domains {
        bound_here(domain, machine).map_err(|problem| bad_input(format!("--occupied {shown}: {problem}")))?;
    }
    let occupancy = Occupancy::of_observation(&libvirt::remote::of_definitions(machine, domains), machine);
    for node in &mut machine.nodes {
        // A machine that was captured before these VMs ran has more free than they leave of it.
        let left = node.memory.saturating_sub(occupancy.of(node.id).memory);
        node.free = node.free.map(|free| free.min(left));
    }
    Ok(occupancy)
}

/// Refuses what was printed on a machine of another shape: other nodes, other CPUs in them, or
/// another memory. That differs a little between a machine's description and what its kernel
/// leaves.
fn same_machine(top: &Top, machine: &Machine) -> anyhow::Result<()> {
    let here: Vec<TopNode> = machine
        .nodes
        .iter()
        .filter(|node| node.allowed)
        .map(|node| TopNode { node: node.id, cpus: machine.usable_cpus(node.id), memory: node.memory })
        .collect();
    let near = |one: Bytes, other: Bytes| one.0.abs_diff(other.0) <= one.0.max(other.0) / MEMORY_PART;
    let same = |(one, other): (&TopNode, &TopNode)| {
        one.node == other.node && one.cpus == other.cpus && near(one.memory, other.memory)
    };
    if top.nodes.len() == here.len() && top.nodes.iter().zip(&here).all(same) {
        return Ok(());
    }
    let different = top.nodes.iter().zip(&here).find(|pair| !same(*pair));
    let one = |node: &TopNode| format!("node {} has CPUs {} and {}", node.node, node.cpus, node.memory);
    let different = different
        .map_or_else(String::new, |(there, here)| format!("; there {}, on {} {}", one(there), machine.name, one(here)));
    bail!("it is of another machine: {} there, {} on {}{different}", shape(&top.nodes), shape(&here), machine.name)
}

/// `2 nodes (0-1), 16 CPUs, 48 GiB`.
fn shape(nodes: &[TopNode]) -> String {
    let ids: NodeSet = nodes.iter().map(|node| node.node).collect();
    let cpus = nodes.iter().map(|node| node.cpus.len()).sum();
    let memory: Bytes = nodes.iter().map(|node| node.memory).sum();
    format!("{} ({ids}), {}, {memory}", count(nodes.len(), "node"), count(cpus, "CPU"))
}

/// Refuses a domain that is bound to CPUs or nodes that the machine does not have.
fn bound_here(domain: &Domain, machine: &Machine) -> anyhow::Result<()> {
    let cpus: CpuSet = machine.threads.iter().map(|thread| thread.id).collect();
    let nodes = machine.node_ids();
    let pins = domain.vcpu_pins.values().chain(&domain.vcpu_cpuset);
    let bound = pins.fold(CpuSet::new(), |all, pin| all.union(pin));
    let tunes = domain.memory_tune.iter().chain(domain.memory_nodes.values());
    let named = tunes.filter_map(|tune| tune.nodeset.as_ref()).fold(NodeSet::new(), |all, set| all.union(set));
    let of_another = |what: &str, there: String, here: String| {
        bail!(
            "it is of another machine: domain {} is bound to {what} {there}, and {} has {what} {here}",
            domain.name,
            machine.name
        )
    };
    if !bound.is_subset(&cpus) {
        return of_another("CPUs", bound.to_string(), cpus.to_string());
    }
    if !named.is_subset(&nodes) {
        return of_another("nodes", named.to_string(), nodes.to_string());
    }
    Ok(())
}
