//! Carrying out one action on one VM.

use super::AffinityManager;
use super::confine::client_mappings;
use super::tracked::Tracked;
use crate::capabilities::NEEDS_PTRACE;
use crate::counters;
use crate::memory::{Mapping, policy_nodes};
use crate::moving::{self, Move, Moved, Pace, Surroundings};
use crate::root::Root;
use crate::vm::{Region, RunningVm, VmClient};
use scheduler::{ActionError, ClientId, Done, VmKey};
use std::io;
use topology::{Bytes, Machine, NodeId};

/// Time for which memory that would not move is not asked again.
const REST_NS: u64 = 600 * 1_000_000_000;
/// Memory that a node keeps free whatever is moved to it: a hundredth of it, and never less than
/// this.
const LEAST_RESERVE: Bytes = Bytes::from_mib(32);

/// Threads that move memory at once where no limit is set. Two and four were slower than one in the
/// lab, whose machine has two CPUs underneath; what more of them bring on a large machine was not
/// measured.
const THREADS: usize = 1;

/// How far the moving of a client's memory off one node has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Address to go on at.
    next: u64,
    /// Moved since the walk began at the lowest address.
    moved: Bytes,
    /// Would not move since then.
    left: Bytes,
    /// A whole walk moved nothing: how much is stuck, why, and when that was found.
    stuck: Option<(Bytes, String, u64)>,
}

/// One VM of this host, and what is needed to change it.
pub(super) struct Actor<'a> {
    pub(super) root: &'a Root,
    pub(super) machine: &'a Machine,
    pub(super) tracked: &'a mut Tracked,
    pub(super) affinity_manager: Option<&'a AffinityManager>,
    pub(super) now_ns: u64,
}

impl Actor<'_> {
    pub(super) fn key(&self) -> &VmKey {
        &self.tracked.vm.key
    }

    pub(super) fn gone(&self) -> ActionError {
        ActionError::Gone { vm: self.key().name.clone() }
    }

    pub(super) fn failed(&self, operation: impl Into<String>, reason: impl Into<String>) -> ActionError {
        ActionError::Failed { vm: self.key().name.clone(), operation: operation.into(), reason: reason.into() }
    }

    pub(super) fn missing(&self, operation: impl Into<String>, needs: &str) -> ActionError {
        ActionError::Permission { vm: self.key().name.clone(), operation: operation.into(), needs: needs.to_owned() }
    }

    /// Moves at most `at_most` of the client's memory.
    pub(super) fn move_memory(
        &mut self,
        client: ClientId,
        from: NodeId,
        to: NodeId,
        at_most: Bytes,
        pace: &mut Pace,
    ) -> Result<Done, ActionError> {
        let operation = format!("move memory of client {} from node {from} to node {to}", client.0);
        let Some(found) = self.tracked.vm.client(client).cloned() else {
            return Err(self.failed(operation, "it has no such client"));
        };
        if from == to {
            return Ok(Done::default());
        }
        if self.machine.node(to).is_none() {
            return Err(self.failed(operation, format!("this machine has no node {to} now")));
        }
        if found.regions.is_empty() {
            return Err(match std::fs::read(self.root.process(self.key().pid, "maps")) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.missing(operation, NEEDS_PTRACE),
                _ => self.failed(operation, "its memory could not be told from QEMU's own"),
            });
        }
        if !self.is_mapped_still(&found) {
            return Err(self.failed(operation, "it has mapped other files where its memory was"));
        }
        let mut progress = self.tracked.moves.get(&(client, from)).cloned().unwrap_or_default();
        if let Some((left, because, since)) = &progress.stuck
            && self.now_ns.saturating_sub(*since) < REST_NS
        {
            let because = format!("{because} (tried before, and not again within 10 minutes)");
            return Ok(Done { moved: Bytes(0), left: *left, because: Some(because) });
        }
        let order = Move {
            pid: self.key().pid,
            regions: &found.regions,
            from,
            to,
            at_most,
            begin: progress.next,
            threads: THREADS,
        };
        let mut around = Live { root: self.root, machine: self.machine, tracked: self.tracked };
        let result = moving::carry_out(&order, pace, &mut around);
        let moved = result.map_err(|error| self.not_moved(operation, to, &error))?;
        progress.account(&moved, self.now_ns);
        self.tracked.moves.insert((client, from), progress);
        self.tracked.memory_moved(client);
        let because = match moved.complete {
            true => said(moved.because, self.policy_left_behind(&found, from)),
            false => moved.because,
        };
        Ok(Done { moved: moved.moved, left: moved.left, because })
    }

    /// Whether files are still mapped where they were when the VM was examined: pages of a file
    /// move for all who map it, and a process may map another file at any time.
    fn is_mapped_still(&self, client: &VmClient) -> bool {
        let files = || client.regions.iter().filter(|region| !region.path.is_empty());
        if files().next().is_none() {
            return true;
        }
        let Ok(Some(now)) = RunningVm::examine(self.root, self.key().pid) else { return false };
        let is_there = |region: &Region| {
            let all = now.clients.iter().flat_map(|client| &client.regions).chain(&now.unplaced);
            let same = |one: &Region| one.path == region.path && one.addresses == region.addresses;
            // What its monitor told of is a part of a mapping.
            let (start, end) = (region.addresses.start, region.addresses.end);
            let around =
                |one: &Region| one.path == region.path && one.addresses.start <= start && end <= one.addresses.end;
            all.into_iter().any(same) || (region.backend.is_none() && now.left_over.iter().any(around))
        };
        files().all(is_there)
    }

    /// A sentence, if the policy of a client's memory still names the node that it left. Page
    /// tables are walked for it, so only at the end of a move.
    fn policy_left_behind(&self, client: &VmClient, from: NodeId) -> Option<String> {
        let mappings = client_mappings(self.root, self.key().pid, client).ok()?;
        let names_it = |mapping: &Mapping| policy_nodes(&mapping.policy).is_some_and(|nodes| nodes.contains(from));
        let policy = mappings.into_iter().find(names_it)?.policy;
        Some(format!(
            "its policy is still {policy}, which only QEMU can change: memory that is touched from now on goes there"
        ))
    }

    fn not_moved(&self, operation: String, to: NodeId, error: &io::Error) -> ActionError {
        if !self.tracked.is_there(self.root) {
            return self.gone();
        }
        match error.raw_os_error() {
            Some(libc::ESRCH) => self.gone(),
            Some(libc::EPERM) => self.missing(operation, NEEDS_PTRACE),
            Some(libc::EACCES) => {
                let allowed = self.tracked.allowed.clone().unwrap_or_default();
                self.failed(operation, format!("its cgroup's cpuset allows memory of nodes {allowed} only"))
            }
            Some(libc::ENODEV) => self.failed(operation, format!("node {to} has no memory, or is offline")),
            _ => self.failed(operation, error.to_string()),
        }
    }
}

fn said(one: Option<String>, other: Option<String>) -> Option<String> {
    let parts: Vec<String> = one.into_iter().chain(other).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

impl Progress {
    fn account(&mut self, done: &Moved, now_ns: u64) {
        self.next = done.next;
        self.moved = self.moved.saturating_add(done.moved);
        self.left = self.left.saturating_add(done.left);
        if !done.complete {
            return;
        }
        let stuck = self.left > Bytes(0) && self.moved == Bytes(0);
        let because = done.because.clone().unwrap_or_else(|| "it would not move".to_owned());
        *self = Self { stuck: stuck.then_some((self.left, because, now_ns)), ..Self::default() };
    }
}

/// The surroundings of a move on this host.
struct Live<'a> {
    root: &'a Root,
    machine: &'a Machine,
    tracked: &'a Tracked,
}

impl Surroundings for Live<'_> {
    fn is_there(&mut self) -> bool {
        self.tracked.is_there(self.root)
    }

    fn room(&mut self, node: NodeId, page_size: Bytes) -> Option<Bytes> {
        if page_size.0 > crate::residence::PAGE {
            return Some(counters::free_huge_pages(self.root, node).get(&page_size.0).copied().unwrap_or_default());
        }
        let total = self.machine.node(node)?.memory;
        let reserve = LEAST_RESERVE.max(Bytes(total.0 / 100));
        let free = topology::read::free_memory(self.root.directory(), self.machine);
        Some(free.get(&node)?.saturating_sub(reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(moved: u64, left: u64, complete: bool) -> Moved {
        let next = if complete { 0 } else { 77 };
        let because = (left > 0).then(|| "pinned".to_owned());
        Moved { moved: Bytes(moved), left: Bytes(left), because, next, complete }
    }

    #[test]
    fn memory_that_never_moves_is_stuck_after_one_whole_walk() {
        let mut progress = Progress::default();
        progress.account(&walk(0, 5, false), 1);
        assert_eq!((progress.next, progress.stuck.is_some()), (77, false));
        progress.account(&walk(0, 3, true), 2);
        assert_eq!(progress.stuck, Some((Bytes(8), "pinned".to_owned(), 2))); // 5 + 3
    }

    #[test]
    fn a_walk_that_moved_something_is_no_reason_to_give_up() {
        let mut progress = Progress::default();
        progress.account(&walk(4, 5, false), 1);
        progress.account(&walk(0, 3, true), 2);
        assert_eq!(progress, Progress::default());
    }
}
