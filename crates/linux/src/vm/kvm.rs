//! VMs whose program is called otherwise than QEMU: by the descriptors that KVM gave them, or by
//! the file that runs.

use crate::root::Root;
use ::vm::qemu::is_qemu;

/// Descriptors that are looked at: a VM opens KVM's among its first.
const MOST: usize = 256;

/// Whether a process has a VM of KVM open. False where its descriptors may not be seen.
pub(crate) fn has_vm(root: &Root, pid: u32) -> bool {
    let Ok(entries) = std::fs::read_dir(root.process(pid, "fd")) else { return false };
    let is_vm = |entry: std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:kvm-vm")
    };
    entries.flatten().take(MOST).any(is_vm)
}

/// Whether the file that a process runs is QEMU's: started through a link it has the link's name.
/// False where that may not be seen.
pub(crate) fn runs_qemu(root: &Root, pid: u32) -> bool {
    std::fs::read_link(root.process(pid, "exe")).is_ok_and(|file| file.to_str().is_some_and(is_qemu))
}

/// Whether neither its file nor its descriptors may be seen by this process.
pub(crate) fn is_hidden(root: &Root, pid: u32) -> bool {
    let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    std::fs::read_link(root.process(pid, "exe")).is_err_and(denied)
        && std::fs::read_dir(root.process(pid, "fd")).is_err_and(denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;
    use crate::vm::RunningVm;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_to_qemu_is_known_without_kvm_too() {
        let stat = format!("7 (web) S {}", vec!["1"; 40].join(" "));
        let (_directory, root) = tree(&[
            ("proc/7/cmdline", "/opt/web\0-m\0\x31\x32\x38\0-accel\0tcg\0-smp\0\x32\0"),
            ("proc/7/stat", &stat),
            ("proc/7/task/7/comm", "web\n"),
            ("proc/7/task/8/comm", "CPU 0/TCG\n"),
        ]);
        symlink("/bin/sh", root.process(7, "exe")).unwrap();
        assert!(RunningVm::examine(&root, 7).unwrap().is_none());
        std::fs::remove_file(root.process(7, "exe")).unwrap();
        symlink("/usr/bin/qemu-system-x86_64", root.process(7, "exe")).unwrap();
        assert_eq!(RunningVm::examine(&root, 7).unwrap().unwrap().key.name, "pid 7");
    }

    #[test]
    fn a_vm_of_any_name_is_known_by_its_descriptors() {
        let stat = format!("7 (web) S {}", vec!["1"; 40].join(" "));
        let (_directory, root) = tree(&[
            ("proc/7/cmdline", "/opt/web\0-m\0\x31\x32\x38\0-accel\0kvm\0-smp\0\x32\0"),
            ("proc/7/stat", &stat),
            ("proc/7/task/7/comm", "web\n"),
            ("proc/7/task/8/comm", "CPU 0/KVM\n"),
            ("proc/7/fd/dir/x", ""),
        ]);
        assert!(RunningVm::examine(&root, 7).unwrap().is_none());
        symlink("anon_inode:kvm-vm", root.process(7, "fd/9")).unwrap();
        assert!(has_vm(&root, 7));
        assert_eq!(RunningVm::examine(&root, 7).unwrap().unwrap().key.name, "pid 7");
    }
}
