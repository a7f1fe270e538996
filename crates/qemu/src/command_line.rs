//! QEMU's command line from a spec and a plan: a pure function. What QEMU 7.2 accepts is the oldest
//! that counts.

pub(crate) mod growth;

use crate::accelerator;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use vm::Accelerator;
use vm::qemu::{Backend, BackendKind, MONITOR, NumaNode, escape, memory_id, policy_word};
use vm::spec::{Boot, CardModel, Disk, DiskFormat, FarMemory, Fill, Network, Outlet};
use vm::{Carries, Manifest, Plan, Stated, VirtualNode, VmSpec};
use workloads::protocol::PORT_NAME;

/// How one of QEMU's character devices is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A connected socket that QEMU inherits.
    Descriptor(i32),
    /// A listening socket that QEMU inherits.
    Listening(i32),
    /// The terminal that QEMU is started on.
    Stdio,
}

/// A file that a console is appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleLog {
    /// QEMU opens it.
    Path(PathBuf),
    /// QEMU inherits it, open for appending: it may not open it itself.
    Descriptor(i32),
}

/// A tap device that QEMU inherits, as numbers of descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapNumbers {
    /// One for each queue.
    pub queues: Vec<i32>,
    /// The kernel's server of each queue; none where QEMU itself serves them.
    pub vhost: Vec<i32>,
    /// What they are of.
    pub carries: Carries,
}

/// The first descriptor that a person opens for a command that is started by hand.
const HAND_OPENED: usize = 3;

/// How QEMU and homenode are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// The monitor; `None` for a command that is started by hand.
    pub monitor: Option<Channel>,
    /// The serial console.
    pub console: Channel,
    /// Where the console is also appended to.
    pub console_log: Option<ConsoleLog>,
    /// The port of homenode's agent.
    pub agent: Option<Channel>,
    /// Tap devices that QEMU inherits, by card. Cards on bridges that have none are plugged in by
    /// QEMU's own helper.
    pub taps: BTreeMap<usize, TapNumbers>,
    /// vCPUs wait for `cont`.
    pub paused: bool,
}

/// What is booted, with every path resolved. Without a kernel the firmware boots the first disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootFiles {
    /// Kernel image.
    pub kernel: Option<PathBuf>,
    /// Initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// Kernel command line.
    pub command_line: String,
    /// UEFI firmware; none: QEMU's own BIOS.
    pub flash: Option<Flash>,
}

/// The flash memory of UEFI firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Its code, which nobody writes.
    pub code: PathBuf,
    /// The format of that file.
    pub code_format: DiskFormat,
    /// Its variables.
    pub variables: Variables,
    /// The format of their file.
    pub variables_format: DiskFormat,
}

/// Where the variables of a UEFI firmware are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variables {
    /// In a file that QEMU inherits, open for reading and writing: it may not open it itself.
    Descriptor(i32),
    /// In a file that QEMU opens.
    File(PathBuf),
    /// In a file that is not written: what the firmware writes goes with QEMU.
    ThrownAway(PathBuf),
}

/// What the host can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTraits {
    /// What runs the guest.
    pub accelerator: Accelerator,
    /// The kernel has memory policies (`/sys/devices/system/node` exists).
    pub numa: bool,
    /// The CPU is AMD's.
    pub amd: bool,
    /// This QEMU has `-sandbox`.
    pub sandbox: bool,
}

/// QEMU's number for the set of descriptors that has the console's file alone.
const LOG_SET: u32 = 1;
/// QEMU's number for the set of descriptors that has the file of the firmware's variables alone.
const VARIABLES_SET: u32 = 2;
/// Most host threads that fill one node's memory at start.
const PREALLOC_THREADS: usize = 16;

/// QEMU's arguments, the program itself left out.
pub fn arguments(spec: &VmSpec, plan: &Plan, boot: &BootFiles, wiring: &Wiring, host: &HostTraits) -> Vec<String> {
    let mut line = Line(Vec::new());
    line.add("-name", format!("{},debug-threads=on", escape(&spec.name)));
    for option in ["-nodefaults", "-no-user-config"] {
        line.0.push(option.to_owned());
    }
    let stated = stated(spec, plan);
    if stated.says_something() {
        line.add("-chardev", format!("null,id={}", stated.id(vm::stated::MARK)));
    }
    let is_ours = matches!(spec.boot, Boot::TinyGuest { .. });
    if is_ours || (wiring.agent.is_some() && matches!(spec.boot, Boot::Kernel { .. })) {
        // A guest whose init is ours never reboots by itself: a reset is a kernel panic.
        line.0.push("-no-reboot".to_owned());
    }
    line.add("-display", "none");
    if host.sandbox {
        line.add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny");
    }
    processor(&mut line, &spec.boot, plan, host);
    memory(&mut line, plan, host);
    growth::ports(&plan.topology).for_each(|port| line.add("-device", port));
    wires(&mut line, wiring);
    boot.flash.iter().for_each(|flash| firmware(&mut line, flash));
    devices(&mut line, spec, wiring);
    kernel(&mut line, boot);
    if wiring.paused {
        line.0.push("-S".to_owned());
    }
    line.0
}

/// What is stated to its balancer. Its memory is divided where the plan has parts of it on nodes
/// without CPUs.
fn stated(spec: &VmSpec, plan: &Plan) -> Stated {
    let divided = plan.placement.clients.iter().any(|client| !client.far.is_empty());
    let far_memory = if divided { FarMemory::ByBandwidth } else { FarMemory::Never };
    Stated { far_memory, ..Stated::of(&spec.policy) }
}

/// What a QEMU has more that waits for a guest from elsewhere: the machine type that the guest
/// knows, and what was plugged into its machine, in order. Where it comes from `manifest` says.
pub(crate) fn waiting_for_a_guest(manifest: &Manifest, plan: &Plan, host: &HostTraits) -> Vec<String> {
    let mut line = Line(Vec::new());
    line.add("-incoming", "defer");
    // The last word on the type counts.
    line.add("-machine", escape(&manifest.run_by.machine));
    let model = accelerator::cpu_model(&host.accelerator, host.amd, &plan.topology);
    growth::plugged_vcpus(&manifest.added, &plan.topology, model).for_each(|vcpu| line.add("-device", vcpu));
    for (object, device) in growth::plugged_memory(&manifest.added, &manifest.run_by.places, plan, host.numa) {
        line.add("-object", object);
        line.add("-device", device);
    }
    line.0
}

struct Line(Vec<String>);

impl Line {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.push(option.to_owned());
        self.0.push(value.into());
    }
}

/// A path that QEMU cannot take for a protocol (`nbd:...`), with its commas escaped.
fn path_value(path: &Path) -> String {
    let text = path.to_string_lossy();
    let here = if path.is_relative() { "./" } else { "" };
    escape(&format!("{here}{text}"))
}

fn processor(line: &mut Line, boot: &Boot, plan: &Plan, host: &HostTraits) {
    let topology = &plan.topology;
    let mut machine = "q35".to_owned();
    if boot.is_disk() {
        // There is no screen: the firmware and the boot loader then speak on the serial console,
        // which tells why a disk does not boot.
        machine += ",graphics=off";
    }
    if !topology.exposed {
        machine += &format!(",memory-backend={}", memory_id(0));
    }
    line.add("-machine", machine);
    line.add("-accel", accelerator::argument(&host.accelerator));
    let model = accelerator::cpu_model(&host.accelerator, host.amd, topology);
    line.add("-cpu", model);
    let smp = growth::vcpu_topology(topology);
    line.add("-smp", smp.option());
    growth::vcpu_devices(topology, model).for_each(|device| line.add("-device", device));
}

fn memory(line: &mut Line, plan: &Plan, host: &HostTraits) {
    let nodes = &plan.topology.nodes;
    let total: u64 = nodes.iter().map(|node| node.memory.mib()).sum();
    line.add("-m", growth::memory(&plan.topology).unwrap_or_else(|| format!("{total}M")));
    for node in nodes.iter().filter(|node| node.memory.0 > 0) {
        line.add("-object", memory_object(plan, node, host));
    }
    if !plan.topology.exposed {
        return;
    }
    let rows = plan.topology.distances.iter().map(|row| (0..).zip(row.iter().copied()).collect());
    let rows = rows.chain(std::iter::repeat_with(BTreeMap::new));
    let numa: Vec<NumaNode> = nodes.iter().zip(rows).map(|(node, distances)| numa_node(node, distances)).collect();
    numa.iter().for_each(|node| line.add("-numa", node.option()));
    numa.iter().flat_map(NumaNode::distance_options).for_each(|distance| line.add("-numa", distance));
}

/// Memory is filled before the guest starts: QEMU's policy holds for pages that are touched later
/// too, but only filled pages are proof that the home has room for them. Memory without a policy
/// comes to where the guest touches it, so that filling it here would decide where. Huge pages need
/// no mount as a memfd; a pool that lacks one when it is touched would end the guest.
fn memory_object(plan: &Plan, node: &VirtualNode, host: &HostTraits) -> String {
    let client = plan.client_of(node.id);
    let bound = client.and_then(|client| Some((client, policy_word(client.memory_policy)?)));
    let huge = plan.backing.huge_pages;
    let filled = client.filter(|_| huge.is_some() || (bound.is_some() && plan.backing.fill == Fill::AtStart));
    let by_kernel = bound.filter(|_| host.numa);
    let backend = Backend {
        id: memory_id(node.id),
        kind: huge.map_or(BackendKind::Anonymous, |_| BackendKind::Memfd { huge: true }),
        size: node.memory,
        huge_page_size: huge,
        host_nodes: by_kernel.map(|(client, _)| client.bound_to()).unwrap_or_default(),
        policy: by_kernel.map(|(_, policy)| policy.to_owned()),
        prealloc: filled.is_some(),
        prealloc_threads: filled.map(|client| client.cpus.len().clamp(1, PREALLOC_THREADS) as u32),
    };
    backend.option()
}

fn numa_node(node: &VirtualNode, distances: BTreeMap<u32, u32>) -> NumaNode {
    NumaNode {
        id: node.id,
        vcpus: node.vcpus.iter().copied().collect(),
        backends: (node.memory.0 > 0).then(|| memory_id(node.id)).into_iter().collect(),
        memory: None,
        distances,
    }
}

fn wires(line: &mut Line, wiring: &Wiring) {
    if let Some(monitor) = &wiring.monitor {
        line.add("-chardev", channel(MONITOR, monitor));
        line.add("-mon", format!("chardev={MONITOR},mode=control"));
    }
    let mut console = channel("console", &wiring.console);
    let log = wiring.console_log.as_ref().map(|log| match log {
        ConsoleLog::Path(path) => path_value(path),
        ConsoleLog::Descriptor(number) => {
            line.add("-add-fd", format!("fd={number},set={LOG_SET}"));
            format!("/dev/fdset/{LOG_SET}")
        }
    });
    if let Some(log) = log {
        console += &format!(",logfile={log},logappend=on");
    }
    line.add("-chardev", console);
    line.add("-serial", "chardev:console");
    if let Some(agent) = &wiring.agent {
        line.add("-chardev", channel("agent", agent));
        line.add("-device", "virtio-serial-pci");
        line.add("-device", format!("virtserialport,chardev=agent,name={PORT_NAME}"));
    }
}

fn channel(id: &str, channel: &Channel) -> String {
    match channel {
        Channel::Descriptor(number) => format!("socket,id={id},fd={number}"),
        Channel::Listening(number) => format!("socket,id={id},fd={number},server=on,wait=off"),
        Channel::Stdio => format!("stdio,id={id},signal=on"),
    }
}

fn devices(line: &mut Line, spec: &VmSpec, wiring: &Wiring) {
    for (index, disk) in spec.disks.iter().enumerate() {
        line.add("-drive", drive(index, disk));
        let boots = if index == 0 && spec.boot.is_disk() { ",bootindex=0" } else { "" };
        line.add("-device", format!("virtio-blk-pci,drive=disk{index}{boots}"));
    }
    for (index, network) in spec.networks.iter().enumerate() {
        line.add("-netdev", netdev(index, network, wiring.taps.get(&index)));
        line.add("-device", card(spec, index, network));
    }
}

fn netdev(index: usize, network: &Network, tap: Option<&TapNumbers>) -> String {
    let into = match network {
        Network::User { forward } => {
            let ports = forward.iter().map(|port| format!(",hostfwd=tcp:127.0.0.1:{}-:{}", port.host, port.guest));
            return format!("user,id=net{index}{}", ports.collect::<String>());
        }
        Network::Plugged { into, .. } => into,
    };
    match (tap, into) {
        (Some(TapNumbers { queues, carries: Carries::Datagrams, .. }), _) => {
            let sockets = queues.iter().map(|number| format!(",local.type=fd,local.str={number}"));
            format!("dgram,id=net{index}{}", sockets.collect::<String>())
        }
        (Some(TapNumbers { queues, vhost, carries: Carries::TapFrames }), _) => {
            let listed = |word: &str, numbers: &[i32]| {
                let several = if numbers.len() > 1 { "s" } else { "" };
                let numbers: Vec<String> = numbers.iter().map(i32::to_string).collect();
                format!(",{word}{several}={}", numbers.join(":"))
            };
            let served =
                if vhost.is_empty() { String::new() } else { ",vhost=on".to_owned() + &listed("vhostfd", vhost) };
            format!("tap,id=net{index}{}{served}", listed("fd", queues))
        }
        // By hand: QEMU's own helper plugs it into a bridge of that name.
        (None, Outlet::Switch(switch)) => format!("bridge,id=net{index},br={switch}"),
        (None, Outlet::Bridge(bridge)) => format!("bridge,id=net{index},br={bridge}"),
        // libvirt's own default network has this bridge; the losses say so of others.
        (None, Outlet::LibvirtNetwork(_)) => format!("bridge,id=net{index},br=virbr0"),
        // Whoever starts it by hand opens the device as descriptor 3 and more.
        (None, Outlet::Macvtap(_)) => format!("tap,id=net{index},fd={}", HAND_OPENED + index),
    }
}

/// Nothing boots from the network: without its boot ROM the firmware starts sooner.
fn card(spec: &VmSpec, index: usize, network: &Network) -> String {
    let Network::Plugged { card, .. } = network else {
        return format!("virtio-net-pci,netdev=net{index},romfile=");
    };
    let (model, queues, mac) = (card.model, card.queues, card.address(&spec.name, index));
    let device = match model {
        CardModel::Virtio => "virtio-net-pci",
        CardModel::E1000 => "e1000",
        CardModel::E1000e => "e1000e",
    };
    // An interrupt for each queue, one for the settings, and one for what controls them.
    let several = if queues > 1 { format!(",mq=on,vectors={}", 2 * queues + 2) } else { String::new() };
    format!("{device},netdev=net{index},mac={mac},romfile={several}")
}

/// A descriptor is open for writing only: QEMU must not look for another one that reads.
fn firmware(line: &mut Line, flash: &Flash) {
    let Flash { code, code_format, variables, variables_format } = flash;
    let unit = |unit: u32, file: &str, format: &DiskFormat| {
        format!("if=pflash,unit={unit},file={file},format={}", word(*format))
    };
    line.add("-drive", unit(0, &path_value(code), code_format) + ",readonly=on");
    let of_path = |path: &Path| unit(1, &path_value(path), variables_format);
    let variables = match variables {
        Variables::Descriptor(number) => {
            line.add("-add-fd", format!("fd={number},set={VARIABLES_SET}"));
            unit(1, &format!("/dev/fdset/{VARIABLES_SET}"), variables_format) + ",auto-read-only=off"
        }
        Variables::File(path) => of_path(path),
        Variables::ThrownAway(path) => of_path(path) + ",snapshot=on",
    };
    line.add("-drive", variables);
}

fn word(format: DiskFormat) -> &'static str {
    match format {
        DiskFormat::Qcow2 => "qcow2",
        DiskFormat::Raw => "raw",
    }
}

fn drive(index: usize, disk: &Disk) -> String {
    let format = word(disk.format);
    let mut value = format!("if=none,id=disk{index},file={},format={format}", path_value(&disk.path));
    if disk.snapshot {
        value += ",snapshot=on";
    }
    if disk.read_only {
        value += ",readonly=on";
    }
    value
}

fn kernel(line: &mut Line, boot: &BootFiles) {
    let Some(kernel) = &boot.kernel else { return };
    line.add("-kernel", kernel.to_string_lossy());
    if let Some(initrd) = &boot.initrd {
        line.add("-initrd", initrd.to_string_lossy());
    }
    line.add("-append", boot.command_line.clone());
}

/// A command as a shell takes it: for a person to copy.
pub fn as_shell(program: &Path, arguments: &[String]) -> String {
    let program = program.to_string_lossy();
    let words = std::iter::once(program.as_ref()).chain(arguments.iter().map(String::as_str));
    let mut text = String::new();
    for word in words {
        let option = word.starts_with('-') && word.len() > 1;
        text += match (text.is_empty(), option) {
            (true, _) => "",
            (_, true) => " \\\n  ",
            (_, false) => " ",
        };
        text += &topology::words::quoted(word);
    }
    text
}

#[cfg(test)]
#[path = "command_line_tests.rs"]
mod tests;
