//! QEMU's main thread, and where a homenode that was killed left it.
//!
//! **Problem.** A vCPU that is plugged in starts on the CPUs of QEMU's main thread, which homenode
//! puts on those of one client for that moment. Where homenode is killed in it, the main thread
//! stays there: it serves the whole VM's disks and networks on the CPUs of one client.
//!
//! **Rule.** QEMU's first other thread began with the main one's CPUs and nobody moves it: it says
//! which these are. The main thread was left behind where it has other CPUs than that one, and they
//! are those of one client, or of one vCPU, and not those of all clients.
//!
//! **Example.** Clients on CPUs 0-3 and 4-7. The main thread may use CPUs 4-7, the first other
//! thread CPUs 0-15: it gets 0-15 back. One that somebody put on CPUs 0-7 or on CPU 15 stays.

use crate::sys::affinity;
use std::io;
use topology::CpuSet;

/// The thread that QEMU starts first. QEMU 7.2 starts it before it names threads: it has the main
/// one's name there.
const FIRST_THREAD: &str = "call_rcu";

/// The CPUs that a main thread has to get back; `None` where it is where it belongs. `threads`: the
/// process's threads, by id, without those that run vCPUs; `clients`: CPUs of each client, and of
/// each vCPU that has some of its own.
///
/// # Errors
/// A thread's CPUs cannot be read.
pub fn left_behind(
    pid: u32,
    threads: &[(u32, &str)],
    clients: impl FnOnce() -> Vec<CpuSet>,
) -> io::Result<Option<CpuSet>> {
    let main = threads.iter().find(|(id, _)| *id == pid).map(|(_, name)| *name);
    let is_first = |name: &str| name == FIRST_THREAD || Some(name) == main;
    let Some((first, _)) = threads.iter().find(|(id, name)| *id != pid && is_first(name)) else { return Ok(None) };
    let (now, usual) = (affinity(pid)?, affinity(*first)?);
    Ok((now != usual && is_one_of(&now, &clients())).then_some(usual))
}

fn is_one_of(now: &CpuSet, clients: &[CpuSet]) -> bool {
    let all = clients.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    *now != all && clients.contains(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_cpus_of_one_client_are_those_of_a_moment() {
        let clients: Vec<CpuSet> = ["0-3", "4-7", "6"].iter().map(|cpus| cpus.parse().unwrap()).collect();
        let left = |cpus: &str| is_one_of(&cpus.parse().unwrap(), &clients);
        assert!(left("0-3") && left("4-7") && left("6"));
        assert!(!left("0-7") && !left("0-15") && !left("0") && !left("15"));
        assert!(!is_one_of(&"0-3".parse().unwrap(), &clients[..1]), "the only client has it for itself");
    }
}
