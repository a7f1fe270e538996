//! What a spec must hold beyond being well-formed TOML.

use super::{
    Boot, Card, CardModel, Console, FixedNode, GuestRoot, Network, Outlet, Policy, VcpuBinding, Vhost, VmSpec,
};
use crate::NodeSize;
use std::collections::BTreeSet;
use topology::limits::{MOST_VCPUS, MOST_VIRTUAL_NODES};
use topology::{Bytes, TomlError};

/// Most disks of a VM: what a machine of QEMU has room for, with bridges, is far less.
const MOST_DISKS: usize = 256;
/// Most pairs of queues of a card: what QEMU takes.
const MOST_QUEUES: u32 = 256;
/// Longest name: a name becomes part of socket paths, which Linux limits to 107 bytes.
pub const LONGEST_NAME: usize = 64;

/// What makes a spec unusable on any machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct SpecProblem {
    /// The field, for example `policy.virtual_nodes[1].memory`.
    pub field: String,
    /// What is wrong with it, and what would be valid.
    pub problem: String,
}

pub(super) type Checked = Result<(), SpecProblem>;

/// Fails with `problem` unless `holds`.
pub(super) fn ensure(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(SpecProblem { field: field.to_owned(), problem: problem() }) }
}

/// `error` with the range of vCPUs, where a number that no field could hold is written there.
pub(super) fn with_range(error: TomlError) -> TomlError {
    if ["vcpus", "max_vcpus"].contains(&error.field.as_str()) {
        TomlError { problem: vcpus_range(), ..error }
    } else {
        error
    }
}

fn vcpus_range() -> String {
    format!("a VM has 1 to {MOST_VCPUS} vCPUs, a whole number")
}

impl VmSpec {
    /// Whether it can be used at all. One that was read from a text is.
    ///
    /// # Errors
    /// The first thing that makes it unusable on any machine.
    pub fn check(&self) -> Result<(), SpecProblem> {
        check(self)
    }

    /// The same VM with virtual nodes of these sizes.
    pub fn of_sizes(&self, sizes: &[NodeSize]) -> Self {
        let mut spec = self.clone();
        spec.shape.vcpus = sizes.iter().map(|size| size.vcpus.len() as u32).sum();
        spec.shape.memory = sizes.iter().map(|size| size.memory).sum();
        for (node, size) in spec.shape.policy.virtual_nodes.iter_mut().flatten().zip(sizes) {
            (node.vcpus, node.memory) = (size.vcpus.len() as u32, size.memory);
        }
        spec
    }
}

fn check(spec: &VmSpec) -> Checked {
    name_problem(&spec.name).map_or(Ok(()), |problem| Err(SpecProblem { field: "name".to_owned(), problem }))?;
    ensure((1..=MOST_VCPUS).contains(&spec.vcpus), "vcpus", vcpus_range)?;
    check_memory(spec.memory, "memory")?;
    check_growth(spec)?;
    check_policy(spec)?;
    super::backing::check(spec)?;
    super::far::check(spec)?;
    super::guest::check(spec)?;
    check_run_as(spec)?;
    check_devices(spec)
}

/// What is wrong with a VM's name: it becomes part of file and socket names and of QEMU's options.
/// `None` if it will do.
pub fn name_problem(name: &str) -> Option<String> {
    if !(1..=LONGEST_NAME).contains(&name.len()) {
        return Some(format!("a name has 1 to {LONGEST_NAME} characters; this one has {}", name.len()));
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-".contains(*c))) {
        return Some(format!(
            "the name becomes a file name: letters, digits, `.`, `_` and `-` are valid, {odd:?} is not"
        ));
    }
    name.starts_with(['.', '-']).then(|| "a name begins with a letter, a digit or `_`".to_owned())
}

fn check_memory(memory: Bytes, field: &str) -> Checked {
    ensure(memory >= Bytes::MIB, field, || {
        format!("{memory} is too little: write at least 1 MiB, with its unit, for example \"512 MiB\"")
    })?;
    ensure(memory.0.is_multiple_of(Bytes::MIB.0), field, || {
        format!("{} bytes is not a whole number of MiB; {} MiB is the next below", memory.0, memory.mib())
    })
}

/// What may come while the VM runs.
fn check_growth(spec: &VmSpec) -> Checked {
    let most = spec.most_vcpus();
    ensure((spec.vcpus..=MOST_VCPUS).contains(&most), "max_vcpus", || {
        format!("the VM starts with {} vCPUs: {0} to {MOST_VCPUS} are valid", spec.vcpus)
    })?;
    check_most_memory(spec.memory, spec.max_memory, "max_memory")
}

/// Memory that is plugged comes in blocks of this many bytes at least: a huge page of the guest.
pub const LEAST_MEMORY_BLOCK: Bytes = Bytes::from_mib(2);

fn check_most_memory(memory: Bytes, most: Option<Bytes>, field: &str) -> Checked {
    let Some(most) = most else { return Ok(()) };
    check_memory(most, field)?;
    ensure(most >= memory, field, || {
        let (most, memory) = most.told_apart(memory);
        format!("{most} is less than the {memory} that it starts with: write at least as much, or leave it out")
    })?;
    let (block, beyond) = (LEAST_MEMORY_BLOCK, most.0.saturating_sub(memory.0) % LEAST_MEMORY_BLOCK.0);
    ensure(beyond == 0, field, || {
        let (below, above) = (Bytes(most.0 - beyond), Bytes(most.0 - beyond + block.0));
        format!(
            "memory is added in blocks of {block} to the {memory} at the start: {} MiB and {} MiB are the \
            next that are valid",
            below.mib(),
            above.mib()
        )
    })
}

fn check_policy(spec: &VmSpec) -> Checked {
    let policy = &spec.policy;
    super::cache::check(policy)?;
    super::bandwidth::check(policy)?;
    let most_vcpus = spec.most_vcpus();
    if let Some(per_socket) = policy.cores_per_socket {
        ensure(per_socket > 0 && most_vcpus.is_multiple_of(per_socket), "policy.cores_per_socket", || {
            let them = if spec.max_vcpus.is_some() { "vCPUs of max_vcpus" } else { "vCPUs" };
            format!("it must divide the {most_vcpus} {them}: {} are valid", divisors(most_vcpus))
        })?;
    }
    if let Some(most) = policy.max_vcpus_per_node {
        ensure(most > 0, "policy.max_vcpus_per_node", || "a node has at least 1 vCPU".to_owned())?;
        let nodes = most_vcpus.div_ceil(most) as usize;
        ensure(nodes <= MOST_VIRTUAL_NODES, "policy.max_vcpus_per_node", || {
            format!("it makes {nodes} virtual nodes; QEMU takes at most {MOST_VIRTUAL_NODES}")
        })?;
        ensure(nodes as u64 <= spec.memory.mib(), "policy.max_vcpus_per_node", || {
            format!("it makes {nodes} virtual nodes, which is more than the memory has MiB")
        })?;
    }
    let spare = policy.spare_cores;
    ensure(spare == 0 || policy.vcpu_binding == VcpuBinding::Core, "policy.spare_cores", || {
        format!(
            "{spare} cores are kept from vCPUs that are bound alone: write vcpu_binding = \"core\", or leave it out"
        )
    })?;
    if let Some(affinity) = &policy.node_affinity {
        ensure(!affinity.is_empty(), "policy.node_affinity", || {
            "it allows no node: name at least one, for example \"0\" or \"0-1\", or leave it out".to_owned()
        })?;
    }
    policy.virtual_nodes.as_ref().map_or(Ok(()), |nodes| check_virtual_nodes(spec, policy, nodes))
}

fn check_run_as(spec: &VmSpec) -> Checked {
    let Some(user) = &spec.run_as else { return Ok(()) };
    // useradd(8) makes names of up to 32 characters; directory services have longer ones, with `@`.
    let odd = |letter: char| letter.is_control() || letter.is_whitespace() || "/:,".contains(letter);
    ensure((1..=LONGEST_NAME).contains(&user.len()) && !user.contains(odd), "run_as", || {
        "name a user, or write its number as a text, for example \"alice\", \"1000\", or \"root\"".to_owned()
    })
}

fn check_virtual_nodes(spec: &VmSpec, policy: &Policy, nodes: &[FixedNode]) -> Checked {
    const FIELD: &str = "policy.virtual_nodes";
    ensure((1..=MOST_VIRTUAL_NODES).contains(&nodes.len()), FIELD, || {
        format!("a VM has 1 to {MOST_VIRTUAL_NODES} virtual nodes; {} are written", nodes.len())
    })?;
    for (index, node) in nodes.iter().enumerate() {
        let vcpus = format!("{FIELD}[{index}].vcpus");
        ensure(node.vcpus > 0, &vcpus, || "a virtual node has at least 1 vCPU".to_owned())?;
        check_memory(node.memory, &format!("{FIELD}[{index}].memory"))?;
        let vcpus = if node.max_vcpus.is_some() { format!("{FIELD}[{index}].max_vcpus") } else { vcpus };
        let possible = node.most_vcpus();
        ensure(possible >= node.vcpus, &vcpus, || {
            format!("{possible} is less than the {} vCPUs that it starts with", node.vcpus)
        })?;
        check_most_memory(node.memory, node.max_memory, &format!("{FIELD}[{index}].max_memory"))?;
        if let Some(per_socket) = policy.cores_per_socket {
            ensure(possible.is_multiple_of(per_socket), &vcpus, || {
                format!(
                    "a socket of cores_per_socket = {per_socket} vCPUs would lie in two virtual nodes: use a multiple"
                )
            })?;
        }
        if let Some(most) = policy.max_vcpus_per_node {
            ensure(possible <= most, &vcpus, || format!("it is over max_vcpus_per_node = {most}"))?;
        }
    }
    let vcpus: u64 = nodes.iter().map(|node| u64::from(node.vcpus)).sum();
    ensure(vcpus == u64::from(spec.vcpus), FIELD, || {
        format!("their vCPUs add up to {vcpus}, but the VM has vcpus = {}", spec.vcpus)
    })?;
    let memory: Bytes = nodes.iter().map(|node| node.memory).sum();
    ensure(memory == spec.memory, FIELD, || {
        format!("their memory adds up to {memory}, but the VM has memory = {}", spec.memory)
    })?;
    check_growth_of_nodes(spec, nodes)?;
    ensure(policy.vnuma != Some(false), "policy.vnuma", || {
        "virtual_nodes describes nodes that the guest would not be told of: remove one of the two".to_owned()
    })
}

/// Whether what the nodes may grow to adds up to what the VM may.
fn check_growth_of_nodes(spec: &VmSpec, nodes: &[FixedNode]) -> Checked {
    const FIELD: &str = "policy.virtual_nodes";
    let vcpus: u64 = nodes.iter().map(|node| u64::from(node.most_vcpus())).sum();
    ensure(vcpus == u64::from(spec.most_vcpus()), FIELD, || {
        format!(
            "they may grow to {vcpus} vCPUs, but the VM to {}: give its nodes max_vcpus that add up to \
            max_vcpus of the VM",
            spec.most_vcpus()
        )
    })?;
    let memory: Bytes = nodes.iter().map(FixedNode::most_memory).sum();
    ensure(memory == spec.most_memory(), FIELD, || {
        let (memory, most) = memory.told_apart(spec.most_memory());
        format!(
            "they may grow to {memory}, but the VM to {most}: give its nodes max_memory that adds up to \
            max_memory of the VM"
        )
    })
}

fn check_devices(spec: &VmSpec) -> Checked {
    let bootable = !spec.boot.is_disk() || !spec.disks.is_empty();
    let rooted = !matches!(spec.boot, Boot::TinyGuest { root: GuestRoot::FirstDisk, .. }) || !spec.disks.is_empty();
    ensure(rooted, "boot.root", || {
        "the VM has no disk that could hold its root file system: add a [[disk]] with path and format".to_owned()
    })?;
    ensure(bootable, "boot.from", || "the VM has no disk to boot: add a [[disk]] with path and format".to_owned())?;
    if let Boot::Kernel { kernel, .. } = &spec.boot {
        ensure(!kernel.as_os_str().is_empty(), "boot.kernel", || "the path is empty".to_owned())?;
    }
    ensure(spec.disks.len() <= MOST_DISKS, "disk", || {
        format!("a VM has at most {MOST_DISKS} disks; {} are written", spec.disks.len())
    })?;
    for (index, disk) in spec.disks.iter().enumerate() {
        let field = format!("disk[{index}].path");
        ensure(!disk.path.as_os_str().is_empty(), &field, || "the path is empty".to_owned())?;
        let twice =
            spec.disks[..index].iter().any(|other| other.path == disk.path && !(other.read_only && disk.read_only));
        ensure(!twice, &field, || "two disks that write to one image destroy it".to_owned())?;
    }
    if let Console::File { path } = &spec.console {
        ensure(!path.as_os_str().is_empty(), "console.path", || "the path is empty".to_owned())?;
    }
    check_forwards(&spec.networks)?;
    check_cards(&spec.networks)
}

fn check_forwards(networks: &[Network]) -> Checked {
    let mut taken = BTreeSet::new();
    for (card, network) in networks.iter().enumerate() {
        for (index, port) in network.forwards().iter().enumerate() {
            let field = |end: &str| format!("network[{card}].forward[{index}].{end}");
            ensure(port.host > 0, &field("host"), || "a port is 1 to 65535".to_owned())?;
            ensure(port.guest > 0, &field("guest"), || "a port is 1 to 65535".to_owned())?;
            ensure(taken.insert(port.host), &field("host"), || "the port is forwarded twice".to_owned())?;
        }
    }
    Ok(())
}

fn check_cards(networks: &[Network]) -> Checked {
    let mut taken = BTreeSet::new();
    for (card, network) in networks.iter().enumerate() {
        let Network::Plugged { card: it, into } = network else { continue };
        let Card { model, queues, mac, vhost } = it;
        let field = |end: &str| format!("network[{card}].{end}");
        let most = if *model == CardModel::Virtio { MOST_QUEUES } else { 1 };
        ensure((1..=most).contains(queues), &field("queues"), || match model {
            CardModel::Virtio => format!("a card has 1 to {MOST_QUEUES} pairs of queues"),
            model => {
                format!("a card of the model {model} has 1 pair of queues: remove it, or write model = \"virtio\"")
            }
        })?;
        let one = *queues == 1 || !matches!(into, Outlet::Macvtap(_));
        ensure(one, &field("queues"), || "a card of the kind macvtap has 1 pair of queues: remove it".to_owned())?;
        let served = *vhost != Vhost::On || *model == CardModel::Virtio;
        ensure(served, &field("vhost"), || {
            format!("the kernel serves no card of the model {model}: remove it, or write model = \"virtio\"")
        })?;
        let other = mac.is_none_or(|mac| taken.insert(mac));
        ensure(other, &field("mac"), || "two cards of one address: frames find neither".to_owned())?;
    }
    Ok(())
}

/// `1, 2, 3, 6` for 6.
fn divisors(number: u32) -> String {
    let divisors: Vec<String> = (1..=number).filter(|d| number.is_multiple_of(*d)).map(|d| d.to_string()).collect();
    divisors.join(", ")
}
