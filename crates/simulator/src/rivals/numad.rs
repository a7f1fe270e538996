//! numad's advice (version 20150602, as Debian ships it), written anew from its source's rules:
//! which nodes a process should have.

/// A node, as numad sees it. CPUs in hundredths, memory in MB (2^20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// CPUs: cores, and each further hardware thread of a core as 0.2 of one.
    pub cpus_total: i64,
    /// Of these, idle.
    pub cpus_free: i64,
    /// Memory.
    pub mb_total: i64,
    /// Of that, free.
    pub mb_free: i64,
}

/// What is asked for, and what the process holds already.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// CPUs, in hundredths.
    pub cpus: i64,
    /// MB.
    pub mb: i64,
    /// What it holds; `None`: the advice is for a process that does not run yet (`numad -w`).
    pub held: Option<Held>,
    /// Whether CPU demand is ignored once enough nodes for the memory are found: set when all
    /// processes together use no more CPUs than there are.
    pub assume_enough_cpus: bool,
}

/// What a running process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// CPUs that it uses, in hundredths.
    pub cpus: i64,
    /// Its memory on each node, in MB.
    pub mb: Vec<i64>,
    /// Nodes that it is bound to; all of them where it is not bound.
    pub nodes: Vec<usize>,
}

/// Part of the CPUs and memory that numad wants to be used, in percent (`-u`, default 85).
pub(crate) const TARGET_UTILIZATION: i64 = 85;

/// Memory and CPUs weighted: what is needed counts more than what is left over, memory more than
/// CPUs; then their product.
fn magnitude(node: &NodeState, request: &Request) -> i64 {
    let weighted = |free: i64, wanted: i64, need: i64, excess: i64| {
        free.min(wanted).max(0) * need + (free - wanted).max(0) * excess
    };
    weighted(node.mb_free, request.mb, 10, 4) * weighted(node.cpus_free, request.cpus, 6, 1)
}

/// Nodes by their distance from `from`; of equally distant ones the one with most resources first.
fn chain(from: usize, distance: &[Vec<u32>], magnitudes: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..magnitudes.len()).collect();
    order.sort_by_key(|&node| (distance[node][from], std::cmp::Reverse(magnitudes[node])));
    order
}

/// Adds back to each node what the process itself holds there, with a bias to where its memory is:
/// light while it may run anywhere, heavy once it is bound.
fn add_back(nodes: &mut [NodeState], held: &Held) -> i64 {
    let (count, bound) = (nodes.len(), held.nodes.len().max(1) as i64);
    let used: i64 = held.mb.iter().sum::<i64>().max(1);
    let average = (held.cpus + held.nodes.iter().map(|&node| nodes[node].cpus_free).sum::<i64>()) / bound;
    let mut free = 0;
    for (index, node) in nodes.iter_mut().enumerate() {
        if held.nodes.len() >= count {
            node.mb_free += held.mb[index] * 17 / 16;
            node.cpus_free += held.cpus * held.mb[index] / used;
        } else {
            node.mb_free += held.mb[index] * 5 / 4;
            if held.nodes.contains(&index) {
                node.cpus_free = average;
            }
        }
        free += node.cpus_free;
        node.cpus_free = node.cpus_free.min(node.cpus_total);
        node.mb_free = node.mb_free.min(node.mb_total);
    }
    free
}

/// Fewest nodes that could hold the request if they were empty; all nodes count as the first one.
fn least_nodes(nodes: &[NodeState], request: &Request, cpu_flex: i64) -> usize {
    let parts = |wanted: i64, of: i64| (wanted.max(0) as f64 / of.max(1) as f64).ceil() as usize;
    let by_memory = parts(request.mb, nodes[0].mb_total);
    let by_cpus = parts(request.cpus - cpu_flex, nodes[0].cpus_total);
    by_memory.max(by_cpus).min(nodes.len())
}

/// The nodes that numad would choose, in the order of its choice. `distance[i][j]` as in ACPI's
/// SLIT.
///
/// `None` where `nodes` is empty.
pub fn advice(nodes: &[NodeState], distance: &[Vec<u32>], request: &Request) -> Option<Vec<usize>> {
    let mut nodes = nodes.to_vec();
    let first = *nodes.first()?;
    let mut assume_enough_cpus = request.assume_enough_cpus;
    let mut cpu_flex = 0;
    if let Some(held) = &request.held {
        let free = add_back(&mut nodes, held);
        assume_enough_cpus |= request.cpus > free;
        cpu_flex = (100 - TARGET_UTILIZATION) * first.cpus_total / 200;
    }
    for node in &mut nodes {
        node.cpus_free = node.cpus_free.max(1);
    }
    let magnitudes: Vec<i64> = nodes.iter().map(|node| magnitude(node, request)).collect();
    let least = least_nodes(&nodes, request, cpu_flex);
    let total = |from: usize| -> i64 {
        let near = chain(from, distance, &magnitudes).into_iter().take(least);
        near.map(|node| magnitudes[node] / i64::from(distance[node][from]).pow(2)).sum()
    };
    // The first of equals.
    let best = (0..nodes.len()).max_by_key(|&node| (total(node), std::cmp::Reverse(node)))?;
    let (mut chosen, mut missing, mut mb, mut cpus) = (Vec::new(), least as i64, request.mb, request.cpus);
    for node in chain(best, distance, &magnitudes) {
        if missing <= 0 && mb <= 0 && (cpus <= cpu_flex || assume_enough_cpus) {
            break;
        }
        chosen.push(node);
        missing -= 1;
        // numad leaves 100 MB on each node.
        let has_room = nodes[node].mb_free >= mb + MB_MARGIN;
        mb = if has_room { 0 } else { mb - (nodes[node].mb_free - MB_MARGIN) };
        cpus = (cpus - nodes[node].cpus_free).max(0);
    }
    if chosen.is_empty() {
        chosen.push(0);
    }
    Some(chosen)
}

const MB_MARGIN: i64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpus_free: i64, mb_free: i64) -> NodeState {
        NodeState { cpus_total: 800, cpus_free, mb_total: 16_384, mb_free }
    }

    fn ask(cpus: i64, mb: i64) -> Request {
        Request { cpus, mb, ..Request::default() }
    }

    #[test]
    fn the_node_with_most_of_both_is_taken() {
        // Node 0: (2048 x 10 + 6144 x 4) x (400 x 6 + 400) = 45056 x 2800; node 1: (2048 x 10 +
        // 12288 x 4) x (400 x 6 + 100) = 69632 x 2500, which is more: memory counts more than CPUs.
        let distance = [vec![10, 20], vec![20, 10]];
        assert_eq!(advice(&[node(800, 8192), node(500, 14_336)], &distance, &ask(400, 2048)), Some(vec![1]));
    }

    #[test]
    fn a_wide_request_takes_the_near_pair() {
        let distance = [vec![10, 30, 15, 30], vec![30, 10, 30, 15], vec![15, 30, 10, 30], vec![30, 15, 30, 10]];
        let nodes = [node(700, 8192), node(800, 12_000), node(800, 8192), node(800, 12_000)];
        assert_eq!(advice(&nodes, &distance, &ask(1600, 8192)), Some(vec![1, 3]));
    }

    #[test]
    fn a_process_stays_where_its_memory_is() {
        // Node 1 has less free, but 6 GB of the process: 5/4 of them are added back.
        let distance = [vec![10, 20], vec![20, 10]];
        let held = Held { cpus: 200, mb: vec![0, 6144], nodes: vec![1] };
        let request = Request { held: Some(held), ..ask(200, 7000) };
        assert_eq!(advice(&[node(700, 9000), node(600, 5000)], &distance, &request), Some(vec![1]));
        assert_eq!(advice(&[], &[], &ask(1, 1)), None);
    }
}
