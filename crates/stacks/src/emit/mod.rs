//! A plan in the language of a stack. What the stack cannot express is said in a comment of that
//! language, with what is lost by it.

mod cloud_hypervisor;
mod comment;
mod common;
mod in_order;
mod kubevirt;
mod libvirt;
mod nova;
pub(crate) mod proxmox;
mod proxmox_devices;
mod qemu_command;
mod stated;
mod systemd;

pub use comment::Loss;

pub(crate) use libvirt::MEMORY_SLOTS;

use ::qemu::command_line::BootFiles;
use topology::Machine;
use vm::{Accelerator, Plan, Shape, VmSpec};

/// A stack that a plan can be written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shell command that starts QEMU.
    Qemu,
    /// libvirt's domain XML.
    Libvirt,
    /// Lines of a Proxmox VE configuration (`/etc/pve/qemu-server/ID.conf`).
    Proxmox,
    /// Extra specs of an OpenStack Nova flavor.
    Nova,
    /// A KubeVirt VirtualMachine, YAML.
    Kubevirt,
    /// A cloud-hypervisor command.
    CloudHypervisor,
    /// A systemd slice for a bare QEMU process.
    Systemd,
}

/// All that a stack is told.
#[derive(Clone, Copy, Debug)]
pub struct Emission<'a> {
    /// The machine that the plan was made for.
    pub machine: &'a Machine,
    /// What the VM's owner wrote.
    pub spec: &'a VmSpec,
    /// The answer.
    pub plan: &'a Plan,
    /// What is booted, with every path resolved. Empty for stacks that boot images of their own
    /// ([`Kind::boots_files`]).
    pub boot: &'a BootFiles,
    /// What runs the guest there.
    pub accelerator: &'a Accelerator,
}

impl Emission<'_> {
    /// Whether the machine's CPU is AMD's, by its name.
    fn is_for_amd(&self) -> bool {
        self.machine.cpu_model.as_deref().is_some_and(|model| model.contains("AMD"))
    }

    /// Whether the CPU needs AMD's feature `topoext`, so that the guest sees the plan's threads and
    /// dies.
    fn needs_topoext(&self) -> bool {
        self.accelerator.is_hardware() && self.is_for_amd() && qemu::needs_topoext(&self.plan.topology)
    }
}

/// What of a spec or a plan a stack cannot be told at all: the field, its value, and what would be
/// valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EmitError(pub(crate) String);

impl Kind {
    /// What of a VM is planned for this stack: without the growth that its text cannot hold.
    pub fn planned(self, shape: &Shape) -> Shape {
        match (self.carries_vcpus(), self.carries_memory()) {
            (true, true) => shape.clone(),
            (true, false) => shape.without_memory_growth(),
            (false, _) => shape.without_growth(),
        }
    }

    /// Whether the text holds vCPUs that may come.
    fn carries_vcpus(self) -> bool {
        !matches!(self, Self::Nova | Self::Kubevirt)
    }

    /// Whether the text holds memory that may come. Memory hot-plug of Proxmox and its `numaN`
    /// lines, which say the homes, exclude each other.
    fn carries_memory(self) -> bool {
        self.carries_vcpus() && self != Self::Proxmox
    }

    /// Whether the text names the files that are booted.
    pub fn boots_files(self) -> bool {
        !matches!(self, Self::Nova | Self::Kubevirt | Self::Systemd)
    }
}

/// The plan as a text that the stack takes as it is.
///
/// # Errors
/// What of the spec or the plan this stack cannot be told at all.
pub fn emit(kind: Kind, emission: &Emission<'_>) -> Result<String, EmitError> {
    common::check_growth(emission.plan, kind.carries_vcpus(), kind.carries_memory())?;
    match kind {
        Kind::Qemu => qemu_command::text(emission),
        Kind::Libvirt => libvirt::text(emission),
        Kind::Proxmox => proxmox::text(emission),
        Kind::Nova => nova::text(emission),
        Kind::Kubevirt => kubevirt::text(emission),
        Kind::CloudHypervisor => cloud_hypervisor::text(emission),
        Kind::Systemd => systemd::text(emission),
    }
}
