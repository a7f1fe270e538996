//! Guests that go out of one QEMU and come into another one. No guest is booted: the firmware finds
//! nothing to boot, and waits.

use qemu::{InBackground, RuntimeDir, background, locate_qemu};
use scheduler::Occupancy;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use topology::Bytes;
use vm::backend::{ErrorKind, Saved};
use vm::{Added, Backend, BackendError, CallOff, ConsoleTo, Launch, Manifest, Resize, Vm, VmSpec};

/// Names the newer QEMU (`scripts/newer-qemu`).
const NEWER: &str = "HOMENODE_NEWER_QEMU";

fn launch(name: &str, disk: &Path) -> Launch {
    let fixed = "{ vcpus = 1, memory = \"32 MiB\" },".repeat(2);
    let head = format!("name = \"{name}\"\nvcpus = 2\nmemory = \"64 MiB\"\n");
    let boot = format!("boot.from = \"disk\"\n[[disk]]\npath = '{}'\nformat = \"raw\"\n", disk.display());
    let text = format!("{head}policy.virtual_nodes = [{fixed}]\n{boot}");
    let spec = VmSpec::from_toml(&text, "test").expect("a spec");
    let machine = topology::read::live().expect("this host");
    let plan = scheduler::plan(&machine, &Occupancy::default(), &spec).expect("a plan");
    Launch { spec, plan, kernel: None, console: ConsoleTo::Kept, agent: false }
}

struct Place {
    directory: RuntimeDir,
    launch: Launch,
    _root: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = background::stop(&self.directory, &self.launch.spec.name, Duration::ZERO);
    }
}

impl Place {
    fn new(label: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let disk = root.path().join("disk.img");
        std::fs::write(&disk, vec![0u8; 1 << 20]).expect("a disk image");
        // The QEMU of a root runs as another user.
        for (path, mode) in [(root.path(), 0o755), (&disk, 0o666)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        }
        let directory = RuntimeDir::at(root.path().join("run")).expect("a runtime directory");
        let launch = launch(&format!("{label}-{}", std::process::id()), &disk);
        Self { directory, launch, _root: root }
    }

    fn backend(&self) -> InBackground {
        InBackground::of(self.directory.clone())
    }

    fn start(&self) -> Box<dyn Vm> {
        self.backend().start(&self.launch, &CallOff::default()).expect("a VM")
    }

    fn manifest(&self, vm: &mut dyn Vm) -> Manifest {
        vm.manifest(&self.launch.spec, &self.launch.plan.topology, &Added::default()).expect("a manifest")
    }

    /// The VM with these bytes as its guest.
    fn resume(&self, manifest: &Manifest, guest: &[u8], right: bool) -> Result<Box<dyn Vm>, BackendError> {
        let (from, into) = linux::sys::wide_pipe().expect("a pipe");
        let guest = guest.to_vec();
        // QEMU may close its end early.
        let writer = std::thread::spawn(move || drop(File::from(into).write_all(&guest)));
        let mut was_right = || match right {
            true => Ok(()),
            false => Err(BackendError::new(ErrorKind::BadInput, "it is damaged")),
        };
        let saved = Saved { manifest, from, was_right: &mut was_right, told: &mut |_| {} };
        let resumed = self.backend().resume(&self.launch, saved, &CallOff::default());
        writer.join().expect("it ends");
        resumed
    }
}

/// Saves a guest whose vCPUs wait; its bytes.
fn save(vm: &mut dyn Vm) -> Result<Vec<u8>, BackendError> {
    let (from, into) = linux::sys::wide_pipe().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut guest = Vec::new();
        File::from(from).read_to_end(&mut guest).expect("read");
        guest
    });
    vm.save(into, &mut |_| {})?;
    Ok(reader.join().expect("read"))
}

fn skipped(test: &str) -> bool {
    let missing = locate_qemu("test");
    if let Err(error) = &missing {
        eprintln!("SKIPPED {test}: {error}");
    }
    missing.is_err()
}

#[test]
fn a_guest_goes_out_of_one_qemu_and_on_in_another() {
    if skipped("a_guest_goes_out_of_one_qemu_and_on_in_another") {
        return;
    }
    let place = Place::new("test-saved");
    let mut vm = place.start();
    assert!(save(vm.as_mut()).err().unwrap().to_string().contains("its vCPUs run"));
    vm.pause().unwrap();
    let manifest = place.manifest(vm.as_mut());
    assert!(manifest.run_by.machine.starts_with("pc-q35-"), "{}", manifest.run_by.machine);
    assert_eq!(manifest.run_by.memory, Manifest::blocks_of(&place.launch.plan.topology, &Added::default()));
    assert_eq!(manifest.run_by.disk_sizes, [topology::Bytes::MIB]);
    // Saving changes nothing: it can be done again, and the guest goes on.
    save(vm.as_mut()).unwrap();
    let guest = save(vm.as_mut()).unwrap();
    vm.unpause().unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    assert!(vm.exited().is_none());
    assert_eq!(place.manifest(vm.as_mut()), manifest);
    let residence = vm.residence(&place.launch.plan).unwrap();
    assert_eq!(residence.vcpus.len(), 2);
    vm.stop(Duration::ZERO).unwrap();
}

#[test]
fn a_guest_that_does_not_fit_or_is_damaged_never_runs_and_leaves_nothing() {
    if skipped("a_guest_that_does_not_fit_or_is_damaged_never_runs") {
        return;
    }
    let place = Place::new("test-unfit");
    let mut vm = place.start();
    vm.pause().unwrap();
    let manifest = place.manifest(vm.as_mut());
    let guest = save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut other = manifest.clone();
    other.topology.nodes[1].vcpus = vec![0];
    let error = place.resume(&other, &guest, true).err().unwrap();
    assert!(error.is_bad_input() && error.to_string().contains("vCPUs of virtual node 1: 0 where"), "{error}");
    // All of it is there, and whoever wrote it knows that it is not right.
    let error = place.resume(&manifest, &guest, false).err().unwrap();
    assert_eq!(error.to_string(), "it is damaged");
    // It was cut.
    let error = place.resume(&manifest, &guest[..guest.len() / 2], true).err().unwrap();
    assert!(error.to_string().contains("QEMU"), "{error}");
    let error = place.resume(&manifest, &guest[..guest.len() / 2], false).err().unwrap();
    assert_eq!(error.to_string(), "it is damaged");
    assert!(background::list(&place.directory).unwrap().vms.is_empty());
    assert!(place.backend().adopt(&place.launch.spec.name).unwrap().is_none());
}

/// What was plugged in is there again, in its order, where the guest knows it.
#[test]
fn a_guest_that_grew_finds_what_was_plugged_in() {
    if skipped("a_guest_that_grew_finds_what_was_plugged_in") {
        return;
    }
    let mut place = Place::new("test-grown");
    let topology = &mut place.launch.plan.topology;
    topology.cores_per_socket = 2;
    for (node, vcpus) in topology.nodes.iter_mut().zip([[0, 1], [2, 3]]) {
        (node.vcpus, node.absent, node.growth) = (vcpus.to_vec(), vec![vcpus[1]], Bytes::from_mib(256));
    }
    let mut vm = place.start();
    vm.pause().unwrap();
    let plan = place.launch.plan.clone();
    let resize = Resize {
        topology: plan.topology.clone(),
        placement: plan.placement.clone(),
        backing: plan.backing,
        added: Added::default(),
        plug: vec![3, 1],
        unplug: Vec::new(),
        memory: [(1, Bytes::from_mib(32 + 64)), (0, Bytes::from_mib(32 + 32))].into(),
        patience: Duration::from_secs(20),
    };
    let added = vm.resize(&resize, &mut |_| {}).unwrap().added;
    assert_eq!((added.vcpus.len(), added.memory.len()), (2, 2));
    let manifest = vm.manifest(&place.launch.spec, &plan.topology, &added).unwrap();
    assert_eq!(manifest.run_by.memory, Manifest::blocks_of(&plan.topology, &added));
    let guest = save(vm.as_mut()).unwrap();
    vm.stop(Duration::ZERO).unwrap();

    let mut vm = place.resume(&manifest, &guest, true).expect("it goes on");
    let again = vm.manifest(&place.launch.spec, &plan.topology, &added).unwrap();
    assert_eq!(manifest.differences(&again), []);
    let residence = vm.residence(&plan).unwrap();
    assert_eq!(residence.vcpus.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    vm.stop(Duration::ZERO).unwrap();
}

/// The same with the newer QEMU, in a process of its own: a QEMU is chosen by the environment.
#[test]
fn the_newer_qemu_does_all_of_it_too() {
    let Some(newer) = std::env::var_os(NEWER) else {
        return eprintln!("SKIPPED the_newer_qemu_does_all_of_it_too: {NEWER} is not set (scripts/newer-qemu)");
    };
    let mut again = std::process::Command::new(std::env::current_exe().expect("this program"));
    again.args(["saved::", "--skip", "newer_qemu"]).env("HOMENODE_QEMU", newer).env_remove(NEWER);
    assert!(again.status().expect("started").success());
}
