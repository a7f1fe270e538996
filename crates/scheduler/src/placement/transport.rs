//! The transportation problem: goods from sources to destinations of limited capacity at the least
//! cost.
//!
//! Successive shortest paths (Ahuja, Magnanti, Orlin, *Network Flows*, 1993, section 9.7), from a
//! start in which every source has filled its own cheapest destinations. The result is exact.

/// What goes from each source to each destination. `capacity` must hold the sum of `supply`.
pub(super) fn cheapest(supply: &[u64], capacity: &[u64], cost: &[Vec<i64>]) -> Vec<Vec<u64>> {
    let mut network = Network::new(supply, capacity, cost);
    network.fill_cheapest();
    for source in 0..supply.len() {
        while network.waiting[source] > 0 && network.send(source) {}
    }
    network.sent
}

struct Network<'a> {
    cost: &'a [Vec<i64>],
    /// By source: not sent yet.
    waiting: Vec<u64>,
    /// By destination: not taken yet.
    room: Vec<u64>,
    /// By source and destination.
    sent: Vec<Vec<u64>>,
    /// Prices of sources, then of destinations, then of the end: with them no way that is left
    /// costs less than nothing.
    price: Vec<i64>,
}

const FAR: i64 = i64::MAX / 4;

impl<'a> Network<'a> {
    fn new(supply: &[u64], capacity: &[u64], cost: &'a [Vec<i64>]) -> Self {
        let cheapest = |row: &Vec<i64>| -row.iter().copied().min().unwrap_or(0);
        let mut price: Vec<i64> = cost.iter().map(cheapest).collect();
        price.resize(supply.len() + capacity.len() + 1, 0);
        let sent = vec![vec![0; capacity.len()]; supply.len()];
        Self { cost, waiting: supply.to_vec(), room: capacity.to_vec(), sent, price }
    }

    fn fill_cheapest(&mut self) {
        for source in 0..self.waiting.len() {
            for destination in 0..self.room.len() {
                if self.reduced(source, destination) == 0 {
                    let amount = self.waiting[source].min(self.room[destination]);
                    self.waiting[source] -= amount;
                    self.room[destination] -= amount;
                    self.sent[source][destination] += amount;
                }
            }
        }
    }

    /// Cost of a way with the prices of its ends.
    fn reduced(&self, source: usize, destination: usize) -> i64 {
        self.cost[source][destination] + self.price[source] - self.price[self.waiting.len() + destination]
    }

    /// Sends as much from `source` as the cheapest way takes, which may push aside what others
    /// sent. False where no room is left.
    fn send(&mut self, source: usize) -> bool {
        let sources = self.waiting.len();
        let end = self.price.len() - 1;
        let (distance, before) = self.distances(source);
        if distance[end] >= FAR {
            return false;
        }
        let mut way = Vec::new();
        let mut at = before[end];
        let mut amount = self.waiting[source].min(self.room[at - sources]);
        while at != source {
            let from = before[at];
            way.push((from, at));
            if from >= sources {
                amount = amount.min(self.sent[at][from - sources]);
            }
            at = from;
        }
        self.waiting[source] -= amount;
        self.room[before[end] - sources] -= amount;
        for (from, to) in way {
            match from < sources {
                true => self.sent[from][to - sources] += amount,
                false => self.sent[to][from - sources] -= amount,
            }
        }
        let farthest = distance[end];
        for (price, distance) in self.price.iter_mut().zip(&distance) {
            *price += *distance.min(&farthest);
        }
        true
    }

    /// Distances from `source` to everything, and the place before each on the shortest way
    /// (Dijkstra, dense).
    fn distances(&self, source: usize) -> (Vec<i64>, Vec<usize>) {
        let (sources, end) = (self.waiting.len(), self.price.len() - 1);
        let mut distance = vec![FAR; end + 1];
        let mut before = vec![source; end + 1];
        let mut done = vec![false; end + 1];
        distance[source] = 0;
        while let Some(at) = (0..=end).filter(|&at| !done[at] && distance[at] < FAR).min_by_key(|&at| distance[at]) {
            done[at] = true;
            if at == end {
                break;
            }
            let mut reach = |to: usize, step: i64| {
                if !done[to] && distance[at] + step < distance[to] {
                    (distance[to], before[to]) = (distance[at] + step, at);
                }
            };
            if at < sources {
                (0..self.room.len()).for_each(|to| reach(sources + to, self.reduced(at, to)));
                continue;
            }
            let destination = at - sources;
            if self.room[destination] > 0 {
                reach(end, self.price[at] - self.price[end]);
            }
            for from in (0..sources).filter(|&from| self.sent[from][destination] > 0) {
                reach(from, -self.reduced(from, destination));
            }
        }
        (distance, before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_least_to_move_makes_room() {
        // Both fit destination 0 (12) in part only: 20 in all, 12 there. Source 1 pays 1 each to go
        // to 1, source 0 pays 5.
        let cost = [vec![0, 5], vec![0, 1]];
        assert_eq!(cheapest(&[10, 10], &[12, 20], &cost), [[10, 0], [2, 8]]);
        // 0 -> 1 -> 2 is a chain: destination 1 is full with what source 1 has there, which moves
        // on.
        let cost = [vec![0, 1, 9], vec![9, 0, 1]];
        assert_eq!(cheapest(&[10, 10], &[5, 10, 10], &cost), [[5, 5, 0], [0, 5, 5]]);
    }

    #[test]
    fn nothing_is_sent_beyond_the_room() {
        assert_eq!(cheapest(&[3], &[2], &[vec![0]]), [[2]]);
    }
}
