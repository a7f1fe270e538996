//! The threads of the kernel that move packets for a VM (vhost): threads of QEMU since Linux 6.4,
//! before that processes of the kernel's own.

use super::{RunningVm, ThreadKind};
use crate::error::read_text;
use crate::root::{Root, numbered_entries};

const NAME: &str = "vhost-";

/// Those of a QEMU that was just started, by its process's number; none where QEMU moves its
/// packets itself.
pub fn of_process(pid: u32) -> Vec<u32> {
    of_process_in(&Root::default(), pid)
}

fn of_process_in(root: &Root, pid: u32) -> Vec<u32> {
    let tasks = root.process(pid, "task");
    let is_own = |id: &u32| read_text(&tasks.join(format!("{id}/comm"))).is_ok_and(|comm| comm.starts_with(NAME));
    let own: Vec<u32> = numbered_entries(&tasks).unwrap_or_default().into_iter().filter(is_own).collect();
    if own.is_empty() && may_have_some(root, pid) { of_the_kernel(root, pid) } else { own }
}

/// Whether the process has vhost-net open: most have not, and nobody needs to look for threads.
fn may_have_some(root: &Root, pid: u32) -> bool {
    let Ok(files) = std::fs::read_dir(root.process(pid, "fd")) else { return true };
    let is_vhost = |path: std::path::PathBuf| path.ends_with("dev/vhost-net");
    files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(is_vhost))
}

/// Their ids. Looks through all processes where QEMU has none among its own threads.
pub(crate) fn threads(root: &Root, vm: &RunningVm) -> Vec<u32> {
    let is_vhost = |(id, _, kind): &(u32, String, ThreadKind)| (*kind == ThreadKind::Vhost).then_some(*id);
    let own: Vec<u32> = vm.threads.others.iter().filter_map(is_vhost).collect();
    if !own.is_empty() || vm.vhost_client.is_none() {
        return own;
    }
    of_the_kernel(root, vm.key.pid)
}

/// The kernel's own processes are named after the one that they work for.
fn of_the_kernel(root: &Root, of: u32) -> Vec<u32> {
    let name = format!("{NAME}{of}");
    let is_its = |pid: &u32| {
        let is_kernels = || read_text(&root.process(*pid, "cmdline")).is_ok_and(|line| line.is_empty());
        read_text(&root.process(*pid, "comm")).is_ok_and(|comm| comm.trim_end() == name) && is_kernels()
    };
    numbered_entries(&root.join("proc")).unwrap_or_default().into_iter().filter(is_its).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;
    use crate::vm::VmThreads;
    use scheduler::{ClientId, VmKey};

    fn vm(others: &[(u32, &str, ThreadKind)]) -> RunningVm {
        let others = others.iter().map(|&(id, name, kind)| (id, name.to_owned(), kind)).collect();
        RunningVm {
            key: VmKey { pid: 7, ..VmKey::default() },
            threads: VmThreads { others, ..VmThreads::default() },
            vhost_client: Some(ClientId(0)),
            ..RunningVm::default()
        }
    }

    #[test]
    fn they_are_qemus_own_or_the_kernels_by_name() {
        let (_directory, root) = tree(&[
            ("proc/7/comm", "kvm\n"),
            ("proc/20/comm", "vhost-7\n"),
            ("proc/20/cmdline", ""),
            ("proc/21/comm", "vhost-77\n"),
            ("proc/21/cmdline", ""),
            ("proc/22/comm", "vhost-7\n"),
            ("proc/22/cmdline", "/tmp/vhost-7\0"),
        ]);
        assert_eq!(threads(&root, &vm(&[(8, "vhost-7", ThreadKind::Vhost), (9, "x", ThreadKind::Worker)])), [8]);
        assert_eq!(threads(&root, &vm(&[])), [20]);
        assert!(threads(&root, &RunningVm { vhost_client: None, ..vm(&[]) }).is_empty());
        assert_eq!(of_process_in(&root, 7), [20]);
    }

    #[test]
    fn since_linux_6_4_they_are_among_the_processs_threads() {
        let (_directory, root) = tree(&[
            ("proc/7/task/7/comm", "kvm\n"),
            ("proc/7/task/9/comm", "vhost-7\n"),
            ("proc/7/task/8/comm", "vhost-7\n"),
            ("proc/7/task/10/comm", "CPU 0/KVM\n"),
        ]);
        let mut found = of_process_in(&root, 7);
        found.sort_unstable();
        assert_eq!(found, [8, 9]);
        assert!(of_process_in(&root, 6).is_empty());
    }
}
