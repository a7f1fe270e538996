//! What goes along with a client that gets another home: threads that run no vCPU, and processes
//! that work for the VM.
//!
//! **Problem.** QEMU's main thread and its I/O threads fill and empty the guest's buffers. Left on
//! the old node they carry every byte of disk and network over the link.
//!
//! **Rule.** A thread that may use the CPUs that the client's vCPUs may use, or all of the node
//! where these are, goes where they go. One that may use those of all clients of a VM may use those
//! of all clients afterwards too. Any other was put where it is by somebody with a reason, and
//! stays. So it is for each thread of the VM's helpers ([`crate::vm::helpers`]). Threads that move
//! packets in the kernel (vhost) go with their client in any case. A VM that has a manager is asked
//! for it through the manager; where its definition has pins of its own for these threads, they
//! stay.
//!
//! **Properties.** What does not go is said, and undoes nothing: the vCPUs are at home all the
//! same.
//!
//! **Example.** vCPUs, main thread and `IO io1` may use CPUs 0-7, `IO io2` CPU 15. The client goes
//! to CPUs 8-15: the first two go with it, `io2` stays.

use super::act::Actor;
use super::{ChosenByDefinition, Managed};
use crate::binding;
use crate::sys;
use crate::vm::{ThreadKind, VmClient, helpers, vhost};
use scheduler::{ActionError, ClientId, Done, OtherThreadKind, home};
use std::collections::BTreeMap;
use topology::{CpuSet, Machine};

/// How a thread is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// QEMU's main thread, and with it all that are no vCPU and no I/O thread.
    Emulator,
    /// The I/O thread of this number, where its name says one.
    Iothread(Option<u32>),
    /// Directly: a thread of another process.
    Helper,
}

/// Threads that go along, with the CPUs that they get.
pub(super) struct Companions(BTreeMap<(Way, u32), CpuSet>);

impl Actor<'_> {
    /// Those of a client that gets these CPUs. Asked before its vCPUs are bound.
    pub(super) fn companions(&self, client: ClientId, cpus: &CpuSet) -> Companions {
        let vm = &self.tracked.vm;
        let of_client = |client: &VmClient| {
            let each = client.thread_ids.iter().filter_map(|thread| sys::affinity(*thread).ok());
            each.fold(CpuSet::new(), |all, cpus| all.union(&cpus))
        };
        let before: Vec<(ClientId, CpuSet)> = vm.clients.iter().map(|one| (one.id, of_client(one))).collect();
        let goes = |(way, thread): (Way, u32)| {
            let now = sys::affinity(thread).ok()?;
            let to = goes_to(self.machine, &now, &before, (client, cpus))?;
            (to != now).then_some(((way, thread), to))
        };
        Companions(self.others().into_iter().filter_map(goes).collect())
    }

    /// Threads that run no vCPU, without those of the kernel.
    fn others(&self) -> Vec<(Way, u32)> {
        let vm = &self.tracked.vm;
        let way = |(id, name, kind): &(u32, String, ThreadKind)| match kind {
            ThreadKind::Main | ThreadKind::Worker => Some((Way::Emulator, *id)),
            ThreadKind::Io => Some((Way::Iothread(number_of(name)), *id)),
            ThreadKind::Vhost | ThreadKind::Kernel => None,
        };
        let helpers = helpers::of(self.root, self.key().pid, vm.owner_uid);
        let of_helpers =
            helpers.iter().flat_map(|helper| helper.threads(self.root)).map(|thread| (Way::Helper, thread));
        vm.threads.others.iter().filter_map(way).chain(of_helpers).collect()
    }

    /// All threads that may go along with a client, vhost's too, each with the CPUs that it may use
    /// now.
    pub(super) fn followers(&self, client: ClientId) -> BTreeMap<u32, CpuSet> {
        let now = |thread: u32| Some((thread, sys::affinity(thread).ok()?));
        self.vhosts(client)
            .into_iter()
            .chain(self.others().into_iter().map(|(_, thread)| thread))
            .filter_map(now)
            .collect()
    }

    /// Lets one of them use these CPUs.
    pub(super) fn give_back(&self, client: ClientId, thread: u32, cpus: &CpuSet) -> Result<(), ActionError> {
        let operation = || format!("give thread {thread} back CPUs {cpus}");
        if self.vhosts(client).contains(&thread) {
            return binding::bind_any(thread, cpus).map_err(|error| self.not_bound(operation(), &error, None));
        }
        // The number of a thread that ended may already be another process's.
        let Some(known) = self.others().into_iter().find(|(_, id)| *id == thread) else {
            return Err(self.failed(operation(), "no such thread goes along with it"));
        };
        match self.bind_companions(&Companions(BTreeMap::from([(known, cpus.clone())]))) {
            None => Ok(()),
            Some(why) => Err(self.failed(operation(), why)),
        }
    }

    /// Lets threads that run no vCPU, by id, use these CPUs.
    pub(super) fn bind_others(&self, threads: &BTreeMap<u32, CpuSet>) -> Result<Done, ActionError> {
        let vhosts = vhost::threads(self.root, &self.tracked.vm);
        let known = self.others();
        let way = |thread: &u32| known.iter().find(|(_, id)| id == thread).map(|(way, _)| *way);
        let mut companions = BTreeMap::new();
        for (thread, cpus) in threads {
            if let Some(way) = way(thread) {
                companions.insert((way, *thread), cpus.clone());
            } else if vhosts.contains(thread) {
                companions.insert((Way::Helper, *thread), cpus.clone());
            }
        }
        match self.bind_companions(&Companions(companions)) {
            None => Ok(Done::default()),
            Some(why) => Err(self.failed("bind its other threads", why)),
        }
    }

    /// What could not be bound, and why.
    pub(super) fn bind_companions(&self, companions: &Companions) -> Option<String> {
        let mut left = Vec::new();
        let mut asked: BTreeMap<Way, Option<String>> = BTreeMap::new();
        for ((way, thread), cpus) in &companions.0 {
            let told = asked.entry(*way).or_insert_with(|| self.ask_manager(*way, cpus).err().flatten());
            if let Some(why) = told {
                if !left.contains(why) {
                    left.push(why.clone());
                }
                continue;
            }
            match sys::affinity(*thread) {
                // Its manager did it, or nothing is to be done.
                Ok(now) if now == *cpus => {}
                Err(_) => {}
                Ok(_) => {
                    if let Err(error) = binding::bind_any(*thread, cpus) {
                        left.push(format!("thread {thread} stays where it was: {error}"));
                    }
                }
            }
        }
        (!left.is_empty()).then(|| left.join("; "))
    }

    /// Asks the VM's manager to bind threads; an error: they stay, and why. A manager that does not
    /// answer is passed by.
    fn ask_manager(&self, way: Way, cpus: &CpuSet) -> Result<(), Option<String>> {
        let threads = match way {
            Way::Emulator => Managed::Emulator,
            Way::Iothread(Some(number)) => Managed::Iothread(number),
            Way::Iothread(None) | Way::Helper => return Ok(()),
        };
        match self.affinity_manager.and_then(|manager| manager(&self.tracked.vm, threads, cpus)) {
            Some(Err(why)) if why.is::<ChosenByDefinition>() => Err(Some(why.to_string())),
            _ => Ok(()),
        }
    }
}

/// QEMU names I/O threads after their objects, and libvirt the objects `iothreadN`.
fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("IO iothread")?.parse().ok()
}

/// The CPUs that a thread gets which may use `now`, when a client gets others; `None`: it stays.
fn goes_to(
    machine: &Machine,
    now: &CpuSet,
    clients: &[(ClientId, CpuSet)],
    (client, cpus): (ClientId, &CpuSet),
) -> Option<CpuSet> {
    let whole = |cpus: &CpuSet| {
        let nodes = home::nodes_of(machine, cpus);
        nodes.iter().fold(CpuSet::new(), |all, node| all.union(&machine.usable_cpus(node)))
    };
    let shares = |set: &CpuSet| !set.is_empty() && (now == set || *now == whole(set));
    let all = clients.iter().fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
    if shares(&all) {
        let after = |(id, before): &(ClientId, CpuSet)| if *id == client { cpus.clone() } else { before.clone() };
        return Some(clients.iter().map(after).fold(CpuSet::new(), |all, cpus| all.union(&cpus)));
    }
    let own = &clients.iter().find(|(id, _)| *id == client)?.1;
    shares(own).then(|| cpus.clone())
}

/// The kinds that a look shows.
pub(super) fn shown(kind: ThreadKind) -> Option<OtherThreadKind> {
    match kind {
        ThreadKind::Main => Some(OtherThreadKind::Main),
        ThreadKind::Io => Some(OtherThreadKind::Io),
        ThreadKind::Vhost => Some(OtherThreadKind::Vhost),
        ThreadKind::Worker => Some(OtherThreadKind::Worker),
        // They work for the kernel, and move by nobody's choice.
        ThreadKind::Kernel => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &str) -> CpuSet {
        cpus.parse().expect("CPUs")
    }

    #[test]
    fn what_shares_the_vcpus_cpus_goes_with_them() {
        let machine = topology::read::from_synthetic("numa:4(memory=1GiB) core:2 pu:1").expect("a machine");
        let goes = |now: &str, clients: &[&str], to: &str| {
            let clients: Vec<(ClientId, CpuSet)> =
                (0..).map(ClientId).zip(clients.iter().map(|cpus| set(cpus))).collect();
            goes_to(&machine, &set(now), &clients, (ClientId(0), &set(to))).map(|cpus| cpus.to_string())
        };
        let cpus = |cpus: &str| Some(cpus.to_owned());
        // A VM of one client: as the vCPUs, as their node, and elsewhere.
        assert_eq!(goes("0-7", &["0-7"], "4-5"), cpus("4-5"));
        assert_eq!(goes("2-3", &["2-3"], "6-7"), cpus("6-7"));
        assert_eq!(goes("2-3", &["2"], "6-7"), cpus("6-7"));
        assert_eq!(goes("0-7", &["2-3"], "6-7"), None);
        assert_eq!(goes("0", &["2-3"], "6-7"), None);
        // Of two clients: with all of them, or with the one that goes.
        assert_eq!(goes("0-3", &["0-1", "2-3"], "6-7"), cpus("2-3,6-7"));
        assert_eq!(goes("0-1", &["0-1", "2-3"], "6-7"), cpus("6-7"));
        assert_eq!(goes("2-3", &["0-1", "2-3"], "6-7"), None);
        assert_eq!(goes("0-7", &["0-7", "0-7"], "6-7"), cpus("0-7"));
        assert_eq!(goes("0-7", &[""], "6-7"), None);
    }

    #[test]
    fn libvirts_number_of_an_iothread_is_in_its_name() {
        assert_eq!((number_of("IO iothread12"), number_of("IO io1"), number_of("iothread1")), (Some(12), None, None));
    }
}
