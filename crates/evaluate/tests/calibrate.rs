//! A calibration from the first measurement to the machine file, against a scripted host.

use crate::scripted::{Script, ScriptedWorld, machine};
#[allow(dead_code)]
use evaluate::RunError;
use evaluate::calibrate::{CalibrateError, Calibration, Plan};
use evaluate::progress::Silent;
use simulator::MachineModel;
use std::sync::atomic::AtomicBool;
use topology::rates::Source;
use topology::{Bytes, Machine, NodeId, read};

/// The scripted host, with memory.
fn host() -> Machine {
    let mut machine = machine();
    machine.nodes.iter_mut().for_each(|node| node.memory = Bytes(16 << 30));
    machine
}

fn calibrate(script: Script) -> Result<Calibration, CalibrateError> {
    let plan = Plan::new(&host(), Bytes(32 << 30), true).expect("a regular host");
    plan.calibrate(&mut ScriptedWorld::new(script), &mut Silent, &AtomicBool::new(false))
}

#[test]
fn what_is_measured_becomes_a_machine_file_that_models_it() {
    let calibration = calibrate(Script::default()).expect("a calibration");
    let text = &calibration.described.text;
    let again = read::described(text, "again.toml").expect("it reads");
    let rates = again.rates.expect("rates");
    // The script: 90 ns to the own node, 150 ns to the other.
    let table = rates.latencies.as_ref().expect("a table");
    assert_eq!(table.rows, [[90.0, 150.0], [150.0, 90.0]]);
    assert_eq!((rates.links.len(), rates.links[0].latency_ns), (1, 60.0));
    // Each thread adds 1 GB/s of Copy up to the last: no bandwidth binds, and the file says that it
    // is not known.
    assert_eq!(rates.node_bandwidth_gb_per_s.source, Source::Assumed);
    assert_eq!(rates.links[0].source, Source::Assumed);
    assert!(calibration.notes.iter().any(|note| note.contains("was not yet busy")), "{:?}", calibration.notes);
    let model = MachineModel::new(&again.machine, &rates).expect("a model");
    assert_eq!(model.latency_ns(NodeId(0), NodeId(1)), 150.0);
    // 1, 2 and 4 threads of four kernels; four latencies; two pairs of nodes.
    assert_eq!(calibration.fitted.residuals.len(), 12 + 4 + 2);
    assert!(text.contains("# * latency, node 0 to 1") && text.contains("#   Copy, 2 threads"), "{text}");
}

#[test]
fn a_wrong_result_and_an_interruption_leave_no_rates() {
    let wrong = calibrate(Script { wrong: true, ..Script::default() }).expect_err("wrong").to_string();
    assert!(wrong.contains("its result was wrong"), "{wrong}");
    let dies = Script { dies: Some(("native".to_owned(), 2)), ..Script::default() };
    assert!(matches!(calibrate(dies), Err(CalibrateError::Run(RunError::Died { .. }))));
    let plan = Plan::new(&host(), Bytes(32 << 30), true).expect("a regular host");
    let mut world = ScriptedWorld::new(Script { hangs: Some("native".to_owned()), ..Script::default() });
    let stopped = plan.calibrate(&mut world, &mut Silent, &AtomicBool::new(true));
    assert!(matches!(stopped, Err(CalibrateError::Run(RunError::Interrupted))));
}

#[test]
fn a_host_that_no_machine_file_describes_is_refused_before_anything_is_measured() {
    let mut lopsided = host();
    lopsided.nodes[1].memory = Bytes(0);
    let Err(error) = Plan::new(&lopsided, Bytes(32 << 30), true) else { panic!("it is not regular") };
    let error = error.to_string();
    assert!(error.contains("regular machines only") && error.contains("node 1"), "{error}");
}
