//! Prints how long one step of the balancer takes for 1,000 VMs on 16 nodes: `cargo run --release
//! -p scheduler --example step_time -- [PERIODS] [TURNS] [NAME]`; with NAME: only the loads whose
//! names contain it.
#![allow(clippy::disallowed_methods, reason = "it measures the pure crate from outside")]

use scheduler::balance::{BalancePolicy, BalanceState, step};
use scheduler::{
    ClientId, ClientObservation, GroupObservation, GuestMachine, Moment, NodeObservation, Observation, VcpuGroup,
    VmKey, VmObservation,
};
use std::collections::BTreeMap;
use std::time::Instant;
use topology::{Bytes, CpuSet, LlcId, Machine, NodeId, read};

const MACHINE: &str = "pack:4 numa:4(memory=512GiB) core:16 pu:2";
/// The same with 8 caches a node.
const CACHES: &str = "pack:4 numa:4(memory=512GiB) l3:8(size=16MiB) core:4 pu:1";
/// Clients in all: so many VMs of one client.
const CLIENTS: u32 = 1000;
/// Periods, and turns of each, where no argument says so.
const PERIODS: u32 = 300;
const TURNS: u32 = 5;

/// How demand differs between VMs and periods.
#[derive(Clone, Copy)]
enum Load {
    /// The same everywhere: nothing is to be done.
    Even,
    /// All VMs of the first nodes work, the others idle.
    Uneven,
    /// Every VM's demand is drawn anew each period, from its number and the period.
    Restless,
    /// More demand than the host has CPUs.
    Overcommitted,
}

fn main() {
    let machine = read::from_synthetic(MACHINE).expect("a machine");
    let number =
        |nth: usize, usual: u32| std::env::args().nth(nth).map_or(usual, |text| text.parse().expect("a number"));
    let (periods, turns) = (number(1, PERIODS).max(1), number(2, TURNS).max(1));
    println!(
        "{MACHINE}: {} nodes, {} hardware threads, {CLIENTS} clients, {periods} periods, best of {turns} turns each",
        machine.nodes.len(),
        machine.threads.len()
    );
    println!("{:<36} {:>9} {:>9} {:>9} {:>10}", "", "median ms", "99 % ms", "worst ms", "decisions");
    measured_with_caches(periods, turns);
    for (name, load, placed, wide) in [
        ("even load", Load::Even, true, 1),
        ("every period another load", Load::Restless, true, 1),
        ("half of the nodes busy", Load::Uneven, true, 1),
        ("overcommitted", Load::Overcommitted, true, 1),
        ("all VMs float: adopted 64 a period", Load::Even, false, 1),
        ("VMs of 4 clients, not where told", Load::Restless, true, 4),
        ("VMs of 8 clients, not where told", Load::Overcommitted, true, 8),
    ] {
        measure(&machine, name, observation(&machine, load, placed, wide), load, (periods, turns));
    }
    for (name, load) in [("VMs wider than a node", Load::Restless), ("the same, overcommitted", Load::Overcommitted)] {
        let mut observation = observation(&machine, load, true, 1);
        observation.vms.iter_mut().flat_map(|vm| &mut vm.clients).for_each(|client| client.vcpus = 20);
        measure(&machine, name, observation, load, (periods, turns));
    }
    measured_with_traffic(machine, periods, turns);
}

/// The same where hardware counts memory traffic, every third VM streams, and controllers give less
/// than that.
fn measured_with_traffic(mut machine: Machine, periods: u32, turns: u32) {
    machine.bandwidth.memory = machine.nodes.iter().map(|node| (node.id, Bytes(30_000_000_000))).collect();
    let mut observation = observation(&machine, Load::Restless, true, 1);
    for (number, client) in observation.vms.iter_mut().flat_map(|vm| &mut vm.clients).enumerate() {
        let local = if number % 3 == 0 { 2e9 } else { 1e8 };
        client.traffic = Some(scheduler::Traffic { local, remote: 0.0 });
    }
    measure(&machine, "measured traffic, full controllers", observation, Load::Restless, (periods, turns));
}

/// The same where each VM of 8 vCPUs has two groups, each under one of its node's 8 caches.
fn measured_with_caches(periods: u32, turns: u32) {
    let machine = read::from_synthetic(CACHES).expect("a machine");
    println!("{CACHES}:");
    for (name, load) in [("groups, even load", Load::Even), ("groups, every period another", Load::Restless)] {
        let mut observation = observation(&machine, load, true, 1);
        for (number, client) in observation.vms.iter_mut().flat_map(|vm| &mut vm.clients).enumerate() {
            divide(&machine, client, number);
        }
        measure(&machine, name, observation, load, (periods, turns));
    }
    println!("{MACHINE}:");
}

fn divide(machine: &Machine, client: &mut ClientObservation, number: usize) {
    let mut caches: BTreeMap<LlcId, CpuSet> = BTreeMap::new();
    for thread in machine.usable_threads().filter(|thread| client.cpus.contains(thread.id)) {
        caches.entry(thread.llc.expect("a cache")).or_default().insert(thread.id);
    }
    let caches: Vec<CpuSet> = caches.into_values().collect();
    client.vcpus = 8;
    let group = |half: usize| {
        let cpus = caches[(number / 16 * 3 + half) % caches.len()].clone();
        let vcpus = (half as u32 * 4..half as u32 * 4 + 4).collect();
        let figures = (client.cpu_used.map(|used| used / 2.0), client.cpu_waited.map(|waited| waited / 2.0));
        GroupObservation { group: VcpuGroup { vcpus, cpus }, cpu_used: figures.0, cpu_waited: figures.1 }
    };
    client.groups = vec![group(0), group(1)];
    client.cpus = client.groups.iter().fold(CpuSet::new(), |all, seen| all.union(&seen.group.cpus));
}

fn measure(machine: &Machine, name: &str, mut observation: Observation, load: Load, (periods, turns): (u32, u32)) {
    if std::env::args().nth(3).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let policy = BalancePolicy::default();
    let mut state = BalanceState::default();
    let mut times = Vec::new();
    let mut decisions = 0;
    for period in 0..periods {
        observation.at = Moment(u64::from(period) * policy.period_ms);
        set_demand(&mut observation, load, period);
        let before = state.clone();
        let mut decided = Vec::new();
        let mut best = f64::INFINITY;
        // The same step several times: what another program on this machine takes is not the
        // step's.
        for _ in 0..turns {
            state = before.clone();
            let start = Instant::now();
            decided = step(machine, &policy, &mut state, &observation);
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
        times.push(best);
        decisions += decided.len();
        for decision in &decided {
            carry_out(&mut observation, &decision.action);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{name:<36} {:>9.3} {:>9.3} {:>9.3} {decisions:>10}", at(50), at(99), at(100));
}

/// VMs of `wide` clients. The guest of a wide one was told the distances between the machine's
/// first nodes; its clients were strewn over the host.
fn observation(machine: &Machine, load: Load, placed: bool, wide: u32) -> Observation {
    let nodes: Vec<NodeId> = machine.node_ids().iter().collect();
    let all: CpuSet = machine.usable_threads().map(|thread| thread.id).collect();
    let cpus: Vec<CpuSet> = nodes.iter().map(|&node| machine.usable_cpus(node)).collect();
    let client = |number: u32| {
        let home = number as usize % nodes.len();
        let away = nodes[(home + number as usize / 16) % nodes.len()];
        let memory = BTreeMap::from([(nodes[home], Bytes::from_mib(1800)), (away, Bytes::from_mib(200))]);
        ClientObservation {
            id: ClientId(number % wide),
            virtual_node: (wide > 1).then_some(number % wide),
            vcpus: 4,
            cpus: if placed { cpus[home].clone() } else { all.clone() },
            cpu_used: Some(0.4),
            cpu_waited: Some(0.0),
            memory: Some(memory),
            memory_size: Bytes::from_mib(4096),
            ..ClientObservation::default()
        }
    };
    let distance = |from: u32, to: u32| (to, machine.distance(nodes[from as usize], nodes[to as usize]));
    let row = |from: u32| (from, (0..wide).map(|to| distance(from, to)).collect());
    let guest = GuestMachine { distances: (0..wide).map(row).collect(), ..GuestMachine::default() };
    let vm = |number: u32| {
        let key = VmKey { name: format!("vm-{number:04}"), pid: 1000 + number, started: 1 };
        // Steps of 5 bring the clients of a VM onto several sockets.
        let clients = (0..wide).map(|id| client(number * wide + id * 5 * wide + id)).collect();
        VmObservation { guest: (wide > 1).then(|| guest.clone()), ..VmObservation::of_clients(key, clients) }
    };
    let node = |&id: &NodeId| {
        let seen = NodeObservation {
            cpus: machine.usable_cpus(id),
            cpu_used: None,
            memory_free: Some(Bytes::from_mib(360 << 10)),
            huge_pages_free: BTreeMap::new(),
        };
        (id, seen)
    };
    let mut observation = Observation {
        at: Moment(0),
        nodes: nodes.iter().map(node).collect(),
        vms: (0..CLIENTS / wide).map(vm).collect(),
        memory_pressure: Some(0.0),
        ..Observation::default()
    };
    set_demand(&mut observation, load, 0);
    observation
}

fn set_demand(observation: &mut Observation, load: Load, period: u32) {
    for (number, client) in (0u32..).zip(observation.vms.iter_mut().flat_map(|vm| &mut vm.clients)) {
        let mixed = (number.wrapping_mul(2_654_435_761) ^ period.wrapping_mul(40_503)) % 997;
        let (used, waited) = match load {
            Load::Even => (0.4, 0.0),
            Load::Uneven if number % 16 < 8 => (0.6, 0.0),
            Load::Uneven => (0.05, 0.0),
            Load::Restless => (f64::from(mixed) / 997.0, 0.0),
            Load::Overcommitted => (0.5, f64::from(mixed) / 400.0),
        };
        (client.cpu_used, client.cpu_waited) = (Some(used), Some(waited));
        for (half, group) in client.groups.iter_mut().enumerate() {
            // One half of a VM works more than the other.
            let part = [0.7, 0.3][half];
            (group.cpu_used, group.cpu_waited) = (Some(used * part), Some(waited * part));
        }
    }
}

fn carry_out(observation: &mut Observation, action: &scheduler::Action) {
    let Some(vm) = observation.vms.iter_mut().find(|vm| vm.vm == *action.vm()) else { return };
    let client = &mut vm.clients[action.client().0 as usize];
    match action {
        scheduler::Action::Bind { cpus, groups, .. } => {
            client.cpus = cpus.clone();
            for (seen, group) in client.groups.iter_mut().zip(groups) {
                seen.group = group.clone();
            }
            if !groups.is_empty() {
                client.cpus = groups.iter().fold(CpuSet::new(), |all, group| all.union(&group.cpus));
            }
        }
        scheduler::Action::MoveMemory { from, to, at_most, .. } => {
            let Some(memory) = &mut client.memory else { return };
            let here = memory.get(from).copied().unwrap_or_default();
            let moved = here.min(*at_most);
            memory.insert(*from, here.saturating_sub(moved));
            let there = memory.entry(*to).or_default();
            *there = there.saturating_add(moved);
        }
    }
}
