//! Binding a client's vCPUs: through the program that manages the VM where there is one, else
//! directly. Other threads go along to a home ([`super::companions`]), and get back what they had
//! themselves.

use super::Managed;
use super::act::Actor;
use crate::binding::{self, Bound};
use crate::capabilities::NEEDS_NICE;
use crate::sys;
use crate::vm::{VmClient, VmThreads, main_thread, vhost};
use ::vm::Manager;
use scheduler::{ActionError, ClientId, Done, VcpuGroup};
use std::io;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

impl Actor<'_> {
    /// Lets the client's threads run on `cpus`, those of its home, only.
    pub(super) fn bind(
        &mut self,
        client: ClientId,
        home: &NodeSet,
        cpus: &CpuSet,
        groups: &[VcpuGroup],
    ) -> Result<Done, ActionError> {
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
        let companions = (!home.is_empty()).then(|| self.companions(client, cpus));
        let mut done = self.bind_vcpus(client, cpus, groups)?;
        if let Some(companions) = companions {
            let stays = |thread: &&u32| binding::bind_any(**thread, cpus).is_err();
            let left = self.vhosts(client).iter().filter(stays).count();
            let said = (left > 0).then(|| format!("{left} vhost threads stay where they were"));
            let said = said.into_iter().chain(self.bind_companions(&companions));
            done.because = done.because.into_iter().chain(said).reduce(|one, other| format!("{one}; {other}"));
        }
        Ok(done)
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

    pub(super) fn vhosts(&self, client: ClientId) -> Vec<u32> {
        let vm = &self.tracked.vm;
        if vm.vhost_client == Some(client) { vhost::threads(self.root, vm) } else { Vec::new() }
    }

    fn bind_vcpus(&self, client: ClientId, cpus: &CpuSet, groups: &[VcpuGroup]) -> Result<Done, ActionError> {
        let operation = format!("bind client {} to CPUs {cpus}", client.0);
        let vm = &self.tracked.vm;
        let Some(found) = vm.client(client) else {
            return Err(self.failed(operation, "it has no such client"));
        };
        if found.thread_ids.is_empty() && !found.vcpus.is_empty() {
            return Err(self.failed(operation, "its vCPU threads cannot be told from its other threads"));
        }
        if groups.is_empty() {
            return self.bind_threads(&operation, &found.vcpus, &found.thread_ids, cpus);
        }
        let (pid, all) = (self.key().pid, &found.thread_ids);
        let before = binding::affinities(pid, all);
        let mut said: Vec<String> = Vec::new();
        for part in parts(found, &vm.threads, cpus, groups) {
            let operation = format!("bind vCPUs of client {} to CPUs {}", client.0, part.cpus);
            match self.bind_threads(&operation, &part.vcpus, &part.threads, part.cpus) {
                Ok(done) => said.extend(done.because.filter(|because| !said.contains(because))),
                Err(error) => {
                    binding::give_back(pid, all, &before.unwrap_or_default());
                    return Err(error);
                }
            }
        }
        Ok(Done { because: (!said.is_empty()).then(|| said.join("; ")), ..Done::default() })
    }

    /// Binds threads that may all use the same CPUs.
    fn bind_threads(
        &self,
        operation: &str,
        vcpus: &[u32],
        threads: &[u32],
        cpus: &CpuSet,
    ) -> Result<Done, ActionError> {
        let pid = self.key().pid;
        let before = binding::affinities(pid, threads);
        let managed = self.affinity_manager.and_then(|manager| manager(&self.tracked.vm, Managed::Vcpus(vcpus), cpus));
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
            (Err(error), _) => self.not_bound(operation.to_owned(), &error, refused.as_deref()),
        };
        if refused.is_some() {
            // The manager may have done a part.
            binding::give_back(pid, threads, &before.unwrap_or_default());
        }
        Err(error)
    }

    pub(super) fn not_bound(&self, operation: String, error: &io::Error, refused: Option<&str>) -> ActionError {
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

/// Threads of a client that are bound to the same CPUs, with the vCPUs that they run.
struct Part<'a> {
    vcpus: Vec<u32>,
    threads: Vec<u32>,
    cpus: &'a CpuSet,
}

/// A client by its groups; vCPUs that are in none may use all of `cpus`.
fn parts<'a>(client: &VmClient, threads: &VmThreads, cpus: &'a CpuSet, groups: &'a [VcpuGroup]) -> Vec<Part<'a>> {
    let thread = |vcpu: &u32| threads.vcpus.iter().find(|one| one.index == *vcpu).map(|one| one.thread_id);
    let part = |vcpus: Vec<u32>, cpus: &'a CpuSet| {
        let threads = vcpus.iter().filter_map(thread).filter(|thread| client.thread_ids.contains(thread)).collect();
        Part { vcpus, threads, cpus }
    };
    let own = |vcpus: &[u32]| vcpus.iter().copied().filter(|vcpu| client.vcpus.contains(vcpu)).collect();
    let in_none = |vcpu: &&u32| !groups.iter().any(|group| group.vcpus.contains(vcpu));
    let rest: Vec<u32> = client.vcpus.iter().filter(in_none).copied().collect();
    let all = groups.iter().map(|group| part(own(&group.vcpus), &group.cpus));
    all.chain([part(rest, cpus)]).filter(|part| !part.vcpus.is_empty()).collect()
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
