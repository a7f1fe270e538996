//! Confining the cgroup of a VM to the nodes of its home, so that the kernel rebinds the policy of
//! its memory.

use super::act::Actor;
use crate::cgroup::{self, VmCgroup};
use crate::error::LinuxError;
use crate::memory::{Mapping, mappings_in, policy_nodes};
use crate::root::Root;
use crate::vm::VmClient;
use scheduler::{ActionError, Done, rebound};
use topology::{Bytes, NodeSet};

/// Memory of QEMU's own that the kernel may move at once when a cpuset is written.
const MOST_AWAY: Bytes = Bytes::from_mib(16);

/// What the kernel says about a client's memory.
pub(super) fn client_mappings(root: &Root, pid: u32, client: &VmClient) -> Result<Vec<Mapping>, LinuxError> {
    if client.regions.is_empty() {
        return Err(LinuxError::NoRegions);
    }
    let mut found = Vec::new();
    for region in &client.regions {
        found.extend(mappings_in(root, pid, &region.addresses)?.ok_or(LinuxError::NoNumaMaps)?);
    }
    Ok(found)
}

impl Actor<'_> {
    /// Writes the `cpuset.mems` of the VM's own cgroup, after its memory is on `nodes`: the kernel
    /// then only rebinds policies, and does it as was computed beforehand. Never widens.
    pub(super) fn confine(&mut self, nodes: &NodeSet) -> Result<Done, ActionError> {
        let operation = format!("confine it to the memory of nodes {nodes}");
        let fail = |actor: &Self, reason: String| Err(actor.failed(operation.clone(), reason));
        let pid = self.tracked.vm.key.pid;
        let path = match VmCgroup::of(self.root, pid) {
            VmCgroup::Own { path } => path,
            VmCgroup::Shared { path } => return fail(self, format!("its cgroup {path} holds other processes too")),
            VmCgroup::LeftAlone { layout } => return fail(self, format!("its cgroup is left alone: {layout}")),
        };
        let Some(allowed) = cgroup::memory_nodes(self.root, &path) else {
            return fail(self, format!("the cpuset controller is not on for its cgroup {path}"));
        };
        if nodes.is_empty() || !nodes.is_subset(&allowed) {
            let reason = format!("its cpuset allows nodes {allowed}, and widening it sends bound memory elsewhere");
            return fail(self, reason);
        }
        self.foresee(&operation, &allowed, nodes)?;
        if let Err(error) = cgroup::set_memory_nodes(self.root, &path, nodes) {
            return match error.kind() {
                std::io::ErrorKind::PermissionDenied => Err(ActionError::Permission {
                    vm: self.tracked.vm.key.name.clone(),
                    operation,
                    needs: format!("to write /sys/fs/cgroup{path}/cpuset.mems (root, or CAP_DAC_OVERRIDE)"),
                }),
                _ => fail(self, error.to_string()),
            };
        }
        let stale = self.stale_policy(nodes);
        Ok(Done {
            because: stale.map(|policy| format!("its policy still names other nodes: {policy}")),
            ..Done::default()
        })
    }

    /// Whether writing the cpuset would leave memory and policy together, and would not move much
    /// by itself.
    fn foresee(&self, operation: &str, allowed: &NodeSet, nodes: &NodeSet) -> Result<(), ActionError> {
        let fail = |reason: String| self.failed(operation, reason);
        for client in &self.tracked.vm.clients {
            let mappings = client_mappings(self.root, self.tracked.vm.key.pid, client);
            for mapping in mappings.map_err(|error| fail(error.to_string()))? {
                let bytes = |(_, pages): (_, &u64)| Bytes(pages * mapping.page_size.0);
                let outside = |set: &NodeSet| -> Bytes {
                    mapping.pages.iter().filter(|(node, _)| !set.contains(**node)).map(bytes).sum()
                };
                if outside(nodes) > MOST_AWAY {
                    return Err(fail(format!("{} of its memory are on other nodes: move them first", outside(nodes))));
                }
                let Some(bound) = policy_nodes(&mapping.policy) else { continue };
                let after = rebound(&bound, allowed, nodes);
                let is_file = client.regions.iter().any(|region| region.kind == crate::vm::RegionKind::Memfd);
                if !is_file && outside(&after) > MOST_AWAY {
                    let policy = &mapping.policy;
                    return Err(fail(format!("the kernel would make {policy} into {after}, where its memory is not")));
                }
            }
        }
        Ok(())
    }

    /// The policy of any of the VM's memory that names a node other than these.
    pub(super) fn stale_policy(&self, nodes: &NodeSet) -> Option<String> {
        let clients = self.tracked.vm.clients.iter();
        let mappings = clients.filter_map(|client| client_mappings(self.root, self.tracked.vm.key.pid, client).ok());
        mappings.flatten().find_map(|mapping| stale(&mapping, nodes))
    }
}

/// A mapping's policy, if it names a node other than these.
pub(super) fn stale(mapping: &Mapping, nodes: &NodeSet) -> Option<String> {
    let bound = policy_nodes(&mapping.policy)?;
    (!bound.is_subset(nodes)).then(|| mapping.policy.clone())
}
