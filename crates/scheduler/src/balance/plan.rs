//! What a step plans, by index: turned into decisions and into the new state when all of it is
//! known.

use super::node_scene::NodeScene;
use super::scene::Scene;
use super::state::BalanceState;
use super::{Decision, MoveKind, cache_scene, first_homes};
use crate::{Action, Moment};
use std::collections::BTreeMap;
use topology::{Bytes, CpuSet, NodeId, NodeSet};

/// A new home.
pub(super) struct Planned {
    pub(super) client: usize,
    pub(super) home: Vec<usize>,
    /// `None`: it is there already, nothing is to be done.
    pub(super) kind: Option<MoveKind>,
    /// The home stays, only the affinity is set again.
    pub(super) rebind: bool,
    /// The home stays, this group gets another cache of it.
    pub(super) group: Option<usize>,
    pub(super) because: String,
}

/// Memory that follows.
pub(super) struct Chunk {
    pub(super) client: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: u64,
    pub(super) because: String,
}

impl Planned {
    pub(super) fn in_place(client: usize, home: Vec<usize>) -> Self {
        Self { client, home, kind: None, rebind: false, group: None, because: String::new() }
    }

    pub(super) fn bind(client: usize, home: Vec<usize>, kind: MoveKind, because: String) -> Self {
        Self { client, home, kind: Some(kind), rebind: false, group: None, because }
    }
}

/// A change of what is remembered of a client.
pub(super) struct Change {
    slot: (usize, usize),
    home: NodeSet,
    kind: Option<MoveKind>,
    rebind: bool,
    /// Groups that got another cache.
    groups: Vec<usize>,
    cpus: CpuSet,
}

/// What changes in the state, and what fairness adds to it.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) homes: Vec<Change>,
    /// Clients whose rebinds are long ago.
    pub(super) calm: Vec<(usize, usize)>,
    /// CPU seconds owed and entitled in this step, by client.
    pub(super) owed: Vec<((usize, usize), f64, f64)>,
    /// A window of fairness ends.
    pub(super) window_ends: bool,
    /// Since when nodes are crowded.
    pub(super) crowded: BTreeMap<NodeId, Moment>,
}

/// The decisions, and the change of the state that they mean.
pub(super) fn write_down(scene: &Scene<'_>, planned: Vec<Planned>, chunks: Vec<Chunk>) -> (Vec<Decision>, Changes) {
    let mut decisions = Vec::with_capacity(planned.len() + chunks.len());
    let mut changes = Changes::default();
    for planned in planned {
        let client = &scene.clients[planned.client];
        let home = scene.ids(&planned.home);
        let cpus = if planned.kind.is_some() { scene.cpus(&planned.home) } else { CpuSet::new() };
        if let Some(kind) = planned.kind {
            let (vm, id) = (client.vm.vm.clone(), client.seen.id);
            let groups = cache_scene::groups(scene, planned.client);
            let action = Action::Bind { vm, client: id, home: home.clone(), cpus: cpus.clone(), groups };
            decisions.push(Decision { action, kind, because: planned.because });
        }
        let groups = match planned.group {
            Some(group) => vec![group],
            None if planned.kind.is_some() && !planned.rebind => (0..client.known.groups.len()).collect(),
            None => Vec::new(),
        };
        changes.homes.push(Change {
            slot: client.slot,
            home,
            kind: planned.kind,
            rebind: planned.rebind,
            groups,
            cpus,
        });
    }
    for chunk in chunks {
        let client = &scene.clients[chunk.client];
        let id = |node: usize| -> NodeId { scene.nodes[node].id };
        let (vm, id_of_client) = (client.vm.vm.clone(), client.seen.id);
        let (from, to) = (id(chunk.from), id(chunk.to));
        let action = Action::MoveMemory { vm, client: id_of_client, from, to, at_most: Bytes(chunk.bytes) };
        decisions.push(Decision { action, kind: MoveKind::Follow, because: chunk.because });
    }
    let since = |node: &NodeScene<'_>| Some((node.id, node.crowded_since?));
    changes.crowded = scene.nodes.iter().filter_map(since).collect();
    changes.calm = (0..scene.clients.len())
        .filter(|&client| scene.clients[client].known.rebinds > 0 && first_homes::calm(scene, client))
        .map(|client| scene.clients[client].slot)
        .collect();
    (decisions, changes)
}

/// Remembers what was decided.
pub(super) fn apply(state: &mut BalanceState, changes: Changes) {
    let at = state.at;
    state.crowded = changes.crowded;
    for (vm, client) in changes.calm {
        state.vms[vm].clients[client].rebinds = 0;
    }
    for ((vm, client), owed, entitled) in changes.owed {
        let known = &mut state.vms[vm].clients[client];
        (known.owed, known.entitled) = (known.owed + owed, known.entitled + entitled);
        if changes.window_ends {
            (known.owed, known.entitled) = (known.owed / 2.0, known.entitled / 2.0);
        }
    }
    for change in changes.homes {
        let known = &mut state.vms[change.slot.0].clients[change.slot.1];
        if change.rebind {
            (known.rebound_at, known.rebinds) = (Some(at), known.rebinds + 1);
            (known.bound, known.pending) = (Some(change.cpus), Some(known.home.clone()));
            continue;
        }
        change.groups.iter().for_each(|&group| known.groups[group].moved_at = Some(at));
        if change.kind == Some(MoveKind::Cache) {
            (known.bound, known.pending) = (Some(change.cpus), Some(known.home.clone()));
            continue;
        }
        let had_home = !known.home.is_empty();
        let before = std::mem::replace(&mut known.home, change.home);
        // Somebody else moved it, or it is where it was when the balancer started: it rests only in
        // the first case.
        if had_home && before != known.home {
            known.moved_at = Some(at);
            known.pending_left = known.left.replace(before.clone());
        }
        if let Some(kind) = change.kind {
            known.bound = Some(change.cpus);
            known.moved_at = Some(at);
            known.pending = Some(before);
            known.moves += u64::from(had_home);
            if matches!(kind, MoveKind::LoadSwap | MoveKind::LocalitySwap) {
                known.swapped_at = Some(at);
            }
        } else {
            known.bound = None;
        }
    }
}
