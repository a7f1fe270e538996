//! Keeping VMs at home: ESXi's NUMA rebalancing with its published weaknesses mended.
//! `step(state, observation) -> decisions`.
//!
//! **Problem.** VMs come, go, and change what they need. Each wants its CPUs and its memory on one
//! node, or on as few as hold it, beside others that want the same; and every change of home costs
//! its memory a copy.
//!
//! **Rule.** Each period: clients without a home get one (`homes`); at their own pace moves and
//! swaps for load (`load`, `widen`, `swaps`), for memory bandwidth (`bandwidth_moves`), then for
//! locality (`locality`, `siblings`), at the end of its window one for fairness (`fairness`);
//! inside homes groups of vCPUs go from one last-level cache to another (`caches`); memory follows
//! what was decided (`follow`). All are judged by the same thresholds (`judge`), and worth is
//! counted in CPUs (`loss`).
//!
//! **Properties.** A function of state and observation: the same in, the same out. What is unknown
//! leads to no move. A client moves once a period, and rests then. Under constant load moves come
//! to an end. `why` asks the same judges, so that it cannot say something else.
//!
//! **Example.** Node 0 has 8 cores and 10 busy vCPUs of two VMs, 8 and 2; node 1 idles. The VM of 2
//! gets node 1 as its home: one decision binds its vCPUs now, and its memory follows in chunks,
//! period by period.

mod bandwidth;
mod bandwidth_moves;
mod cache_scene;
mod caches;
mod check;
mod communication;
mod cpu_load;
mod decimal;
mod explanation;
mod fairness;
mod first_homes;
mod follow;
mod home;
mod judge;
mod level;
mod load;
mod loads;
mod locality;
mod loss;
mod node_scene;
mod plan;
mod policy;
mod queue;
mod record;
mod remember;
mod room;
mod scene;
mod shape;
mod siblings;
mod state;
mod swaps;
mod traffic;
mod why;
mod widen;

pub(crate) use bandwidth::{Drawn, lost as lost_at_passage};
pub use check::PolicyError;
pub use decimal::decimal;
pub use explanation::{CacheCandidate, Candidate, ClientExplanation, Explanation, GroupExplanation, Refusal};
pub use home::{Home, Homes, Next, homes};
pub(crate) use loss::{Crowding, crowding_of};
pub use policy::BalancePolicy;
pub use record::record;
pub use state::{BalanceState, ClientMemory, GroupMemory, Stuck, TrafficMemory, Trouble, VmMemory};
pub use why::why;

use crate::{Action, Observation};
use plan::{Changes, Planned};
use scene::Scene;
use serde::{Deserialize, Serialize};
use topology::Machine;

/// Why a client is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveKind {
    /// A VM that was not there before, or whose affinity is not that of a home, gets one.
    Adopt,
    /// From a loaded node to a less loaded one.
    Load,
    /// Two clients change places, for load.
    LoadSwap,
    /// To the node where its memory is.
    Locality,
    /// Two clients change places, for locality.
    LocalitySwap,
    /// Away from memory controllers that are asked for more than they give, alone or by changing
    /// places.
    Bandwidth,
    /// A VM that got less than its share for long.
    Fairness,
    /// Its node has no CPU or memory left: offline, or taken away.
    Evacuate,
    /// vCPUs from one last-level cache of their home to another.
    Cache,
    /// Memory follows its client.
    Follow,
}

/// An action with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// What to do.
    pub action: Action,
    /// What kind of move.
    pub kind: MoveKind,
    /// Why, as a sentence with figures.
    pub because: String,
}

/// One period: what to do now. The state takes the decisions for done; [`record`] corrects it where
/// one failed. The loop calls `record` for every decision that it carried out, before the next
/// step; a dry run works on a copy of the state.
pub fn step(
    machine: &Machine,
    policy: &BalancePolicy,
    state: &mut BalanceState,
    observation: &Observation,
) -> Vec<Decision> {
    let synced = remember::sync(machine, policy, state, observation);
    let mut scene = Scene::new(machine, policy, state, observation, &synced);
    let due = Due::now(&scene);
    let (decisions, changes) = decide(&mut scene, due);
    plan::apply(state, changes);
    decisions
}

/// Which passes have their turn in a period.
#[derive(Clone, Copy)]
struct Due {
    moves: bool,
    swaps: bool,
}

impl Due {
    /// All of them: whoever asks what is right does not ask whose turn it is.
    const ALL: Self = Self { moves: true, swaps: true };

    fn now(scene: &Scene<'_>) -> Self {
        let due = |periods: u32| periods > 0 && scene.steps.is_multiple_of(periods.into());
        Self { moves: due(scene.policy.move_periods), swaps: due(scene.policy.swap_periods) }
    }
}

fn decide(scene: &mut Scene<'_>, due: Due) -> (Vec<Decision>, Changes) {
    let mut planned = Vec::new();
    first_homes::settle(scene, &mut planned);
    let owed = fairness::accrue(scene);
    rebalance(scene, due, &mut planned);
    caches::pass(scene, due, &mut planned);
    let chunks = follow::chunks(scene);
    let (decisions, mut changes) = plan::write_down(scene, planned, chunks);
    (changes.owed, changes.window_ends) = (owed, fairness::window_ends(scene));
    (decisions, changes)
}

/// Whether the host is one that is rebalanced at all.
fn rebalances(scene: &Scene<'_>) -> bool {
    let cores: f64 = scene.nodes.iter().map(|node| node.cores).sum();
    scene.policy.rebalance && cores >= f64::from(scene.policy.least_cores_host) && scene.nodes_with_cpus() > 1
}

/// The passes of this period: fairness at the end of its window, moves and swaps at their own pace.
fn rebalance(scene: &mut Scene<'_>, due: Due, planned: &mut Vec<Planned>) {
    if !rebalances(scene) {
        return;
    }
    let mut budget = match scene.policy.moves_per_period {
        0 => u32::MAX,
        most => most,
    };
    if due.swaps || due.moves {
        load::pass(scene, &mut budget, planned);
        if due.swaps {
            swaps::load_pass(scene, &mut budget, planned);
        }
        bandwidth_moves::pass(scene, due.swaps, &mut budget, planned);
        let wanted = locality::pass(scene, &mut budget, planned);
        if due.swaps {
            swaps::locality_pass(scene, &wanted, &mut budget, planned);
            siblings::pass(scene, &mut budget, planned);
        }
    }
    fairness::pass(scene, &mut budget, planned);
}
