//! Memory that is plugged in, grown and shrunk.

use super::Work;
use super::there::{self, Plugged};
use crate::QemuError;
use crate::command_line::growth::{port_count, port_id};
use scheduler::growth::DIMM_BLOCK;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use topology::{Bytes, NodeSet};
use vm::spec::Fill;
use vm::{MemoryDevice, MemoryDeviceKind, VirtualNode};

/// What a guest made of a virtio-mem device's request.
#[derive(PartialEq, Eq)]
enum Taken {
    All,
    /// It has a driver, and not as much as was asked for.
    Part,
    NoDriver,
}

/// Whether a device takes no request because its guest was asked to let it go, and has not: it had
/// no driver for it. QEMU since 8.2 refuses such requests.
fn is_leaving(error: &QemuError) -> bool {
    matches!(error, QemuError::Refused { .. }) && error.to_string().contains("process of unplug")
}

impl Work<'_> {
    fn node(&self, id: u32) -> Option<&VirtualNode> {
        self.resize.topology.nodes.iter().find(|node| node.id == id)
    }

    /// What the devices of a virtual node were asked to give.
    fn requested(&self, virtual_node: u32) -> Bytes {
        let devices = self.resized.added.memory.iter().filter(|device| device.virtual_node == virtual_node);
        devices.map(|device| device.requested).sum()
    }

    pub(super) fn check_memory(&self) -> Result<(), QemuError> {
        self.resize.check_memory(&self.resized.added).map_err(|problem| self.bad_input(problem.to_string()))
    }

    pub(super) fn resize_memory(&mut self) -> Result<(), QemuError> {
        let wanted: Vec<(VirtualNode, Bytes)> =
            self.resize.memory.iter().filter_map(|(&id, &size)| Some((self.node(id)?.clone(), size))).collect();
        for (node, size) in wanted {
            let (now, wanted) = (self.requested(node.id), size.saturating_sub(node.memory));
            if wanted < now {
                self.shrink(node.id, now.saturating_sub(wanted))?;
            } else if wanted > now {
                self.grow(&node, wanted.saturating_sub(now))?;
            } else {
                self.settle(node.id)?;
            }
        }
        Ok(())
    }

    /// An earlier call may have asked for it and not waited.
    fn settle(&mut self, virtual_node: u32) -> Result<(), QemuError> {
        for index in 0..self.resized.added.memory.len() {
            let device = &self.resized.added.memory[index];
            if device.virtual_node == virtual_node && device.kind == MemoryDeviceKind::VirtioMem {
                let amount = device.requested;
                self.request_and_wait(index, amount)?;
            }
        }
        Ok(())
    }

    /// From the devices of this node that are bound to its present home, then from a new one.
    fn grow(&mut self, node: &VirtualNode, by: Bytes) -> Result<(), QemuError> {
        let home = self.binding(node.id).map(|(home, _)| home).unwrap_or_default();
        let mut rest = by;
        for index in 0..self.resized.added.memory.len() {
            let device = &self.resized.added.memory[index];
            let is_here = device.virtual_node == node.id && device.bound_to == home;
            let left = device.size.saturating_sub(device.requested).min(rest);
            if is_here && device.kind == MemoryDeviceKind::VirtioMem && left.0 > 0 {
                let before = device.requested;
                rest = rest.saturating_sub(left);
                let taken = match self.request_and_wait(index, before.saturating_add(left)) {
                    Err(error) if is_leaving(&error) => Taken::NoDriver,
                    taken => taken?,
                };
                if taken == Taken::NoDriver {
                    if self.resized.added.memory[index].requested != before {
                        self.request(index, before)?;
                    }
                    self.plug_dimm(node.id, left)?;
                }
            }
        }
        if rest.0 == 0 {
            return Ok(());
        }
        let index = self.plug_virtio_mem(node, rest)?;
        if self.request_and_wait(index, rest)? == Taken::NoDriver {
            self.request(index, Bytes(0))?;
            self.remove_empty(index)?;
            self.plug_dimm(node.id, rest)?;
        }
        Ok(())
    }

    /// Memory that lies away from the present home goes first.
    fn shrink(&mut self, virtual_node: u32, by: Bytes) -> Result<(), QemuError> {
        let home = self.binding(virtual_node).map(|(home, _)| home).unwrap_or_default();
        let devices = self.resized.added.memory.iter().enumerate();
        let mut of_node: Vec<(bool, usize)> = devices
            .filter(|(_, device)| device.virtual_node == virtual_node && device.kind == MemoryDeviceKind::VirtioMem)
            .map(|(index, device)| (device.bound_to == home, index))
            .collect();
        of_node.sort_by_key(|&(at_home, index)| (at_home, std::cmp::Reverse(index)));
        let mut rest = by;
        for (_, index) in of_node {
            let before = self.resized.added.memory[index].requested;
            let less = before.min(rest);
            rest = rest.saturating_sub(less);
            if less.0 > 0 {
                self.request_and_wait(index, before.saturating_sub(less))?;
            }
        }
        Ok(())
    }

    fn request(&mut self, index: usize, amount: Bytes) -> Result<(), QemuError> {
        let device = &self.resized.added.memory[index];
        let path = format!("/machine/peripheral/{}", device.id);
        let ask = json!({ "path": path, "property": "requested-size", "value": amount.0 });
        self.qmp.execute("qom-set", &ask)?;
        self.resized.added.memory[index].requested = amount;
        self.tell();
        Ok(())
    }

    /// Asks for an amount and waits for the guest; says what it did not do.
    fn request_and_wait(&mut self, index: usize, amount: Bytes) -> Result<Taken, QemuError> {
        if self.resized.added.memory[index].requested != amount {
            self.request(index, amount)?;
        }
        let device = self.resized.added.memory[index].clone();
        let left = |qmp: &mut crate::qmp::Qmp| Ok(Self::shown(qmp, &device.id)?.taken.0.abs_diff(amount.0));
        if self.wait(left)? || !self.runs {
            return Ok(Taken::All);
        }
        let Plugged { taken, .. } = Self::shown(self.qmp, &device.id)?;
        if taken.0 == 0 && !self.has_driver(&device.id)? {
            return Ok(Taken::NoDriver);
        }
        let (node, seconds) = (device.virtual_node, self.resize.patience.as_secs());
        self.undone(&if taken < amount {
            let lacks = amount.saturating_sub(taken);
            format!(
                "virtual node {node}: its guest has not taken {lacks} of the {amount} of {} within \
                {seconds} s",
                device.id
            )
        } else {
            let kept = taken.saturating_sub(amount);
            format!(
                "virtual node {node}: its guest keeps {kept} of {} that it should give back; it made no \
                progress for {seconds} s, and may give it back later",
                device.id
            )
        });
        Ok(Taken::Part)
    }

    /// Whether the guest has a driver for a virtio device: it tells the device so. A QEMU that
    /// cannot be asked counts as one whose guest has.
    fn has_driver(&mut self, id: &str) -> Result<bool, QemuError> {
        let path = format!("/machine/peripheral/{id}/virtio-backend");
        match self.qmp.execute("x-query-virtio-status", &json!({ "path": path })) {
            Ok(status) => Ok(status["status"].to_string().contains("DRIVER_OK")),
            Err(QemuError::Refused { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// A device for all that the virtual node may still get. Its place in what is added.
    fn plug_virtio_mem(&mut self, node: &VirtualNode, least: Bytes) -> Result<usize, QemuError> {
        let rest = node.growth.saturating_sub(self.requested(node.id));
        let whole = Bytes(rest.0 - rest.0 % there::block_size(&self.resize.backing).0);
        let port = self.free_port()?;
        let filled = self.is_filled(self.binding(node.id).map(|(_, policy)| policy));
        let plug = |this: &mut Self, size: Bytes| {
            let more = json!({ "driver": "virtio-mem-pci", "bus": port, "requested-size": 0, "prealloc": filled });
            this.plug_memory(node.id, MemoryDeviceKind::VirtioMem, size, more)
        };
        match plug(self, whole.max(least)) {
            // Homes that moved often took the addresses.
            Err(QemuError::Refused { .. }) if whole > least => plug(self, least),
            plugged => plugged,
        }
    }

    fn plug_dimm(&mut self, virtual_node: u32, size: Bytes) -> Result<(), QemuError> {
        if !size.0.is_multiple_of(DIMM_BLOCK.0) {
            return Err(self.bad_input(format!(
                "virtual node {virtual_node}: its guest has no driver for virtio-mem, and a DIMM has a \
                multiple of {DIMM_BLOCK}, not {size}: ask for a multiple of {DIMM_BLOCK} more for each \
                virtual node (`--nodes {virtual_node}`: for this one alone)"
            )));
        }
        self.resized.notes.push(format!(
            "VM {}: its guest has no driver for virtio-mem: virtual node {virtual_node} got a DIMM of {size}, \
            which stays",
            self.qmp.vm()
        ));
        let index = self.plug_memory(virtual_node, MemoryDeviceKind::Dimm, size, json!({ "driver": "pc-dimm" }))?;
        let id = self.resized.added.memory[index].id.clone();
        self.wait_for_dimm(&id)
    }

    /// The guest says by ACPI whether it took a DIMM.
    fn wait_for_dimm(&mut self, id: &str) -> Result<(), QemuError> {
        let patience = if self.runs { self.resize.patience } else { std::time::Duration::ZERO };
        let deadline = std::time::Instant::now() + patience;
        let left = || deadline.saturating_duration_since(std::time::Instant::now());
        while let Some(event) = self.qmp.event(left())? {
            let info = &event["data"]["info"];
            if event["event"] == "ACPI_DEVICE_OST" && info["device"] == id && info["source"] != there::EJECTION {
                if info["status"] != there::SUCCESS {
                    self.undone(&format!("its guest does not take DIMM {id} (ACPI status {})", info["status"]));
                }
                return Ok(());
            }
        }
        if self.runs {
            self.undone(&format!("its guest has not answered about DIMM {id} within {} s", patience.as_secs()));
        }
        Ok(())
    }

    /// Makes a backend that is bound to the node's present home, and a device that has it.
    fn plug_memory(
        &mut self,
        virtual_node: u32,
        kind: MemoryDeviceKind,
        size: Bytes,
        mut device_add: Value,
    ) -> Result<usize, QemuError> {
        let of_node = |device: &&MemoryDevice| device.virtual_node == virtual_node;
        let taken: BTreeSet<&str> =
            self.resized.added.memory.iter().filter(of_node).map(|device| device.id.as_str()).collect();
        let mut names = (1..).map(|number| there::device_id(virtual_node, number));
        let id = names.find(|id| !taken.contains(id.as_str())).unwrap_or_default();
        let binding = self.binding(virtual_node);
        let bound_to = binding.as_ref().map_or_else(NodeSet::new, |(home, _)| home.clone());
        let requested = if kind == MemoryDeviceKind::Dimm { size } else { Bytes(0) };
        let device = MemoryDevice { id, virtual_node, kind, size, requested, bound_to };
        let object = self.backend_object(&device, binding.as_ref().map(|(_, policy)| *policy));
        self.qmp.execute("object-add", &object)?;
        (device_add["id"], device_add["memdev"]) = (json!(device.id), json!(device.backend()));
        device_add["node"] = json!(virtual_node);
        if let Err(error) = self.qmp.execute("device_add", &device_add) {
            self.qmp.execute("object-del", &json!({ "id": device.backend() }))?;
            return Err(error);
        }
        self.resized.added.memory.push(device);
        self.tell();
        Ok(self.resized.added.memory.len() - 1)
    }

    /// What the guest has not taken costs nothing (`reserve`); what it takes is filled then, by the
    /// device.
    fn backend_object(&self, device: &MemoryDevice, policy: Option<&str>) -> Value {
        let mut object = json!({ "qom-type": "memory-backend-ram", "id": device.backend(), "size": device.size.0 });
        if let Some(huge) = self.resize.backing.huge_pages {
            object["qom-type"] = json!("memory-backend-memfd");
            (object["hugetlb"], object["hugetlbsize"]) = (json!(true), json!(huge.0));
        }
        if let Some(policy) = policy {
            let nodes: Vec<u32> = device.bound_to.iter().map(|node| node.0).collect();
            (object["host-nodes"], object["policy"]) = (json!(nodes), json!(policy));
        }
        match device.kind {
            MemoryDeviceKind::VirtioMem => object["reserve"] = json!(false),
            MemoryDeviceKind::Dimm => object["prealloc"] = json!(self.is_filled(policy)),
        }
        object
    }

    /// Whether memory is filled when the guest gets it.
    fn is_filled(&self, policy: Option<&str>) -> bool {
        let backing = &self.resize.backing;
        backing.huge_pages.is_some() || (policy.is_some() && backing.fill == Fill::AtStart)
    }

    /// A device that the guest has no driver for goes again, where QEMU can do that (since 8.2).
    fn remove_empty(&mut self, index: usize) -> Result<(), QemuError> {
        let device = self.resized.added.memory[index].clone();
        match self.unplug(&device.id) {
            Ok(None) => {
                self.resized.added.memory.remove(index);
                self.tell();
                self.qmp.execute("object-del", &json!({ "id": device.backend() })).map(drop)
            }
            Ok(Some(_)) | Err(QemuError::Refused { .. }) => {
                let vm = self.qmp.vm();
                self.resized
                    .notes
                    .push(format!("VM {vm}: {} stays, empty: QEMU or its guest does not let it go", device.id));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The first root port without a device.
    fn free_port(&mut self) -> Result<String, QemuError> {
        let mut taken = BTreeSet::new();
        for device in &self.resized.added.memory {
            if device.kind == MemoryDeviceKind::VirtioMem {
                taken.extend(there::port(self.qmp, &device.id)?);
            }
        }
        let mut ports = (0..port_count(&self.resize.topology) as u32).filter(|port| !taken.contains(port));
        ports.next().map(port_id).ok_or_else(|| {
            self.bad_input("no port is left for another memory device; a power cycle makes one block of all".to_owned())
        })
    }
}
