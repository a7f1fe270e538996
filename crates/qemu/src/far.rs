//! Memory on nodes without CPUs by their bandwidth: it is put in its place when QEMU has filled it,
//! and before the guest runs.
//!
//! **Rule.** QEMU fills memory that is bound to the nodes of a home, which the kernel takes from
//! the nearest first. Then the parts that are to lie far are moved ([`linux::moving::divide`]).

use crate::QemuError;
use linux::vm::{RunningVm, VmClient};
use linux::{LinuxError, Root};
use topology::{Bytes, NodeId};
use vm::{Client, Plan};

/// Brings the parts of each client's memory to their nodes.
pub(crate) fn divide_memory(plan: &Plan, pid: u32) -> Result<(), QemuError> {
    let clients: Vec<&Client> = plan.placement.clients.iter().filter(|client| !client.far.is_empty()).collect();
    if clients.is_empty() {
        return Ok(());
    }
    let seen = RunningVm::examine(&Root::default(), pid).map_err(QemuError::host(&plan.vm))?;
    let seen = seen.map(|vm| vm.clients).unwrap_or_default();
    for client in clients {
        let is_its = |seen: &&VmClient| seen.virtual_node.is_none_or(|node| client.virtual_nodes.contains(&node));
        let regions: Vec<_> = seen.iter().filter(is_its).flat_map(|seen| &seen.regions).collect();
        let all: u64 = regions.iter().map(|region| region.addresses.end - region.addresses.start).sum();
        if regions.is_empty() {
            let problem = format!("nobody can tell where QEMU has the memory of client {}", client.id);
            return Err(not_divided(plan, &problem));
        }
        for region in regions {
            let own = region.addresses.end - region.addresses.start;
            let part = |bytes: Bytes| (u128::from(bytes.0) * u128::from(own) / u128::from(all.max(1))) as u64;
            let parts: Vec<(NodeId, Bytes)> =
                client.far.iter().map(|&(node, bytes)| (node, Bytes(part(bytes)))).collect();
            let left = linux::moving::divide(pid, region, &parts, &client.home).map_err(|source| {
                let action = "put parts of its memory on nodes without CPUs".to_owned();
                QemuError::Host { vm: plan.vm.clone(), source: LinuxError::call(action, source) }
            })?;
            if let Some((bytes, because)) = left {
                return Err(not_divided(plan, &format!("{bytes} did not move: {because}")));
            }
        }
    }
    Ok(())
}

fn not_divided(plan: &Plan, because: &str) -> QemuError {
    let problem = format!("policy.far_memory = \"by_bandwidth\": {because}");
    QemuError::Spec { vm: plan.vm.clone(), problem }
}
