//! Who started a VM, told by how its command line is written.

use crate::qemu::options::Options;
use crate::qemu::{MONITOR, OptionGroups, memory_id};
use crate::stated::{HOMENODE_LIBVIRT_MARK, mark_of};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A program that starts VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manager {
    /// `homenode run`.
    Homenode,
    /// libvirt, used directly (virsh, virt-manager, oVirt, ...).
    Libvirt,
    /// OpenStack Nova, through libvirt.
    Openstack,
    /// KubeVirt, through libvirt.
    Kubevirt,
    /// Proxmox VE.
    Proxmox,
    /// Nobody known: written by hand or by a script.
    #[default]
    Unknown,
}

impl Manager {
    /// Whether libvirt has the VM, for whomever.
    pub fn is_libvirt(self) -> bool {
        matches!(self, Self::Libvirt | Self::Openstack | Self::Kubevirt)
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Homenode => "homenode",
            Self::Libvirt => "libvirt",
            Self::Openstack => "OpenStack (libvirt)",
            Self::Kubevirt => "KubeVirt (libvirt)",
            Self::Proxmox => "Proxmox",
            Self::Unknown => "somebody unknown",
        })
    }
}

/// Who started a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The program.
    pub manager: Manager,
    /// The number that it gave the VM (Proxmox).
    pub id: Option<String>,
    /// Whether homenode wrote its definition: it chose the homes, and nobody else did.
    pub by_homenode: bool,
}

impl Origin {
    /// Reads program and arguments.
    pub fn parse(arguments: &[String]) -> Self {
        Self::of(&OptionGroups::of(arguments))
    }

    /// What options say.
    pub fn of(groups: &OptionGroups<'_>) -> Self {
        let arguments = groups.arguments();
        let id = groups.text("id").map(str::to_owned);
        let proxmox = id.is_some()
            && (mentions(arguments, "/var/run/qemu-server/")
                || mentions(arguments, "/run/qemu-server/")
                || mentions(arguments, "/usr/share/qemu-server/"));
        let manager = if proxmox {
            Manager::Proxmox
        } else if is_libvirt(groups) {
            behind_libvirt(groups)
        } else if is_homenode(groups) {
            Manager::Homenode
        } else {
            Manager::Unknown
        };
        let marked = |device: &Options| device.get("id").and_then(mark_of) == Some(HOMENODE_LIBVIRT_MARK);
        let by_homenode = manager == Manager::Homenode || groups.all("device").any(marked);
        Self { manager, id: id.filter(|_| proxmox), by_homenode }
    }
}

fn mentions(arguments: &[String], text: &str) -> bool {
    arguments.iter().any(|argument| argument.contains(text))
}

/// libvirt names its monitor `charmonitor` and its secret `masterKey0` in every version.
fn is_libvirt(groups: &OptionGroups<'_>) -> bool {
    let named_guest = groups.texts("name").next().is_some_and(|name| name.starts_with("guest="));
    let arguments = groups.arguments();
    named_guest && (mentions(arguments, "charmonitor") || mentions(arguments, "masterKey0"))
}

fn behind_libvirt(groups: &OptionGroups<'_>) -> Manager {
    match groups.all("smbios").find_map(|smbios| smbios.get("manufacturer")) {
        Some(maker) if maker.starts_with("OpenStack") => Manager::Openstack,
        Some("KubeVirt") => Manager::Kubevirt,
        _ => Manager::Libvirt,
    }
}

/// By the names that homenode gives to memory and monitor.
fn is_homenode(groups: &OptionGroups<'_>) -> bool {
    let first = memory_id(0);
    groups.all("object").any(|object| object.get("id").is_some_and(|id| id == first))
        && groups.all("chardev").any(|monitor| monitor.get("id") == Some(MONITOR))
}
