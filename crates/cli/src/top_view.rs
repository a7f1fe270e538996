//! Nodes and VMs at one moment, for `homenode top`. Columns after ESXi's esxtop and sched-stats; docs/top.md explains them.

use crate::cells::{bytes, dash, figure, mib};
use crate::text::{count, lines, table};
use daemon::{VmRecord, Watched};
use scheduler::{ClientObservation, Mobility, Observation, VmObservation};
use serde::Serialize;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};
use vm::Manager;

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    nodes: Vec<NodeRow>,
    vms: Vec<VmRow>,
    /// Process of the balancer that runs.
    balancer_pid: Option<u32>,
    /// Share of the last 10 s in which some task waited for memory, in percent.
    memory_pressure_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: NodeId,
    cpus: CpuSet,
    cpu_used: Option<f64>,
    cpu_used_percent: Option<f64>,
    memory: Bytes,
    memory_free: Option<Bytes>,
    clients: usize,
    vcpus: u32,
    cpu_waited: Option<f64>,
}

#[derive(Debug, Serialize)]
struct VmRow {
    name: String,
    pid: u32,
    /// Who started it and changes it; `None` where that is not known.
    manager: Option<Manager>,
    /// Nodes of all its clients; `None` where some client floats.
    home: Option<NodeSet>,
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
    mobility: Mobility,
    clients: Vec<ClientRow>,
}

#[derive(Debug, Serialize)]
struct ClientRow {
    client: u32,
    home: Option<NodeSet>,
    /// Whether the home was decided (by a balancer) or only follows from where its threads may run.
    decided: bool,
    vcpus: u32,
    cpus: CpuSet,
    resident: Option<Bytes>,
    local: Option<Bytes>,
    cpu_used: Option<f64>,
    cpu_waited: Option<f64>,
    /// Measured memory traffic to other nodes, in percent of all of it.
    remote_traffic_percent: Option<f64>,
}

/// Puts an observation together with what a balancer remembers.
pub(crate) fn view(machine: &Machine, observation: &Observation, balancer: Option<&Watched>) -> View {
    let mut vms: Vec<VmRow> = observation.vms.iter().map(|seen| vm_row(machine, observation, seen, balancer)).collect();
    vms.sort_by(|a, b| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    View {
        nodes: observation.nodes.keys().map(|&node| node_row(machine, observation, node, &vms)).collect(),
        vms,
        balancer_pid: balancer.and_then(|seen| seen.pid),
        memory_pressure_percent: observation.memory_pressure.map(|part| part * 100.0),
    }
}

impl View {
    /// Fills in who manages each VM, by its process.
    pub(crate) fn name_managers(&mut self, manager: impl Fn(u32) -> Option<Manager>) {
        for vm in &mut self.vms {
            vm.manager = manager(vm.pid);
        }
    }
}

fn node_row(machine: &Machine, observation: &Observation, node: NodeId, vms: &[VmRow]) -> NodeRow {
    let seen = &observation.nodes[&node];
    let at_home: Vec<&ClientRow> = vms
        .iter()
        .flat_map(|vm| &vm.clients)
        .filter(|client| client.home.as_ref().is_some_and(|home| home.contains(node)))
        .collect();
    // A client of several nodes counts on each with its part.
    let part = |client: &ClientRow| 1.0 / client.home.as_ref().map_or(1, NodeSet::len) as f64;
    // The sum of none is a negative zero.
    let waited = at_home.iter().map(|client| Some(client.cpu_waited? * part(client))).sum::<Option<f64>>();
    NodeRow {
        node,
        cpus: seen.cpus.clone(),
        cpu_used: seen.cpu_used,
        cpu_used_percent: seen
            .cpu_used
            .filter(|_| !seen.cpus.is_empty())
            .map(|used| 100.0 * used / seen.cpus.len() as f64),
        memory: machine.node(node).map(|node| node.memory).unwrap_or_default(),
        memory_free: seen.memory_free,
        clients: at_home.len(),
        vcpus: at_home.iter().map(|client| client.vcpus).sum(),
        cpu_waited: waited.map(|waited| waited + 0.0),
    }
}

fn vm_row(machine: &Machine, observation: &Observation, seen: &VmObservation, balancer: Option<&Watched>) -> VmRow {
    let record = balancer.and_then(|balancer| balancer.saved.vms.iter().find(|record| record.vm == seen.vm));
    let clients: Vec<ClientRow> = seen
        .clients
        .iter()
        .map(|client| {
            let decided = balancer.and_then(|balancer| balancer.saved.balance.home(&seen.vm, client.id)).cloned();
            client_row(machine, observation, client, decided)
        })
        .collect();
    let home = clients.iter().try_fold(NodeSet::new(), |all, client| Some(all.union(client.home.as_ref()?)));
    let resident: Option<Bytes> = clients.iter().map(|client| client.resident).sum::<Option<Sum>>().map(|sum| sum.0);
    let local: Option<Bytes> = clients.iter().map(|client| client.local).sum::<Option<Sum>>().map(|sum| sum.0);
    let vcpus = seen.clients.iter().map(|client| client.vcpus).sum::<u32>();
    let waited: Option<f64> = clients.iter().map(|client| client.cpu_waited).sum();
    VmRow {
        name: seen.vm.name.clone(),
        pid: seen.vm.pid,
        manager: None,
        home,
        vcpus,
        memory_size: seen.clients.iter().map(|client| client.memory_size).sum(),
        resident,
        local,
        remote: resident.zip(local).map(|(resident, local)| resident.saturating_sub(local)),
        local_percent: resident
            .zip(local)
            .filter(|(resident, _)| resident.0 > 0)
            .map(|(resident, local)| 100.0 * local.0 as f64 / resident.0 as f64),
        migrations: record.map(VmRecord::migrations).or(balancer.map(|_| 0)),
        memory_moved: record.map(|record| record.memory_moved),
        cpu_used: clients.iter().map(|client| client.cpu_used).sum(),
        ready_percent: waited.map(|waited| 100.0 * waited / f64::from(vcpus.max(1))),
        mobility: seen.mobility.clone(),
        clients,
    }
}

/// Bytes that can be summed as `Option`s.
struct Sum(Bytes);

impl std::iter::Sum<Bytes> for Sum {
    fn sum<I: Iterator<Item = Bytes>>(amounts: I) -> Self {
        Self(amounts.sum())
    }
}

fn client_row(
    machine: &Machine,
    observation: &Observation,
    client: &ClientObservation,
    decided: Option<NodeSet>,
) -> ClientRow {
    let known = decided.is_some();
    let cpus_home = || client.cpus.iter().filter_map(|cpu| machine.thread(cpu).map(|thread| thread.node)).collect();
    let home = Some(decided.unwrap_or_else(cpus_home)).filter(|home| is_home(observation, home));
    let resident = client.memory.as_ref().map(|by_node| by_node.values().copied().sum::<Bytes>());
    let local = client.memory.as_ref().zip(home.as_ref()).map(|(by_node, home)| {
        by_node.iter().filter(|(node, _)| home.contains(**node)).map(|(_, bytes)| *bytes).sum::<Bytes>()
    });
    let remote_part = |local: f64, remote: f64| (local + remote > 0.0).then(|| 100.0 * remote / (local + remote));
    ClientRow {
        client: client.id.0,
        home,
        decided: known,
        vcpus: client.vcpus,
        cpus: client.cpus.clone(),
        resident,
        local,
        cpu_used: client.cpu_used,
        cpu_waited: client.cpu_waited,
        remote_traffic_percent: client.traffic.and_then(|traffic| remote_part(traffic.local, traffic.remote)),
    }
}

/// Whether these nodes are a home: who may live on every node of a host with several has none.
fn is_home(observation: &Observation, nodes: &NodeSet) -> bool {
    let with_cpus = observation.nodes.values().filter(|node| !node.cpus.is_empty()).count();
    !nodes.is_empty() && (nodes.len() < with_cpus || with_cpus == 1)
}

/// Two tables.
pub(crate) fn text(view: &View) -> String {
    let mut parts = vec![heading(view), lines(&nodes(view)), String::new()];
    if view.vms.is_empty() {
        parts.push("No VM runs that this user can see.".to_owned());
    } else {
        parts.push(lines(&vms(view)));
    }
    parts.join("\n") + "\n"
}

fn heading(view: &View) -> String {
    let balancer = match view.balancer_pid {
        Some(pid) => format!("balancer: process {pid}"),
        None => "no balancer runs".to_owned(),
    };
    let pressure = view.memory_pressure_percent.map(|percent| format!(", memory pressure {percent:.1} %"));
    let (nodes, vms) = (count(view.nodes.len(), "NUMA node"), count(view.vms.len(), "VM"));
    format!("homenode: {nodes}, {vms}, {balancer}{}\n", pressure.unwrap_or_default())
}

fn nodes(view: &View) -> comfy_table::Table {
    let header = ["Node", "CPUs", "Used", "%Used", "Memory", "Free", "Clients", "vCPUs", "Ready"];
    let mut table = table(header, &[2, 3, 4, 5, 6, 7, 8]);
    for row in &view.nodes {
        table.add_row([
            row.node.to_string(),
            row.cpus.to_string(),
            figure(row.cpu_used, 2),
            figure(row.cpu_used_percent, 1),
            row.memory.to_string(),
            bytes(row.memory_free),
            row.clients.to_string(),
            row.vcpus.to_string(),
            figure(row.cpu_waited, 2),
        ]);
    }
    table
}

fn vms(view: &View) -> comfy_table::Table {
    let header =
        ["VM", "PID", "Home", "vCPUs", "Memory", "Resident", "Local", "Remote", "N%L", "Moves", "Used", "%Ready", ""];
    let mut table = table(header, &[1, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    for row in &view.vms {
        table.add_row([
            row.name.clone(),
            row.pid.to_string(),
            row.home.as_ref().map_or_else(|| "floats".to_owned(), NodeSet::to_string),
            row.vcpus.to_string(),
            row.memory_size.to_string(),
            mib(row.resident),
            mib(row.local),
            mib(row.remote),
            row.local_percent.map_or_else(dash, |percent| format!("{:.0}", percent.floor())),
            row.migrations.map_or_else(dash, |moves| moves.to_string()),
            figure(row.cpu_used, 2),
            figure(row.ready_percent, 1),
            match &row.mobility {
                Mobility::Movable => String::new(),
                Mobility::MemoryFixed { .. } => "memory fixed".to_owned(),
                Mobility::Fixed { .. } => "fixed".to_owned(),
            },
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{ClientId, NodeObservation, VmKey};
    use std::collections::BTreeMap;
    use topology::read;

    /// Two nodes of two CPUs; a VM of two vCPUs that may run on `cpus`, with 300 MiB on node 0 and 100 MiB on node 1.
    fn seen(cpus: &str) -> (Machine, Observation) {
        let machine = read::from_synthetic("pack:2 [numa(memory=4GB)] core:2 pu:1").unwrap();
        let node = |id| NodeObservation {
            cpus: machine.usable_cpus(id),
            cpu_used: Some(1.0),
            memory_free: Some(Bytes::GIB),
            huge_pages_free: BTreeMap::new(),
        };
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
        let vm = VmObservation::of_clients(VmKey { name: "web".into(), pid: 7, started: 1 }, vec![client]);
        let nodes = machine.node_ids().iter().map(|id| (id, node(id))).collect();
        (machine, Observation { nodes, vms: vec![vm], ..Observation::default() })
    }

    #[test]
    fn local_memory_is_what_is_resident_at_home() {
        let (machine, observation) = seen("0-1");
        let view = view(&machine, &observation, None);
        let row = &view.vms[0];
        assert_eq!((row.local, row.remote), (Some(Bytes::from_mib(300)), Some(Bytes::from_mib(100))));
        assert_eq!(row.local_percent, Some(75.0)); // 300 of 400; the 112 MiB that were never touched do not count
        assert_eq!(row.ready_percent, Some(5.0)); // 0.1 CPUs of waiting, over 2 vCPUs
        assert_eq!((view.nodes[0].clients, view.nodes[1].clients), (1, 0));
        assert_eq!(view.nodes[0].cpu_used_percent, Some(50.0)); // 1 of 2 CPUs
        let text = text(&view);
        assert!(text.lines().any(|line| line.starts_with("web") && line.contains(" 75 ")), "{text}");
    }

    #[test]
    fn a_vm_that_may_run_everywhere_floats_and_has_no_local_memory() {
        let (machine, observation) = seen("0-3");
        let view = view(&machine, &observation, None);
        assert_eq!((&view.vms[0].home, view.vms[0].local), (&None, None));
        assert_eq!((view.nodes[0].clients, view.nodes[1].clients), (0, 0));
        assert!(text(&view).contains("floats"));
    }
}
