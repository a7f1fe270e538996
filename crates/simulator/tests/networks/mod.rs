//! Random networks with the shapes of real machines, and without.

use proptest::prelude::*;
use simulator::{Group, StationId};

/// Groups on up to this many stations.
pub(crate) fn networks(most_stations: u32, most_groups: usize) -> impl Strategy<Value = (usize, Vec<Group>)> {
    (1..=most_stations).prop_flat_map(move |stations| {
        (Just(stations as usize), prop::collection::vec(group(stations), 1..=most_groups))
    })
}

/// From hardly any load to twenty times too much, from no core time to nothing else, on one station
/// or nearly all.
pub(crate) fn group(stations: u32) -> impl Strategy<Value = Group> {
    let demands = prop::collection::btree_map(0..stations, 0.01..30.0, 0..=stations.min(9) as usize);
    let core_ns = prop_oneof![Just(0.0), 0.1..200.0];
    let lines = prop_oneof![Just(1.0), Just(10.0), 1.0..48.0];
    // A fraction of an actor is one that is there for part of the time.
    let actors = prop_oneof![Just(1.0), (1..65u32).prop_map(f64::from), 0.01..4.0];
    (actors, lines, 10.0..400.0, core_ns, demands).prop_map(|(actors, lines_in_flight, travel_ns, core_ns, demands)| {
        let demands: Vec<_> = demands.into_iter().map(|(station, ns)| (StationId(station), ns)).collect();
        let service: f64 = demands.iter().map(|(_, ns)| ns).sum();
        Group { actors, lines_in_flight, latency_ns: travel_ns + service, core_ns, demands }
    })
}
