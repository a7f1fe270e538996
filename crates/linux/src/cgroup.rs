//! The cgroup that a VM is in, and whether it has it for itself.
//!
//! Only the unified layout (cgroup v2) is used, and only a cgroup in which no other process is:
//! libvirt's and systemd's scopes, Proxmox's `qemu.slice`. Everything else is named and left alone.

use crate::error::read_text;
use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// Where version 2 is mounted.
const MOUNT: &str = "sys/fs/cgroup";

/// The cgroup of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum VmCgroup {
    /// No other process is in it: the path below the mount, beginning with a slash.
    Own {
        /// Its path.
        path: String,
    },
    /// Others are in it too.
    Shared {
        /// Its path.
        path: String,
    },
    /// A layout that is left alone.
    LeftAlone {
        /// Which, as words: `cgroup v1`, `a cgroup namespace of a container`.
        layout: String,
    },
}

impl VmCgroup {
    /// The cgroup of a process now.
    pub fn of(root: &Root, pid: u32) -> Self {
        let left_alone = |layout: &str| Self::LeftAlone { layout: layout.to_owned() };
        let Ok(text) = read_text(&root.process(pid, "cgroup")) else {
            return left_alone("no cgroup file of the process");
        };
        // `0::/path` is version 2; `3:cpuset:/path` is a controller of version 1.
        let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
        let controllers = text.lines().filter(|line| !line.starts_with("0::") && !line.contains(":name="));
        match (unified, controllers.count()) {
            (None, _) => return left_alone("cgroup v1"),
            (Some(_), 1..) => return left_alone("cgroup v1 and v2 side by side (hybrid)"),
            _ => {}
        }
        let path = unified.unwrap_or_default();
        if path.starts_with("/..") {
            return left_alone("the cgroup namespace of a container");
        }
        if !root.join(&format!("{MOUNT}/cgroup.controllers")).exists() {
            return left_alone("cgroup v2, mounted elsewhere than /sys/fs/cgroup");
        }
        match own(root, pid, path) {
            Some(own) => Self::Own { path: own.to_owned() },
            None => Self::Shared { path: path.to_owned() },
        }
    }

    /// Its path below the mount, where it is a cgroup of version 2.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Own { path } | Self::Shared { path } => Some(path),
            Self::LeftAlone { .. } => None,
        }
    }
}

/// The cgroup that a process has for itself: the unit of systemd that it is in, or without one the
/// cgroup that it is in. libvirt puts the emulator and each vCPU into threaded cgroups below the
/// VM's: one of them has some threads of it only. A slice is nobody's own, even where one VM is
/// alone in it: the next one will be in it too.
fn own<'a>(root: &Root, pid: u32, path: &'a str) -> Option<&'a str> {
    let is_unit = |path: &str| path.ends_with(".scope") || path.ends_with(".service");
    let is_threaded = |path: &str| {
        read_text(&root.join(&format!("{MOUNT}{path}/cgroup.type"))).is_ok_and(|kind| kind.trim() == "threaded")
    };
    let up = || std::iter::successors(Some(path), |at| at.rsplit_once('/').map(|(parent, _)| parent));
    let unit = up().find(|at| is_unit(at)).or_else(|| up().find(|at| !is_threaded(at))).unwrap_or(path);
    let possible = unit.len() > 1 && !unit.ends_with(".slice");
    (possible && holds_only(&root.join(&format!("{MOUNT}{unit}")), pid)).then_some(unit)
}

/// Whether a cgroup and those below it hold no other process. False where that cannot be read.
fn holds_only(directory: &Path, pid: u32) -> bool {
    // A threaded cgroup does not list processes; its domain above does.
    let processes = match std::fs::read_to_string(directory.join("cgroup.procs")) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => String::new(),
        Err(_) => return false,
        Ok(text) => text,
    };
    let others = processes.split_whitespace().any(|other| other.parse() != Ok(pid));
    let Ok(entries) = std::fs::read_dir(directory) else { return false };
    let mut below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    !others && below.all(|entry| holds_only(&entry.path(), pid))
}

/// Nodes that a cgroup may take memory of (`cpuset.mems.effective`); `None` without the controller.
pub fn memory_nodes(root: &Root, path: &str) -> Option<NodeSet> {
    root.text(&format!("{MOUNT}{path}/cpuset.mems.effective")).ok()?.trim().parse().ok()
}

/// CPUs that a cgroup may use (`cpuset.cpus.effective`); `None` without the controller.
pub fn cpus(root: &Root, path: &str) -> Option<CpuSet> {
    root.text(&format!("{MOUNT}{path}/cpuset.cpus.effective")).ok()?.trim().parse().ok()
}

/// The least amount that a file says in this cgroup and those above; `None` where none says one
/// (`max`, or no controller).
pub fn least(root: &Root, path: &str, file: &str, parse: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let up = std::iter::successors(Some(path), |at| at.rsplit_once('/').map(|(parent, _)| parent));
    up.filter_map(|at| parse(root.text(&format!("{MOUNT}{at}/{file}")).ok()?.trim())).min()
}

/// Memory that is charged to a cgroup by node: anonymous memory and shared memory files, huge pages
/// of pools left out (`memory.numa_stat`). Every user may read it.
pub fn memory_by_node(root: &Root, path: &str) -> Option<BTreeMap<NodeId, Bytes>> {
    Some(parse_numa_stat(&root.text(&format!("{MOUNT}{path}/memory.numa_stat")).ok()?))
}

/// Lines such as `anon N0=1052672 N1=0`.
fn parse_numa_stat(text: &str) -> BTreeMap<NodeId, Bytes> {
    let mut sums = BTreeMap::<NodeId, Bytes>::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !matches!(words.next(), Some("anon" | "shmem")) {
            continue;
        }
        for (node, bytes) in words.filter_map(|word| word.strip_prefix('N')?.split_once('=')) {
            if let (Ok(node), Ok(bytes)) = (node.parse(), bytes.parse()) {
                let sum = sums.entry(NodeId(node)).or_default();
                *sum = sum.saturating_add(Bytes(bytes));
            }
        }
    }
    sums
}

/// Writes `cpuset.mems` of a cgroup. The kernel moves what lies outside the new nodes, and returns
/// when it has.
pub(crate) fn set_memory_nodes(root: &Root, path: &str, nodes: &NodeSet) -> std::io::Result<()> {
    std::fs::write(root.join(&format!("{MOUNT}{path}/cpuset.mems")), nodes.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::testing::tree;

    const LIBVIRT: &str = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";

    #[test]
    fn libvirts_scope_is_the_vms_own() {
        let scope = format!("{MOUNT}{LIBVIRT}");
        let (_directory, root) = tree(&[
            ("proc/7/cgroup", &format!("0::{LIBVIRT}/libvirt/emulator\n")),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n"),
            ("sys/fs/cgroup/machine.slice/cgroup.procs", ""),
            ("sys/fs/cgroup/machine.slice/machine-qemu-other.scope/cgroup.procs", "8\n"),
            (&format!("{scope}/cgroup.procs"), "7\n"),
            (&format!("{scope}/libvirt/cgroup.procs"), "7\n"),
            (&format!("{scope}/libvirt/emulator/cgroup.procs"), "7\n"),
            (&format!("{scope}/libvirt/vcpu0/cgroup.procs"), "7\n"),
            (&format!("{scope}/cpuset.mems.effective"), "0-3\n"),
        ]);
        assert_eq!(VmCgroup::of(&root, 7), VmCgroup::Own { path: LIBVIRT.to_owned() });
        assert_eq!(memory_nodes(&root, LIBVIRT), Some("0-3".parse().unwrap()));
    }

    #[test]
    fn without_systemd_libvirts_cgroup_of_a_vm_is_the_one_above_its_threads() {
        let machine = "sys/fs/cgroup/machine/qemu-1-web.libvirt-qemu";
        let (_directory, root) = tree(&[
            ("proc/7/cgroup", "0::/machine/qemu-1-web.libvirt-qemu/emulator\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n"),
            (&format!("{machine}/cgroup.procs"), "7\n"),
            (&format!("{machine}/cgroup.type"), "domain threaded\n"),
            (&format!("{machine}/emulator/cgroup.procs"), ""),
            (&format!("{machine}/emulator/cgroup.type"), "threaded\n"),
        ]);
        assert_eq!(VmCgroup::of(&root, 7), VmCgroup::Own { path: "/machine/qemu-1-web.libvirt-qemu".to_owned() });
    }

    #[test]
    fn a_cgroup_with_others_is_shared() {
        let (_directory, root) = tree(&[
            ("proc/7/cgroup", "0::/user.slice/session-3.scope\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n"),
            ("sys/fs/cgroup/user.slice/cgroup.procs", ""),
            ("sys/fs/cgroup/user.slice/session-3.scope/cgroup.procs", "7\n9\n"),
        ]);
        assert_eq!(VmCgroup::of(&root, 7), VmCgroup::Shared { path: "/user.slice/session-3.scope".to_owned() });
    }

    #[test]
    fn other_layouts_are_named_and_left_alone() {
        let said = |cgroup: &str, files: &[(&str, &str)]| {
            let mut files = files.to_vec();
            files.push(("proc/7/cgroup", cgroup));
            let (_directory, root) = tree(&files);
            match VmCgroup::of(&root, 7) {
                VmCgroup::LeftAlone { layout } => layout,
                other => panic!("{other:?}"),
            }
        };
        let v2 = [("sys/fs/cgroup/cgroup.controllers", "cpuset\n")];
        assert_eq!(said("9:name=systemd:/\n3:cpuset:/vm\n", &[]), "cgroup v1");
        assert_eq!(said("9:name=systemd:/\n3:cpuset:/vm\n0::/\n", &v2), "cgroup v1 and v2 side by side (hybrid)");
        assert_eq!(said("0::/../../kubepods.slice/x\n", &v2), "the cgroup namespace of a container");
        assert_eq!(said("0::/vm\n", &[]), "cgroup v2, mounted elsewhere than /sys/fs/cgroup");
        let (_directory, root) = tree(&[]);
        assert!(matches!(VmCgroup::of(&root, 7), VmCgroup::LeftAlone { .. }));
    }

    #[test]
    fn a_slice_is_nobodys_own_and_a_plain_cgroup_may_be() {
        let cgroup = |path: &str| {
            let (_directory, root) = tree(&[
                ("proc/7/cgroup", &format!("0::{path}\n")),
                ("sys/fs/cgroup/cgroup.controllers", "cpuset\n"),
                (&format!("sys/fs/cgroup{path}/cgroup.procs"), "7\n"),
            ]);
            VmCgroup::of(&root, 7)
        };
        assert_eq!(cgroup("/machine.slice"), VmCgroup::Shared { path: "/machine.slice".to_owned() });
        assert_eq!(cgroup("/qemu.slice/101.scope"), VmCgroup::Own { path: "/qemu.slice/101.scope".to_owned() });
        assert_eq!(cgroup("/vms/web"), VmCgroup::Own { path: "/vms/web".to_owned() });
    }

    #[test]
    fn the_root_is_nobodys_own() {
        let (_directory, root) = tree(&[
            ("proc/7/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset\n"),
            ("sys/fs/cgroup/cgroup.procs", "7\n"),
        ]);
        assert_eq!(VmCgroup::of(&root, 7), VmCgroup::Shared { path: "/".to_owned() });
    }

    #[test]
    fn anonymous_and_shared_memory_are_added_by_node() {
        let text = "anon N0=4096 N1=8192\nfile N0=100000 N1=0\nkernel_stack N0=1 N1=1\nshmem N0=0 N1=4096\nanon_thp \
            N0=4096 N1=0\n";
        let sums = parse_numa_stat(text);
        assert_eq!(sums, BTreeMap::from([(NodeId(0), Bytes(4096)), (NodeId(1), Bytes(12288))])); // 8192 + 4096
    }
}
