//! Whether a VM waits for latency, as far as the host shows it: all of its vCPUs then count as
//! busy. What its spec says of it counts before this.
//!
//! **Rule.** One of its vCPU threads has a real-time scheduling class; or each of them is bound to
//! one CPU of a larger node, no two to the same. Of a VM whose vCPU threads nobody can tell nothing
//! is known.
//!
//! **Example.** libvirt's `<vcpusched vcpus="1-3" scheduler="fifo" priority="1"/>`: three of four
//! threads are of class FIFO, and the VM counts with four CPUs.

use crate::error::read_text;
use crate::proc_text::{stat_field, status_field};
use crate::root::Root;
use crate::sys;
use crate::vm::{RunningVm, VmClient};
use topology::{CpuSet, Machine};

/// Values of `policy` in `/proc/PID/task/TID/stat` (sched(7)).
const FIFO: u32 = 1;
const ROUND_ROBIN: u32 = 2;
const DEADLINE: u32 = 6;
/// Its field there, counted as proc(5) does.
const POLICY_FIELD: usize = 41;

/// Why it is, as a sentence; `None`: nothing says so.
pub(super) fn of(root: &Root, vm: &RunningVm, machine: &Machine) -> Option<String> {
    let threads = || vm.clients.iter().flat_map(|client| &client.thread_ids);
    if threads().any(|&thread| is_real_time(root, vm.key.pid, thread)) {
        return Some("its vCPU threads have a real-time scheduling class".to_owned());
    }
    let each = |client: &VmClient| client.thread_ids.len() == client.vcpus.len();
    let cpus = threads().map(|&thread| cpus_of(root, vm.key.pid, thread)).collect::<Option<Vec<CpuSet>>>()?;
    (vm.clients.iter().all(each) && are_one_to_one(&cpus, machine))
        .then(|| "each of its vCPUs is bound to one CPU of its own".to_owned())
}

fn is_real_time(root: &Root, pid: u32, thread: u32) -> bool {
    let stat = read_text(&root.thread(pid, thread, "stat")).unwrap_or_default();
    matches!(stat_field(&stat, POLICY_FIELD), Some(FIFO | ROUND_ROBIN | DEADLINE))
}

fn cpus_of(root: &Root, pid: u32, thread: u32) -> Option<CpuSet> {
    if root.is_live() {
        return sys::affinity(thread).ok();
    }
    status_field(&read_text(&root.thread(pid, thread, "status")).ok()?, "Cpus_allowed_list:")
}

/// One CPU each, no two the same. A whole node of one CPU is a home like any other.
fn are_one_to_one(cpus: &[CpuSet], machine: &Machine) -> bool {
    let mut taken = CpuSet::new();
    let own = |cpus: &CpuSet| {
        let thread = cpus.first().filter(|_| cpus.len() == 1).and_then(|cpu| machine.thread(cpu));
        thread.is_some_and(|thread| machine.usable_cpus(thread.node).len() > 1 && taken.insert(thread.id))
    };
    !cpus.is_empty() && cpus.iter().all(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sets(sets: &[&str]) -> Vec<CpuSet> {
        sets.iter().map(|set| set.parse().expect("a set")).collect()
    }

    #[test]
    fn one_cpu_each_is_told_from_a_small_home() {
        let machine = topology::read::from_synthetic("numa:2 core:2 pu:1").expect("a machine");
        for (cpus, expected) in [
            (&["0", "1"][..], true),
            (&["0", "2"], true),
            (&["0", "0"], false),
            (&["0", "0-1"], false),
            (&["0-1", "0-1"], false),
            (&[], false),
        ] {
            assert_eq!(are_one_to_one(&sets(cpus), &machine), expected, "{cpus:?}");
        }
        let one_cpu = topology::read::from_synthetic("numa:2 core:1 pu:1").expect("a machine");
        assert!(!are_one_to_one(&sets(&["0"]), &one_cpu));
    }

    #[test]
    fn a_real_time_thread_makes_the_vm_latency_sensitive() {
        let machine = topology::read::from_synthetic("numa:2 core:2 pu:1").expect("a machine");
        let directory = tempfile::tempdir().expect("a directory");
        let root = Root::at(directory.path());
        let client = VmClient { vcpus: vec![0, 1], thread_ids: vec![8, 9], ..VmClient::default() };
        let mut vm = RunningVm { clients: vec![client], ..RunningVm::default() };
        vm.key.pid = 7;
        let written = |thread: u32, policy: u32, cpus: &str| {
            let task = root.thread(7, thread, "");
            fs::create_dir_all(&task).expect("a directory");
            // Fields 3 to 40, then the policy.
            fs::write(task.join("stat"), format!("{thread} (CPU 0/KVM) S {}{policy} 0", "0 ".repeat(37)))
                .expect("a file");
            fs::write(task.join("status"), format!("Cpus_allowed_list:\t{cpus}\n")).expect("a file");
        };
        written(8, 0, "0-1");
        written(9, 0, "0-1");
        assert_eq!(of(&root, &vm, &machine), None);
        written(9, FIFO, "0-1");
        assert!(of(&root, &vm, &machine).is_some_and(|why| why.contains("real-time")));
        written(8, 0, "0");
        written(9, 0, "3");
        assert!(of(&root, &vm, &machine).is_some_and(|why| why.contains("one CPU of its own")));
        written(9, 0, "0");
        assert_eq!(of(&root, &vm, &machine), None);
    }
}
