//! Where two manifests differ, in words, and what follows.

use super::{DevicePlace, Manifest, MemoryBlock, RunBy};
use crate::spec::{Boot, Card, Disk, Firmware, GuestRoot, Network};
use crate::{Added, MemoryDevice, VirtualNode, VirtualTopology, VmSpec};
use serde::Serialize;
use std::fmt;
use topology::{Bytes, CpuId, CpuSet};

/// What follows from a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The guest can go on; its owner should know.
    Warns,
    /// The guest must not go on there.
    Refuses,
}

/// One difference between the program that a guest leaves and the one that takes it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs, for example `vCPUs of virtual node 1`.
    pub what: String,
    /// What it is where the guest ran.
    pub was: String,
    /// What it is where the guest would go on.
    pub would_be: String,
    /// What follows.
    pub verdict: Verdict,
    /// Why, as a sentence.
    pub because: &'static str,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, was, would_be, because, .. } = self;
        write!(f, "{what}: {was} where it ran, {would_be} where it would go on: {because}")
    }
}

/// Why a difference matters: what was seen of QEMU 7.2, 10.0 and 11.1.
const UNNOTICED: &str = "QEMU takes that without a word, and the guest would believe what it saw before";
const NOT_TAKEN: &str = "QEMU would not take the guest's memory";
const DEVICES: &str = "the guest's devices would not be those that it knows";
const INSTRUCTIONS: &str = "the guest may use instructions that are not there";
const CLOCKS: &str = "KVM and software emulation keep clocks and interrupts in other ways";
const OTHER_VM: &str = "it is another VM";
const DATA: &str = "the guest would find other data on it than it knows";
const NEWER_OR_OLDER: &str =
    "a newer QEMU takes guests of the same machine type; to an older one it mostly works and nobody promises it";
const FIRMWARE: &str = "QEMU would not take what is in it: it takes UEFI firmware of the same size there";
const HOMENODE: &str = "all that both must agree on is compared beside this";
const NEXT_RESET: &str = "it boots that at its next reset";
const PORTS: &str = "connections from outside arrive elsewhere";

impl Manifest {
    /// What differs between the machine that a guest leaves and `other`, which takes it over, in
    /// the order of the manifest. Empty: it can go on there as if nothing had happened.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let Self { homenode, run_by, spec, topology, added } = self;
        let mut found = Found::default();
        found.warns("homenode", homenode, &other.homenode, HOMENODE);
        found.run_by(run_by, &other.run_by);
        found.spec(spec, &other.spec);
        found.topology(topology, &other.topology);
        found.added(added, &other.added);
        found.0
    }
}

#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    fn add(&mut self, what: &str, values: (String, String), verdict: Verdict, because: &'static str) {
        let (was, would_be) = values;
        if was != would_be {
            self.0.push(Difference { what: what.to_owned(), was, would_be, verdict, because });
        }
    }

    fn refuses(&mut self, what: &str, was: impl fmt::Display, would_be: impl fmt::Display, because: &'static str) {
        self.add(what, (was.to_string(), would_be.to_string()), Verdict::Refuses, because);
    }

    fn warns(&mut self, what: &str, was: impl fmt::Display, would_be: impl fmt::Display, because: &'static str) {
        self.add(what, (was.to_string(), would_be.to_string()), Verdict::Warns, because);
    }

    /// Amounts that differ, as texts that differ.
    fn amounts(&mut self, what: &str, was: Bytes, would_be: Bytes, because: &'static str) {
        if was != would_be {
            self.add(what, was.told_apart(would_be), Verdict::Refuses, because);
        }
    }

    fn run_by(&mut self, was: &RunBy, other: &RunBy) {
        let RunBy { qemu, machine, cpu_model, host_cpu, hardware, memory, places, disk_sizes, flash_sizes, agent } =
            was;
        self.warns("QEMU", qemu, &other.qemu, NEWER_OR_OLDER);
        self.refuses("machine type", machine, &other.machine, DEVICES);
        self.refuses("what runs its instructions", runs(*hardware), runs(other.hardware), CLOCKS);
        self.refuses("CPU model", cpu_model, &other.cpu_model, INSTRUCTIONS);
        let named = |cpu: &Option<String>| cpu.clone().unwrap_or_else(|| "none".to_owned());
        self.refuses("the host's CPU, which the guest sees", named(host_cpu), named(&other.host_cpu), INSTRUCTIONS);
        self.blocks(memory, &other.memory);
        self.places(places, &other.places);
        for (index, (was, would_be)) in disk_sizes.iter().zip(&other.disk_sizes).enumerate() {
            self.amounts(&format!("size of disk {index}"), *was, *would_be, DATA);
        }
        self.refuses("disks that have a size", disk_sizes.len(), other.disk_sizes.len(), DEVICES);
        self.refuses("flash of its UEFI firmware", flash(flash_sizes), flash(&other.flash_sizes), FIRMWARE);
        self.refuses("port of homenode's agent", there(*agent), there(other.agent), DEVICES);
    }

    fn blocks(&mut self, was: &[MemoryBlock], other: &[MemoryBlock]) {
        self.refuses(
            "memory blocks",
            names(was.iter().map(|it| &it.id)),
            names(other.iter().map(|it| &it.id)),
            NOT_TAKEN,
        );
        for block in was {
            if let Some(same) = other.iter().find(|same| same.id == block.id) {
                self.amounts(&format!("memory block {}", block.id), block.size, same.size, NOT_TAKEN);
            }
        }
    }

    fn places(&mut self, was: &[DevicePlace], other: &[DevicePlace]) {
        for place in was {
            if let Some(same) = other.iter().find(|same| same.id == place.id) {
                self.refuses(&format!("place of memory device {}", place.id), at(place), at(same), DEVICES);
            }
        }
    }

    fn spec(&mut self, was: &VmSpec, other: &VmSpec) {
        // Policy, console, user, vCPUs and memory are the host's matter, or follow in the topology.
        let VmSpec { shape, boot, disks, networks, guest: _, console: _, run_as: _ } = was;
        self.refuses("name", &shape.name, &other.shape.name, OTHER_VM);
        self.refuses("what it boots from", kind(boot), kind(&other.boot), DEVICES);
        if kind(boot) == kind(&other.boot) {
            self.warns("what it boots", boots(boot), boots(&other.boot), NEXT_RESET);
        }
        self.refuses("disks", disks.len(), other.disks.len(), DEVICES);
        for (index, (was, other)) in disks.iter().zip(&other.disks).enumerate() {
            self.disk(index, was, other);
        }
        self.refuses("network cards", networks.len(), other.networks.len(), DEVICES);
        for (index, (was, other)) in networks.iter().zip(&other.networks).enumerate() {
            self.refuses(&format!("model of network card {index}"), card(was), card(other), DEVICES);
            self.warns(&format!("ports into network card {index}"), ports(was), ports(other), PORTS);
        }
    }

    fn disk(&mut self, index: usize, was: &Disk, other: &Disk) {
        let Disk { path, format, snapshot, read_only } = was;
        self.refuses(&format!("path of disk {index}"), path.display(), other.path.display(), DATA);
        self.refuses(&format!("format of disk {index}"), format!("{format:?}"), format!("{:?}", other.format), DATA);
        self.refuses(&format!("writes to disk {index}"), writes(*snapshot), writes(other.snapshot), DATA);
        self.refuses(&format!("write protection of disk {index}"), there(*read_only), there(other.read_only), DEVICES);
    }

    fn topology(&mut self, was: &VirtualTopology, other: &VirtualTopology) {
        let VirtualTopology { exposed, nodes, sockets, cores_per_socket, dies_per_socket, threads_per_core, distances } =
            was;
        let told = |exposed: bool| if exposed { "told to the guest" } else { "not told to the guest" };
        self.refuses("virtual nodes are", told(*exposed), told(other.exposed), UNNOTICED);
        self.refuses("virtual nodes", nodes.len(), other.nodes.len(), NOT_TAKEN);
        for (was, other) in nodes.iter().zip(&other.nodes) {
            self.node(was, other);
        }
        self.refuses("virtual sockets", sockets, other.sockets, UNNOTICED);
        self.refuses("cores in a virtual socket", cores_per_socket, other.cores_per_socket, UNNOTICED);
        self.refuses("dies in a virtual socket", dies_per_socket, other.dies_per_socket, UNNOTICED);
        self.refuses("hardware threads in a virtual core", threads_per_core, other.threads_per_core, UNNOTICED);
        let rows = distances.iter().zip(&other.distances).enumerate();
        for (from, (was, would_be)) in rows {
            let what = format!("distances from virtual node {from}");
            self.refuses(&what, names(was), names(would_be), UNNOTICED);
        }
        self.refuses("rows of distances", distances.len(), other.distances.len(), UNNOTICED);
    }

    fn node(&mut self, was: &VirtualNode, other: &VirtualNode) {
        let VirtualNode { id, vcpus, absent, memory, growth } = was;
        let of = |what: &str| format!("{what} of virtual node {id}");
        self.refuses(&of("number"), id, other.id, UNNOTICED);
        self.refuses(&of("vCPUs"), list(vcpus), list(&other.vcpus), UNNOTICED);
        self.refuses(&of("vCPUs that were absent at power-on"), list(absent), list(&other.absent), DEVICES);
        self.amounts(&of("memory"), *memory, other.memory, NOT_TAKEN);
        self.amounts(&of("room to grow"), *growth, other.growth, DEVICES);
    }

    fn added(&mut self, was: &Added, other: &Added) {
        let Added { vcpus, memory, taken_away: _ } = was;
        self.refuses("vCPUs that were plugged in, in order", names(vcpus), names(&other.vcpus), NOT_TAKEN);
        let ids = |devices: &[MemoryDevice]| names(devices.iter().map(|device| &device.id));
        self.refuses("memory devices that were plugged in, in order", ids(memory), ids(&other.memory), NOT_TAKEN);
        for (was, other) in memory.iter().zip(&other.memory) {
            // The nodes of the host that it is bound to may change: that is what it is for.
            let MemoryDevice { id, virtual_node, kind, size, requested, bound_to: _ } = was;
            let of = |what: &str| format!("{what} of memory device {id}");
            self.refuses(&of("virtual node"), virtual_node, other.virtual_node, UNNOTICED);
            self.refuses(&of("kind"), format!("{kind:?}"), format!("{:?}", other.kind), DEVICES);
            self.amounts(&of("size"), *size, other.size, NOT_TAKEN);
            self.amounts(&of("memory asked"), *requested, other.requested, DEVICES);
        }
    }
}

fn at(place: &DevicePlace) -> String {
    let port = place.port.map(|port| format!(", port {port}")).unwrap_or_default();
    format!("address {:#x}{port}", place.address)
}

fn runs(hardware: bool) -> &'static str {
    if hardware { "KVM" } else { "software emulation" }
}

fn there(is_there: bool) -> &'static str {
    if is_there { "there" } else { "not there" }
}

fn writes(thrown_away: bool) -> &'static str {
    if thrown_away { "thrown away" } else { "kept" }
}

/// In bytes: the variables of two firmwares may differ by less than a unit shows.
fn flash(sizes: &[Bytes]) -> String {
    names(sizes.iter().map(|size| format!("{} bytes", size.0)))
}

fn kind(boot: &Boot) -> &'static str {
    match boot {
        Boot::TinyGuest { root: GuestRoot::Initramfs, .. } => "homenode's tiny guest",
        Boot::TinyGuest { root: GuestRoot::FirstDisk, .. } => "homenode's guest on its first disk",
        Boot::Kernel { .. } => "a kernel",
        Boot::Disk { firmware: Firmware::Bios } => "a disk, by BIOS",
        Boot::Disk { firmware: Firmware::Uefi } => "a disk, by UEFI",
        Boot::Definition => "what its definition says",
    }
}

fn boots(boot: &Boot) -> String {
    match boot {
        Boot::TinyGuest { kernel, .. } => {
            kernel.as_ref().map_or_else(|| "its own kernel".into(), |it| it.display().to_string())
        }
        Boot::Kernel { kernel, initrd, command_line } => {
            let initrd = initrd.as_ref().map(|path| format!(" with {}", path.display())).unwrap_or_default();
            format!("{}{initrd} \"{command_line}\"", kernel.display())
        }
        Boot::Disk { .. } => "its first disk".to_owned(),
        Boot::Definition => "what its definition says".to_owned(),
    }
}

/// What the guest sees of a card.
fn card(network: &Network) -> String {
    match network {
        Network::User { .. } => "virtio".to_owned(),
        Network::Plugged { card: Card { model, queues, mac, vhost: _ }, .. } => {
            let mac = mac.map(|mac| format!(" with address {mac}")).unwrap_or_default();
            format!("{model} of {queues} queues{mac}")
        }
    }
}

fn ports(network: &Network) -> String {
    names(network.forwards().iter().map(|port| format!("{} to {}", port.host, port.guest)))
}

fn list(vcpus: &[u32]) -> String {
    let set: CpuSet = vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect();
    if set.is_empty() { "none".to_owned() } else { set.to_string() }
}

fn names(all: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
