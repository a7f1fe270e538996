//! What can be done while a VM runs, and QEMU's options where there is no XML.

use crate::change::Change;
use crate::finding::Aspect;
use crate::scene::Scene;
use crate::shaped::{ProcessFacts, ShapedVm};
use crate::target::Target;
use std::collections::BTreeSet;
use topology::CpuSet;

/// The commands of a cure.
pub(crate) fn commands(scene: &Scene<'_>, target: &Target, aspects: &BTreeSet<Aspect>) -> Vec<String> {
    let change = Change::new(scene, target, aspects);
    match &scene.vm.process {
        Some(process) => {
            let mut lines = of_process(&change, process);
            lines.extend(options(&change, process, aspects));
            lines
        }
        // Other virtual nodes come with a new start, and their pins with them.
        None if target.reshaped => Vec::new(),
        None => of_libvirt(&change, scene.vm),
    }
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:@/+,=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn of_libvirt(change: &Change<'_>, vm: &ShapedVm) -> Vec<String> {
    let name = quoted(&vm.name);
    let pins = change.pins();
    let mut lines = Vec::new();
    for (vcpus, cpus) in &pins.vcpus {
        lines.push(match vcpus.len() {
            1 => format!("virsh vcpupin {name} {vcpus} {cpus} --live"),
            _ => format!("for vcpu in {}; do virsh vcpupin {name} $vcpu {cpus} --live; done", each(vcpus)),
        });
    }
    lines.extend(pins.emulator.iter().map(|cpus| format!("virsh emulatorpin {name} {cpus} --live")));
    lines.extend(pins.iothreads.iter().map(|(id, cpus)| format!("virsh iothreadpin {name} {id} {cpus} --live")));
    if !change.bindings().is_empty() {
        lines.push(format!(
            "homenode doctor {name} --fix   # moves the pages that it has; the policy changes at its next start"
        ));
    }
    lines
}

/// `0 1 4`, or `$(seq 0 15)`.
fn each(numbers: &CpuSet) -> String {
    match (numbers.first(), numbers.iter().next_back()) {
        (Some(first), Some(last)) if numbers.len() > 4 && (last.0 - first.0 + 1) as usize == numbers.len() => {
            format!("$(seq {first} {last})")
        }
        _ => numbers.iter().map(|number| number.to_string()).collect::<Vec<_>>().join(" "),
    }
}

fn of_process(change: &Change<'_>, process: &ProcessFacts) -> Vec<String> {
    if change.target.reshaped {
        return Vec::new();
    }
    let pins = change.pins();
    let mut lines = Vec::new();
    for (vcpus, cpus) in &pins.vcpus {
        let threads: Vec<String> =
            vcpus.iter().filter_map(|vcpu| process.vcpu_threads.get(&vcpu.0)).map(u32::to_string).collect();
        match threads.len() {
            0 => {}
            1 => lines.push(format!("taskset -cp {cpus} {}", threads[0])),
            _ => lines.push(format!("for thread in {}; do taskset -cp {cpus} $thread; done", threads.join(" "))),
        }
    }
    if let Some(cpus) = &pins.emulator {
        let threads: Vec<String> = process.emulator_threads.iter().map(u32::to_string).collect();
        lines.push(format!("for thread in {}; do taskset -cp {cpus} $thread; done", threads.join(" ")));
    }
    let iothread = |(id, cpus): &(u32, CpuSet)| Some(format!("taskset -cp {cpus} {}", process.iothreads.get(id)?));
    lines.extend(pins.iothreads.iter().filter_map(iothread));
    if !change.bindings().is_empty() {
        lines.push(format!(
            "homenode doctor {} --fix   # moves the pages that it has to its home",
            quoted(&change.scene.vm.name)
        ));
    }
    lines
}

/// QEMU's options for the next start.
fn options(change: &Change<'_>, process: &ProcessFacts, aspects: &BTreeSet<Aspect>) -> Vec<String> {
    let (vm, target) = (change.scene.vm, change.target);
    let mut lines = Vec::new();
    let guest = change.guest();
    if guest != vm.guest {
        lines.push(format!(
            "-smp {},sockets={},dies={},cores={},threads={}",
            vm.vcpus, guest.sockets, guest.dies, guest.cores, guest.threads
        ));
    }
    if aspects.contains(&Aspect::Cache) {
        lines.push("-cpu ...,l3-cache=on".to_owned());
    }
    for (id, mode, nodes) in change.bindings() {
        let Some(node) = target.nodes.iter().find(|node| node.id == id) else { continue };
        // What else a backend is told (its file, whether it is shared) stays.
        let (kind, backend, rest) = match process.backends.get(&id) {
            Some((kind, backend)) if !target.reshaped => (kind.clone(), backend.clone(), "...".to_owned()),
            _ => ("memory-backend-ram".to_owned(), format!("mem{id}"), format!("size={}M", node.memory.mib())),
        };
        let policy = if mode == "strict" { "bind".to_owned() } else { mode };
        lines.push(format!(
            "-object {kind},id={backend},{rest},host-nodes={},policy={policy},prealloc=on",
            nodes.to_string().replace(',', ",host-nodes=")
        ));
        if target.reshaped {
            lines.push(format!("-numa node,nodeid={id},cpus={},memdev={backend}", dashes(&node.vcpus)));
        } else if !vm.vnuma && process.backends.is_empty() {
            lines.push(format!("-machine memory-backend={backend}"));
        }
    }
    let several = target.nodes.len() > 1;
    if several && (aspects.contains(&Aspect::Shape) || aspects.contains(&Aspect::Distances)) {
        for (one, row) in target.nodes.iter().zip(&target.distances) {
            for (other, value) in target.nodes.iter().zip(row).filter(|(other, _)| other.id != one.id) {
                lines.push(format!("-numa dist,src={},dst={},val={value}", one.id, other.id));
            }
        }
    }
    lines
}

/// QEMU's way to write a set: `0-3,cpus=8-11`.
fn dashes(vcpus: &CpuSet) -> String {
    vcpus.to_string().replace(',', ",cpus=")
}
