//! Ways between nodes over directed links: of least latency, unless the machine file names another.

use crate::model::{StationId, flit_ns};
use std::collections::BTreeMap;
use topology::rates::{Rates, Vertex};
use topology::{Machine, NodeId};

/// By index of the node in the machine.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// From, to: unloaded latency of a load.
    pub(crate) latency_ns: Vec<Vec<f64>>,
    /// From, to: directed links on the way, each with the nanoseconds of a flit.
    pub(crate) links: Vec<Vec<Vec<(StationId, f64)>>>,
    /// Links that end at a node: away, towards, nanoseconds of a flit.
    pub(crate) direct: Vec<Vec<(StationId, StationId, f64)>>,
}

/// A directed link.
struct Directed {
    to: Vertex,
    station: StationId,
    flit_ns: f64,
    latency_ns: f64,
}

/// Why there are no routes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// No link leads from the first node to this one, not even over others.
    NoWay { from: NodeId, to: NodeId },
    /// Entry `route` of the file goes from `from` to `to`, which no link joins.
    NoLink { route: usize, from: Vertex, to: Vertex },
}

type Links = BTreeMap<Vertex, Vec<Directed>>;
/// Latency of all hops, and the directed links with the nanoseconds of a flit.
type Way = (f64, Vec<(StationId, f64)>);

impl Routes {
    /// Station `first_link + 2 i` is the i-th link as written, the next one its way back.
    pub(crate) fn new(machine: &Machine, rates: &Rates, first_link: u32) -> Result<Self, Vec<Fault>> {
        let (from, direct) = links(machine, rates, first_link);
        let written = written(&from, rates)?;
        let count = machine.nodes.len();
        let mut ways: Vec<Vec<Way>> = vec![vec![Way::default(); count]; count];
        let mut faults = Vec::new();
        for (i, source) in machine.nodes.iter().enumerate() {
            let reached = nearest(&from, source.id);
            for (j, target) in machine.nodes.iter().enumerate().filter(|&(j, _)| j != i) {
                let way = written.get(&(source.id, target.id)).or_else(|| reached.get(&Vertex::Node(target.id)));
                match way {
                    Some(way) => ways[i][j].clone_from(way),
                    // Links lead both ways: what cannot be reached from the first node is what is
                    // apart.
                    None if i == 0 => faults.push(Fault::NoWay { from: source.id, to: target.id }),
                    None => {}
                }
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        // A hop's latency is of both ways together, so half of it belongs to each.
        let hops_ns = |i: usize, j: usize| f64::midpoint(ways[i][j].0, ways[j][i].0);
        let derived = |i: usize| (0..count).map(|j| rates.local_latency_ns.value + hops_ns(i, j)).collect::<Vec<f64>>();
        let latency_ns = match &rates.latencies {
            Some(latencies) => latencies.rows.clone(),
            None => (0..count).map(derived).collect(),
        };
        let links = ways.into_iter().map(|row| row.into_iter().map(|(_, links)| links).collect()).collect();
        Ok(Self { latency_ns, links, direct })
    }
}

type Direct = Vec<Vec<(StationId, StationId, f64)>>;

/// Directed links by where they begin, and those that end at each node.
fn links(machine: &Machine, rates: &Rates, first_link: u32) -> (Links, Direct) {
    let mut from = Links::new();
    let mut direct = vec![Vec::new(); machine.nodes.len()];
    for (index, link) in rates.links.iter().enumerate() {
        let out = StationId(first_link + 2 * index as u32);
        let back = StationId(out.0 + 1);
        let flit_ns = flit_ns(link.gb_per_s);
        let (one, other) = &link.between;
        for (begin, end, away, towards) in [(one, other, out, back), (other, one, back, out)] {
            let directed = Directed { to: end.clone(), station: away, flit_ns, latency_ns: link.latency_ns };
            from.entry(begin.clone()).or_default().push(directed);
            if let Vertex::Node(node) = begin
                && let Ok(at) = machine.nodes.binary_search_by_key(node, |node| node.id)
            {
                direct[at].push((away, towards, flit_ns));
            }
        }
    }
    (from, direct)
}

/// The ways that the file names, and their reverses where it names no other.
fn written(from: &Links, rates: &Rates) -> Result<BTreeMap<(NodeId, NodeId), Way>, Vec<Fault>> {
    let mut ways = BTreeMap::new();
    let mut reverses = Vec::new();
    let mut faults = Vec::new();
    for (index, route) in rates.routes.iter().enumerate() {
        let (Some(Vertex::Node(first)), Some(Vertex::Node(last))) = (route.path.first(), route.path.last()) else {
            continue;
        };
        let backwards: Vec<Vertex> = route.path.iter().rev().cloned().collect();
        match (along(from, &route.path), along(from, &backwards)) {
            (Ok(way), Ok(back)) => {
                ways.insert((*first, *last), way);
                reverses.push(((*last, *first), back));
            }
            (Err((from, to)), _) | (_, Err((to, from))) => faults.push(Fault::NoLink { route: index, from, to }),
        }
    }
    for (ends, back) in reverses {
        ways.entry(ends).or_insert(back);
    }
    if faults.is_empty() { Ok(ways) } else { Err(faults) }
}

/// The way over these vertices; the two that no link joins.
fn along(from: &Links, path: &[Vertex]) -> Result<Way, (Vertex, Vertex)> {
    let mut way = Way::default();
    for hop in path.windows(2) {
        let link = from.get(&hop[0]).and_then(|links| links.iter().find(|link| link.to == hop[1]));
        let link = link.ok_or_else(|| (hop[0].clone(), hop[1].clone()))?;
        way.0 += link.latency_ns;
        way.1.push((link.station, link.flit_ns));
    }
    Ok(way)
}

type Reached = BTreeMap<Vertex, Way>;

/// Dijkstra over a handful of vertices; of two ways with the same latency the one with fewer links,
/// then the first in order.
fn nearest(from: &Links, source: NodeId) -> Reached {
    let mut open: Reached = BTreeMap::from([(Vertex::Node(source), (0.0, Vec::new()))]);
    let mut reached = Reached::new();
    while let Some(next) = open
        .iter()
        .min_by(|(_, (one_ns, one)), (_, (other_ns, other))| {
            one_ns.total_cmp(other_ns).then(one.len().cmp(&other.len()))
        })
        .map(|(vertex, _)| vertex.clone())
    {
        let Some((ns, way)) = open.remove(&next) else { break };
        for link in from.get(&next).into_iter().flatten() {
            let total_ns = ns + link.latency_ns;
            let better = |(known_ns, known): &(f64, Vec<_>)| {
                total_ns < *known_ns || (total_ns == *known_ns && way.len() + 1 < known.len())
            };
            if !reached.contains_key(&link.to) && open.get(&link.to).is_none_or(better) {
                let mut longer = way.clone();
                longer.push((link.station, link.flit_ns));
                open.insert(link.to.clone(), (total_ns, longer));
            }
        }
        reached.insert(next, (ns, way));
    }
    reached
}
