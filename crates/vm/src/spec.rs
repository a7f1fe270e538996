//! The VM spec: what a user writes in `vm.toml`. Plain data; nothing here looks at a machine or
//! opens a file.

mod backing;
mod bandwidth;
mod cache;
mod check;
mod far;
mod firmware;
mod guest;
mod names;
mod network;
mod read;
mod written;

pub use backing::{Backing, Fill, HUGE_PAGE_SIZES, VcpuBinding};
pub use bandwidth::{BandwidthNeed, NoBandwidthNeed};
pub use cache::CachePolicy;
pub use check::{LEAST_MEMORY_BLOCK, LONGEST_NAME, SpecProblem, name_problem};
pub use far::FarMemory;
pub use firmware::Firmware;
pub use guest::{Guest, GuestImage};
pub use names::{InterfaceName, LibvirtNetworkName, NoInterfaceName, NoLibvirtNetworkName, NoSwitchName, SwitchName};
pub use network::{Card, CardModel, MacAddress, Network, NoCard, NoMacAddress, Outlet, PortForward, Vhost};

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::PathBuf;
use topology::{Bytes, NodeSet};
use written::Written;

/// What the scheduler needs of a VM: how large it is, how large it may become, and its policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Name of the VM, unique on a host.
    pub name: String,
    /// Number of vCPUs that it starts with.
    pub vcpus: u32,
    /// Memory that it starts with.
    pub memory: Bytes,
    /// vCPUs that it may grow to while it runs. Default: it does not grow.
    pub max_vcpus: Option<u32>,
    /// Memory that it may grow to while it runs. Default: it does not grow.
    pub max_memory: Option<Bytes>,
    /// How it is sized and placed.
    pub policy: Policy,
    /// What its memory is made of, and when it is taken.
    pub backing: Backing,
    /// Where `policy.near_device` is said: the bridges and cards of the host that its network cards
    /// are plugged into.
    pub near: BTreeSet<InterfaceName>,
}

impl Shape {
    /// vCPUs that it may have at most.
    pub fn most_vcpus(&self) -> u32 {
        self.max_vcpus.unwrap_or(self.vcpus)
    }

    /// Memory that it may have at most.
    pub fn most_memory(&self) -> Bytes {
        self.max_memory.unwrap_or(self.memory)
    }

    /// Whether it may become larger than it starts.
    pub fn may_grow(&self) -> bool {
        self.most_vcpus() > self.vcpus || self.most_memory() > self.memory
    }

    /// The same VM as one that does not grow.
    pub fn without_growth(&self) -> Self {
        let mut fixed = self.clone();
        (fixed.max_vcpus, fixed.max_memory) = (None, None);
        for node in fixed.policy.virtual_nodes.iter_mut().flatten() {
            (node.max_vcpus, node.max_memory) = (None, None);
        }
        fixed
    }

    /// The same VM as one whose memory does not grow.
    #[must_use]
    pub fn without_memory_growth(&self) -> Self {
        let mut fixed = Self { max_memory: None, ..self.clone() };
        for node in fixed.policy.virtual_nodes.iter_mut().flatten() {
            node.max_memory = None;
        }
        fixed
    }

    /// The same VM, started with all that it may ever have.
    pub fn at_its_largest(&self) -> Self {
        let mut largest = self.clone();
        (largest.vcpus, largest.memory) = (self.most_vcpus(), self.most_memory());
        for node in largest.policy.virtual_nodes.iter_mut().flatten() {
            (node.vcpus, node.memory) = (node.most_vcpus(), node.most_memory());
        }
        largest
    }
}

/// A VM as its owner describes it. Relative paths are relative to the spec's own directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct VmSpec {
    /// What the scheduler needs of it.
    pub shape: Shape,
    /// What it boots. Default: homenode's tiny guest.
    pub boot: Boot,
    /// The system that is to be built for it. Once that is built, `boot` and the first disk are it,
    /// and this is `None`.
    pub guest: Option<Guest>,
    /// Disks, in order.
    pub disks: Vec<Disk>,
    /// Network cards, in order.
    pub networks: Vec<Network>,
    /// Where the serial console goes.
    pub console: Console,
    /// The user, by name or number, that QEMU runs as where root starts the VM. Default: a user of
    /// its own; [`ROOT`]: root itself.
    pub run_as: Option<String>,
}

/// A spec is a shape with what it boots and its devices: whoever asks for the one may be given the
/// other.
impl AsRef<Shape> for VmSpec {
    fn as_ref(&self) -> &Shape {
        &self.shape
    }
}

impl AsRef<Shape> for Shape {
    fn as_ref(&self) -> &Shape {
        self
    }
}

impl Deref for VmSpec {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

/// The name of the user 0 in [`VmSpec::run_as`], on every host.
pub const ROOT: &str = "root";

/// Rules of sizing and placement. Names follow ESXi's attributes where they mean the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Count hardware threads, not cores, when sizing (ESXi: `numa.vcpu.preferHT`).
    pub prefer_ht: bool,
    /// vCPUs in a virtual socket, those that may come later counted. Default: one socket for each
    /// virtual node.
    pub cores_per_socket: Option<u32>,
    /// Most vCPUs in a virtual node (ESXi: `numa.vcpu.maxPerVirtualNode`). Default: cores of a
    /// machine node.
    pub max_vcpus_per_node: Option<u32>,
    /// Machine nodes that the VM may live on (ESXi: `numa.nodeAffinity`), in list format. Default:
    /// all.
    pub node_affinity: Option<NodeSet>,
    /// How far the VM is spread: its clients, or its virtual topology too.
    pub placement: Spread,
    /// How much memory traffic it has. Default: what is measured.
    #[serde(skip_serializing_if = "BandwidthNeed::is_default")]
    pub bandwidth: BandwidthNeed,
    /// Fixes the virtual nodes: vCPUs and memory of each. Default: sized by rule.
    pub virtual_nodes: Option<Vec<FixedNode>>,
    /// Whether the guest is told of its nodes. Default: if there is more than one.
    pub vnuma: Option<bool>,
    /// How memory is bound. Default: by rule.
    pub memory: Option<crate::MemoryPolicy>,
    /// What of its memory may lie on nodes without CPUs. Default: none.
    #[serde(skip_serializing_if = "FarMemory::is_never")]
    pub far_memory: FarMemory,
    /// Which CPUs of its home a vCPU may use. Default: all.
    pub vcpu_binding: VcpuBinding,
    /// Cores of each machine node of its home that none of its vCPUs is bound to: for QEMU's own
    /// threads. Only with [`VcpuBinding::Core`].
    #[serde(skip_serializing_if = "is_zero")]
    pub spare_cores: u32,
    /// How its vCPUs share last-level caches where a home has several.
    #[serde(skip_serializing_if = "CachePolicy::is_default")]
    pub cache: CachePolicy,
    /// Whether it is drawn to the machine nodes of the host's network cards that it is plugged into
    /// (ESXi, host-wide: `Numa.DeviceAffinity`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub near_device: bool,
    /// Whether it waits for latency, not for throughput: all of its vCPUs count as busy from its
    /// start, whatever they do (ESXi: `sched.cpu.latencySensitivity = "high"`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub latency_sensitive: bool,
}

impl Policy {
    /// Whether all vCPUs count as busy from the start: the VM is latency-sensitive by its word, or
    /// because each of its vCPUs has a CPU for itself.
    pub fn counts_full(&self) -> bool {
        self.latency_sensitive || self.vcpu_binding == VcpuBinding::Core
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How far a VM is spread over a machine's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The fewest virtual nodes that hold the VM, each where least is lost: to distance, to crowded
    /// CPUs, to full memory controllers. Clients that use each other's data come to be near, those
    /// that want bandwidth apart.
    #[default]
    Auto,
    /// The same virtual nodes, near to each other: bandwidth counts only between homes that cost
    /// the same.
    #[serde(alias = "consolidate")]
    Together,
    /// The same virtual nodes, each on a machine node of its own as far as there are such: memory
    /// bandwidth. The guest sees no other topology (ESXi: `numa.consolidate = FALSE`).
    #[serde(alias = "clients_apart")]
    Apart,
    /// As many virtual nodes as there are machine nodes, each on one of its own: memory bandwidth
    /// of the whole machine. The guest sees another topology; ESXi has no such rule.
    MostVirtualNodes,
}

impl Spread {
    /// Whether each client is to have a machine node of its own.
    pub fn keeps_apart(self) -> bool {
        matches!(self, Self::Apart | Self::MostVirtualNodes)
    }
}

/// A virtual node that the user fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedNode {
    /// vCPUs that the node starts with.
    pub vcpus: u32,
    /// Memory that the node starts with.
    pub memory: Bytes,
    /// vCPUs that it may grow to. Default: it does not grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vcpus: Option<u32>,
    /// Memory that it may grow to. Default: it does not grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Bytes>,
}

impl FixedNode {
    /// vCPUs that it may have at most.
    pub fn most_vcpus(&self) -> u32 {
        self.max_vcpus.unwrap_or(self.vcpus)
    }

    /// Memory that it may have at most.
    pub fn most_memory(&self) -> Bytes {
        self.max_memory.unwrap_or(self.memory)
    }
}

/// What the VM boots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from", deny_unknown_fields)]
pub enum Boot {
    /// homenode's own tiny guest: one program as init, over a distribution kernel.
    TinyGuest {
        /// Another kernel than the one that `make` fetched.
        #[serde(default)]
        kernel: Option<PathBuf>,
        /// Where its programs are.
        #[serde(default, skip_serializing_if = "GuestRoot::is_initramfs")]
        root: GuestRoot,
    },
    /// A kernel, with an initrd and a command line of its own.
    Kernel {
        /// The kernel image (bzImage or vmlinux).
        kernel: PathBuf,
        /// The initial RAM disk.
        #[serde(default)]
        initrd: Option<PathBuf>,
        /// Appended to `console=ttyS0`.
        #[serde(default)]
        command_line: String,
    },
    /// The first disk, by the firmware.
    Disk {
        /// Which firmware.
        #[serde(default, skip_serializing_if = "Firmware::is_bios")]
        firmware: Firmware,
    },
    /// What the VM's definition says, which is its manager's: of a VM that was adopted and boots
    /// what a spec has no words for (a disk that is no file, a network).
    Definition,
}

impl Default for Boot {
    fn default() -> Self {
        Self::TinyGuest { kernel: None, root: GuestRoot::Initramfs }
    }
}

/// The root file system of the tiny guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestRoot {
    /// Its initial RAM disk, which holds the agent alone.
    #[default]
    Initramfs,
    /// The VM's first disk, an ext4 file system without partitions: the agent goes there.
    FirstDisk,
}

impl GuestRoot {
    /// Whether it has no disk of its own.
    pub fn is_initramfs(&self) -> bool {
        *self == Self::Initramfs
    }
}

/// A disk image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The image file.
    pub path: PathBuf,
    /// Its format. Not guessed: a guest could write a qcow2 header into a raw image and reach other
    /// files.
    pub format: DiskFormat,
    /// Throw writes away when the VM ends.
    #[serde(default)]
    pub snapshot: bool,
    /// No writes at all.
    #[serde(default)]
    pub read_only: bool,
}

/// Format of a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFormat {
    /// QEMU's own.
    Qcow2,
    /// Plain bytes.
    Raw,
}

/// Where the serial console goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "to", deny_unknown_fields)]
pub enum Console {
    /// The terminal that homenode runs in; Ctrl-] leaves.
    #[default]
    Terminal,
    /// A file, appended to.
    File {
        /// The file.
        path: PathBuf,
    },
}
