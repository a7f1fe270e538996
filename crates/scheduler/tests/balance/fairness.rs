//! Who gets less than its share for long gets a better place.

use super::toy::{Toy, binds};
use scheduler::balance::{BalancePolicy, MoveKind};

/// Three VMs that each want a whole CPU, on two nodes with one: loads of 200 % and 100 % that no
/// move makes even.
fn three_on_two(policy: BalancePolicy) -> Toy {
    let mut toy = Toy { policy, ..Toy::new("numa:2(memory=16GiB) core:1 pu:1") };
    toy.vm("a", 1, 1.0, Some(0), &[(0, 64)]);
    toy.vm("b", 1, 1.0, Some(0), &[(0, 64)]);
    toy.vm("c", 1, 1.0, Some(1), &[(1, 64)]);
    toy
}

/// Mean CPUs that each VM gets over many periods.
fn shares(toy: &mut Toy, periods: usize) -> Vec<f64> {
    let mut got = vec![0.0; toy.vms.len()];
    for _ in 0..periods {
        for (got, used) in got.iter_mut().zip(toy.used()) {
            *got += used.iter().sum::<f64>() / periods as f64;
        }
        toy.period();
    }
    got
}

#[test]
fn those_that_wait_take_turns() {
    // Each is entitled to 2 CPUs / 3 = 0.67. Without fairness a and b get 0.5 for ever, c 1.
    let mut unfair = three_on_two(BalancePolicy { fairness_periods: 0, ..BalancePolicy::default() });
    let got = shares(&mut unfair, 100);
    assert!(got[0] < 0.51 && got[1] < 0.51 && got[2] > 0.99, "{got:?}");
    let mut fair = three_on_two(BalancePolicy::default());
    let got = shares(&mut fair, 600);
    assert!(got.iter().all(|got| *got > 0.6), "{got:?}");
    assert!(fair.log.iter().any(|(_, decision)| decision.kind == MoveKind::Fairness));
}

#[test]
fn a_client_rests_between_turns() {
    let mut toy = three_on_two(BalancePolicy::default());
    toy.periods(600);
    for name in ["a", "b", "c"] {
        let times: Vec<u64> = toy
            .log
            .iter()
            .filter(|(_, decision)| super::toy::bind(decision).is_some_and(|(vm, _)| vm == name))
            .map(|(at, _)| *at)
            .collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 15 * 2000), "{times:?}");
    }
}

#[test]
fn shares_say_who_is_entitled_to_what() {
    // 8 CPUs wanted on 2 x 2: a has four times the shares. Entitled: 4 x 4096 / (4096 + 4 x 1024) =
    // 2 for a, 0.5 for each other.
    let mut toy = Toy::new("numa:2(memory=16GiB) core:2 pu:1");
    toy.vm("a", 2, 2.0, Some(0), &[(0, 16)]).shares = 4096;
    for name in ["b", "c", "d", "e"] {
        toy.vm(name, 2, 1.5, Some(0), &[(0, 16)]);
    }
    toy.periods(60);
    assert!(toy.log.iter().all(|(_, decision)| decision.kind != MoveKind::Fairness));
    // By entitlement a fills node 0 alone, the others share node 1.
    let used = toy.used();
    assert!(used[0][0] > 1.9, "{used:?}");
    assert!(used[1..].iter().all(|used| used[0] > 0.4), "{used:?}");
}

#[test]
fn nobody_moves_for_fairness_where_nobody_waits() {
    let mut toy = Toy::new("numa:2(memory=16GiB) core:4 pu:1");
    toy.vm("a", 4, 3.0, Some(0), &[(0, 64)]);
    toy.vm("b", 4, 3.0, Some(1), &[(1, 64)]);
    assert_eq!(binds(&toy.periods(100)), []);
}
