//! Guests that go from one QEMU to another. They are paused: QEMU 7.2 corrupts guests that migrate
//! while they run without KVM. No guest is booted: the firmware finds nothing to boot, and waits.

use qemu::migration::{Incoming, Outgoing, Status, Tuning, settle, take_name};
use qemu::{InBackground, QemuError, RuntimeDir, background, locate_qemu};
use scheduler::Occupancy;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use vm::{Added, Backend, CallOff, ConsoleTo, Launch, VmSpec};

/// Names the newer QEMU (`scripts/newer-qemu`).
const NEWER: &str = "HOMENODE_NEWER_QEMU";

fn launch(name: &str, mib: u64, disk: &Path) -> Launch {
    let fixed = format!("{{ vcpus = 1, memory = \"{mib} MiB\" }},").repeat(2);
    let head = format!("name = \"{name}\"\nvcpus = 2\nmemory = \"{} MiB\"\n", 2 * mib);
    let boot = format!("boot.from = \"disk\"\n[[disk]]\npath = '{}'\nformat = \"raw\"\n", disk.display());
    let text = format!("{head}policy.virtual_nodes = [{fixed}]\n{boot}");
    let spec = VmSpec::from_toml(&text, "test").expect("a spec");
    let machine = topology::read::live().expect("this host");
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    Launch { spec, plan, kernel: None, console: ConsoleTo::Kept, agent: false }
}

struct Place {
    directory: RuntimeDir,
    name: String,
    launch: Launch,
    root: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = background::stop(&self.directory, &self.name, Duration::ZERO);
    }
}

impl Place {
    /// A VM that runs, paused.
    fn with_paused_vm(label: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let disk = root.path().join("disk.img");
        std::fs::write(&disk, vec![0u8; 1 << 20]).expect("a disk image");
        // The QEMU of a root runs as another user.
        for (path, mode) in [(root.path(), 0o755), (&disk, 0o666)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        }
        let directory = RuntimeDir::at(root.path().join("run")).expect("a runtime directory");
        let name = format!("{label}-{}", std::process::id());
        let launch = launch(&name, 32, &disk);
        let backend = InBackground::of(directory.clone());
        let mut vm = backend.start(&launch, &CallOff::default()).expect("a VM");
        vm.pause().expect("paused");
        drop(vm);
        Self { directory, name, launch, root }
    }

    /// A QEMU that waits, and the one that it waits for.
    fn ends(&self, launch: &Launch) -> (Outgoing, Incoming) {
        let mut source = Outgoing::connect(&self.directory, &self.name).expect("the VM");
        let destination = self.waits(&mut source, launch, "r1").expect("a destination");
        (source, destination)
    }

    fn waits(&self, source: &mut Outgoing, launch: &Launch, receipt: &str) -> Result<Incoming, QemuError> {
        let (spec, topology) = (&self.launch.spec, &self.launch.plan.topology);
        let manifest = source.manifest(spec, topology, &Added::default()).expect("a manifest");
        Incoming::build(&self.directory, launch, &manifest, receipt, &CallOff::default())
    }

    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.path().join("run")).expect("a directory").flatten();
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

fn skipped(test: &str) -> bool {
    let missing = locate_qemu("test");
    if let Err(error) = &missing {
        eprintln!("SKIPPED {test}: {error}");
    }
    missing.is_err()
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

fn begin(source: &mut Outgoing, destination: &mut Incoming) {
    let (ours, theirs) = pair();
    destination.listen(theirs, &Tuning::default()).expect("it listens");
    source.prepare(&Tuning::default()).expect("it is prepared");
    source.send(ours).expect("it sends");
}

#[test]
fn a_guest_that_arrived_runs_when_it_is_let_and_takes_its_name() {
    if skipped("a_guest_that_arrived_runs_when_it_is_let") {
        return;
    }
    let place = Place::with_paused_vm("test-arrives");
    let (mut source, mut destination) = place.ends(&place.launch);
    assert_eq!(source.blocked().unwrap(), [""; 0]);
    let manifest = |vm: &mut Outgoing| vm.manifest(&place.launch.spec, &place.launch.plan.topology, &Added::default());
    let differences = manifest(&mut source).unwrap().differences(&destination.manifest(&Added::default()).unwrap());
    assert!(differences.is_empty(), "{differences:?}");
    begin(&mut source, &mut destination);
    assert_eq!(sent(&mut source), Status::Completed);
    assert!(!source.runs().unwrap() && source.is_sent().unwrap());
    destination.takes_over().unwrap();
    destination.run().unwrap();
    let pid = destination.pid();
    let arrived = destination.keep().unwrap();
    assert!(arrived.residence.vcpus.iter().all(|vcpu| vcpu.at_home), "{:?}", arrived.residence);
    source.end().unwrap();
    assert_eq!(place.left(), [format!("{}+arriving", place.name)]);
    arrived.take_name().unwrap();
    take_name(&place.directory, &place.name).unwrap(); // once more changes nothing
    assert_eq!(place.left(), [place.name.as_str()]);
    let mut there = Outgoing::connect(&place.directory, &place.name).unwrap();
    assert_eq!((there.pid(), there.runs().unwrap()), (pid, true));
}

#[test]
fn a_guest_that_does_not_fit_stays_where_it_is() {
    if skipped("a_guest_that_does_not_fit_stays_where_it_is") {
        return;
    }
    let place = Place::with_paused_vm("test-misfit");
    let wider = launch(&place.name, 48, &place.root.path().join("disk.img"));
    let (mut source, mut destination) = place.ends(&wider);
    begin(&mut source, &mut destination);
    assert_eq!(sent(&mut source), Status::Failed);
    let error = (0..100).find_map(|_| destination.next(Duration::from_millis(50)).err()).expect("it ends");
    assert!(error.to_string().contains("Size mismatch"), "{error}");
    drop(destination);
    assert_eq!(place.left(), [place.name.as_str()]);
    source.go_on().unwrap();
    assert!(source.runs().unwrap());
}

#[test]
fn what_is_called_off_runs_at_the_source_and_a_receipt_is_settled_by_its_number() {
    if skipped("what_is_called_off_runs_at_the_source") {
        return;
    }
    let place = Place::with_paused_vm("test-off");
    let (mut source, mut destination) = place.ends(&place.launch);
    // So slow that it does not end before it is called off.
    let slow = Tuning { bandwidth: Some(topology::Bytes(1)), ..Tuning::default() };
    let (ours, theirs) = pair();
    destination.listen(theirs, &slow).unwrap();
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
    assert!(!settle(&place.directory, &place.name, "r1", false).unwrap() && is_there(waits.pid()));
    assert!(settle(&place.directory, &place.name, "r2", false).unwrap());
    assert!(source.runs().unwrap(), "the one that is there");
    drop(waits);
    assert_eq!(place.left(), [place.name.as_str()]);
}

/// The same with the newer QEMU, in a process of its own: a QEMU is chosen by the environment.
#[test]
fn the_newer_qemu_does_all_of_it_too() {
    let Some(newer) = std::env::var_os(NEWER) else {
        return eprintln!("SKIPPED the_newer_qemu_does_all_of_it_too: {NEWER} is not set (scripts/newer-qemu)");
    };
    let mut again = std::process::Command::new(std::env::current_exe().expect("this program"));
    again.args(["migration::", "--skip", "newer_qemu"]).env("HOMENODE_QEMU", newer).env_remove(NEWER);
    let output = again.output().expect("this program");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("3 passed"), "{said}");
}
