//! The object of a plan.

use super::super::common::path;
use super::super::{Emission, EmitError};
use super::binding::Binding;
use super::object::{
    Bootloader, Claim, Cpu, CpuFeature, Devices, Disk, DiskTarget, Domain, Efi, Empty, Ephemeral, Firmware, HugePages,
    Instance, Interface, KernelBoot, KernelContainer, Memory, Metadata, Network, Numa, Port, Spec, Template,
    VirtualMachine, Volume,
};
use super::{Claimed, names};
use std::collections::BTreeSet;
use topology::Bytes;
use vm::spec::{self, Boot, CardModel, Console, Network as Card};

/// A registry that cannot be there (RFC 6761): the user replaces it.
const NO_REGISTRY: &str = "registry.invalid";
/// Where the container image of a kernel has its files.
const KERNEL: &str = "/boot/kernel";
const INITRD: &str = "/boot/initrd";

pub(super) fn machine(
    emission: &Emission<'_>,
    binding: &Binding,
    name: &str,
    claims: &[Claimed<'_>],
) -> Result<VirtualMachine, EmitError> {
    let card = emission.spec.networks.first();
    let (disks, volumes) = storage(emission, name, claims)?.into_iter().unzip();
    let domain = Domain {
        cpu: cpu(emission, binding),
        memory: Memory {
            guest: quantity(binding.memory),
            hugepages: (binding.passthrough || emission.plan.backing.huge_pages.is_some())
                .then(|| HugePages { page_size: quantity(binding.page) }),
        },
        firmware: firmware(emission, name)?,
        devices: Devices {
            autoattach_graphics_device: false,
            autoattach_mem_balloon: false,
            autoattach_pod_interface: card.is_none().then_some(false),
            log_serial_console: matches!(emission.spec.console, Console::File { .. }).then_some(true),
            disks,
            interfaces: card.map(interface).into_iter().collect(),
        },
    };
    let networks = card.map(|_| Network { name: "default".to_owned(), pod: Empty {} }).into_iter().collect();
    Ok(VirtualMachine {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        metadata: Metadata { name: name.to_owned() },
        // Started when applied, started again after a failure, left alone when the guest shuts
        // itself down: as a VM by hand.
        spec: Spec {
            run_strategy: "RerunOnFailure".to_owned(),
            template: Template { spec: Instance { domain, networks, volumes } },
        },
    })
}

fn cpu(emission: &Emission<'_>, binding: &Binding) -> Cpu {
    let topology = &emission.plan.topology;
    Cpu {
        model: "host-passthrough".to_owned(),
        sockets: topology.sockets,
        max_sockets: topology.sockets,
        cores: topology.cores_per_socket,
        threads: topology.threads_per_core,
        features: emission.needs_topoext().then(CpuFeature::topoext).into_iter().collect(),
        dedicated_cpu_placement: binding.passthrough,
        isolate_emulator_thread: binding.emulator_apart,
        numa: binding.passthrough.then(Numa::default),
    }
}

/// The claim of the disk that a VM boots which the spec gives homenode's tiny guest.
pub(super) fn boot_claim(name: &str) -> String {
    names::label(&format!("{}-boot", name.get(..58).unwrap_or(name)), "boot")
}

/// Each disk beside its volume, in order.
fn storage(emission: &Emission<'_>, name: &str, claims: &[Claimed<'_>]) -> Result<Vec<(Disk, Volume)>, EmitError> {
    let mut storage = Vec::new();
    if matches!(emission.spec.boot, Boot::TinyGuest { .. }) {
        storage.push(attached("boot", boot_claim(name), Some(1), false, false));
    }
    for (index, Claimed { disk, claim }) in claims.iter().enumerate() {
        path(&format!("disk[{index}].path"), &disk.path)?;
        let boots = (index == 0 && emission.spec.boot.is_disk()).then_some(1);
        storage.push(attached(&format!("disk-{index}"), claim.clone(), boots, disk.read_only, disk.snapshot));
    }
    Ok(storage)
}

fn attached(
    name: &str,
    claim_name: String,
    boot_order: Option<u32>,
    read_only: bool,
    snapshot: bool,
) -> (Disk, Volume) {
    let target = DiskTarget { bus: "virtio".to_owned(), readonly: read_only };
    // What an ephemeral volume stands on is never written to.
    let claim = Claim { claim_name, read_only: read_only || snapshot };
    let (plain, ephemeral) =
        if snapshot { (None, Some(Ephemeral { persistent_volume_claim: claim })) } else { (Some(claim), None) };
    let volume = Volume { name: name.to_owned(), persistent_volume_claim: plain, ephemeral };
    (Disk { name: name.to_owned(), boot_order, disk: target }, volume)
}

fn firmware(emission: &Emission<'_>, name: &str) -> Result<Option<Firmware>, EmitError> {
    let (kernel, initrd, command_line) = match &emission.spec.boot {
        Boot::Kernel { kernel, initrd, command_line } => (kernel, initrd, command_line),
        Boot::Disk { firmware: spec::Firmware::Uefi } => {
            let bootloader = Some(Bootloader { efi: Efi { secure_boot: false } });
            return Ok(Some(Firmware { kernel_boot: None, bootloader }));
        }
        Boot::Disk { firmware: spec::Firmware::Bios } | Boot::TinyGuest { .. } | Boot::Definition => return Ok(None),
    };
    path("boot.kernel", kernel)?;
    super::super::common::word("boot.command_line", command_line)?;
    let container = KernelContainer {
        image: format!("{NO_REGISTRY}/{name}-kernel:latest"),
        kernel_path: KERNEL.to_owned(),
        initrd_path: initrd.as_ref().map(|_| INITRD.to_owned()),
    };
    let kernel_args = format!("console=ttyS0 {command_line}").trim_end().to_owned();
    Ok(Some(Firmware { kernel_boot: Some(KernelBoot { kernel_args, container }), bootloader: None }))
}

fn interface(card: &Card) -> Interface {
    let ports: BTreeSet<u16> = card.forwards().iter().map(|forward| forward.guest).collect();
    let ports = ports.into_iter().map(|port| Port { port, protocol: "TCP".to_owned() }).collect();
    let model = match card {
        Card::User { .. } => CardModel::Virtio,
        Card::Plugged { card, .. } => card.model,
    };
    Interface { name: "default".to_owned(), model: model.to_string(), masquerade: Empty {}, ports }
}

/// An amount as Kubernetes writes it. Whole MiB.
pub(super) fn quantity(amount: Bytes) -> String {
    let mib = amount.mib();
    if mib.is_multiple_of(1024) && mib > 0 { format!("{}Gi", mib / 1024) } else { format!("{mib}Mi") }
}
