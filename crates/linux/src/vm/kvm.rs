//! What says that a process is QEMU with a VM.
//!
//! **Problem.** Any program can be started under QEMU's name, and QEMU under any other: through a
//! link, as a copy, behind a wrapper (`.qemu-system-x86_64-wrapped`), by a loader (`ld-linux.so.2
//! PROGRAM`), from a file that an upgrade has replaced. Other programs have VMs of KVM too.
//!
//! **Rule.** A process whose words are QEMU's is QEMU by what it has: a VM of KVM, the code of a
//! file that is called QEMU, or threads that QEMU names (`CPU 0/TCG`) or a guest's memory. Its
//! words alone count only where none of that may be seen. The file alone is not enough: whoever
//! runs it needs a guest ([`RunningVm`](super::RunningVm) looks for its memory and its vCPU
//! threads).
//!
//! A descriptor of KVM is seen by who has the rights of its user. `CAP_SYS_PTRACE` alone, which the
//! service has, does not open the directory of descriptors, but shows what is mapped: each vCPU has
//! a page of KVM's.

use crate::error::{LinuxError, is_short_of_resources};
use crate::root::Root;
use ::vm::qemu::is_qemu;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

/// Descriptors that are looked at: a VM opens KVM's among its first.
const MOST: usize = 256;

/// What says that a process is QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It has a VM of KVM open.
    Kvm,
    /// It runs the code of a file that is called QEMU.
    Program,
    /// Neither may be seen.
    Hidden,
    /// Both may be seen, and are not there: perhaps it has a guest.
    None,
}

/// Looks for it.
///
/// # Errors
/// This process has too few descriptors or too little memory to look.
pub(crate) fn evidence(root: &Root, pid: u32) -> Result<Evidence, LinuxError> {
    let exe = root.process(pid, "exe");
    let hidden = match std::fs::read_link(&exe) {
        Ok(file) if file.to_str().is_some_and(is_qemu) => return Ok(Evidence::Program),
        Ok(file) if is_loader(&file) && maps_qemus_code(&root.process(pid, "maps"))? => return Ok(Evidence::Program),
        Ok(_) => false,
        Err(error) if is_short_of_resources(&error) => return Err(LinuxError::read(&exe, error)),
        // A captured tree has no links.
        Err(error) => error.kind() == ErrorKind::PermissionDenied || !root.is_live(),
    };
    Ok(match (has_vm(root, pid)?, hidden) {
        (true, _) => Evidence::Kvm,
        (false, true) => Evidence::Hidden,
        (false, false) => Evidence::None,
    })
}

/// Whether a process runs a file that is called QEMU: started through a link it has the link's name
/// for its own, the file keeps its.
pub(crate) fn runs_qemus_file(root: &Root, pid: u32) -> bool {
    std::fs::read_link(root.process(pid, "exe")).is_ok_and(|file| file.to_str().is_some_and(is_qemu))
}

/// Whether a file is a loader of programs (ld.so(8)).
fn is_loader(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("ld-") || name.starts_with("ld.")
}

/// Whether code of a file that is called QEMU is mapped: what a loader runs.
fn maps_qemus_code(path: &Path) -> Result<bool, LinuxError> {
    any_mapping(path, |line| {
        let mut words = line.splitn(6, ' ');
        let permissions = words.nth(1).unwrap_or_default();
        permissions.starts_with("r-x") && words.nth(3).is_some_and(|file| is_qemu(file.trim_start()))
    })
}

/// Whether a process has a VM of KVM open. False where that may not be seen.
///
/// # Errors
/// This process has too few descriptors or too little memory to look.
pub(crate) fn has_vm(root: &Root, pid: u32) -> Result<bool, LinuxError> {
    let directory = root.process(pid, "fd");
    let is_vm = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:kvm-vm")
    };
    match std::fs::read_dir(&directory) {
        Ok(entries) => Ok(entries.flatten().take(MOST).any(is_vm)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => maps_a_vcpu(&root.process(pid, "maps")),
        Err(error) if is_short_of_resources(&error) => Err(LinuxError::read(&directory, error)),
        Err(_) => Ok(false),
    }
}

/// Whether a page of a vCPU of KVM is mapped. No path of a file looks like it: those begin with a
/// slash.
fn maps_a_vcpu(path: &Path) -> Result<bool, LinuxError> {
    any_mapping(path, |line| line.rsplit(' ').next().is_some_and(|file| file.starts_with("anon_inode:kvm-vcpu")))
}

fn any_mapping(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<bool, LinuxError> {
    let is_wanted = |line: Vec<u8>| wanted(&String::from_utf8_lossy(&line));
    match std::fs::File::open(path) {
        Ok(file) => Ok(BufReader::new(file).split(b'\n').map_while(Result::ok).any(is_wanted)),
        Err(error) if is_short_of_resources(&error) => Err(LinuxError::read(path, error)),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;
    use crate::vm::RunningVm;
    use std::os::unix::fs::symlink;

    /// Process 7 with this program and a vCPU thread.
    fn process(program: &str, more: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let stat = format!("7 (web) S {}", vec!["1"; 40].join(" "));
        let cmdline = format!("{program}\0-m\0\x3128\0-accel\0tcg\0-smp\0\x32\0");
        let files = [
            ("proc/7/cmdline", &cmdline[..]),
            ("proc/7/stat", &stat),
            ("proc/7/task/7/comm", "web\n"),
            ("proc/7/task/8/comm", "CPU 0/TCG\n"),
        ];
        tree(&[&files[..], more].concat())
    }

    #[test]
    fn a_link_to_qemu_is_known_without_kvm_too_and_a_name_alone_is_nothing() {
        let (_directory, root) = process("/opt/web", &[]);
        let runs = |file: &str| {
            let _ = std::fs::remove_file(root.process(7, "exe"));
            symlink(file, root.process(7, "exe")).unwrap();
            RunningVm::examine(&root, 7)
        };
        for file in
            ["/usr/bin/qemu-system-x86_64", "/usr/bin/qemu-kvm (deleted)", "/n/.qemu-system-x86_64-wrapped", "/x"]
        {
            let vm = runs(file).unwrap().unwrap();
            assert_eq!((vm.key.name.as_str(), vm.unverified), ("pid 7", false));
        }
        std::fs::remove_dir_all(root.process(7, "task/8")).unwrap();
        assert!(runs("/bin/sh").unwrap().is_none(), "words and nothing else");
        std::fs::write(root.process(7, "cmdline"), "qemu-system-x86_64\0-m\0\x3128\0").unwrap();
        assert!(matches!(runs("/bin/sleep"), Err(LinuxError::NotQemu { pid: 7 })));
        std::fs::remove_file(root.process(7, "exe")).unwrap();
        assert!(RunningVm::examine(&root, 7).unwrap().unwrap().unverified, "a captured tree has no links");
    }

    #[test]
    fn qemus_file_without_a_guest_is_no_vm_before_its_memory_is_mapped() {
        let (_directory, root) = process("qemu-system-x86_64", &[]);
        symlink("/usr/bin/qemu-system-x86_64", root.process(7, "exe")).unwrap();
        std::fs::remove_dir_all(root.process(7, "task/8")).unwrap();
        let with = |kib: u32| {
            std::fs::write(root.process(7, "status"), format!("VmSize:\t{kib} kB\n")).unwrap();
            RunningVm::examine(&root, 7)
        };
        assert!(matches!(with(131_071), Err(LinuxError::NoGuest { pid: 7 }))); // `-m 128`: 131072 kB
        assert!(with(131_072).unwrap().is_some());
    }

    #[test]
    fn a_copy_of_qemu_is_known_by_its_threads_or_by_its_guests_memory() {
        let (_directory, root) = process("/opt/web", &[]);
        symlink("/opt/web", root.process(7, "exe")).unwrap();
        assert!(RunningVm::examine(&root, 7).unwrap().is_some(), "CPU 0/TCG");
        std::fs::write(root.process(7, "task/8/comm"), "worker\n").unwrap();
        assert!(RunningVm::examine(&root, 7).unwrap().is_none());
        let maps = |mib: u64, above: &str| {
            let (start, end) = (0x7f00_0000_0000_u64, 0x7f00_0000_0000 + (mib << 20));
            let maps =
                format!("{start:x}-{end:x} rw-p 00000000 00:00 0 \n{end:x}-{:x} {above} 0 00:00 0 \n", end + 4096);
            std::fs::write(root.process(7, "maps"), maps).unwrap();
            RunningVm::examine(&root, 7).unwrap().is_some()
        };
        assert!(maps(128, "---p") && maps(131, "---p"), "-m 128, and 3 MiB of QEMU's own below");
        assert!(!maps(128, "r--p") && !maps(127, "---p"));
    }

    #[test]
    fn what_a_loader_runs_is_known_by_its_code() {
        let words =
            "/lib64/ld-linux-x86-64.so.2\0--library-path\0/opt/lib\0/opt/qemu-system-x86_64\0-m\0\x3128\0-hda\0a\0";
        let (_directory, root) = process("x", &[]);
        std::fs::write(root.process(7, "cmdline"), words).unwrap();
        std::fs::write(root.process(7, "task/8/comm"), "worker\n").unwrap();
        std::fs::write(root.process(7, "status"), "VmSize:\t200000 kB\n").unwrap();
        symlink("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", root.process(7, "exe")).unwrap();
        let maps = |permissions: &str, file: &str| {
            let line = format!("55d000000000-55d000400000 {permissions} 00001000 08:01 41 {file}\n");
            std::fs::write(root.process(7, "maps"), line).unwrap();
            RunningVm::examine(&root, 7).unwrap()
        };
        let vm = maps("r-xp", "          /opt/qemu-system-x86_64").expect("a VM");
        assert_eq!(vm.clients[0].fixed_memory, topology::Bytes::from_mib(128));
        assert!(maps("r--p", "/opt/qemu-system-x86_64").is_none(), "an editor of that file");
        assert!(maps("r-xp", "/opt/web").is_none());
    }

    #[test]
    fn a_vm_of_any_name_is_known_by_its_descriptors_or_by_what_kvm_mapped() {
        let (_directory, root) = process("/opt/web", &[("proc/7/fd/dir/x", ""), ("proc/7/maps", "")]);
        std::fs::write(root.process(7, "task/8/comm"), "worker\n").unwrap();
        assert!(RunningVm::examine(&root, 7).unwrap().is_none());
        symlink("anon_inode:kvm-vm", root.process(7, "fd/9")).unwrap();
        assert!(has_vm(&root, 7).unwrap());
        assert_eq!(RunningVm::examine(&root, 7).unwrap().unwrap().key.name, "pid 7");
        let maps = |file: &str| {
            let line = format!("7f0000000000-7f0000003000 rw-s 00000000 00:0e 2070 {file}\n");
            std::fs::write(root.process(7, "maps"), format!("1000-2000 r-xp 0 0 0\n{line}")).unwrap();
            maps_a_vcpu(&root.process(7, "maps")).unwrap()
        };
        assert!(maps("                    anon_inode:kvm-vcpu:0") && !maps("  /tmp/anon_inode:kvm-vcpu:0"));
    }
}
