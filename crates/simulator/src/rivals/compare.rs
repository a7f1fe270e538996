//! The same trace under each rival: one row each.

use super::{
    CacheAwareAutoNuma, CacheAwareLinux, Homenode, KernelAutoNuma, LinuxDefault, Numad, OneShot, Pins, Planned, Rival,
};
use crate::host::{Account, SimulatedHost};
use crate::traces::{Replay, Trace};
use crate::{MachineModel, RateSolver, SolveError};
use scheduler::Moment;
use scheduler::balance::BalancePolicy;
use serde::Serialize;

/// A VM that wanted to run for less than this, in seconds, is no candidate for the worst one: its
/// start dominates.
const LEAST_BUSY_S: f64 = 60.0;

/// What a rival reached on one trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who.
    pub rival: String,
    /// Length of the trace, in hours.
    pub hours: f64,
    /// Throughput of all VMs relative to ideal (see [`Account::throughput`]), each by the CPU time
    /// that it wanted; `None`: all were idle.
    pub throughput: Option<f64>,
    /// Throughput of the VM that fared worst; `None`: none wanted to run for long.
    pub worst: Option<f64>,
    /// Part of all lines that came from another node's memory; `None`: there were none.
    pub remote_part: Option<f64>,
    /// CPU time waited for each CPU second used; `None`: none was used.
    pub waited_part: Option<f64>,
    /// Bytes moved from node to node.
    pub moved_bytes: u64,
    /// Times that a client's threads were bound to other CPUs than before.
    pub binds: u64,
    /// VMs.
    pub vms: usize,
}

impl Row {
    /// GiB moved from node to node in an hour.
    pub fn moved_gib_per_hour(&self) -> f64 {
        self.moved_bytes as f64 / (1u64 << 30) as f64 / self.hours
    }

    /// Binds in an hour.
    pub fn binds_per_hour(&self) -> f64 {
        self.binds as f64 / self.hours
    }
}

/// Words for homenode's own ways in the comparison: `homenode run` with `balance`, and `balance`
/// alone.
pub const OURS: [&str; 2] = ["run", "balance"];

/// Words for those that it is compared with.
pub const NAMES: [&str; 8] =
    ["autonuma", "autonuma-7.2", "esxi", "linux", "linux-7.2", "numad", "numad-one-shot", "pins"];

/// The one with a word of [`OURS`] or [`NAMES`]. `policy`: of homenode's own.
pub fn named(name: &str, policy: &BalancePolicy) -> Option<Box<dyn Rival>> {
    Some(match name {
        "run" => Box::new(Planned::new("homenode run + balance", policy.clone())),
        "balance" => Box::new(Homenode::new("homenode balance", policy.clone())),
        "esxi" => Box::new(Homenode::new("ESXi-default thresholds", BalancePolicy::esxi_defaults())),
        "linux" => Box::new(LinuxDefault),
        "autonuma" => Box::new(KernelAutoNuma),
        "autonuma-7.2" => Box::new(CacheAwareAutoNuma),
        "linux-7.2" => Box::new(CacheAwareLinux),
        "numad" => Box::<Numad>::default(),
        "numad-one-shot" => Box::<OneShot>::default(),
        "pins" => Box::<Pins>::default(),
        _ => return None,
    })
}

/// One rival on one trace, from its beginning to its end: the host after it.
///
/// # Errors
/// The solver found no rates.
pub fn run(
    model: &MachineModel,
    solver: Box<dyn RateSolver>,
    trace: &Trace,
    rival: &mut dyn Rival,
) -> Result<SimulatedHost, SolveError> {
    let mut host = SimulatedHost::new(model.clone(), solver, rival.kernel(), trace.seed.unwrap_or(0));
    let mut replay = Replay::new(trace);
    let mut now = Moment(0);
    while now < trace.ends {
        now = Moment((now.0 + rival.period_ms()).min(trace.ends.0));
        replay.advance(&mut host, now, |host, vm| rival.started(host, vm))?;
        rival.period(&mut host);
    }
    Ok(host)
}

/// One rival on one trace, in sum.
///
/// # Errors
/// The solver found no rates.
pub fn compared(
    model: &MachineModel,
    solver: Box<dyn RateSolver>,
    trace: &Trace,
    rival: &mut dyn Rival,
) -> Result<Row, SolveError> {
    let host = run(model, solver, trace, rival)?;
    Ok(row(rival.name().to_owned(), trace.ends, &host.accounts()))
}

/// Sums up the accounts of one rival, from the beginning of a trace to its end.
pub fn row(rival: String, ends: Moment, accounts: &[Account]) -> Row {
    let sum = |of: fn(&Account) -> f64| accounts.iter().map(of).sum::<f64>();
    let part = |of: f64, all: f64| (all > 0.0).then(|| of / all);
    let long = accounts.iter().filter(|account| account.busy_s >= LEAST_BUSY_S);
    Row {
        rival,
        hours: ends.0 as f64 / 3_600_000.0,
        throughput: part(sum(|account| account.progress_s), sum(|account| account.wanted_s)),
        worst: long.filter_map(Account::throughput).reduce(f64::min).map(|least| least.min(1.0)),
        remote_part: part(sum(|account| account.remote_lines), sum(|account| account.lines)),
        waited_part: part(sum(|account| account.waited_s), sum(|account| account.used_s)),
        moved_bytes: accounts.iter().map(|account| account.moved_bytes).sum(),
        binds: accounts.iter().map(|account| u64::from(account.binds)).sum(),
        vms: accounts.len(),
    }
}
