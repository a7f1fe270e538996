//! The two solvers as the prototype had them: every class against every station, a damped fixed
//! point that starts from its last result. Slow and plain: what the ones in use must agree with,
//! and what they are timed against.

use simulator::Group;

/// Approximate MVA by damped steps.
#[derive(Default)]
pub(crate) struct Dense {
    demands: Vec<f64>,
    queues: Vec<f64>,
    cores: Vec<f64>,
    rates: Vec<f64>,
    totals: Vec<f64>,
}

impl Dense {
    /// The rates of `groups`; `None` after `most_iterations` steps.
    pub(crate) fn solve(
        &mut self,
        stations: usize,
        groups: &[Group],
        tolerance: f64,
        most_iterations: u32,
    ) -> Option<&[f64]> {
        self.totals.clear();
        self.totals.resize(stations, 0.0);
        self.queues.clear();
        self.demands.clear();
        self.demands.resize(groups.len() * stations, 0.0);
        for (index, group) in groups.iter().enumerate() {
            self.change(index, group);
        }
        self.rates = groups.iter().map(Group::bound).collect();
        self.cores = groups.iter().map(|group| group.bound() * group.core_ns).collect();
        let rows = self.demands.chunks_exact(stations).zip(&self.rates);
        self.queues = rows.flat_map(|(row, rate)| row.iter().map(move |ns| ns * rate)).collect();
        self.again(groups, tolerance, most_iterations)
    }

    /// Puts another kind of actor in a group's place.
    pub(crate) fn change(&mut self, index: usize, group: &Group) {
        let stations = self.totals.len();
        let row = &mut self.demands[index * stations..][..stations];
        row.fill(0.0);
        for &(station, ns) in &group.demands {
            row[station.index()] = ns;
        }
        // A queue that is no longer fed would halve for a thousand steps, each a change of one
        // half; a new one is one actor's alone.
        let Some(queues) = self.queues.get_mut(index * stations..(index + 1) * stations) else { return };
        for (queue, ns) in queues.iter_mut().zip(&*row) {
            if *ns == 0.0 || *queue == 0.0 {
                *queue = self.rates[index] * ns;
            }
        }
        self.cores[index] = self.rates[index] * group.core_ns;
    }

    /// The rates after changes, from the last result on.
    pub(crate) fn again(&mut self, groups: &[Group], tolerance: f64, most_iterations: u32) -> Option<&[f64]> {
        for _ in 0..most_iterations {
            self.totals.fill(0.0);
            for (group, queues) in groups.iter().zip(self.queues.chunks_exact(self.totals.len())) {
                for (total, queue) in self.totals.iter_mut().zip(queues) {
                    *total += group.actors * queue;
                }
            }
            let mut change: f64 = 0.0;
            for (index, group) in groups.iter().enumerate() {
                change = change.max(self.step(index, group));
            }
            if change < tolerance {
                return Some(&self.rates);
            }
        }
        None
    }

    fn step(&mut self, index: usize, group: &Group) -> f64 {
        let totals = &self.totals;
        let row = &self.demands[index * totals.len()..][..totals.len()];
        let queues = &mut self.queues[index * totals.len()..][..totals.len()];
        let lines = group.lines_in_flight;
        let core_ns = group.core_ns * (1.0 + self.cores[index] * (1.0 - 1.0 / lines));
        let residence = |ns: f64, total: f64, own: f64| ns * (1.0 + (total - own / lines).max(0.0));
        let service: f64 = row.iter().sum();
        let stay: f64 =
            row.iter().zip(totals).zip(&*queues).map(|((ns, total), own)| residence(*ns, *total, *own)).sum();
        let rate = lines / (group.latency_ns - service + core_ns + stay);
        let mut change = damped(&mut self.rates[index], rate);
        change = change.max(damped(&mut self.cores[index], rate * core_ns));
        for ((ns, total), own) in row.iter().zip(totals).zip(queues) {
            let new = rate * residence(*ns, *total, *own);
            change = change.max(damped(own, new));
        }
        change
    }
}

fn damped(value: &mut f64, new: f64) -> f64 {
    let next = *value + 0.5 * (new - *value);
    let change = if next > 0.0 { (next - *value).abs() / next } else { 0.0 };
    *value = next;
    change
}

/// Max-min fair rates: all loads summed afresh in each round.
pub(crate) fn max_min(stations: usize, groups: &[Group]) -> Vec<f64> {
    let mut rates = vec![0.0; groups.len()];
    let mut left = vec![1.0; stations];
    let mut rising: Vec<usize> = (0..groups.len()).collect();
    while !rising.is_empty() {
        let mut load = vec![0.0; stations];
        for &index in &rising {
            for &(station, ns) in &groups[index].demands {
                load[station.index()] += groups[index].actors * ns;
            }
        }
        let by_station = (0..stations).filter(|&at| load[at] > 0.0).map(|at| left[at] / load[at]);
        let by_bound = rising.iter().map(|&index| groups[index].bound() - rates[index]);
        let rise = by_station.chain(by_bound).fold(f64::INFINITY, f64::min).max(0.0);
        for &index in &rising {
            rates[index] += rise;
        }
        for (left, load) in left.iter_mut().zip(&load) {
            *left -= rise * load;
        }
        rising.retain(|&index| {
            let group = &groups[index];
            let at_bound = group.bound() - rates[index] <= 1e-12 * group.bound();
            !at_bound && group.demands.iter().all(|&(station, ns)| ns == 0.0 || left[station.index()] > 1e-12)
        });
    }
    rates
}
