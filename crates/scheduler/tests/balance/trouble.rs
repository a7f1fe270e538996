//! Actions that fail: the state says what is true, and nobody is asked every period.

use super::toy::{Toy, binds};
use scheduler::balance::{Decision, record};
use scheduler::{Action, ActionError, ClientId, Done};
use topology::Bytes;

const EIGHT: &str = "numa:2(memory=16GiB) core:8 pu:1";

fn failed(decision: &Decision) -> Result<Done, ActionError> {
    let vm = decision.action.vm().name.clone();
    Err(ActionError::Failed { vm, operation: "bind".to_owned(), reason: "the kernel says no".to_owned() })
}

/// One period in which every action ends as `outcome` says.
fn period(toy: &mut Toy, outcome: impl Fn(&Decision) -> Result<Done, ActionError>) -> Vec<Decision> {
    let decisions = toy.decide();
    for decision in &decisions {
        record(&toy.policy, &mut toy.state, decision, &outcome(decision));
    }
    toy.at += toy.policy.period_ms;
    decisions
}

#[test]
fn a_bind_that_fails_is_tried_later_and_later_then_given_up() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, None, &[(0, 64)]);
    let mut tries = Vec::new();
    for index in 0..400 {
        if !period(&mut toy, failed).is_empty() {
            tries.push(index);
            assert!(toy.state.home(&toy.vms[0].key, ClientId(0)).is_none());
        }
    }
    // 5 periods after the first failure, then 10, 20, 40; the fifth failure is the last for an hour
    // (1800 periods).
    assert_eq!(tries, [0, 5, 15, 35, 75]);
    let why = toy.why("a");
    let trouble = &why.clients[0].troubles[0];
    assert!(trouble.contains("given up") && trouble.contains("the kernel says no"), "{trouble}");
    toy.at += 3_600_000;
    assert_eq!(binds(&toy.period()).len(), 1);
    assert_eq!(toy.why("a").clients[0].troubles, Vec::<String>::new());
}

#[test]
fn a_move_that_fails_leaves_the_client_where_it_was() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
    toy.vm("b", 4, 4.0, Some(0), &[(0, 64)]);
    period(&mut toy, failed);
    let decisions = period(&mut toy, failed);
    assert_eq!(binds(&decisions).len(), 1);
    for vm in &toy.vms {
        assert_eq!(toy.state.home(&vm.key, ClientId(0)).map(ToString::to_string).as_deref(), Some("0"));
    }
}

#[test]
fn pinned_memory_is_not_asked_every_period() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 0.5, Some(0), &[(1, 900)]);
    let pinned = |decision: &Decision| match &decision.action {
        Action::MoveMemory { at_most, .. } => {
            Ok(Done { moved: Bytes(0), left: *at_most, because: Some("its pages are pinned".to_owned()) })
        }
        Action::Bind { .. } => Ok(Done::default()),
    };
    let mut asked = Vec::new();
    for index in 0..200 {
        let memory = |decision: &&Decision| matches!(decision.action, Action::MoveMemory { .. });
        if period(&mut toy, pinned).iter().filter(memory).count() > 0 {
            asked.push(index);
        }
        // Once it is sure that the memory stays, the threads may go there: the question is who asks
        // how often.
        toy.vms[0].clients[0].cpus = toy.cpus(0);
    }
    assert!(asked.starts_with(&[0, 5, 15]), "{asked:?}");
    assert!(asked.len() <= 5, "{asked:?}");
    assert!(toy.why("a").clients[0].troubles.iter().any(|trouble| trouble.contains("pinned")));
}

#[test]
fn threads_go_to_memory_that_turned_out_to_be_pinned() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, Some(0), &[(1, 900)]);
    let mut bound = Vec::new();
    for _ in 0..60 {
        for decision in toy.decide() {
            let outcome = match &decision.action {
                Action::Bind { .. } => toy.carry_out(&decision.action),
                Action::MoveMemory { at_most, .. } => Ok(Done { moved: Bytes(0), left: *at_most, because: None }),
            };
            record(&toy.policy, &mut toy.state, &decision, &outcome);
            bound.extend(super::toy::bind(&decision));
        }
        toy.at += 2000;
    }
    assert_eq!(bound, [("a".to_owned(), "1".to_owned())]);
}

#[test]
fn a_vm_that_ended_meanwhile_is_forgotten() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 2, 1.0, None, &[(0, 64)]);
    let gone = |decision: &Decision| Err(ActionError::Gone { vm: decision.action.vm().name.clone() });
    assert_eq!(period(&mut toy, gone).len(), 1);
    assert!(toy.state.vms.is_empty());
}

#[test]
fn a_clock_that_starts_anew_does_not_stop_the_balancer() {
    let mut toy = Toy::new(EIGHT);
    toy.vm("a", 4, 4.0, Some(0), &[(0, 64)]);
    toy.vm("b", 4, 4.0, Some(0), &[(0, 64)]);
    toy.periods(2);
    assert_eq!(toy.wanted(0), 4.0);
    toy.at = 0;
    for vm in &mut toy.vms {
        vm.clients[0].wants = 1.0;
    }
    toy.vm("c", 8, 8.0, Some(0), &[(0, 64)]);
    assert!(!binds(&toy.periods(4)).is_empty());
}
