//! Ways between nodes ([`topology::ways`]) as stations that a line passes.

use crate::model::{StationId, flit_ns};
use topology::rates::{Rates, Vertex};
use topology::ways::{self, Fault, Passage, Way};
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

impl Routes {
    /// Station `first_link + 2 i` is the i-th link as written, the next one its way back.
    pub(crate) fn new(machine: &Machine, rates: &Rates, first_link: u32) -> Result<Self, Vec<Fault>> {
        let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        let ways = ways::between(&nodes, rates)?;
        let count = nodes.len();
        // A hop's latency is of both ways together, so half of it belongs to each.
        let hops_ns = |i: usize, j: usize| f64::midpoint(ways[i][j].latency_ns, ways[j][i].latency_ns);
        let derived = |i: usize| (0..count).map(|j| rates.local_latency_ns.value + hops_ns(i, j)).collect::<Vec<f64>>();
        let latency_ns = match &rates.latencies {
            Some(latencies) => latencies.rows.clone(),
            None => (0..count).map(derived).collect(),
        };
        let station = |passage: &Passage| {
            let Passage { link, back } = *passage;
            (StationId(first_link + 2 * link as u32 + u32::from(back)), flit_ns(rates.links[link].gb_per_s))
        };
        let stations = |way: &Way| way.passages.iter().map(station).collect();
        let links = ways.iter().map(|row| row.iter().map(stations).collect()).collect();
        Ok(Self { latency_ns, links, direct: direct(machine, rates, first_link) })
    }
}

type Direct = Vec<Vec<(StationId, StationId, f64)>>;

/// Links that end at each node.
fn direct(machine: &Machine, rates: &Rates, first_link: u32) -> Direct {
    let mut direct = vec![Vec::new(); machine.nodes.len()];
    for (index, link) in rates.links.iter().enumerate() {
        let out = StationId(first_link + 2 * index as u32);
        let back = StationId(out.0 + 1);
        let (one, other) = &link.between;
        for (end, away, towards) in [(one, out, back), (other, back, out)] {
            if let Vertex::Node(node) = end
                && let Ok(at) = machine.nodes.binary_search_by_key(node, |node| node.id)
            {
                direct[at].push((away, towards, flit_ns(link.gb_per_s)));
            }
        }
    }
    direct
}
