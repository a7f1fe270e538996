//! Whether the program that manages a VM knows where its vCPUs may run.

use crate::guest_topology::Untruth;
use linux::drift::Severity;
use linux::vm::{RunningVm, VmClient};
use scheduler::{Action, ClientId};
use std::collections::BTreeMap;
use topology::{CpuSet, Machine, NodeSet};

/// Clients of which the manager believes something else than what the kernel does. The cure tells the manager what the kernel does, but for
/// clients that are `rebound` anyway: what the kernel does is then to change.
pub(crate) fn examine(
    machine: &Machine,
    vm: &RunningVm,
    affinity: &BTreeMap<u32, CpuSet>,
    pins: &BTreeMap<u32, CpuSet>,
    rebound: impl Fn(ClientId) -> bool,
) -> Vec<Untruth> {
    // The manager counts CPUs that are offline; the kernel does not.
    let online: CpuSet = machine.threads.iter().filter(|thread| thread.online).map(|thread| thread.id).collect();
    let differing = |client: &VmClient| {
        let vcpu = client.vcpus.iter().find_map(|vcpu| {
            let (does, says) = (affinity.get(vcpu)?, pins.get(vcpu)?.intersection(&online));
            (*does != says).then_some((*vcpu, does, says))
        });
        let (vcpu, does, says) = vcpu?;
        let same = client.vcpus.iter().all(|other| affinity.get(other) == Some(does));
        Some(Untruth {
            what: "manager_believes_otherwise",
            sentence: format!(
                "{} believes that its vCPUs may run on CPUs {says}; the kernel runs them on CPUs {does}",
                vm.origin.manager
            ),
            evidence: format!("virsh vcpupin --live: vCPU {vcpu}: {says}; sched_getaffinity: {does}"),
            severity: if does.is_subset(&says) { Severity::Note } else { Severity::Warning },
            advice: format!("virsh vcpupin --live, CPUs {does} (--fix does, where all vCPUs have the same)"),
            action: (same && !rebound(client.id)).then(|| Action::Bind {
                vm: vm.key.clone(),
                client: client.id,
                home: does.iter().filter_map(|cpu| Some(machine.thread(cpu)?.node)).collect::<NodeSet>(),
                cpus: does.clone(),
            }),
        })
    };
    vm.clients.iter().filter_map(differing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::VmKey;
    use topology::Bytes;
    use vm::{Manager, Origin};

    fn vm() -> RunningVm {
        let client = VmClient {
            id: ClientId(0),
            virtual_node: None,
            vcpus: vec![0, 1],
            thread_ids: vec![8, 9],
            memory_size: Bytes::GIB,
            ..VmClient::default()
        };
        RunningVm {
            key: VmKey { name: "web".into(), pid: 7, started: 1 },
            origin: Origin { manager: Manager::Libvirt, id: None },
            clients: vec![client],
            ..RunningVm::default()
        }
    }

    fn all(cpus: [&str; 2]) -> BTreeMap<u32, CpuSet> {
        cpus.iter().enumerate().map(|(vcpu, cpus)| (vcpu as u32, cpus.parse().unwrap())).collect()
    }

    #[test]
    fn the_manager_is_told_what_the_kernel_does() {
        let machine = topology::read::from_synthetic("numa:2 core:2 pu:1").unwrap();
        let look = |kernel, virsh, rebound: bool| examine(&machine, &vm(), &all(kernel), &all(virsh), |_| rebound);
        assert_eq!(look(["0-1", "0-1"], ["0-1", "0-1"], false), []);
        assert_eq!(look(["0-3", "0-3"], ["0-63", "0-63"], false), []); // 60 CPUs that the machine does not have
        let stale = look(["0-1", "0-1"], ["2-3", "2-3"], false).remove(0);
        assert_eq!(stale.severity, Severity::Warning);
        assert!(
            matches!(&stale.action, Some(Action::Bind { cpus, home, .. }) if cpus.to_string() == "0-1" && home.to_string() == "0")
        );
        assert!(
            stale.sentence.starts_with("libvirt believes that its vCPUs may run on CPUs 2-3; "),
            "{}",
            stale.sentence
        );
        assert_eq!(look(["0-1", "0-1"], ["0-3", "0-3"], false)[0].severity, Severity::Note);
        assert_eq!(look(["0-1", "0-1"], ["2-3", "2-3"], true)[0].action, None);
        assert_eq!(look(["0-1", "0-3"], ["2-3", "2-3"], false)[0].action, None); // one action cannot say both
    }
}
