//! CPUs that the kernel does not schedule by itself.
//!
//! **Problem.** "All CPUs of the home" counted CPUs that a host keeps apart (`isolcpus=`, isolated
//! partitions of cpusets). No thread that may also use others ever runs there.
//!
//! **Rule.** A thread whose affinity has CPUs of both kinds uses the others only; one that is bound
//! to isolated CPUs alone stays on the one that it is put on, since no scheduling domain spans them
//! (kernel: Documentation/admin-guide/kernel-parameters.txt, `isolcpus`; measured under 6.1).
//!
//! **Example.** 4 CPUs, 2-3 isolated: three busy threads that may use 0-3 share CPUs 0 and 1.

use crate::{CpuSet, HardwareThread, Machine, NodeId};

/// CPUs of a machine, by what the kernel does with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedulable {
    /// Those that a thread can be bound to.
    pub bindable: CpuSet,
    /// Of these, those among which the kernel balances load: a thread that is bound to nothing is
    /// on one of them.
    pub balanced: CpuSet,
}

impl Schedulable {
    /// CPUs that a thread uses which may use `cpus`: of both kinds those that are balanced; none
    /// that the machine lacks.
    pub fn used(&self, cpus: &CpuSet) -> CpuSet {
        let balanced = cpus.intersection(&self.balanced);
        if balanced.is_empty() { cpus.intersection(&self.bindable) } else { balanced }
    }

    /// Whether a thread that may use `cpus` is as free as one that is bound to nothing.
    pub fn floats(&self, cpus: &CpuSet) -> bool {
        self.balanced.is_subset(cpus)
    }
}

impl Machine {
    /// Threads that are online and that this process may use, isolated ones too: the ones that
    /// something can be bound to.
    pub fn bindable_threads(&self) -> impl Iterator<Item = &HardwareThread> {
        self.threads.iter().filter(|thread| thread.online && thread.allowed)
    }

    /// CPUs of these, of one node.
    pub fn bindable_cpus(&self, node: NodeId) -> CpuSet {
        self.bindable_threads().filter(|thread| thread.node == node).map(|thread| thread.id).collect()
    }

    /// Its CPUs by what the kernel does with them.
    pub fn schedulable(&self) -> Schedulable {
        let bindable: CpuSet = self.bindable_threads().map(|thread| thread.id).collect();
        Schedulable { balanced: bindable.difference(&self.isolated), bindable }
    }

    /// Isolated CPUs to which something can be bound.
    pub fn isolated_cpus(&self) -> CpuSet {
        self.bindable_threads().map(|thread| thread.id).filter(|&cpu| self.isolated.contains(cpu)).collect()
    }

    /// The same machine with no other CPUs than these, isolated or not: as somebody sees it who
    /// uses them alone.
    #[must_use]
    pub fn with_only(&self, cpus: &CpuSet) -> Self {
        let mut machine = self.clone();
        for thread in &mut machine.threads {
            thread.allowed &= cpus.contains(thread.id);
        }
        machine.isolated = machine.isolated.difference(cpus);
        machine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_use_both_kinds_uses_one() {
        let text = "numa:2(memory=4GiB) core:2 pu:2(isolated_cpus=2-3,6-7)";
        let machine = crate::read::from_synthetic(text).expect("a machine");
        let used = |cpus: &str| machine.schedulable().used(&cpus.parse().expect("a set")).to_string();
        // Node 0 has CPUs 0-3.
        assert_eq!(
            (used("0-3"), used("2-3"), used("1-2,9"), used("9")),
            ("0-1".into(), "2-3".into(), "1".into(), "".into())
        );
        let of =
            |machine: &Machine| (machine.usable_cpus(NodeId(0)).to_string(), machine.usable_cores(NodeId(0)).len());
        assert_eq!(
            (of(&machine), machine.bindable_cpus(NodeId(0)).to_string()),
            (("0-1".to_owned(), 1), "0-3".to_owned())
        );
        assert_eq!(of(&machine.with_only(&machine.isolated_cpus())), ("2-3".to_owned(), 1));
    }
}
