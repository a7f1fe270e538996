//! Ways between nodes over links: of least latency, unless the rates name another.

use crate::NodeId;
use crate::rates::{Rates, Vertex};
use std::collections::BTreeMap;

/// A passage over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// Index in [`Rates::links`].
    pub link: usize,
    /// From the second of its ends to the first.
    pub back: bool,
}

/// A way from a node to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way {
    /// What all passages add to the latency of a line, both ways together, in nanoseconds.
    pub latency_ns: f64,
    /// Passages, in their order.
    pub passages: Vec<Passage>,
}

/// Why there are no ways.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// No link leads from the first node to this one, not even over others.
    NoWay {
        /// The first node.
        from: NodeId,
        /// This one.
        to: NodeId,
    },
    /// An entry of [`Rates::routes`] has a hop that no link makes.
    NoLink {
        /// Index of the entry.
        route: usize,
        /// Where the hop begins.
        from: Vertex,
        /// Where it ends.
        to: Vertex,
    },
}

/// The ways between all pairs of `nodes`, by their indexes: `ways[from][to]`; a node's way to
/// itself is empty.
///
/// # Errors
/// Nodes that no link joins to the first, and routes over links that are not there.
pub fn between(nodes: &[NodeId], rates: &Rates) -> Result<Vec<Vec<Way>>, Vec<Fault>> {
    let from = directed(rates);
    let written = written(&from, rates)?;
    let mut ways = vec![vec![Way::default(); nodes.len()]; nodes.len()];
    let mut faults = Vec::new();
    for (i, &source) in nodes.iter().enumerate() {
        let reached = nearest(&from, source);
        for (j, &target) in nodes.iter().enumerate().filter(|&(j, _)| j != i) {
            let way = written.get(&(source, target)).or_else(|| reached.get(&Vertex::Node(target)));
            match way {
                Some(way) => ways[i][j].clone_from(way),
                // Links lead both ways: what cannot be reached from the first node is what is
                // apart.
                None if i == 0 => faults.push(Fault::NoWay { from: source, to: target }),
                None => {}
            }
        }
    }
    if faults.is_empty() { Ok(ways) } else { Err(faults) }
}

/// A directed link.
struct Directed<'a> {
    to: &'a Vertex,
    passage: Passage,
    latency_ns: f64,
}

/// By where they begin.
type Links<'a> = BTreeMap<&'a Vertex, Vec<Directed<'a>>>;

fn directed(rates: &Rates) -> Links<'_> {
    let mut from = Links::new();
    for (index, link) in rates.links.iter().enumerate() {
        let (one, other) = &link.between;
        for (begin, end, back) in [(one, other, false), (other, one, true)] {
            let passage = Passage { link: index, back };
            from.entry(begin).or_default().push(Directed { to: end, passage, latency_ns: link.latency_ns });
        }
    }
    from
}

/// The ways that the rates name, and their reverses where they name no other.
fn written(from: &Links<'_>, rates: &Rates) -> Result<BTreeMap<(NodeId, NodeId), Way>, Vec<Fault>> {
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
fn along(from: &Links<'_>, path: &[Vertex]) -> Result<Way, (Vertex, Vertex)> {
    let mut way = Way::default();
    for hop in path.windows(2) {
        let link = from.get(&hop[0]).and_then(|links| links.iter().find(|link| *link.to == hop[1]));
        let link = link.ok_or_else(|| (hop[0].clone(), hop[1].clone()))?;
        way.latency_ns += link.latency_ns;
        way.passages.push(link.passage);
    }
    Ok(way)
}

/// Dijkstra over a handful of vertices; of two ways with the same latency the one with fewer links,
/// then the first in order.
fn nearest(from: &Links<'_>, source: NodeId) -> BTreeMap<Vertex, Way> {
    let mut open = BTreeMap::from([(Vertex::Node(source), Way::default())]);
    let mut reached = BTreeMap::new();
    let next_of = |open: &BTreeMap<Vertex, Way>| {
        let order = |one: &Way, other: &Way| {
            one.latency_ns.total_cmp(&other.latency_ns).then(one.passages.len().cmp(&other.passages.len()))
        };
        open.iter().min_by(|(_, one), (_, other)| order(one, other)).map(|(vertex, _)| vertex.clone())
    };
    while let Some(next) = next_of(&open) {
        let Some(way) = open.remove(&next) else { break };
        for link in from.get(&next).into_iter().flatten() {
            let latency_ns = way.latency_ns + link.latency_ns;
            let better = |known: &Way| {
                latency_ns < known.latency_ns
                    || (latency_ns == known.latency_ns && way.passages.len() + 1 < known.passages.len())
            };
            if !reached.contains_key(link.to) && open.get(link.to).is_none_or(better) {
                let passages = way.passages.iter().copied().chain([link.passage]).collect();
                open.insert(link.to.clone(), Way { latency_ns, passages });
            }
        }
        reached.insert(next, way);
    }
    reached
}
