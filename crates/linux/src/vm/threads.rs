//! Which threads of a QEMU process run vCPUs.

use crate::error::{LinuxError, read_text};
use crate::proc_text::stat_field;
use crate::root::{Root, numbered_entries};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology::limits::MOST_THREADS;

/// A thread that runs a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct VcpuThread {
    /// The vCPU.
    pub index: u32,
    /// The kernel's id of the thread.
    pub thread_id: u32,
}

/// What a thread that runs no vCPU is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadKind {
    /// The main loop.
    Main,
    /// An I/O thread (`-object iothread`).
    Io,
    /// A thread of the kernel that moves packets for the VM (`vhost-*`).
    Vhost,
    /// Another thread of the kernel that is listed with the process: `kvm-nx-lpage-recovery`.
    Kernel,
    /// Anything else: worker pools, migration, displays.
    Worker,
}

/// How the vCPU threads were told from the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VcpuEvidence {
    /// By their names (`debug-threads=on`).
    Names,
    /// One thread runs all vCPUs (`-accel tcg,thread=single`).
    OneForAll,
    /// By the time that they spent in the guest, in the order of their start: only vCPU threads of
    /// KVM have any.
    GuestTime,
    /// The monitor said.
    Monitor,
    /// Not at all: threads have no names, and too few ran a guest yet.
    #[default]
    Unknown,
}

/// The threads of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VmThreads {
    /// Those that run vCPUs, by index.
    pub vcpus: Vec<VcpuThread>,
    /// How they were told from the others.
    pub evidence: VcpuEvidence,
    /// The others: id, name, kind.
    pub others: Vec<(u32, String, ThreadKind)>,
}

impl VmThreads {
    /// Reads the threads of a process whose command line promises the vCPUs `vcpus`, rising.
    /// Threads that end meanwhile are left out.
    ///
    /// # Errors
    /// The process has no list of threads (any more).
    pub fn read(root: &Root, pid: u32, vcpus: &[u32]) -> Result<Self, LinuxError> {
        let ids = numbered_entries(&root.process(pid, "task"))?;
        if ids.len() > MOST_THREADS {
            return Err(LinuxError::Doubtful { pid, why: format!("it has {} threads", ids.len()) });
        }
        let name =
            |id: &u32| Some((*id, topology::input::name(read_text(&root.thread(pid, *id, "comm")).ok()?.trim_end())));
        let named: Vec<(u32, String)> = ids.iter().filter_map(name).collect();
        let guest_time = |id: u32| guest_ticks(&read_text(&root.thread(pid, id, "stat")).ok()?);
        Ok(Self::classify(pid, vcpus, &named, guest_time))
    }

    /// Sorts threads, by id, into vCPUs and others. `guest_time` is asked only where names do not
    /// tell.
    fn classify(pid: u32, vcpus: &[u32], named: &[(u32, String)], guest_time: impl Fn(u32) -> Option<u64>) -> Self {
        let by_name = |(id, name): &(u32, String)| Some(VcpuThread { index: vcpu_index(name)?, thread_id: *id });
        let mut found: Vec<VcpuThread> = named.iter().filter_map(by_name).collect();
        let mut evidence = VcpuEvidence::Names;
        if found.is_empty()
            && let Some((thread_id, _)) = named.iter().find(|(_, name)| name.starts_with("ALL CPUs"))
        {
            found = vcpus.iter().map(|&index| VcpuThread { index, thread_id: *thread_id }).collect();
            evidence = VcpuEvidence::OneForAll;
        }
        if found.is_empty() {
            let ran = named.iter().filter(|(id, _)| *id != pid && guest_time(*id).is_some_and(|ticks| ticks > 0));
            let ran: Vec<u32> = ran.map(|(id, _)| *id).collect();
            // A vCPU that has not run yet has no guest time, and would shift the numbers of all
            // after it.
            if ran.len() == vcpus.len() {
                found = vcpus.iter().zip(ran).map(|(&index, thread_id)| VcpuThread { index, thread_id }).collect();
                evidence = VcpuEvidence::GuestTime;
            } else {
                evidence = VcpuEvidence::Unknown;
            }
        }
        found.sort_by_key(|thread| thread.index);
        let run_vcpus: BTreeSet<u32> = found.iter().map(|thread| thread.thread_id).collect();
        let others = named
            .iter()
            .filter(|(id, _)| !run_vcpus.contains(id))
            .map(|(id, name)| (*id, name.clone(), kind_of(*id == pid, name)))
            .collect();
        Self { vcpus: found, evidence, others }
    }

    /// Takes over what the monitor said: thread by vCPU.
    pub fn told(&mut self, threads: &BTreeMap<u32, u32>) {
        self.vcpus = threads.iter().map(|(&index, &thread_id)| VcpuThread { index, thread_id }).collect();
        self.others.retain(|(id, ..)| !threads.values().any(|thread| thread == id));
        self.evidence = VcpuEvidence::Monitor;
    }
}

/// QEMU names vCPU threads `CPU n/KVM` and `CPU n/TCG`.
fn vcpu_index(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

fn kind_of(is_main: bool, name: &str) -> ThreadKind {
    match name {
        _ if is_main => ThreadKind::Main,
        _ if name.starts_with("vhost-") => ThreadKind::Vhost,
        _ if name.starts_with("kvm-nx-lpage") || name.starts_with("kvm-pit") => ThreadKind::Kernel,
        _ if name.starts_with("IO ") => ThreadKind::Io,
        _ => ThreadKind::Worker,
    }
}

/// Field 43 of `/proc/PID/task/TID/stat`: time spent running a guest, in clock ticks.
fn guest_ticks(stat: &str) -> Option<u64> {
    stat_field(stat, 43)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[(u32, &str)]) -> Vec<(u32, String)> {
        names.iter().map(|&(id, name)| (id, name.to_owned())).collect()
    }

    #[test]
    fn names_tell_vcpus_from_the_rest() {
        let threads = named(&[
            (10, "qemu-system-x86"),
            (11, "call_rcu"),
            (12, "IO mon_iothread"),
            (14, "CPU 1/KVM"),
            (13, "CPU 0/KVM"),
            (15, "kvm-nx-lpage-re"),
            (16, "vhost-10"),
        ]);
        let read = VmThreads::classify(10, &[0, 1], &threads, |_| panic!("names are enough"));
        assert_eq!(read.vcpus, [VcpuThread { index: 0, thread_id: 13 }, VcpuThread { index: 1, thread_id: 14 }]);
        let kinds: Vec<ThreadKind> = read.others.iter().map(|(_, _, kind)| *kind).collect();
        use ThreadKind::{Io, Kernel, Main, Vhost, Worker};
        assert_eq!(kinds, [Main, Worker, Io, Kernel, Vhost]);
    }

    #[test]
    fn without_names_time_in_the_guest_tells_if_every_vcpu_ran() {
        let threads = named(&[(10, "kvm"), (11, "kvm"), (12, "kvm"), (13, "kvm")]);
        let read = |times: [u64; 4]| VmThreads::classify(10, &[0, 1], &threads, |id| Some(times[id as usize - 10]));
        let both = read([0, 0, 7, 3]);
        assert_eq!(both.evidence, VcpuEvidence::GuestTime);
        assert_eq!(both.vcpus.iter().map(|thread| thread.thread_id).collect::<Vec<_>>(), [12, 13]);
        let one = read([0, 0, 0, 3]); // vCPU 0 has not run: thread 13 could be either
        assert_eq!((one.evidence, one.vcpus.len()), (VcpuEvidence::Unknown, 0));
    }

    #[test]
    fn one_thread_may_run_all_vcpus() {
        let read = VmThreads::classify(10, &[0, 1, 2], &named(&[(10, "q"), (12, "ALL CPUs/TCG")]), |_| None);
        assert_eq!(read.evidence, VcpuEvidence::OneForAll);
        assert_eq!(
            read.vcpus.iter().map(|vcpu| (vcpu.index, vcpu.thread_id)).collect::<Vec<_>>(),
            [(0, 12), (1, 12), (2, 12)]
        );
        assert_eq!(read.others.len(), 1);
    }

    #[test]
    fn guest_time_is_field_43_and_parentheses_in_a_name_do_not_shift_it() {
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(guest_ticks(&format!("7 (CPU (0)/KVM) {}", fields.join(" "))), Some(43));
    }
}
