//! Guests that go from one QEMU to another. They are paused: QEMU 7.2 corrupts guests that migrate
//! while they run without KVM. No guest is booted: the firmware finds nothing to boot, and waits.

use crate::common::{Place, again_with_the_newer_qemu, no_qemu};
use qemu::migration::{Arriving, Incoming, connections_of, settle, take_name};
use qemu::{QemuError, background};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use topology::Bytes;
use vm::backend::{ErrorKind, Watch};
use vm::sending::{Route, Sending, Sent, Tuning};
use vm::{Added, Backend, BackendError, CallOff, Launch, Vm};

impl Place {
    /// With its VM running, paused.
    fn with_paused_vm(label: &str) -> Self {
        let place = Self::new(label);
        place.start().pause().expect("paused");
        place
    }

    /// A QEMU that waits, and the one that it waits for.
    fn ends(&self, launch: &Launch) -> (Box<dyn Vm>, Incoming) {
        let mut source = self.source();
        let destination = self.waits(source.as_mut(), launch, "r1").expect("a destination");
        (source, destination)
    }

    fn source(&self) -> Box<dyn Vm> {
        self.backend().adopt(self.name()).expect("an answer").expect("the VM")
    }

    /// Asked over another connection: nobody else may have one.
    fn runs(&self) -> bool {
        background::vcpus_run(&self.directory, self.name()).expect("an answer")
    }

    fn waits(&self, source: &mut dyn Vm, launch: &Launch, receipt: &str) -> Result<Incoming, QemuError> {
        let (spec, topology) = (&self.launch.spec, &self.launch.plan.topology);
        let manifest = source.manifest(spec, topology, &Added::default()).expect("a manifest");
        Incoming::build(&self.directory, launch, &manifest, receipt, &CallOff::default())
    }

    /// What its QEMU was told of migrations. Asked over another connection: nobody may have one.
    fn told(&self, source: Box<dyn Vm>) -> Vec<Value> {
        drop(source);
        let socket = self.directory.path().join(self.name()).join("monitor");
        let mut monitor = UnixStream::connect(socket).expect("a monitor");
        let asked = ["qmp_capabilities", "query-migrate-capabilities", "query-migrate-parameters"];
        for command in asked {
            writeln!(monitor, "{}", serde_json::json!({ "execute": command })).expect("it listens");
        }
        let answers = BufReader::new(monitor).lines().map(|line| line.expect("a line"));
        let answers = answers.filter_map(|line| serde_json::from_str::<Value>(&line).ok()?.get("return").cloned());
        answers.take(asked.len()).collect()
    }

    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).expect("a directory").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (one, other) = UnixStream::pair().expect("a socket pair");
    (one.into(), other.into())
}

fn send(source: &mut dyn Vm, destination: &mut Incoming, runs: bool) -> Result<Sent, BackendError> {
    let (ours, theirs) = pair();
    let tuning = Tuning::default();
    destination.prepare(&tuning, runs).expect("it can receive it");
    destination.listen(theirs).expect("it listens");
    source.send(Sending { route: Route::Stream(ours), tuning }, &mut |_| true)
}

fn all_there(sent: &Result<Sent, BackendError>) {
    assert!(matches!(sent, Ok(Sent::AllThere(_))), "{sent:?}");
}

#[test]
fn a_guest_that_arrived_runs_when_it_is_let_and_takes_its_name() {
    if no_qemu("a_guest_that_arrived_runs_when_it_is_let") {
        return;
    }
    let place = Place::with_paused_vm("test-arrives");
    let (mut source, mut destination) = place.ends(&place.launch);
    let (spec, topology) = (&place.launch.spec, &place.launch.plan.topology);
    let manifest = source.manifest(spec, topology, &Added::default()).unwrap();
    source.may_be_sent(&manifest, &Tuning::default()).unwrap();
    let differences = manifest.differences(&destination.manifest(&Added::default()).unwrap());
    assert!(differences.is_empty(), "{differences:?}");
    all_there(&send(source.as_mut(), &mut destination, true));
    destination.takes_over().unwrap();
    destination.run().unwrap();
    let pid = destination.pid();
    let arrived = destination.keep().unwrap();
    source.stop(Duration::ZERO).unwrap();
    assert_eq!(place.left(), [format!("{}+arriving", place.name())]);
    arrived.take_name().unwrap();
    take_name(&place.directory, place.name()).unwrap(); // once more changes nothing
    assert_eq!(place.left(), [place.name()]);
    assert!(place.runs());
    let mut there = place.source();
    assert_eq!(there.pid(), pid);
    let residence = there.residence(&place.launch.plan).expect("a residence");
    assert!(residence.vcpus.iter().all(|vcpu| vcpu.at_home), "{residence:?}");
}

#[test]
fn a_paused_guest_goes_as_often_as_one_likes() {
    if no_qemu("a_paused_guest_goes_as_often_as_one_likes") {
        return;
    }
    let place = Place::with_paused_vm("test-paused");
    let (mut source, mut destination) = place.ends(&place.launch);
    all_there(&send(source.as_mut(), &mut destination, false));
    // Nobody takes it: it stays where it is, paused, and goes once more.
    drop(destination);
    for receipt in ["r2", "r3"] {
        let mut destination = place.waits(source.as_mut(), &place.launch, receipt).expect("a destination");
        all_there(&send(source.as_mut(), &mut destination, false));
        let arrived = destination.keep().unwrap();
        source.stop(Duration::ZERO).unwrap();
        arrived.take_name().unwrap();
        assert!(!place.runs());
        source = place.source();
    }
    // A QEMU that has ended by itself is ended.
    linux::sys::send_signal(source.pid(), 9).unwrap();
    source.stop(Duration::ZERO).map_or_else(|error| assert_eq!(error.kind(), ErrorKind::Gone, "{error}"), drop);
    assert_eq!(place.left(), [""; 0]);
}

/// Copies between a connection that QEMU made and one to the QEMU that waits, as ssh would.
fn carried(socket: OwnedFd, arriving: &Arriving) -> Result<(), BackendError> {
    let (here, there) = (UnixStream::from(socket), arriving.connect()?);
    let copies = |stream: &UnixStream| stream.try_clone().expect("a copy");
    for (mut from, mut to) in [(copies(&here), copies(&there)), (there, here)] {
        std::thread::spawn(move || {
            // It ends with either end.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
    }
    Ok(())
}

/// What a QEMU is told that sends a guest over several connections, and what it sent.
fn send_over_several(
    source: &mut dyn Vm,
    destination: &mut Incoming,
    tuning: Tuning,
    watch: &mut Watch<'_>,
) -> Result<Sent, BackendError> {
    destination.prepare(&tuning, false).expect("it can receive it");
    let arriving = destination.listen_for_several().expect("it listens");
    let mut give = |socket: OwnedFd| carried(socket, &arriving);
    source.send(Sending { route: Route::Streams(&mut give), tuning }, watch)
}

/// The destination's QEMU is killed while the memory goes over several connections: the guest goes
/// on, its QEMU is as it was before, and sends it later, over several and over one.
#[test]
fn a_guest_that_several_connections_failed_to_send_goes_later() {
    if no_qemu("a_guest_that_several_connections_failed_to_send_goes_later") {
        return;
    }
    let place = Place::with_paused_vm("test-again");
    let (mut source, mut destination) = place.ends(&place.launch);
    let (spec, topology) = (&place.launch.spec, &place.launch.plan.topology);
    let manifest = source.manifest(spec, topology, &Added::default()).unwrap();
    let tuning = Tuning { connections: 3, ..Tuning::default() };
    if let Err(refused) = source.may_be_sent(&manifest, &tuning) {
        // An old one could stand still for good.
        assert!(refused.to_string().contains("QEMU 10 or newer"), "{refused}");
        return;
    }
    let before = place.told(source);
    source = place.source();
    // What is not empty of it takes seconds.
    let slow = Tuning { bandwidth: Some(Bytes(300 << 10)), ..tuning };
    let (pid, mut was_killed) = (destination.pid(), false);
    let sent = send_over_several(source.as_mut(), &mut destination, slow, &mut |_| {
        was_killed = was_killed || linux::sys::send_signal(pid, 9).is_ok();
        true
    });
    assert!(was_killed && sent.is_err(), "{sent:?}");
    drop(destination);
    source.stay(true).unwrap();
    assert_eq!(place.told(source), before, "nothing is left of several connections");
    assert!(place.runs());
    source = place.source();
    source.pause().unwrap();
    let mut destination = place.waits(source.as_mut(), &place.launch, "r2").expect("a destination");
    all_there(&send_over_several(source.as_mut(), &mut destination, tuning, &mut |_| true));
    // Nobody takes it.
    drop(destination);
    source.stay(true).unwrap();
    source.pause().unwrap();
    let mut destination = place.waits(source.as_mut(), &place.launch, "r3").expect("a destination");
    all_there(&send(source.as_mut(), &mut destination, false));
}

/// QEMU 10 still tidied up when it was asked again, and was in `setup` for good then (every second
/// time). It may never tidy up: then it is said, and the guest runs on.
#[test]
fn a_guest_that_was_not_sent_is_sent_again_at_once() {
    if no_qemu("a_guest_that_was_not_sent_is_sent_again_at_once") {
        return;
    }
    let place = Place::with_paused_vm("test-at-once");
    let (mut source, mut destination) = place.ends(&place.launch);
    let (spec, topology) = (&place.launch.spec, &place.launch.plan.topology);
    let manifest = source.manifest(spec, topology, &Added::default()).unwrap();
    let mut tuning = Tuning { connections: 3, ..Tuning::default() };
    if source.may_be_sent(&manifest, &tuning).is_err() {
        tuning.connections = 1;
    }
    for _ in 0..4 {
        let cut = match tuning.connections {
            1 => {
                let (ours, theirs) = pair();
                drop(theirs);
                source.send(Sending { route: Route::Stream(ours), tuning }, &mut |_| true)
            }
            _ => source.send(Sending { route: Route::Streams(&mut |_| Ok(())), tuning }, &mut |_| true),
        };
        let said = cut.expect_err("nobody is there").to_string();
        if said.contains("did not tidy up an earlier migration") {
            source.stay(true).expect("it stays");
            assert!(tuning.connections > 1, "{said}");
            drop(source);
            return assert!(place.runs());
        }
        assert!(!said.contains("QEMU refused"), "{said}");
        source.stay(false).expect("it stays");
    }
    match send(source.as_mut(), &mut destination, false) {
        Err(error) if error.to_string().contains("did not tidy up an earlier migration") => {}
        sent => all_there(&sent),
    }
}

/// The order matters to QEMU 7.2. Each connection is copied, as ssh would.
#[test]
fn a_guest_goes_over_connections_that_both_qemus_make() {
    if no_qemu("a_guest_goes_over_connections_that_both_qemus_make") {
        return;
    }
    let place = Place::with_paused_vm("test-several");
    let (mut source, mut destination) = place.ends(&place.launch);
    let tuning = Tuning { connections: 3, ..Tuning::default() };
    destination.prepare(&tuning, true).expect("it can receive it");
    let arriving = destination.listen_for_several().expect("it listens");
    let mut made = 0;
    let mut give = |socket: OwnedFd| {
        carried(socket, &arriving)?;
        made += 1;
        Ok(())
    };
    let sent = source.send(Sending { route: Route::Streams(&mut give), tuning }, &mut |_| true);
    all_there(&sent);
    assert_eq!((made, connections_of(&tuning)), (4, 4));
    drop(arriving);
    destination.takes_over().unwrap();
    destination.run().unwrap();
    destination.keep().unwrap();
    source.stop(Duration::ZERO).unwrap();
    take_name(&place.directory, place.name()).unwrap();
    assert!(place.runs());
    // What goes over one after it is one again: its settings are gone.
    let (mut source, mut destination) = place.ends(&place.launch);
    all_there(&send(source.as_mut(), &mut destination, true));
}

#[test]
fn a_guest_that_does_not_fit_stays_where_it_is() {
    if no_qemu("a_guest_that_does_not_fit_stays_where_it_is") {
        return;
    }
    let place = Place::with_paused_vm("test-misfit");
    let mut wider = place.launch.clone();
    wider.plan.topology.nodes.iter_mut().for_each(|node| node.memory = topology::Bytes::from_mib(48));
    let (mut source, mut destination) = place.ends(&wider);
    send(source.as_mut(), &mut destination, true).expect_err("it does not fit");
    let error = (0..100).find_map(|_| destination.next(Duration::from_millis(50)).err()).expect("it ends");
    assert!(error.to_string().contains("Size mismatch"), "{error}");
    drop(destination);
    assert_eq!(place.left(), [place.name()]);
    source.stay(true).unwrap();
    drop(source);
    assert!(place.runs());
}

#[test]
fn what_is_called_off_runs_at_the_source_and_a_receipt_is_settled_by_its_number() {
    if no_qemu("what_is_called_off_runs_at_the_source") {
        return;
    }
    let place = Place::with_paused_vm("test-off");
    let (mut source, mut destination) = place.ends(&place.launch);
    // So slow that it does not end before it is called off.
    let slow = Tuning { bandwidth: Some(topology::Bytes(1)), ..Tuning::default() };
    let (ours, theirs) = pair();
    destination.prepare(&slow, true).unwrap();
    destination.listen(theirs).unwrap();
    let sending = Sending { route: Route::Stream(ours), tuning: slow };
    let error = source.send(sending, &mut |_| false).expect_err("it was called off");
    assert_eq!(error.kind(), ErrorKind::CalledOff, "{error}");
    source.stay(true).unwrap();
    drop(source);
    assert!(place.runs());
    let mut source = place.source();
    let error = place.waits(source.as_mut(), &place.launch, "r2").unwrap_err();
    assert!(matches!(error, QemuError::NameTaken { .. }), "{error}");
    drop(destination);
    let waits = place.waits(source.as_mut(), &place.launch, "r2").unwrap();
    let is_there = |pid: u32| linux::process::Identity::of(pid).is_ok();
    assert!(!settle(&place.directory, place.name(), "r1", false).unwrap() && is_there(waits.pid()));
    assert!(settle(&place.directory, place.name(), "r2", false).unwrap());
    drop(source);
    assert!(place.runs(), "the one that is there");
    drop(waits);
    assert_eq!(place.left(), [place.name()]);
}

/// A guest that its owner had paused was let run by whoever asked after a cut.
#[test]
fn a_receipt_that_is_settled_lets_no_guest_run_that_its_owner_had_paused() {
    if no_qemu("a_receipt_that_is_settled") {
        return;
    }
    let place = Place::with_paused_vm("test-settled");
    let record = place.directory.path().join(place.name()).join("state.json");
    // As a homenode leaves it that was killed while it took a guest over.
    let taking_over = |came_paused: bool| {
        let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
        state["phase"] = "taking_over".into();
        state["receipt"] = "r1".into();
        state["came_paused"] = came_paused.into();
        std::fs::write(&record, state.to_string()).unwrap();
    };
    let settled = || {
        assert!(settle(&place.directory, place.name(), "r1", true).unwrap());
        place.runs()
    };
    taking_over(true);
    assert!(!settled(), "it was paused when it came");
    taking_over(false);
    assert!(settled(), "it ran when it came");
    place.backend().adopt(place.name()).unwrap().expect("the VM").pause().unwrap();
    assert!(!settled(), "it was paused since");
}

#[test]
fn the_newer_qemu_does_all_of_it_too() {
    again_with_the_newer_qemu("migration", 8);
}
