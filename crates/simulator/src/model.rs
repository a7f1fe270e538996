//! A machine as stations that serve cache lines: memory controllers, directed links, ports of
//! last-level caches.

use crate::ModelError;
use crate::machine_check::{self, Finding};
use crate::routes::Routes;
use topology::rates::{FLIT_BYTES, Flits, Rates, Vertex};
use topology::{Bytes, LlcId, Machine, NodeId};

/// A station, by its index in [`MachineModel::stations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StationId(pub u32);

impl StationId {
    /// Index in [`MachineModel::stations`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a station is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StationKind {
    /// Memory of a node.
    Controller(NodeId),
    /// One direction of a link.
    Link {
        /// Where it begins.
        from: Vertex,
        /// Where it ends.
        to: Vertex,
    },
    /// What joins a last-level cache to the rest of the machine.
    LlcPort(LlcId),
}

/// A resource that serves one unit after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// What it is.
    pub kind: StationKind,
    /// What it carries, in GB/s (10^9).
    pub gb_per_s: f64,
}

/// A machine with its rates.
#[derive(Clone, Debug)]
pub struct MachineModel {
    machine: Machine,
    rates: Rates,
    flits: Flits,
    stations: Vec<Station>,
    routes: Routes,
}

impl MachineModel {
    /// The model of a machine.
    ///
    /// # Errors
    /// The first thing that [`machine_check::check`] finds missing or impossible.
    pub fn new(machine: &Machine, rates: &Rates) -> Result<Self, ModelError> {
        let refused = |finding| ModelError { machine: machine.name.clone(), finding: Box::new(finding) };
        if let Some(finding) = machine_check::check(machine, rates).into_iter().find(Finding::refuses) {
            return Err(refused(finding));
        }
        let mut stations: Vec<Station> = machine
            .nodes
            .iter()
            .map(|node| Station {
                kind: StationKind::Controller(node.id),
                gb_per_s: rates.node_bandwidth_gb_per_s.value,
            })
            .collect();
        let first_link = stations.len() as u32;
        for link in &rates.links {
            let (from, to) = link.between.clone();
            let one = StationKind::Link { from: from.clone(), to: to.clone() };
            let other = StationKind::Link { from: to, to: from };
            stations.extend([one, other].map(|kind| Station { kind, gb_per_s: link.gb_per_s }));
        }
        if let Some(bandwidth) = &rates.llc_bandwidth_gb_per_s {
            let port = |llc: LlcId| Station { kind: StationKind::LlcPort(llc), gb_per_s: bandwidth.value };
            stations.extend(machine.llcs.iter().map(|llc| port(llc.id)));
        }
        let routes =
            Routes::new(machine, rates, first_link).map_err(|faults| refused(machine_check::no_routes(&faults)))?;
        let flits = rates.flits.as_ref().map_or_else(Flits::default, |flits| flits.value);
        Ok(Self { machine: machine.clone(), rates: rates.clone(), flits, stations, routes })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its rates.
    pub fn rates(&self) -> &Rates {
        &self.rates
    }

    /// What a line costs a link.
    pub fn flits(&self) -> Flits {
        self.flits
    }

    /// All stations.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    /// The controller of a node's memory.
    pub fn controller(&self, node: NodeId) -> Option<StationId> {
        self.index(node).map(|index| StationId(index as u32))
    }

    /// The port of a last-level cache, where ports are modelled.
    pub fn llc_port(&self, llc: Option<LlcId>) -> Option<StationId> {
        let kind = StationKind::LlcPort(llc?);
        self.stations.iter().position(|station| station.kind == kind).map(|index| StationId(index as u32))
    }

    /// Capacity of a last-level cache, where it is known.
    pub fn llc_size(&self, llc: Option<LlcId>) -> Option<Bytes> {
        self.machine.llcs.iter().find(|cache| Some(cache.id) == llc)?.size
    }

    /// Unloaded nanoseconds of a load by a CPU of `from` from memory of `to`.
    pub fn latency_ns(&self, from: NodeId, to: NodeId) -> f64 {
        match (self.index(from), self.index(to)) {
            (Some(from), Some(to)) => self.routes.latency_ns[from][to],
            _ => f64::INFINITY,
        }
    }

    /// Directed links from node to node, each with the nanoseconds of a flit on it.
    pub fn route(&self, from: NodeId, to: NodeId) -> &[(StationId, f64)] {
        match (self.index(from), self.index(to)) {
            (Some(from), Some(to)) => &self.routes.links[from][to],
            _ => &[],
        }
    }

    /// Links that end at a node: away from it, towards it, and the nanoseconds of a flit.
    pub fn direct_links(&self, node: NodeId) -> &[(StationId, StationId, f64)] {
        self.index(node).map_or(&[], |index| &self.routes.direct[index])
    }

    fn index(&self, node: NodeId) -> Option<usize> {
        self.machine.nodes.binary_search_by_key(&node, |node| node.id).ok()
    }
}

/// Nanoseconds that a link of this speed needs for a flit.
pub(crate) fn flit_ns(gb_per_s: f64) -> f64 {
    FLIT_BYTES / gb_per_s
}
