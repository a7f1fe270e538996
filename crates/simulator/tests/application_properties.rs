//! What must hold for applications on any machine of the catalogue.

use proptest::prelude::*;
use simulator::application::{BusyCores, Team, local_share, time};
use simulator::threads::memory::{Memory, shares};
use simulator::threads::{Cores, Thread, ThreadPolicy, works};
use simulator::workload::{Application, Binding, Class, MemoryWork};
use simulator::{Amva, MachineModel};
use topology::NodeId;
use topology::rates::{Source, Sourced};

fn assumed<T>(value: T) -> Sourced<T> {
    Sourced { value, source: Source::Assumed, from: "test".to_owned() }
}

fn application(class: Class, lines_in_flight: f64, core_ns: f64) -> Application {
    Application {
        class,
        class_from: "test".to_owned(),
        binding: assumed(Binding::Pinned),
        serial_s: Some(assumed(1.0)),
        compute_core_s: Some(assumed(10.0)),
        memory: Some(MemoryWork {
            lines: assumed(1e10),
            lines_in_flight: assumed(lines_in_flight),
            core_ns_per_line: assumed(core_ns),
            write_share: assumed(0.25),
            llc_miss_exponent: None,
        }),
        messages: None,
        virtual_overhead: None,
    }
}

fn r910() -> MachineModel {
    let described = topology::read::shipped_described("dell-r910").expect("shipped").expect("valid");
    MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model")
}

/// Processes spread over the nodes, each with this memory.
fn team(model: &MachineModel, processes: u32, memory: Memory) -> Team {
    let cores = Cores::of(model.machine());
    let nodes: Vec<NodeId> = model.machine().nodes.iter().map(|node| node.id).collect();
    let all = nodes.iter().copied().collect();
    let chosen = cores.place(&mut cores.idle(), &all, ThreadPolicy::LeastLoadedNode, processes).expect("room");
    let thread = |core: usize| Thread { core, memory: shares(memory, cores.list()[core].node, &nodes) };
    let threads: Vec<Thread> = chosen.into_iter().map(thread).collect();
    Team {
        processes,
        busy: BusyCores::spread(32, 2, processes).expect("room"),
        works: works(&cores, &threads),
        llc_share: 1.0,
        is_virtual: false,
        others: Default::default(),
    }
}

properties::properties! {
    #![cases(24)]

    #[test]
    fn more_processes_are_never_slower_and_local_memory_never_either(core_ns in 0.0_f64..300.0, streams in any::<bool>()) {
        let model = r910();
        let application = match streams {
            true => application(Class::Overlap, 10.0, core_ns),
            false => application(Class::Latency, 1.0, core_ns),
        };
        let seconds = |processes: u32, memory: Memory| {
            time(&application, &model, &team(&model, processes, memory), &mut Amva::default()).expect("a \
                time").seconds()
        };
        let mut before = f64::INFINITY;
        for processes in [4, 8, 16, 32, 64] {
            let local = seconds(processes, Memory::Local);
            prop_assert!(local <= before * (1.0 + 1e-6), "{processes} processes: {local} s after {before} s");
            prop_assert!(local <= seconds(processes, Memory::Interleaved) * (1.0 + 1e-6));
            before = local;
        }
    }

    #[test]
    fn random_placement_never_gains_cores(cores in 1_u32..40, share in 0.0_f64..=1.0, part in 0.0_f64..=1.0) {
        let threads = (f64::from(2 * cores) * part) as u32;
        let best = BusyCores::spread(cores, 2, threads).expect("room");
        let mean = BusyCores::random(cores, 2, threads, share).expect("room");
        prop_assert!((mean.single + 2.0 * mean.double - f64::from(threads)).abs() < 1e-6);
        prop_assert!(mean.single > -1e-9 && mean.double >= best.double - 1e-9);
        prop_assert!(mean.capacity(1.2) <= best.capacity(1.2) + 1e-9);
    }

    #[test]
    fn drift_leaves_between_an_equal_share_and_all(busy in 0.0_f64..64.0, cores in 1.0_f64..64.0, nodes in 1_u32..9) {
        let local = local_share(Binding::Unpinned, busy, cores, nodes);
        prop_assert!(local <= 1.0 && local >= 1.0 / f64::from(nodes) - 1e-9);
    }
}
