//! What somebody chose of where a VM's memory lies: nodes that it is bound to, or interleaved over.
//!
//! **Problem.** QEMU's command line says only what QEMU was told. `numactl --membind` and libvirt's
//! strict mode without virtual nodes bind the process before QEMU begins, `numactl --shm` binds a
//! file, and a block that is plugged in later brings its own policy.
//!
//! **Rule.** What the kernel applies counts, whoever set it: `numa_maps` shows for each mapping its
//! own policy, else its file's, else that of the process (mm/mempolicy.c, `__get_vma_policy`).
//! `bind` names the only nodes for a home; `interleave` and `weighted interleave` name nodes that
//! keep what they have. `prefer` and `local` say where memory comes from at first, and bind
//! nothing. Of a VM that homenode started the policies are homenode's own, but for interleaving
//! that its spec asks for. Where `numa_maps` may not be read, the command line counts.
//!
//! **Properties.** Until policies were read nobody knows where the memory may lie: it is unknown.
//! The kernel walks page tables for `numa_maps`, some 3 ms for a GiB in small pages, so that it is
//! read at first sight, when regions or the cpuset changed, and after many looks; a few VMs in each
//! look of a balancer.
//!
//! **Example.** `numactl --membind=3 qemu-system-x86_64 -m 4G`: `7f3a... bind:3 anon=1048576`. Its
//! home is node 3, as if its command line said `host-nodes=3,policy=bind`.

use super::examination::policies_of;
use super::tracked::Tracked;
use crate::memory::{Mapping, mappings_in, policy_nodes};
use crate::root::Root;
use crate::vm::{RunningVm, VmClient};
use scheduler::ClientId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology::{Bytes, Machine, NodeSet};

/// Looks between two at policies that nothing seems to have changed.
const READ_EVERY: u64 = 256;

/// What somebody chose of a client's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// The only nodes that may be its home.
    pub(super) bound: Option<NodeSet>,
    /// Nodes over which it is interleaved.
    pub(super) spread: NodeSet,
}

/// What somebody chose of a VM's memory, as it was read last.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// By client; of one that is missing the command line's words count.
    by_client: BTreeMap<ClientId, Choice>,
    /// The look that read them; `None`: none did yet.
    read_at: Option<u64>,
    stale: bool,
}

impl Choices {
    /// What somebody chose of a client's memory.
    pub(super) fn of(&self, vm: &RunningVm, client: &VmClient) -> Choice {
        let known = self.by_client.get(&client.id).cloned();
        known.unwrap_or_else(|| Choice { bound: client.chosen_nodes.clone(), spread: told_to_spread(vm, client) })
    }

    /// Regions or the cpuset changed.
    pub(super) fn are_stale(&mut self) {
        self.stale = true;
    }

    /// Whether they are to be read in this look.
    pub(super) fn are_due(&self, turn: u64) -> bool {
        self.stale || self.read_at.is_none_or(|read_at| turn.saturating_sub(read_at) >= READ_EVERY)
    }

    /// Whether they were never read: nothing may be done with the memory meanwhile.
    pub(super) fn are_awaited(&self) -> bool {
        self.read_at.is_none()
    }

    /// Takes over what the kernel says; `None` where it says nothing.
    pub(super) fn take(&mut self, vm: &RunningVm, mappings: Option<&[Mapping]>, machine: &Machine) {
        self.by_client.clear();
        if let Some(mappings) = mappings.filter(|_| !vm.origin.by_homenode) {
            let told = vm.clients.iter().filter(|client| !client.regions.is_empty());
            self.by_client = told.map(|client| (client.id, chosen(client, mappings, machine))).collect();
        }
        (self.stale, self.read_at) = (false, self.read_at.or(Some(0)));
    }
}

impl Tracked {
    /// Reads what somebody chose of its memory, where page tables may be walked.
    pub(super) fn read_choices(&mut self, root: &Root, machine: &Machine, turn: u64, may_walk: bool) {
        let pid = self.vm.key.pid;
        let wanted = may_walk && !self.vm.origin.by_homenode;
        let mappings = wanted.then(|| mappings_in(root, pid, &(0..u64::MAX)).ok().flatten()).flatten();
        self.choices.take(&self.vm, mappings.as_deref(), machine);
        self.choices.read_at = Some(turn);
    }
}

/// Nodes over which QEMU was told to interleave: by its spec where homenode started it, for then
/// other interleaving is homenode's.
fn told_to_spread(vm: &RunningVm, client: &VmClient) -> NodeSet {
    let chosen = !vm.origin.by_homenode || vm.stated.interleaves;
    if chosen { client.interleaved_over.clone() } else { NodeSet::new() }
}

/// What the policies of a client's memory say.
fn chosen(client: &VmClient, mappings: &[Mapping], machine: &Machine) -> Choice {
    let mut choice = Choice::default();
    let policies = client.regions.iter().flat_map(|region| policies_of(region, mappings));
    for policy in policies {
        let Some(nodes) = policy_nodes(&policy.policy).filter(|nodes| !nodes.is_empty()) else { continue };
        match mode(&policy.policy) {
            "bind" => choice.bound = Some(choice.bound.map_or(nodes.clone(), |all| all.union(&nodes))),
            "interleave" | "weighted interleave" => choice.spread = choice.spread.union(&nodes),
            _ => {}
        }
    }
    // Bound to all nodes it is bound to none.
    let with_memory: NodeSet = machine.nodes.iter().filter(|node| node.memory > Bytes(0)).map(|node| node.id).collect();
    choice.bound = choice.bound.filter(|bound| with_memory.len() == 1 || !with_memory.is_subset(bound));
    choice
}

/// The policy's name, without flags (`=static`) and nodes.
fn mode(policy: &str) -> &str {
    policy.split([':', '=']).next().unwrap_or_default()
}

/// The time of one look for reading policies.
#[derive(Debug)]
pub(super) struct Walks {
    within: Option<Duration>,
    began: Option<Instant>,
}

impl Walks {
    /// `within`: time for it; `None`: not limited.
    pub(super) fn new(within: Option<Duration>) -> Self {
        Self { within, began: None }
    }

    /// Whether one more VM's policies may be read: those of one are in any case.
    pub(super) fn may_walk(&mut self) -> bool {
        match (self.began, self.within) {
            (None, _) => self.began = Some(Instant::now()),
            (Some(began), Some(within)) => return began.elapsed() <= within,
            (Some(_), None) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::{Given, Region, RegionEvidence, RegionKind};
    use topology::NodeId;

    fn client(addresses: &[std::ops::Range<u64>]) -> VmClient {
        let region = |addresses: &std::ops::Range<u64>| Region {
            backend: None,
            addresses: addresses.clone(),
            kind: RegionKind::Anonymous,
            path: String::new(),
            page_size: None,
            evidence: RegionEvidence::Size,
            given: Given::All,
        };
        VmClient { regions: addresses.iter().map(region).collect(), ..VmClient::default() }
    }

    fn mapping(start: u64, policy: &str) -> Mapping {
        let pages = BTreeMap::from([(NodeId(3), 4)]);
        Mapping { start, policy: policy.to_owned(), pages, page_size: Bytes::from_kib(4) }
    }

    fn read(mappings: &[Mapping]) -> (String, String) {
        let machine = topology::read::from_synthetic("numa:4(memory=1GiB) core:2 pu:1").expect("a machine");
        let choice = chosen(&client(&[0x1000..0x2000, 0x9000..0xa000]), mappings, &machine);
        (choice.bound.map_or_else(String::new, |nodes| nodes.to_string()), choice.spread.to_string())
    }

    #[test]
    fn what_the_kernel_applies_bounds_the_home_whoever_set_it() {
        let of = |policies: [&str; 2]| {
            let [one, other] = policies.map(|policy| policy.to_owned());
            // QEMU's own memory between them says nothing.
            read(&[mapping(0x1000, &one), mapping(0x3000, "bind:0"), mapping(0x9000, &other)])
        };
        let (bound, spread) =
            (|nodes: &str| (nodes.to_owned(), String::new()), |nodes: &str| (String::new(), nodes.to_owned()));
        assert_eq!(of(["bind:3", "bind:3"]), bound("3"));
        assert_eq!(of(["bind=static:2-3", "default"]), bound("2-3"));
        assert_eq!(of(["bind=relative:1", "bind:2"]), bound("1-2"));
        assert_eq!(of(["interleave:0-3", "interleave:0-3"]), spread("0-3"));
        assert_eq!(of(["weighted interleave=static:0,2", "weighted interleave:1"]), spread("0-2"));
        assert_eq!(of(["bind:3", "interleave:1-2"]), ("3".to_owned(), "1-2".to_owned()));
        for free in ["default", "local", "prefer:3", "prefer (many):0-1", "bind:0-3"] {
            assert_eq!(of([free, free]), bound(""), "{free}");
        }
    }

    #[test]
    fn of_many_vms_a_few_are_read_in_one_look() {
        let mut walks = Walks::new(Some(Duration::ZERO));
        assert!(walks.may_walk());
        std::thread::sleep(Duration::from_millis(1));
        assert!(!walks.may_walk());
        let mut all = Walks::new(None);
        assert!(all.may_walk() && all.may_walk());
    }
}
