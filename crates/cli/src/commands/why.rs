//! `homenode why`.

use crate::args::WhyArguments;
use crate::balancer_host::{manager_of, uuid_of};
use crate::commands::balance::policy;
use crate::output;
use crate::{balancer_place, source, vm_choice, why_view};
use anyhow::Context;
use daemon::Rules;
use scheduler::balance::{BalanceState, why};
use std::time::Duration;

/// Runs the command.
pub(crate) fn run(arguments: &WhyArguments) -> anyhow::Result<()> {
    let mut host = source::open(&arguments.source)?;
    let given = arguments.policy.as_deref().map(|path| policy(Some(path), host.machine())).transpose()?;
    let mut observation = host.watch(Duration::from_secs_f64(arguments.interval))?;
    let vm = vm_choice::choose(&observation, &arguments.vm, uuid_of)?;
    let balancer = balancer_place::look(&arguments.state);
    let policy = given.or_else(|| balancer.as_ref().map(|seen| seen.saved.policy.clone())).unwrap_or_default();
    Rules::new(policy.vms).apply(&mut observation);
    let nothing = BalanceState::default();
    let state = balancer.as_ref().map_or(&nothing, |seen| &seen.saved.balance);
    let explanation = why(host.machine(), &policy.balance, state, &observation, &vm)
        .with_context(|| format!("VM {}: it ended meanwhile", vm.name))?;
    let balancer_pid = balancer.as_ref().and_then(|seen| seen.pid);
    let view =
        why_view::View { balancer_pid, manager: manager_of(vm.pid), nodes: observation.nodes.len(), explanation };
    if arguments.json {
        output::json("why", &view)?;
    } else {
        output::print(why_view::text(&view))?;
    }
    Ok(())
}
