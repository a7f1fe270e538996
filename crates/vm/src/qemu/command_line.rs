//! What a QEMU command line says about vCPUs and memory: of any version, written by hand or by a
//! program.

use super::Doubt;
use super::machine_types;
use super::option_groups::OptionGroups;
use super::options::Options;
use super::sizes::{guest_size, is_yes, memory_size, number};
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
    /// Size at start, where it is said (`-m`, `-machine memory.size=`).
    pub memory: Option<Bytes>,
    /// The same of a machine of its type where it is not said; `None`: unknown.
    pub usual_memory: Option<Bytes>,
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
    /// Why its vCPUs, virtual nodes and memory are unknown, as a sentence, whatever else is said
    /// here: options stand in a file that cannot be read, or its machine type decides.
    pub unread: Option<String>,
}

/// The words of the first device whose id has a mark: as `homenode run` writes it, or as libvirt
/// hands it on.
fn stated(groups: &OptionGroups<'_>) -> Stated {
    let mut devices = groups.all("chardev").chain(groups.all("device"));
    devices.find_map(|device| Stated::from_id(device.get("id")?)).unwrap_or_default()
}

impl CommandLine {
    /// Reads program and arguments, without the files that they may name.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn parse(arguments: &[String]) -> Result<Self, Doubt> {
        Self::of(&OptionGroups::of(arguments))
    }

    /// What options say. What it does not know it leaves out.
    ///
    /// # Errors
    /// No VM has such a command line: it is not worth the work, or QEMU would take none such.
    pub fn of(groups: &OptionGroups<'_>) -> Result<Self, Doubt> {
        let is_counted = |options: &&Options| options.mention(&["memory", "memdev", "vfio", "vdpa"]);
        let objects = ["object", "device", "netdev"].into_iter().flat_map(|group| groups.all(group));
        if objects.filter(is_counted).count() > MOST_OBJECTS {
            return Err(Doubt::Objects);
        }
        let machine = groups.one("machine", "type");
        let mut this = Self {
            name: groups.one("name", "guest").filter(|name| !name.is_empty()).map(str::to_owned),
            uuid: groups.text("uuid").map(str::to_owned),
            memory: memory_at_start(groups)?,
            usual_memory: machine_types::usual_memory(machine, groups.program()),
            vcpus: VcpuTopology::of(
                |part| groups.one("machine", &format!("smp.{part}")),
                machine_types::prefers_sockets(machine),
            )?,
            main_backend: groups.one("machine", "memory-backend").map(str::to_owned),
            most_memory: most_memory(groups)?,
            locked: is_locked(groups),
            stated: stated(groups),
            daemonizes: groups.has("daemonize"),
            vhost_nodes: super::nics::vhost_nodes(groups),
            unread: groups.unread().map(ToString::to_string),
            ..Self::default()
        };
        for object in groups.all("object") {
            this.read_object(object)?;
        }
        this.read_nodes(groups)?;
        for device in groups.all("device") {
            this.read_device(device);
        }
        for netdev in groups.all("netdev").filter(|netdev| netdev.get("type") == Some("vhost-vdpa")) {
            this.passed_through.push(netdev.get("vhostdev").unwrap_or("vhost-vdpa").to_owned());
        }
        if this.makes_a_block() && this.memory.or(this.usual_memory).is_none() {
            this.unread = Some("it has no -m, and what its machine type has without one is not known".to_owned());
        }
        Ok(this)
    }

    fn read_object(&mut self, object: &Options) -> Result<(), Doubt> {
        let Some(kind) = object.get("qom-type") else { return Ok(()) };
        if matches!(kind, "sev-guest" | "sev-snp-guest" | "tdx-guest") {
            self.confidential = Some(kind.to_owned());
        }
        let path = || object.get("mem-path").unwrap_or_default().to_owned();
        let kind = match kind {
            "memory-backend-ram" => BackendKind::Anonymous,
            "memory-backend-memfd" => BackendKind::Memfd { huge: object.is_on("hugetlb") },
            "memory-backend-file" => BackendKind::File { path: path() },
            // POSIX shared memory, which the kernel names so.
            "memory-backend-shm" => BackendKind::File { path: "/dev/shm/".to_owned() },
            _ => return Ok(()),
        };
        let (Some(id), Some(size)) = (object.get("id"), object.get("size")) else { return Ok(()) };
        let size = bytes(size).ok_or_else(|| Doubt::Size { option: "size", text: size.to_owned() })?;
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
        Ok(())
    }

    fn read_nodes(&mut self, groups: &OptionGroups<'_>) -> Result<(), Doubt> {
        let mut named = 0;
        // Each vCPU is in one node: together they name no more than there may be.
        let mut count = |more: usize| {
            named += more;
            if named > MOST_VCPUS as usize { Err(Doubt::VcpusOfNodes) } else { Ok(()) }
        };
        for numa in groups.all("numa") {
            match numa.get("type") {
                Some("node") => {
                    let id = numa.number("nodeid").unwrap_or(self.nodes.len() as u32);
                    if self.nodes.len() >= MOST_VIRTUAL_NODES && !self.nodes.contains_key(&id) {
                        return Err(Doubt::Nodes);
                    }
                    let node = self.nodes.entry(id).or_insert_with(|| NumaNode { id, ..NumaNode::default() });
                    for cpus in numa.all("cpus").map(range) {
                        count(cpus.clone().count())?;
                        node.vcpus.extend(cpus);
                    }
                    node.backends.extend(numa.get("memdev").map(str::to_owned));
                    let size = |text: &str| {
                        memory_size(text, Bytes::MIB)
                            .ok_or_else(|| Doubt::Size { option: "mem", text: text.to_owned() })
                    };
                    node.memory = numa.get("mem").map(size).transpose()?;
                }
                Some("dist") => {
                    let (to, value) = (numa.number("dst"), numa.number("val"));
                    let node = numa.number("src").and_then(|id| self.nodes.get_mut(&id));
                    if let (Some(node), Some(to), Some(value)) = (node, to, value) {
                        node.distances.insert(to, value);
                    }
                }
                Some("cpu") => {
                    let vcpus: Vec<u32> = self.vcpus.matching(|id| numa.number(id)).collect();
                    count(vcpus.len().max(1))?;
                    if let Some(node) = numa.number("node-id").and_then(|id| self.nodes.get_mut(&id)) {
                        node.vcpus.extend(vcpus);
                    }
                }
                _ => {}
            }
        }
        if self.nodes.values().all(|node| node.vcpus.is_empty()) {
            self.spread_sockets();
        } else {
            self.place_others();
        }
        self.divide_memory();
        Ok(())
    }

    /// vCPUs that no node names are in the first (`numa_cpu_pre_plug`, which says so as a warning).
    fn place_others(&mut self) {
        let named: BTreeSet<u32> = self.nodes.values().flat_map(|node| node.vcpus.iter().copied()).collect();
        let others = (0..self.vcpus.most).filter(|vcpu| !named.contains(vcpu));
        if let Some(first) = self.nodes.values_mut().next() {
            first.vcpus.extend(others);
        }
    }

    /// QEMU before 5.2 divides memory of which no node says anything: parts of whole 8 MiB, and the
    /// last has the rest.
    fn divide_memory(&mut self) {
        let said = |node: &NumaNode| node.memory.is_some() || !node.backends.is_empty();
        let (Some(all), count) = (self.memory.or(self.usual_memory), self.nodes.len() as u64) else { return };
        if count < 2 || self.nodes.values().any(said) {
            return;
        }
        let part = Bytes(all.0 / count / (8 << 20) * (8 << 20));
        self.nodes.values_mut().for_each(|node| node.memory = Some(part));
        if let Some(mut last) = self.nodes.last_entry() {
            last.get_mut().memory = Some(Bytes(all.0 - part.0 * (count - 1)));
        }
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
    /// memory-backend=` nor a virtual node names a backend for it.
    pub fn unnamed_memory(&self) -> Option<Bytes> {
        self.memory.or(self.usual_memory).filter(|_| self.makes_a_block())
    }

    fn makes_a_block(&self) -> bool {
        let is_device = |id: &String| self.memory_devices.contains(id);
        let named = self.nodes.values().any(|node| node.backends.iter().any(|id| !is_device(id)));
        self.main_backend.is_none() && !named
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

/// A size of an object: bytes where it has no unit.
fn bytes(text: &str) -> Option<Bytes> {
    memory_size(text, Bytes(1))
}

/// What `-m` says counts more than `-machine memory.size=`, which counts bytes. Zero says nothing.
fn memory_at_start(groups: &OptionGroups<'_>) -> Result<Option<Bytes>, Doubt> {
    let read = |option: &'static str, text: Option<&str>, size: fn(&str) -> Option<Bytes>| {
        let Some(text) = text else { return Ok(None) };
        let size = size(text).ok_or_else(|| Doubt::Size { option, text: text.to_owned() })?;
        // QEMU rounds it up to whole pages of the largest of small ones.
        Ok(Some(Bytes(size.0.saturating_add(8191) / 8192 * 8192)).filter(|size| size.0 > 0))
    };
    let said = read("m", groups.one("memory", "size"), guest_size)?;
    let of_machine = read("machine memory.size", groups.one("machine", "memory.size"), bytes)?;
    Ok(said.or(of_machine))
}

/// `maxmem` of `-m` and `memory.max-size` of `-machine` count bytes.
fn most_memory(groups: &OptionGroups<'_>) -> Result<Option<Bytes>, Doubt> {
    let text = groups.one("memory", "maxmem").or_else(|| groups.one("machine", "memory.max-size"));
    text.map(|text| bytes(text).ok_or_else(|| Doubt::Size { option: "maxmem", text: text.to_owned() })).transpose()
}

fn is_locked(groups: &OptionGroups<'_>) -> bool {
    let says = |option: &str, key: &str| {
        let last = groups.all(option).filter_map(|options| options.get(key)).last();
        last.is_some_and(|said| is_yes(said) || said == "on-fault")
    };
    says("overcommit", "mem-lock") || says("realtime", "mlock")
}

fn node_set(object: &Options) -> NodeSet {
    // No list of real nodes is longer.
    let nodes = object.all("host-nodes").flat_map(range).take(4 * MOST_NODES as usize);
    nodes.filter(|&node| node < MOST_NODES).map(topology::NodeId).collect()
}

/// `3`, `0-3`.
fn range(text: &str) -> std::ops::RangeInclusive<u32> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if last < MOST_VCPUS => first..=last,
        _ => std::ops::RangeInclusive::new(1, 0),
    }
}
