//! The threads of the kernel that move packets for a VM (vhost): threads of QEMU since Linux 6.4,
//! before that processes of the kernel's own.

use super::{RunningVm, ThreadKind};
use crate::error::read_text;
use crate::root::{Root, numbered_entries};

/// Their ids. Looks through all processes where QEMU has none among its own threads.
pub(crate) fn threads(root: &Root, vm: &RunningVm) -> Vec<u32> {
    let is_vhost = |(id, _, kind): &(u32, String, ThreadKind)| (*kind == ThreadKind::Vhost).then_some(*id);
    let own: Vec<u32> = vm.threads.others.iter().filter_map(is_vhost).collect();
    if !own.is_empty() || vm.vhost_client.is_none() {
        return own;
    }
    // Named after the process that they work for.
    let name = format!("vhost-{}", vm.key.pid);
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
    }
}
