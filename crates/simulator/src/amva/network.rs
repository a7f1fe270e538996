//! The unknowns of the queueing network and the two ways to step towards them.

use super::elimination;
use crate::{Active, Classes};

/// Weight of the new value in a step of the fixed point.
const DAMPING: f64 = 0.5;

/// A step lowers no rate by more than this share of it: further out a straight line is no guide.
const MOST_FALL: f64 = 0.9;

/// A step takes at most this share of the capacity that a station has left.
const MOST_ROOM: f64 = 0.9;

/// Share of a station's capacity that the first guess leaves free, where nothing is known of it.
const ROOM_AT_FIRST: f64 = 0.1;

/// Where a station's own number is not known yet.
const NOWHERE: u32 = u32::MAX;

/// What one class asks of one station, and what Newton's method needs to know about it.
#[derive(Clone, Copy, Debug)]
struct Visit {
    /// The station, by its number among those in use.
    station: u32,
    /// `D`, nanoseconds.
    ns: f64,
    /// `1 / (1 + x D / C)`: what the queue is to a line that does not count itself.
    share: f64,
    /// Change of the queue `q` with the rate.
    by_rate: f64,
    /// Change of the queue `q` with all that waits at the station.
    by_queue: f64,
}

/// One class at work.
#[derive(Clone, Copy, Debug)]
struct Member {
    first: u32,
    end: u32,
    actors: f64,
    lines: f64,
    travel_ns: f64,
    core_ns: f64,
    bound: f64,
    /// `F`: lines in flight at these rates and queues less those that there are.
    surplus: f64,
    /// Its change with the rate.
    slope: f64,
}

/// Buffers that grow once, and the last result, where the next search starts.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    members: Vec<Member>,
    visits: Vec<Visit>,
    rates: Vec<f64>,
    /// By number among the stations in use: lines there.
    queues: Vec<f64>,
    /// Their changes in a step.
    changes: Vec<f64>,
    /// Of those stations, what the step at hand needs summed up.
    loads: Vec<f64>,
    /// `1 / (1 + Q)` where all wait: capacity that is left.
    room: Vec<f64>,
    /// Station of each number, and number of each station.
    stations: Vec<u32>,
    numbers: Vec<u32>,
    matrix: Vec<f64>,
    steps: Vec<f64>,
    /// By number of the station, then class: actors x change with the rate.
    by_class: Vec<f64>,
    last_queues: Vec<f64>,
    last_rates: Vec<f64>,
}

impl Network {
    /// Takes up what is at work, at the last result or, where a class is new, at a guess.
    pub(super) fn load(&mut self, classes: &Classes, active: &[Active]) {
        self.members.clear();
        self.visits.clear();
        self.rates.clear();
        self.queues.clear();
        self.stations.clear();
        self.numbers.clear();
        self.numbers.resize(classes.stations(), NOWHERE);
        self.last_queues.resize(classes.stations(), 0.0);
        self.last_rates.resize(classes.len(), 0.0);
        for group in active {
            let row = classes.row(group.class);
            let first = self.visits.len() as u32;
            for demand in classes.demands(group.class) {
                let number = &mut self.numbers[demand.station as usize];
                if *number == NOWHERE {
                    *number = self.stations.len() as u32;
                    self.stations.push(demand.station);
                    self.queues.push(self.last_queues[demand.station as usize]);
                }
                self.visits.push(Visit { station: *number, ns: demand.ns, share: 1.0, by_rate: 0.0, by_queue: 0.0 });
            }
            self.members.push(Member {
                first,
                end: self.visits.len() as u32,
                actors: group.actors,
                lines: row.lines,
                travel_ns: row.travel_ns,
                core_ns: row.core_ns,
                bound: row.bound,
                surplus: 0.0,
                slope: 0.0,
            });
        }
        for of_stations in [&mut self.loads, &mut self.changes, &mut self.room] {
            of_stations.clear();
            of_stations.resize(self.stations.len(), 0.0);
        }
        self.guess(active);
    }

    pub(super) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// Remembers the result for the next search.
    pub(super) fn keep(&mut self, active: &[Active]) {
        for (station, queue) in self.stations.iter().zip(&self.queues) {
            self.last_queues[*station as usize] = *queue;
        }
        for (group, rate) in active.iter().zip(&self.rates) {
            self.last_rates[group.class.index()] = *rate;
        }
    }

    pub(super) fn forget(&mut self) {
        self.last_queues.clear();
        self.last_rates.clear();
    }

    /// Rates: the last ones, or those that the last queues leave; all lowered so far that no
    /// station is over its capacity.
    fn guess(&mut self, active: &[Active]) {
        for (group, member) in active.iter().zip(&self.members) {
            let last = self.last_rates[group.class.index()];
            let visits = &self.visits[member.first as usize..member.end as usize];
            let rate = if last > 0.0 {
                last
            } else {
                let waiting: f64 = visits.iter().map(|visit| visit.ns * self.queues[visit.station as usize]).sum();
                (member.lines / (member.lines / member.bound + waiting)).min(member.bound)
            };
            self.rates.push(rate);
            for visit in visits {
                self.loads[visit.station as usize] += member.actors * rate * visit.ns;
            }
        }
        for (load, queue) in self.loads.iter_mut().zip(&self.queues) {
            let room = (1.0 / (1.0 + queue)).min(ROOM_AT_FIRST);
            *load = if *load > 1.0 - 0.3 * room { *load / (1.0 - room) } else { 1.0 };
        }
        for (member, rate) in self.members.iter().zip(&mut self.rates) {
            let visits = &self.visits[member.first as usize..member.end as usize];
            *rate /= visits.iter().map(|visit| self.loads[visit.station as usize]).fold(1.0, f64::max);
        }
    }

    /// One step of Newton's method on the rates, the queues in closed form; the largest relative
    /// change. `None` where it cannot be made.
    pub(super) fn newton(&mut self) -> Option<f64> {
        self.meet()?;
        self.look();
        if self.is_by_class() {
            self.factor_by_class()?
        } else {
            self.factor_by_station()?
        }
        self.steps();
        let part = self.part();
        let mut change: f64 = 0.0;
        for ((member, rate), by) in self.members.iter().zip(&mut self.rates).zip(&self.steps) {
            let next = (*rate + part * by).min(member.bound);
            // The core's queue changes faster than the rate where the core is nearly always at
            // work.
            change = change.max((next - *rate).abs() / next * member.core_queue(next));
            *rate = next;
        }
        // A queue of one class is x D (1 + Q) / (1 + x D / C): it changes by no more than the rate
        // and the whole queue together.
        let of_queues = self.loads.iter().zip(&self.room).map(|(load, room)| load.abs() / room).fold(0.0, f64::max);
        let change = change + of_queues;
        change.is_finite().then_some(change)
    }

    /// Share of the step that may be made. A queue grows without end as its station fills: no step
    /// takes more than most of the room.
    fn part(&mut self) -> f64 {
        let mut part: f64 = 1.0;
        self.loads.fill(0.0);
        for ((member, rate), by) in self.members.iter().zip(&self.rates).zip(&self.steps) {
            if *by < 0.0 {
                part = part.min(MOST_FALL * rate / -by);
            }
            let by = member.actors * by;
            for visit in &self.visits[member.first as usize..member.end as usize] {
                self.loads[visit.station as usize] += by * visit.ns * visit.share * visit.share;
            }
        }
        let filling = self.loads.iter().zip(&self.room).filter(|(load, _)| **load > 0.0);
        filling.map(|(load, room)| MOST_ROOM * room / load).fold(part, f64::min)
    }

    fn is_by_class(&self) -> bool {
        self.members.len() <= self.queues.len()
    }

    /// The whole step of each rate.
    fn steps(&mut self) {
        self.steps.clear();
        if self.is_by_class() {
            self.steps.extend(self.members.iter().map(|member| -member.surplus));
            elimination::solve(&self.matrix, &mut self.steps);
            return;
        }
        self.changes.fill(0.0);
        for member in &self.members {
            let weight = member.actors / member.slope * member.surplus;
            for visit in &self.visits[member.first as usize..member.end as usize] {
                self.changes[visit.station as usize] -= weight * visit.by_rate;
            }
        }
        elimination::solve(&self.matrix, &mut self.changes);
        for member in &self.members {
            let visits = &self.visits[member.first as usize..member.end as usize];
            let queues: f64 = visits.iter().map(|visit| visit.by_queue * self.changes[visit.station as usize]).sum();
            self.steps.push(-(member.surplus + queues) / member.slope);
        }
    }

    /// What waits at each station at these rates: `Q = sum of n q` is linear in `Q`. `None` where a
    /// station is over its capacity.
    fn meet(&mut self) -> Option<()> {
        self.room.fill(1.0);
        let mut is_whole = true;
        for (member, &rate) in self.members.iter().zip(&self.rates) {
            is_whole &= member.actors * member.lines >= 1.0;
            let per_line = rate / member.lines;
            for visit in &mut self.visits[member.first as usize..member.end as usize] {
                visit.share = 1.0 / (1.0 + per_line * visit.ns);
                self.room[visit.station as usize] -= member.actors * rate * visit.ns * visit.share;
            }
        }
        for (queue, room) in self.queues.iter_mut().zip(&self.room) {
            if *room <= 0.0 {
                return None;
            }
            *queue = 1.0 / room - 1.0;
        }
        if is_whole { Some(()) } else { self.meet_in_part() }
    }

    /// The same where an actor is there for a small part of the time only (a mean over placements):
    /// it may find less than its own share waiting, and then waits for no one. Each round is exact
    /// for those that wait; there are few.
    fn meet_in_part(&mut self) -> Option<()> {
        for _ in 0..=self.members.len() {
            self.room.fill(1.0);
            self.loads.fill(0.0);
            for (member, &rate) in self.members.iter().zip(&self.rates) {
                for visit in &self.visits[member.first as usize..member.end as usize] {
                    let station = visit.station as usize;
                    let alone = rate * visit.ns;
                    if visit.share * (1.0 + self.queues[station]) < 1.0 {
                        self.loads[station] += member.actors * alone;
                    } else {
                        self.room[station] -= member.actors * alone * visit.share;
                    }
                }
            }
            let mut change: f64 = 0.0;
            for ((queue, room), load) in self.queues.iter_mut().zip(&self.room).zip(&self.loads) {
                let next = (1.0 - room + load) / room;
                change = change.max((next - *queue).abs());
                *queue = next;
            }
            if change == 0.0 {
                break;
            }
        }
        self.room.iter().all(|room| *room > 0.0).then_some(())
    }

    /// Lines in flight that these rates and queues make, and how they change.
    fn look(&mut self) {
        for (member, &rate) in self.members.iter_mut().zip(&self.rates) {
            let core = member.core_queue(rate);
            let mut surplus = rate * (member.travel_ns + member.core_ns * core) - member.lines;
            let mut slope = member.travel_ns + member.core_ns * core * core;
            for visit in &mut self.visits[member.first as usize..member.end as usize] {
                let ahead = visit.share * (1.0 + self.queues[visit.station as usize]);
                let alone = rate * visit.ns;
                if ahead < 1.0 {
                    visit.by_rate = visit.ns;
                    visit.by_queue = 0.0;
                    surplus += alone;
                } else {
                    visit.by_rate = visit.ns * ahead * visit.share;
                    visit.by_queue = alone * visit.share;
                    surplus += alone * ahead;
                }
                slope += visit.by_rate;
            }
            member.surplus = surplus;
            member.slope = slope;
        }
    }

    /// The system with one equation for each class, in the changes of the rates.
    fn factor_by_class(&mut self) -> Option<()> {
        let count = self.members.len();
        self.by_class.clear();
        self.by_class.resize(self.queues.len() * count, 0.0);
        for (index, member) in self.members.iter().enumerate() {
            for visit in &self.visits[member.first as usize..member.end as usize] {
                let station = visit.station as usize;
                self.by_class[station * count + index] = member.actors * visit.by_rate / self.room[station];
            }
        }
        self.matrix.clear();
        self.matrix.resize(count * count, 0.0);
        for (index, (member, row)) in self.members.iter().zip(self.matrix.chunks_exact_mut(count)).enumerate() {
            for visit in &self.visits[member.first as usize..member.end as usize] {
                let others = &self.by_class[visit.station as usize * count..][..count];
                for (cell, other) in row.iter_mut().zip(others) {
                    *cell += visit.by_queue * other;
                }
            }
            row[index] += member.slope;
        }
        elimination::factor(&mut self.matrix, count)
    }

    /// The system with one equation for each station, in the changes of the queues.
    fn factor_by_station(&mut self) -> Option<()> {
        let count = self.queues.len();
        self.matrix.clear();
        self.matrix.resize(count * count, 0.0);
        for (station, room) in self.room.iter().enumerate() {
            self.matrix[station * count + station] = *room;
        }
        for member in &self.members {
            let visits = &self.visits[member.first as usize..member.end as usize];
            let weight = member.actors / member.slope;
            for visit in visits {
                let by_rate = weight * visit.by_rate;
                let row = &mut self.matrix[visit.station as usize * count..][..count];
                for other in visits {
                    row[other.station as usize] += by_rate * other.by_queue;
                }
            }
        }
        elimination::factor(&mut self.matrix, count)
    }

    /// One damped step of the fixed point; the largest relative change of a rate or a queue.
    pub(super) fn damped(&mut self) -> f64 {
        self.loads.fill(0.0);
        for (member, &rate) in self.members.iter().zip(&self.rates) {
            for visit in &mut self.visits[member.first as usize..member.end as usize] {
                visit.share = 1.0 / (1.0 + rate / member.lines * visit.ns);
                let ahead = visit.share * (1.0 + self.queues[visit.station as usize]);
                self.loads[visit.station as usize] += member.actors * rate * visit.ns * ahead.max(1.0);
            }
        }
        self.look();
        let mut change: f64 = 0.0;
        for (member, rate) in self.members.iter().zip(&mut self.rates) {
            let next = (*rate - member.surplus / member.slope).clamp(*rate * (1.0 - MOST_FALL), member.bound);
            let next = *rate + DAMPING * (next - *rate);
            change = change.max((next - *rate).abs() / next * member.core_queue(next));
            *rate = next;
        }
        let mut of_queues: f64 = 0.0;
        for (queue, arrivals) in self.queues.iter_mut().zip(&self.loads) {
            let next = *queue + DAMPING * (arrivals - *queue);
            of_queues = of_queues.max((next - *queue).abs() / (1.0 + next));
            *queue = next;
        }
        change + of_queues
    }
}

impl Member {
    /// `1 / (1 - x c (1 - 1/C))`: how much longer a line stays at the actor's core because of its
    /// other lines. At most `C`.
    fn core_queue(&self, rate: f64) -> f64 {
        1.0 / (1.0 - rate * self.core_ns * (1.0 - 1.0 / self.lines))
    }
}
