//! A KubeVirt VirtualMachine, YAML. KubeVirt takes no home: the kubelet chooses CPUs when the VM's
//! pod starts, and KubeVirt derives the guest's nodes from them. What can be said is the virtual
//! topology, that memory is bound where the CPUs are, and how the kubelet must be set so that its
//! choice has the plan's shape.

mod binding;
mod build;
mod cluster;
mod losses;
mod names;
mod object;
#[cfg(test)]
mod tests;

use super::common::{check_words, heading, path};
use super::{Emission, EmitError, Loss};
use binding::Binding;
use object::VirtualMachine;
use std::collections::BTreeSet;
use vm::spec::{Boot, Disk};

/// A disk of the spec, and the claim that holds it in the cluster.
struct Claimed<'a> {
    disk: &'a Disk,
    claim: String,
}

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check_words(emission)?;
    let (machine, losses) = virtual_machine(emission)?;
    let name = &machine.metadata.name;
    let mut usage = vec![format!(
        "A KubeVirt VirtualMachine. Start it with: kubectl apply -f FILE, console: virtctl console {name}."
    )];
    for claimed in claims(emission, name) {
        let file = topology::words::quoted(path("disk.path", &claimed.disk.path)?);
        usage.push(format!(
            "Bring its disk first: virtctl image-upload pvc {} --image-path={file} --size=SIZE",
            claimed.claim
        ));
    }
    let binding = Binding::of(emission);
    let comments = heading(emission, &usage, &losses) + &cluster::needs(emission, &binding);
    let yaml = serde_saphyr::to_string(&machine)
        .map_err(|error| EmitError(format!("the VirtualMachine cannot be written: {error}")))?;
    Ok(within_lines(&comments) + &yaml)
}

/// The object, and what of the plan it lacks.
fn virtual_machine(emission: &Emission<'_>) -> Result<(VirtualMachine, Vec<Loss>), EmitError> {
    let name = names::label(&emission.spec.name, "vm");
    let claims = claims(emission, &name);
    let binding = Binding::of(emission);
    let machine = build::machine(emission, &binding, &name, &claims)?;
    let mut losses = losses::of_the_plan(emission, &binding);
    losses.extend(losses::of_the_devices(emission, &name));
    Ok((machine, losses))
}

/// A claim for each disk of the spec, and for the boot disk that replaces homenode's tiny guest.
fn claims<'a>(emission: &Emission<'a>, name: &str) -> Vec<Claimed<'a>> {
    let mut taken = BTreeSet::new();
    if matches!(emission.spec.boot, Boot::TinyGuest { .. }) {
        taken.insert(build::boot_claim(name));
    }
    let disks = emission.spec.disks.iter();
    disks.map(|disk| Claimed { disk, claim: names::claim(name, &disk.path, &mut taken) }).collect()
}

/// YAML 1.1 ends a comment at Unicode's line separators too.
fn within_lines(comments: &str) -> String {
    comments.replace(['\u{2028}', '\u{2029}', '\u{85}', '\u{feff}'], " ")
}
