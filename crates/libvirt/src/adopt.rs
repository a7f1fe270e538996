//! A domain that somebody else made, as a VM that homenode keeps.
//!
//! **Problem.** A record says what the guest sees and where it lives, exactly: a start, a resume or
//! a migration is planned from it. A domain's XML says some of it, in words of its own.
//!
//! **Rule.** The virtual topology is that of `<cpu>`: a virtual node for each cell, or one without
//! vNUMA. The placement is that of `<cputune>` and `<numatune>`; where a VM runs, the caller asks
//! the kernel. What a record cannot say exactly is refused, with the element. The definition stays
//! its owner's: devices are only listed as far as a spec can say them.
//!
//! **Example.** Two cells of 4 vCPUs, pinned to the CPUs of node 0 and of node 1, memory `strict`
//! there: two virtual nodes, two clients, homes 0 and 1.

use crate::xml_facts::Facts;
use stacks::domain::{Domain, DomainError, MemoryTune, parse};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuId, CpuSet, Machine, NodeSet};
use vm::spec::{Backing, Boot, Fill, Firmware, Policy, VcpuBinding, name_problem};
use vm::{Client, MemoryPolicy, Placement, Shape, VirtualNode, VirtualTopology, VmSpec};

/// What libvirt takes a distance for that nobody wrote: local, and remote.
const DISTANCES: [u32; 2] = [10, 20];

/// A domain in homenode's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// What a spec can say of it.
    pub spec: VmSpec,
    /// What its guest sees.
    pub topology: VirtualTopology,
    /// Where its XML says that it lives.
    pub placement: Placement,
    /// What its owner should know, as sentences.
    pub notes: Vec<String>,
}

/// Why a domain cannot be adopted.
#[derive(Debug, thiserror::Error)]
pub enum NotAdopted {
    /// Its XML cannot be read.
    #[error(transparent)]
    Xml(#[from] DomainError),
    /// A record cannot say it exactly.
    #[error("VM {vm}: {element}: {problem}")]
    Unsayable {
        /// The domain.
        vm: String,
        /// The element of its XML.
        element: &'static str,
        /// What it says, and what would be possible.
        problem: String,
    },
}

/// The part of a domain that cannot be said, before its name is known.
struct Unsayable(&'static str, String);

/// The domain of this XML, on this machine.
///
/// # Errors
/// It cannot be read, or says what a record cannot say exactly.
pub fn adopted(xml: &str, machine: &Machine) -> Result<Adopted, NotAdopted> {
    let domain = parse(xml, "its XML")?;
    let facts = Facts::of(xml);
    let all = || {
        check(&domain, &facts)?;
        let topology = topology(&domain)?;
        let placement = placement(&domain, &topology, machine)?;
        let spec = spec(&domain, &facts, &topology, &placement)?;
        Ok((spec, topology, placement))
    };
    let named = |Unsayable(element, problem)| NotAdopted::Unsayable { vm: domain.name.clone(), element, problem };
    let (spec, topology, placement) = all().map_err(named)?;
    Ok(Adopted { notes: notes(&domain, &facts, &topology), spec, topology, placement })
}

fn refuse<T>(element: &'static str, problem: impl Into<String>) -> Result<T, Unsayable> {
    Err(Unsayable(element, problem.into()))
}

fn check(domain: &Domain, facts: &Facts) -> Result<(), Unsayable> {
    if let Some(problem) = name_problem(&domain.name) {
        return refuse("<name>", format!("{problem}; `virsh domrename` gives it another"));
    }
    if facts.memory_devices > 0 {
        return refuse(
            "<devices><memory>",
            "memory that was plugged in belongs to no cell: homenode keeps VMs without",
        );
    }
    if facts.clusters > 1 {
        return refuse("<cpu><topology>", "clusters are not kept: only sockets, dies, cores and threads are");
    }
    let tunes = domain.memory_tune.iter().chain(domain.memory_nodes.values());
    if let Some(tune) = tunes.into_iter().find(|tune| policy_of(tune).is_none()) {
        let problem = format!("mode {:?} is not kept: strict, interleave and preferred are", tune.mode);
        return refuse("<numatune>", problem);
    }
    Ok(())
}

fn topology(domain: &Domain) -> Result<VirtualTopology, Unsayable> {
    let guest = domain.guest;
    let dies = guest.dies.max(1);
    let parts = [guest.sockets, dies, guest.cores, guest.threads].map(u64::from);
    if parts.iter().fold(1_u64, |all, part| all.saturating_mul(*part)) != u64::from(domain.vcpus) {
        let problem = format!("its sockets, dies, cores and threads are not the {} vCPUs of <vcpu>", domain.vcpus);
        return refuse("<cpu><topology>", problem);
    }
    let all: CpuSet = (0..domain.vcpus).map(CpuId).collect();
    let cells: Vec<(u32, CpuSet, Bytes)> = match domain.cells.is_empty() {
        true => vec![(0, all.clone(), domain.memory)],
        false => domain.cells.iter().map(|cell| (cell.id, cell.vcpus.clone(), cell.memory)).collect(),
    };
    let mut seen = CpuSet::new();
    for (index, (id, vcpus, memory)) in (0..).zip(&cells) {
        if *id != index {
            return refuse(
                "<cpu><numa><cell>",
                format!("cells are numbered from 0 in their order: {id} is not {index}"),
            );
        }
        if vcpus.iter().any(|vcpu| seen.contains(vcpu)) {
            return refuse("<cpu><numa><cell>", format!("a vCPU of cell {id} is in another cell, too"));
        }
        if !memory.0.is_multiple_of(Bytes::MIB.0) {
            return refuse("<cpu><numa><cell>", format!("cell {id}: its memory is not a whole number of MiB"));
        }
        seen = seen.union(vcpus);
    }
    if seen != all {
        return refuse("<cpu><numa><cell>", format!("cells name vCPUs {seen}, and <vcpu> has {all}"));
    }
    let node = |(id, vcpus, memory): &(u32, CpuSet, Bytes)| VirtualNode {
        id: *id,
        vcpus: vcpus.iter().map(|vcpu| vcpu.0).collect(),
        absent: vcpus.iter().filter(|&vcpu| domain.absent.contains(vcpu)).map(|vcpu| vcpu.0).collect(),
        memory: *memory,
        growth: Bytes(0),
    };
    Ok(VirtualTopology {
        exposed: !domain.cells.is_empty(),
        nodes: cells.iter().map(node).collect(),
        sockets: guest.sockets,
        cores_per_socket: dies * guest.cores,
        dies_per_socket: dies,
        threads_per_core: guest.threads,
        distances: distances(domain, cells.len()),
    })
}

fn distances(domain: &Domain, nodes: usize) -> Vec<Vec<u32>> {
    let written = |i: usize, j: usize| domain.cells.get(i)?.distances.get(&(j as u32)).copied();
    let implied = |i: usize, j: usize| DISTANCES[usize::from(i != j)];
    (0..nodes).map(|i| (0..nodes).map(|j| written(i, j).unwrap_or_else(|| implied(i, j))).collect()).collect()
}

/// A policy in libvirt's words; `None` where a record has none such.
fn policy_of(tune: &MemoryTune) -> Option<MemoryPolicy> {
    match tune.mode.as_str() {
        // Whose nodes numad chooses each time.
        _ if tune.nodeset.is_none() => Some(MemoryPolicy::Default),
        "strict" => Some(MemoryPolicy::Bind),
        "interleave" => Some(MemoryPolicy::Interleave),
        "preferred" => Some(MemoryPolicy::Preferred),
        _ => None,
    }
}

fn placement(domain: &Domain, topology: &VirtualTopology, machine: &Machine) -> Result<Placement, Unsayable> {
    let bound = is_bound(domain);
    let clients: Result<Vec<Client>, Unsayable> =
        topology.nodes.iter().map(|node| client(domain, node, machine, bound)).collect();
    Ok(Placement { clients: clients? })
}

/// Whether each vCPU has one hardware thread, and each another.
fn is_bound(domain: &Domain) -> bool {
    let pins: Vec<&CpuSet> = domain.vcpu_pins.values().collect();
    let different: BTreeSet<CpuId> = pins.iter().filter_map(|cpus| cpus.first()).collect();
    pins.len() == domain.vcpus as usize && different.len() == pins.len() && pins.iter().all(|cpus| cpus.len() == 1)
}

/// A client for each virtual node.
fn client(domain: &Domain, node: &VirtualNode, machine: &Machine, bound: bool) -> Result<Client, Unsayable> {
    let everywhere: CpuSet = machine.usable_threads().map(|thread| thread.id).collect();
    let pin = |vcpu: &u32| domain.vcpu_pins.get(vcpu).or(domain.vcpu_cpuset.as_ref()).unwrap_or(&everywhere).clone();
    let pins: BTreeMap<u32, CpuSet> = node.vcpus.iter().map(|vcpu| (*vcpu, pin(vcpu))).collect();
    let cpus = pins.values().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    let different: BTreeSet<String> = pins.values().map(ToString::to_string).collect();
    if different.len() > 1 && !bound {
        let problem = format!(
            "vCPUs of virtual node {} may use different CPUs ({}): all those of its home are kept, or one for each",
            node.id,
            different.into_iter().collect::<Vec<_>>().join("; ")
        );
        return refuse("<cputune><vcpupin>", problem);
    }
    let single = |(vcpu, cpus): (&u32, &CpuSet)| cpus.first().map(|cpu| (*vcpu, cpu));
    let tune = domain.memory_nodes.get(&node.id).or(domain.memory_tune.as_ref());
    let memory_policy = tune.and_then(policy_of).unwrap_or(MemoryPolicy::Default);
    let of_cpus: NodeSet =
        machine.threads.iter().filter(|thread| cpus.contains(thread.id)).map(|thread| thread.node).collect();
    let home = tune.and_then(|tune| tune.nodeset.clone()).unwrap_or_else(|| of_cpus.clone());
    if home.is_empty() || home.iter().any(|node| machine.nodes.iter().all(|known| known.id != node)) {
        return refuse("<numatune>", format!("virtual node {} is bound to nodes {home}, which are not here", node.id));
    }
    Ok(Client {
        id: node.id,
        virtual_nodes: vec![node.id],
        home,
        cpus,
        memory_policy,
        vcpu_cpus: if bound { pins.iter().filter_map(single).collect() } else { BTreeMap::new() },
        groups: Vec::new(),
        far: Vec::new(),
    })
}

fn spec(
    domain: &Domain,
    facts: &Facts,
    topology: &VirtualTopology,
    placement: &Placement,
) -> Result<VmSpec, Unsayable> {
    let boot = match (&facts.kernel, facts.boots_listed_disk) {
        (Some(kernel), _) => Boot::Kernel {
            kernel: kernel.clone(),
            initrd: facts.initrd.clone(),
            command_line: facts.command_line.clone(),
        },
        (None, true) => Boot::Disk { firmware: if facts.uefi { Firmware::Uefi } else { Firmware::Bios } },
        (None, false) => Boot::Definition,
    };
    let policies: BTreeSet<Option<&'static str>> = placement.clients.iter().map(stacks::domain::memory_mode).collect();
    let memory = placement.clients.first().map(|client| client.memory_policy);
    let bound = placement.clients.iter().any(|client| !client.vcpu_cpus.is_empty());
    let policy = Policy {
        memory: memory.filter(|&policy| policies.len() == 1 && policy != MemoryPolicy::Default),
        vcpu_binding: if bound { VcpuBinding::Core } else { VcpuBinding::Node },
        ..Policy::default()
    };
    let shape = Shape {
        name: domain.name.clone(),
        vcpus: topology.vcpus(),
        memory: topology.memory(),
        max_vcpus: (topology.max_vcpus() > topology.vcpus()).then(|| topology.max_vcpus()),
        max_memory: None,
        policy,
        backing: backing(domain, facts)?,
        ..Shape::default()
    };
    let spec = VmSpec { shape, boot, disks: facts.disks.clone(), ..VmSpec::default() };
    spec.check().map_err(|problem| Unsayable("its spec", problem.to_string()))?;
    Ok(spec)
}

fn backing(domain: &Domain, facts: &Facts) -> Result<Backing, Unsayable> {
    match &domain.huge_pages[..] {
        [] if facts.filled_at_start => Ok(Backing::default()),
        [] => Ok(Backing { fill: Fill::OnTouch, huge_pages: None }),
        [one] if one.cells.is_none() && one.size.is_some() => {
            Ok(Backing { huge_pages: one.size, ..Backing::default() })
        }
        _ => refuse("<memoryBacking><hugepages>", "one size for all memory is kept: <page size='...' unit='...'/>"),
    }
}

fn notes(domain: &Domain, facts: &Facts, topology: &VirtualTopology) -> Vec<String> {
    let name = &domain.name;
    let mut notes = Vec::new();
    if !facts.other_disks.is_empty() {
        let (are, them) = if facts.other_disks.len() == 1 { ("a disk is", "it") } else { ("disks are", "them") };
        notes.push(format!(
            "VM {name}: {are} not in what homenode keeps, and libvirt opens {them} as before: {}",
            facts.other_disks.join(", ")
        ));
    }
    if facts.may_grow_in_memory {
        notes.push(format!(
            "VM {name}: <maxMemory> does not say how much each virtual node may get: homenode adds no memory to it"
        ));
    }
    let size = (topology.cores_per_socket * topology.threads_per_core).max(1);
    let sockets = |node: &VirtualNode| node.vcpus.iter().map(|vcpu| vcpu / size).collect::<BTreeSet<u32>>();
    let shared = |(index, node): (usize, &VirtualNode)| {
        topology.nodes[..index].iter().any(|other| !sockets(other).is_disjoint(&sockets(node)))
    };
    if topology.nodes.iter().enumerate().any(shared) {
        notes.push(format!(
            "VM {name}: virtual nodes share a socket: its guest sees a cache that is not there \
            (`homenode check {name}`)"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        topology::read::from_synthetic("pack:2 [numa(memory=8GiB)] l3:1 core:4 pu:1").expect("a machine")
    }

    fn xml(inside: &str) -> String {
        format!(
            "<domain type='kvm'><name>web</name><memory unit='GiB'>4</memory><vcpu>8</vcpu>{inside}
            <devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
            <source file='/images/web.qcow2'/><target dev='vda'/></disk></devices></domain>"
        )
    }

    const CELLS: &str = "<cpu><topology sockets='2' cores='4' threads='1'/><numa>
        <cell id='0' cpus='0-3' memory='2' unit='GiB'><distances><sibling id='1' value='21'/></distances></cell>
        <cell id='1' cpus='4-7' memory='2' unit='GiB'/></numa></cpu>";

    fn pins(of: impl Fn(u32) -> String) -> String {
        let pins: String = (0..8).map(|vcpu| format!("<vcpupin vcpu='{vcpu}' cpuset='{}'/>", of(vcpu))).collect();
        format!("<cputune>{pins}</cputune>")
    }

    #[test]
    fn a_domain_with_cells_is_its_virtual_nodes_at_their_homes() {
        let tune = "<numatune><memnode cellid='0' mode='strict' nodeset='1'/>
            <memnode cellid='1' mode='strict' nodeset='0'/></numatune>";
        let by_node = pins(|vcpu| if vcpu < 4 { "4-7" } else { "0-3" }.to_owned());
        let Adopted { spec, topology, placement, notes } =
            adopted(&xml(&format!("{CELLS}{tune}{by_node}")), &machine()).expect("a VM");
        assert_eq!((spec.name.as_str(), spec.vcpus, spec.memory), ("web", 8, Bytes::from_mib(4096)));
        assert_eq!((spec.policy.memory, spec.policy.vcpu_binding), (Some(MemoryPolicy::Bind), VcpuBinding::Node));
        assert_eq!((spec.backing.fill, &spec.boot, spec.disks.len()), (Fill::OnTouch, &Boot::BIOS_DISK, 1));
        assert!(topology.exposed && topology.misfit(&spec).is_none() && notes.is_empty(), "{notes:?}");
        assert_eq!(topology.distances, [[10, 21], [20, 10]]);
        let homes: Vec<String> =
            placement.clients.iter().map(|client| format!("{} {}", client.home, client.cpus)).collect();
        assert_eq!(homes, ["1 4-7", "0 0-3"]);
        // One CPU for each vCPU is a binding, which is kept.
        let bound = adopted(&xml(&format!("{CELLS}{}", pins(|vcpu| vcpu.to_string()))), &machine()).expect("a VM");
        assert_eq!(bound.spec.policy.vcpu_binding, VcpuBinding::Core);
        assert_eq!(bound.placement.clients[1].vcpu_cpus[&6], CpuId(6));
    }

    #[test]
    fn a_domain_without_cells_is_one_node_that_its_guest_is_not_told_of() {
        let plain = adopted(&xml("<vcpu current='2'>8</vcpu>").replacen("<vcpu>8</vcpu>", "", 1), &machine());
        let Adopted { spec, topology, placement, .. } = plain.expect("a VM");
        assert_eq!((topology.exposed, topology.nodes.len(), topology.sockets), (false, 1, 8));
        assert_eq!((spec.vcpus, spec.max_vcpus), (2, Some(8)));
        // Nobody said where: it is everywhere.
        let [client] = &placement.clients[..] else { panic!("{placement:?}") };
        assert_eq!((client.home.to_string(), client.memory_policy), ("0-1".to_owned(), MemoryPolicy::Default));
    }

    #[test]
    fn disks_that_are_no_files_are_libvirts_to_open() {
        let disk = "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
            <source file='/images/web.qcow2'/><target dev='vda'/></disk>";
        let with = |disks: &str| {
            adopted(&xml("").replace(disk, disks), &machine()).unwrap_or_else(|error| panic!("{disks}: {error}"))
        };
        let network = |protocol: &str, inside: &str| {
            format!(
                "<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='{protocol}' \
                name='pool/web'>{inside}</source><target dev='vda' bus='virtio'/></disk>"
            )
        };
        let host = "<host name='mon1.example.org' port='6789'/>";
        let secret = "<auth username='libvirt'><secret type='ceph' usage='ceph_key'/></auth>";
        for protocol in ["rbd", "iscsi", "nbd", "http", "https", "ftp", "gluster", "sheepdog", "ssh", "nfs", "vxhs"] {
            let vm = with(&network(protocol, &format!("{host}{secret}")));
            assert_eq!((&vm.spec.boot, vm.spec.disks.len()), (&Boot::Definition, 0), "{protocol}");
            assert!(vm.notes[0].contains(&format!("vda ({protocol} pool/web)")), "{:?}", vm.notes);
        }
        // Others that are no path of this host, or of no format that a spec has.
        let pool = "<disk type='volume' device='disk'><driver name='qemu' type='raw'/>
            <source pool='ceph' volume='web'/><target dev='sda'/></disk>";
        let vmdk = disk.replace("qcow2'/>", "vmdk'/>");
        let nvme = "<disk type='nvme' device='disk'><driver name='qemu' type='raw'/><source type='pci' managed='yes' \
            namespace='1'><address domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></source>
            <target dev='vdb'/></disk>";
        let named = [(pool, "sda (volume ceph/web)"), (&vmdk, "vda (file /images/web.vmdk)"), (nvme, "vdb (nvme)")];
        for (disks, named) in named {
            let vm = with(disks);
            assert!(vm.spec.boot == Boot::Definition && vm.notes[0].contains(named), "{:?}", vm.notes);
        }
        // None at all: it boots from a network.
        let (none, beside) = (with(""), with(&(disk.replace("vda", "vdb") + &network("rbd", host))));
        assert!(none.spec.boot == Boot::Definition && none.notes.is_empty(), "{:?}", none.notes);
        // The first is what is booted.
        assert_eq!((&beside.spec.boot, beside.spec.disks.len()), (&Boot::BIOS_DISK, 1));
        let behind = with(&(network("rbd", host) + &disk.replace("vda", "vdb")));
        assert_eq!((&behind.spec.boot, behind.spec.disks.len()), (&Boot::Definition, 1));
    }

    #[test]
    fn what_a_record_cannot_say_exactly_is_refused_with_its_element() {
        let mixed = pins(|vcpu| if vcpu % 2 == 0 { "0-1" } else { "2-3" }.to_owned());
        let cases = [
            (xml(&format!("{CELLS}{mixed}")), "<cputune><vcpupin>"),
            (xml(&CELLS.replace("4-7", "4-6")), "<cell>"),
            (xml(&CELLS.replace("'4-7'", "'3-7'")), "cell"),
            (
                xml(&CELLS.replace("<cpu><topology", "<cpu><topology clusters='2'").replace("cores='4'", "cores='2'")),
                "clusters",
            ),
            (xml("<numatune><memory mode='restrictive' nodeset='0'/></numatune>"), "restrictive"),
            (xml("<numatune><memory mode='strict' nodeset='7'/></numatune>"), "not here"),
            (xml("<memoryBacking><hugepages/></memoryBacking>"), "<hugepages>"),
            (xml("").replace("<name>web", "<name>a web"), "<name>"),
            (
                xml("").replace(
                    "<devices>",
                    "<devices><memory model='dimm'><target><size unit='MiB'>128</size><node>0</node></target></memory>",
                ),
                "<devices><memory>",
            ),
        ];
        for (xml, named) in cases {
            let refused = adopted(&xml, &machine()).expect_err(named).to_string();
            assert!(refused.contains(named), "{named}: {refused}");
        }
    }
}
