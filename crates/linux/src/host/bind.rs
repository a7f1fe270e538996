//! Binding a client's vCPUs: through the program that manages the VM where there is one, else
//! directly. The threads of the kernel that move its packets (vhost) go along to a home, and get
//! back what they had themselves.

use super::act::Actor;
use crate::binding::{self, Bound};
use crate::capabilities::NEEDS_NICE;
use crate::sys;
use crate::vm::{VmClient, main_thread, vhost};
use ::vm::Manager;
use scheduler::{ActionError, ClientId, Done};
use std::collections::BTreeMap;
use std::io;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

impl Actor<'_> {
    /// Lets the client's threads run on `cpus`, those of its home, only.
    pub(super) fn bind(&mut self, client: ClientId, home: &NodeSet, cpus: &CpuSet) -> Result<Done, ActionError> {
        let operation = || format!("bind client {} to CPUs {cpus}", client.0);
        let has_memory = |node: &NodeId| self.machine.node(*node).is_some_and(|node| node.memory > Bytes(0));
        let memory_nodes: NodeSet = home.iter().filter(has_memory).collect();
        // Threads would be far from memory that may not follow them.
        if let Some(allowed) = self.tracked.allowed_now(self.root)
            && !memory_nodes.is_empty()
            && memory_nodes.intersection(&allowed).is_empty()
        {
            let reason =
                format!("its cgroup's cpuset allows memory of nodes {allowed} only, and its home would be {home}");
            return Err(self.failed(operation(), reason));
        }
        let mut done = self.bind_vcpus(client, cpus)?;
        if !home.is_empty() {
            let stays = |thread: &&u32| binding::bind_any(**thread, cpus).is_err();
            let left = self.vhosts(client).iter().filter(stays).count();
            let said = (left > 0).then(|| format!("{left} vhost threads stay where they were"));
            done.because = done.because.into_iter().chain(said).reduce(|one, other| format!("{one}; {other}"));
        }
        Ok(done)
    }

    /// Threads of the kernel that move packets for this client, each with the CPUs that it may use
    /// now.
    pub(super) fn followers(&self, client: ClientId) -> BTreeMap<u32, CpuSet> {
        let now = |thread: u32| Some((thread, crate::sys::affinity(thread).ok()?));
        self.vhosts(client).into_iter().filter_map(now).collect()
    }

    /// Lets one of them use these CPUs.
    pub(super) fn give_back(&self, client: ClientId, thread: u32, cpus: &CpuSet) -> Result<(), ActionError> {
        let operation = || format!("give thread {thread} back CPUs {cpus}");
        // The number of a thread that ended may already be another process's.
        if !self.vhosts(client).contains(&thread) {
            return Err(self.failed(operation(), "no such thread moves its packets"));
        }
        binding::bind_any(thread, cpus).map_err(|error| self.not_bound(operation(), &error, None))
    }

    /// Gives QEMU's main thread its own CPUs back, where a homenode that was killed while it
    /// plugged a vCPU in left it on those of one client.
    pub(super) fn free_main_thread(&self) -> Result<Option<String>, ActionError> {
        let vm = &self.tracked.vm;
        if vm.origin.manager != Manager::Homenode || !vm.may_get_vcpus {
            return Ok(None);
        }
        let operation = "bring QEMU's main thread back".to_owned();
        let threads: Vec<(u32, &str)> = vm.threads.others.iter().map(|(id, name, _)| (*id, name.as_str())).collect();
        let cpus_of = |client: &VmClient| {
            let cpus = client.thread_ids.iter().filter_map(|thread| sys::affinity(*thread).ok());
            cpus.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
        };
        let clients = || vm.clients.iter().map(cpus_of).collect();
        let left = main_thread::left_behind(self.key().pid, &threads, clients);
        let bound = left.and_then(|left| left.map(|usual| binding::bind_any(self.key().pid, &usual)).transpose());
        let bound = bound.map_err(|error| self.not_bound(operation, &error, None))?;
        let what =
            "QEMU's main thread may use its own CPUs again: a homenode that was killed had left it on a client's";
        Ok(bound.map(|()| what.to_owned()))
    }

    fn vhosts(&self, client: ClientId) -> Vec<u32> {
        let vm = &self.tracked.vm;
        if vm.vhost_client == Some(client) { vhost::threads(self.root, vm) } else { Vec::new() }
    }

    fn bind_vcpus(&self, client: ClientId, cpus: &CpuSet) -> Result<Done, ActionError> {
        let operation = format!("bind client {} to CPUs {cpus}", client.0);
        let vm = &self.tracked.vm;
        let Some(found) = vm.client(client) else {
            return Err(self.failed(operation, "it has no such client"));
        };
        if found.thread_ids.is_empty() && !found.vcpus.is_empty() {
            return Err(self.failed(operation, "its vCPU threads cannot be told from its other threads"));
        }
        let (pid, threads) = (self.key().pid, &found.thread_ids);
        let before = binding::affinities(pid, threads);
        let managed = self.affinity_manager.and_then(|manager| manager(vm, &found.vcpus, cpus));
        let refused = match managed {
            None => None,
            Some(Ok(())) => match binding::bound_by_other(pid, threads, cpus) {
                Some(bound) => return Ok(done(&bound, cpus, None)),
                None => Some("its manager said that it was done, and it was not".to_owned()),
            },
            Some(Err(why)) => Some(why.to_string()),
        };
        let error = match (binding::bind_threads(pid, threads, cpus), &refused) {
            (Ok(Bound { narrowed: Some(now) }), Some(why)) => {
                // Only who wrote that cpuset may widen it.
                let reason = format!("its cgroup's cpuset leaves only CPUs {now}{}", also(Some(why)));
                self.failed(operation, reason)
            }
            (Ok(bound), _) => return Ok(done(&bound, cpus, refused)),
            (Err(error), _) => self.not_bound(operation, &error, refused.as_deref()),
        };
        if refused.is_some() {
            // The manager may have done a part.
            binding::give_back(pid, threads, &before.unwrap_or_default());
        }
        Err(error)
    }

    fn not_bound(&self, operation: String, error: &io::Error, refused: Option<&str>) -> ActionError {
        if !self.tracked.is_there(self.root) {
            return self.gone();
        }
        let also = also(refused);
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => self.missing(operation, &format!("{NEEDS_NICE}{also}")),
            Some(libc::EINVAL) => {
                self.failed(operation, format!("its cgroup's cpuset allows none of these CPUs{also}"))
            }
            Some(libc::ESRCH) => {
                self.failed(operation, "a vCPU thread ended meanwhile; all threads have what they had")
            }
            _ => self.failed(operation, format!("{error}{also}")),
        }
    }
}

/// Why its manager did not do it either.
fn also(refused: Option<&str>) -> String {
    refused.map_or_else(String::new, |why| format!("; through its manager: {why}"))
}

/// What is left to say of a binding.
fn done(bound: &Bound, cpus: &CpuSet, refused: Option<String>) -> Done {
    let narrowed = |now| format!("its cgroup's cpuset left only CPUs {now} of CPUs {cpus}");
    let past = |why| format!("bound past its manager, which does not know: {why}");
    let said: Vec<String> = bound.narrowed.as_ref().map(narrowed).into_iter().chain(refused.map(past)).collect();
    Done { because: (!said.is_empty()).then(|| said.join("; ")), ..Done::default() }
}
