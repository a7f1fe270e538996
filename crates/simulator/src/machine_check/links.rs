//! Links and routes: ends that are there, speeds that can be, no pair joined twice.

use super::values::{GB_PER_S, LATENCY_NS};
use super::{Findings, quoted};
use std::collections::{BTreeMap, BTreeSet};
use topology::rates::{Link, Rates, Vertex};
use topology::{Machine, NodeId};

pub(super) fn check(machine: &Machine, rates: &Rates, findings: &mut Findings) {
    let mut joined = BTreeMap::new();
    for (index, link) in rates.links.iter().enumerate() {
        let field = format!("rates.link[{index}]");
        ends(machine, link, &field, findings);
        numbers(link, &field, findings);
        let (one, other) = &link.between;
        let ends = if one <= other { (one, other) } else { (other, one) };
        if let Some(first) = joined.insert(ends, index) {
            let problem = format!("rates.link[{first}] joins the same ends, and a route takes one link");
            let cure = "write one link with the bandwidth of both";
            findings.impossible(&format!("{field}.between"), shown(link), problem, cure);
        }
    }
    for (index, route) in rates.routes.iter().enumerate() {
        check_route(machine, &route.path, &format!("rates.route[{index}].path"), findings);
    }
    repeated_routes(rates, findings);
}

fn shown(link: &Link) -> String {
    format!("[{}, {}]", quoted(&link.between.0), quoted(&link.between.1))
}

fn ends(machine: &Machine, link: &Link, field: &str, findings: &mut Findings) {
    let field = format!("{field}.between");
    let (one, other) = &link.between;
    if one == other {
        findings.impossible(&field, shown(link), "a link joins two different ends", "name the other end");
    }
    for end in [one, other] {
        if let Some(node) = unknown_node(machine, end) {
            let problem = format!("there is no node {node}: the machine has {}", machine.node_ids());
            findings.impossible(
                &field,
                shown(link),
                problem,
                "a node of the machine, or a switch by its name in quotes",
            );
        }
    }
}

fn unknown_node(machine: &Machine, vertex: &Vertex) -> Option<NodeId> {
    match vertex {
        Vertex::Node(node) => machine.node(*node).is_none().then_some(*node),
        Vertex::Switch(_) => None,
    }
}

fn numbers(link: &Link, field: &str, findings: &mut Findings) {
    if !GB_PER_S.contains(&link.gb_per_s) {
        let cure = "bytes of payload a nanosecond and direction: a number above 0, from 0.001 to 1000000";
        findings.impossible(&format!("{field}.gb_per_s"), link.gb_per_s, "it is out of range", cure);
    }
    if !(0.0..=*LATENCY_NS.end()).contains(&link.latency_ns) {
        let cure = "what a passage adds, both ways together: a number from 0 to 1000000 ns";
        findings.impossible(&format!("{field}.latency_ns"), link.latency_ns, "it is out of range", cure);
    }
    let value = format!("{}: {} GB/s, {} ns", shown(link), link.gb_per_s, link.latency_ns);
    findings.source(field, value, link.source, &link.from);
}

fn check_route(machine: &Machine, path: &[Vertex], field: &str, findings: &mut Findings) {
    let shown = format!("[{}]", path.iter().map(quoted).collect::<Vec<_>>().join(", "));
    let is_node = |vertex: Option<&Vertex>| matches!(vertex, Some(Vertex::Node(_)));
    if path.len() < 2 || !is_node(path.first()) || !is_node(path.last()) || path.first() == path.last() {
        let problem = "a route leads from a node to another node";
        findings.impossible(field, &shown, problem, "write all ends on the way, the two nodes included");
        return;
    }
    if let Some(node) = path.iter().find_map(|vertex| unknown_node(machine, vertex)) {
        findings.impossible(field, &shown, format!("there is no node {node}"), "a node of the machine");
    }
    if path.iter().collect::<BTreeSet<_>>().len() < path.len() {
        findings.impossible(field, &shown, "it passes a place twice", "leave the detour out");
    }
}

fn repeated_routes(rates: &Rates, findings: &mut Findings) {
    let mut known = BTreeMap::new();
    for (index, route) in rates.routes.iter().enumerate() {
        let ends = (route.path.first(), route.path.last());
        if let Some(first) = known.insert(ends, index) {
            let field = format!("rates.route[{index}].path");
            let problem = format!("rates.route[{first}] leads between the same nodes, the same way round");
            findings.impossible(&field, "a second route", problem, "keep one");
        }
    }
}
