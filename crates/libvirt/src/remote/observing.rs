//! Another host through its libvirt, as a source of observations like any other.
//!
//! libvirt says what is defined and what is used: pins, policies, CPU time of each vCPU, resident
//! memory as a whole. It does not say which node resident memory is on, nor anything of the kernel:
//! that is unknown, and no reason to move a VM.

use super::{DomainStats, Look, Remote, RemoteDomain, cache, held};
use crate::{DomainState, LibvirtError};
use scheduler::{
    Backing, ClientId, ClientObservation, GuestMachine, Mobility, Moment, NodeObservation, Observation, Observe,
    ObserveError, Occupancy, PolicyOfMemory, RunState, Unseen, VmKey, VmObservation,
};
use stacks::domain::{Domain, MemoryTune};
use std::collections::BTreeMap;
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet};
use vm::Manager;

/// Why it is unknown.
const MEMORY_UNKNOWN: &str = "libvirt does not say which node resident memory is on";
/// What only the host itself could be asked.
const KERNEL_UNKNOWN: &str =
    "libvirt does not say what the kernel is set to do, what limits a VM, nor where threads are that run no vCPU";

impl Observe for Remote {
    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn now(&self) -> Moment {
        Moment(self.began.elapsed().as_millis() as u64)
    }

    fn observe(&mut self) -> Result<Observation, ObserveError> {
        let look = self.look().map_err(|error| self.unreadable(&error))?;
        let observation = observation(&self.machine, &look, self.before.as_ref(), self.now());
        self.before = Some(look);
        Ok(observation)
    }

    fn examine(&mut self) -> Result<Observation, ObserveError> {
        let mut observation = self.for_placement()?;
        let vms = observation.vms.iter().map(|seen| seen.vm.clone()).collect();
        observation.unseen.push(Unseen { vms, what: KERNEL_UNKNOWN.to_owned(), ..Unseen::default() });
        Ok(observation)
    }
}

impl Remote {
    /// A look that counts memory that files occupy as free, as this host does.
    pub(super) fn for_placement(&mut self) -> Result<Observation, ObserveError> {
        let mut observation = self.observe()?;
        // Drivers of other hypervisors need not know it.
        if let Ok(text) = self.connection.ask(&["nodememstats"]) {
            let mut machine = self.machine.clone();
            for node in &mut machine.nodes {
                node.free = observation.nodes.get(&node.id).and_then(|seen| seen.memory_free);
            }
            let occupancy = Occupancy::of_observation(&observation, &machine);
            cache::credit(&mut machine, cache::cached(&text), &occupancy);
            for node in machine.nodes {
                if let Some(seen) = observation.nodes.get_mut(&node.id) {
                    seen.memory_free = node.free;
                }
            }
        }
        Ok(observation)
    }

    fn unreadable(&self, error: &LibvirtError) -> ObserveError {
        ObserveError::new(self.connection.uri().unwrap_or("libvirt"), error.to_string())
    }
}

/// What domains that are known by their definitions alone show: how much of their memory is
/// resident, nobody says.
pub fn of_definitions(machine: &Machine, domains: Vec<Domain>) -> Observation {
    let seen = |domain: Domain| RemoteDomain { uuid: String::new(), domain, stats: DomainStats::default() };
    let nodes = |node: &topology::Node| {
        let cpus = machine.usable_cpus(node.id);
        (node.id, NodeObservation { cpus, cpu_used: None, memory_free: node.free, huge_pages_free: BTreeMap::new() })
    };
    Observation {
        nodes: machine.nodes.iter().map(nodes).collect(),
        vms: domains.into_iter().map(|domain| vm(machine, &seen(domain), None)).collect(),
        ..Observation::default()
    }
}

/// What libvirt does not say of these domains.
fn unseen(vms: &[VmObservation]) -> Vec<Unseen> {
    let keys = |vms: &[&VmObservation]| vms.iter().map(|vm| vm.vm.clone()).collect::<Vec<_>>();
    let mut unseen = Vec::new();
    if !vms.is_empty() {
        unseen.push(Unseen {
            vms: keys(&vms.iter().collect::<Vec<_>>()),
            what: MEMORY_UNKNOWN.to_owned(),
            ..Unseen::default()
        });
    }
    let unknown = |vm: &&VmObservation| vm.clients.iter().any(|client| client.resident.is_none());
    let unknown: Vec<&VmObservation> = vms.iter().filter(unknown).collect();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|vm| vm.vm.name.as_str()).collect();
        let what = format!(
            "libvirt does not say how much memory of {} is resident: all of it is counted as resident, so that free \
            memory is what libvirt calls free",
            names.join(", ")
        );
        unseen.push(Unseen { vms: keys(&unknown), what, ..Unseen::default() });
    }
    unseen
}

pub(super) fn observation(machine: &Machine, look: &Look, before: Option<&Look>, at: Moment) -> Observation {
    let cpus = before.map(|before| look.busy_since(before)).unwrap_or_default();
    let node = |node: &topology::Node| {
        let own = machine.usable_cpus(node.id);
        let used: Option<f64> = own.iter().map(|cpu| cpus.get(&cpu).copied()).sum();
        let observed = NodeObservation {
            cpu_used: used.filter(|_| !own.is_empty()),
            cpus: own,
            memory_free: look.free.get(&node.id).copied(),
            huge_pages_free: BTreeMap::new(),
        };
        (node.id, observed)
    };
    let earlier = |seen: &RemoteDomain| {
        let before = before?;
        let stats = &before.domains.iter().find(|other| other.uuid == seen.uuid)?.stats;
        let seconds = look.at.saturating_duration_since(before.at).as_secs_f64();
        (seconds > 0.0).then_some((stats, seconds))
    };
    let vms: Vec<VmObservation> = look.domains.iter().map(|seen| vm(machine, seen, earlier(seen))).collect();
    Observation {
        at,
        nodes: machine.nodes.iter().map(node).collect(),
        unseen: unseen(&vms),
        vms,
        ..Observation::default()
    }
}

fn vm(machine: &Machine, seen: &RemoteDomain, before: Option<(&DomainStats, f64)>) -> VmObservation {
    let RemoteDomain { uuid, domain, stats } = seen;
    let vcpus = held::vcpus(domain, Some(stats), machine);
    // The name is a domain's own; its process is unknown.
    let key = VmKey { name: topology::input::name(&domain.name), pid: 0, started: 0 };
    let part = |cpus: &CpuSet| linux::host::part_of_a_node(cpus, machine);
    let mobility = match (vcpus.values().find_map(part), domain.host_devices.first()) {
        (Some(because), _) => Mobility::Fixed { because },
        (None, Some(device)) => Mobility::MemoryFixed {
            because: format!("VFIO pins all of its memory (device {device} is passed through)"),
        },
        (None, None) => Mobility::Movable,
    };
    let distances = domain.cells.iter().map(|cell| (cell.id, cell.distances.clone())).collect();
    let mut seen = VmObservation {
        mobility,
        node_affinity: domain.memory_tune.as_ref().and_then(strict),
        uuid: Some(uuid.clone()),
        manager: Manager::Libvirt,
        state: stats.state.as_ref().map(|state| match state {
            DomainState::Paused | DomainState::Suspended => RunState::Paused,
            _ => RunState::Running,
        }),
        guest: Some(GuestMachine { cpus: domain.guest, distances }),
        ..VmObservation::of_clients(key, clients(seen, &vcpus, before))
    };
    seen.takes_over(&domain.stated);
    seen
}

/// Nodes that a domain's memory may not leave.
fn strict(tune: &MemoryTune) -> Option<NodeSet> {
    tune.nodeset.clone().filter(|nodes| !nodes.is_empty() && matches!(tune.mode.as_str(), "strict" | "restrictive"))
}

/// Nodes over which a domain's memory is interleaved.
fn interleaved(tune: &MemoryTune) -> Option<NodeSet> {
    tune.nodeset.clone().filter(|_| tune.mode == "interleave")
}

/// Its cells; all of it where it has fewer than two.
fn clients(
    seen: &RemoteDomain,
    vcpus: &BTreeMap<u32, CpuSet>,
    before: Option<(&DomainStats, f64)>,
) -> Vec<ClientObservation> {
    let (domain, stats) = (&seen.domain, &seen.stats);
    let own = |cell: u32| domain.memory_nodes.get(&cell).or(domain.memory_tune.as_ref());
    let parts: Vec<(Option<u32>, CpuSet, Bytes, Option<&MemoryTune>)> = if domain.cells.len() < 2 {
        let cell = domain.cells.first().map_or(0, |cell| cell.id);
        vec![(None, vcpus.keys().map(|&vcpu| CpuId(vcpu)).collect(), domain.memory, own(cell))]
    } else {
        let part = |cell: &stacks::domain::Cell| (Some(cell.id), cell.vcpus.clone(), cell.memory, own(cell.id));
        domain.cells.iter().map(part).collect()
    };
    let alone = parts.len() == 1;
    let whole: Bytes = parts.iter().map(|part| part.2).sum();
    let resident = held::resident(seen);
    let client = |(id, (virtual_node, its, memory, tune)): (u32, (_, CpuSet, Bytes, Option<&MemoryTune>))| {
        let vcpu_cpus: BTreeMap<u32, CpuSet> =
            its.iter().filter_map(|vcpu| Some((vcpu.0, vcpus.get(&vcpu.0)?.clone()))).collect();
        let rates = before.map(|(before, seconds)| stats.since(before, vcpu_cpus.keys().copied(), alone, seconds));
        let rates = rates.unwrap_or_default();
        ClientObservation {
            id: ClientId(id),
            virtual_node,
            vcpus: vcpu_cpus.len() as u32,
            cpus: vcpu_cpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus)),
            vcpu_cpus,
            cpu_used: rates.cpu_used,
            cpu_waited: rates.cpu_waited,
            memory_unknown_because: Some(MEMORY_UNKNOWN.to_owned()),
            // libvirt knows the sum; a cell has the share of it that it has of the memory.
            resident: resident
                .map(|sum| Bytes((u128::from(sum.0) * u128::from(memory.0) / u128::from(whole.0.max(1))) as u64)),
            chosen_nodes: tune.and_then(strict),
            spread_nodes: tune.and_then(interleaved).unwrap_or_default(),
            policies: tune.and_then(|tune| policy(tune, domain, memory)).map(|policy| vec![policy]),
            memory_size: memory,
            huge_page_size: domain.huge_pages.iter().find_map(|pages| pages.size),
            ..ClientObservation::default()
        }
    };
    (0..).zip(parts).map(client).collect()
}

/// What the definition makes libvirt tell the kernel.
fn policy(tune: &MemoryTune, domain: &Domain, memory: Bytes) -> Option<PolicyOfMemory> {
    let nodes = tune.nodeset.clone().filter(|nodes| !nodes.is_empty())?;
    let word = match tune.mode.as_str() {
        "preferred" => "prefer",
        "interleave" => "interleave",
        _ => "bind",
    };
    let backing = if domain.huge_pages.is_empty() { Backing::Anonymous } else { Backing::HugePages };
    let resident = BTreeMap::<NodeId, Bytes>::new();
    Some(PolicyOfMemory { policy: format!("{word}:{nodes}"), nodes: Some(nodes), backing, resident, absent: memory })
}

#[cfg(test)]
mod tests {
    use super::super::VcpuStats;
    use super::*;
    use std::time::{Duration, Instant};

    /// Two nodes of four CPUs: node 0 has CPUs 0-3.
    fn machine() -> Machine {
        topology::read::from_synthetic("pack:2 [numa(memory=4GiB)] core:4 pu:1").expect("a machine")
    }

    fn seen(xml: &str) -> RemoteDomain {
        let text = format!("<domain type='kvm'><name>a</name><memory unit='MiB'>1024</memory>{xml}</domain>");
        let domain = stacks::domain::parse(&text, "a.xml").expect(xml);
        let resident = Some(Bytes::from_mib(512));
        RemoteDomain { uuid: "u".to_owned(), domain, stats: DomainStats { resident, ..DomainStats::default() } }
    }

    fn look(at: Instant, domain: RemoteDomain) -> Look {
        Look { at, free: BTreeMap::from([(NodeId(0), Bytes::GIB)]), cpus: BTreeMap::new(), domains: vec![domain] }
    }

    const CELLS: &str = "<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='4-7'/></cputune><numatune><memnode \
        cellid='0' mode='strict' nodeset='1'/></numatune><cpu><topology sockets='2' cores='1' threads='1'/><numa><cell \
        id='0' cpus='0' memory='768' unit='MiB'/><cell id='1' cpus='1' memory='256' unit='MiB'/></numa></cpu>";

    #[test]
    fn cells_are_clients_with_their_pins_and_policies() {
        let seen = observation(&machine(), &look(Instant::now(), seen(CELLS)), None, Moment(5));
        let vm = &seen.vms[0];
        assert_eq!((vm.vm.name.as_str(), vm.uuid.as_deref(), vm.manager), ("a", Some("u"), Manager::Libvirt));
        let [zero, one] = &vm.clients[..] else { panic!("{vm:?}") };
        assert_eq!((zero.virtual_node, zero.vcpus, zero.cpus.to_string()), (Some(0), 1, "4-7".to_owned()));
        assert_eq!(one.vcpu_cpus[&1].to_string(), "0-7");
        assert_eq!((zero.chosen_nodes.clone(), one.chosen_nodes.clone()), ("1".parse().ok(), None));
        // 768 and 256 of 1024 MiB: three quarters and one of the 512 that are resident. On which
        // node nobody says.
        let mib = |client: &ClientObservation| client.resident.map(Bytes::mib);
        assert_eq!((mib(zero), mib(one), zero.memory.clone()), (Some(384), Some(128), None));
        assert!(zero.memory_unknown_because.is_some());
        assert_eq!(seen.nodes[&NodeId(0)].memory_free, Some(Bytes::GIB));
        assert_eq!((seen.nodes[&NodeId(1)].memory_free, seen.nodes[&NodeId(1)].cpu_used), (None, None));
        assert_eq!(vm.mobility, Mobility::Movable);
    }

    #[test]
    fn rates_are_those_of_a_clients_own_vcpus() {
        let start = Instant::now();
        let with = |times_ms: [u64; 2]| {
            let mut seen = seen(CELLS);
            let vcpu = |ms| VcpuStats { time: Some(Duration::from_millis(ms)), delay: Some(Duration::ZERO) };
            seen.stats.by_vcpu = (0..).zip(times_ms.map(vcpu)).collect();
            seen
        };
        let before = look(start, with([100, 0]));
        let now = look(start + Duration::from_secs(2), with([1100, 3000]));
        let seen = observation(&machine(), &now, Some(&before), Moment(0));
        let used: Vec<_> = seen.vms[0].clients.iter().map(|client| client.cpu_used).collect();
        assert_eq!(used, [Some(0.5), Some(1.5)]); // 1000 ms and 3000 ms in 2 s
    }

    #[test]
    fn a_strict_domain_may_live_on_its_nodes_only_and_a_pin_to_a_part_of_a_node_is_kept() {
        let of = |xml: &str| observation(&machine(), &look(Instant::now(), seen(xml)), None, Moment(0)).vms.remove(0);
        let strict = of("<vcpu>1</vcpu><numatune><memory mode='strict' nodeset='0'/></numatune>");
        assert_eq!(
            (strict.node_affinity, strict.clients[0].chosen_nodes.clone()),
            ("0".parse().ok(), "0".parse().ok())
        );
        let stated = of("<vcpu>1</vcpu><devices><serial type='pty'><alias \
             name='ua-homenode--placement-apart--latency_sensitive'/></serial></devices>");
        assert!(stated.placement == vm::spec::Spread::Apart && stated.counts_full());
        let preferred = of("<vcpu>1</vcpu><numatune><memory mode='preferred' nodeset='0'/></numatune>");
        assert_eq!((preferred.node_affinity, preferred.clients[0].chosen_nodes.clone()), (None, None));
        assert_eq!(preferred.clients[0].policies.as_ref().expect("a policy")[0].policy, "prefer:0");
        assert!(matches!(of("<vcpu cpuset='2'>1</vcpu>").mobility, Mobility::Fixed { .. }));
    }
}
