//! A cloud-hypervisor command, as its documentation and its option parser have it (docs/cpu.md,
//! docs/memory.md of v53).

use super::common::{check_words, far_lost, heading, may_grow, path, vcpus};
use super::in_order::{self, in_order};
use super::stated::stated_lost;
use super::{Emission, EmitError, Loss};
use ::qemu::command_line::as_shell;
use std::collections::BTreeMap;
use std::path::Path;
use topology::words::quoted;
use topology::{Bytes, NodeId};
use vm::spec::{Boot, Console, Disk, DiskFormat, Fill, Firmware};
use vm::{Client, MemoryPolicy, Plan, VirtualNode};

const PROGRAM: &str = "cloud-hypervisor";
/// Versions before 48 hold vCPU numbers in a byte.
const MOST_VCPUS_BEFORE_48: u32 = 254;
/// What memory that comes is a multiple of (`VIRTIO_MEM_ALIGN_SIZE`).
const GROWS_BY_MIB: u64 = 128;
/// The largest in a SLIT's byte: 255 means "unreachable".
const LARGEST_DISTANCE: u32 = 254;

pub(super) fn text(emission: &Emission<'_>) -> Result<String, EmitError> {
    check_words(emission)?;
    check(emission)?;
    let ordered = in_order(emission.plan);
    let plan = ordered.as_ref().unwrap_or(emission.plan);
    let mut losses = losses(&Emission { plan, ..*emission });
    losses.extend(ordered.is_some().then(|| in_order::loss("cloud-hypervisor")));
    let emission = &Emission { plan, ..*emission };
    let mut line = Line(Vec::new());
    line.add("--cpus", processor(plan));
    // Zones describe all of it.
    let zones: Vec<Zone> = plan.topology.nodes.iter().flat_map(|node| zones(plan, node)).collect();
    let grows = zones.iter().any(|zone| zone.more_mib > 0);
    line.add("--memory", if grows { "size=0,hotplug_method=virtio-mem" } else { "size=0" });
    for zone in zones {
        line.add("--memory-zone", zone.argument());
    }
    if plan.topology.exposed {
        for node in &plan.topology.nodes {
            line.add("--numa", numa_node(plan, node));
        }
    }
    for (index, disk) in emission.spec.disks.iter().enumerate() {
        line.add("--disk", drive(index, disk)?);
    }
    match &emission.spec.console {
        Console::Terminal => line.add("--serial", "tty"),
        Console::File { path: log } => line.add("--serial", format!("file={}", value("console.path", log)?)),
    }
    line.add("--console", "off");
    if may_grow(plan) {
        line.add("--api-socket", format!("path={}", socket(plan)));
    }
    let (comments, command) = (comments(emission, &losses), as_shell(Path::new(PROGRAM), &line.0));
    Ok(format!("{comments}\ntaskset -c {} {command}{}\n", plan.qemu_cpus(), payload(emission)))
}

struct Line(Vec<String>);

impl Line {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.extend([option.to_owned(), value.into()]);
    }
}

/// What cloud-hypervisor cannot be told at all.
fn check(emission: &Emission<'_>) -> Result<(), EmitError> {
    let Emission { spec, plan, .. } = *emission;
    if let Some(index) = spec.disks.iter().position(|disk| disk.snapshot) {
        return Err(EmitError(format!(
            "disk[{index}].snapshot = true: cloud-hypervisor cannot throw writes away, it would change the image. Make \
            an overlay (qemu-img create -f qcow2 -b IMAGE -F FORMAT OVERLAY), name that one, and remove it yourself"
        )));
    }
    if plan.topology.distances.iter().flatten().any(|&distance| distance > LARGEST_DISTANCE) {
        return Err(EmitError(format!(
            "policy: a distance of this machine is over {LARGEST_DISTANCE}, the largest of ACPI's SLIT"
        )));
    }
    Ok(())
}

/// Where it is told to grow, in the directory in which it was started.
fn socket(plan: &Plan) -> String {
    format!("{}.sock", plan.vm)
}

/// `boot=8,topology=1:4:1:2,affinity=[0@[0-3],...]`: each vCPU may use all CPUs of its home, or the
/// one that it is bound to; so may those that come later (`max=`).
fn processor(plan: &Plan) -> String {
    let topology = &plan.topology;
    let (boot, most) = (topology.vcpus(), topology.max_vcpus());
    let count = if most > boot { format!("{boot},max={most}") } else { boot.to_string() };
    let mut affinity = Vec::new();
    for node in &topology.nodes {
        let Some(client) = plan.client_of(node.id) else { continue };
        affinity.extend(node.vcpus.iter().map(|&vcpu| format!("{vcpu}@[{}]", client.cpus_of(vcpu))));
    }
    let (threads, dies, sockets) = (topology.threads_per_core, topology.dies_per_socket.max(1), topology.sockets);
    let cores = topology.cores_per_socket / dies;
    format!("boot={count},topology={threads}:{cores}:{dies}:{sockets},affinity=[{}]", affinity.join(","))
}

/// Memory of a virtual node on one host node.
struct Zone {
    id: String,
    mib: u64,
    /// What may come later.
    more_mib: u64,
    host_node: Option<NodeId>,
    page: Option<Bytes>,
    filled: bool,
}

impl Zone {
    fn argument(&self) -> String {
        let mut text = format!("id={},size={}M", self.id, self.mib);
        if let Some(node) = self.host_node {
            text += &format!(",host_numa_node={node}");
        }
        if let Some(page) = self.page {
            text += &format!(",hugepages=on,hugepage_size={}M", page.mib());
        }
        if self.more_mib > 0 {
            text += &format!(",hotplug_size={}M", self.more_mib);
        }
        if self.filled { text + ",prefault=on" } else { text }
    }
}

/// One zone for each host node of the home, because a zone is bound to one: the memory is divided
/// as the plan holds it there.
fn zones(plan: &Plan, node: &VirtualNode) -> Vec<Zone> {
    let (mib, page) = (node.memory.mib(), plan.backing.huge_pages);
    let unit = page.map_or(1, Bytes::mib);
    let grows_by = unit.max(GROWS_BY_MIB);
    let client = plan.client_of(node.id).filter(|client| client.memory_policy != MemoryPolicy::Default);
    let Some(client) = client.filter(|client| !client.home.is_empty()) else {
        let more_mib = node.growth.mib() / grows_by * grows_by;
        let filled = page.is_some() && more_mib == 0;
        return vec![Zone { id: format!("vnode{}", node.id), mib, more_mib, host_node: None, page, filled }];
    };
    let more: BTreeMap<NodeId, u64> = shares(plan, client, node.growth.mib(), grows_by).into_iter().collect();
    let shares = shares(plan, client, mib, unit);
    let single = shares.len() == 1;
    let id = |host: NodeId| if single { format!("vnode{}", node.id) } else { format!("vnode{}at{host}", node.id) };
    let fills = page.is_some() || plan.backing.fill == Fill::AtStart;
    let zone = |(host, mib): (NodeId, u64)| {
        let more_mib = more.get(&host).copied().unwrap_or_default();
        // It would be filled to its largest.
        let filled = fills && more_mib == 0;
        Zone { id: id(host), mib, more_mib, host_node: Some(host), page, filled }
    };
    shares.into_iter().map(zone).collect()
}

/// MiB on each host node of a client's home, in proportion to what the VM holds of them, in whole
/// units of so many MiB; none is empty.
fn shares(plan: &Plan, client: &Client, mib: u64, unit: u64) -> Vec<(NodeId, u64)> {
    let held = |node: NodeId| plan.holdings.get(&node).map_or(0, |held| held.memory.mib());
    let known = client.home.iter().all(|node| held(node) > 0);
    let weight = |node: NodeId| if known { held(node) } else { 1 };
    let total: u64 = client.home.iter().map(weight).sum();
    let (mut shares, mut given, mut before) = (Vec::new(), 0, 0);
    for node in client.home.iter() {
        before += weight(node);
        // The product of two sizes in MiB may need more than 64 bits.
        let until = (u128::from(mib) * u128::from(before) / u128::from(total)) as u64 / unit * unit;
        if until > given {
            shares.push((node, until - given));
        }
        given = until;
    }
    shares
}

fn numa_node(plan: &Plan, node: &VirtualNode) -> String {
    let mut text = format!("guest_numa_id={}", node.id);
    if !node.vcpus.is_empty() {
        text += &format!(",cpus=[{}]", vcpus(node));
    }
    let row = plan.topology.distances.get(node.id as usize);
    let others: Vec<String> = row
        .into_iter()
        .flat_map(|row| row.iter().enumerate())
        .filter(|&(to, _)| to != node.id as usize)
        .map(|(to, distance)| format!("{to}@{distance}"))
        .collect();
    if !others.is_empty() {
        text += &format!(",distances=[{}]", others.join(","));
    }
    let zones: Vec<String> = zones(plan, node).into_iter().map(|zone| zone.id).collect();
    if node.memory > Bytes(0) { text + &format!(",memory_zones=[{}]", zones.join(",")) } else { text }
}

fn drive(index: usize, disk: &Disk) -> Result<String, EmitError> {
    // Without the second word, an overlay's image below it is refused.
    let format = match disk.format {
        DiskFormat::Qcow2 => "qcow2,backing_files=on",
        DiskFormat::Raw => "raw",
    };
    let mut text = format!("path={},image_type={format}", value(&format!("disk[{index}].path"), &disk.path)?);
    if disk.read_only {
        text += ",readonly=on";
    }
    Ok(text)
}

/// A path within an option: quoted where a comma or a bracket would end it.
fn value(field: &str, file: &Path) -> Result<String, EmitError> {
    let text = path(field, file)?;
    if text.contains('"') {
        return Err(EmitError(format!(
            "{field} = {text:?}: cloud-hypervisor's options cannot hold a quotation mark: rename the file"
        )));
    }
    let plain = !text.contains([',', '[', ']', '=', ' ', '@']);
    Ok(if plain { text.to_owned() } else { format!("\"{text}\"") })
}

/// What is booted; the firmware's place is the user's to say.
fn payload(emission: &Emission<'_>) -> String {
    let boot = emission.boot;
    let Some(kernel) = &boot.kernel else {
        return " \\\n  --firmware \"${FIRMWARE:?name CLOUDHV.fd or hypervisor-fw in FIRMWARE}\"".to_owned();
    };
    let mut text = format!(" \\\n  --kernel {}", quoted(&kernel.to_string_lossy()));
    if let Some(initrd) = &boot.initrd {
        text += &format!(" \\\n  --initramfs {}", quoted(&initrd.to_string_lossy()));
    }
    text + &format!(" \\\n  --cmdline {}", quoted(&boot.command_line))
}

fn comments(emission: &Emission<'_>, losses: &[Loss]) -> String {
    let plan = emission.plan;
    let oldest = match (plan.topology.max_vcpus() > MOST_VCPUS_BEFORE_48, emission.spec.disks.is_empty()) {
        (_, false) => "51 or newer (image_type of disks)",
        (true, true) => "48 or newer (more than 254 vCPUs)",
        (false, true) => "39 or newer (kernels as distributions ship them)",
    };
    let mut usage =
        vec![format!("Run this text with sh, as a user who may open /dev/kvm. It needs {PROGRAM} {oldest}.")];
    match emission.spec.boot {
        Boot::Disk { .. } => usage
            .push("FIRMWARE names the firmware that boots the disk: CLOUDHV.fd (EDK II) or hypervisor-fw.".to_owned()),
        Boot::TinyGuest { .. } => {
            usage.push(
                "The kernel and the initramfs of the tiny guest lie on the machine that printed this.".to_owned(),
            );
        }
        Boot::Kernel { .. } | Boot::Definition => {}
    }
    if !emission.accelerator.is_hardware() {
        usage.push("This host has no hardware virtualization, which cloud-hypervisor needs.".to_owned());
    }
    if may_grow(plan) {
        let (socket, most) = (socket(plan), plan.topology.max_vcpus());
        let zone = plan.topology.nodes.iter().flat_map(|node| zones(plan, node)).find(|zone| zone.more_mib > 0);
        let zone = zone.map(|Zone { id, mib, more_mib, .. }| {
            let all = mib + more_mib;
            format!(
                "; `ch-remote --api-socket {socket} resize-zone --id {id} --size {all}M` gives a zone all of its memory"
            )
        });
        usage.push(format!(
            "It grows while it runs: `ch-remote --api-socket {socket} resize --cpus {most}` gives it all vCPUs{}. The \
            guest must bring both online.",
            zone.unwrap_or_default()
        ));
    }
    heading(emission, &usage, losses)
}

fn losses(emission: &Emission<'_>) -> Vec<Loss> {
    let Emission { spec, plan, .. } = *emission;
    let mut losses = Vec::new();
    let split = |client: &&Client| client.home.len() > 1 && client.memory_policy != MemoryPolicy::Default;
    for client in plan.placement.clients.iter().filter(split) {
        let how = if client.memory_policy == MemoryPolicy::Interleave { "goes page by page" } else { "is bound" };
        losses.push(Loss::new(
            format!(
                "A memory zone is bound to one host node, and memory of client {} {how} to nodes \
                {}.",
                client.id, client.home
            ),
            "It has a zone on each node, one after the other: an application that touches only the first part uses the \
            first node only.",
        ));
    }
    if plan.placement.clients.iter().any(|client| client.memory_policy == MemoryPolicy::Preferred) {
        losses.push(Loss::new(
            "A memory zone is bound to its host node strictly; the plan prefers it.",
            "A guest that touches memory when its node is full is killed, while other nodes have room.",
        ));
    }
    losses.extend(growing(plan));
    losses.extend(stated_lost(emission, "cloud-hypervisor", true));
    losses.extend(far_lost(emission, "cloud-hypervisor"));
    if plan.topology.exposed && is_asymmetric(plan) {
        losses.push(Loss::new(
            "cloud-hypervisor makes distances symmetric, and some of these differ by direction.",
            "The guest sees one of the two for both directions.",
        ));
    }
    if !spec.networks.is_empty() {
        losses.push(Loss::new(
            "cloud-hypervisor has no user network, and is given no tap device here.",
            "The guest has no network and no forwarded port; with a tap device on a bridge, add --net tap=NAME.",
        ));
    }
    losses.extend(match spec.boot {
        Boot::Disk { firmware: Firmware::Bios } => {
            Some(Loss::new("cloud-hypervisor has no BIOS.", "A disk without an EFI system partition does not boot."))
        }
        Boot::Disk { firmware: Firmware::Uefi } => Some(Loss::new(
            "cloud-hypervisor keeps no variables of its firmware.",
            "What the guest tells its firmware is lost when the VM ends: EFI/BOOT/BOOTX64.EFI is what boots.",
        )),
        Boot::TinyGuest { .. } | Boot::Kernel { .. } | Boot::Definition => None,
    });
    losses.push(Loss::new(
        "cloud-hypervisor's own threads (devices, signals) get no CPUs of their own.",
        "They run on the CPUs of the VM's homes, beside its vCPUs.",
    ));
    losses
}

/// What of memory that may come later it cannot be told.
fn growing(plan: &Plan) -> Vec<Loss> {
    let mut losses = Vec::new();
    let zones: Vec<Zone> = plan.topology.nodes.iter().flat_map(|node| zones(plan, node)).collect();
    let filled = plan.backing.huge_pages.is_some() || plan.backing.fill == Fill::AtStart;
    if filled && zones.iter().any(|zone| zone.more_mib > 0) {
        losses.push(Loss::new(
            "cloud-hypervisor fills a zone that may grow to its largest (`prefault`), or not at all.",
            "Such a zone is not filled: a home that is full shows only when the guest touches its memory.",
        ));
    }
    let planned: Bytes = plan.topology.nodes.iter().map(|node| node.growth).sum();
    let told = Bytes::from_mib(zones.iter().map(|zone| zone.more_mib).sum());
    if told < planned {
        losses.push(Loss::new(
            format!("Memory that comes is a multiple of {GROWS_BY_MIB} MiB, and of a huge page, on each host node."),
            format!("Of {planned} that may come the text holds {told}."),
        ));
    }
    losses
}

fn is_asymmetric(plan: &Plan) -> bool {
    let rows = &plan.topology.distances;
    let at = |from: usize, to: usize| rows.get(from).and_then(|row| row.get(to));
    (0..rows.len()).any(|from| (0..from).any(|to| at(from, to) != at(to, from)))
}
