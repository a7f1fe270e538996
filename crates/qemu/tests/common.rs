//! What the tests of real QEMUs share: VMs of which no guest boots. The firmware finds nothing to
//! boot, and waits.

use qemu::{AttachedVm, BINARY_VARIABLE, InBackground, QemuError, RuntimeDir, background, locate_qemu};
use scheduler::Occupancy;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use topology::{Bytes, Machine};
use vm::{Added, Backend, CallOff, Launch, Resize, Vm, VmSpec};

/// Names the newer QEMU (`scripts/newer-qemu`).
const NEWER: &str = "HOMENODE_NEWER_QEMU";

pub(crate) fn machine() -> Machine {
    topology::read::live().expect("this host")
}

/// A name for a VM that no other run of the tests has.
pub(crate) fn unique(label: &str) -> String {
    format!("{label}-{}", std::process::id())
}

/// Whether there is no QEMU; says then that `test` is skipped.
pub(crate) fn no_qemu(test: &str) -> bool {
    let missing = locate_qemu("test");
    if let Err(error) = &missing {
        eprintln!("SKIPPED {test}: {error}");
    }
    missing.is_err()
}

/// Runs a module's tests, of which there are so many, once more with the newer QEMU: in a process
/// of its own, because a QEMU is chosen by the environment.
pub(crate) fn again_with_the_newer_qemu(module: &str, tests: usize) {
    let Some(newer) = std::env::var_os(NEWER) else {
        return eprintln!(
            "SKIPPED {module}::the_newer_qemu_does_all_of_it_too: {NEWER} is not set (scripts/newer-qemu)"
        );
    };
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args([&format!("{module}::"), "--skip", "newer_qemu"]).env(BINARY_VARIABLE, newer).env_remove(NEWER);
    let output = again.output().expect("this program");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(&format!("{tests} passed")), "{said}");
}

pub(crate) fn empty_disk(directory: &Path) -> PathBuf {
    let path = directory.join("disk,with a comma.img");
    std::fs::write(&path, vec![0u8; 1 << 20]).expect("a disk image");
    // The QEMU of a root runs as another user.
    for (path, mode) in [(directory, 0o755), (&path, 0o666)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
    }
    path
}

/// A VM of `nodes` virtual nodes of one vCPU and 32 MiB, with an empty disk.
pub(crate) fn launch(name: &str, nodes: usize, disk: &Path) -> Launch {
    let fixed = r#"{ vcpus = 1, memory = "32 MiB" },"#.repeat(nodes);
    let mib = 32 * nodes;
    let head = format!("name = \"{name}\"\nvcpus = {nodes}\nmemory = \"{mib} MiB\"\nboot.from = \"disk\"\n");
    let disk = format!("[[disk]]\npath = '{}'\nformat = \"raw\"\n", disk.display());
    let text = format!("{head}policy.virtual_nodes = [{fixed}]\n{disk}");
    let spec = VmSpec::from_toml(&text, "test").expect("a spec");
    let plan = scheduler::plan(&machine(), &Occupancy::default(), &spec).expect("a plan");
    Launch { agent: true, ..Launch::new(spec, plan) }
}

/// Each of its two virtual nodes has one vCPU of two, and may get 256 MiB more.
pub(crate) fn let_it_grow(launch: &mut Launch) {
    let topology = &mut launch.plan.topology;
    topology.cores_per_socket = 2;
    for (node, vcpus) in topology.nodes.iter_mut().zip([[0, 1], [2, 3]]) {
        (node.vcpus, node.absent, node.growth) = (vcpus.to_vec(), vec![vcpus[1]], Bytes::from_mib(256));
    }
}

/// These vCPUs more, and so many MiB in these virtual nodes.
pub(crate) fn resize(launch: &Launch, added: &Added, plug: &[u32], memory: &[(u32, u64)]) -> Resize {
    Resize {
        topology: launch.plan.topology.clone(),
        placement: launch.plan.placement.clone(),
        backing: launch.plan.backing,
        added: added.clone(),
        plug: plug.to_vec(),
        unplug: Vec::new(),
        memory: memory.iter().map(|&(node, mib)| (node, Bytes::from_mib(mib))).collect(),
        patience: Duration::from_secs(20),
    }
}

pub(crate) fn start(launch: &Launch) -> Result<AttachedVm, QemuError> {
    AttachedVm::start(launch, &CallOff::default())
}

/// A runtime directory of its own with one VM in the background, of two virtual nodes of one vCPU
/// and 32 MiB. The VM ends with the value.
pub(crate) struct Place {
    pub(crate) directory: RuntimeDir,
    pub(crate) launch: Launch,
    _root: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = background::stop(&self.directory, self.name(), Duration::ZERO);
    }
}

impl Place {
    pub(crate) fn new(label: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let launch = Launch { agent: false, ..launch(&unique(label), 2, &empty_disk(root.path())) };
        let directory = RuntimeDir::at(root.path().join("run")).expect("a runtime directory");
        Self { directory, launch, _root: root }
    }

    pub(crate) fn name(&self) -> &str {
        &self.launch.spec.shape.name
    }

    pub(crate) fn backend(&self) -> InBackground {
        InBackground::of(self.directory.clone())
    }

    pub(crate) fn start(&self) -> Box<dyn Vm> {
        self.backend().start(&self.launch, &CallOff::default()).expect("a VM")
    }
}
