//! The prototype's figures for the DL380 of the ESX 4.1 STREAM article, which the model must give
//! again.

use simulator::{Amva, CoreWork, MachineModel, MaxMin, Profile, RateSolver};
use topology::NodeId;
use topology::rates::{Link, Rates, Source, Sourced, Vertex};

fn assumed<T>(value: T) -> Sourced<T> {
    Sourced { value, source: Source::Assumed, from: "test".to_owned() }
}

fn dl380(local_latency_ns: f64, node_bandwidth: f64) -> MachineModel {
    let machine = topology::read::shipped("hp-dl380-g6").expect("shipped").expect("valid");
    let rates = Rates {
        lines_in_flight_per_core: assumed(10.0),
        smt_yield: Some(assumed(1.167)),
        local_latency_ns: assumed(local_latency_ns),
        node_bandwidth_gb_per_s: assumed(node_bandwidth),
        channels_per_node: None,
        channel_mt_per_s: None,
        llc_bandwidth_gb_per_s: None,
        llc_latency_ns: None,
        row_conflict_droop: None,
        flits: None,
        latencies: None,
        links: vec![Link {
            between: (Vertex::Node(NodeId(0)), Vertex::Node(NodeId(1))),
            gb_per_s: 12.8,
            latency_ns: 0.7 * local_latency_ns,
            source: Source::Assumed,
            from: "test".to_owned(),
        }],
        routes: Vec::new(),
        network: None,
    };
    MachineModel::new(&machine, &rates).expect("a model")
}

/// MB/s of STREAM's Copy on local memory with this many cores on each node.
fn copy(model: &MachineModel, solver: &mut dyn RateSolver, cores: [u32; 2]) -> f64 {
    let copy = Profile {
        lines_in_flight: 10.0,
        core_ns_per_line: 0.0,
        write_share: 1.0 / 3.0,
        counted_bytes_per_line: 128.0 / 3.0,
    };
    let busy = (0..2).filter(|&node| cores[node as usize] > 0);
    let groups: Vec<_> = busy
        .map(|node| {
            let work = CoreWork { node: NodeId(node), llc: None, threads: 1, memory: vec![(NodeId(node), 1.0)] };
            model.group(&copy, &work, f64::from(cores[node as usize]))
        })
        .collect();
    let solution = solver.solve(model.stations().len(), &groups).expect("rates");
    let lines: f64 = groups.iter().zip(&solution.lines_per_ns).map(|(group, rate)| group.actors * rate).sum();
    lines * copy.counted_bytes_per_line * 1000.0
}

#[test]
fn copy_on_the_dl380_is_that_of_the_prototype() {
    // Prototype, Table 2 (two VMs at home): AMVA 12760, 22570, 26950; max-min 12780, 25550, 26960
    // MB/s at 2, 4, 8 threads.
    for (cores, amva, max_min) in [(1, 12760.0, 12780.0), (2, 22570.0, 25550.0), (4, 26950.0, 26960.0)] {
        let queueing = copy(&dl380(64.6, 20.69), &mut Amva::default(), [cores; 2]);
        let fluid = copy(&dl380(66.8, 20.22), &mut MaxMin::default(), [cores; 2]);
        assert!((queueing / amva - 1.0).abs() < 0.002, "AMVA, {cores} cores a node: {queueing:.0} against {amva}");
        assert!((fluid / max_min - 1.0).abs() < 0.002, "max-min, {cores} cores a node: {fluid:.0} against {max_min}");
    }
    // One thread: 6384.
    let one = copy(&dl380(64.6, 20.69), &mut Amva::default(), [1, 0]);
    assert!((one / 6384.0 - 1.0).abs() < 0.002, "{one:.0}");
}
