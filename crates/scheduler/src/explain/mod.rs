//! Why this placement, in words.

pub(crate) mod mapping;

use crate::host::Host;
use crate::host::RESERVED_PART;
use crate::placement::{Candidate, EXACT_STEPS, Home, LOST_STEP, Lost, Method, Placed, STACKED_PARTS, VCPU, far};
use crate::{backing, expected};
use std::collections::{BTreeMap, BTreeSet};
use topology::{Bytes, BytesPerSecond};
use vm::spec::{FarMemory, Fill, Spread};
use vm::{MemoryPolicy, Reason, Shape};

/// Reasons for the homes.
pub(crate) fn reasons(host: &Host, shape: &Shape, placed: &Placed) -> Vec<Reason> {
    let best = &placed.best;
    let mut reasons = vec![Reason {
        choice: format!("home: {}", nodes_text(host, best)),
        because: format!("{}; {}", facts(host, &best.nodes), comparison(host, shape, placed)),
    }];
    for (client, home) in best.homes.iter().enumerate().filter(|(_, home)| home.nodes.len() > 1) {
        let far = far::of(host, home);
        reasons.push(if far.is_empty() {
            straddle(host, shape, client, home)
        } else {
            by_bandwidth(host, client, home, &far)
        });
    }
    reasons.extend(placed.grown.as_ref().map(|_| Reason {
        choice: "homes of the VM at its largest".to_owned(),
        because: format!(
            "these nodes can hold its {} vCPUs and {} now: nothing has to move when it grows",
            shape.most_vcpus(),
            shape.most_memory()
        ),
    }));
    reasons.extend(near_device(host, shape, &placed.best));
    reasons.extend(counts_full(shape));
    reasons.extend(counts_in_part(host));
    reasons.extend(bandwidth(host, shape, &placed.best));
    reasons.extend(method(placed.method));
    reasons
}

/// That the VM counts in full for those that are placed beside it.
fn counts_full(shape: &Shape) -> Option<Reason> {
    let because = match (shape.policy.latency_sensitive, shape.policy.counts_full()) {
        (true, _) => "policy.latency_sensitive",
        (_, true) => "each has a CPU for itself (policy.vcpu_binding = \"core\")",
        _ => return None,
    };
    let vcpus = shape.vcpus;
    Some(Reason { choice: format!("counts with {vcpus} busy vCPUs from its start"), because: because.to_owned() })
}

/// That a balancer will see what the VM does.
fn counts_in_part(host: &Host) -> Option<Reason> {
    let choice = format!("{} % of each vCPU is expected to be busy", host.busy_percent);
    let because = "a balancer runs here, which sees what it does, and moves it if that is more".to_owned();
    (!host.expects_all_busy()).then_some(Reason { choice, because })
}

/// What `near_device` did.
fn near_device(host: &Host, shape: &Shape, best: &Candidate) -> Option<Reason> {
    if !shape.policy.near_device {
        return None;
    }
    let names: Vec<String> = shape.near.iter().map(ToString::to_string).collect();
    let because = match (&names[..], host.cards.is_empty()) {
        ([], _) => "none of its network cards is plugged into a bridge or a card that the spec names".to_owned(),
        (_, true) => format!("nobody says which node {} is on", names.join(", ")),
        _ => {
            let at = topology::words::named("node", &host.cards);
            let milli = best.lost.cards / 1000;
            format!("{} is on {at}; its home loses {}.{milli:03} CPUs to that distance", names.join(", "), milli / 1000)
        }
    };
    Some(Reason { choice: "near_device".to_owned(), because })
}

/// What its stated traffic did.
fn bandwidth(host: &Host, shape: &Shape, best: &Candidate) -> Option<Reason> {
    let need = shape.policy.bandwidth;
    if need.is_default() {
        return None;
    }
    let drawn: u64 = best.traffic.iter().sum();
    let on = |&index: &usize| {
        let node = &host.nodes[index];
        let given = node.bandwidth.map(BytesPerSecond)?;
        let others = BytesPerSecond(node.traffic_held);
        Some(format!("node {} gives {given}, of which others draw {others}", node.id))
    };
    let used: Vec<usize> = (0..host.nodes.len()).filter(|&index| best.traffic[index] > 0).collect();
    let given: Option<Vec<String>> = used.iter().map(on).collect();
    let because = match given {
        _ if drawn == 0 => "stated: its traffic does not count".to_owned(),
        None => "stated, but nobody says what the memory of this machine gives: it does not count".to_owned(),
        Some(given) => {
            let lost = (best.lost.bandwidth as f64 / 1e4).round() / 100.0;
            format!("stated: it draws {}; {}; {lost} CPUs wait for more", BytesPerSecond(drawn), given.join(", "))
        }
    };
    Some(Reason { choice: format!("bandwidth: {need}"), because })
}

fn nodes_text(host: &Host, candidate: &Candidate) -> String {
    let ids = host.ids(&candidate.nodes.iter().copied().collect::<Vec<_>>());
    format!("{} {ids}", if ids.len() == 1 { "node" } else { "nodes" })
}

/// What nodes have, as the planner saw it; nodes that have the same stand together.
fn facts(host: &Host, nodes: &BTreeSet<usize>) -> String {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for &index in nodes {
        let node = &host.nodes[index];
        let (units, unit) = (host.units(index), host.unit_name());
        let free = units.saturating_sub(node.vcpus_held);
        let has = format!("{free} of {units} {unit}s and {} free{}", Bytes(node.free), host.free_as());
        match groups.iter_mut().find(|(other, _)| *other == has) {
            Some((_, members)) => members.push(index),
            None => groups.push((has, vec![index])),
        }
    }
    let told = groups.iter().map(|(has, members)| match members.len() {
        1 => format!("node {} has {has}", host.ids(members)),
        _ => format!("nodes {} have {has} each", host.ids(members)),
    });
    told.collect::<Vec<_>>().join(", ")
}

fn comparison(host: &Host, shape: &Shape, placed: &Placed) -> String {
    let Some(other) = &placed.runner_up else {
        let only = host.nodes.len() == 1;
        return (if only { "it is the only node" } else { "no other set of nodes holds the VM as well" }).to_owned();
    };
    // The facts of nodes that both have stand there already.
    let news: BTreeSet<usize> = other.nodes.difference(&placed.best.nodes).copied().collect();
    let news = if news.is_empty() { String::new() } else { format!(" ({})", facts(host, &news)) };
    let spread = shape.policy.placement;
    if placed.near_for_certain {
        let (own, others) = (&placed.best.lost, &other.lost);
        return format!(
            "its memory is beside its vCPUs here; {}{news} would lose {}, whatever other VMs do. Here it loses {}, and \
            {} CPUs of that only if other VMs are busy",
            nodes_text(host, other),
            lost(others, spread),
            lost(own, spread),
            hundredths(own.guessed)
        );
    }
    match advantage(placed.grown.as_ref().unwrap_or(&placed.best), other, spread) {
        Some(advantage) => format!("better than {}{news}: {advantage}", nodes_text(host, other)),
        None => format!("{} would be as good; the lower node numbers are taken", nodes_text(host, other)),
    }
}

/// The first cost in which `other` is worse, in words; `None` between equals.
fn advantage(best: &Candidate, other: &Candidate, spread: Spread) -> Option<String> {
    let (own, others) = (&best.cost, &other.cost);
    let whole = |parts: u64| parts as f64 / STACKED_PARTS as f64;
    let advantage = if own.stacked != others.stacked {
        let (own, others) = (whole(own.stacked), whole(others.stacked));
        format!("{own} vCPUs beyond the hardware threads of their node, not {others}")
    } else if own.lost != others.lost {
        format!("it loses {}, not {}", lost(&best.lost, spread), lost(&other.lost, spread))
    } else if own.unused != others.unused {
        "more nodes, as policy.placement asks".to_owned()
    } else if own.apart != others.apart {
        "its nodes are nearer to each other".to_owned()
    } else if own.bandwidth != others.bandwidth {
        "its memory controllers have more to give".to_owned()
    } else if own.misled != others.misled {
        "its distances are more like those that the guest was told".to_owned()
    } else if own.crowding != others.crowding {
        "its CPUs are less crowded by what runs already".to_owned()
    } else if own.fullness != others.fullness {
        "a smaller part of its memory is in use".to_owned()
    } else {
        return None;
    };
    Some(advantage)
}

/// Millionths as whole ones: `1.24`.
fn hundredths(micro: u64) -> String {
    format!("{}", (micro as f64 / 1e4).round() / 100.0)
}

/// `1.24 CPUs (1 to waiting and shared cores, 0.24 to distance between its clients)`.
fn lost(lost: &Lost, spread: Spread) -> String {
    let (siblings, misled) = if spread.keeps_apart() { (0, 0) } else { (lost.siblings, lost.misled) };
    let bandwidth = if spread == Spread::Together { 0 } else { lost.bandwidth };
    let causes = [
        (lost.cpu, "waiting and shared cores"),
        (lost.memory, "remote memory"),
        (siblings, "distance between its clients"),
        (lost.cards, "distance to its network cards"),
        (bandwidth, "full memory controllers and links"),
        (misled, "distances that the guest was not told"),
        (lost.caches, "crowded last-level caches"),
    ];
    let told: Vec<String> = causes
        .iter()
        .filter(|(micro, _)| *micro >= LOST_STEP)
        .map(|(micro, to)| format!("{} to {to}", hundredths(*micro)))
        .collect();
    let all = hundredths(lost.cpu + lost.memory + siblings + lost.cards + bandwidth + misled + lost.caches);
    if told.is_empty() { format!("{all} CPUs") } else { format!("{all} CPUs ({})", told.join(", ")) }
}

/// Why the virtual nodes follow what is free now.
pub(crate) fn sized_by_free(by_size: &Candidate, by_free: &Candidate) -> Reason {
    Reason {
        choice: "sized by what is free now".to_owned(),
        because: format!(
            "with virtual nodes by the sizes of the machine's nodes it would lose {}; so it loses {}",
            lost(&by_size.lost, Spread::Auto),
            lost(&by_free.lost, Spread::Auto)
        ),
    }
}

/// Why a client has several nodes.
fn straddle(host: &Host, shape: &Shape, client: usize, home: &Home) -> Reason {
    let lives: Vec<usize> =
        home.nodes.iter().zip(&home.micro).filter(|(_, micro)| **micro > 0).map(|(&node, _)| node).collect();
    let because = if home.equal {
        let memory = match shape.policy.memory {
            None | Some(MemoryPolicy::Interleave) => "is interleaved in equal parts".to_owned(),
            Some(MemoryPolicy::Bind) => {
                "lies on any of them (policy.memory = \"bind\"): counted in equal parts".to_owned()
            }
            Some(MemoryPolicy::Default) => {
                "lies where it is touched first (policy.memory = \"default\"): counted in equal parts".to_owned()
            }
            Some(MemoryPolicy::Preferred) => {
                let first = host.ids(&home.nodes).first().map(|node| node.to_string()).unwrap_or_default();
                format!("fills node {first} first (policy.memory = \"preferred\"): counted in equal parts")
            }
        };
        format!("the fewest nodes that it needs; its memory {memory}")
    } else {
        let amounts = home.nodes.iter().zip(&home.bytes).filter(|(_, bytes)| **bytes > 0);
        let told: Vec<String> =
            amounts.map(|(&node, &bytes)| format!("{} on node {}", Bytes(bytes), host.nodes[node].id)).collect();
        let (word, has) = if lives.len() == 1 { ("node", "has") } else { ("nodes", "have") };
        let ids = host.ids(&lives);
        format!(
            "its vCPUs live on {word} {ids}, which {has} no room for all of its memory: {}, the nearest with room",
            told.join(", ")
        )
    };
    Reason { choice: format!("client {client} on {} nodes: {}", home.nodes.len(), host.ids(&home.nodes)), because }
}

/// What lies on nodes without CPUs on purpose.
fn by_bandwidth(host: &Host, client: usize, home: &Home, far: &[(usize, u64)]) -> Reason {
    let parts: Vec<String> =
        far.iter().map(|&(node, bytes)| format!("{} on node {}", Bytes(bytes), host.nodes[node].id)).collect();
    let gives = |&node: &usize| {
        let node = &host.nodes[node];
        format!("node {} gives {} MB/s", node.id, node.bandwidth.unwrap_or(0) / 1_000_000)
    };
    let all: Vec<String> = home.nodes.iter().map(gives).collect();
    Reason {
        choice: format!("client {client}: {} by bandwidth", parts.join(", ")),
        because: format!("policy.far_memory = \"by_bandwidth\"; {}", all.join(", ")),
    }
}

fn method(method: Method) -> Option<Reason> {
    let because = match method {
        Method::Exact => return None,
        Method::Heuristic => format!(
            "it would take too long to look at every placement (more than {EXACT_STEPS} steps on 8 nodes): greedy from \
            several starts, then moves and swaps"
        ),
    };
    Some(Reason { choice: "search: not exhaustive".to_owned(), because })
}

/// Where nodes without CPUs are named, or asked for, and nothing comes of it.
fn far_warnings(host: &Host, shape: &Shape, best: &Candidate) -> Vec<String> {
    let named = shape.policy.node_affinity.as_ref().map(|nodes| nodes.intersection(&host.left_out.0));
    let affinity = named.filter(|nodes| !nodes.is_empty()).map(|nodes| {
        let nodes = topology::words::named("node", &nodes);
        format!("policy.node_affinity names {nodes} without CPUs, which policy.far_memory = \"never\" leaves out")
    });
    let none = shape.policy.far_memory == FarMemory::ByBandwidth
        && best.homes.iter().all(|home| far::of(host, home).is_empty());
    let near = none.then(|| {
        "policy.far_memory = \"by_bandwidth\": no node without CPUs has room for a part of it, all of it lies near"
            .to_owned()
    });
    affinity.into_iter().chain(near).collect()
}

/// What the user should know about where the VM will live.
pub(crate) fn warnings(host: &Host, shape: &Shape, placed: &Placed) -> Vec<String> {
    let mut warnings = far_warnings(host, shape, &placed.best);
    let threads: u32 = host.nodes.iter().map(|node| node.threads).sum();
    if shape.vcpus > threads {
        warnings.push(format!("overcommitted: {} vCPUs on {threads} usable hardware threads", shape.vcpus));
    } else {
        warnings.extend(crowded(host, &placed.best));
    }
    warnings.extend(backing::pools_not_known(host, bytes_by_node(&placed.best).into_iter()));
    warnings.extend(match shape.backing.fill {
        Fill::AtStart if host.page.is_none() || !host.pools_are_known => tight(host, &placed.best),
        Fill::AtStart => Vec::new(),
        Fill::OnTouch => vec![promised(host, &placed.best)],
    });
    let straddles = |home: &&Home| home.nodes.len() > 1;
    if shape.policy.vnuma != Some(false) {
        let count = placed.best.homes.iter().filter(straddles).count();
        let who = match (count, placed.best.homes.len()) {
            (0, _) => None,
            (_, 1) => Some("the VM lies on several machine nodes".to_owned()),
            (1, all) => Some(format!("1 of its {all} virtual nodes lies on several machine nodes")),
            (count, all) => Some(format!("{count} of its {all} virtual nodes lie on several machine nodes")),
        };
        let remote = expected::of(host, &placed.best.homes).remote_permille(placed.best.homes.iter().map(Home::memory));
        let percent = f64::from(remote) / 10.0;
        warnings.extend(
            who.map(|who| format!("{who}: {percent} % of its memory is remote, and the guest cannot see which")),
        );
    }
    warnings
}

/// Homes that lack room for all that a VM may grow to.
pub(crate) fn cramped(host: &Host, shape: &Shape, most: &[crate::sizing::Share], placed: &Placed) -> Option<String> {
    if !shape.may_grow() || placed.grown.is_some() {
        return None;
    }
    let (mut threads, mut bytes) = (BTreeMap::<usize, u64>::new(), BTreeMap::<usize, u64>::new());
    for (home, share) in placed.best.homes.iter().zip(most) {
        let nodes = home.nodes.len() as u64;
        for &node in &home.nodes {
            *threads.entry(node).or_default() += u64::from(share.vcpus).div_ceil(nodes);
            *bytes.entry(node).or_default() += share.memory / nodes;
        }
    }
    let lacking = |what: &str, lacks: &dyn Fn(usize) -> bool| {
        let nodes: Vec<usize> = bytes.keys().copied().filter(|&index| lacks(index)).collect();
        let (verb, named) = (if nodes.len() == 1 { "lacks" } else { "lack" }, host.ids(&nodes));
        (!nodes.is_empty()).then(|| format!("{} {verb} {what} for that", topology::words::named("node", &named)))
    };
    let threads = lacking("hardware threads", &|index| {
        host.nodes[index].threads > 0 && threads[&index] > u64::from(host.nodes[index].threads)
    });
    let memory = lacking("free memory", &|index| bytes[&index] > host.nodes[index].available);
    let lacking: Vec<String> = [threads, memory].into_iter().flatten().collect();
    (!lacking.is_empty()).then(|| {
        let (vcpus, memory) = (shape.most_vcpus(), shape.most_memory());
        format!("it may grow to {vcpus} vCPUs and {memory}: {}, as things are", lacking.join(", and "))
    })
}

/// Nodes with more vCPUs than hardware threads, counting what runs there already.
fn crowded(host: &Host, best: &Candidate) -> Vec<String> {
    let mut micro: BTreeMap<usize, u64> = BTreeMap::new();
    for home in &best.homes {
        for (&node, amount) in home.nodes.iter().zip(&home.micro) {
            *micro.entry(node).or_default() += amount;
        }
    }
    let over = micro.into_iter().filter_map(|(index, micro)| {
        let node = &host.nodes[index];
        let vcpus = u64::from(node.vcpus_held) + micro.div_ceil(VCPU);
        (vcpus > u64::from(node.threads) && micro > 0)
            .then(|| format!("node {} will have {vcpus} vCPUs on {} hardware threads", node.id, node.threads))
    });
    over.collect()
}

/// What the VM takes of the memory of each node that it takes any of.
fn bytes_by_node(best: &Candidate) -> BTreeMap<usize, u64> {
    let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
    for home in &best.homes {
        for (&node, amount) in home.nodes.iter().zip(&home.bytes) {
            *bytes.entry(node).or_default() += amount;
        }
    }
    bytes.retain(|_, bytes| *bytes > 0);
    bytes
}

/// What is promised beside what is free, where nothing is taken at the start.
fn promised(host: &Host, best: &Candidate) -> String {
    let (mut told, mut beyond) = (Vec::new(), 0u64);
    for (index, bytes) in bytes_by_node(best) {
        let node = &host.nodes[index];
        told.push(format!("node {}: {} promised, {} free", node.id, Bytes(bytes), Bytes(node.free)));
        beyond = beyond.saturating_add(bytes.saturating_sub(node.free));
    }
    let end = match beyond {
        0 => "others may take it before the guest touches it".to_owned(),
        beyond => format!(
            "overcommitted by {}: if the guest touches it all, the host takes memory of other nodes, then \
            swaps, then kills",
            Bytes(beyond)
        ),
    };
    format!("memory is taken when the guest touches it (backing.fill = \"on_touch\"): {}; {end}", told.join(", "))
}

fn tight(host: &Host, best: &Candidate) -> Vec<String> {
    // A node that the VM takes nothing of is as full as it was.
    let tight = bytes_by_node(best).into_iter().filter_map(|(index, bytes)| {
        let node = &host.nodes[index];
        let left = node.available.saturating_sub(bytes);
        let of = format!("of the {} of node {}", Bytes(node.memory), node.id);
        (left < node.memory / RESERVED_PART).then(|| match left {
            0 => format!("memory only just fits: nothing {of} stays free"),
            left => format!("memory only just fits: {} {of} stay free", Bytes(left)),
        })
    });
    tight.collect()
}
