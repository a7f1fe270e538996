//! Identical actors: cores that do the same kind of work on the same mix of memory.

use crate::{MachineModel, Profile, StationId};
use serde::{Deserialize, Serialize};
use topology::rates::LINE_BYTES;
use topology::{LlcId, NodeId};

/// One core at work: where it is, how many of its hardware threads are busy, and whose memory it
/// uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoreWork {
    /// Node of the core.
    pub node: NodeId,
    /// Its last-level cache, where the machine has several on a node.
    pub llc: Option<LlcId>,
    /// Busy hardware threads: 1 or 2. They share the core's lines in flight.
    pub threads: u32,
    /// Share of its memory traffic that goes to each node; shares sum to 1. By node, each once.
    pub memory: Vec<(NodeId, f64)>,
}

/// Identical actors, as the solvers see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// How many. Not whole where a count is an average over placements.
    pub actors: f64,
    /// `C`: lines that one actor keeps in flight.
    pub lines_in_flight: f64,
    /// `L`: unloaded nanoseconds of one line, the service at all stations included, averaged over
    /// the memory mix.
    pub latency_ns: f64,
    /// `c`: nanoseconds that the actor's own core needs for a line.
    pub core_ns: f64,
    /// `D`: nanoseconds of service that one line needs at each station, by station, each once;
    /// zeros left out.
    pub demands: Vec<(StationId, f64)>,
}

impl Group {
    /// Lines in a nanosecond that an actor cannot exceed whatever the others do: `min(C / (L + c),
    /// 1 / c)`.
    pub fn bound(&self) -> f64 {
        let by_latency = self.lines_in_flight / (self.latency_ns + self.core_ns);
        if self.core_ns > 0.0 { by_latency.min(1.0 / self.core_ns) } else { by_latency }
    }
}

impl MachineModel {
    /// What `actors` cores that all do `work` with this profile ask of the stations.
    pub fn group(&self, profile: &Profile, work: &CoreWork, actors: f64) -> Group {
        let rates = self.rates();
        let mut demand = vec![0.0; self.stations().len()];
        let mut latency_ns = 0.0;
        let (read, write) = (1.0 - profile.write_share, profile.write_share);
        let flits = self.flits();
        for &(memory, share) in &work.memory {
            latency_ns += share * self.latency_ns(work.node, memory);
            if let Some(controller) = self.controller(memory) {
                demand[controller.index()] += share * LINE_BYTES / rates.node_bandwidth_gb_per_s.value;
            }
            if memory == work.node {
                for &(out, back, flit_ns) in self.direct_links(memory) {
                    demand[out.index()] += share * read * flits.local_read_snoop.0 * flit_ns;
                    demand[back.index()] += share * read * flits.local_read_snoop.1 * flit_ns;
                }
                continue;
            }
            for &(link, flit_ns) in self.route(work.node, memory) {
                let towards = read * flits.remote_read.0 + write * flits.remote_write.0;
                demand[link.index()] += share * towards * flit_ns;
            }
            for &(link, flit_ns) in self.route(memory, work.node) {
                let back = read * flits.remote_read.1 + write * flits.remote_write.1;
                demand[link.index()] += share * back * flit_ns;
            }
        }
        if let (Some(port), Some(bandwidth)) = (self.llc_port(work.llc), &rates.llc_bandwidth_gb_per_s) {
            demand[port.index()] += LINE_BYTES / bandwidth.value;
        }
        let smt_yield = if work.threads > 1 { rates.smt_yield.as_ref().map_or(1.0, |smt| smt.value) } else { 1.0 };
        let demands =
            demand.iter().enumerate().filter(|(_, ns)| **ns > 0.0).map(|(index, &ns)| (StationId(index as u32), ns));
        let demands: Vec<_> = demands.collect();
        Group {
            actors,
            // What a thread keeps in flight, from both hardware threads of a core, as far as the
            // core's buffers go.
            lines_in_flight: (profile.lines_in_flight * f64::from(work.threads))
                .min(rates.lines_in_flight_per_core.value),
            // Where a station is so slow that its service alone is longer than the stated latency,
            // the service is the latency.
            latency_ns: latency_ns.max(demands.iter().map(|(_, ns)| ns).sum()),
            core_ns: profile.core_ns_per_line / smt_yield,
            demands,
        }
    }
}
