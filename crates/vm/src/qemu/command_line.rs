//! What a QEMU command line says about vCPUs and memory: of any version, written by hand or by a
//! program.

use super::Doubt;
use super::options::{Options, memory_size, value_of, values_of};
use super::vcpu_topology::VcpuTopology;
use crate::Stated;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::limits::{MOST_NODES, MOST_OBJECTS, MOST_VCPUS, MOST_VIRTUAL_NODES};
use topology::{Bytes, NodeSet};

/// Where a memory backend gets its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BackendKind {
    /// Anonymous memory.
    Anonymous,
    /// A memory file without a name in the file system.
    Memfd {
        /// Of huge pages.
        huge: bool,
    },
    /// A file, or a directory such as that of a hugetlbfs.
    File {
        /// Its path.
        path: String,
    },
}

/// A memory backend (`-object memory-backend-*`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backend {
    /// Its `id`.
    pub id: String,
    /// What kind it is.
    #[serde(flatten)]
    pub kind: BackendKind,
    /// Its size.
    pub size: Bytes,
    /// Size of its huge pages, where given (`hugetlbsize`).
    pub huge_page_size: Option<Bytes>,
    /// `host-nodes`, empty where not given.
    pub host_nodes: NodeSet,
    /// `policy`, where given.
    pub policy: Option<String>,
    /// Whether it was filled at start.
    pub prealloc: bool,
    /// Threads of the host that filled it, where given.
    pub prealloc_threads: Option<u32>,
}

/// A virtual NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number in the guest.
    pub id: u32,
    /// Indexes of its vCPUs.
    pub vcpus: BTreeSet<u32>,
    /// Its memory backends: the one it starts with, then those of memory devices (`pc-dimm`,
    /// `virtio-mem`).
    pub backends: Vec<String>,
    /// Memory that it was given without a backend (`mem=`, QEMU before 5.1).
    pub memory: Option<Bytes>,
    /// Distances to other nodes, as far as they are given (`-numa dist`).
    pub distances: BTreeMap<u32, u32>,
}

/// A command line, read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandLine {
    /// The guest's name (`-name`).
    pub name: Option<String>,
    /// `-uuid`.
    pub uuid: Option<String>,
    /// Size at start (`-m`).
    pub memory: Option<Bytes>,
    /// vCPUs (`-smp`).
    pub vcpus: VcpuTopology,
    /// vCPUs that it starts with beyond those that `-smp` counts: devices of their own (`-device
    /// host-x86_64-cpu,socket-id=...`).
    pub vcpu_devices: BTreeSet<u32>,
    /// Every memory backend, in the order of the command line.
    pub backends: Vec<Backend>,
    /// The backend of all memory of a VM without vNUMA (`-machine memory-backend=`).
    pub main_backend: Option<String>,
    /// Most memory that it may have once more is plugged in (`-m ...,maxmem=`).
    pub most_memory: Option<Bytes>,
    /// The backends of memory devices that it starts with (`-device pc-dimm,memdev=`), in the order
    /// of the command line.
    pub memory_devices: Vec<String>,
    /// Those of them that are virtio-mem: the guest has a part of each, which changes meanwhile.
    pub virtio_mem: BTreeSet<String>,
    /// Virtual nodes by number; empty without vNUMA.
    pub nodes: BTreeMap<u32, NumaNode>,
    /// Host devices that are passed through.
    pub passed_through: Vec<String>,
    /// The object that keeps the guest's memory from the host (`sev-guest`, `tdx-guest`), which
    /// pins it.
    pub confidential: Option<String>,
    /// All memory is locked.
    pub locked: bool,
    /// What its spec states to whoever balances it.
    pub stated: Stated,
    /// QEMU goes to the background by itself once it is up (`-daemonize`).
    pub daemonizes: bool,
    /// The virtual nodes of its NICs whose packets a thread of the kernel moves (vhost): `None` for
    /// one that names none.
    pub vhost_nodes: BTreeSet<Option<u32>>,
}

/// The words of the first device whose id has a mark: as `homenode run` writes it, or as libvirt
/// hands it on.
fn stated(arguments: &[String]) -> Stated {
    let of_device = |value: &str| Stated::from_id(Options::parse(value, "backend").get("id")?);
    values_of(arguments, &["chardev", "device"]).find_map(of_device).unwrap_or_default()
}

impl CommandLine {
    /// Reads program and arguments. What it does not know it leaves out.
    ///
    /// # Errors
    /// No VM has such a command line: it is not worth the work.
    pub fn parse(arguments: &[String]) -> Result<Self, Doubt> {
        let mut this = Self {
            name: value_of(arguments, "name").and_then(guest_name),
            uuid: value_of(arguments, "uuid").map(str::to_owned),
            memory: value_of(arguments, "m")
                .and_then(|value| memory_size(Options::parse(value, "size").get("size")?, Bytes::MIB)),
            vcpus: VcpuTopology::parse(value_of(arguments, "smp").unwrap_or("1"))?,
            main_backend: values_of(arguments, &["machine", "M"])
                .find_map(|value| Options::parse(value, "type").get("memory-backend").map(str::to_owned)),
            most_memory: value_of(arguments, "m")
                .and_then(|value| memory_size(Options::parse(value, "size").get("maxmem")?, Bytes::MIB)),
            locked: is_locked(arguments),
            stated: stated(arguments),
            daemonizes: arguments.iter().any(|argument| matches!(argument.as_str(), "-daemonize" | "--daemonize")),
            vhost_nodes: super::nics::vhost_nodes(arguments),
            ..Self::default()
        };
        let objects = values_of(arguments, &["object", "device", "netdev"]).filter(|value| is_counted(value)).count();
        if objects > MOST_OBJECTS {
            return Err(Doubt::Objects);
        }
        for value in values_of(arguments, &["object"]) {
            this.read_object(&Options::parse(value, "qom-type"));
        }
        this.read_nodes(arguments)?;
        for value in values_of(arguments, &["device"]) {
            this.read_device(&Options::parse(value, "driver"));
        }
        for value in values_of(arguments, &["netdev"]) {
            let netdev = Options::parse(value, "type");
            if netdev.get("type") == Some("vhost-vdpa") {
                this.passed_through.push(netdev.get("vhostdev").unwrap_or("vhost-vdpa").to_owned());
            }
        }
        Ok(this)
    }

    fn read_object(&mut self, object: &Options) {
        let Some(kind) = object.get("qom-type") else { return };
        if matches!(kind, "sev-guest" | "sev-snp-guest" | "tdx-guest") {
            self.confidential = Some(kind.to_owned());
        }
        let (Some(id), Some(size)) = (object.get("id"), object.get("size").and_then(bytes)) else { return };
        let path = || object.get("mem-path").unwrap_or_default().to_owned();
        let kind = match kind {
            "memory-backend-ram" => BackendKind::Anonymous,
            "memory-backend-memfd" => BackendKind::Memfd { huge: object.is_on("hugetlb") },
            "memory-backend-file" => BackendKind::File { path: path() },
            _ => return,
        };
        self.backends.push(Backend {
            id: id.to_owned(),
            kind,
            size,
            huge_page_size: object.get("hugetlbsize").and_then(bytes),
            host_nodes: node_set(object),
            policy: object.get("policy").map(str::to_owned),
            prealloc: object.is_on("prealloc"),
            prealloc_threads: object.number("prealloc-threads"),
        });
    }

    fn read_nodes(&mut self, arguments: &[String]) -> Result<(), Doubt> {
        let (mut said, mut named) = (false, 0);
        for value in values_of(arguments, &["numa"]) {
            let numa = Options::parse(value, "type");
            match numa.get("type") {
                Some("node") => {
                    let id = numa.number("nodeid").unwrap_or(self.nodes.len() as u32);
                    if self.nodes.len() >= MOST_VIRTUAL_NODES && !self.nodes.contains_key(&id) {
                        return Err(Doubt::Nodes);
                    }
                    let node = self.nodes.entry(id).or_insert_with(|| NumaNode { id, ..NumaNode::default() });
                    for cpus in numa.all("cpus").map(range) {
                        // Each vCPU is in one node: together they name no more than there may be.
                        named += cpus.clone().count();
                        if named > MOST_VCPUS as usize {
                            return Err(Doubt::VcpusOfNodes);
                        }
                        node.vcpus.extend(cpus);
                    }
                    said |= !node.vcpus.is_empty();
                    node.backends.extend(numa.get("memdev").map(str::to_owned));
                    node.memory = numa.get("mem").and_then(|text| memory_size(text, Bytes::MIB));
                }
                Some("dist") => {
                    let (to, value) = (numa.number("dst"), numa.number("val"));
                    let node = numa.number("src").and_then(|id| self.nodes.get_mut(&id));
                    if let (Some(node), Some(to), Some(value)) = (node, to, value) {
                        node.distances.insert(to, value);
                    }
                }
                Some("cpu") => {
                    said = true;
                    let vcpus: Vec<u32> = self.vcpus.matching(|id| numa.number(id)).collect();
                    named += vcpus.len().max(1);
                    if named > MOST_VCPUS as usize {
                        return Err(Doubt::VcpusOfNodes);
                    }
                    if let Some(node) = numa.number("node-id").and_then(|id| self.nodes.get_mut(&id)) {
                        node.vcpus.extend(vcpus);
                    }
                }
                _ => {}
            }
        }
        if !said {
            self.spread_sockets();
        }
        Ok(())
    }

    /// Without a word about vCPUs QEMU gives its nodes virtual sockets in turn.
    fn spread_sockets(&mut self) {
        let count = self.nodes.len() as u32;
        for vcpu in 0..if count == 0 { 0 } else { self.vcpus.most } {
            if let Some(node) = self.nodes.values_mut().nth((self.vcpus.socket_of(vcpu) % count) as usize) {
                node.vcpus.insert(vcpu);
            }
        }
    }

    fn read_device(&mut self, device: &Options) {
        let driver = device.get("driver").unwrap_or_default();
        if driver.starts_with("vfio-") {
            let host = device.get("host").or_else(|| device.get("sysfsdev")).unwrap_or(driver);
            self.passed_through.push(host.to_owned());
        }
        if driver.ends_with("-cpu") {
            self.vcpu_devices.extend(self.vcpus.vcpu_at(|key| device.number(key)));
        }
        // A device such as ivshmem-plain has a backend too, and shares it with others: that is none
        // of the guest's memory.
        let is_memory = ["pc-dimm", "nvdimm", "virtio-mem", "virtio-pmem"].iter().any(|kind| driver.starts_with(kind));
        let Some(memory) = device.get("memdev").filter(|_| is_memory) else { return };
        self.memory_devices.push(memory.to_owned());
        if driver.starts_with("virtio-mem") {
            self.virtio_mem.insert(memory.to_owned());
        }
        if let Some(node) = self.nodes.get_mut(&device.number("node").unwrap_or(0)) {
            node.backends.push(memory.to_owned());
        }
    }

    /// Whether it starts with a vCPU.
    pub fn starts_with(&self, vcpu: u32) -> bool {
        vcpu < self.vcpus.vcpus || self.vcpu_devices.contains(&vcpu)
    }

    /// The vCPUs that it starts with, rising.
    pub fn vcpus_at_start(&self) -> impl Iterator<Item = u32> + '_ {
        let devices = self.vcpu_devices.iter().copied().filter(|&vcpu| vcpu >= self.vcpus.vcpus);
        (0..self.vcpus.vcpus).chain(devices)
    }

    /// Size of the block of memory that QEMU makes by itself: where neither `-machine
    /// memory-backend=` nor a virtual node names a backend for it. Without `-m` QEMU takes 128 MiB.
    pub fn unnamed_memory(&self) -> Option<Bytes> {
        let is_device = |id: &String| self.memory_devices.contains(id);
        let named = self.nodes.values().any(|node| node.backends.iter().any(|id| !is_device(id)));
        (self.main_backend.is_none() && !named).then(|| self.memory.unwrap_or(USUAL_MEMORY))
    }

    /// The backends of the guest's own memory: others are shared with other programs, or nobody
    /// uses them.
    pub fn guest_backends(&self) -> impl Iterator<Item = &str> {
        let of_nodes = self.nodes.values().flat_map(|node| &node.backends);
        let ids: BTreeSet<&str> =
            self.main_backend.iter().chain(of_nodes).chain(&self.memory_devices).map(String::as_str).collect();
        ids.into_iter()
    }

    /// Whether its guest may come to have more memory than it starts with.
    pub fn may_get_memory(&self) -> bool {
        !self.virtio_mem.is_empty() || self.most_memory > self.memory.or(self.most_memory)
    }

    /// Whether its guest may come to have more vCPUs than it starts with.
    pub fn may_get_vcpus(&self) -> bool {
        self.vcpus.most as usize > self.vcpus_at_start().count()
    }

    /// The backend with this id.
    pub fn backend(&self, id: &str) -> Option<&Backend> {
        self.backends.iter().find(|backend| backend.id == id)
    }
}

/// Whether an object or a device is one of those that are kept.
fn is_counted(value: &str) -> bool {
    ["memory", "memdev", "vfio", "vdpa"].iter().any(|kind| value.contains(kind))
}

/// Memory of a VM of which nobody says how much it has.
const USUAL_MEMORY: Bytes = Bytes::from_mib(128);

/// A size of an object: bytes where it has no unit.
fn bytes(text: &str) -> Option<Bytes> {
    memory_size(text, Bytes(1))
}

/// `NAME`, `guest=NAME`, each with more options behind a comma; a comma in the name is doubled.
fn guest_name(value: &str) -> Option<String> {
    let name = Options::parse(value, "guest").get("guest")?.to_owned();
    (!name.is_empty()).then_some(name)
}

fn is_locked(arguments: &[String]) -> bool {
    let on = |option: &str, key: &str| {
        values_of(arguments, &[option]).any(|value| {
            let options = Options::parse(value, "");
            options.is_on(key)
        })
    };
    on("overcommit", "mem-lock") || on("realtime", "mlock")
}

fn node_set(object: &Options) -> NodeSet {
    // No list of real nodes is longer.
    let nodes = object.all("host-nodes").flat_map(range).take(4 * MOST_NODES as usize);
    nodes.filter(|&node| node < MOST_NODES).map(topology::NodeId).collect()
}

/// `3`, `0-3`.
fn range(text: &str) -> std::ops::RangeInclusive<u32> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse::<u32>()) {
        (Ok(first), Ok(last)) if last < MOST_VCPUS => first..=last,
        _ => std::ops::RangeInclusive::new(1, 0),
    }
}
