//! What is solved: groups of cores on a shipped machine, of which one changes what it does at each
//! event.

use simulator::{Active, ClassId, Classes, CoreWork, Group, MachineModel, Profile};
use topology::NodeId;

/// Kinds of work that a group changes between.
const KINDS: usize = 8;

/// A machine and what its groups may do.
pub(crate) struct System {
    pub(crate) nodes: usize,
    pub(crate) stations: usize,
    /// Of each group, each kind of work.
    pub(crate) kinds: Vec<Vec<Group>>,
    pub(crate) classes: Classes,
    pub(crate) ids: Vec<Vec<ClassId>>,
}

/// A group takes another kind of work up.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) group: usize,
    pub(crate) kind: usize,
}

impl System {
    /// Groups in turn on the nodes; each kind has a memory mix and lines in flight of its own, so
    /// that no two groups are the same.
    pub(crate) fn new(machine: &str, groups: usize) -> Self {
        let described = topology::read::shipped_described(machine).expect("shipped").expect("valid");
        let model = MachineModel::new(&described.machine, &described.rates.expect("rates")).expect("a model");
        let nodes = described.machine.nodes.len();
        let mut random = Random(groups as u64);
        let kinds: Vec<Vec<Group>> = (0..groups)
            .map(|group| (0..KINDS).map(|_| kind(&model, nodes, group % nodes, &mut random)).collect())
            .collect();
        let mut classes = Classes::new(model.stations().len());
        let ids =
            kinds.iter().map(|kinds| kinds.iter().map(|kind| classes.add(kind).expect("valid")).collect()).collect();
        Self { nodes, stations: model.stations().len(), kinds, classes, ids }
    }

    /// The first kind of each group.
    pub(crate) fn start(&self) -> Vec<Active> {
        self.kinds.iter().zip(&self.ids).map(|(kinds, ids)| Active { class: ids[0], actors: kinds[0].actors }).collect()
    }

    pub(crate) fn apply(&self, event: Event, active: &mut [Active]) {
        let Event { group, kind } = event;
        active[group] = Active { class: self.ids[group][kind], actors: self.kinds[group][kind].actors };
    }

    /// The same for each call.
    pub(crate) fn events(&self, count: usize) -> Vec<Event> {
        let mut random = Random(7);
        (0..count).map(|_| Event { group: random.below(self.kinds.len()), kind: random.below(KINDS) }).collect()
    }
}

/// One to four cores of a node, its own memory and that of one or two others.
fn kind(model: &MachineModel, nodes: usize, home: usize, random: &mut Random) -> Group {
    let mut memory = vec![0.0; nodes];
    memory[home] += 1.0;
    for _ in 0..=random.below(2) {
        memory[random.below(nodes)] += random.share();
    }
    let sum: f64 = memory.iter().sum();
    let shares = memory.iter().zip(0..).filter(|(share, _)| **share > 0.0);
    let memory = shares.map(|(share, node)| (NodeId(node), share / sum)).collect();
    let work = CoreWork { node: NodeId(home as u32), llc: None, threads: 1, memory };
    let profile = Profile {
        lines_in_flight: 6.0 + 4.0 * random.share(),
        core_ns_per_line: 4.0 * random.share(),
        write_share: 1.0 / 3.0,
        counted_bytes_per_line: 128.0 / 3.0,
    };
    model.group(&profile, &work, 1.0 + random.below(4) as f64)
}

/// A linear congruential generator: any will do, so long as it is the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn share(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 31) as f64
    }
}
