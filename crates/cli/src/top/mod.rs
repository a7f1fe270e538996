//! Nodes and VMs at one moment, for `homenode top`: rows from an observation, whatever its source.
//! Figures after ESXi's esxtop and sched-stats; docs/top.md explains them.

mod batch;
mod columns;
mod draw;
mod keys;
mod table;

pub(crate) use batch::Batch;
pub(crate) use draw::{Look, draw};
pub(crate) use keys::{Screen, Step};
pub(crate) use table::text;

use crate::source::{BalancerNow, HERE, Remembered};
use daemon::VmRecord;
use scheduler::balance::{Home, Homes};
use scheduler::{ClientObservation, Mobility, Observation, Occupancy, RunState, VmObservation};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, CpuId, CpuSet, Machine, NodeId, NodeSet};
use vm::Manager;
use vm::history::UnixSeconds;
use vm::life::State;

/// Everything that is shown.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    /// What is looked at: `this host`, a libvirt's URI, a recording.
    pub(crate) source: String,
    machine: String,
    /// The moment on the source's own clock.
    pub(crate) at_ms: u64,
    /// Of a recording or a model: seconds since it began.
    pub(crate) since_start_seconds: Option<f64>,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) vms: Vec<VmRow>,
    /// The balancer of this source, as far as somebody knows of one.
    balancer: Option<BalancerNow>,
    /// Share of the last 10 s in which some task waited for memory, in percent.
    memory_pressure_percent: Option<f64>,
    /// What could not be looked at.
    unseen: Vec<String>,
    /// All that was seen, for programs that know what to do with it.
    observation: Observation,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeRow {
    pub(crate) node: NodeId,
    cpus: CpuSet,
    cpu_used: Option<f64>,
    /// In percent of its hardware threads.
    cpu_used_percent: Option<f64>,
    /// In percent of its cores, as the balancer counts.
    load_percent: Option<f64>,
    /// Hardware threads for each core, in the mean.
    #[serde(skip)]
    threads_per_core: f64,
    memory: Bytes,
    memory_free: Option<Bytes>,
    /// What VMs that keep to nodes, and starts, may come to have of it.
    promised: Bytes,
    clients: usize,
    vcpus: u32,
    cpu_waited: Option<f64>,
    /// VMs that live here, with all of them or a part.
    vms: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct VmRow {
    pub(crate) name: String,
    /// `None` where its process is not on this host.
    pub(crate) pid: Option<u32>,
    uuid: Option<String>,
    /// Who started it and changes it; `None` where that is not known.
    manager: Option<Manager>,
    /// `None` where nobody says.
    state: Option<RunState>,
    /// Nodes of all its clients; `None` where some client floats.
    home: Option<NodeSet>,
    /// Nodes that somebody other than homenode bound memory of it to; `None`: nobody did.
    chosen_nodes: Option<NodeSet>,
    vcpus: u32,
    memory_size: Bytes,
    resident: Option<Bytes>,
    local: Option<Bytes>,
    remote: Option<Bytes>,
    local_percent: Option<f64>,
    migrations: Option<u64>,
    memory_moved: Option<Bytes>,
    cpu_used: Option<f64>,
    ready_percent: Option<f64>,
    /// Measured memory traffic, and that to nodes other than the one that a thread ran on, in bytes
    /// a second.
    traffic_bytes_per_second: Option<f64>,
    remote_traffic_bytes_per_second: Option<f64>,
    /// How much of last-level caches its data holds.
    cache_bytes: Option<Bytes>,
    mobility: Mobility,
    /// Of a VM that homenode keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<KeptRow>,
    clients: Vec<ClientRow>,
}

/// What is kept of a VM.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeptRow {
    /// What it is doing, and since when in seconds since 1970.
    pub(crate) state: State,
    pub(crate) since: UnixSeconds,
    /// Its virtual nodes, as `2 x 4 vCPUs, 2 x 8 GiB`.
    pub(crate) virtual_topology: String,
}

#[derive(Clone, Debug, Serialize)]
struct ClientRow {
    client: u32,
    home: Option<NodeSet>,
    /// Whether the home was decided (by a balancer) or only follows from where its threads may run.
    decided: bool,
    vcpus: u32,
    cpus: CpuSet,
    memory_size: Bytes,
    resident: Option<Bytes>,
    resident_by_node: Option<BTreeMap<NodeId, Bytes>>,
    /// Nodes that somebody other than homenode bound its memory to.
    chosen_nodes: Option<NodeSet>,
    local: Option<Bytes>,
    cpu_used: Option<f64>,
    cpu_waited: Option<f64>,
    /// Measured memory traffic to other nodes, in percent of all of it.
    remote_traffic_percent: Option<f64>,
    traffic_bytes_per_second: Option<f64>,
    cache_bytes: Option<Bytes>,
}

/// Puts an observation together with what a balancer remembers.
pub(crate) fn view(source: &str, machine: &Machine, observation: &Observation, remembered: &Remembered) -> View {
    let homes = remembered.homes(machine, observation);
    let promised = scheduler::promised(machine, observation);
    let mut vms: Vec<VmRow> = observation.vms.iter().map(|seen| vm_row(seen, remembered, &homes)).collect();
    vms.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    View {
        source: source.to_owned(),
        machine: machine.name.clone(),
        at_ms: observation.at.0,
        since_start_seconds: None,
        nodes: observation.nodes.keys().map(|&node| node_row(machine, observation, node, &promised, &vms)).collect(),
        vms,
        balancer: remembered.balancer.clone(),
        memory_pressure_percent: observation.memory_pressure.map(|part| part * 100.0),
        unseen: observation.unseen_of(None),
        observation: observation.clone(),
    }
}

fn node_row(
    machine: &Machine,
    observation: &Observation,
    node: NodeId,
    promised: &Occupancy,
    vms: &[VmRow],
) -> NodeRow {
    let seen = &observation.nodes[&node];
    let lives_here = |client: &&ClientRow| client.home.as_ref().is_some_and(|home| home.contains(node));
    let at_home: Vec<&ClientRow> = vms.iter().flat_map(|vm| &vm.clients).filter(lives_here).collect();
    // A client of several nodes counts on each with its part.
    let part = |client: &ClientRow| 1.0 / client.home.as_ref().map_or(1, NodeSet::len) as f64;
    // The sum of none is a negative zero.
    let waited = at_home.iter().map(|client| Some(client.cpu_waited? * part(client))).sum::<Option<f64>>();
    // A CPU that came later than the machine was read is a core of its own, as for the balancer.
    let core = |cpu: CpuId| machine.thread(cpu).map(|thread| thread.core.0).ok_or(cpu.0);
    let cores = seen.cpus.iter().map(core).collect::<BTreeSet<_>>().len();
    let used = seen.cpu_used.filter(|_| !seen.cpus.is_empty());
    let percent_of = |all: usize| used.map(|used| 100.0 * used / all as f64);
    NodeRow {
        node,
        cpus: seen.cpus.clone(),
        cpu_used: seen.cpu_used,
        cpu_used_percent: percent_of(seen.cpus.len()),
        load_percent: percent_of(cores),
        threads_per_core: seen.cpus.len() as f64 / cores.max(1) as f64,
        memory: machine.node(node).map(|node| node.memory).unwrap_or_default(),
        memory_free: seen.memory_free,
        promised: promised.of(node).memory,
        clients: at_home.len(),
        vcpus: at_home.iter().map(|client| client.vcpus).sum(),
        cpu_waited: waited.map(|waited| waited + 0.0),
        vms: vms.iter().filter(|vm| vm.clients.iter().any(|one| lives_here(&one))).map(|vm| vm.name.clone()).collect(),
    }
}

fn vm_row(seen: &VmObservation, remembered: &Remembered, homes: &Homes) -> VmRow {
    let records = remembered.records.as_ref();
    let record = records.and_then(|records| records.iter().find(|record| record.vm == seen.vm));
    let row = |client: &ClientObservation| client_row(client, homes.get(&(seen.vm.clone(), client.id)));
    let clients: Vec<ClientRow> = seen.clients.iter().map(row).collect();
    let home = clients.iter().try_fold(NodeSet::new(), |all, client| Some(all.union(client.home.as_ref()?)));
    let chosen = clients.iter().filter_map(|client| client.chosen_nodes.as_ref());
    let chosen = chosen.fold(NodeSet::new(), |all, nodes| all.union(nodes));
    let resident = sum(clients.iter().map(|client| client.resident));
    let local = sum(clients.iter().map(|client| client.local));
    let vcpus = seen.clients.iter().map(|client| client.vcpus).sum::<u32>();
    let waited: Option<f64> = clients.iter().map(|client| client.cpu_waited).sum();
    VmRow {
        name: seen.vm.name.clone(),
        pid: (seen.vm.pid > 0).then_some(seen.vm.pid),
        uuid: seen.uuid.clone(),
        manager: (seen.manager != Manager::Unknown).then_some(seen.manager),
        state: seen.state,
        home,
        chosen_nodes: Some(chosen).filter(|chosen| !chosen.is_empty()),
        vcpus,
        memory_size: seen.clients.iter().map(|client| client.memory_size).sum(),
        resident,
        local,
        remote: resident.zip(local).map(|(resident, local)| resident.saturating_sub(local)),
        local_percent: resident
            .zip(local)
            .filter(|(resident, _)| resident.0 > 0)
            .map(|(resident, local)| 100.0 * local.0 as f64 / resident.0 as f64),
        migrations: record.map(VmRecord::migrations).or(records.map(|_| 0)),
        memory_moved: record.map(|record| record.memory_moved),
        cpu_used: clients.iter().map(|client| client.cpu_used).sum::<Option<f64>>().map(|used| used + 0.0),
        ready_percent: waited.map(|waited| 100.0 * (waited + 0.0) / f64::from(vcpus.max(1))),
        traffic_bytes_per_second: figure(seen, ClientObservation::all_traffic),
        remote_traffic_bytes_per_second: figure(seen, |client| Some(client.traffic?.remote)),
        cache_bytes: sum(seen.clients.iter().map(|client| client.cache_occupancy)),
        mobility: seen.mobility.clone(),
        kept: None,
        clients,
    }
}

/// The sum over a VM's clients; unknown where it is of one of them.
fn figure(seen: &VmObservation, of: impl Fn(&ClientObservation) -> Option<f64>) -> Option<f64> {
    // The sum of none is a negative zero.
    seen.clients.iter().map(of).sum::<Option<f64>>().map(|sum| sum + 0.0)
}

/// Unknown where one of them is.
fn sum(amounts: impl Iterator<Item = Option<Bytes>>) -> Option<Bytes> {
    amounts.map(|amount| amount.map(|bytes| u128::from(bytes.0))).sum::<Option<u128>>().map(|sum| Bytes(sum as u64))
}

fn client_row(client: &ClientObservation, lives: Option<&Home>) -> ClientRow {
    let home = lives.and_then(|home| home.lives.clone());
    let resident_on = |home: &NodeSet| {
        let there = |(node, bytes): (&NodeId, &Bytes)| home.contains(*node).then_some(*bytes);
        Some(client.memory.as_ref()?.iter().filter_map(there).sum::<Bytes>())
    };
    let remote_part = |local: f64, remote: f64| (local + remote > 0.0).then(|| 100.0 * remote / (local + remote));
    ClientRow {
        client: client.id.0,
        decided: lives.is_some_and(|home| home.decided),
        vcpus: client.vcpus,
        cpus: client.cpus.clone(),
        memory_size: client.memory_size,
        resident: client.resident(),
        resident_by_node: client.memory.clone(),
        chosen_nodes: client.chosen_nodes.clone(),
        local: home.as_ref().and_then(resident_on),
        home,
        cpu_used: client.cpu_used,
        cpu_waited: client.cpu_waited,
        remote_traffic_percent: client.traffic.and_then(|traffic| remote_part(traffic.local, traffic.remote)),
        traffic_bytes_per_second: client.all_traffic(),
        cache_bytes: client.cache_occupancy,
    }
}

impl View {
    /// Adds what is kept of VMs, by name and process.
    pub(crate) fn add_kept(&mut self, kept: impl Fn(&str, u32) -> Option<KeptRow>) {
        let strangers =
            |row: &VmRow| self.observation.vms.iter().any(|seen| Some(seen.vm.pid) == row.pid && seen.stranger);
        for row in self.vms.iter_mut().filter(|row| !strangers(row)) {
            row.kept = row.pid.and_then(|pid| kept(&row.name, pid));
        }
    }

    /// Whether VMs may run that were not seen.
    pub(crate) fn hides_vms(&self) -> bool {
        !crate::hidden_vms::sentences(&self.observation).is_empty()
    }

    /// Whether somebody should look at the facts.
    fn alarms(&self) -> bool {
        let stopped = self.balancer.as_ref().is_some_and(|balancer| balancer.life == daemon::Life::Stopped);
        stopped || self.memory_pressure_percent.is_some_and(|percent| percent >= 1.0) || !self.unseen.is_empty()
    }

    /// `4 NUMA nodes, 12 VMs on this host (HP ProLiant DL380 G6)`.
    fn title(&self) -> String {
        use crate::text::count;
        // A host that is read where it stands has no name but its root.
        let named = self.machine != "/" && self.machine != self.source;
        let machine = if named { format!(" ({})", self.machine) } else { String::new() };
        let (nodes, vms) = (count(self.nodes.len(), "NUMA node"), count(self.vms.len(), "VM"));
        let moment = self.since_start_seconds.map_or_else(String::new, |seconds| format!(", after {seconds:.0} s"));
        format!("{nodes}, {vms} on {}{machine}{moment}", self.source)
    }

    /// The balancer, pressure, what was not seen: each a sentence.
    fn facts(&self) -> Vec<String> {
        // Of other hosts nobody says whether one runs.
        let none = (self.source == HERE).then(|| "no balancer runs".to_owned());
        let balancer = self.balancer.as_ref().map(BalancerNow::sentence).or(none);
        let pressure = self.memory_pressure_percent.filter(|percent| *percent >= 0.05);
        let pressure = pressure.map(|percent| format!("memory pressure {percent:.1} %"));
        balancer.into_iter().chain(pressure).chain(self.unseen.iter().map(|what| format!("not seen: {what}"))).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use scheduler::{ClientId, NodeObservation, VmKey};
    use topology::read;

    /// Two nodes of two CPUs; a VM of two vCPUs that may run on `cpus`, with 300 MiB on node 0 and
    /// 100 MiB on node 1.
    pub(crate) fn seen(cpus: &str) -> (Machine, Observation) {
        let machine = read::from_synthetic("pack:2 [numa(memory=4GB)] core:2 pu:1").unwrap();
        let node = |id| NodeObservation {
            cpus: machine.usable_cpus(id),
            cpu_used: Some(1.0),
            memory_free: Some(Bytes::GIB),
            huge_pages_free: BTreeMap::new(),
        };
        let nodes = machine.node_ids().iter().map(|id| (id, node(id))).collect();
        (machine, Observation { nodes, vms: vec![vm("web", 7, cpus)], ..Observation::default() })
    }

    /// A VM of two vCPUs with 300 MiB on node 0 and 100 MiB on node 1.
    pub(crate) fn vm(name: &str, pid: u32, cpus: &str) -> VmObservation {
        let client = ClientObservation {
            id: ClientId(0),
            vcpus: 2,
            cpus: cpus.parse().unwrap(),
            cpu_used: Some(0.5),
            cpu_waited: Some(0.1),
            memory: Some(BTreeMap::from([(NodeId(0), Bytes::from_mib(300)), (NodeId(1), Bytes::from_mib(100))])),
            memory_size: Bytes::from_mib(512),
            ..ClientObservation::default()
        };
        VmObservation::of_clients(VmKey { name: name.into(), pid, started: 1 }, vec![client])
    }

    #[test]
    fn local_memory_is_what_is_resident_at_home() {
        let (machine, observation) = seen("0-1");
        let view = view("this host", &machine, &observation, &Remembered::default());
        let row = &view.vms[0];
        assert_eq!((row.local, row.remote), (Some(Bytes::from_mib(300)), Some(Bytes::from_mib(100))));
        assert_eq!(row.local_percent, Some(75.0)); // 300 of 400; the 112 MiB that were never touched do not count
        assert_eq!(row.ready_percent, Some(5.0)); // 0.1 CPUs of waiting, over 2 vCPUs
        assert_eq!((view.nodes[0].clients, view.nodes[1].clients), (1, 0));
        assert_eq!((&view.nodes[0].vms[..], view.nodes[1].vms.len()), (&["web".to_owned()][..], 0));
        assert_eq!(view.nodes[0].cpu_used_percent, Some(50.0)); // 1 of 2 CPUs
        assert_eq!(view.nodes[0].load_percent, Some(50.0)); // which are 2 cores
        // Memory that is not there yet comes to its home: 300 + 112. What lies elsewhere is there.
        let promised = view.nodes.iter().map(|node| node.promised.mib()).collect::<Vec<_>>();
        assert_eq!(promised, [412, 100]);
        let text = text(&view, None);
        assert!(text.lines().any(|line| line.starts_with("web") && line.contains(" 75 ")), "{text}");
    }

    /// `top` had 51 % of a node of which `balance` said that it is loaded 101 %.
    #[test]
    fn the_load_of_a_node_is_in_percent_of_its_cores() {
        let (_, observation) = seen("0-1");
        let machine = topology::read::from_synthetic("numa:2(memory=1GiB) core:1 pu:2").unwrap();
        let view = view("this host", &machine, &observation, &Remembered::default());
        let node = &view.nodes[0];
        assert_eq!((node.cpu_used_percent, node.load_percent), (Some(50.0), Some(100.0))); // 1 CPU, 1 core
        let shown = text(&view, None);
        assert!(shown.contains("Load") && shown.contains("100 %") && !shown.contains("%Used"), "{shown}");
    }

    #[test]
    fn a_vm_that_may_run_everywhere_floats_and_has_no_local_memory() {
        let (machine, observation) = seen("0-3");
        let view = view("this host", &machine, &observation, &Remembered::default());
        assert_eq!((&view.vms[0].home, view.vms[0].local), (&None, None));
        assert_eq!((view.nodes[0].clients, view.nodes[1].clients), (0, 0));
        assert!(text(&view, None).contains("floats"));
    }
}
