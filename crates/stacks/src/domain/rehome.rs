//! A domain at other homes: what its XML says of where it lives, and nothing else, changes.
//!
//! **Problem.** A domain that is started again, restored from its file or sent to another host goes
//! on with the XML that it had: with CPUs and nodes of the host where it was.
//!
//! **Rule.** Each virtual node's memory is bound by a `<memnode>` of its own, and nothing else is
//! bound ([`crate::emit`] says why); each vCPU is pinned to the CPUs of its client, the emulator to
//! those of all, each iothread to those of one client; memory devices are bound where their
//! virtual node lives. What the guest sees, and what the owner added, stays byte for byte.
//!
//! **Example.** Virtual node 1 goes from node 0 to nodes 2 and 3:
//! `<memnode cellid='1' mode='strict' nodeset='0'/>` becomes
//! `<memnode cellid='1' mode='interleave' nodeset='2-3'/>`.

use super::document::{at, tree};
use super::edit::{Edit, Step, apply};
use super::{Domain, DomainError, parse, splice};
use topology::NodeSet;
use vm::{Client, MemoryPolicy, Plan};

/// libvirt's word for a client's policy; none where it has none.
pub fn memory_mode(client: &Client) -> Option<&'static str> {
    match client.memory_policy {
        MemoryPolicy::Bind => Some("strict"),
        MemoryPolicy::Interleave => Some("interleave"),
        MemoryPolicy::Preferred => Some("preferred"),
        MemoryPolicy::Default => None,
    }
}

/// The domain at the homes of a plan. `file` is what errors call the text.
///
/// # Errors
/// Those of [`parse`].
pub fn rehomed(text: &str, file: &str, plan: &Plan) -> Result<String, DomainError> {
    let domain = parse(text, file)?;
    let edits: Vec<Edit> =
        unbound(&domain).into_iter().chain(pinned(&domain, plan)).chain(bound(&domain, plan)).collect();
    let home = |node| plan.client_of(node).map(Client::bound_to);
    with_devices_at_home(&apply(text, file, &edits)?, file, home)
}

fn path<const STEPS: usize>(names: [&str; STEPS]) -> Vec<Step> {
    names.into_iter().map(Step::new).collect()
}

fn keyed(above: &str, element: &str, key: &str, value: u32) -> Vec<Step> {
    vec![Step::new(above), Step::keyed(element, key, value)]
}

fn set(at: Vec<Step>, name: &str, value: &(impl ToString + ?Sized)) -> Edit {
    Edit::SetAttribute { at, name: name.to_owned(), value: value.to_string() }
}

/// What bound it until now, beside what is set anew.
fn unbound(domain: &Domain) -> Vec<Edit> {
    let mut edits: Vec<Edit> =
        domain.memory_nodes.keys().map(|&id| Edit::Remove { at: keyed("numatune", "memnode", "cellid", id) }).collect();
    if domain.memory_tune.is_some() {
        edits.push(Edit::Remove { at: path(["numatune", "memory"]) });
    }
    if domain.vcpu_cpuset.is_some() {
        edits.push(Edit::RemoveAttribute { at: path(["vcpu"]), name: "cpuset".to_owned() });
    }
    if domain.vcpu_placement_auto {
        edits.push(set(path(["vcpu"]), "placement", "static"));
    }
    edits
}

fn pinned(domain: &Domain, plan: &Plan) -> Vec<Edit> {
    let mut vcpus: Vec<(u32, &Client)> = Vec::new();
    for node in &plan.topology.nodes {
        let client = plan.client_of(node.id);
        vcpus.extend(node.vcpus.iter().filter_map(|&vcpu| Some((vcpu, client?))));
    }
    vcpus.sort_by_key(|&(vcpu, _)| vcpu);
    let pin = |(vcpu, client): (u32, &Client)| {
        set(keyed("cputune", "vcpupin", "vcpu", vcpu), "cpuset", &client.cpus_of(vcpu))
    };
    let mut edits: Vec<Edit> = vcpus.into_iter().map(pin).collect();
    edits.push(set(path(["cputune", "emulatorpin"]), "cpuset", &plan.qemu_cpus()));
    let homes = plan.placement.clients.iter().cycle();
    let iothread =
        |(id, client): (&u32, &Client)| set(keyed("cputune", "iothreadpin", "iothread", *id), "cpuset", &client.cpus);
    edits.extend(domain.iothreads.iter().zip(homes).map(iothread));
    edits
}

fn bound(domain: &Domain, plan: &Plan) -> Vec<Edit> {
    let mut edits = Vec::new();
    for node in &plan.topology.nodes {
        let Some((client, mode)) = plan.client_of(node.id).and_then(|client| Some((client, memory_mode(client)?)))
        else {
            continue;
        };
        // Without cells there is one virtual node, and libvirt knows no number of it.
        let at = || match domain.cells.is_empty() {
            true => path(["numatune", "memory"]),
            false => keyed("numatune", "memnode", "cellid", node.id),
        };
        edits.push(set(at(), "mode", mode));
        edits.push(set(at(), "nodeset", &client.bound_to()));
    }
    edits
}

/// Memory devices that are bound by themselves: bound where their virtual node lives; `home` says
/// where that is.
pub(crate) fn with_devices_at_home(
    text: &str,
    file: &str,
    home: impl Fn(u32) -> Option<NodeSet>,
) -> Result<String, DomainError> {
    let document = tree(text, file)?;
    let mut splices = Vec::new();
    for device in at(document.root_element(), &["devices", "memory"]) {
        let node = at(device, &["target", "node"]).first().and_then(|node| node.text()?.trim().parse::<u32>().ok());
        let home = node.and_then(&home).filter(|home| !home.is_empty());
        let mask = at(device, &["source", "nodemask"]).first().copied();
        if let (Some(home), Some(mask)) = (home, mask) {
            splices.extend(splice::set_text(text, mask, &home.to_string()));
        }
    }
    Ok(splice::spliced(text, splices))
}
