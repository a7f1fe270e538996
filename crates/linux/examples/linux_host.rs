//! Looks at the VMs of this host, and carries out one action: what the lab's checks drive.
//!
//! ```text
//! linux_host observe                 VMs, clients, regions, two observations a second apart: JSON
//! linux_host bind PID CLIENT NODES   binds a client's threads to nodes
//! linux_host move PID CLIENT FROM TO MIB [LIMIT_MIB_PER_SECOND]
//! linux_host drift [NODES]           what is wrong; NODES (0,1,...): the home of each client
//! linux_host confine PID NODES       writes cpuset.mems of the VM's own cgroup
//! ```

use judge::Known;
use linux::{HostOptions, LinuxHost};
use scheduler::balance::{BalancePolicy, BalanceState, Home, Next, homes};
use scheduler::{Act, Action, ClientId, Observe, VmKey};
use std::error::Error;
use std::time::{Duration, Instant};
use topology::{Bytes, CpuSet, NodeId, NodeSet};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut host = LinuxHost::new(HostOptions { confine: true, move_limit: limit(&words)?, ..HostOptions::default() })?;
    host.observe()?;
    match words[..] {
        ["observe"] => observe(&mut host),
        ["bind", pid, client, nodes] => {
            let home: NodeSet = nodes.parse()?;
            let cpus = home.iter().fold(CpuSet::new(), |all, node| all.union(&host.machine().usable_cpus(node)));
            let action = Action::Bind {
                vm: key(&host, pid)?,
                client: ClientId(client.parse()?),
                home,
                cpus,
                groups: Vec::new(),
            };
            report(host.carry_out(&action))
        }
        ["move", pid, client, from, to, mib, ..] => {
            let action = Action::MoveMemory {
                vm: key(&host, pid)?,
                client: ClientId(client.parse()?),
                from: NodeId(from.parse()?),
                to: NodeId(to.parse()?),
                at_most: Bytes::from_mib(mib.parse()?),
            };
            let start = Instant::now();
            let done = host.carry_out(&action);
            eprintln!("took {:.3} s", start.elapsed().as_secs_f64());
            report(done)
        }
        ["drift", ref homes @ ..] => drift(&mut host, homes),
        ["confine", pid, nodes] => {
            let vm = key(&host, pid)?;
            report(host.confine(&vm, &nodes.parse()?))
        }
        _ => Err("usage: linux_host observe | bind | move | drift | confine; see its source".into()),
    }
}

fn limit(words: &[&str]) -> Result<Option<Bytes>, Box<dyn Error>> {
    Ok(match words {
        ["move", _, _, _, _, _, limit] => Some(Bytes::from_mib(limit.parse()?)),
        _ => None,
    })
}

fn key(host: &LinuxHost, pid: &str) -> Result<VmKey, Box<dyn Error>> {
    let pid: u32 = pid.parse()?;
    let vm = host.vms().find(|vm| vm.key.pid == pid).ok_or(format!("process {pid} is no VM"))?;
    Ok(vm.key.clone())
}

fn report(result: Result<impl serde::Serialize, scheduler::ActionError>) -> Result<(), Box<dyn Error>> {
    match result {
        Ok(done) => println!("{}", serde_json::to_string(&done)?),
        Err(error) => println!("ERROR {error}"),
    }
    Ok(())
}

fn observe(host: &mut LinuxHost) -> Result<(), Box<dyn Error>> {
    std::thread::sleep(Duration::from_secs(1));
    let observation = host.observe()?;
    for vm in host.vms() {
        println!("{}", serde_json::to_string(vm)?);
    }
    println!("{}", serde_json::to_string_pretty(&observation)?);
    Ok(())
}

/// The homes are those of the clients of the only VM.
fn drift(host: &mut LinuxHost, decided: &[&str]) -> Result<(), Box<dyn Error>> {
    let vms: Vec<VmKey> = host.vms().map(|vm| vm.key.clone()).collect();
    let mut observation = host.examine()?;
    let mut known = homes(host.machine(), &BalancePolicy::default(), &BalanceState::default(), &observation);
    if let ([vm], [nodes]) = (&vms[..], decided) {
        // Homes that are given here stand above what a command line says.
        let clients = observation.vms.iter_mut().flat_map(|seen| &mut seen.clients);
        clients.for_each(|client| client.chosen_nodes = None);
        for (client, node) in nodes.split(',').enumerate() {
            let home: NodeSet = node.parse()?;
            let (lives, should) = (Some(home.clone()), Some(home));
            known.insert(
                (vm.clone(), ClientId(client as u32)),
                Home { lives, decided: true, should, next: Next::Stays },
            );
        }
    }
    for finding in judge::host(host.machine(), &observation, &Known { homes: known, ..Known::default() }) {
        println!("{}", serde_json::to_string(&finding)?);
    }
    Ok(())
}
