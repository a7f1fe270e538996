//! What can be done while a VM runs, and QEMU's options where there is no XML.

use crate::change::Change;
use crate::finding::Aspect;
use crate::shaped::{Running, ShapedVm};
use topology::CpuSet;
use topology::words::quoted;
use vm::Manager;

/// The commands of a cure.
pub(crate) fn commands(change: &Change<'_>) -> Vec<String> {
    match &change.vm().running {
        // Of a VM that a manager has, the definition says what comes with the next start.
        Some(running) if running.seen.manager != Manager::Unknown => of_running(change, running),
        Some(running) => of_running(change, running).into_iter().chain(options(change)).collect(),
        // Other virtual nodes come with a new start, and their pins with them. What is no domain
        // has no commands of libvirt.
        None if change.target.reshaped || change.vm().xml.is_none() => Vec::new(),
        None => of_libvirt(change, change.vm()),
    }
}

fn of_libvirt(change: &Change<'_>, vm: &ShapedVm) -> Vec<String> {
    let name = domain(&vm.name);
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
            "{}   # moves the pages that it has; the policy changes at its next start",
            repair(&vm.name)
        ));
    }
    lines
}

/// Pins the vCPUs of a domain that runs in their order, one to each of these CPUs.
pub(crate) fn pin_each(name: &str, cpus: &str) -> String {
    let name = domain(name);
    format!("vcpu=0; for cpu in {cpus}; do virsh vcpupin {name} $vcpu $cpu --live; vcpu=$((vcpu + 1)); done")
}

/// A domain as an argument of `virsh`, which nothing in its name can turn into an option.
fn domain(name: &str) -> String {
    if name.starts_with('-') { quoted(&format!("--domain={name}")) } else { quoted(name) }
}

/// The command that repairs a VM: the same.
fn repair(vm: &str) -> String {
    let word = quoted(vm);
    if vm.starts_with('-') {
        format!("homenode doctor --fix -- {word}")
    } else {
        format!("homenode doctor {word} --fix")
    }
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

/// Whether a command changes processes of the host that it is typed on: homenode's own repair, or
/// the affinity of a thread.
pub(crate) fn acts_on_this_host(line: &str) -> bool {
    line.starts_with("homenode doctor ") || line.starts_with("taskset ")
}

fn of_running(change: &Change<'_>, running: &Running) -> Vec<String> {
    if change.target.reshaped {
        return Vec::new();
    }
    // No process: the domain of another host, which its libvirt binds.
    if running.seen.vm.pid == 0 {
        return of_libvirt(change, change.vm()).into_iter().filter(|line| !acts_on_this_host(line)).collect();
    }
    let (pins, seen) = (change.pins(), &running.seen);
    let mut lines = Vec::new();
    if !pins.vcpus.is_empty() || !change.bindings().is_empty() {
        // Anybody can call a VM as another one is called.
        let which = if seen.stranger { seen.vm.pid.to_string() } else { seen.vm.name.clone() };
        lines.push(format!("{}   # binds its vCPUs and moves the pages that it has", repair(&which)));
    }
    if seen.manager == Manager::Libvirt && !seen.stranger {
        let name = domain(&seen.vm.name);
        lines.extend(pins.emulator.iter().map(|cpus| format!("virsh emulatorpin {name} {cpus} --live")));
        lines.extend(pins.iothreads.iter().map(|(id, cpus)| format!("virsh iothreadpin {name} {id} {cpus} --live")));
        return lines;
    }
    let line = |(thread, cpus): (u32, CpuSet)| format!("taskset -cp {cpus} {thread}");
    lines.extend(change.other_threads(running).into_iter().map(line));
    lines
}

/// QEMU's options for the next start.
fn options(change: &Change<'_>) -> Vec<String> {
    let (vm, target) = (change.vm(), change.target);
    let mut lines = Vec::new();
    let guest = change.guest();
    if guest != vm.guest {
        lines.push(format!(
            "-smp {},sockets={},dies={},cores={},threads={}",
            vm.vcpus, guest.sockets, guest.dies, guest.cores, guest.threads
        ));
    }
    if change.has(&[Aspect::Cache]) {
        lines.push("-cpu ...,l3-cache=on".to_owned());
    }
    for (id, mode, nodes) in change.bindings() {
        let Some(node) = target.nodes.iter().find(|node| node.id == id) else { continue };
        let policy = if mode == "strict" { "bind".to_owned() } else { mode };
        let bound =
            format!("host-nodes={},policy={policy},prealloc=on", nodes.to_string().replace(',', ",host-nodes="));
        if !target.reshaped {
            // What else a backend is told (its file, whether it is shared) stays.
            let whose = if vm.vnuma {
                format!("virtual node {id}")
            } else {
                "the VM (with -m alone: and -machine memory-backend=)".to_owned()
            };
            lines.push(format!("-object memory-backend-...,{bound}   # the memory of {whose}"));
            continue;
        }
        lines.push(format!("-object memory-backend-ram,id=mem{id},size={}M,{bound}", node.memory.mib()));
        lines.push(format!("-numa node,nodeid={id},cpus={},memdev=mem{id}", dashes(&node.vcpus)));
    }
    if target.nodes.len() > 1 && change.has(&[Aspect::Shape, Aspect::Distances]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_an_option_or_a_command_of_its_own() {
        assert_eq!((domain("web"), repair("web")), ("web".to_owned(), "homenode doctor web --fix".to_owned()));
        assert_eq!(domain("$(id)"), "'$(id)'");
        assert_eq!(
            (domain("--live"), repair("-h")),
            ("--domain=--live".to_owned(), "homenode doctor --fix -- -h".to_owned())
        );
        assert!(acts_on_this_host(&repair("-h")));
    }
}
