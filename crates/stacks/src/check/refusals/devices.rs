//! Memory that can be plugged in: `<maxMemory>` and the memory devices.

use super::memory::{all_memory, amount};
use super::{Refusal, at, first, is_of_qemu, number, set, steps};
use crate::domain::{Domain, Edit};
use roxmltree::Node;
use topology::Bytes;
use topology::words::count;

/// Places for memory devices of a domain that says none.
const SLOTS: u32 = 16;
/// The least block of virtio-mem: a huge page of x86.
const LEAST_BLOCK: Bytes = Bytes::from_mib(2);

pub(super) fn refusals(root: Node<'_, '_>, domain: &Domain) -> Vec<Refusal> {
    let devices = at(root, "devices/memory");
    let general = no_slots(root, &devices).into_iter().chain(beyond_all(domain, &devices));
    if !is_of_qemu(domain) {
        return general.collect();
    }
    let found = [
        no_cells(root, domain, &devices),
        no_most(root, domain, &devices),
        no_node(domain, &devices),
        few_slots(root, &devices),
    ];
    let blocks = devices.iter().filter_map(|&device| block(device, devices.len() == 1));
    general.chain(found.into_iter().flatten()).chain(blocks).collect()
}

fn is_dimm(device: &&Node<'_, '_>) -> bool {
    matches!(device.attribute("model"), Some("dimm" | "nvdimm"))
}

/// `<maxMemory>` without cells.
fn no_cells(root: Node<'_, '_>, domain: &Domain, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let element = first(root, "maxMemory")?;
    if !domain.cells.is_empty() {
        return None;
    }
    let says = "At least one numa node has to be configured when enabling memory hotplug";
    let refusal =
        Refusal::new("memory can be plugged in, and it has no cell", says).before("9.6").at("maxMemory", element);
    let of_devices: Bytes = domain.memory_modules.iter().map(|module| module.size).sum();
    let memory = domain.memory.saturating_sub(of_devices);
    let cell = || super::keyed("cpu/numa/cell", "id", 0);
    let cpus = if domain.vcpus == 1 { "0".to_owned() } else { format!("0-{}", domain.vcpus - 1) };
    let edits = [set(cell(), "cpus", &cpus), set(cell(), "memory", &(memory.0 >> 10)), set(cell(), "unit", "KiB")];
    let named = devices.iter().all(|&device| first(device, "target/node").is_some());
    let advice = "give it one cell with all of its vCPUs and memory: libvirt 9.6 and later adds that itself";
    Some(refusal.mend(advice, if named || devices.len() <= 1 { edits.to_vec() } else { Vec::new() }))
}

/// Devices of more memory than the domain has: without cells they are a part of it.
fn beyond_all(domain: &Domain, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let of_devices: Bytes = domain.memory_modules.iter().map(|module| module.size).sum();
    let device = devices.first().filter(|_| domain.cells.is_empty() && of_devices > domain.memory)?;
    let sentence = format!("its memory devices have {of_devices}, and all of its memory is {}", domain.memory);
    let refusal = Refusal::new(sentence, "Total size of memory devices exceeds the total memory size");
    Some(refusal.at("devices/memory", *device).mend("<memory> counts what the devices have too", []))
}

fn no_slots(root: Node<'_, '_>, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let element = first(root, "maxMemory").filter(|element| number::<u32>(*element, "slots").unwrap_or(0) == 0)?;
    let says = "both maximum memory size and memory slot count must be specified";
    let refusal = Refusal::new("memory can be plugged in, and there are no places for devices", says);
    let dimms = devices.iter().filter(is_dimm).count() as u32;
    let refusal = if dimms > 0 { refusal } else { refusal.before("9.5") };
    let slots = dimms.max(SLOTS);
    Some(refusal.at("maxMemory", element).mend("say how many", [set(steps("maxMemory"), "slots", &slots)]))
}

/// Memory devices without `<maxMemory>`.
fn no_most(root: Node<'_, '_>, domain: &Domain, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let device = devices.first().filter(|_| first(root, "maxMemory").is_none())?;
    let says = "cannot use/hotplug a memory device when domain 'maxMemory' is not defined";
    let sentence = format!("it has {}, and <maxMemory> is not written", count(devices.len(), "memory device"));
    let refusal = Refusal::new(sentence, says).at("devices/memory", *device);
    let at = || steps("maxMemory");
    let all = all_memory(domain).0.next_multiple_of(1 << 30) >> 10;
    let text = Edit::SetText { at: at(), text: all.to_string() };
    let slots = SLOTS.max(devices.len() as u32);
    Some(refusal.mend("write it", [text, set(at(), "unit", "KiB"), set(at(), "slots", &slots)]))
}

/// A memory device that names no cell, where there are cells.
fn no_node(domain: &Domain, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let lacks = |device: &&Node<'_, '_>| {
        let plugged = matches!(device.attribute("model"), Some("dimm" | "nvdimm" | "virtio-mem"));
        plugged && first(**device, "target/node").is_none()
    };
    let device = devices.iter().find(lacks).filter(|_| !domain.cells.is_empty())?;
    let says = "target NUMA node needs to be specified for memory device";
    let refusal = Refusal::new("a memory device names no cell", says).at("devices/memory", *device);
    let edit = Edit::SetText { at: steps("devices/memory/target/node"), text: "0".to_owned() };
    let mended = if devices.len() == 1 && domain.cells.len() == 1 { vec![edit] } else { Vec::new() };
    Some(refusal.mend("say which cell gets it: <target><node>0</node>", mended))
}

/// More devices than places.
fn few_slots(root: Node<'_, '_>, devices: &[Node<'_, '_>]) -> Option<Refusal> {
    let element = first(root, "maxMemory")?;
    let slots = number::<u32>(element, "slots").filter(|&slots| slots > 0)?;
    let dimms = devices.iter().filter(is_dimm).count() as u32;
    if dimms <= slots {
        return None;
    }
    let sentence = format!("{} and {}", count(dimms as usize, "DIMM"), count(slots as usize, "place"));
    let refusal = Refusal::new(sentence, "failed to find an empty memory slot").at("maxMemory", element);
    Some(refusal.mend("make more places", [set(steps("maxMemory"), "slots", &dimms)]))
}

/// Blocks of a virtio-mem device.
fn block(device: Node<'_, '_>, alone: bool) -> Option<Refusal> {
    if device.attribute("model") != Some("virtio-mem") {
        return None;
    }
    let read = |path: &str| first(device, path).and_then(amount);
    let block = read("target/block").unwrap_or_default();
    let at_device = |refusal: Refusal| refusal.at("devices/memory", device);
    let path = || steps("devices/memory/target/block");
    let mended = || match alone {
        true => vec![Edit::SetText { at: path(), text: (LEAST_BLOCK.0 >> 10).to_string() }, set(path(), "unit", "KiB")],
        false => Vec::new(),
    };
    if !block.0.is_power_of_two() {
        let refusal =
            at_device(Refusal::new("a virtio-mem device has no whole blocks", "block size must be a power of two"));
        return Some(refusal.mend("blocks of 2 MiB", mended()));
    }
    if block < LEAST_BLOCK {
        let says = format!("block size too small, must be at least {}KiB", LEAST_BLOCK.0 >> 10);
        let refusal = at_device(Refusal::new(format!("blocks of a virtio-mem device are {block}"), says));
        return Some(refusal.mend("blocks of 2 MiB", mended()));
    }
    let requested = read("target/requested").unwrap_or_default();
    if !requested.0.is_multiple_of(block.0) {
        let sentence = format!("{requested} are requested of a virtio-mem device, in blocks of {block}");
        let refusal = at_device(Refusal::new(sentence, "requested size must be an integer multiple of block size"));
        return Some(refusal.mend("request whole blocks", []));
    }
    None
}
