//! Whether the clients of a VM live together or apart, and what the other would be worth: words for
//! `why`.
//!
//! The choice itself is made by the same losses as every move: bandwidth ([`bandwidth`]) and
//! crowded CPUs ([`loss::crowding`]) drive clients apart, distance to each other's memory brings
//! them together ([`loss::steady`]), measured where hardware counts it.

use super::scene::Scene;
use super::{bandwidth, decimal, judge};
use topology::BytesPerSecond;
use vm::spec::Spread;

/// What the client draws and what its home gives; `None` where nobody knows what it draws.
pub(super) fn bandwidth_words(scene: &Scene<'_>, client: usize) -> Option<String> {
    let this = &scene.clients[client];
    let alone = this.traffic?;
    let drawn = match (super::traffic::measured(this.seen), this.vm.bandwidth.is_default()) {
        (_, false) => {
            format!("it is said to draw {}{}", words(alone), this.vm.said.bandwidth.words("bandwidth"))
        }
        (Some(now), true) => format!("it draws {}, and would draw {} alone", words(now), words(alone)),
        (None, true) => format!("it drew {} when it was last measured", words(alone)),
    };
    let at_home = this.home.iter().filter_map(|&node| {
        let lost = bandwidth::lost_on(scene, node);
        Some(format!("{}: {} CPUs wait for it", bandwidth::sentence(scene, node)?, decimal(lost, 2)))
    });
    let at_home: Vec<String> = at_home.collect();
    match at_home.is_empty() {
        true => Some(format!("{drawn}; nobody says what the memory of its home gives")),
        false => Some(format!("{drawn}; {}", at_home.join(", "))),
    }
}

fn words(bytes_per_second: f64) -> String {
    BytesPerSecond(bytes_per_second.max(0.0) as u64).to_string()
}

/// Whether the client shares its home with others of its VM, and what the contrary would be worth;
/// `None` for a VM of one client, and one without a home of one node.
pub(super) fn words_of_shape(scene: &Scene<'_>, client: usize) -> Option<String> {
    let this = &scene.clients[client];
    let [home] = this.home[..] else { return None };
    let (first, end) = this.family;
    let others: Vec<usize> = (first..end).filter(|&other| other != client).collect();
    let lives_on = |other: usize, node: usize| scene.clients[other].home.contains(&node);
    let with: Vec<String> = others
        .iter()
        .filter(|&&other| lives_on(other, home))
        .map(|&other| scene.clients[other].seen.id.0.to_string())
        .collect();
    let together = !with.is_empty();
    // The contrary: the best node with, or without, another client of the VM.
    let is_contrary = |&node: &usize| {
        let shared = others.iter().any(|&other| lives_on(other, node));
        node != home && scene.may_choose(client, node) && shared != together
    };
    let verdicts = (0..scene.nodes.len()).filter(is_contrary).map(|node| (node, judge::weigh(scene, client, node)));
    let (node, verdict) = verdicts.max_by(|(_, one), (_, other)| one.gain().total_cmp(&other.gain()))?;
    let rule = match this.vm.placement {
        Spread::Auto => "as it is worth most (placement auto)",
        Spread::Together => "as was asked for (placement together)",
        Spread::Apart | Spread::MostVirtualNodes => "as far as there are nodes, as was asked for (placement apart)",
    };
    let said = this.vm.said.placement.words("placement");
    let [lives, contrary] = match together {
        true => [format!("with client {} of its VM", with.join(", ")), "apart".to_owned()],
        false => ["apart from the others of its VM".to_owned(), "with another".to_owned()],
    };
    Some(format!(
        "it lives {lives}, {rule}{said}; {contrary}, on node {}, it would win {} CPUs of bandwidth, {} of \
         distance and {} of CPUs to itself",
        scene.nodes[node].id,
        decimal(verdict.bandwidth_gain, 2),
        decimal(verdict.remote_gain, 2),
        decimal(verdict.crowding_gain, 2)
    ))
}
