//! Latency-sensitive VMs beside others on the modelled host: who is entitled to what, and gets it.

use crate::modelled::{check, host, limits, look, quiet};
use scheduler::balance::{BalancePolicy, BalanceState, record, step, why};
use scheduler::{Act, Moment, Observation, Observe};
use simulator::Profile;
use simulator::checkers::Checker;
use simulator::host::{SimulatedHost, VmShape};
use topology::Bytes;

/// 4 nodes of 8 cores.
const MACHINE: &str = "dell-r910";

fn start(host: &mut SimulatedHost, name: &str, vcpus: u32, demand: f64, latency_sensitive: bool) {
    let shape = VmShape::steady(name, vcpus, Bytes::from_mib(64), demand, Profile::computing());
    host.start(&VmShape { latency_sensitive, shares: 256 * vcpus, ..shape });
}

/// CPUs that each VM is entitled to, in the order of the observation.
fn entitled(host: &SimulatedHost, policy: &BalancePolicy, state: &BalanceState, seen: &Observation) -> Vec<f64> {
    let of = |vm: &scheduler::VmObservation| {
        let explained = why(host.machine(), policy, state, seen, &vm.vm).expect("it runs");
        explained.clients[0].entitled.unwrap_or(0.0)
    };
    seen.vms.iter().map(of).collect()
}

/// So many latency-sensitive VMs of 4 vCPUs that want `each` CPUs, beside 24 others of 4 busy
/// vCPUs, 96 in all. What the others are entitled to together at the end of two minutes, in which
/// no law is broken: everybody gets at least half of what its shares give it.
fn beside(sensitive: u32, each: f64) -> f64 {
    let (policy, mut state) = (BalancePolicy::default(), BalanceState::default());
    let mut host = host(MACHINE, quiet(), 1);
    let threads: usize = host.machine().usable_threads().count();
    for number in 0..sensitive {
        start(&mut host, &format!("sensitive{number:02}"), 4, each, true);
    }
    for number in 0..24 {
        start(&mut host, &format!("other{number:02}"), 4, 4.0, false);
    }
    let mut checker = Checker::new(limits(&policy));
    let mut others = 0.0;
    for period in 1..=60 {
        host.advance(Moment(period * 2000)).expect("rates");
        let before = look(&mut host);
        let mut done = Vec::new();
        for decision in step(host.machine(), &policy, &mut state, &before) {
            let outcome = host.carry_out(&decision.action);
            record(&policy, &mut state, &decision, &outcome);
            done.push((Some(decision.kind), (decision.action, outcome)));
        }
        let broken = check(&mut checker, &before, &done, &host.peek());
        assert!(broken.is_empty(), "{sensitive} x {each}, period {period}: {:?}", broken.first());
        let all = entitled(&host, &policy, &state, &before);
        assert!(all.iter().sum::<f64>() <= threads as f64 + 0.01, "{all:?} on {threads}");
        let of_others = before.vms.iter().zip(&all).filter(|(vm, _)| vm.latency_sensitive.is_none());
        others = of_others.map(|(_, entitled)| entitled).sum();
    }
    others
}

#[test]
fn others_keep_what_latency_sensitive_vms_do_not_want() {
    let threads = host(MACHINE, quiet(), 1).machine().usable_threads().count() as f64;
    // What a VM uses while it moves is for a moment not seen as its own: some percent.
    let is = |left: f64, expected: f64| assert!((left / expected - 1.0).abs() < 0.05, "{left} and not {expected}");
    // 7 x 4 vCPUs are reserved on 32 cores. They idle: all is for the others.
    is(beside(7, 0.0), threads);
    // They work: what is left of the hardware threads.
    is(beside(7, 4.0), threads - 28.0);
    // 12 x 4 are more than there are cores: by shares 96 of 144 vCPUs have two thirds.
    is(beside(12, 4.0), threads * 2.0 / 3.0);
}
