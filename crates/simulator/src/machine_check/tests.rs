use super::*;
use crate::{MachineModel, StationKind};
use proptest::prelude::*;
use topology::NodeId;
use topology::rates::Link;
use topology::read::{self, Described};

const TWO_NODES: &str = r#"
sockets = 2
cores_per_llc = 4
threads_per_core = 2
memory_per_node = "24 GiB"
distances = [[10, 21], [21, 10]]
[rates]
lines_in_flight_per_core = { value = 10, source = "datasheet", from = "part" }
smt_yield = { value = 1.2, source = "measured", from = "here" }
local_latency_ns = { value = 64.6, source = "measured", from = "here" }
node_bandwidth_gb_per_s = { value = 20.69, source = "measured", from = "here" }
channels_per_node = { value = 3, source = "datasheet", from = "part" }
channel_mt_per_s = { value = 1066, source = "datasheet", from = "part" }
flits = { value = { remote_read = [2, 9], remote_write = [10, 1], local_read_snoop = [1, 1] }, source = "document", from = "QPI" }
[[rates.link]]
between = [0, 1]
gb_per_s = 12.8
latency_ns = 45
source = "measured"
from = "here"
"#;

const TABLE: &str = "[rates.latencies]\nrows = [[60, 100], [100, 60]]\nsource = \"measured\"\nfrom = \"here\"\n";

fn described(text: &str) -> (Machine, Rates) {
    let Described { machine, rates } = read::described(text, "m.toml").expect(text);
    (machine, rates.expect("rates"))
}

fn findings(text: &str) -> Vec<Finding> {
    let (machine, rates) = described(text);
    check(&machine, &rates)
}

#[test]
fn a_whole_machine_has_nothing_against_it() {
    assert_eq!(findings(TWO_NODES), []);
    assert_eq!(findings(&format!("{TWO_NODES}{}", TABLE.replace("60", "64.6"))), []);
}

#[test]
fn each_impossible_value_is_named_with_its_cure_and_the_model_refuses_it() {
    // What is written, what instead, then: field, value, problem, cure.
    let cases = [
        ("{ value = 10,", "{ value = 0.5,", ["lines_in_flight_per_core", "0.5", "out of range", "at least 1"]),
        ("value = 64.6", "value = -3", ["local_latency_ns", "-3", "out of range", "above 0"]),
        // Mistaken units: seconds, bytes, an infinite link.
        ("value = 64.6", "value = 6.46e-8", ["local_latency_ns", "0.0000000646", "out of range", "from 1 to"]),
        ("value = 64.6", "value = 1e300", ["local_latency_ns", "", "out of range", "1000000 ns"]),
        ("value = 20.69", "value = 1e-9", ["node_bandwidth_gb_per_s", "0.000000001", "out of range", "from 0.001"]),
        (
            "{ value = 10,",
            "{ value = 1e9,",
            ["lines_in_flight_per_core", "1000000000", "out of range", "at most 10000"],
        ),
        ("gb_per_s = 12.8", "gb_per_s = 1e30", ["link[0].gb_per_s", "", "out of range", "from 0.001"]),
        ("latency_ns = 45", "latency_ns = 1e7", ["link[0].latency_ns", "10000000", "out of range", "to 1000000"]),
        ("value = 64.6", "value = nan", ["local_latency_ns", "NaN", "no number", "above 0"]),
        ("value = 20.69", "value = 0", ["node_bandwidth_gb_per_s", "0", "out of range", "above 0"]),
        // 3 channels of 1066 MT/s: 3 x 1066 x 8 = 25.6 GB/s.
        ("value = 20.69", "value = 25.7", ["node_bandwidth_gb_per_s", "25.7", "25.6 GB/s", "lower it"]),
        ("value = 1.2,", "value = 2.1,", ["smt_yield", "2.1", "out of range", "from 1 to 2"]),
        ("value = 1.2,", "value = 0.9,", ["smt_yield", "0.9", "out of range", "from 1 to 2"]),
        ("{ value = 3,", "{ value = 0,", ["channels_per_node", "0", "has a channel", "from 1"]),
        ("value = 1066", "value = -1", ["channel_mt_per_s", "-1", "out of range", "above 0"]),
        ("remote_read = [2, 9]", "remote_read = [2, 7]", ["flits.value.remote_read", "7", "does not fit", "8 x 8"]),
        ("remote_write = [10, 1]", "remote_write = [10, -1]", ["remote_write", "-1", "out of range", "from 0"]),
        ("between = [0, 1]", "between = [0, 2]", ["link[0].between", "[0, 2]", "no node 2", "switch"]),
        ("between = [0, 1]", "between = [1, 1]", ["link[0].between", "[1, 1]", "two different ends", "other end"]),
        ("gb_per_s = 12.8", "gb_per_s = 0", ["link[0].gb_per_s", "0", "out of range", "above 0"]),
        ("latency_ns = 45", "latency_ns = -45", ["link[0].latency_ns", "-45", "out of range", "from 0"]),
        ("between = [0, 1]", "between = [0, \"hub\"]", ["rates.link", "", "from node 0 to node 1", "joins node 1"]),
        ("smt_yield =", "# smt_yield =", ["smt_yield", "", "2 threads", "add smt_yield"]),
        ("from = \"part\"", "from = \"\"", ["lines_in_flight_per_core.from", "", "datasheet", "name the document"]),
    ];
    for (old, new, parts) in cases {
        assert!(TWO_NODES.contains(old), "{old}");
        refused(&TWO_NODES.replace(old, new), parts);
    }
}

#[test]
fn each_impossible_addition_is_named_too() {
    let second =
        "[[rates.link]]\nbetween = [1, 0]\ngb_per_s = 1\nlatency_ns = 1\nsource = \"measured\"\nfrom = \"x\"\n";
    let route = |path: &str| format!("[[rates.route]]\npath = {path}\n");
    let cases = [
        (second.to_owned(), ["link[1].between", "[1, 0]", "same ends", "bandwidth of both"]),
        (route("[0]"), ["route[0].path", "[0]", "to another node", "the two nodes"]),
        (route("[0, \"hub\"]"), ["route[0].path", "hub", "to another node", "the two nodes"]),
        (route("[0, \"hub\", 1]"), ["route[0].path", "hub", "no link joins 0 and \"hub\"", "[[rates.link]]"]),
        (route("[0, 7, 1]"), ["route[0].path", "7", "no node 7", "node of the machine"]),
        (route("[0, 1, 0, 1]"), ["route[0].path", "", "passes a place twice", "detour"]),
        (route("[0, 1]").repeat(2), ["route[1].path", "", "same nodes", "keep one"]),
        (TABLE.replace("[100, 60]", "[100]"), ["latencies.rows", "2 rows", "2 nodes", "2 rows of 2"]),
        (TABLE.replace("100], [", "0], ["), ["latencies.rows[0][1]", "0", "out of range", "above 0"]),
        (TABLE.replace("100", "50"), ["latencies.rows[0][1]", "50", "nearer to node 0", "own memory"]),
        (TABLE.replace("[100, 60]", "[110, 60]"), ["rows[1][0]", "110", "not symmetric", "asymmetric_because"]),
    ];
    for (addition, parts) in cases {
        refused(&format!("{TWO_NODES}{addition}"), parts);
    }
}

fn refused(text: &str, [field, value, problem, cure]: [&str; 4]) {
    let (machine, rates) = described(text);
    let found = check(&machine, &rates);
    let finding = found.first().expect(text);
    assert!(finding.refuses(), "{finding:?}");
    assert!(finding.field.contains(field), "{finding:?}");
    assert!(finding.value.as_deref().unwrap_or_default().contains(value), "{finding:?}");
    assert!(finding.problem.contains(problem) && finding.cure.contains(cure), "{finding:?}");
    let error = MachineModel::new(&machine, &rates).expect_err(text).to_string();
    assert_eq!(error, format!("m: {finding}"));
}

#[test]
fn a_table_may_be_asymmetric_for_a_reason() {
    let table = TABLE.replace("[100, 60]", "[110, 60]") + "asymmetric_because = \"node 1 is behind a slower port\"\n";
    assert!(!findings(&format!("{TWO_NODES}{table}")).iter().any(Finding::refuses));
}

#[test]
fn a_network_in_a_wrong_unit_is_refused() {
    let way = |name: &str, latency_us: f64, gb_per_s: f64| {
        let value = |value: f64| format!("{{ value = {value}, source = \"measured\", from = \"here\" }}");
        format!("[rates.network.{name}]\nlatency_us = {}\ngb_per_s = {}\n", value(latency_us), value(gb_per_s))
    };
    let right = format!("{TWO_NODES}{}{}", way("switch", 30.0, 2.5), way("uplink", 60.0, 0.125));
    assert!(!findings(&right).iter().any(Finding::refuses));
    // Seconds, and bits.
    let wrong = format!("{TWO_NODES}{}{}", way("switch", 3e-5, 2.5), way("uplink", 60.0, 1e9));
    let refused: Vec<String> = findings(&wrong).into_iter().filter(Finding::refuses).map(|one| one.field).collect();
    assert_eq!(refused, ["rates.network.switch.latency_us", "rates.network.uplink.gb_per_s"]);
}

#[test]
fn what_contradicts_or_is_assumed_is_said_and_does_not_refuse() {
    let three = TWO_NODES
        .replace("sockets = 2", "sockets = 3")
        .replace("[[10, 21], [21, 10]]", "[[10, 12, 21], [12, 10, 21], [21, 21, 10]]");
    let more =
        "[[rates.link]]\nbetween = [0, 2]\ngb_per_s = 9\nlatency_ns = 10\nsource = \"assumed\"\nfrom = \"a guess\"\n";
    let found = findings(&format!("{three}{more}"));
    // Node 1 is at distance 12 and 109.6 ns, node 2 at 21 and 74.6 ns.
    let kinds: Vec<(Severity, &str)> = found.iter().map(|one| (one.severity, one.field.as_str())).collect();
    assert_eq!(kinds[0], (Severity::Doubtful, "distances[0]"), "{found:?}");
    assert!(found[0].problem.contains("110 and 75 ns"), "{found:?}");
    assert_eq!(*kinds.last().expect("one"), (Severity::Assumed, "rates.link[1]"), "{found:?}");
    assert!(!found.iter().any(Finding::refuses));
}

#[test]
fn every_machine_that_comes_with_homenode_passes() {
    for name in read::shipped_names() {
        let Described { machine, rates } = read::shipped_described(name).expect(name).expect(name);
        let found = check(&machine, &rates.expect(name));
        let bad: Vec<_> = found.iter().filter(|finding| finding.severity < Severity::Assumed).collect();
        assert!(bad.is_empty(), "{name}: {bad:?}");
    }
}

#[test]
fn a_written_route_is_taken_both_ways() {
    // A ring of three: 0-1 direct (10 ns); the file sends it over 2 (45 + 5 ns).
    let links = "[[rates.link]]\nbetween = [0, 2]\ngb_per_s = 9\nlatency_ns = 5\nsource = \"measured\"\nfrom = \"x\"\n\
        [[rates.link]]\nbetween = [1, 2]\ngb_per_s = 9\nlatency_ns = 45\nsource = \"measured\"\nfrom = \"x\"\n";
    let base = TWO_NODES
        .replace("sockets = 2", "sockets = 3")
        .replace("distances = [[10, 21], [21, 10]]\n", "")
        .replace("latency_ns = 45", "latency_ns = 10");
    let model = |text: &str| {
        let (machine, rates) = described(text);
        MachineModel::new(&machine, &rates).expect("a model")
    };
    let (zero, one) = (NodeId(0), NodeId(1));
    let direct = model(&format!("{base}{links}"));
    assert_eq!((direct.route(zero, one).len(), direct.latency_ns(zero, one)), (1, 74.6));
    let round = model(&format!("{base}{links}[[rates.route]]\npath = [0, 2, 1]\n"));
    for (from, to) in [(zero, one), (one, zero)] {
        assert_eq!(round.route(from, to).len(), 2);
        assert!((round.latency_ns(from, to) - 114.6).abs() < 1e-9);
    }
    // One way direct, the other round: half of each. 64.6 + (50 + 10) / 2.
    let mixed = model(&format!("{base}{links}[[rates.route]]\npath = [0, 2, 1]\n[[rates.route]]\npath = [1, 0]\n"));
    assert_eq!((mixed.route(zero, one).len(), mixed.route(one, zero).len()), (2, 1));
    assert!((mixed.latency_ns(zero, one) - 94.6).abs() < 1e-9 && (mixed.latency_ns(one, zero) - 94.6).abs() < 1e-9);
}

/// Six nodes, a hub, and links between any of them.
fn fabric() -> impl Strategy<Value = (Machine, Rates, Vec<usize>)> {
    let pairs: Vec<(usize, usize)> = (0..7).flat_map(|one| (one + 1..7).map(move |other| (one, other))).collect();
    let all = pairs.len();
    let chosen = prop::sample::subsequence(pairs, 1..=all);
    let with_numbers = chosen.prop_flat_map(|pairs| {
        let count = pairs.len();
        let numbers = prop::collection::vec((1.0..50.0_f64, 0.0..200.0_f64), count);
        (Just(pairs), numbers, Just((0..count).collect::<Vec<_>>()).prop_shuffle())
    });
    with_numbers.prop_map(|(pairs, numbers, order)| {
        let (mut machine, mut rates) = described(
            &TWO_NODES.replace("sockets = 2", "sockets = 6").replace("distances = [[10, 21], [21, 10]]\n", ""),
        );
        machine.name = "fabric".to_owned();
        let vertex = |index: usize| {
            if index < 6 { Vertex::Node(NodeId(index as u32)) } else { Vertex::Switch("hub".to_owned()) }
        };
        let link = |(&(one, other), &(gb_per_s, latency_ns)): (&(usize, usize), &(f64, f64))| Link {
            between: (vertex(one), vertex(other)),
            gb_per_s,
            latency_ns,
            source: Source::Measured,
            from: "random".to_owned(),
        };
        rates.links = pairs.iter().zip(&numbers).map(link).collect();
        (machine, rates, order)
    })
}

properties::properties! {
    #[test]
    fn local_memory_is_never_slower_than_remote_and_both_ways_take_the_same((machine, rates, _) in fabric()) {
        let Ok(model) = MachineModel::new(&machine, &rates) else { return Ok(()) };
        for from in &machine.nodes {
            for to in &machine.nodes {
                let there = model.latency_ns(from.id, to.id);
                prop_assert!(there >= model.latency_ns(from.id, from.id));
                prop_assert!((there - model.latency_ns(to.id, from.id)).abs() < 1e-9 * there);
            }
        }
    }

    #[test]
    fn the_order_of_links_does_not_matter((machine, rates, order) in fabric()) {
        let mut shuffled = rates.clone();
        shuffled.links = order.iter().map(|&index| rates.links[index].clone()).collect();
        match (MachineModel::new(&machine, &rates), MachineModel::new(&machine, &shuffled)) {
            (Ok(one), Ok(other)) => {
                for from in &machine.nodes {
                    for to in &machine.nodes {
                        prop_assert_eq!(one.latency_ns(from.id, to.id), other.latency_ns(from.id, to.id));
                        prop_assert_eq!(way(&one, from.id, to.id), way(&other, from.id, to.id));
                    }
                }
            }
            (one, other) => prop_assert_eq!(one.err(), other.err()),
        }
    }
}

/// The links of a route, by their ends.
fn way(model: &MachineModel, from: NodeId, to: NodeId) -> Vec<StationKind> {
    model.route(from, to).iter().map(|(station, _)| model.stations()[station.index()].kind.clone()).collect()
}
