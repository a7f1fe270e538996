//! What is plugged into a VM, as its QEMU says.

use super::Work;
use crate::QemuError;
use crate::command_line::growth;
use crate::qmp::Qmp;
use serde_json::{Map, Value, json};
use std::fs;
use topology::limits::MOST_OBJECTS;
use topology::{Bytes, NodeId, NodeSet};
use vm::manifest::DevicePlace;
use vm::spec::Backing;
use vm::{Added, MemoryDevice, MemoryDeviceKind, Resize, VirtualTopology};

/// `source` of an `ACPI_DEVICE_OST`: the guest was asked to give a device back.
pub(super) const EJECTION: u64 = 3;
/// `status` of an `ACPI_DEVICE_OST`.
pub(super) const SUCCESS: u64 = 0;
/// `status` of an ejection that is being done.
const IN_PROGRESS: u64 = 0x84;
/// Where QEMU has the memory backends.
const OBJECTS: &str = "/objects";
/// Ids of backends of memory devices begin so ([`MemoryDevice::backend`]).
const BACKEND: &str = "ram-vnode";

/// A vCPU that there may be.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) vcpu: u32,
    /// QEMU's device for it.
    pub(super) driver: String,
    /// Where it is: what `device_add` takes.
    pub(super) properties: Map<String, Value>,
    pub(super) present: bool,
}

/// Whether QEMU has a device of this id.
pub(super) fn has_device(qmp: &mut Qmp, id: &str) -> Result<bool, QemuError> {
    let devices = qmp.execute("qom-list", &json!({ "path": "/machine/peripheral" }))?;
    Ok(devices.as_array().into_iter().flatten().any(|device| device["name"] == id))
}

/// Why a guest does not give a device back, where an event says so.
pub(super) fn refusal(event: &Value, id: &str) -> Option<String> {
    let (data, info) = (&event["data"], &event["data"]["info"]);
    match event["event"].as_str()? {
        "DEVICE_UNPLUG_GUEST_ERROR" if data["device"] == id => Some("its guest refuses".to_owned()),
        "ACPI_DEVICE_OST" if info["device"] == id && info["source"] == EJECTION => {
            let status = info["status"].as_u64().filter(|status| ![SUCCESS, IN_PROGRESS].contains(status))?;
            Some(format!("its guest refuses (ACPI status {status:#x})"))
        }
        _ => None,
    }
}

/// All vCPUs that there may be.
pub(super) fn slots(qmp: &mut Qmp, topology: &VirtualTopology) -> Result<Vec<Slot>, QemuError> {
    let shape = growth::vcpu_topology(topology);
    let answer = qmp.execute("query-hotpluggable-cpus", &json!({}))?;
    let slot = |slot: &Value| {
        let properties = slot["props"].as_object()?.clone();
        let id = |key: &str| properties.get(key).and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        let vcpu = shape.vcpu_at(id)?;
        let present = slot.get("qom-path").is_some();
        Some(Slot { vcpu, driver: slot["type"].as_str()?.to_owned(), properties, present })
    };
    let mut slots: Vec<Slot> = answer.as_array().into_iter().flatten().filter_map(slot).collect();
    slots.sort_by_key(|slot| slot.vcpu);
    Ok(slots)
}

/// A memory device as `query-memory-devices` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plugged {
    pub(crate) id: String,
    pub(crate) virtual_node: u32,
    pub(crate) kind: MemoryDeviceKind,
    /// The most that it can give.
    pub(crate) size: Bytes,
    /// What it was asked to give.
    pub(crate) requested: Bytes,
    /// What the guest has of it.
    pub(crate) taken: Bytes,
    /// The guest address that it begins at.
    pub(crate) address: u64,
}

/// The memory devices that homenode plugged in, as far as a QEMU that its guest has taken over can
/// be believed: so many, of names that homenode gives, no more of any than it is large. They are
/// written down, and become words of the next QEMU's command line.
pub(crate) fn plugged_memory(qmp: &mut Qmp) -> Result<Vec<Plugged>, QemuError> {
    let answer = qmp.execute("query-memory-devices", &json!({}))?;
    Ok(answer.as_array().into_iter().flatten().filter_map(plugged).take(MOST_OBJECTS).collect())
}

/// Where the memory devices are that homenode plugged in.
pub(crate) fn places(qmp: &mut Qmp) -> Result<Vec<DevicePlace>, QemuError> {
    let mut places = Vec::new();
    for Plugged { id, kind, address, .. } in plugged_memory(qmp)? {
        let port = if kind == MemoryDeviceKind::VirtioMem { port(qmp, &id)? } else { None };
        places.push(DevicePlace { id, address, port });
    }
    Ok(places)
}

/// The number of the root port that a device is plugged into.
pub(super) fn port(qmp: &mut Qmp, id: &str) -> Result<Option<u32>, QemuError> {
    let path = format!("/machine/peripheral/{id}");
    let bus = qmp.execute("qom-get", &json!({ "path": path, "property": "parent_bus" }))?;
    Ok(bus.as_str().and_then(|path| growth::port_number(path.rsplit('/').next()?)))
}

/// The name of a memory device of a virtual node.
pub(super) fn device_id(virtual_node: u32, number: u32) -> String {
    format!("vnode{virtual_node}-{number}")
}

fn plugged(device: &Value) -> Option<Plugged> {
    let data = &device["data"];
    let bytes = |key: &str| data[key].as_u64().map(Bytes);
    let virtual_node = u32::try_from(data["node"].as_u64()?).ok()?;
    let is_ours = |id: &&str| {
        let number = id.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        number.is_some_and(|number| device_id(virtual_node, number) == **id)
    };
    let id = data["id"].as_str().filter(is_ours)?.to_owned();
    match device["type"].as_str()? {
        "virtio-mem" => Some(Plugged {
            id,
            virtual_node,
            kind: MemoryDeviceKind::VirtioMem,
            size: bytes("max-size")?,
            requested: bytes("requested-size")?.min(bytes("max-size")?),
            taken: bytes("size")?,
            address: data["memaddr"].as_u64()?,
        }),
        "dimm" => {
            let (kind, size) = (MemoryDeviceKind::Dimm, bytes("size")?);
            let address = data["addr"].as_u64()?;
            Some(Plugged { id, virtual_node, kind, size, requested: size, taken: size, address })
        }
        _ => None,
    }
}

/// What is plugged in, in the order of the record as far as it has one. Backends of a homenode that
/// was killed before it plugged their device are removed.
pub(super) fn read(qmp: &mut Qmp, resize: &Resize) -> Result<Added, QemuError> {
    let at_start = |vcpu: u32| resize.topology.nodes.iter().any(|node| node.present().any(|present| present == vcpu));
    let slots = slots(qmp, &resize.topology)?;
    let plugged = slots.iter().filter(|slot| slot.present && !at_start(slot.vcpu)).map(|slot| slot.vcpu);
    let mut vcpus: Vec<u32> = plugged.collect();
    vcpus.dedup();
    let place = |vcpu: &u32| resize.added.vcpus.iter().position(|known| known == vcpu).unwrap_or(usize::MAX);
    vcpus.sort_by_key(place);
    let mut memory = Vec::new();
    for plugged in plugged_memory(qmp)? {
        let Plugged { id, virtual_node, kind, size, requested, .. } = plugged;
        if !resize.topology.nodes.iter().any(|node| node.id == virtual_node) {
            continue;
        }
        let mut device = MemoryDevice { id, virtual_node, kind, size, requested, bound_to: NodeSet::new() };
        device.bound_to = bound_to(qmp, &device.backend())?;
        memory.push(device);
    }
    let place = |device: &MemoryDevice| {
        resize.added.memory.iter().position(|known| known.id == device.id).unwrap_or(usize::MAX)
    };
    memory.sort_by_key(place);
    // Some guests let go after nobody waits any more.
    let late = resize.added.vcpus.iter().filter(|vcpu| !vcpus.contains(vcpu)).count() as u32;
    let added = Added { vcpus, memory, taken_away: resize.added.taken_away.saturating_add(late) };
    remove_unused_backends(qmp, &added)?;
    Ok(added)
}

fn bound_to(qmp: &mut Qmp, backend: &str) -> Result<NodeSet, QemuError> {
    let path = format!("{OBJECTS}/{backend}");
    let nodes = qmp.execute("qom-get", &json!({ "path": path, "property": "host-nodes" }))?;
    let node = |node: &Value| Some(NodeId(u32::try_from(node.as_u64()?).ok()?));
    Ok(nodes.as_array().into_iter().flatten().filter_map(node).collect())
}

fn remove_unused_backends(qmp: &mut Qmp, added: &Added) -> Result<(), QemuError> {
    let objects = qmp.execute("qom-list", &json!({ "path": OBJECTS }))?;
    let names = objects.as_array().into_iter().flatten().filter_map(|object| object["name"].as_str());
    let is_used = |name: &str| added.memory.iter().any(|device| device.backend() == name);
    let unused: Vec<&str> = names.filter(|name| name.starts_with(BACKEND) && !is_used(name)).collect();
    for name in unused {
        qmp.execute("object-del", &json!({ "id": name }))?;
    }
    Ok(())
}

/// The block of virtio-mem devices on this host: QEMU takes the size of a transparent huge page, or
/// of the huge pages that the memory is made of. Memory grows and shrinks by multiples of it.
pub fn block_size(backing: &Backing) -> Bytes {
    let read = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let size = read.ok().and_then(|text| text.trim().parse().ok());
    let usual = Bytes(size.unwrap_or(USUAL_BLOCK.0).max(Bytes::MIB.0));
    backing.huge_pages.map_or(usual, |huge| huge.max(usual))
}

/// Where the kernel has no transparent huge pages.
const USUAL_BLOCK: Bytes = Bytes::from_mib(2);

impl Work<'_> {
    /// A memory device as QEMU shows it now.
    pub(super) fn shown(qmp: &mut Qmp, id: &str) -> Result<Plugged, QemuError> {
        let all = plugged_memory(qmp)?;
        let missing = || QemuError::Refused {
            vm: qmp.vm().to_owned(),
            command: "query-memory-devices".to_owned(),
            message: format!("it shows no device {id}"),
        };
        all.into_iter().find(|device| device.id == id).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_refuses_is_told_from_one_that_is_at_it() {
        // As QEMU 10.0 says them of Linux 6.1, and what Linux says of a CPU that it needs.
        let ost = |device: &str, status: u64| {
            let info = json!({ "device": device, "source": 3, "status": status, "slot": "5", "slot-type": "CPU" });
            json!({ "event": "ACPI_DEVICE_OST", "data": { "info": info } })
        };
        assert_eq!(refusal(&ost("vcpu5", 132), "vcpu5"), None);
        assert_eq!(refusal(&ost("vcpu5", 0x82), "vcpu5").unwrap(), "its guest refuses (ACPI status 0x82)");
        assert_eq!(refusal(&ost("vcpu4", 0x82), "vcpu5"), None);
        let error = json!({ "event": "DEVICE_UNPLUG_GUEST_ERROR", "data": { "device": "vnode0-1", "path": "" } });
        assert_eq!(refusal(&error, "vnode0-1").unwrap(), "its guest refuses");
    }
}
