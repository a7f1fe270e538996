//! What must hold on every machine that comes with homenode.

use simulator::{Amva, CoreWork, MachineModel, MaxMin, Profile, RateSolver};
use topology::NodeId;

fn profiles() -> [Profile; 3] {
    let bandwidth =
        Profile { lines_in_flight: 10.0, core_ns_per_line: 0.0, write_share: 1.0 / 3.0, counted_bytes_per_line: 42.7 };
    let overlap = Profile { core_ns_per_line: 5.0, ..bandwidth };
    let latency = Profile { lines_in_flight: 1.0, write_share: 0.0, ..bandwidth };
    [bandwidth, overlap, latency]
}

#[test]
fn local_memory_is_never_slower_than_remote() {
    let mut machines = 0;
    for name in topology::read::shipped_names() {
        let described = topology::read::shipped_described(name).expect("shipped").expect("valid");
        let Some(rates) = &described.rates else { continue };
        machines += 1;
        let model = MachineModel::new(&described.machine, rates).expect(name);
        let stations = model.stations().len();
        for solver in [&mut Amva::default() as &mut dyn RateSolver, &mut MaxMin::default()] {
            for (profile, cores) in profiles().into_iter().flat_map(|profile| [(profile, 1.0), (profile, 16.0)]) {
                let mut rate = |from: NodeId, to: NodeId| {
                    let llc = described
                        .machine
                        .threads
                        .iter()
                        .find(|thread| thread.node == from)
                        .and_then(|thread| thread.llc);
                    let work = CoreWork { node: from, llc, threads: 1, memory: vec![(to, 1.0)] };
                    let group = model.group(&profile, &work, cores);
                    solver.solve(stations, &[group]).expect(name).lines_per_ns[0]
                };
                for from in &described.machine.nodes {
                    let local = rate(from.id, from.id);
                    for to in &described.machine.nodes {
                        let remote = rate(from.id, to.id);
                        assert!(
                            local >= remote * (1.0 - 1e-9),
                            "{name}: {cores} cores of node {}: local {local}, node {} {remote}",
                            from.id.0,
                            to.id.0
                        );
                    }
                }
            }
        }
    }
    assert!(machines >= 6, "only {machines} machines have rates");
}
