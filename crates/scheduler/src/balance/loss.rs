//! CPU time that is lost to crowded nodes and to remote memory, and what going somewhere costs
//! once. All in CPUs and CPU seconds.

use super::cpu_load::CpuLoad;
use super::scene::{ClientScene, Scene};
use super::{BalancePolicy, communication, queue};
use topology::NodeSet;

/// Distance assumed to memory of which nobody knows where it lies: a usual remote node.
const UNKNOWN_EXTRA: f64 = 1.0;

/// What `node` loses at this load: shared caches and bandwidth (growing with the square), hardware
/// threads that share a core, and clients that wait. Convex, so that an even load loses least.
pub(super) fn crowding(scene: &Scene<'_>, node: usize, load: impl Into<CpuLoad>) -> f64 {
    crowding_of(&Crowding::of(scene.policy), scene.nodes[node].cores, scene.nodes[node].threads, load)
}

/// What crowded CPUs cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowding {
    /// Part that is lost where all cores are busy.
    shared: f64,
    /// Part of a CPU that is lost for each hardware thread that shares a core.
    second_thread: f64,
}

impl Crowding {
    /// By the constants of a policy.
    pub(crate) fn of(policy: &BalancePolicy) -> Self {
        Self { shared: policy.shared_loss_percent / 100.0, second_thread: 1.0 - policy.smt_yield_percent / 100.0 }
    }
}

/// [`crowding`] of so many cores and hardware threads: those of a node, or under a cache.
pub(crate) fn crowding_of(crowding: &Crowding, cores: f64, threads: f64, load: impl Into<CpuLoad>) -> f64 {
    let (cores, load) = (cores.max(1.0), load.into());
    let shared = crowding.shared * load.in_cores() * load.in_cores() / cores;
    let second_threads = (load.cpus.min(threads) - load.doubled - cores).max(0.0);
    let waiting = (load.cpus - threads).max(0.0);
    shared + second_threads * crowding.second_thread + waiting
}

/// CPUs that clients of the node are entitled to and it does not have.
pub(super) fn waiting(scene: &Scene<'_>, node: usize, load: f64) -> f64 {
    (load - scene.nodes[node].threads).max(0.0)
}

/// CPUs that the client loses for each unit of extra distance: from its measured traffic, else a
/// part of its demand.
pub(super) fn stall(scene: &Scene<'_>, client: &ClientScene<'_>) -> f64 {
    // A VM that idles while its first home is chosen will not idle for ever.
    let floor = if client.home.is_empty() { client.expected } else { 0.0 };
    let busy = client.demand.unwrap_or(client.expected).max(floor);
    let measured = super::traffic::measured(client.seen);
    match measured {
        Some(bytes) => (bytes / scene.policy.waiting_cpu_draws()).min(busy),
        None => busy * scene.policy.stall_percent / 100.0,
    }
}

/// Mean extra distance from the CPUs of `home` to a node.
fn extra_to(scene: &Scene<'_>, home: &[usize], to: usize) -> f64 {
    home.iter().map(|&from| scene.extra(from, to)).sum::<f64>() / home.len().max(1) as f64
}

/// A client of the VM that is taken to live on a node where it does not live yet.
pub(super) type Partner = Option<(usize, usize)>;

/// Mean over the VM's other clients of what is said of each and the nodes of its home; `None` for a
/// client without such.
fn mean_of_siblings(
    scene: &Scene<'_>,
    client: usize,
    partner: Partner,
    mut of: impl FnMut(usize, &[usize]) -> f64,
) -> Option<f64> {
    let (first, end) = scene.clients[client].family;
    let (mut sum, mut count) = (0.0, 0);
    for other in (first..end).filter(|&other| other != client && !scene.clients[other].home.is_empty()) {
        let there = partner.filter(|(moved, _)| *moved == other).map(|(_, to)| [to]);
        sum += of(other, there.as_ref().map_or(&scene.clients[other].home, |to| to));
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Mean extra distance between the nodes of two homes.
pub(super) fn extra_between(scene: &Scene<'_>, home: &[usize], there: &[usize]) -> f64 {
    match (home, there) {
        // The usual case, asked often.
        (&[from], &[to]) => scene.extra(from, to),
        _ => there.iter().map(|&node| extra_to(scene, home, node)).sum::<f64>() / there.len() as f64,
    }
}

/// Mean extra distance from `home` to the homes of the VM's other clients; `None` for a client
/// without such.
pub(super) fn sibling_extra(scene: &Scene<'_>, client: usize, home: &[usize]) -> Option<f64> {
    mean_of_siblings(scene, client, None, |_, there| extra_between(scene, home, there))
}

/// By how much the distances from `home` to the homes of the VM's other clients differ, in the mean
/// and in parts of the local distance, from those that its guest was told; `None` where that was
/// told nothing.
pub(super) fn told_difference(scene: &Scene<'_>, client: usize, home: &[usize], partner: Partner) -> Option<f64> {
    scene.told(client)?;
    mean_of_siblings(scene, client, partner, |other, there| charged(scene, (client, home), (other, there)))
}

/// What a client at a home is charged for another of its VM: the difference of their distance from
/// what the guest was told, in parts of the local distance. A pair on one home is charged nothing:
/// all is local there.
fn charged(scene: &Scene<'_>, (one, home): (usize, &[usize]), (other, there): (usize, &[usize])) -> f64 {
    let Some(told) = scene.told(one).filter(|_| home != there) else { return 0.0 };
    let first = scene.clients[one].family.0;
    let real = (extra_between(scene, home, there) * 1000.0).round() as u128;
    told.charge((one - first, other - first), 1, real) as f64 / 1000.0
}

/// Extra distance from a client to another of its VM, with what is charged for it.
fn pair(scene: &Scene<'_>, one: (usize, &[usize]), other: (usize, &[usize])) -> f64 {
    extra_between(scene, one.1, other.1) + charged(scene, one, other)
}

/// Mean extra distance from `home` to the client's memory as it lies now; `None` where nobody
/// knows.
pub(super) fn memory_extra(scene: &Scene<'_>, client: &ClientScene<'_>, home: &[usize]) -> Option<f64> {
    let resident = client.resident.as_ref()?;
    let all = client.resident_bytes();
    if all == 0 {
        return Some(0.0);
    }
    let sum: f64 = resident.iter().map(|&(node, bytes)| bytes as f64 * extra_to(scene, home, node)).sum();
    Some(sum / all as f64)
}

/// What the client loses at `home` for good: memory that cannot follow, memory spread over a home
/// of several nodes, siblings. With what it is charged for distances that its guest was not told.
pub(super) fn steady(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    steady_beside(scene, client, home, None)
}

/// The same with a sibling elsewhere than it lives.
pub(super) fn steady_beside(scene: &Scene<'_>, client: usize, home: &[usize], partner: Partner) -> f64 {
    let siblings = of_siblings(scene, client, home, partner);
    let extra = of_memory(scene, client, home) + siblings + of_devices(scene, client, home);
    stall(scene, &scene.clients[client]) * extra + communication::lost(scene, client, home)
}

/// Extra distance to its VM's devices, by their part of the waits.
pub(super) fn of_devices(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    device_extra(scene, client, home) * scene.policy.device_percent / 100.0
}

/// Mean extra distance from `home` to the nodes of its VM's devices; 0 where VMs are not drawn to
/// them.
pub(super) fn device_extra(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    let Some(devices) = drawn_to(scene, client) else { return 0.0 };
    let on: Vec<usize> = devices.iter().filter_map(|node| scene.index(node)).collect();
    on.iter().map(|&node| extra_to(scene, home, node)).sum::<f64>() / on.len().max(1) as f64
}

/// Where its VM's devices are, as the end of a sentence; nothing where they draw it nowhere.
pub(super) fn devices_words(scene: &Scene<'_>, client: usize) -> String {
    let vm = scene.clients[client].vm;
    drawn_to(scene, client).map_or_else(String::new, |devices| {
        let on = topology::words::named("node", devices);
        format!("; its devices are on {on}{}", vm.said.near_device.words("near_device"))
    })
}

/// The nodes of its VM's devices; `None` where they draw it nowhere. What is said of the VM counts
/// before what holds for all.
fn drawn_to<'a>(scene: &Scene<'a>, client: usize) -> Option<&'a NodeSet> {
    let vm = scene.clients[client].vm;
    let near = vm.near_device.unwrap_or(scene.policy.near_device);
    Some(&vm.device_nodes).filter(|devices| near && !devices.is_empty())
}

/// Extra distance to its memory that stays.
pub(super) fn of_memory(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    let this = &scene.clients[client];
    let follows = scene.follows_to(client, home);
    let inner = || home.iter().map(|&node| extra_to(scene, home, node)).sum::<f64>() / home.len().max(1) as f64;
    if follows { inner() + stuck_extra(scene, this, home) } else { memory_extra(scene, this, home).unwrap_or(0.0) }
}

/// Extra distance to its siblings, by their part of the waits, and at the same price the difference
/// from what its guest was told: as the planner charges it ([`crate::placement::Told`]).
fn of_siblings(scene: &Scene<'_>, client: usize, home: &[usize], partner: Partner) -> f64 {
    if !counts_siblings(scene, client) {
        return 0.0;
    }
    let mean = mean_of_siblings(scene, client, partner, |other, there| pair(scene, (client, home), (other, there)));
    mean.unwrap_or(0.0) * part_to_siblings(scene, client)
}

/// Part of a client's waits that is for its siblings' memory: measured, else assumed.
fn part_to_siblings(scene: &Scene<'_>, client: usize) -> f64 {
    let measured = scene.clients[client].known.traffic.and_then(|traffic| traffic.to_siblings);
    measured.unwrap_or(scene.policy.sibling_percent / 100.0)
}

fn counts_siblings(scene: &Scene<'_>, client: usize) -> bool {
    let family = scene.clients[client].family;
    scene.policy.distance_aware && family.1 - family.0 > 1
}

/// CPUs that the VM's other clients win when a client goes to other nodes; the partner in a swap
/// counts for itself.
pub(super) fn won_by_siblings(scene: &Scene<'_>, client: usize, to: &[usize], partner: Partner) -> f64 {
    let home = &scene.clients[client].home;
    if home.is_empty() {
        return 0.0;
    }
    by_siblings(scene, client, partner, |this| pair(scene, this, (client, home)) - pair(scene, this, (client, to)))
}

/// CPUs that the VM's other clients lose to the distance of a client that lives on these nodes.
pub(super) fn lost_by_siblings(scene: &Scene<'_>, client: usize, home: &[usize], partner: Partner) -> f64 {
    by_siblings(scene, client, partner, |this| pair(scene, this, (client, home)))
}

/// CPUs that the VM's other clients with a home wait for memory of a client that is so far from
/// each.
fn by_siblings(scene: &Scene<'_>, client: usize, partner: Partner, extra: impl Fn((usize, &[usize])) -> f64) -> f64 {
    if !counts_siblings(scene, client) {
        return 0.0;
    }
    let (first, end) = scene.clients[client].family;
    let others = (first..end).filter(|&other| other != client && !scene.clients[other].home.is_empty());
    let (mut sum, mut count) = (0.0, 0);
    for other in others {
        count += 1;
        if partner.is_none_or(|(partner, _)| partner != other) {
            let extra = extra((other, &scene.clients[other].home[..]));
            sum += stall(scene, &scene.clients[other]) * extra * part_to_siblings(scene, other);
        }
    }
    // As many siblings with a home as the client has each of the others has, itself among them.
    sum / f64::from(count.max(1))
}

/// Extra distance to the memory that is known not to move, by its part of the whole.
fn stuck_extra(scene: &Scene<'_>, client: &ClientScene<'_>, home: &[usize]) -> f64 {
    let all = client.resident_bytes();
    if client.known.stuck.is_empty() || all == 0 {
        return 0.0;
    }
    let stuck = |&(node, bytes): &(usize, u64)| if client.stays(scene.nodes[node].id) { bytes } else { 0 };
    let part = |on: &(usize, u64)| stuck(on) as f64 * extra_to(scene, home, on.0);
    client.resident.iter().flatten().map(part).sum::<f64>() / all as f64
}

/// What a client pays once to be at a home, in CPU seconds: copying, and remote memory until it is
/// copied.
pub(super) fn transition(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    if !scene.follows_to(client, home) {
        return 0.0;
    }
    let (lost, bytes) = queue::place(scene, client, home);
    let queued = queue::before(scene, client, (lost, bytes)) as f64;
    let copying = bytes as f64 / scene.policy.copy_bytes_per_cpu_second.0.max(1) as f64;
    copying + lost * (queued + bytes as f64 / 2.0) / rate(scene)
}

/// Bytes that move when the client is at a home.
pub(super) fn moving(scene: &Scene<'_>, client: usize, home: &[usize]) -> i128 {
    if !scene.follows_to(client, home) {
        return 0;
    }
    away(scene, &scene.clients[client], home).0.into()
}

/// Seconds until the memory of a client that goes to `home` begins to follow.
pub(super) fn queue_seconds(scene: &Scene<'_>, client: usize, home: &[usize]) -> f64 {
    if !scene.follows_to(client, home) {
        return 0.0;
    }
    queue::before(scene, client, queue::place(scene, client, home)) as f64 / rate(scene)
}

/// Bytes that move in a second.
fn rate(scene: &Scene<'_>) -> f64 {
    scene.policy.move_bytes_per_second.0.max(1) as f64
}

/// Bytes that would move to `home`, and their part of the client's memory times their extra
/// distance.
pub(super) fn away(scene: &Scene<'_>, client: &ClientScene<'_>, home: &[usize]) -> (u64, f64) {
    let Some(resident) = &client.resident else {
        return (client.memory_size.0, UNKNOWN_EXTRA);
    };
    let (mut moving, mut extra) = (0, 0.0);
    for &(node, bytes) in resident.iter().filter(|(node, _)| !home.contains(node)) {
        if !client.known.stuck.is_empty() && client.waits(scene.nodes[node].id, scene.at) {
            continue;
        }
        moving += bytes;
        extra += bytes as f64 * extra_to(scene, home, node);
    }
    (moving, extra / client.resident_bytes().max(1) as f64)
}
