//! libvirt's domain XML: the machine that `homenode run` starts, as libvirt 9.0 and later start it.

mod devices;
mod growth;
mod processor;
mod xml;

pub(crate) use growth::MEMORY_SLOTS;

use super::common::{check_words, far_lost, heading, memory, switch_of_ours};
use super::{Emission, EmitError, Loss};
use std::path::Path;
use topology::Bytes;
use vm::spec::{Boot, Firmware, Network};
use vm::{Accelerator, TcgThreads};
use xml::Element;

/// A complete domain, for `virsh define`.
pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check(emission)?;
    let Emission { spec, plan, accelerator, .. } = *emission;
    let mut elements = vec![Element::text("name", &spec.name)];
    elements.extend(growth::most_memory(plan));
    elements.push(kib("memory", memory(plan)));
    elements.extend(processor::memory_backing(emission.machine, plan));
    elements.extend(processor::vcpus(spec, plan));
    elements.extend(growth::vcpus(plan));
    elements.extend(processor::numatune(plan));
    elements.push(os(emission));
    elements.push(features(spec.most_vcpus()));
    elements.push(processor::cpu(emission));
    elements.extend(endings(&spec.boot));
    elements.push(devices::devices(spec, plan, processor::iothreads(spec, plan).len()));
    let kind = if accelerator.is_hardware() { "kvm" } else { "qemu" };
    let domain = Element::holding("domain", elements).with("type", kind);
    let text = xml::document(&comment(emission), &domain);
    // What XML cannot hold at all (U+FFFF in a path) shows only here.
    crate::domain::parse(&text, "the domain").map_err(|error| EmitError(error.to_string()))?;
    Ok(text)
}

/// What libvirt refuses, or would do otherwise than the plan says.
fn check(emission: &Emission<'_>) -> Result<(), EmitError> {
    check_words(emission)?;
    let Emission { spec, plan, boot, .. } = *emission;
    let disks = spec.disks.iter().enumerate().map(|(index, disk)| (format!("disk[{index}].path"), disk.path.as_path()));
    let boots = [("boot.kernel", &boot.kernel), ("boot.initrd", &boot.initrd)];
    let boots = boots.into_iter().filter_map(|(field, path)| Some((field.to_owned(), path.as_deref()?)));
    for (field, path) in disks.chain(boots).chain(console_log(emission)) {
        if !path.is_absolute() {
            return Err(EmitError(format!(
                "{field} = {path:?}: libvirt starts QEMU in another directory: write the whole path"
            )));
        }
    }
    match plan.topology.nodes.iter().find(|node| node.memory.0 == 0) {
        Some(node) => Err(EmitError(format!(
            "policy.virtual_nodes[{}]: libvirt starts no VM with a virtual node without memory",
            node.id
        ))),
        None => Ok(()),
    }
}

fn console_log<'a>(emission: &Emission<'a>) -> Option<(String, &'a Path)> {
    match &emission.spec.console {
        vm::spec::Console::Terminal => None,
        vm::spec::Console::File { path } => Some(("console.path".to_owned(), path)),
    }
}

/// An amount in libvirt's own unit.
fn kib(name: &'static str, amount: Bytes) -> Element {
    Element::text(name, amount.0 >> 10).with("unit", "KiB")
}

fn os(emission: &Emission<'_>) -> Element {
    let mut elements = vec![Element::text("type", "hvm").with("arch", "x86_64").with("machine", "q35")];
    let boot = emission.boot;
    if let Some(kernel) = &boot.kernel {
        elements.push(Element::text("kernel", kernel.display()));
        elements.extend(boot.initrd.as_ref().map(|initrd| Element::text("initrd", initrd.display())));
        elements.push(Element::text("cmdline", &boot.command_line));
    }
    if emission.spec.boot.firmware() == Firmware::Bios {
        return Element::holding("os", elements);
    }
    // libvirt chooses the firmware itself; its first choice may refuse kernels that nobody signed.
    let unsigned = Element::new("feature").with("enabled", "no").with("name", "secure-boot");
    elements.push(Element::holding("firmware", [unsigned]));
    Element::holding("os", elements).with("firmware", "efi")
}

/// From this many vCPUs on, libvirt wants a virtual IOMMU: its interrupts have room for more CPUs.
const IOMMU_FROM_VCPUS: u32 = 256;

fn features(vcpus: u32) -> Element {
    let mut features = vec![Element::new("acpi"), Element::new("apic")];
    if vcpus >= IOMMU_FROM_VCPUS {
        features.push(Element::new("ioapic").with("driver", "qemu"));
    }
    Element::holding("features", features)
}

/// The tiny guest never reboots by itself: a reset is a kernel panic, and ends the VM.
fn endings(boot: &Boot) -> [Element; 3] {
    let on_reboot = if matches!(boot, Boot::TinyGuest { .. }) { "destroy" } else { "restart" };
    [
        Element::text("on_poweroff", "destroy"),
        Element::text("on_reboot", on_reboot),
        Element::text("on_crash", "destroy"),
    ]
}

/// The lines above the domain.
fn comment(emission: &Emission<'_>) -> String {
    let accelerator = emission.accelerator;
    let mut usage =
        vec![format!("Save it as DOMAIN.xml, then: virsh define DOMAIN.xml, and virsh start {}.", emission.spec.name)];
    if !accelerator.is_hardware() {
        usage.push(format!("NO HARDWARE VIRTUALIZATION: {accelerator}."));
    }
    if emission.spec.disks.iter().any(devices::is_transient) {
        usage.push(
            "Writes to a transient disk go to a file beside its image while the VM runs: QEMU's user must be able to \
            make one there."
                .to_owned(),
        );
    }
    let lines = heading(emission, &usage, &losses(emission));
    lines.lines().map(|line| format!("  {}\n", line.strip_prefix("# ").unwrap_or(line))).collect()
}

fn losses(emission: &Emission<'_>) -> Vec<Loss> {
    let mut losses = vec![Loss::new(
        "libvirt's XML fixes homes once; it has no word for virtual nodes that move together, and libvirt moves none.",
        "When a node fills up, the VM stays where it is. `homenode balance` moves it.",
    )];
    if let Accelerator::Tcg { threads, .. } = emission.accelerator {
        losses.push(Loss::new(
            "libvirt gives no vendor to the emulated CPU (homenode run: -cpu max,vendor=GenuineIntel).",
            "The guest sees an AMD CPU where homenode's own VM sees an Intel one. Nodes, sockets and caches are the \
            same.",
        ));
        if *threads == TcgThreads::Single {
            losses.push(Loss::new(
                "libvirt runs each emulated vCPU on a thread of its own (homenode run: -accel tcg,thread=single from \
                32 vCPUs on).",
                "A guest that starts all its CPUs at boot may hang there.",
            ));
        }
    }
    let home = processor::home_without_cpus(emission.machine, emission.plan);
    if let Some(home) = home.filter(|_| emission.plan.backing.filled_at_start(Bytes::MIB) > Bytes(0)) {
        losses.push(Loss::new(
            format!(
                "libvirt fills no memory on node {home}, where the VM has no CPUs: it is filled as the guest uses it."
            ),
            "Whether the node has room shows while the guest runs, not before it starts.",
        ));
    }
    losses.extend(growth::loss(emission));
    losses.extend(far_lost(emission, "libvirt"));
    let forwards = emission.spec.networks.iter().flat_map(Network::forwards);
    let ports: Vec<String> = forwards.map(|port| format!("127.0.0.1:{} to {}", port.host, port.guest)).collect();
    if !ports.is_empty() {
        losses.push(Loss::new(
            format!("QEMU's user network has no forwarded ports in libvirt: {}.", ports.join(", ")),
            "Nobody reaches the guest from outside. Where passt is installed, <backend type='passt'/> and \
            <portForward> do it.",
        ));
    }
    let switches = emission.spec.networks.iter().filter_map(Network::switch);
    losses.extend(switches.map(|switch| switch_of_ours("libvirt", switch)));
    losses
}
