//! `homenode why`.

use crate::args::WhyArguments;
use crate::commands::balance::policy;
use crate::output;
use crate::{backend, hidden_vms, kept, source, vm_choice, why_view};
use anyhow::Context;
use inventory::Record;
use scheduler::balance::why;
use scheduler::{VmKey, VmObservation};
use std::time::Duration;
use vm::Manager;
use vm::history::Life;

/// Runs the command.
pub(crate) fn run(arguments: &WhyArguments) -> anyhow::Result<()> {
    let mut source = source::open(&arguments.source)?;
    let given = arguments.policy.as_deref().map(|path| policy(Some(path), source.machine())).transpose()?;
    let mut observation = source.watch(Duration::from_secs_f64(arguments.interval))?;
    let here = source.name() == source::HERE;
    let vm = match vm_choice::choose(&observation, &arguments.vm) {
        Err(unknown) if here => return rests(&arguments.vm, arguments.json)?.map_or(Err(unknown), |()| Ok(())),
        chosen => chosen?,
    };
    let known = observation.vms.iter().any(|seen| seen.vm == vm && !seen.stranger);
    let life = if here && known { its_life(&vm)? } else { None };
    let mut remembered = source.remembered(&arguments.state);
    remembered.policy = given.unwrap_or(remembered.policy);
    remembered.rule(&mut observation);
    let explanation = why(source.machine(), &remembered.policy.balance, &remembered.balance, &observation, &vm)
        .with_context(|| format!("VM {}: it ended meanwhile", vm.name))?;
    let balancer_pid = remembered.balancer.and_then(|balancer| balancer.pid);
    let seen = observation.vms.iter().find(|seen| seen.vm == vm);
    let (manager, counted) = (seen.map(|seen| seen.manager), seen.map(why_view::Counted::of).unwrap_or_default());
    let said = seen.map(VmObservation::words_said).unwrap_or_default();
    let manager = manager.filter(|manager| *manager != Manager::Unknown);
    let (nodes, mut unseen) = (observation.nodes.len(), observation.unseen_of(Some(&vm)));
    let hidden = hidden_vms::sentences(&observation);
    unseen.extend(hidden.clone());
    let view = why_view::View { balancer_pid, manager, nodes, unseen, said, counted, life, explanation };
    match arguments.json {
        true => output::json("why", &view)?,
        false => output::print(why_view::text(&view))?,
    }
    hidden_vms::end(!hidden.is_empty())
}

/// The life so far of a VM that homenode keeps and that runs.
fn its_life(vm: &VmKey) -> anyhow::Result<Option<Life>> {
    // Others' VMs have no directory of ours.
    if !kept::inventory().is_kept(&vm.name) {
        return Ok(None);
    }
    let known = kept::look(&kept::runtime_dir()?)?.remove(&vm.name);
    let is_it = |record: &Record| backend::pid(record) == Some(vm.pid);
    Ok(known.and_then(|known| known.record).filter(is_it).map(|record| record.life))
}

/// Says of a VM that is kept and does not run what became of it; `None` where there is none.
fn rests(name: &str, json: bool) -> anyhow::Result<Option<()>> {
    if !kept::inventory().is_kept(name) {
        return Ok(None);
    }
    let known = kept::look(&kept::runtime_dir()?)?.remove(name);
    let Some(life) = known.and_then(|known| known.record).map(|record| record.life) else { return Ok(None) };
    match json {
        true => output::json("why", &serde_json::json!({ "vm": { "name": name }, "life": life }))?,
        false => output::print(why_view::of_one_that_rests(name, &life))?,
    }
    Ok(Some(()))
}
