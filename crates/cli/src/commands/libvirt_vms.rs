//! VMs of libvirt's on this host that homenode does not keep, where somebody looks for them with
//! `homenode vm`.

use crate::failure::bad_input;
use crate::kept;
use inventory::Record;
use libvirt::{Connection, ListedDomain, LocalLibvirt, local_names, local_process};
use std::collections::BTreeSet;
use topology::{Machine, NodeSet};
use vm::BackendError;
use vm::backend::{ErrorKind, ReachedBy};

/// A domain that libvirt has and homenode does not keep.
pub(super) struct OwnVm {
    pub(super) domain: ListedDomain,
    /// Its process, and the nodes whose CPUs its vCPUs may use, where this user sees them.
    pub(super) process: Option<(u32, NodeSet)>,
}

/// Domains that no record is about: of the libvirts of this host that answer, of those that keep
/// VMs of ours, and of the one that is named.
///
/// # Errors
/// The one that is named does not answer.
pub(super) fn own(records: &[&Record], named: Option<&str>) -> anyhow::Result<Vec<OwnVm>> {
    let kept = |record: &&Record| match &record.life.backend {
        ReachedBy::Libvirt(domain) => Some(domain.clone()),
        ReachedBy::Qemu => None,
    };
    let kept: Vec<_> = records.iter().filter_map(kept).collect();
    let local = LocalLibvirt::of_this_user().into_iter().filter(|libvirt| libvirt.pid_files.is_dir());
    let found: BTreeSet<String> =
        local.map(|libvirt| libvirt.uri).chain(kept.iter().map(|domain| domain.uri.clone())).collect();
    let mut domains = Vec::new();
    for uri in found.iter().filter(|uri| Some(uri.as_str()) != named) {
        // One that was only found need not answer; whoever needs its VMs says why it does not.
        domains.extend(Connection::of_this_host(uri).domains().unwrap_or_default());
    }
    if let Some(uri) = named {
        domains.extend(Connection::new(Some(uri)).domains().map_err(|error| crate::backend::failure(error.into()))?);
    }
    let mut seen: BTreeSet<String> = kept.into_iter().map(|domain| domain.uuid).collect();
    domains.retain(|domain| seen.insert(domain.uuid.clone()));
    if domains.is_empty() {
        return Ok(Vec::new());
    }
    let machine = topology::read::live()?;
    let with_process = |domain: ListedDomain| {
        let process = domain.state.has_process().then(|| process(&domain.uuid, &machine)).flatten();
        OwnVm { domain, process }
    };
    Ok(domains.into_iter().map(with_process).collect())
}

/// The process of a domain, and where its vCPUs may run, as the kernel says.
fn process(uuid: &str, machine: &Machine) -> Option<(u32, NodeSet)> {
    let process = local_process(uuid).ok()??;
    let affinities = process.threads.vcpus.iter().filter_map(|vcpu| linux::sys::affinity(vcpu.thread_id).ok());
    let cpus = affinities.fold(topology::CpuSet::new(), |all, cpus| all.union(&cpus));
    let nodes = machine.threads.iter().filter(|thread| cpus.contains(thread.id)).map(|thread| thread.node).collect();
    Some((process.key.pid, nodes))
}

/// Says on standard error which other VMs libvirt runs on this host, if any: for whomever.
pub(super) fn say_others(shown: &BTreeSet<&str>) -> anyhow::Result<()> {
    let names: Vec<String> = local_names()?.into_iter().filter(|name| !shown.contains(name.as_str())).collect();
    if !names.is_empty() {
        crate::output::note(format_args!(
            "more VMs of libvirt run here, of a libvirt that was not asked (--connect URI): {}",
            names.join(", ")
        ));
    }
    Ok(())
}

/// What to do with a VM that libvirt runs; `None` where it runs none of that name.
pub(crate) fn way_to(name: &str) -> Option<String> {
    local_names().ok()?.iter().find(|seen| *seen == name)?;
    let word = topology::words::quoted(name);
    Some(format!(
        "VM {name} is libvirt's: `homenode vm adopt {word}` has homenode keep it; `virsh shutdown {word}` asks its \
        guest to power off, `virsh destroy {word}` ends it, `virsh console {word}` is its console (with --connect \
        URI where it is not virsh's own choice)"
    ))
}

/// The error; where there is no such VM, that is bad input, and libvirt may run one of that name.
pub(super) fn explain(error: impl Into<BackendError>, name: &str) -> anyhow::Error {
    let error = error.into();
    match error.kind() {
        ErrorKind::Gone => bad_input(way_to(name).unwrap_or_else(|| kept::unknown(name))),
        _ => error.into(),
    }
}
