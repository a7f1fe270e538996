//! CPUs for every client on every node and under every cache, by the kernel's fair sharing.

use super::SimulatedHost;
use super::cpus::{Claim, share_over};
use super::rates::Kind;
use super::state::{ClientState, NodeState, ThreadSet};

/// CPUs that threads of one client use at one place, and the work that this is.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Index of the VM in the order of keys.
    pub(crate) vm: usize,
    pub(crate) client: usize,
    /// Index of its set of threads.
    pub(crate) set: usize,
    pub(crate) node: usize,
    pub(crate) place: usize,
    /// CPUs wanted.
    pub(crate) wanted: f64,
    /// CPUs got.
    pub(crate) cpus: f64,
    /// Busy cores that this is: fewer than CPUs where cores run two threads.
    pub(crate) cores: f64,
    /// Part of its traffic to each node's memory.
    pub(crate) mix: Vec<f64>,
    /// Lines in a nanosecond, all its cores together.
    pub(crate) lines_per_ns: f64,
    /// Part of these that hit in the last-level cache.
    pub(crate) hits: f64,
    /// What it is to the solver, while that works.
    pub(crate) kind: Option<Kind>,
}

/// Threads that claim CPUs of a node.
struct Claimant<'a> {
    vm: usize,
    client: usize,
    set: usize,
    clients: &'a [ClientState],
    claim: Claim,
    /// The only cache of the node under which they may run.
    bound: Option<usize>,
}

impl<'a> Claimant<'a> {
    fn threads(&self) -> &'a ThreadSet {
        &self.clients[self.client].sets[self.set]
    }
}

/// Part of a client's traffic to each node, from where its own and its siblings' memory lies.
fn mix(clients: &[ClientState], client: usize, nodes: usize) -> Vec<f64> {
    let own = &clients[client];
    let others = || clients.iter().enumerate().filter(|(index, _)| *index != client).map(|(_, other)| other);
    let (near, far) = (own.resident() as f64, others().map(ClientState::resident).sum::<u64>() as f64);
    let part = match (near > 0.0, far > 0.0) {
        (_, false) => 0.0,
        (false, true) => 1.0,
        (true, true) => own.shape.sibling_part,
    };
    let of = |bytes: f64, all: f64| if all > 0.0 { bytes / all } else { 0.0 };
    let on = |node: usize| {
        let siblings: u64 = others().map(|other| other.memory[node]).sum();
        (1.0 - part) * of(own.memory[node] as f64, near) + part * of(siblings as f64, far)
    };
    (0..nodes).map(on).collect()
}

impl SimulatedHost {
    /// CPUs that everybody gets. `copying`: CPUs that copy pages towards each node.
    pub(crate) fn shares(&self, copying: &[f64]) -> Vec<Share> {
        let mut shares = Vec::new();
        for (node, &copying) in copying.iter().enumerate() {
            let state = &self.nodes[node];
            let claimants = self.claimants(state);
            // Copying takes CPUs wherever they are.
            let online = (state.online.len() as f64).max(1.0);
            let copies = |place: usize| copying * (self.places[place].online.len() as f64 / online);
            let left = |place: usize| (self.places[place].online.len() as f64 - copies(place)).max(0.0);
            let claims: Vec<_> = claimants.iter().map(|claimant| (claimant.claim, claimant.bound)).collect();
            let given = share_over(&state.places.clone().map(left).collect::<Vec<_>>(), &claims);
            let first = shares.len();
            for (claimant, cpus) in claimants.iter().zip(given) {
                self.under_caches(node, claimant, cpus, &mut shares);
            }
            self.take_cores(&mut shares[first..], copies);
        }
        shares
    }

    fn claimants(&self, node: &NodeState) -> Vec<Claimant<'_>> {
        let mut claimants = Vec::new();
        for (vm, state) in self.vms.values().enumerate() {
            let (total, clients) = (state.demand(), &state.clients[..]);
            for (client, its) in clients.iter().enumerate() {
                let one = its.load_of_thread();
                for (set, threads) in its.sets.iter().enumerate() {
                    let demand = f64::from(threads.on(&node.places)) * one;
                    if demand > 0.0 {
                        let weight = f64::from(state.shape.shares.max(1)) * demand / total;
                        let claim = Claim { demand, most: f64::from(threads.room_on(&node.places)), weight };
                        let bound = threads.bound_to(&node.places).map(|place| place - node.places.start);
                        claimants.push(Claimant { vm, client, set, clients, claim, bound });
                    }
                }
            }
        }
        claimants
    }

    /// What a claimant got on a node, by the caches under which its threads run.
    fn under_caches(&self, node: usize, claimant: &Claimant<'_>, given: f64, shares: &mut Vec<Share>) {
        let (places, threads) = (&self.nodes[node].places, claimant.threads());
        let &Claimant { vm, client, set, .. } = claimant;
        let (on_node, mix) = (f64::from(threads.on(places)), mix(claimant.clients, client, self.nodes.len()));
        for place in places.clone().filter(|&place| threads.at[place] > 0) {
            let part = f64::from(threads.at[place]) / on_node;
            let (wanted, cpus) = (claimant.claim.demand * part, given * part);
            let (mix, cores, lines_per_ns, hits, kind) = (mix.clone(), 0.0, 0.0, 0.0, None);
            shares.push(Share { vm, client, set, node, place, wanted, cpus, cores, mix, lines_per_ns, hits, kind });
        }
    }

    /// Busy cores of each share: a cache's cores run a second thread once all have one.
    fn take_cores(&self, shares: &mut [Share], copies: impl Fn(usize) -> f64) {
        let mut busy = vec![0.0; self.places.len()];
        for share in shares.iter() {
            busy[share.place] += share.cpus;
        }
        for share in shares {
            let busy = busy[share.place] + copies(share.place);
            let cores = busy.min(self.places[share.place].cores());
            share.cores = if busy > 0.0 { share.cpus * cores / busy } else { 0.0 };
        }
    }
}
