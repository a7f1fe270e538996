//! Memory that cannot move: device assignment and encryption pin all of a guest's memory for its
//! life.

use crate::error::read_text;
use crate::proc_text::status_amount;
use crate::root::Root;
use crate::vm::RunningVm;
use topology::Bytes;
use topology::limits::MOST_DESCRIPTORS;

/// Less than this is pinned by an ordinary VM too, for a moment: buffers of direct I/O and of
/// io_uring.
const NOTABLE: Bytes = Bytes::from_mib(64);

/// Why the memory of a VM cannot move, as a sentence; `None` if nothing speaks against it. Locked
/// memory (mlock) moves.
pub fn why_fixed(root: &Root, vm: &RunningVm) -> Option<String> {
    if let Some(object) = &vm.confidential {
        return Some(format!("{object} pins all of its memory (encrypted memory cannot move)"));
    }
    if let Some(device) = vm.passed_through.first() {
        return Some(format!("VFIO pins all of its memory (device {device} is passed through)"));
    }
    // Devices may have been plugged in later.
    if let Some(file) = pinning_file(root, vm.key.pid) {
        return Some(format!("VFIO pins all of its memory (it has {file} open)"));
    }
    let pinned = status_amount(&read_text(&root.process(vm.key.pid, "status")).ok()?, "VmPin:")?;
    (pinned >= NOTABLE).then(|| format!("{pinned} of its memory are pinned (VmPin)"))
}

/// A file that the process has open and through which a device does DMA to its memory.
fn pinning_file(root: &Root, pid: u32) -> Option<String> {
    let entries = std::fs::read_dir(root.process(pid, "fd")).ok()?;
    let target = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok();
    entries.flatten().take(MOST_DESCRIPTORS).filter_map(target).find(|path| pins(path))
}

fn pins(path: &str) -> bool {
    let group = path.strip_prefix("/dev/vfio/").is_some_and(|name| name != "vfio");
    group || path.starts_with("anon_inode:[vfio-device]") || path.starts_with("/dev/vhost-vdpa")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn vm_of(root: &Root, arguments: &str) -> RunningVm {
        let directory = root.process(7, "");
        fs::create_dir_all(directory.join("task/7")).unwrap();
        fs::create_dir_all(directory.join("fd")).unwrap();
        fs::write(directory.join("task/7/comm"), "kvm\n").unwrap();
        fs::write(directory.join("cmdline"), arguments.replace(' ', "\0")).unwrap();
        fs::write(directory.join("stat"), format!("7 (kvm) S {}", vec!["1"; 30].join(" "))).unwrap();
        fs::write(directory.join("status"), "VmLck:\t 4096 kB\nVmPin:\t 0 kB\n").unwrap();
        RunningVm::examine(root, 7).unwrap().unwrap()
    }

    #[test]
    fn passed_through_devices_and_encryption_pin_memory() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let why = |arguments: &str| why_fixed(&root, &vm_of(&root, arguments));
        assert_eq!(why("kvm -m 512"), None);
        assert_eq!(why("kvm -overcommit mem-lock=on"), None); // locked memory moves
        assert!(why("kvm -device vfio-pci,host=0000:3b:00.0").unwrap().contains("0000:3b:00.0"));
        assert!(why(r#"kvm -device {"driver":"vfio-pci","host":"0000:af:00.1"}"#).unwrap().contains("0000:af:00.1"));
        assert!(why("kvm -netdev vhost-vdpa,id=v,vhostdev=/dev/vhost-vdpa-0").unwrap().contains("/dev/vhost-vdpa-0"));
        assert!(why("kvm -object sev-guest,id=sev0,cbitpos=51").unwrap().contains("sev-guest"));
    }

    #[test]
    fn a_device_that_was_plugged_in_later_is_seen_by_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let vm = vm_of(&root, "kvm -m 512");
        symlink("/dev/vfio/vfio", root.process(7, "fd/3")).unwrap(); // the container alone has no device
        assert_eq!(why_fixed(&root, &vm), None);
        symlink("/dev/vfio/42", root.process(7, "fd/4")).unwrap();
        assert!(why_fixed(&root, &vm).unwrap().contains("/dev/vfio/42"));
    }

    #[test]
    fn the_kernels_count_of_pinned_memory_is_heard() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let vm = vm_of(&root, "kvm -m 512");
        fs::write(root.process(7, "status"), "VmPin:\t 524288 kB\n").unwrap();
        assert_eq!(why_fixed(&root, &vm).unwrap(), "512 MiB of its memory are pinned (VmPin)");
    }
}
