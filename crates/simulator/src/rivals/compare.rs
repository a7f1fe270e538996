//! The same traces under each rival: one row each.

use super::{Homenode, KernelAutoNuma, LinuxDefault, Numad, OneShot, Pins, Planned, Rival};
use crate::host::{Account, SimulatedHost};
use crate::traces::{Replay, Trace};
use crate::{MachineModel, RateSolver, SolveError};
use scheduler::Moment;
use scheduler::balance::BalancePolicy;
use serde::Serialize;

/// A VM that wanted to run for less than this, in seconds, is no candidate for the worst one: its
/// start dominates.
const LEAST_BUSY_S: f64 = 60.0;

/// What a rival reached, over all traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Who.
    pub rival: String,
    /// Throughput of all VMs relative to ideal (see [`Account::throughput`]), each by the CPU time
    /// that it wanted; `None`: all were idle.
    pub throughput: Option<f64>,
    /// Throughput of the VM that fared worst: of several traces the mean, since the least of all is
    /// that of one VM in one run, which any change of any move makes another. `None`: none wanted
    /// to run for long.
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

/// All rivals, as the comparison has them.
pub fn all() -> Vec<Box<dyn Rival>> {
    vec![
        Box::new(Planned::new("homenode run + balance", BalancePolicy::default())),
        Box::new(Homenode::new("homenode balance", BalancePolicy::default())),
        Box::new(Homenode::new("ESXi-default thresholds", BalancePolicy::esxi_defaults())),
        Box::new(LinuxDefault),
        Box::new(KernelAutoNuma),
        Box::<Numad>::default(),
        Box::<OneShot>::default(),
        Box::<Pins>::default(),
    ]
}

/// Names by which a rival is asked for.
pub const NAMES: [&str; 5] = ["autonuma", "esxi", "numad", "numad-one-shot", "pins"];

/// The rival with one of [`NAMES`].
pub fn named(name: &str) -> Option<Box<dyn Rival>> {
    Some(match name {
        "autonuma" => Box::new(KernelAutoNuma),
        "esxi" => Box::new(Homenode::new("ESXi-default thresholds", BalancePolicy::esxi_defaults())),
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

/// A table: every rival on every trace, each on a host of its own.
///
/// # Errors
/// The solver found no rates.
pub fn compare(
    model: &MachineModel,
    mut solver: impl FnMut() -> Box<dyn RateSolver>,
    traces: &[Trace],
) -> Result<Vec<Row>, SolveError> {
    let mut rows = Vec::new();
    for index in 0..all().len() {
        let (mut accounts, mut worst) = (Vec::new(), Vec::new());
        let mut name = String::new();
        for trace in traces {
            // A rival remembers: a fresh one for each trace.
            let mut rival = all().swap_remove(index);
            let of_trace = run(model, solver(), trace, rival.as_mut())?.accounts();
            rival.name().clone_into(&mut name);
            worst.extend(row(name.clone(), &of_trace).worst);
            accounts.extend(of_trace);
        }
        let mean = worst.iter().sum::<f64>() / worst.len() as f64;
        rows.push(Row { worst: (!worst.is_empty()).then_some(mean), ..row(name, &accounts) });
    }
    Ok(rows)
}

/// Sums up the accounts of one rival.
pub fn row(rival: String, accounts: &[Account]) -> Row {
    let sum = |of: fn(&Account) -> f64| accounts.iter().map(of).sum::<f64>();
    let part = |of: f64, all: f64| (all > 0.0).then(|| of / all);
    let long = accounts.iter().filter(|account| account.busy_s >= LEAST_BUSY_S);
    Row {
        rival,
        throughput: part(sum(|account| account.progress_s), sum(|account| account.wanted_s)),
        worst: long.filter_map(Account::throughput).reduce(f64::min).map(|least| least.min(1.0)),
        remote_part: part(sum(|account| account.remote_lines), sum(|account| account.lines)),
        waited_part: part(sum(|account| account.waited_s), sum(|account| account.used_s)),
        moved_bytes: accounts.iter().map(|account| account.moved_bytes).sum(),
        binds: accounts.iter().map(|account| u64::from(account.binds)).sum(),
        vms: accounts.len(),
    }
}
