//! Arguments that have to do with other stacks.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Another host, through its libvirt.
#[derive(Args)]
pub(crate) struct ConnectArguments {
    /// The host of this libvirt, by libvirt's own URI: qemu:///system, qemu+ssh://host/system
    /// (docs/connect.md)
    #[arg(long, value_name = "URI", conflicts_with = "on")]
    pub(crate) connect: Option<String>,
}

/// Who starts the VM.
#[derive(Args)]
pub(crate) struct StartThrough {
    /// Who starts QEMU: homenode itself, or libvirt, which then knows the VM as any other of its
    /// domains
    #[arg(long, value_name = "WAY")]
    pub(crate) via: Option<Via>,
    /// With --via libvirt: which libvirt [default: what virsh takes]
    #[arg(long, value_name = "URI", requires = "via")]
    pub(crate) connect: Option<String>,
}

/// A way to start VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// libvirt, through virsh
    Libvirt,
}

/// A stack that a plan can be written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EmitArgument {
    /// A shell command that starts QEMU
    Qemu,
    /// libvirt's domain XML
    Libvirt,
    /// Lines of a Proxmox VE configuration
    Proxmox,
    /// Extra specs of an OpenStack Nova flavor
    Nova,
    /// A KubeVirt VirtualMachine, YAML
    Kubevirt,
    /// A cloud-hypervisor command
    CloudHypervisor,
    /// A systemd slice for a bare QEMU process
    Systemd,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// Files with a libvirt domain or a Proxmox VE configuration (ID.conf), directories of such, or
    /// VMs of this host: name, UUID, process number, Proxmox's number. Several are solved together
    #[arg(value_name = "DOMAIN.xml|ID.conf|DIRECTORY|VM", required_unless_present = "all")]
    pub(crate) what: Vec<String>,
    /// Every domain that libvirt has
    #[arg(long, conflicts_with = "what")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) machine: crate::args::MachineArguments,
    #[command(flatten)]
    pub(crate) connect: ConnectArguments,
    /// Print the domain with the cures of all problems and warnings, and nothing else
    #[arg(long, conflicts_with = "json")]
    pub(crate) cured: bool,
    /// Cure all that is named together: write a domain, or a script for Proxmox VE, for each into
    /// this new directory
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["cured", "json"])]
    pub(crate) cured_into: Option<PathBuf>,
    /// Only the table of the VMs and what they want together
    #[arg(long, conflicts_with_all = ["json", "cured"])]
    pub(crate) summary: bool,
    /// Findings that somebody decided to live with (docs/check.md)
    #[arg(long, value_name = "FILE.toml", conflicts_with = "cured")]
    pub(crate) accepted: Option<PathBuf>,
    /// Write memory that `homenode balance` may move: libvirt then prefers the home, and does not
    /// confine the VM to it
    #[arg(long, conflicts_with = "json")]
    pub(crate) movable: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The firmware that boots an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FirmwareArgument {
    /// BIOS
    Bios,
    /// UEFI, without Secure Boot
    Uefi,
}

impl From<FirmwareArgument> for vm::spec::Firmware {
    fn from(argument: FirmwareArgument) -> Self {
        match argument {
            FirmwareArgument::Bios => Self::Bios,
            FirmwareArgument::Uefi => Self::Uefi,
        }
    }
}
