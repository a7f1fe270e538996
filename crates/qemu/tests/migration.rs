//! Guests that go from one QEMU to another. They are paused: QEMU 7.2 corrupts guests that migrate
//! while they run without KVM. No guest is booted: the firmware finds nothing to boot, and waits.

use crate::common::{Place, again_with_the_newer_qemu, no_qemu};
use qemu::QemuError;
use qemu::migration::{Incoming, Outgoing, Status, Tuning, settle, take_name};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use vm::{Added, Backend, CallOff, Launch};

impl Place {
    /// With its VM running, paused.
    fn with_paused_vm(label: &str) -> Self {
        let place = Self::new(label);
        place.start().pause().expect("paused");
        place
    }

    /// A QEMU that waits, and the one that it waits for.
    fn ends(&self, launch: &Launch) -> (Outgoing, Incoming) {
        let mut source = Outgoing::connect(&self.directory, self.name()).expect("the VM");
        let destination = self.waits(&mut source, launch, "r1").expect("a destination");
        (source, destination)
    }

    fn waits(&self, source: &mut Outgoing, launch: &Launch, receipt: &str) -> Result<Incoming, QemuError> {
        let (spec, topology) = (&self.launch.spec, &self.launch.plan.topology);
        let manifest = source.manifest(spec, topology, &Added::default()).expect("a manifest");
        Incoming::build(&self.directory, launch, &manifest, receipt, &CallOff::default())
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

/// The state in which a migration ends.
fn sent(source: &mut Outgoing) -> Status {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let progress = source.next(Duration::from_millis(200)).expect("the source lives");
        match progress.status {
            Status::Ready => source.switch_over().expect("it goes on"),
            status if status.is_over() => return status,
            _ => {}
        }
        assert!(Instant::now() < deadline, "it does not end");
    }
}

fn begin(source: &mut Outgoing, destination: &mut Incoming, runs: bool) {
    let (ours, theirs) = pair();
    destination.prepare(&Tuning::default(), runs).expect("it can receive it");
    destination.listen(theirs).expect("it listens");
    source.prepare(&Tuning::default()).expect("it is prepared");
    source.send(ours).expect("it sends");
}

#[test]
fn a_guest_that_arrived_runs_when_it_is_let_and_takes_its_name() {
    if no_qemu("a_guest_that_arrived_runs_when_it_is_let") {
        return;
    }
    let place = Place::with_paused_vm("test-arrives");
    let (mut source, mut destination) = place.ends(&place.launch);
    assert_eq!(source.blocked().unwrap(), [""; 0]);
    let manifest = |vm: &mut Outgoing| vm.manifest(&place.launch.spec, &place.launch.plan.topology, &Added::default());
    let differences = manifest(&mut source).unwrap().differences(&destination.manifest(&Added::default()).unwrap());
    assert!(differences.is_empty(), "{differences:?}");
    begin(&mut source, &mut destination, true);
    assert_eq!(sent(&mut source), Status::Completed);
    assert!(!source.runs().unwrap());
    destination.takes_over().unwrap();
    destination.run().unwrap();
    let pid = destination.pid();
    let arrived = destination.keep().unwrap();
    source.end().unwrap();
    assert_eq!(place.left(), [format!("{}+arriving", place.name())]);
    arrived.take_name().unwrap();
    take_name(&place.directory, place.name()).unwrap(); // once more changes nothing
    assert_eq!(place.left(), [place.name()]);
    let mut there = Outgoing::connect(&place.directory, place.name()).unwrap();
    assert_eq!((there.pid(), there.runs().unwrap()), (pid, true));
    drop(there);
    let mut there = place.backend().adopt(place.name()).expect("an answer").expect("the VM");
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
    begin(&mut source, &mut destination, false);
    assert_eq!(sent(&mut source), Status::Completed);
    // Nobody takes it: it stays where it is, paused, and goes once more.
    drop(destination);
    for receipt in ["r2", "r3"] {
        let mut destination = place.waits(&mut source, &place.launch, receipt).expect("a destination");
        begin(&mut source, &mut destination, false);
        assert_eq!(sent(&mut source), Status::Completed);
        let arrived = destination.keep().unwrap();
        source.end().unwrap();
        arrived.take_name().unwrap();
        source = Outgoing::connect(&place.directory, place.name()).unwrap();
        assert!(!source.runs().unwrap());
    }
    // A QEMU that has ended by itself is ended.
    linux::sys::send_signal(source.pid(), 9).unwrap();
    source.end().unwrap();
    assert_eq!(place.left(), [""; 0]);
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
    begin(&mut source, &mut destination, true);
    assert_eq!(sent(&mut source), Status::Failed);
    let error = (0..100).find_map(|_| destination.next(Duration::from_millis(50)).err()).expect("it ends");
    assert!(error.to_string().contains("Size mismatch"), "{error}");
    drop(destination);
    assert_eq!(place.left(), [place.name()]);
    source.go_on().unwrap();
    assert!(source.runs().unwrap());
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
    source.prepare(&slow).unwrap();
    source.send(ours).unwrap();
    source.cancel().unwrap();
    source.go_on().unwrap();
    assert!(source.runs().unwrap());
    let error = place.waits(&mut source, &place.launch, "r2").unwrap_err();
    assert!(matches!(error, QemuError::NameTaken { .. }), "{error}");
    drop(destination);
    let waits = place.waits(&mut source, &place.launch, "r2").unwrap();
    let is_there = |pid: u32| linux::process::Identity::of(pid).is_ok();
    assert!(!settle(&place.directory, place.name(), "r1", false).unwrap() && is_there(waits.pid()));
    assert!(settle(&place.directory, place.name(), "r2", false).unwrap());
    assert!(source.runs().unwrap(), "the one that is there");
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
        Outgoing::connect(&place.directory, place.name()).unwrap().runs().unwrap()
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
    again_with_the_newer_qemu("migration", 5);
}
