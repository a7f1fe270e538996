//! Why a VM is where it is: the decision, then a table of candidates, then what refuses each move.

use crate::cells::dash;
use crate::life_words::{event, moment};
use crate::text::{Table, lines, table, width, wrapped};
use daemon::sentence;
use scheduler::balance::{
    Candidate, ClientExplanation, Decision, Explanation, GroupExplanation, Home, Next, Refusal, decimal,
};
use scheduler::{Action, ClientObservation, VmObservation};
use serde::Serialize;
use std::fmt::Write;
use topology::words::named;
use topology::{Bytes, CpuId, CpuSet, NodeSet};
use vm::Manager;
use vm::history::Life;

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    /// Process of the balancer that runs.
    pub(crate) balancer_pid: Option<u32>,
    /// Who started the VM and changes it; `None` where that is not known.
    pub(crate) manager: Option<Manager>,
    /// NUMA nodes of the host.
    pub(crate) nodes: usize,
    /// What of it could not be looked at.
    pub(crate) unseen: Vec<String>,
    /// What somebody said of how it is to live, and who.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) said: Vec<String>,
    /// What hardware counted of its clients, where it did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) counted: Vec<Counted>,
    /// Its life so far, where homenode keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) life: Option<Life>,
    /// The scheduler's words.
    #[serde(flatten)]
    pub(crate) explanation: Explanation,
}

/// What hardware counted of a client.
#[derive(Debug, Serialize)]
pub(crate) struct Counted {
    client: u32,
    traffic_bytes_per_second: Option<f64>,
    remote_traffic_bytes_per_second: Option<f64>,
    cache_bytes: Option<Bytes>,
}

impl Counted {
    /// Of those clients of which anything was counted.
    pub(crate) fn of(seen: &VmObservation) -> Vec<Self> {
        let of = |client: &ClientObservation| Self {
            client: client.id.0,
            traffic_bytes_per_second: client.all_traffic(),
            remote_traffic_bytes_per_second: client.traffic.map(|traffic| traffic.remote),
            cache_bytes: client.cache_occupancy,
        };
        let all = seen.clients.iter().map(of);
        all.filter(|one| one.traffic_bytes_per_second.is_some() || one.cache_bytes.is_some()).collect()
    }

    /// `Client 0: 1200 MB/s of memory traffic, 300 of it remote; 4 MiB of last-level caches.`
    fn sentence(&self) -> String {
        let mb = |bytes: f64| format!("{:.0}", bytes / 1e6);
        let remote = self.remote_traffic_bytes_per_second.map(|remote| format!(", {} of it remote", mb(remote)));
        let traffic = self.traffic_bytes_per_second;
        let traffic = traffic.map(|all| format!("{} MB/s of memory traffic{}", mb(all), remote.unwrap_or_default()));
        let cache = self.cache_bytes.map(|bytes| format!("{bytes} of last-level caches"));
        let parts: Vec<String> = traffic.into_iter().chain(cache).collect();
        format!("Client {}: {}.", self.client, parts.join("; "))
    }
}

/// The decision in a sentence, a table of candidates for each client, and a table of what refuses
/// moves.
pub(crate) fn text(view: &View) -> String {
    let Explanation { vm, clients, decisions } = &view.explanation;
    let mut text = String::new();
    let by = match view.balancer_pid {
        Some(pid) => format!("judged as by the balancer, process {pid}"),
        None => "no balancer runs: judged as one would".to_owned(),
    };
    // Writing to a string cannot fail.
    let managed = view.manager.map_or_else(String::new, |manager| format!(", started by {manager}"));
    let process = if vm.pid > 0 { format!(", process {}", vm.pid) } else { String::new() };
    let _ = writeln!(text, "VM {}{process}{managed}; {by}", vm.name);
    for what in &view.unseen {
        add_wrapped(&mut text, &format!("Not seen: {what}."));
    }
    for said in &view.said {
        add_wrapped(&mut text, &format!("It has {said}."));
    }
    for counted in &view.counted {
        add_wrapped(&mut text, &counted.sentence());
    }
    if view.nodes < 2 {
        let _ = writeln!(text, "It is at home: this host has one NUMA node.");
    } else {
        for client in clients {
            if clients.len() > 1 {
                text.push('\n');
            }
            add_client(&mut text, client, decisions, clients.len() > 1);
        }
    }
    if let Some(life) = &view.life {
        text.push_str("\nIts life so far:\n");
        add_life(&mut text, life);
    }
    text
}

/// What became of a VM that is kept and does not run.
pub(crate) fn of_one_that_rests(name: &str, life: &Life) -> String {
    let mut text = format!("VM {name} is {} since {}: it lives nowhere.\n\n", life.state, moment(life.since));
    add_life(&mut text, life);
    text
}

/// A line for each thing that happened, the oldest first.
fn add_life(text: &mut String, life: &Life) {
    for chapter in &life.history {
        let _ = writeln!(text, "{}  {}", moment(chapter.at), event(chapter));
    }
}

fn add_client(text: &mut String, client: &ClientExplanation, decisions: &[Decision], several: bool) {
    let who = if several { format!("Client {}", client.client.0) } else { "It".to_owned() };
    let own: Vec<&Decision> = decisions.iter().filter(|one| one.action.client() == client.client).collect();
    if !own.iter().any(|decision| matches!(decision.action, Action::Bind { .. })) {
        add_wrapped(text, &stays(&who, client));
    }
    for decision in own {
        add_wrapped(text, &format!("Next: {}.", sentence(decision)));
    }
    add_wrapped(text, &facts(client));
    if let Some(because) = &client.always_busy {
        add_wrapped(text, &format!("All of its vCPUs count as busy: {because}."));
    }
    for group in &client.groups {
        add_wrapped(text, &caches(group));
    }
    for sentence in [&client.shape, &client.bandwidth].into_iter().flatten() {
        add_wrapped(text, &format!("{}.", capitalized(sentence)));
    }
    if let Some(pairs) = &client.misled {
        add_wrapped(text, &format!("Its guest was told other distances than those between its homes: {pairs}."));
    }
    let _ = writeln!(text, "\n{}", lines(&candidates(&client.candidates)));
    let refused = refusals(client);
    if !refused.is_empty() {
        let _ = writeln!(text, "\n{}", lines(&refused_table(&refused)));
    }
    for trouble in &client.troubles {
        add_wrapped(text, &format!("Trouble: {trouble}"));
    }
}

/// A sentence from its first letter on.
fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// How loaded the cache of a group is, and why it does not go to another.
fn caches(group: &GroupExplanation) -> String {
    let vcpus: CpuSet = group.vcpus.iter().map(|&vcpu| CpuId(vcpu)).collect();
    let load = |percent: f64| decimal(percent, 0);
    let here = format!("vCPUs {vcpus} keep to the cache of CPUs {}, loaded {} %", group.cpus, load(group.load_percent));
    let Some(other) = &group.other else { return format!("{here}.") };
    let because = other.refused.first().map_or("nothing refuses it", |refusal| &refusal.because);
    format!("{here}; that of CPUs {} is loaded {} %: {because}.", other.cpus, load(other.load_percent))
}

/// Why a client for which no home is planned is where it is.
fn stays(who: &str, client: &ClientExplanation) -> String {
    if let Next::Left { because } = &client.home.next {
        return left(who, &client.home, because);
    }
    let Some(home) = &client.home.lives else { return format!("{who} lives everywhere: no fewer nodes hold it.") };
    let home = format!("{who} stays at home on {}", named("node", home));
    let others = || client.candidates.iter().filter(|candidate| !candidate.is_home);
    let open: NodeSet = others().filter(|candidate| candidate.refused.is_empty()).map(|open| open.node).collect();
    match (client.refused.first(), open.is_empty()) {
        (Some(refusal), _) => format!("{home}: {}.", refusal.because),
        (None, true) => format!("{home}: going anywhere else is refused."),
        (None, false) => format!("{home} in this period; nothing refuses {}.", named("node", &open)),
    }
}

/// What the balancer leaves where it should not be.
fn left(who: &str, home: &Home, because: &str) -> String {
    let lives =
        home.lives.as_ref().map_or_else(|| "floats".to_owned(), |lives| format!("lives on {}", named("node", lives)));
    match &home.should {
        Some(should) => {
            format!("{who} {lives}; it should live on {}, and is left where it is: {because}.", named("node", should))
        }
        None => format!("{who} {lives}, and is left there: {because}."),
    }
}

fn facts(client: &ClientExplanation) -> String {
    let mut facts = Vec::new();
    facts.extend(client.demand.map(|cpus| format!("wants {} CPUs", decimal(cpus, 2))));
    let less = client.entitled.filter(|&entitled| client.demand.is_some_and(|demand| demand - entitled > 0.005));
    facts.extend(less.map(|cpus| format!("is entitled to {}", decimal(cpus, 2))));
    let owed = client.owed_percent.filter(|percent| percent.round() >= 1.0);
    facts.extend(owed.map(|percent| format!("is owed {percent:.0} % of that")));
    facts.extend(
        client
            .away
            .filter(|away| away.0 > 0 && client.home.lives.is_some())
            .map(|away| format!("has {away} of its memory elsewhere")),
    );
    facts.extend(client.rested_seconds.map(|seconds| format!("was moved {seconds:.0} s ago")));
    let Some(last) = facts.pop() else { return String::new() };
    if facts.is_empty() { format!("It {last}.") } else { format!("It {} and {last}.", facts.join(", ")) }
}

fn candidates(candidates: &[Candidate]) -> Table {
    let header = ["Node", "Load", "with it", "Free", "Local", "Distance", "Gain", "Cost", ""];
    let mut table = table(header, &[1, 2, 3, 4, 5, 6, 7]);
    for candidate in candidates {
        let verdict = match (candidate.is_home, candidate.refused.is_empty()) {
            (true, _) => "home",
            (false, true) => "open",
            (false, false) => "refused",
        };
        table.add_row([
            candidate.node.to_string(),
            format!("{} %", decimal(candidate.load_percent, 0)),
            figure(candidate.load_with_percent, 0, " %"),
            candidate.memory_available.map_or_else(dash, |bytes| bytes.to_string()),
            figure(candidate.local_percent, 0, " %"),
            figure(candidate.memory_distance, 1, ""),
            figure(candidate.gain, 2, ""),
            figure(candidate.cost, 1, " s"),
            verdict.to_owned(),
        ]);
    }
    table
}

/// What refuses moves, and to which nodes; each refusal once, those of any move last, without
/// nodes.
fn refusals(client: &ClientExplanation) -> Vec<(NodeSet, &Refusal)> {
    let mut refused: Vec<(NodeSet, &Refusal)> = Vec::new();
    let of_nodes = client.candidates.iter().flat_map(|candidate| {
        candidate.refused.iter().map(move |refusal| (NodeSet::from_iter([candidate.node]), refusal))
    });
    for (node, refusal) in of_nodes.chain(client.refused.iter().map(|refusal| (NodeSet::new(), refusal))) {
        match refused.iter_mut().find(|(_, known)| words(known) == words(refusal)) {
            Some((nodes, _)) => *nodes = nodes.union(&node),
            None => refused.push((node, refusal)),
        }
    }
    refused
}

fn refused_table(refused: &[(NodeSet, &Refusal)]) -> Table {
    let mut table = table(["To node", "Refused by", "Seen", "Limit", ""], &[2, 3]);
    for (nodes, refusal) in refused {
        let to = if nodes.is_empty() { "any".to_owned() } else { nodes.to_string() };
        let [name, seen, limit, because] = words(refusal);
        table.add_row([to, name, seen, limit, because]);
    }
    table
}

/// Name, value, limit; the reason only where there are no figures.
fn words(refusal: &Refusal) -> [String; 4] {
    let shown = |value: f64| {
        let digits = usize::from(value.abs() < 100.0 && value.fract() != 0.0);
        format!("{} {}", decimal(value, digits), unit(&refusal.unit))
    };
    let value = match (refusal.value, refusal.limit) {
        (None, Some(_)) if refusal.threshold == "payback_seconds" => "never".to_owned(),
        (value, _) => value.map_or_else(dash, shown),
    };
    let because = if refusal.limit.is_some() { String::new() } else { refusal.because.clone() };
    [refusal.threshold.clone(), value, refusal.limit.map_or_else(dash, shown), because]
}

fn unit(name: &str) -> &str {
    match name {
        "percent" => "%",
        "seconds" => "s",
        other => other,
    }
}

fn add_wrapped(text: &mut String, words: &str) {
    for (index, line) in wrapped(words, width() - 2).into_iter().enumerate() {
        let deeper = if index > 0 { "  " } else { "" };
        let _ = writeln!(text, "{deeper}{line}");
    }
}

fn figure(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or_else(dash, |value| format!("{}{unit}", decimal(value, digits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use scheduler::{ClientId, VmKey};
    use topology::{Bytes, NodeId};

    fn candidate(node: u32, refused: Vec<Refusal>) -> Candidate {
        Candidate {
            node: NodeId(node),
            is_home: node == 0,
            load_percent: 80.0,
            load_with_percent: Some(120.0),
            memory_available: Some(Bytes::GIB),
            memory_needed: Bytes::GIB,
            local_percent: Some(100.0),
            memory_distance: Some(21.0),
            sibling_distance: None,
            told_difference: None,
            crowding_loss: Some(0.5),
            controller_loss: None,
            remote_loss: Some(0.25),
            cost: Some(1.5),
            gain: Some(-0.25),
            payback_seconds: None,
            refused,
        }
    }

    #[test]
    fn a_refused_move_names_its_threshold_and_figures() {
        let refusal = Refusal {
            threshold: "imbalance_percent".into(),
            value: Some(4.0),
            limit: Some(10.0),
            unit: "points".into(),
            because: "the loads differ by 4 points, a move wants 10".into(),
        };
        let never = Refusal {
            threshold: "payback_seconds".into(),
            value: None,
            limit: Some(120.0),
            unit: "seconds".into(),
            because: "it wins nothing: 0.00 CPUs".into(),
        };
        let affinity = Refusal {
            threshold: "node_affinity".into(),
            value: None,
            limit: None,
            unit: String::new(),
            because: "it may not live on node 1".into(),
        };
        let client = ClientExplanation {
            client: ClientId(0),
            home: Home { lives: "0".parse().ok(), decided: true, should: "0".parse().ok(), next: Next::Stays },
            demand: Some(1.0),
            entitled: None,
            always_busy: None,
            owed_percent: None,
            misled: None,
            bandwidth: Some("it draws 9 GB/s".into()),
            shape: None,
            away: Some(Bytes::from_mib(3)),
            rested_seconds: Some(12.0),
            candidates: vec![candidate(0, Vec::new()), candidate(1, vec![refusal, never, affinity])],
            refused: Vec::new(),
            groups: vec![GroupExplanation {
                vcpus: vec![0, 1],
                llc: topology::LlcId(0),
                cpus: "0-3".parse().unwrap(),
                capacity: None,
                load_percent: 61.6,
                demand: Some(1.0),
                other: None,
            }],
            troubles: vec!["2 MiB are pinned".into()],
        };
        let vm = VmKey { name: "web".into(), pid: 7, started: 1 };
        let explanation = Explanation { vm, clients: vec![client], decisions: Vec::new() };
        let unseen = vec!["where its memory is".to_owned()];
        let text = text(&View {
            balancer_pid: None,
            manager: Some(Manager::Libvirt),
            nodes: 2,
            unseen,
            said: vec!["placement = \"apart\", as its spec says (policy.placement)".to_owned()],
            counted: vec![Counted {
                client: 0,
                traffic_bytes_per_second: Some(1.2e9),
                remote_traffic_bytes_per_second: Some(3e8),
                cache_bytes: Some(Bytes::from_mib(4)),
            }],
            life: None,
            explanation,
        });
        let expected = "\
VM web, process 7, started by libvirt; no balancer runs: judged as one would
Not seen: where its memory is.
It has placement = \"apart\", as its spec says (policy.placement).
Client 0: 1200 MB/s of memory traffic, 300 of it remote; 4 MiB of last-level caches.
It stays at home on node 0: going anywhere else is refused.
It wants 1.00 CPUs, has 3 MiB of its memory elsewhere and was moved 12 s ago.
vCPUs 0-1 keep to the cache of CPUs 0-3, loaded 62 %.
It draws 9 GB/s.

Node  Load  with it   Free  Local  Distance   Gain   Cost
0     80 %    120 %  1 GiB  100 %      21.0  -0.25  1.5 s  home
1     80 %    120 %  1 GiB  100 %      21.0  -0.25  1.5 s  refused

To node  Refused by             Seen      Limit
1        imbalance_percent  4 points  10 points
1        payback_seconds       never      120 s
1        node_affinity             -          -  it may not live on node 1
Trouble: 2 MiB are pinned
";
        assert_eq!(text, expected, "{text}");
    }
}
