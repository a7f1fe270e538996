//! AMD Rome's chart by the scheduler's own placement: STREAM Copy on the modelled host, one VM for
//! each node, with one thread for each last-level cache of the machine (32) and one for each core
//! (128).
//!
//! `cargo run --release -p simulator --example rome_caches` prints a table; nothing is measured.

use scheduler::balance::BalancePolicy;
use scheduler::{Moment, VmKey};
use simulator::host::{CacheAware, KernelRules, SimulatedHost, VmShape};
use simulator::rivals::{Planned, Rival};
use simulator::{MachineModel, MaxMin, Profile};
use topology::Bytes;
use vm::spec::CachePolicy;

/// STREAM's Copy with streaming stores: what it counts is what it moves.
fn copy() -> Profile {
    Profile { lines_in_flight: 41.0, core_ns_per_line: 0.0, write_share: 0.5, counted_bytes_per_line: 64.0 }
}

fn main() {
    println!("| GB/s, modelled | own | pack | ignore | ignore, Linux 7.2 |\n|---|---|---|---|---|");
    let drawn = KernelRules { cache_aware: Some(CacheAware::default()), ..KernelRules::default() };
    for threads in [32, 128] {
        for nps in [4, 2, 1] {
            let model = model(&format!("epyc-7742-2s-nps{nps}"));
            let own = |cache| gb_per_s(&model, KernelRules::default(), threads, cache);
            let [own, pack, ignore] = [CachePolicy::Own, CachePolicy::Pack, CachePolicy::Ignore].map(own);
            let by_7_2 = gb_per_s(&model, drawn.clone(), threads, CachePolicy::Ignore);
            println!("| {threads} threads, NPS{nps} | {own:.0} | {pack:.0} | {ignore:.0} | {by_7_2:.0} |");
        }
    }
}

fn model(name: &str) -> MachineModel {
    let described = topology::read::shipped_described(name).expect("a shipped machine").expect("a valid machine");
    MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model")
}

/// All threads together, once they have touched their memory.
fn gb_per_s(model: &MachineModel, kernel: KernelRules, threads: u32, cache: CachePolicy) -> f64 {
    let nodes = model.machine().nodes.len() as u32;
    let mut host = SimulatedHost::new(model.clone(), Box::new(MaxMin::default()), kernel, 1);
    let mut homenode = Planned::new("homenode run", BalancePolicy::default()).with_cache(cache);
    for number in 0..nodes {
        let busy = f64::from(threads / nodes);
        let key: VmKey =
            host.start(&VmShape::steady(&format!("vm{number}"), threads / nodes, Bytes::GIB, busy, copy()));
        homenode.started(&mut host, &key);
    }
    let lines = |host: &SimulatedHost| host.accounts().iter().map(|account| account.lines).sum::<f64>();
    host.advance(Moment(20_000)).expect("rates");
    let before = lines(&host);
    host.advance(Moment(40_000)).expect("rates");
    (lines(&host) - before) * copy().counted_bytes_per_line / 20e9
}
