//! Kinds of actors as the solvers read them: one row of demands after the other, no gaps, nothing
//! to allocate while solving.

use crate::solver::check;
use crate::{Group, SolveError, StationId};
use std::collections::BTreeMap;

/// A kind of actor, by its index in a [`Classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

impl ClassId {
    /// Index in the [`Classes`] that gave it.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Actors of one class that are at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Active {
    /// Their class.
    pub class: ClassId,
    /// How many; above 0.
    pub actors: f64,
}

/// Every kind of actor that a run may see. Two identical kinds are one class, so identical actors
/// have identical rates by construction.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    stations: usize,
    rows: Vec<Row>,
    demands: Vec<Demand>,
    known: BTreeMap<Vec<u64>, ClassId>,
}

/// What a class asks of one station.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) station: u32,
    pub(crate) ns: f64,
}

/// What a class is beside its demands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    first: u32,
    end: u32,
    /// Lines in flight.
    pub(crate) lines: f64,
    /// Unloaded latency without the service at the stations.
    pub(crate) travel_ns: f64,
    pub(crate) core_ns: f64,
    /// Lines in a nanosecond that an actor never exceeds.
    pub(crate) bound: f64,
    /// Its stations, see [`station_bit`].
    pub(crate) mask: u64,
}

/// A station's bit in a mask. Two stations may have the same one: a mask tells what is surely not
/// there.
pub(crate) fn station_bit(station: u32) -> u64 {
    1 << (station % 64)
}

impl Classes {
    /// No class yet, on this many stations.
    pub fn new(stations: usize) -> Self {
        Self { stations, ..Self::default() }
    }

    /// Takes a kind of actor in; its number of actors is left out. The order of its demands does
    /// not matter.
    ///
    /// # Errors
    /// The group holds an impossible value or names a station that is not there.
    pub fn add(&mut self, group: &Group) -> Result<ClassId, SolveError> {
        check(self.rows.len(), group, self.stations)?;
        let demands = in_order(&group.demands);
        let key = key(group, &demands);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let id = ClassId(self.rows.len() as u32);
        let first = self.demands.len() as u32;
        self.demands.extend(demands.iter().map(|&(station, ns)| Demand { station: station.0, ns }));
        let service: f64 = demands.iter().map(|(_, ns)| ns).sum();
        self.rows.push(Row {
            first,
            end: self.demands.len() as u32,
            lines: group.lines_in_flight,
            travel_ns: group.latency_ns - service,
            core_ns: group.core_ns,
            bound: group.bound(),
            mask: demands.iter().fold(0, |mask, (station, _)| mask | station_bit(station.0)),
        });
        self.known.insert(key, id);
        Ok(id)
    }

    /// Stations of the machine.
    pub fn stations(&self) -> usize {
        self.stations
    }

    /// Classes so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Share of time that each station serves at these rates.
    pub fn utilisation(&self, active: &[Active], lines_per_ns: &[f64]) -> Vec<f64> {
        let mut utilisation = vec![0.0; self.stations];
        for (group, rate) in active.iter().zip(lines_per_ns) {
            for demand in self.demands(group.class) {
                utilisation[demand.station as usize] += group.actors * rate * demand.ns;
            }
        }
        utilisation
    }

    pub(crate) fn row(&self, class: ClassId) -> &Row {
        &self.rows[class.index()]
    }

    pub(crate) fn demands(&self, class: ClassId) -> &[Demand] {
        let row = self.row(class);
        &self.demands[row.first as usize..row.end as usize]
    }
}

/// By station, each once, zeros left out.
fn in_order(demands: &[(StationId, f64)]) -> Vec<(StationId, f64)> {
    let mut by_station = BTreeMap::new();
    for &(station, ns) in demands.iter().filter(|(_, ns)| *ns > 0.0) {
        *by_station.entry(station).or_insert(0.0) += ns;
    }
    by_station.into_iter().collect()
}

/// Equal where the kinds are equal to the last bit.
fn key(group: &Group, demands: &[(StationId, f64)]) -> Vec<u64> {
    let own = [group.lines_in_flight, group.latency_ns, group.core_ns].map(f64::to_bits);
    own.into_iter().chain(demands.iter().flat_map(|(station, ns)| [u64::from(station.0), ns.to_bits()])).collect()
}

/// `groups` as classes: identical ones are one class with the sum of their actors, in an order that
/// the order of `groups` does not change.
///
/// Returns the classes, what is active, and the place of each group in what is active.
///
/// # Errors
/// A group holds an impossible value.
pub fn merge(stations: usize, groups: &[Group]) -> Result<(Classes, Vec<Active>, Vec<usize>), SolveError> {
    for (index, group) in groups.iter().enumerate() {
        check(index, group, stations)?;
    }
    let mut order: Vec<_> = groups.iter().map(|group| key(group, &in_order(&group.demands))).zip(0..).collect();
    order.sort_unstable_by(|(one, i), (other, j)| {
        one.cmp(other).then(groups[*i].actors.total_cmp(&groups[*j].actors)).then(i.cmp(j))
    });
    let mut classes = Classes::new(stations);
    let mut active: Vec<Active> = Vec::with_capacity(groups.len());
    let mut place = vec![0; groups.len()];
    for (_, index) in order {
        let class = classes.add(&groups[index])?;
        match active.last_mut() {
            Some(last) if last.class == class => last.actors += groups[index].actors,
            _ => active.push(Active { class, actors: groups[index].actors }),
        }
        place[index] = active.len() - 1;
    }
    Ok((classes, active, place))
}
