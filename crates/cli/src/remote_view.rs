//! Nodes and domains of another host at one moment, for `homenode top --connect`. docs/connect.md explains the columns.

use crate::cells::{bytes, dash, figure, mib};
use crate::text::{count, lines, table};
use libvirt::DomainState;
use libvirt::remote::{Look, Rates, RemoteDomain, home};
use serde::Serialize;
use topology::{Bytes, CpuSet, Machine, NodeId, NodeSet};

/// What `--json` prints. A change that breaks readers raises `version`.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// Which libvirt.
    connect: String,
    machine: String,
    nodes: Vec<NodeRow>,
    domains: Vec<DomainRow>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: NodeId,
    cpus: CpuSet,
    cpu_used: Option<f64>,
    cpu_used_percent: Option<f64>,
    memory: Bytes,
    memory_free: Option<Bytes>,
    /// Domains whose vCPUs may run on this node only.
    domains: usize,
    /// Their vCPUs.
    vcpus: u32,
}

#[derive(Debug, Serialize)]
struct DomainRow {
    name: String,
    uuid: String,
    state: Option<DomainState>,
    /// Nodes that its vCPUs are confined to; `None`: they float.
    home: Option<NodeSet>,
    /// Nodes that its memory is bound to; `None`: to none.
    memory_nodes: Option<NodeSet>,
    vcpus: u32,
    memory_size: Bytes,
    resident: Option<Bytes>,
    /// libvirt does not tell which node resident memory is on.
    local: Option<Bytes>,
    cpu_used: Option<f64>,
    ready_percent: Option<f64>,
}

/// Puts a look together with what happened before it.
pub(crate) fn view(uri: &str, machine: &Machine, look: &Look, rates: &Rates) -> View {
    let domains: Vec<DomainRow> = look.domains.iter().map(|seen| domain_row(machine, seen, rates)).collect();
    View {
        connect: uri.to_owned(),
        machine: machine.name.clone(),
        nodes: machine.nodes.iter().map(|node| node_row(machine, node.id, look, rates, &domains)).collect(),
        domains,
    }
}

fn node_row(machine: &Machine, node: NodeId, look: &Look, rates: &Rates, domains: &[DomainRow]) -> NodeRow {
    let cpus = machine.usable_cpus(node);
    let cpu_used: Option<f64> = cpus.iter().map(|cpu| rates.cpus.get(&cpu).copied()).sum();
    let cpu_used = cpu_used.filter(|_| !cpus.is_empty());
    let only_here = |row: &&DomainRow| row.home.as_ref().is_some_and(|home| home.len() == 1 && home.contains(node));
    NodeRow {
        node,
        cpu_used,
        cpu_used_percent: cpu_used.map(|used| 100.0 * used / cpus.len() as f64),
        cpus,
        memory: machine.node(node).map(|node| node.memory).unwrap_or_default(),
        memory_free: look.free.get(&node).copied(),
        domains: domains.iter().filter(only_here).count(),
        vcpus: domains.iter().filter(only_here).map(|row| row.vcpus).sum(),
    }
}

fn domain_row(machine: &Machine, seen: &RemoteDomain, rates: &Rates) -> DomainRow {
    let (stats, rates) = (&seen.stats, rates.domains.get(&seen.uuid).copied().unwrap_or_default());
    let home = home(&seen.domain, machine);
    let vcpus = stats.vcpus.unwrap_or(seen.domain.vcpus);
    DomainRow {
        name: seen.domain.name.clone(),
        uuid: seen.uuid.clone(),
        state: stats.state,
        home: home.cpus,
        memory_nodes: home.memory,
        vcpus,
        memory_size: stats.memory.unwrap_or(seen.domain.memory),
        resident: stats.resident,
        local: None,
        cpu_used: rates.cpu_used,
        ready_percent: rates.cpu_waited.map(|waited| 100.0 * waited / f64::from(vcpus.max(1))),
    }
}

/// Two tables.
pub(crate) fn text(view: &View) -> String {
    let (nodes, domains) = (count(view.nodes.len(), "NUMA node"), count(view.domains.len(), "domain"));
    let heading = format!("homenode: {} ({}): {nodes}, {domains}\n", view.machine, view.connect);
    let mut parts = vec![heading, lines(&nodes_table(view)), String::new()];
    if view.domains.is_empty() {
        parts.push("No domain runs there.".to_owned());
    } else {
        parts.push(lines(&domains_table(view)));
    }
    parts.join("\n") + "\n"
}

fn nodes_table(view: &View) -> comfy_table::Table {
    let header = ["Node", "CPUs", "Used", "%Used", "Memory", "Free", "Domains", "vCPUs"];
    let mut table = table(header, &[2, 3, 4, 5, 6, 7]);
    for row in &view.nodes {
        table.add_row([
            row.node.to_string(),
            row.cpus.to_string(),
            figure(row.cpu_used, 2),
            figure(row.cpu_used_percent, 1),
            row.memory.to_string(),
            bytes(row.memory_free),
            row.domains.to_string(),
            row.vcpus.to_string(),
        ]);
    }
    table
}

fn domains_table(view: &View) -> comfy_table::Table {
    let header = ["Domain", "State", "Home", "Bound to", "vCPUs", "Memory", "Resident", "Local", "Used", "%Ready"];
    let mut table = table(header, &[4, 5, 6, 7, 8, 9]);
    for row in &view.domains {
        table.add_row([
            row.name.clone(),
            row.state.map_or_else(dash, |state| words(state).to_owned()),
            row.home.as_ref().map_or_else(|| "floats".to_owned(), NodeSet::to_string),
            row.memory_nodes.as_ref().map_or_else(dash, NodeSet::to_string),
            row.vcpus.to_string(),
            row.memory_size.to_string(),
            mib(row.resident),
            mib(row.local),
            figure(row.cpu_used, 2),
            figure(row.ready_percent, 1),
        ]);
    }
    table
}

fn words(state: DomainState) -> &'static str {
    match state {
        DomainState::Running => "running",
        DomainState::Paused => "paused",
        DomainState::ShuttingDown => "shutting down",
        DomainState::ShutOff => "shut off",
        DomainState::Crashed => "crashed",
        DomainState::Suspended => "suspended",
        DomainState::Unknown => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libvirt::remote::{DomainRates, DomainStats};
    use std::collections::BTreeMap;
    use std::time::Instant;
    use topology::{CpuId, read};

    fn seen(name: &str, vcpu: &str) -> RemoteDomain {
        let text = format!("<domain type='kvm'><name>{name}</name><memory unit='MiB'>512</memory>{vcpu}</domain>");
        let domain = stacks::domain::parse(&text, name).unwrap();
        RemoteDomain { uuid: name.to_owned(), domain, stats: DomainStats::default() }
    }

    #[test]
    fn what_libvirt_does_not_say_is_a_dash() {
        let machine = read::from_synthetic("pack:2 [numa(memory=4GiB)] core:2 pu:1").unwrap();
        let mut web = seen("web", "<vcpu cpuset='2-3'>2</vcpu><numatune><memory nodeset='1'/></numatune>");
        web.stats.state = Some(DomainState::Paused);
        web.stats.resident = Some(Bytes::from_mib(300));
        let look = Look {
            at: Instant::now(),
            free: BTreeMap::from([(NodeId(0), Bytes::GIB)]),
            cpus: BTreeMap::new(),
            domains: vec![seen("floating", "<vcpu>1</vcpu>"), web],
        };
        let rates = Rates {
            // Of node 1 only one CPU is known: then nothing is known of the node.
            cpus: BTreeMap::from([(CpuId(0), 0.5), (CpuId(1), 0.25), (CpuId(2), 1.0)]),
            domains: BTreeMap::from([("web".to_owned(), DomainRates { cpu_used: Some(1.5), cpu_waited: Some(0.5) })]),
        };
        let view = view("test:///x", &machine, &look, &rates);
        assert_eq!(view.nodes[0].cpu_used_percent, Some(37.5)); // (0.5 + 0.25) of 2 CPUs
        assert_eq!((view.nodes[1].cpu_used, view.nodes[1].memory_free), (None, None));
        assert_eq!((view.nodes[1].domains, view.nodes[1].vcpus, view.nodes[0].vcpus), (1, 2, 0));
        assert_eq!(view.domains[1].ready_percent, Some(25.0)); // 0.5 CPUs of waiting, over 2 vCPUs
        let text = text(&view);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(row("floating"), "floating|-|floats|-|1|512 MiB|-|-|-|-", "{text}");
        assert_eq!(row("web"), "web|paused|1|1|2|512 MiB|300 MiB|-|1.50|25.0", "{text}");
    }
}
