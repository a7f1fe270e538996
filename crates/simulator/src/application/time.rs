//! The time of a run.

use super::BusyCores;
use crate::workload::{Application, Class, MemoryWork};
use crate::{CoreWork, Group, MachineModel, RateSolver, SolveError};
use serde::{Deserialize, Serialize};
use topology::rates::Way;

/// Steps after which the share of time spent waiting is taken as found; each step shrinks its error
/// at least by half.
const WAIT_STEPS: u32 = 60;

/// The processes (or threads) of a run and where they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Team {
    /// Processes or threads over all VMs.
    pub processes: u32,
    /// Busy cores, as means over the placements that happen.
    pub busy: BusyCores,
    /// Busy cores, were each process given the best core: what each kind of core does, and how many
    /// there are.
    pub works: Vec<(CoreWork, f64)>,
    /// Share of the machine's last-level caches that the processes' nodes have.
    pub llc_share: f64,
    /// Whether it runs in VMs.
    pub is_virtual: bool,
    /// Where the other VMs are that a process exchanges messages with.
    pub others: OtherVms,
}

/// The VMs that a process exchanges messages with, by the way to them; none where all processes
/// share a machine or a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OtherVms {
    /// On the same virtual switch.
    pub on_switch: f64,
    /// On another one, behind its uplink.
    pub over_uplinks: f64,
}

impl OtherVms {
    /// Of one of `vms` VMs on `switches` switches, VM i on switch i modulo `switches`; the mean
    /// over the VMs. 4 VMs on 2 switches: 1 beside it, 2 behind uplinks.
    pub fn of(vms: u32, switches: u32) -> Self {
        let switches = switches.clamp(1, vms.max(1));
        let on = |switch: u32| f64::from(vms / switches + u32::from(switch < vms % switches));
        let beside: f64 = (0..switches).map(|switch| on(switch) * (on(switch) - 1.0)).sum();
        let on_switch = beside / f64::from(vms.max(1));
        Self { on_switch, over_uplinks: f64::from(vms.saturating_sub(1)) - on_switch }
    }

    fn is_none(self) -> bool {
        self.on_switch + self.over_uplinks <= 0.0
    }
}

impl Team {
    /// Share of the memory traffic that leaves its node, if all cores have the same.
    pub fn remote_share(&self) -> f64 {
        let of = |work: &CoreWork| -> f64 {
            let remote = work.memory.iter().filter(|(node, _)| *node != work.node);
            remote.fold(0.0, |all, (_, share)| all + share)
        };
        let cores: f64 = self.works.iter().map(|(_, cores)| cores).sum();
        self.works.iter().fold(0.0, |all, (work, cores)| all + cores * of(work)) / cores.max(1.0)
    }
}

/// Where the time of a run goes; all in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// One thread works, the others wait.
    pub serial_s: f64,
    /// All work, in caches.
    pub compute_s: f64,
    /// All work, in memory.
    pub memory_s: f64,
    /// Waits on messages.
    pub waits_s: f64,
}

impl Time {
    /// From start to end.
    pub fn seconds(&self) -> f64 {
        self.serial_s + self.compute_s + self.memory_s + self.waits_s
    }
}

/// Time of an application on a machine.
///
/// # Errors
/// The rates of its memory traffic cannot be computed.
pub fn time(
    application: &Application,
    model: &MachineModel,
    team: &Team,
    solver: &mut dyn RateSolver,
) -> Result<Time, SolveError> {
    let overhead = application.virtual_overhead.as_ref().filter(|_| team.is_virtual);
    let prolonged = 1.0 + overhead.map_or(0.0, |overhead| overhead.value);
    let waits_s = waits(application, model, team);
    let serial_s = prolonged * application.serial_s.as_ref().map_or(0.0, |serial| serial.value);
    let memory_s = match &application.memory {
        Some(memory) => prolonged * memory_seconds(application.class, memory, model, team, solver)?,
        None => 0.0,
    };
    let work_s = prolonged * application.compute_core_s.as_ref().map_or(0.0, |compute| compute.value);
    let compute_s = compute_seconds(work_s, team.busy, smt_yield(model), memory_s, waits_s);
    Ok(Time { serial_s, compute_s, memory_s, waits_s })
}

/// Seconds that each process waits on messages; none on a machine whose network is not known.
fn waits(application: &Application, model: &MachineModel, team: &Team) -> f64 {
    let Some((messages, network)) = application.messages.as_ref().zip(model.rates().network.as_ref()) else {
        return 0.0;
    };
    if team.others.is_none() {
        return 0.0;
    }
    let growth = (f64::from(team.processes) / f64::from(messages.at_processes)).powf(messages.exponent.value);
    let of_one = |way: &Way| way.seconds(messages.count.value, messages.gb.value);
    growth * (team.others.on_switch * of_one(&network.switch) + team.others.over_uplinks * of_one(&network.uplink))
}

/// While a process waits, the one on the other hardware thread of its core has the whole core: it
/// works at rate 1 for the share p of the parallel time that its sibling waits, and at half the
/// yield else, `r = p + (1 - p) y / 2`.
fn compute_seconds(work_s: f64, busy: BusyCores, smt_yield: f64, memory_s: f64, waits_s: f64) -> f64 {
    let at = |waiting: f64| work_s / busy.capacity(2.0 * waiting + (1.0 - waiting) * smt_yield);
    if work_s <= 0.0 {
        return 0.0;
    }
    let mut seconds = at(0.0);
    for _ in 0..WAIT_STEPS {
        let parallel = seconds + memory_s + waits_s;
        seconds = 0.5 * (seconds + at(waits_s / parallel));
    }
    seconds
}

/// Seconds of the memory part. Each process has the same share of it, so that the slowest core
/// decides.
fn memory_seconds(
    class: Class,
    memory: &MemoryWork,
    model: &MachineModel,
    team: &Team,
    solver: &mut dyn RateSolver,
) -> Result<f64, SolveError> {
    let misses = misses(memory, team);
    let one_at_a_time = class == Class::Latency;
    let groups = groups(class, memory, model, team);
    let solution = solver.solve(model.stations().len(), &groups)?;
    let yield_of_two = if one_at_a_time || class == Class::Overlap { smt_yield(model) } else { 1.0 };
    let of_process = team.works.iter().zip(&solution.lines_per_ns).map(|((work, _), &rate)| match work.threads {
        0 | 1 => rate,
        threads if one_at_a_time => rate * yield_of_two / f64::from(threads),
        threads => rate / f64::from(threads),
    });
    let slowest = of_process.fold(f64::INFINITY, f64::min);
    let alone: f64 = team.works.iter().filter(|(work, _)| work.threads < 2).map(|(_, cores)| cores).sum();
    let paired: f64 = team.works.iter().filter(|(work, _)| work.threads >= 2).map(|(_, cores)| cores).sum();
    let best = BusyCores { single: alone, double: paired }.capacity(yield_of_two);
    let slowed = best / team.busy.capacity(yield_of_two);
    Ok(memory.lines.value * misses * slowed / (f64::from(team.processes) * slowest) / 1e9)
}

/// More misses bring more lines for the same work of the cores.
fn misses(memory: &MemoryWork, team: &Team) -> f64 {
    memory.llc_miss_exponent.as_ref().map_or(1.0, |exponent| team.llc_share.powf(-exponent.value))
}

fn groups(class: Class, memory: &MemoryWork, model: &MachineModel, team: &Team) -> Vec<Group> {
    let mut profile = memory.profile();
    profile.core_ns_per_line /= misses(memory, team);
    let group = |(work, actors): &(CoreWork, f64)| {
        // Dependent misses leave most line fill buffers free: two threads are worth the measured
        // yield of one.
        let threads = if class == Class::Latency { 1 } else { work.threads };
        model.group(&profile, &CoreWork { threads, ..work.clone() }, *actors)
    };
    team.works.iter().map(group).collect()
}

/// How busy each station is while the memory part runs, 0 to 1, in the order of
/// [`MachineModel::stations`]; `None` of an application without one.
///
/// # Errors
/// The rates of its memory traffic cannot be computed.
pub fn utilisation(
    application: &Application,
    model: &MachineModel,
    team: &Team,
    solver: &mut dyn RateSolver,
) -> Result<Option<Vec<f64>>, SolveError> {
    let Some(memory) = &application.memory else { return Ok(None) };
    let groups = groups(application.class, memory, model, team);
    solver.solve(model.stations().len(), &groups).map(|solution| Some(solution.utilisation))
}

fn smt_yield(model: &MachineModel) -> f64 {
    model.rates().smt_yield.as_ref().map_or(1.0, |smt| smt.value)
}

#[cfg(test)]
mod tests;
