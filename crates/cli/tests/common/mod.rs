//! What the process tests share.

pub(crate) mod kept_vm;
pub(crate) mod libvirtd;
pub(crate) mod sshd;
pub(crate) mod taps;

use std::time::{Duration, Instant};

/// Whether a program is in no directory of PATH; says then that `test` is skipped.
pub(crate) fn lacks(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("SKIPPED {test}: no {program} in PATH");
    }
    !found
}

pub(crate) fn no_qemu(test: &str) -> bool {
    lacks(test, "qemu-system-x86_64")
}

/// The newer QEMU (`scripts/newer-qemu`); says where there is none that `test` is skipped.
pub(crate) fn newer_qemu(test: &str) -> Option<std::ffi::OsString> {
    let newer = std::env::var_os("HOMENODE_NEWER_QEMU");
    if newer.is_none() {
        eprintln!("SKIPPED {test}: HOMENODE_NEWER_QEMU is not set (scripts/newer-qemu)");
    }
    newer
}

/// homenode's tiny guest; says where there is none that `test` is skipped.
pub(crate) fn tiny_guest(test: &str) -> Option<qemu::TinyGuest> {
    qemu::TinyGuest::locate(None).map_err(|error| eprintln!("SKIPPED {test}: {error}")).ok()
}

/// The process of a VM.
pub(crate) fn qemu_of(vm: &str) -> Option<u32> {
    let running = linux::examine_this_host().expect("/proc");
    running.vms.into_iter().find(|seen| seen.vm.name == vm).map(|seen| seen.vm.pid)
}

/// A directory whose files the QEMU of a VM that root starts may read: it runs as another user.
pub(crate) fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().permissions(open).tempdir().expect("a directory")
}

/// A name for a VM that no other run of the tests has.
pub(crate) fn unique(label: &str) -> String {
    format!("{label}-{}", std::process::id())
}

/// Whether `what` becomes true in time.
pub(crate) fn within_seconds(seconds: u64, mut what: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < deadline {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Writes a shell script that can be run. Another program writes it: a file that this process has
/// open for writing may still be open in a child that another test starts at this moment, and
/// cannot be run until then (ETXTBSY).
pub(crate) fn write_script(path: &std::path::Path, text: &str) {
    let draft = path.with_extension("draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{text}\n")).expect("a file");
    let status = std::process::Command::new("install").args(["-m", "755"]).arg(&draft).arg(path).status();
    assert!(status.expect("install").success(), "{} cannot be written", path.display());
}

/// In a script of [`path_with_virsh`]: becomes the real `virsh`, which is in a later directory of
/// PATH.
pub(crate) const REAL_VIRSH: &str = "PATH=${PATH#*:}; exec virsh \"$@\"";

/// A PATH whose first directory is this one, with this shell script as its `virsh`.
pub(crate) fn path_with_virsh(directory: &std::path::Path, script: &str) -> std::ffi::OsString {
    write_script(&directory.join("virsh"), script);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path))).expect("a PATH")
}

/// A QEMU that somebody else than homenode started, paused before its first instruction, under
/// emulation. It ends with the value.
pub(crate) struct PausedVm {
    child: std::process::Child,
    /// Its name: no other test process has the same.
    pub(crate) name: String,
}

impl PausedVm {
    /// Starts it with two vCPUs and 64 MiB, and waits for its vCPU threads.
    pub(crate) fn start(label: &str) -> Self {
        let name = unique(label);
        let mut command = std::process::Command::new("qemu-system-x86_64");
        command.args([
            "-S",
            "-accel",
            "tcg",
            "-display",
            "none",
            "-nodefaults",
            "-no-user-config",
            "-smp",
            "2",
            "-m",
            "64",
        ]);
        command.arg("-name").arg(format!("{name},debug-threads=on"));
        let null = std::process::Stdio::null;
        let child = command.stdin(null()).stdout(null()).stderr(null()).spawn().expect("QEMU");
        let vm = Self { child, name };
        assert!(within_seconds(60, || vm.vcpu_threads().len() == 2), "no vCPU threads of {}", vm.name);
        vm
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The threads of its vCPUs.
    pub(crate) fn vcpu_threads(&self) -> Vec<u32> {
        let threads = linux::process::threads(self.pid()).unwrap_or_default();
        threads.into_iter().filter(|thread| thread.name.starts_with("CPU ")).map(|thread| thread.id).collect()
    }

    /// What taskset would do to its vCPUs.
    pub(crate) fn bind(&self, cpus: &topology::CpuSet) {
        for thread in self.vcpu_threads() {
            linux::sys::set_affinity(thread, cpus).expect("an affinity");
        }
    }

    /// CPUs that each of its vCPU threads may run on.
    pub(crate) fn affinities(&self) -> Vec<topology::CpuSet> {
        self.vcpu_threads().into_iter().map(|thread| linux::sys::affinity(thread).expect("an affinity")).collect()
    }
}

impl Drop for PausedVm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What VMs left in a runtime directory; its own mark is not theirs, nor is what is kept of those
/// that do not run.
pub(crate) fn left_in(runtime: &std::path::Path) -> Vec<String> {
    let names_in = |path: &std::path::Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let inventory = inventory_in(runtime);
    let rests = |name: &String| inventory.read(name).is_ok_and(|record| !record.life.state.has_process());
    let of_processes = names_in(runtime).into_iter().filter(|name| name != ".homenode-runtime" && name != ".vms");
    let of_records = names_in(inventory.path()).into_iter().filter(|name| !rests(name));
    of_processes.chain(of_records).collect()
}

/// The VMs that are kept by those who name this runtime directory.
pub(crate) fn inventory_in(runtime: &std::path::Path) -> inventory::Inventory {
    inventory::Inventory::at(runtime.join(".vms"))
}

/// A directory with an empty disk image, and a place for a runtime directory.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(open_directory());
        std::fs::write(place.path("disk.img"), vec![0u8; 1 << 20]).expect("a disk image");
        place
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn runtime(&self) -> std::path::PathBuf {
        self.path("runtime")
    }
}

/// homenode with a runtime directory of its own.
pub(crate) fn homenode_in(runtime: &std::path::Path, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_homenode"));
    command.args(arguments).env("HOMENODE_RUNTIME_DIR", runtime).env_remove("HOMENODE_STATE_DIR");
    command.stdin(std::process::Stdio::null());
    command
}

/// What homenode says with these arguments: exit code, standard output, standard error.
pub(crate) fn said_in(runtime: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    said(&mut homenode_in(runtime, arguments))
}

/// What a command says: exit code, standard output, standard error.
pub(crate) fn said(homenode: &mut std::process::Command) -> (Option<i32>, String, String) {
    let output = homenode.output().expect("homenode");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}
