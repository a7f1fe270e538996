//! `homenode why`.

use crate::args::WhyArguments;
use crate::commands::balance::policy;
use crate::output;
use crate::{hidden_vms, source, vm_choice, why_view};
use anyhow::Context;
use scheduler::balance::why;
use std::time::Duration;
use vm::Manager;

/// Runs the command.
pub(crate) fn run(arguments: &WhyArguments) -> anyhow::Result<()> {
    let mut source = source::open(&arguments.source)?;
    let given = arguments.policy.as_deref().map(|path| policy(Some(path), source.machine())).transpose()?;
    let mut observation = source.watch(Duration::from_secs_f64(arguments.interval))?;
    let vm = vm_choice::choose(&observation, &arguments.vm)?;
    let mut remembered = source.remembered(&arguments.state);
    remembered.policy = given.unwrap_or(remembered.policy);
    remembered.rule(&mut observation);
    let explanation = why(source.machine(), &remembered.policy.balance, &remembered.balance, &observation, &vm)
        .with_context(|| format!("VM {}: it ended meanwhile", vm.name))?;
    let balancer_pid = remembered.balancer.and_then(|balancer| balancer.pid);
    let manager = observation.vms.iter().find(|seen| seen.vm == vm).map(|seen| seen.manager);
    let manager = manager.filter(|manager| *manager != Manager::Unknown);
    let (nodes, mut unseen) = (observation.nodes.len(), observation.unseen_of(Some(&vm)));
    let hidden = hidden_vms::sentences(&observation);
    unseen.extend(hidden.clone());
    let view = why_view::View { balancer_pid, manager, nodes, unseen, explanation };
    match arguments.json {
        true => output::json("why", &view)?,
        false => output::print(why_view::text(&view))?,
    }
    hidden_vms::end(!hidden.is_empty())
}
