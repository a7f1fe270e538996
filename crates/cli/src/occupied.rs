//! What runs on a machine that is not here, from a file: so that `--on` need not be an empty machine.
//!
//! **Rule.** Two kinds of file say it. What `homenode top --json` printed there has the whole observation. libvirt's XML of the domains
//! that run (`virsh dumpxml`, one after the other in a file, or a directory of them) says what they are bound to; how much of their
//! memory is resident it does not say: then all of it counts as taken.
//!
//! **Example.** `for d in $(virsh list --name); do virsh dumpxml $d; done > node7-runs.xml`, then
//! `homenode plan vm.toml --on node7.xml --occupied node7-runs.xml`.

use crate::failure::bad_input;
use anyhow::bail;
use scheduler::{Observation, Occupancy};
use serde::Deserialize;
use std::path::Path;
use topology::Machine;

/// What `top --json` prints, as far as it matters here.
#[derive(Deserialize)]
struct Top {
    format: String,
    version: u32,
    observation: Observation,
}

/// The version of `top --json` that is understood.
const VERSION: u32 = 1;
/// Larger files are none of these: a thousand domains have 10 MB.
const LARGEST_FILE: u64 = 256 << 20;

/// What the VMs of the file hold of the machine; the machine's free memory becomes what the file says of it.
///
/// # Errors
/// Bad input: the file cannot be read, is neither of both kinds, or is of another machine.
pub(crate) fn read(path: &Path, machine: &mut Machine) -> anyhow::Result<Occupancy> {
    let shown = path.display().to_string();
    let fail = |problem: String| bad_input(format!("--occupied {shown}: {problem}"));
    if path.is_dir() {
        let is_xml = |file: &Path| file.extension().is_some_and(|extension| extension == "xml");
        let files = topology::input::entries(path, is_xml).map_err(|error| fail(format!("cannot be read: {error}")))?;
        let texts = files.iter().map(|file| text(file)).collect::<anyhow::Result<Vec<_>>>()?;
        return of_domains(&texts.concat(), &shown, machine);
    }
    let text = text(path)?;
    if text.trim_start().starts_with('<') {
        return of_domains(&text, &shown, machine);
    }
    let top: Top = serde_json::from_str(&text).map_err(|error| fail(format!("{error}. {}", valid())))?;
    if top.format != "homenode.top" || top.version != VERSION {
        return Err(fail(format!("it is {} of version {}. {}", top.format, top.version, valid())));
    }
    of_observation(&top.observation, machine).map_err(|error| fail(error.to_string()))
}

fn valid() -> String {
    format!(
        "Give what `homenode top --json` prints there (homenode.top of version {VERSION}), or the XML of the domains that run there (virsh dumpxml)"
    )
}

fn text(path: &Path) -> anyhow::Result<String> {
    let unreadable =
        |error: std::io::Error| bad_input(format!("--occupied {}: cannot be read: {error}", path.display()));
    topology::input::text(path, LARGEST_FILE).map_err(unreadable)
}

/// The domains of one or several XML documents in one text.
fn of_domains(text: &str, shown: &str, machine: &Machine) -> anyhow::Result<Occupancy> {
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
    Ok(Occupancy::of_observation(&libvirt::remote::of_definitions(machine, domains), machine))
}

fn of_observation(observation: &Observation, machine: &mut Machine) -> anyhow::Result<Occupancy> {
    let unknown = observation.nodes.keys().find(|&&node| machine.node(node).is_none());
    if let Some(node) = unknown {
        bail!("it has a node {node}, and {} has none: it is of another machine", machine.name);
    }
    for node in &mut machine.nodes {
        let free = observation.nodes.get(&node.id).and_then(|seen| seen.memory_free);
        node.free = free.map(|free| free.min(node.memory)).or(node.free);
    }
    Ok(Occupancy::of_observation(observation, machine))
}
