//! What a host shows of its VMs at one moment: the one form in which every source gives it (this
//! host, another host's libvirt, a modelled host, a recording), and all that the balancer, the
//! judge and the views know. A figure that nobody could read is `None`, never zero.
//!
//! Of all types that mean a VM this is the one that everybody shares. The others, each with its own
//! meaning:
//!
//! | type | a VM as |
//! |---|---|
//! | [`VmSpec`](vm::VmSpec), [`Plan`](vm::Plan) | its owner asks for it; what it gets |
//! | [`VmKey`], [`VmObservation`] | which one; what its host shows of it |
//! | `vm::qemu::CommandLine` | QEMU was told to make it |
//! | `linux::vm::RunningVm` | the process that runs it: threads, address space, who started it |
//! | `qemu::AttachedVm`, `qemu::BackgroundVm` | homenode started it, and stays with it or wrote it down |
//! | `stacks::domain::Domain`, `libvirt::ListedDomain`, `libvirt::remote::RemoteDomain` | libvirt defines, lists, runs it |
//! | `judge::ShapedVm` | what is judged: defined or running, whoever shaped it |
//! | `simulator::host::VmShape` | it runs on a modelled host |
//! | `daemon::VmRecord`, [`VmMemory`](crate::balance::VmMemory) | what a balancer did to it, and remembers of it |

use crate::examination::{HostSettings, OtherThread, VmLimits};
use crate::meter::TrafficMeter;
use crate::{Exchange, Said, VcpuGroup};
use crate::{home, told};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};
use vm::qemu::GuestCpus;
use vm::spec::{BandwidthNeed, Spread};
use vm::{Manager, NodeUse};

/// A moment on the host's own clock, in milliseconds since an epoch that the host chose; it never
/// goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(pub u64);

/// A VM on a host. The process makes two VMs of the same name, one after the other, two VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VmKey {
    /// The guest's name in one harmless line, or `pid N` where it has none.
    #[serde(deserialize_with = "shown_name")]
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When the process started, in the kernel's clock ticks since boot: tells a process from a
    /// later one with the same id.
    pub started: u64,
}

/// What is read back may be of another host, or of a file that anybody wrote.
fn shown_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(topology::input::name(&String::deserialize(from)?))
}

/// A client: vCPUs and memory that always move together. A virtual node of a VM with vNUMA, else
/// the whole VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(pub u32);

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientObservation {
    /// From 0 in the VM.
    pub id: ClientId,
    /// The virtual node that it is; `None` for a VM without vNUMA.
    #[serde(default)]
    pub virtual_node: Option<u32>,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// How many threads run them; `None` where nobody counted.
    #[serde(default)]
    pub vcpu_threads: Option<u32>,
    /// CPUs that its vCPU threads may run on now: the union over the threads.
    pub cpus: CpuSet,
    /// Its vCPUs and what each of them alone may use, by rising number, as far as they are known
    /// one by one. Only [`Observe::examine`](crate::Observe::examine) asks.
    #[serde(default)]
    pub vcpu_cpus: BTreeMap<u32, CpuSet>,
    /// Its vCPUs by the last-level cache whose CPUs are all that they may use, where homenode
    /// divided them so (`policy.cache`); each vCPU is in one group then. Empty: they are not
    /// divided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupObservation>,
    /// CPU time that its vCPUs used since the last observation, in CPUs (2.5 = two and a half CPUs
    /// busy). `None` at first sight.
    pub cpu_used: Option<f64>,
    /// Time that its vCPUs were runnable and waited for a CPU, in CPUs: ESXi's ready time.
    pub cpu_waited: Option<f64>,
    /// Resident memory by node.
    pub memory: Option<BTreeMap<NodeId, Bytes>>,
    /// Resident memory where it is known only as a whole.
    #[serde(default)]
    pub resident: Option<Bytes>,
    /// Why [`memory`](Self::memory) is not known, as a sentence.
    #[serde(default)]
    pub memory_unknown_because: Option<String>,
    /// Nodes that somebody other than homenode bound its memory to (`host-nodes=` with a strict
    /// policy, `numactl --membind`, a policy of the file behind it): the only nodes that may be its
    /// home. `None`: nobody did.
    #[serde(default)]
    pub chosen_nodes: Option<NodeSet>,
    /// Nodes over which somebody interleaved its memory: its home is all of them that have CPUs,
    /// and none of its memory moves. Empty: nobody did.
    #[serde(default, skip_serializing_if = "NodeSet::is_empty")]
    pub spread_nodes: NodeSet,
    /// Nodes without CPUs over which its memory was spread on purpose: what lies there stays.
    #[serde(default, skip_serializing_if = "NodeSet::is_empty")]
    pub far_nodes: NodeSet,
    /// The kernel's policies of its memory, range by range; `None` where they were not asked for or
    /// cannot be read. Only [`Observe::examine`](crate::Observe::examine) asks.
    #[serde(default)]
    pub policies: Option<Vec<PolicyOfMemory>>,
    /// Memory that it may have in all: resident, or still to be touched.
    pub memory_size: Bytes,
    /// Page size of its memory where that is huge pages of a pool (hugetlbfs), which move only to
    /// free pages of the same size; `None`: ordinary pages, transparent huge ones included.
    #[serde(default)]
    pub huge_page_size: Option<Bytes>,
    /// Memory traffic since the last observation to its own home and to other nodes, in bytes a
    /// second, where hardware counts it.
    pub traffic: Option<Traffic>,
    /// All of its memory traffic, in bytes a second, where nobody can tell what part is remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_unsplit: Option<f64>,
    /// How much of last-level caches its data holds, where hardware counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_occupancy: Option<Bytes>,
}

/// vCPUs of a client that keep to one last-level cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupObservation {
    /// They, and the CPUs under that cache.
    #[serde(flatten)]
    pub group: VcpuGroup,
    /// As [`ClientObservation::cpu_used`], of these vCPUs.
    pub cpu_used: Option<f64>,
    /// As [`ClientObservation::cpu_waited`], of these vCPUs.
    pub cpu_waited: Option<f64>,
}

/// A range of a client's memory and the kernel's policy for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOfMemory {
    /// The kernel's words (`numa_maps`): `bind:0`, `interleave:0-1`, `default`.
    pub policy: String,
    /// The nodes that the policy names; `None` where it names none (`default`, `local`).
    pub nodes: Option<NodeSet>,
    /// What is behind the range.
    pub backing: Backing,
    /// Resident memory by node.
    pub resident: BTreeMap<NodeId, Bytes>,
    /// Not touched yet.
    pub absent: Bytes,
}

/// What is behind a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// Anonymous memory.
    Anonymous,
    /// A memory file (memfd) or shared memory: a cpuset never rebinds its policy.
    SharedMemory,
    /// A file.
    File,
    /// Huge pages of a pool.
    HugePages,
}

/// Whether a VM runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its vCPUs run, or may.
    Running,
    /// Its vCPUs are stopped.
    Paused,
}

/// What a VM's guest is told of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMachine {
    /// Its CPUs.
    #[serde(flatten)]
    pub cpus: GuestCpus,
    /// Distances between its virtual nodes, as far as they are given: `distances[from][to]`.
    pub distances: BTreeMap<u32, BTreeMap<u32, u32>>,
}

/// Measured memory traffic, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// To the memory of the node that the thread ran on.
    pub local: f64,
    /// To the memory of other nodes.
    pub remote: f64,
}

/// Whether the balancer may move a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Mobility {
    /// Threads and memory.
    Movable,
    /// Its threads only: its memory cannot follow.
    MemoryFixed {
        /// Why: `VFIO pins all of its memory`.
        because: String,
    },
    /// Neither.
    Fixed {
        /// Why: `its administrator opted out`, `its affinity was set by another program`,
        /// `CAP_SYS_NICE is missing`.
        because: String,
    },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One VM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmObservation {
    /// Which.
    pub vm: VmKey,
    /// Its clients, by id. Never empty.
    pub clients: Vec<ClientObservation>,
    /// Whether it may be moved.
    pub mobility: Mobility,
    /// Its weight where CPUs are short; 1024 is usual.
    pub shares: u32,
    /// Nodes that its host lets it live on; `None`: all.
    pub node_affinity: Option<NodeSet>,
    /// How far its clients are to be spread.
    #[serde(default, skip_serializing_if = "is_default")]
    pub placement: Spread,
    /// Memory traffic that somebody stated of it, in place of what is measured.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bandwidth: BandwidthNeed,
    /// Its vCPUs count against hardware threads, not cores.
    #[serde(default, skip_serializing_if = "is_default")]
    pub prefer_ht: bool,
    /// Most vCPUs in a virtual node, where somebody said so: of a size for it, not of a home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vcpus_per_node: Option<u32>,
    /// Whether it is drawn to the nodes of its devices; `None`: as all VMs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_device: Option<bool>,
    /// Nodes that somebody said it may live on: of those that [`Self::node_affinity`] and cpusets
    /// leave, if they leave any of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stated_nodes: Option<NodeSet>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "is_default")]
    pub said: Said,
    /// Its UUID, where it has one.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Who started it.
    #[serde(default)]
    pub manager: Manager,
    /// The number that its manager gave it: Proxmox's VMID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_id: Option<String>,
    /// The least trusted of the users that its process acts for; `None` where nobody says.
    #[serde(default)]
    pub owner_uid: Option<u32>,
    /// It is neither root's, nor of libvirt's system service, nor of whoever looks: what it says of
    /// itself counts only as far as others can see it.
    #[serde(default)]
    pub stranger: bool,
    /// It says that it is QEMU, and whoever looks may not see whether it is: a process of another
    /// user, seen without `CAP_SYS_PTRACE`.
    #[serde(default)]
    pub unverified: bool,
    /// All that its process has mapped, whatever it says of its memory; `None` where nobody says.
    #[serde(default)]
    pub mapped: Option<Bytes>,
    /// Whether it runs; `None` where nobody says.
    #[serde(default)]
    pub state: Option<RunState>,
    /// What its guest is told of its machine; `None` where nobody says.
    #[serde(default)]
    pub guest: Option<GuestMachine>,
    /// Why it is latency-sensitive, so that all of its vCPUs count as busy, as a sentence: `its
    /// vCPU threads have a real-time scheduling class`. `None`: it is not, as far as anybody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_sensitive: Option<String>,
    /// Its threads that run no vCPU. Only [`Observe::examine`](crate::Observe::examine) asks for
    /// them.
    #[serde(default)]
    pub other_threads: Vec<OtherThread>,
    /// Nodes of its devices: those that are passed through, and the network cards of the host that
    /// its own are plugged into. Empty: none is known.
    #[serde(default, skip_serializing_if = "NodeSet::is_empty")]
    pub device_nodes: NodeSet,
    /// What limits it. Only [`Observe::examine`](crate::Observe::examine) asks.
    #[serde(default)]
    pub limits: Option<VmLimits>,
}

impl ClientObservation {
    /// All of its memory traffic, in bytes a second; `None` where nobody counted.
    pub fn all_traffic(&self) -> Option<f64> {
        self.traffic.map(|traffic| traffic.local + traffic.remote).or(self.traffic_unsplit)
    }

    /// Its groups, without figures.
    pub fn vcpu_groups(&self) -> Vec<VcpuGroup> {
        self.groups.iter().map(|seen| seen.group.clone()).collect()
    }
}

impl GuestMachine {
    /// Distances between these virtual nodes as its guest has them; `None` where it was told none.
    pub fn told(&self, nodes: &[u32]) -> Option<Vec<Vec<u32>>> {
        let written = |from: u32, to: u32| self.distances.get(&from)?.get(&to).copied();
        let told = self.distances.values().any(|row| !row.is_empty());
        told.then(|| told::table(nodes, written))
    }
}

impl VmObservation {
    /// A VM of which only its clients are known: movable, of the usual weight, at home anywhere.
    pub fn of_clients(vm: VmKey, clients: Vec<ClientObservation>) -> Self {
        Self {
            vm,
            clients,
            mobility: Mobility::Movable,
            shares: USUAL_SHARES,
            node_affinity: None,
            placement: Spread::default(),
            bandwidth: BandwidthNeed::default(),
            prefer_ht: false,
            max_vcpus_per_node: None,
            near_device: None,
            stated_nodes: None,
            said: Said::default(),
            uuid: None,
            manager: Manager::default(),
            manager_id: None,
            owner_uid: None,
            stranger: false,
            unverified: false,
            mapped: None,
            state: None,
            guest: None,
            latency_sensitive: None,
            other_threads: Vec::new(),
            device_nodes: NodeSet::new(),
            limits: None,
        }
    }

    /// Whether all of its vCPUs count as busy whatever they do. A stranger's never do: they would
    /// fill nodes for others.
    pub fn counts_full(&self) -> bool {
        self.latency_sensitive.is_some() && !self.stranger
    }

    /// Nodes that it may live on: those that its node affinity names and where its cpuset gives it
    /// CPUs and memory, of these the ones that somebody said, if there are such; `None`: all. A
    /// node without CPUs counts by its memory.
    pub fn allowed(&self, machine: &Machine) -> Option<Cow<'_, NodeSet>> {
        let allowed = self.allowed_by_host(machine);
        let Some(stated) = &self.stated_nodes else { return allowed };
        let both = match &allowed {
            Some(allowed) => stated.intersection(allowed),
            None => stated.intersection(&machine.node_ids()),
        };
        if both.is_empty() { allowed } else { Some(Cow::Owned(both)) }
    }

    fn allowed_by_host(&self, machine: &Machine) -> Option<Cow<'_, NodeSet>> {
        let affinity = self.node_affinity.as_ref();
        let Some(limits) = &self.limits else { return affinity.map(Cow::Borrowed) };
        let with_cpus = |cpus: &CpuSet| {
            let bare = machine.nodes.iter().filter(|node| machine.bindable_cpus(node.id).is_empty());
            home::nodes_of(machine, cpus).union(&bare.map(|node| node.id).collect())
        };
        let by_cpus = limits.cpus.as_ref().map(with_cpus);
        let sets = [affinity.cloned(), limits.memory_nodes.clone(), by_cpus].into_iter().flatten();
        sets.reduce(|all, set| all.intersection(&set)).map(Cow::Owned)
    }

    /// Resident memory of all its clients by node, as far as it is known.
    pub fn memory(&self) -> BTreeMap<NodeId, Bytes> {
        let mut sums = BTreeMap::<NodeId, Bytes>::new();
        for (&node, &bytes) in self.clients.iter().flat_map(|client| client.memory.iter().flatten()) {
            let sum = sums.entry(node).or_default();
            *sum = sum.saturating_add(bytes);
        }
        sums
    }
}

/// Weight of a VM about which nobody said anything (the kernel's `cpu.shares`).
pub const USUAL_SHARES: u32 = 1024;

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeObservation {
    /// Hardware threads that are online and allowed now.
    pub cpus: CpuSet,
    /// CPU time used on them since the last observation, by everything, in CPUs.
    pub cpu_used: Option<f64>,
    /// Memory that can be taken now.
    pub memory_free: Option<Bytes>,
    /// Free memory in huge pages, by page size in bytes.
    pub huge_pages_free: BTreeMap<u64, Bytes>,
}

/// A host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When.
    pub at: Moment,
    /// Every node that is there now.
    pub nodes: BTreeMap<NodeId, NodeObservation>,
    /// Every VM, by key.
    pub vms: Vec<VmObservation>,
    /// Share of the last 10 s in which some task waited for memory, 0 to 1 (PSI).
    pub memory_pressure: Option<f64>,
    /// What VMs that are being started will hold and do not yet: the ledger of reservations.
    pub reserved: BTreeMap<NodeId, NodeUse>,
    /// What VMs exchange with each other, as far as somebody counts it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<Exchange>,
    /// What the kernel is set to do with memory and threads. Only
    /// [`Observe::examine`](crate::Observe::examine) asks.
    #[serde(default)]
    pub settings: Option<HostSettings>,
    /// What could not be looked at. Every look says what it misses itself;
    /// [`Observe::examine`](crate::Observe::examine) also what only it asks for.
    #[serde(default)]
    pub unseen: Vec<Unseen>,
    /// What counts memory traffic there; `None` where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_meter: Option<TrafficMeter>,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The VMs that it is about; empty: the host.
    pub vms: Vec<VmKey>,
    /// What, as a sentence: `where the memory of web is: only root may see it`.
    pub what: String,
    /// VMs may run that were not seen at all.
    #[serde(default)]
    pub hides_vms: bool,
}

impl Observation {
    /// Sentences about what could not be looked at: all of them, or those about one VM.
    pub fn unseen_of(&self, vm: Option<&VmKey>) -> Vec<String> {
        let asked = |unseen: &&Unseen| vm.is_none_or(|vm| unseen.vms.contains(vm));
        self.unseen.iter().filter(asked).map(|unseen| unseen.what.clone()).collect()
    }
}
