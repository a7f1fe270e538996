//! Who started a VM, told by how its command line is written.

use crate::qemu::options::{Options, value_of, values_of};
use crate::qemu::{MONITOR, memory_id};
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
        let id = value_of(arguments, "id").map(str::to_owned);
        let proxmox = id.is_some()
            && (mentions(arguments, "/var/run/qemu-server/")
                || mentions(arguments, "/run/qemu-server/")
                || mentions(arguments, "/usr/share/qemu-server/"));
        let manager = if proxmox {
            Manager::Proxmox
        } else if is_libvirt(arguments) {
            behind_libvirt(arguments)
        } else if is_homenode(arguments) {
            Manager::Homenode
        } else {
            Manager::Unknown
        };
        let by_homenode = manager == Manager::Homenode
            || values_of(arguments, &["device"]).any(|device| {
                let device = Options::parse(device, "driver");
                device.get("id").and_then(mark_of) == Some(HOMENODE_LIBVIRT_MARK)
            });
        Self { manager, id: id.filter(|_| proxmox), by_homenode }
    }
}

fn mentions(arguments: &[String], text: &str) -> bool {
    arguments.iter().any(|argument| argument.contains(text))
}

/// libvirt names its monitor `charmonitor` and its secret `masterKey0` in every version.
fn is_libvirt(arguments: &[String]) -> bool {
    let named_guest = value_of(arguments, "name").is_some_and(|name| name.starts_with("guest="));
    named_guest && (mentions(arguments, "charmonitor") || mentions(arguments, "masterKey0"))
}

fn behind_libvirt(arguments: &[String]) -> Manager {
    let maker = values_of(arguments, &["smbios"]).find_map(|value| {
        let smbios = Options::parse(value, "");
        smbios.get("manufacturer").map(str::to_owned)
    });
    match maker.as_deref() {
        Some(maker) if maker.starts_with("OpenStack") => Manager::Openstack,
        Some("KubeVirt") => Manager::Kubevirt,
        _ => Manager::Libvirt,
    }
}

/// By the names that homenode gives to memory and monitor.
fn is_homenode(arguments: &[String]) -> bool {
    let first = memory_id(0);
    let object = |value: &str| Options::parse(value, "qom-type").get("id").is_some_and(|id| id == first);
    let monitor = |value: &str| Options::parse(value, "backend").get("id").is_some_and(|id| id == MONITOR);
    values_of(arguments, &["object"]).any(object) && values_of(arguments, &["chardev"]).any(monitor)
}
