//! Domains that go into files and to other libvirts, with real libvirtds and real QEMUs. Their
//! firmware finds nothing to boot, and waits.

use crate::libvirtd::Libvirtd;
use libvirt::{Connection, Domains, is_whole};
use scheduler::{Occupancy, rehome};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use topology::{Bytes, Machine};
use vm::backend::{ErrorKind, GuestBytes, Saved, Watch};
use vm::sending::{Route, Sending, Sent, Tuning};
use vm::{Added, Backend, BackendError, CallOff, Launch, Manifest, Resize, Vm, VmSpec};

/// A VM of two virtual nodes on a libvirt of its own.
struct Place {
    libvirtd: Libvirtd,
    machine: Machine,
    launch: Launch,
}

impl Place {
    fn new(test: &str, name: &str) -> Option<Self> {
        let libvirtd = Libvirtd::start(test)?;
        let text = libvirtd.growing_spec(&format!("{name}-{}", std::process::id()), 288);
        let spec = VmSpec::from_toml(&text, "vm.toml").expect("a spec");
        let machine = topology::read::live().expect("this host");
        let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
        let launch = Launch::new(spec, plan);
        Some(Self { libvirtd, machine, launch })
    }

    fn name(&self) -> &str {
        &self.launch.spec.name
    }

    fn domains(&self) -> Domains {
        let connection = Connection::new(Some(&self.libvirtd.uri()));
        Domains::kept(connection)
    }

    fn start(&self) -> Box<dyn Vm> {
        self.domains().start(&self.launch, &CallOff::default()).expect("a VM")
    }

    fn manifest(&self, vm: &mut dyn Vm) -> Manifest {
        vm.manifest(&self.launch.spec, &self.launch.plan.topology, &Added::default()).expect("a manifest")
    }

    /// A file that its QEMU may write.
    fn file(&self) -> PathBuf {
        self.libvirtd.path().join("data/saved")
    }

    /// The same VM with all its vCPUs on the first CPU.
    fn at_another_home(&self) -> Launch {
        let topology = &self.launch.plan.topology;
        let plan = rehome(&self.machine, &Occupancy::default(), &self.launch.spec, topology, &[]);
        let mut launch = Launch { plan: plan.expect("a plan"), ..self.launch.clone() };
        launch.plan.placement.clients.iter_mut().for_each(|client| client.cpus = "0".parse().expect("a set"));
        launch
    }

    fn resume(&self, launch: &Launch, manifest: &Manifest, right: bool) -> Result<Box<dyn Vm>, BackendError> {
        let (path, called_off) = (self.file(), AtomicBool::new(false));
        let mut was_right = || match right {
            true => Ok(()),
            false => Err(BackendError::new(ErrorKind::BadInput, "it is damaged")),
        };
        let from = GuestBytes::File { path: &path, called_off: &called_off };
        let saved = Saved { manifest, from, was_right: &mut was_right, told: &mut |_| {} };
        self.domains().resume(launch, saved, &CallOff::default())
    }

    fn state(&self) -> String {
        self.libvirtd.virsh(&["domstate", self.name()]).trim().to_owned()
    }
}

fn save(vm: &mut dyn Vm, path: &std::path::Path) -> Result<(), BackendError> {
    let called_off = AtomicBool::new(false);
    vm.save(GuestBytes::File { path, called_off: &called_off }, &mut |_| {})
}

#[test]
fn a_guest_that_runs_or_that_somebody_paused_does_not_stand_still_by_itself() {
    let test = "a_guest_that_runs_or_that_somebody_paused_does_not_stand_still_by_itself";
    let Some(place) = Place::new(test, "still") else { return };
    let mut vm = place.start();
    assert_eq!((vm.stalled(), vm.stalled(), vm.exited()), (None, None, None));
    vm.pause().expect("it waits");
    assert_eq!(place.state(), "paused");
    // The second look finds that its QEMU did nothing, and asks.
    assert_eq!((vm.stalled(), vm.stalled()), (None, None));
    place.libvirtd.virsh(&["destroy", place.name()]);
    assert!(vm.exited().is_some_and(|words| words.contains("QEMU ended")));
}

#[test]
fn a_domain_goes_into_a_file_and_on_from_it_at_other_homes() {
    let test = "a_domain_goes_into_a_file_and_on_from_it_at_other_homes";
    let Some(place) = Place::new(test, "hnlv-saved") else { return };
    let mut vm = place.start();
    let before = place.manifest(vm.as_mut());
    assert!(before.run_by.machine.starts_with("pc-q35-"), "{before:?}");
    assert_eq!(before.memory(), Bytes::from_mib(64));
    vm.pause().expect("it waits");
    // Where libvirt may not write: said, and it waits on.
    let error = save(vm.as_mut(), std::path::Path::new("/proc/no/such/place")).expect_err("no file");
    assert_eq!((vm.exited(), place.state().as_str()), (None, "paused"), "{error}");
    save(vm.as_mut(), &place.file()).expect("it is saved");
    assert!(vm.exited().is_some() && is_whole(&place.file()) && place.libvirtd.qemus().is_empty());
    drop(vm);
    let (spec, topology) = (&place.launch.spec, &place.launch.plan.topology);
    let manifest = place.domains().manifest_of(&place.file(), (spec, topology, &Added::default()));
    assert_eq!(manifest.expect("libvirt reads it").differences(&before), []);

    // What is not as it was starts nothing.
    let launch = place.at_another_home();
    let refused = |launch: &Launch, manifest: &Manifest, right: bool| {
        let error = place.resume(launch, manifest, right).err().expect("it is refused");
        assert!(error.is_bad_input() && place.libvirtd.qemus().is_empty(), "{error}");
        assert_eq!(place.state(), "shut off");
        error.to_string()
    };
    assert_eq!(refused(&launch, &before, false), "it is damaged");
    let mut other = before.clone();
    other.run_by.machine = "pc-q35-2.12".to_owned();
    assert!(refused(&launch, &other, true).contains("machine type: pc-q35-2.12 where it ran"));
    let mut renamed = launch.clone();
    renamed.spec.shape.name.push('x');
    assert!(refused(&renamed, &before, true).contains("libvirt's file holds domain"));

    let mut vm = place.resume(&launch, &before, true).expect("it goes on");
    assert_eq!(place.state(), "running");
    let residence = vm.residence(&launch.plan).expect("a residence");
    assert!(residence.vcpus.iter().all(|vcpu| vcpu.at_home && vcpu.affinity.to_string() == "0"), "{residence:?}");
    let said = place.libvirtd.virsh(&["emulatorpin", place.name()]);
    assert_eq!(said.split_whitespace().last(), Some("0"), "{said}");
    assert_eq!(place.manifest(vm.as_mut()).differences(&before), []);
    vm.stop(Duration::ZERO).expect("it ends");
}

#[test]
fn a_domain_goes_to_another_libvirt_at_other_homes() {
    let test = "a_domain_goes_to_another_libvirt_at_other_homes";
    let Some(place) = Place::new(test, "hnlv-sent") else { return };
    let Some(there) = Libvirtd::start(test) else { return };
    let mut vm = place.start();
    let plan = place.at_another_home().plan;
    let uri = there.uri();
    let sending = |uri, shared_storage| Sending {
        route: Route::Manager { uri, plan: &plan, shared_storage },
        tuning: Tuning::default(),
    };
    let watch: &mut Watch<'_> = &mut |_| true;
    // A domain of its name is there: nothing is sent.
    let other = "<domain type='qemu'><name>NAME</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
        <os><type arch='x86_64' machine='q35'>hvm</type></os></domain>";
    let xml = there.path().join("other.xml");
    std::fs::write(&xml, other.replace("NAME", place.name())).expect("a file");
    there.virsh(&["define", xml.to_str().expect("UTF-8")]);
    let error = vm.send(sending(&uri, true), watch).expect_err("the name is taken");
    assert!(error.is_bad_input() && error.to_string().contains("another domain of this name"), "{error}");
    there.virsh(&["undefine", place.name()]);
    // Nobody is there.
    vm.send(sending("qemu+unix:///session?socket=/no/such/socket", true), watch).expect_err("nobody answers");
    assert_eq!(place.state(), "running");
    // libvirt itself does not believe that the disk is shared.
    match vm.send(sending(&uri, false), watch).expect("an answer") {
        Sent::Stayed(error) => assert!(error.to_string().contains("goes on here"), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(place.state(), "running");
    let sent = vm.send(sending(&uri, true), watch).expect("it is sent");
    assert!(matches!(sent, Sent::Went { .. }), "{sent:?}");
    assert!(vm.exited().is_some());
    assert_eq!(place.libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
    assert_eq!(there.virsh(&["domstate", place.name()]).trim(), "running");
    assert!(there.virsh(&["dominfo", place.name()]).contains("Persistent:     yes"));
    for kept in [&["dumpxml", place.name()][..], &["dumpxml", place.name(), "--inactive"]] {
        let xml = there.virsh(kept);
        assert!(xml.contains("<emulatorpin cpuset='0'/>") && xml.contains("<vcpupin vcpu='3' cpuset='0'/>"), "{xml}");
    }
    there.virsh(&["destroy", place.name()]);
}

#[test]
fn a_domain_grows_where_it_lives_now() {
    let Some(place) = Place::new("a_domain_grows_where_it_lives_now", "hnlv-grown") else { return };
    let mut vm = place.start();
    let defined = || place.libvirtd.virsh(&["dumpxml", place.name(), "--inactive"]);
    let before = defined();
    let node = |id: u32| &place.launch.plan.topology.nodes[id as usize];
    let (first, second) = (node(0).absent[0], node(1).absent[0]);
    // Both grow by a vCPU and 128 MiB, and live on the first CPU.
    let resize = Resize {
        topology: place.launch.plan.topology.clone(),
        placement: place.at_another_home().plan.placement,
        backing: place.launch.spec.backing,
        added: Added::default(),
        plug: vec![first, second],
        unplug: Vec::new(),
        memory: [0, 1].map(|id| (id, Bytes::from_mib(32 + 128))).into(),
        patience: Duration::from_millis(300),
    };
    let mut told = Vec::new();
    let resized = vm.resize(&resize, &mut |added| told.push(added.clone())).expect("it grows");
    let added = resized.added;
    assert_eq!((added.vcpus.as_slice(), told.last()), ([first, second].as_slice(), Some(&added)));
    // One look after each of four devices.
    assert_eq!(told.len(), 4, "{told:?}");
    for (device, home) in added.memory.iter().zip(&resize.placement.clients) {
        assert_eq!((device.size.mib(), device.requested.mib(), &device.bound_to), (256, 128, &home.home));
    }
    let pins = place.libvirtd.virsh(&["vcpupin", place.name()]);
    let pin = |vcpu: u32| pins.lines().find_map(|line| line.trim().strip_prefix(&format!("{vcpu} "))).map(str::trim);
    assert_eq!((pin(first), pin(second)), (Some("0"), Some("0")), "{pins}");
    let process = libvirt::local_process(&uuid(&place)).unwrap().expect("its QEMU");
    for vcpu in process.threads.vcpus.iter().filter(|thread| [first, second].contains(&thread.index)) {
        assert_eq!(linux::sys::affinity(vcpu.thread_id).unwrap().to_string(), "0");
    }
    // Its firmware uses neither.
    assert_eq!(resized.undone.len(), 3, "{:?}", resized.undone);
    assert!(
        resized.undone[0].contains("driver for virtio-mem") && resized.undone[2].contains("has not used vCPUs 1,3")
    );
    assert_eq!(defined(), before);

    // Less memory, from the same devices; what is asked for already is not asked for again.
    let less = Resize {
        added,
        plug: Vec::new(),
        memory: [(0, Bytes::from_mib(32)), (1, Bytes::from_mib(160))].into(),
        ..resize
    };
    let mut told = 0;
    let resized = vm.resize(&less, &mut |_| told += 1).expect("it shrinks");
    let asked: Vec<u64> = resized.added.memory.iter().map(|device| device.requested.mib()).collect();
    assert_eq!((asked.as_slice(), told), ([0, 128].as_slice(), 1));

    let refused = |vm: &mut dyn Vm, resize: &Resize| {
        let error = vm.resize(resize, &mut |_| panic!("something was done")).expect_err("it is refused");
        assert!(error.is_bad_input(), "{error}");
        error.to_string()
    };
    let now = Resize { added: resized.added, ..less };
    let most = Resize { memory: [(1, Bytes::GIB)].into(), ..now.clone() };
    assert!(refused(vm.as_mut(), &most).contains("virtual node 1 may have 288 MiB at most"));
    let of_start = Resize { unplug: vec![0], ..now.clone() };
    assert!(refused(vm.as_mut(), &of_start).contains("vCPU 0 was there at power-on"));
    let none = Resize { plug: vec![9], ..now };
    assert!(refused(vm.as_mut(), &none).contains("no vCPU 9"));
    vm.stop(Duration::ZERO).expect("it ends");
}

fn uuid(place: &Place) -> String {
    place.libvirtd.virsh(&["domuuid", place.name()]).trim().to_owned()
}

/// Whoever calls it off, at whatever moment: one runs, and it is said which.
#[test]
#[ignore = "takes long: make test-long and .ci/run run it"]
fn one_of_two_runs_whenever_it_is_called_off() {
    let test = "one_of_two_runs_whenever_it_is_called_off";
    let Some(place) = Place::new(test, "hnlv-cut") else { return };
    let Some(other) = Libvirtd::start(test) else { return };
    drop(place.start());
    let plan = place.at_another_home().plan;
    let (mut here, mut there) = (&place.libvirtd, &other);
    let (mut went, mut stayed) = (0, 0);
    // From before the first byte until after the last: a migration takes some 300 ms.
    for wait in (0..24).map(|turn| Duration::from_millis(turn * 60)) {
        let domains = Domains::kept(Connection::new(Some(&here.uri())));
        let mut vm = domains.adopt(place.name()).expect("an answer").expect("it runs here");
        let (begun, to) = (Instant::now(), there.uri());
        let route = Route::Manager { uri: &to, plan: &plan, shared_storage: true };
        let sending = Sending { route, tuning: Tuning::default() };
        let sent = vm.send(sending, &mut |_| begun.elapsed() < wait).expect("it is said");
        let runs = |libvirtd: &Libvirtd| {
            let said = libvirtd.try_virsh(&["domstate", place.name()]);
            String::from_utf8_lossy(&said.stdout).trim() == "running"
        };
        let (is_here, is_there) = (runs(here), runs(there));
        match sent {
            Sent::Went { .. } => {
                assert_eq!((is_here, is_there), (false, true), "{wait:?}");
                (here, there) = (there, here);
                went += 1;
            }
            Sent::Stayed(error) => {
                assert_eq!((is_here, is_there), (true, false), "{wait:?}: {error}");
                assert!(error.to_string().contains("goes on here: it was called off"), "{wait:?}: {error}");
                stayed += 1;
            }
            sent => panic!("{wait:?}: {sent:?}"),
        }
    }
    eprintln!("went {went} times, stayed {stayed} times");
    here.virsh(&["destroy", place.name()]);
}
