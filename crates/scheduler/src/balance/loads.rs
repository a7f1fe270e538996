//! Loads of nodes: what clients are entitled to, and what else runs there.

use super::remember;
use super::scene::{ClientScene, Scene};

/// What a client counts with.
struct Figures {
    load: f64,
    expected: f64,
    /// What of the node's CPU time it used, as far as that is known.
    used: f64,
}

/// Sets the load of every client and node.
pub(super) fn set(scene: &mut Scene<'_>) {
    let figures: Vec<Figures> = (0..scene.clients.len()).map(|client| figures(scene, client)).collect();
    for (client, figures) in scene.clients.iter_mut().zip(&figures) {
        (client.load, client.expected) = (figures.load, figures.expected);
    }
    let mut others: Vec<Option<f64>> = scene
        .nodes
        .iter()
        .map(|node| node.seen.and_then(|seen| seen.cpu_used).filter(|used| used.is_finite()))
        .collect();
    for (client, figures) in scene.clients.iter().zip(&figures) {
        let threads = threads_of(scene, &client.home);
        for &node in &client.home {
            if let Some(used) = &mut others[node] {
                *used -= figures.used * scene.nodes[node].threads / threads;
            }
        }
    }
    // Threads of a client with several home nodes run where there is room: what its even split
    // leaves over or lacks on one of them is its own use, not that of others.
    for client in scene.clients.iter().filter(|client| client.home.len() > 1) {
        let threads = threads_of(scene, &client.home);
        let over: f64 = client.home.iter().filter_map(|&node| others[node]).sum();
        for &node in &client.home {
            others[node] = others[node].map(|_| over * scene.nodes[node].threads / threads);
        }
    }
    // What a client without a home uses is its own wherever it runs, too: else it would be crowded
    // out by itself.
    for (client, figures) in figures.iter().enumerate().filter(|(_, figures)| figures.used > 0.0) {
        if !scene.clients[client].home.is_empty() {
            continue;
        }
        let runs_on = scene.affinity(client).nodes;
        let there: f64 = runs_on.iter().filter_map(|&node| others[node]).map(|used| used.max(0.0)).sum();
        let left = if there > figures.used { 1.0 - figures.used / there } else { 0.0 };
        runs_on.iter().for_each(|&node| others[node] = others[node].map(|used| used.max(0.0) * left));
    }
    let others: Vec<f64> = others.into_iter().map(|used| used.unwrap_or(0.0).max(0.0)).collect();
    entitle(scene, others.iter().sum());
    for (node, others) in scene.nodes.iter_mut().zip(others) {
        let reserved = scene.observation.reserved.get(&node.id).copied().unwrap_or_default();
        node.begin(others, &reserved);
    }
    for client in 0..scene.clients.len() {
        add(scene, client, 1.0);
    }
}

fn figures(scene: &Scene<'_>, client: usize) -> Figures {
    let client = &scene.clients[client];
    let vcpus = client.vcpus();
    if client.vm.counts_full() {
        let used = client.known.demand.map(|mean| client.seen.cpu_used.filter(|used| used.is_finite()).unwrap_or(mean));
        return Figures { load: vcpus, expected: vcpus, used: used.unwrap_or(0.0) };
    }
    match client.known.demand {
        Some(mean) => {
            let expected = mean.max(vcpus * scene.policy.idle_vcpu_percent / 100.0);
            let used = client.seen.cpu_used.filter(|used| used.is_finite()).unwrap_or(mean);
            Figures { load: mean, expected, used }
        }
        // Never seen at work: where the node's own figure is known it is part of that, else all of
        // its vCPUs count.
        None => {
            let node_known = |&node: &usize| scene.nodes[node].seen.is_some_and(|seen| seen.cpu_used.is_some());
            let counted = !client.home.is_empty() && client.home.iter().all(node_known);
            Figures {
                load: if counted { 0.0 } else { vcpus },
                expected: vcpus * scene.policy.idle_vcpu_percent / 100.0,
                used: 0.0,
            }
        }
    }
}

/// Sets what clients are entitled to. Where all together want more than the host has, shares divide
/// what there is, and what a client does not want goes to the others; that is also the load of who
/// is not latency-sensitive.
///
/// Latency-sensitive VMs get what they want before the others, as the full reservation that ESXi
/// asks of them gives it; and as there, what they do not want now is for the others. ESXi reserves
/// whole cores and starts no VM that no core is left for: where such VMs have more vCPUs than the
/// host has cores, nothing is reserved, and shares divide among all.
fn entitle(scene: &mut Scene<'_>, others: f64) {
    let threads: f64 = scene.nodes.iter().map(|node| node.threads).sum();
    let wanted: Vec<f64> = scene.clients.iter().map(wanted).collect();
    let (reserved, mut divided): (Vec<usize>, Vec<usize>) =
        (0..scene.clients.len()).partition(|&client| scene.clients[client].vm.counts_full());
    let cores: f64 = scene.nodes.iter().map(|node| node.cores).sum();
    let vcpus: f64 = reserved.iter().map(|&client| scene.clients[client].vcpus()).sum();
    let mut left = (threads - others).max(0.0);
    if vcpus <= cores {
        left = (left - reserved.iter().map(|&client| wanted[client]).sum::<f64>()).max(0.0);
    } else {
        divided = (0..scene.clients.len()).collect();
    }
    for (client, wanted) in scene.clients.iter_mut().zip(&wanted) {
        client.entitled = *wanted;
    }
    if divided.iter().map(|&client| wanted[client]).sum::<f64>() > left {
        by_shares(scene, divided, left);
    }
    for client in scene.clients.iter_mut().filter(|client| !client.vm.counts_full()) {
        client.load = client.entitled;
    }
}

/// CPUs that a client wants: its load, of a latency-sensitive VM what it uses and waits for.
fn wanted(client: &ClientScene<'_>) -> f64 {
    if !client.vm.counts_full() {
        return client.load;
    }
    let mean = client.known.demand.unwrap_or(client.load);
    remember::demand_now(client.seen).unwrap_or(mean).max(mean).min(client.load)
}

/// Divides so many CPUs among clients that want more.
fn by_shares(scene: &mut Scene<'_>, divided: Vec<usize>, mut left: f64) {
    let weights: Vec<f64> = (0..scene.clients.len()).map(|client| weight(scene, client)).collect();
    let level = |client: usize| (scene.clients[client].entitled / weights[client], client);
    let mut weight: f64 = divided.iter().map(|&client| weights[client]).sum();
    let mut order: Vec<(f64, usize)> = divided.into_iter().map(level).collect();
    order.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    for (_, client) in order {
        let entitled = &mut scene.clients[client].entitled;
        *entitled = entitled.min(left * weights[client] / weight);
        left = (left - *entitled).max(0.0);
        weight = (weight - weights[client]).max(f64::MIN_POSITIVE);
    }
}

/// A client's part of its VM's shares, by vCPUs.
pub(super) fn weight(scene: &Scene<'_>, client: usize) -> f64 {
    let this = &scene.clients[client];
    let (first, end) = this.family;
    let all: f64 = scene.clients[first..end].iter().map(ClientScene::vcpus).sum();
    f64::from(this.vm.shares.max(1)) * this.vcpus() / all.max(1.0)
}

/// Adds (`sign` 1) or takes away (-1) a client at its home, on each node by its hardware threads.
pub(super) fn add(scene: &mut Scene<'_>, client: usize, sign: f64) {
    let client = &scene.clients[client];
    let all: f64 = client.home.iter().map(|&node| scene.nodes[node].threads).sum::<f64>().max(1.0);
    for &node in &client.home {
        let node = &mut scene.nodes[node];
        node.load = (node.load + node.of(client, client.load) * (sign * node.threads / all)).or_none();
        node.expect(client, sign * node.threads / all);
        if client.vm.counts_full() {
            node.always_busy = (node.always_busy + sign * client.vcpus() * node.threads / all).max(0.0);
        }
        let waited = client.seen.cpu_waited.filter(|waited| waited.is_finite()).unwrap_or(0.0);
        node.waited = (node.waited + sign * waited * node.threads / all).max(0.0);
    }
}

fn threads_of(scene: &Scene<'_>, nodes: &[usize]) -> f64 {
    nodes.iter().map(|&node| scene.nodes[node].threads).sum::<f64>().max(1.0)
}
