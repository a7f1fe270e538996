//! What every backend promises (`vm::Backend`, `vm::Vm`), kept by QEMU's process that is tied to
//! us, QEMU in the background and a real libvirt: one list of steps for all.

use crate::common::libvirtd::Libvirtd;
use crate::common::{newer_qemu, no_qemu, unique};
use libvirt::{Connection, Domains};
use qemu::{Attached, InBackground, RuntimeDir};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use topology::Machine;
use vm::backend::{BackendKind, DomainOf, ErrorKind, Stopped, Watch};
use vm::sending::{Route, Sending, Tuning};
use vm::spec::{Boot, Disk, DiskFormat};
use vm::truth::Process;
use vm::{Backend, CallOff, Launch, Plan, Shape, Vm, VmSpec};

/// A VM that waits in its firmware for a disk that cannot be booted.
fn launch(name: &str, machine: &Machine, disk: &std::path::Path) -> Launch {
    let memory = topology::Bytes::from_mib(64);
    let shape = Shape { name: name.to_owned(), vcpus: 1, memory, ..Shape::default() };
    let disk = Disk { path: disk.to_owned(), format: DiskFormat::Raw, snapshot: false, read_only: true };
    let spec = VmSpec { shape, boot: Boot::BIOS_DISK, disks: vec![disk], ..VmSpec::default() };
    let plan = scheduler::plan(machine, &scheduler::Occupancy::default(), &spec).expect("a plan");
    Launch::new(spec, plan)
}

fn has_ended(pid: u32) -> bool {
    (0..400).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        linux::process::Identity::of(pid).is_err()
    })
}

fn keeps_its_promises(backend: &dyn Backend, kind: BackendKind, outlives_its_value: bool, disk: &std::path::Path) {
    let machine = topology::read::live().expect("this host");
    let launch = launch(&unique("promise"), &machine, disk);
    let name = &launch.spec.name;
    assert_eq!(backend.kind(), kind);
    assert!(backend.adopt(name).expect("an answer").is_none());

    let called_off = CallOff::default();
    called_off.call_off();
    let error = backend.start(&launch, &called_off).err().expect("a start that was called off");
    assert_eq!(error.kind(), ErrorKind::CalledOff, "{error}");
    assert!(backend.adopt(name).expect("an answer").is_none());

    assert!(matches!(backend.process(name), Ok(Process::Gone { .. })));
    let accelerator = backend.check(&launch).expect("it can be started");
    let mut vm = backend.start(&launch, &CallOff::default()).expect("a VM");
    assert_eq!(vm.accelerator().is_hardware(), accelerator.is_hardware());
    assert_eq!(vm.exited(), None);
    assert_eq!(vm.name(), name);
    assert!(vm.version().contains('.'), "{}", vm.version());
    let residence = vm.residence(&launch.plan).expect("a residence");
    assert_eq!((residence.pid, residence.vcpus.len(), residence.memory.len()), (vm.pid(), 1, 1));
    assert!(residence.vcpus[0].at_home, "{residence:?}");
    assert!(vm.agent().expect("an answer").is_none());
    vm.pause().expect("paused");
    // Who has a manager that others use, too, is told whether it waits.
    let managed = kind == BackendKind::Libvirt;
    let runs = |paused: bool| if managed { Process::Managed { paused } } else { Process::Runs };
    if outlives_its_value {
        assert_eq!(backend.process(name).expect("an answer"), runs(true));
    }
    vm.unpause().expect("running");
    if outlives_its_value {
        assert_eq!(backend.process(name).expect("an answer"), runs(false));
    }
    vm.reset().expect("reset");
    is_sent_its_own_way_only(vm.as_mut(), managed, &launch.plan);
    let pid = vm.pid();
    drop(vm);
    if outlives_its_value {
        let again = backend.start(&launch, &CallOff::default()).err().expect("the name is taken");
        assert!(again.to_string().contains(name.as_str()), "{again}");
        let vm = backend.adopt(name).expect("an answer").expect("it runs");
        assert_eq!((vm.pid(), vm.name()), (pid, name.as_str()));
        // Its firmware does not listen to the power button for so long.
        assert_eq!(vm.stop(Duration::ZERO).expect("stopped"), Stopped::ByForce);
    }
    assert!(has_ended(pid), "process {pid}");
    assert!(backend.adopt(name).expect("an answer").is_none());
    let none = backend.stop(name, Duration::ZERO).expect_err("none that runs");
    assert_eq!(none.kind(), ErrorKind::Gone, "{none}");
    let process = backend.process(name).expect("an answer");
    assert!(matches!(process, Process::Gone { .. } | Process::Ended), "{process:?}");
    backend.forget(name).expect("forgotten");
}

/// A guest goes by its manager where it has one, and into a stream otherwise. Who is asked for the
/// other way refuses it, and the guest stays as it is.
fn is_sent_its_own_way_only(vm: &mut dyn Vm, managed: bool, plan: &Plan) {
    let (ours, _theirs) = UnixStream::pair().expect("a socket pair");
    let route = match managed {
        true => Route::Stream(ours.into()),
        false => Route::Manager { uri: "qemu:///session", plan, shared_storage: true },
    };
    let watch: &mut Watch<'_> = &mut |_| panic!("it is on its way");
    let error = vm.send(Sending { route, tuning: Tuning::default() }, watch).expect_err("not its way");
    assert!(error.is_bad_input(), "{error}");
    assert!(!vm.follows().expect("an answer"));
    vm.stay(true).expect("it goes on");
    assert_eq!(vm.exited(), None);
}

/// A disk that anybody may read.
fn disk() -> tempfile::NamedTempFile {
    use std::os::unix::fs::PermissionsExt;
    let disk = tempfile::NamedTempFile::new().expect("a file");
    disk.as_file().set_len(1 << 20).expect("a size");
    disk.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).expect("a mode");
    disk
}

#[test]
fn a_qemu_that_is_tied_to_us_keeps_its_promises() {
    if !no_qemu("a_qemu_that_is_tied_to_us_keeps_its_promises") {
        keeps_its_promises(&Attached, BackendKind::Qemu, false, disk().path());
    }
}

#[test]
fn a_qemu_in_the_background_keeps_its_promises() {
    if !no_qemu("a_qemu_in_the_background_keeps_its_promises") {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = RuntimeDir::at(directory.path().join("run")).expect("a runtime directory");
        keeps_its_promises(&InBackground::of(runtime), BackendKind::Qemu, true, disk().path());
    }
}

#[test]
fn libvirt_keeps_its_promises() {
    let test = "libvirt_keeps_its_promises";
    let Some(libvirtd) = Libvirtd::start(test) else { return };
    let (uri, uuid) = (libvirtd.uri(), libvirt::new_uuid().expect("a UUID"));
    let connection = Connection::new(Some(&uri));
    keeps_its_promises(&Domains::transient(connection.clone()), BackendKind::Libvirt, false, disk().path());
    let of_record = Domains::of(&DomainOf { uri, uuid, adopted: false });
    keeps_its_promises(&of_record, BackendKind::Libvirt, true, disk().path());
    assert_eq!(libvirtd.virsh(&["list", "--all", "--name"]).trim(), "");
    keeps_its_promises(&Domains::kept(connection), BackendKind::Libvirt, true, disk().path());
}

/// Two QEMUs of different versions say different things of themselves, each its own.
#[test]
fn doctor_says_what_each_qemu_can() {
    let test = "doctor_says_what_each_qemu_can";
    if no_qemu(test) {
        return;
    }
    let newer = newer_qemu(&format!("part of {test}"));
    let place = tempfile::tempdir().expect("a directory");
    for qemu in newer.map(Some).into_iter().chain([None]) {
        let mut command = crate::common::homenode_in(place.path(), &["doctor", "--qemu", "--json"]);
        qemu.iter().for_each(|program| _ = command.env(qemu::BINARY_VARIABLE, program));
        let output = command.output().expect("homenode");
        assert!(output.status.success(), "{output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let version = said["qemu_version"].as_str().expect("a version");
        // A machine type bears the version of the QEMU that brought it: 7.2.22 has pc-q35-7.2.
        let number: Vec<&str> = version.split('.').take(2).collect();
        assert_eq!(said["machine"].as_str(), Some(format!("pc-q35-{}", number.join(".")).as_str()), "{said}");
        let has = |name: &str| {
            let feature = said["features"].as_array().expect("a list").iter().find(|feature| feature["name"] == name);
            feature.and_then(|feature| feature["has"].as_bool()).expect("a feature")
        };
        assert!(has("return-path") && has("virtio-mem-pci"), "{said}");
        // mapped-ram came with 9.0.
        assert_eq!(has("mapped-ram"), number[0].parse::<u32>().expect("a number") >= 9, "{said}");
        // So did removing an empty virtio-mem device, with 8.2.
        assert_eq!(has("virtio-md-pci"), has("mapped-ram"), "{said}");
        assert!(has("hotpluggable-cpus") && has("query-memory-devices"), "{said}");
        let purposes: Vec<&serde_json::Value> =
            said["features"].as_array().into_iter().flatten().map(|feature| &feature["purpose"]).collect();
        for purpose in ["hot-add", "suspend", "migrate"] {
            assert!(purposes.contains(&&serde_json::json!(purpose)), "{said}");
        }
    }
}
