//! `homenode balance --on MACHINE --trace FILE`: what a policy would have done with these VMs, on a
//! modelled machine.

use crate::args::BalanceArguments;
use crate::commands::balance::{failure, policy};
use crate::failure::bad_input;
use crate::trace_view::{self, Compared, Told};
use crate::{machine_choice, output};
use anyhow::Context;
use daemon::{Recording, Rules};
use scheduler::balance::BalancePolicy;
use simulator::rivals::{self, Homenode, LinuxDefault, Rival, Row};
use simulator::traces::{RecordedTrace, Trace, TracedHost};
use simulator::{Amva, MachineModel};
use std::path::Path;
use topology::input;

/// Runs the trace under the policy, without any, and under those that it is compared with.
pub(crate) fn run(choice: &str, path: &Path, arguments: &BalanceArguments) -> anyhow::Result<()> {
    let (machine, rates) = machine_choice::described(choice)?;
    let model = MachineModel::new(&machine, &rates).map_err(bad_input)?;
    let policy = policy(arguments.policy.as_deref(), &machine)?;
    let (trace, left_out) = read(path)?;
    trace.check_memory(&machine).map_err(bad_input)?;
    // Linux alone has its row in any case.
    let others = arguments.against.iter().filter(|name| *name != "linux");
    let mut against = others.map(|name| named(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut rules = Rules::new(policy.vms.clone());
    let homenode = Homenode::new("homenode balance", policy.balance);
    let mut homenode = homenode.restricted(move |observation| rules.apply(observation));
    let mut rows = vec![row(&model, &trace, &mut homenode)?, row(&model, &trace, &mut LinuxDefault)?];
    for rival in &mut against {
        rows.push(row(&model, &trace, rival.as_mut())?);
    }
    let decisions: Vec<Told> = homenode.carried().iter().map(Told::of).collect();
    let compared = Compared { machine: machine.name, trace: trace.name, left_out, decisions, rows };
    if arguments.json {
        return output::json("balance.trace", &compared);
    }
    output::print(trace_view::text(&compared))
}

/// The modelled machine with the VMs of a trace and nobody but the kernel to place them: for those
/// who only look.
pub(crate) fn host(choice: &str, path: &Path) -> anyhow::Result<TracedHost> {
    let (machine, rates) = machine_choice::described(choice)?;
    let model = MachineModel::new(&machine, &rates).map_err(bad_input)?;
    let (trace, _) = read(path)?;
    trace.check_memory(&machine).map_err(bad_input)?;
    Ok(TracedHost::new(model, Box::new(Amva::default()), &trace, BalancePolicy::default().period_ms))
}

fn named(name: &str) -> anyhow::Result<Box<dyn Rival>> {
    let valid = || rivals::NAMES.join(", ");
    let known = rivals::NAMES.contains(&name).then(|| rivals::named(name, &BalancePolicy::default())).flatten();
    known.ok_or_else(|| bad_input(format!("--against {name}: no such policy; valid are {}", valid())))
}

/// Each on a host of its own.
fn row(model: &MachineModel, trace: &Trace, rival: &mut dyn Rival) -> anyhow::Result<Row> {
    rivals::compared(model, Box::new(Amva::default()), trace, rival).context("the model finds no rates")
}

/// A trace, and what could not be taken into it: a file in TOML, or what was seen in a recording.
fn read(path: &Path) -> anyhow::Result<(Trace, Vec<String>)> {
    let name = path.display().to_string();
    let fail = |error: std::io::Error| bad_input(format!("{name}: cannot read the trace: {error}"));
    if is_recording(path).map_err(fail)? {
        return from_recording(path, &name);
    }
    let text = input::text(path, input::LONGEST_TEXT).map_err(fail)?;
    Ok((Trace::from_toml(&text, &name).map_err(bad_input)?, Vec::new()))
}

/// A recording is JSON from its first letter on; TOML never is.
fn is_recording(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    let mut first = [0];
    let read = std::fs::File::open(path)?.read(&mut first)?;
    Ok(read == 1 && first == *b"{")
}

fn from_recording(path: &Path, name: &str) -> anyhow::Result<(Trace, Vec<String>)> {
    let mut recording = Recording::open(path).map_err(failure)?;
    let mut recorded = RecordedTrace::default();
    while let Some(period) = recording.next_period().map_err(failure)? {
        recorded.add(&period.observation);
    }
    let (trace, left_out) = recorded.finish(name);
    if trace.arrivals.is_empty() || trace.ends.0 == 0 {
        return Err(bad_input(format!("{name}: no VM is in it for longer than one look: nothing can be run")));
    }
    Ok((trace, left_out))
}
