//! Worked examples: a compute application with waits, and memory applications of each class.

use super::*;
use crate::events::{Actor, Phase};
use crate::workload::{Binding, Messages};
use crate::{Amva, MaxMin};
use topology::NodeId;
use topology::rates::{Source, Sourced};

fn assumed<T>(value: T) -> Sourced<T> {
    Sourced { value, source: Source::Assumed, from: "test".to_owned() }
}

fn model(machine: &str) -> MachineModel {
    let described = topology::read::shipped_described(machine).expect("shipped").expect("valid");
    MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model")
}

fn application(class: Class) -> Application {
    Application {
        class,
        class_from: "test".to_owned(),
        binding: assumed(Binding::Pinned),
        serial_s: None,
        compute_core_s: None,
        memory: None,
        messages: None,
        virtual_overhead: None,
    }
}

fn memory(lines: f64, lines_in_flight: f64, core_ns: f64) -> MemoryWork {
    MemoryWork {
        lines: assumed(lines),
        lines_in_flight: assumed(lines_in_flight),
        core_ns_per_line: assumed(core_ns),
        write_share: assumed(0.0),
        llc_miss_exponent: None,
    }
}

/// So many cores on each node with one or two threads each, on local memory.
fn team(cores_on_each: u32, nodes: u32, threads: u32) -> Team {
    let work = |node| CoreWork { node: NodeId(node), llc: None, threads, memory: vec![(NodeId(node), 1.0)] };
    let cores = f64::from(cores_on_each);
    let all = cores * f64::from(nodes);
    Team {
        processes: cores_on_each * nodes * threads,
        busy: BusyCores { single: if threads == 1 { all } else { 0.0 }, double: if threads == 2 { all } else { 0.0 } },
        works: (0..nodes).map(|node| (work(node), cores)).collect(),
        llc_share: 1.0,
        is_virtual: false,
        others: OtherVms::default(),
    }
}

fn namd() -> Application {
    // Over the DL380's uplink each of three other VMs costs 187 / 3 s.
    let network = model("hp-dl380-g6").rates().network.clone().expect("a network");
    let gb = (187.0 / 3.0 - 1e5 * network.uplink.latency_us.value / 1e6) * network.uplink.gb_per_s.value;
    Application {
        serial_s: Some(assumed(82.0)),
        compute_core_s: Some(assumed(6664.0)),
        virtual_overhead: Some(assumed(0.012)),
        messages: Some(Messages {
            at_processes: 8,
            exponent: assumed(2.0 / 3.0),
            count: assumed(1e5),
            gb: assumed(gb),
        }),
        ..application(Class::Compute)
    }
}

#[test]
fn a_compute_application_is_serial_plus_work_over_capacity() {
    let seconds =
        |team: &Team| time(&namd(), &model("hp-dl380-g6"), team, &mut MaxMin::default()).expect("a time").seconds();
    // 82 + 6664 / 4 = 1748; 82 + 6664 / 8 = 915; in a VM 1.012 x 915 = 925.98.
    assert!((seconds(&team(2, 2, 1)) - 1748.0).abs() < 1e-6);
    assert!((seconds(&team(4, 2, 1)) - 915.0).abs() < 1e-6);
    assert!((seconds(&Team { is_virtual: true, ..team(4, 2, 1) }) - 925.98).abs() < 1e-6);
    // Two threads a core: 82 + 6664 / (8 x 1.167) = 795.8.
    assert!((seconds(&team(4, 2, 2)) - 795.8).abs() < 0.05);
}

#[test]
fn a_sibling_runs_at_full_speed_while_the_other_waits() {
    let on_switches = |team: Team| Team { is_virtual: true, others: OtherVms::of(4, 4), ..team };
    let run = |team: &Team| time(&namd(), &model("hp-dl380-g6"), team, &mut MaxMin::default()).expect("a time");
    // One thread a core: the whole wait is added. 8 processes: 925.98 + 187 = 1112.98.
    assert!((run(&on_switches(team(4, 2, 1))).seconds() - 1112.98).abs() < 1e-6);
    // 16: wait 187 x 2^(2/3) = 296.84. With r = p + (1 - p) 0.5835 and p = wait / (wait + work),
    // work = 1.012 x 416.5 / r: p = 0.3376, r = 0.7241, work = 582.1; with the serial 82.98
    // together 961.9. Without the hiding it would be 1102.
    let sixteen = run(&on_switches(team(4, 2, 2)));
    assert!((sixteen.waits_s - 296.84).abs() < 0.01);
    assert!((sixteen.compute_s - 582.1).abs() < 0.5, "{sixteen:?}");
    assert!((sixteen.seconds() - 961.9).abs() < 0.5);
}

#[test]
fn a_message_waits_for_the_way_between_its_vms() {
    let of = |vms, switches| OtherVms::of(vms, switches);
    assert_eq!(of(4, 1), OtherVms { on_switch: 3.0, over_uplinks: 0.0 });
    assert_eq!(of(4, 2), OtherVms { on_switch: 1.0, over_uplinks: 2.0 });
    assert_eq!(of(4, 4), OtherVms { on_switch: 0.0, over_uplinks: 3.0 });
    // 2 VMs on the first switch see 1 beside them, the third none: 2/3 in the mean.
    assert!((of(3, 2).on_switch - 2.0 / 3.0).abs() < 1e-12 && (of(3, 2).over_uplinks - 4.0 / 3.0).abs() < 1e-12);
    assert_eq!([of(1, 1), of(0, 1)], [OtherVms::default(); 2]);
    let way = |latency_us, gb_per_s| Way { latency_us: assumed(latency_us), gb_per_s: assumed(gb_per_s) };
    let mut rates = model("hp-dl380-g6").rates().clone();
    rates.network = Some(topology::rates::NetworkRates { switch: way(20.0, 2.0), uplink: way(100.0, 0.125) });
    let described = topology::read::shipped_described("hp-dl380-g6").expect("shipped").expect("valid");
    let machine = MachineModel::new(&described.machine, &rates).expect("a model");
    let messages = Messages { at_processes: 8, exponent: assumed(1.0), count: assumed(1e5), gb: assumed(4.0) };
    let application = Application { messages: Some(messages), ..application(Class::Compute) };
    let waits = |others| {
        let team = Team { others, ..team(4, 2, 1) };
        time(&application, &machine, &team, &mut MaxMin::default()).expect("a time").waits_s
    };
    // On the same switch 1e5 x 20 us + 4 / 2 = 4 s; behind uplinks 1e5 x 100 us + 4 / 0.125 = 42.
    assert!((waits(of(4, 1)) - 12.0).abs() < 1e-9 && (waits(of(4, 2)) - 88.0).abs() < 1e-9);
}

#[test]
fn dependent_misses_take_latency_and_core_time_each() {
    let latency = Application { memory: Some(memory(1e9, 1.0, 104.0)), ..application(Class::Latency) };
    // 8 threads on their own controllers: 96 + 104 ns a line, 1.25e8 lines each, 25 s; controllers
    // are nearly idle.
    let seconds =
        |team: &Team| time(&latency, &model("dell-r910"), team, &mut MaxMin::default()).expect("a time").seconds();
    assert!((seconds(&team(2, 4, 1)) - 25.0).abs() < 1e-6);
    // Two threads on each core: 16 threads do 1.167 times the work of 8.
    assert!((seconds(&team(2, 4, 2)) - 25.0 / 1.167).abs() < 1e-6);
    // 8 threads of which 2 share a core: capacity 6 + 1.167 instead of 8.
    let shared = Team { busy: BusyCores { single: 6.0, double: 1.0 }, ..team(2, 4, 1) };
    assert!((seconds(&shared) - 25.0 * 8.0 / 7.167).abs() < 1e-6);
}

#[test]
fn streams_fill_the_controller_and_siblings_add_nothing() {
    let stream = Application { memory: Some(memory(1e9, 10.0, 0.0)), ..application(Class::Bandwidth) };
    let seconds = |team: &Team, solver: &mut dyn RateSolver| {
        time(&stream, &model("dell-r910"), team, solver).expect("a time").seconds()
    };
    // 64e9 bytes over 4 controllers of 18 GB/s: 0.889 s.
    assert!((seconds(&team(8, 4, 1), &mut MaxMin::default()) - 64.0 / 72.0).abs() < 1e-6);
    assert!((seconds(&team(8, 4, 2), &mut MaxMin::default()) - 64.0 / 72.0).abs() < 1e-6);
    // One thread: 96 ns for 10 lines, 9.6 s; in the queueing network one core alone waits only for
    // itself.
    assert!((seconds(&team(1, 1, 1), &mut MaxMin::default()) - 9.6).abs() < 1e-6);
    assert!(seconds(&team(1, 1, 1), &mut Amva::default()) >= 9.6);
}

#[test]
fn fewer_caches_mean_more_lines_for_the_same_work() {
    let mut misses = memory(1e9, 1.0, 104.0);
    misses.llc_miss_exponent = Some(assumed(0.5));
    let latency = Application { memory: Some(misses), ..application(Class::Latency) };
    let seconds =
        |team: &Team| time(&latency, &model("dell-r910"), team, &mut MaxMin::default()).expect("a time").seconds();
    // A quarter of the caches: 4^0.5 = 2 times the lines; for each old one 104 ns on the core and 2
    // x 96 ns of latency instead of 96.
    let packed = Team { llc_share: 0.25, ..team(2, 4, 1) };
    assert!((seconds(&packed) / seconds(&team(2, 4, 1)) - 296.0 / 200.0).abs() < 1e-9);
}

/// SplitMix64, as exponentially distributed times with mean 1.
struct Exponential(u64);

impl Exponential {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        -(((bits ^ (bits >> 31)) >> 11).max(1) as f64 / (1u64 << 53) as f64).ln()
    }
}

#[test]
fn the_closed_form_of_hidden_waits_is_that_of_a_run_of_events() {
    // Two processes on a core work and wait in turn, each piece of random length, in the shares of
    // NAMD with 16 processes in four VMs on four switches. Exactly, that is a closed network of a
    // core that shares itself out and of waiting: with k processes at work, probabilities 1 : 2 a :
    // 2 a a / y for a = work / wait and yield y, and work done at the rate 0, 1, y.
    const PIECES: u32 = 12_000;
    let (work_ns, wait_ns) = (416.5, 236.0);
    let mut run = crate::events::Simulation::new(1, Amva::default());
    run.set_smt_yield(1.167);
    for process in 0..2 {
        let mut random = Exponential(process + 1);
        let phases = (0..2 * PIECES).map(move |piece| match piece % 2 {
            0 => Phase::Compute { ns: work_ns * random.next() },
            _ => Phase::Message { latency_ns: wait_ns * random.next(), bytes: 0.0, uplink: None },
        });
        run.actor(Actor::new(0, phases.collect::<Vec<_>>()));
    }
    let piece_ns = run.run().expect("an end").end_ns / f64::from(PIECES);
    let busy = BusyCores { single: 0.0, double: 1.0 };
    let closed_ns = compute_seconds(2.0 * work_ns, busy, 1.167, 0.0, wait_ns) + wait_ns;
    let a: f64 = work_ns / wait_ns;
    let (one, two) = (2.0 * a, 2.0 * a * a / 1.167);
    let exact_ns = 2.0 * work_ns * (1.0 + one + two) / (one + 1.167 * two);
    assert!((piece_ns / exact_ns - 1.0).abs() < 0.02, "events {piece_ns:.1} ns, exactly {exact_ns:.1} ns");
    // The closed form takes the sibling's waits as independent of one's own work: 829 instead of
    // 842 ns.
    assert!((closed_ns / exact_ns - 1.0).abs() < 0.02, "closed form {closed_ns:.1} ns, exactly {exact_ns:.1} ns");
    // Without hiding it would be 416.5 / 0.5835 + 236 = 950.
    assert!(exact_ns < 0.9 * (work_ns / 0.5835 + wait_ns));
}
