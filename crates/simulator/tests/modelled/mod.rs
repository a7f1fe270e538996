//! A modelled host for tests.

use scheduler::balance::MoveKind;
use scheduler::{Action, ActionError, Done, Observation, Observe};
use simulator::checkers::{Checker, Client, Limits, Step, Violation};
use simulator::host::{KernelRules, SimulatedHost};
use simulator::{MachineModel, MaxMin};
use topology::CpuSet;

/// The model of a machine that comes with homenode.
pub(crate) fn model(name: &str) -> MachineModel {
    let described = topology::read::shipped_described(name).expect("shipped").expect("valid");
    MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model")
}

/// A kernel that leaves threads and memory alone, so that worked examples are exact.
pub(crate) fn quiet() -> KernelRules {
    KernelRules {
        drift_per_second: 0.0,
        imbalance: f64::INFINITY,
        touch_bytes_per_second: u64::MAX / 4,
        ..KernelRules::default()
    }
}

pub(crate) fn host(name: &str, rules: KernelRules, seed: u64) -> SimulatedHost {
    SimulatedHost::new(model(name), Box::new(MaxMin::default()), rules, seed)
}

/// All CPUs of some nodes.
pub(crate) fn cpus(host: &SimulatedHost, nodes: &[u32]) -> CpuSet {
    nodes.iter().flat_map(|&node| host.online(topology::NodeId(node)).iter().collect::<Vec<_>>()).collect()
}

/// What the balancer of the default policy is held to.
pub(crate) fn limits(policy: &scheduler::balance::BalancePolicy) -> Limits {
    Limits {
        moved_bytes_per_second: Some(policy.move_bytes_per_second.0),
        rebinds_per_period: Some(policy.moves_per_period.max(2)),
        return_s: (u64::from(policy.return_periods) * policy.period_ms) as f64 / 1000.0,
        turn_s: (u64::from(policy.rest_periods) * policy.period_ms) as f64 / 1000.0,
        least_part: 0.5,
        window_s: 60.0,
    }
}

/// One action that was carried out.
pub(crate) type Outcome = (Action, Result<Done, ActionError>);

/// Checks one period whose actions were carried out on a host that is now as `after` says.
pub(crate) fn check(
    checker: &mut Checker,
    before: &Observation,
    decided: &[(Option<MoveKind>, Outcome)],
    after: &Observation,
) -> Vec<Violation> {
    let actions: Vec<Outcome> = decided.iter().map(|(_, outcome)| outcome.clone()).collect();
    let fair = decided.iter().filter(|(kind, _)| *kind == Some(MoveKind::Fairness));
    let turns: Vec<Client> = fair
        .filter_map(|(_, (action, _))| match action {
            Action::Bind { vm, client, .. } => Some((vm.clone(), *client)),
            _ => None,
        })
        .collect();
    checker.check(&Step { before, actions: &actions, turns: &turns, after })
}

/// Resident memory of the only client of the `vm`-th VM, in MiB by node.
pub(crate) fn resident_mib(host: &SimulatedHost, vm: usize) -> Vec<(u32, u64)> {
    let seen = host.peek();
    let memory = seen.vms[vm].clients[0].memory.clone().expect("memory");
    memory.into_iter().map(|(node, bytes)| (node.0, bytes.mib())).collect()
}

/// Looks, and forgets what was counted so far.
pub(crate) fn look(host: &mut SimulatedHost) -> Observation {
    host.observe().expect("a modelled host can be read")
}
