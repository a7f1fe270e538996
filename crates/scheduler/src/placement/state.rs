//! A placement under construction whose cost is kept up to date as homes are given and taken away.

use super::Problem;
use super::cost::{Cost, Lost, NodeCost};
use super::homes::{CpuHome, WHOLE};
use vm::spec::Spread;

/// Clients with homes so far. Memory is taken to lie in equal parts on the nodes of its home; what
/// a node lacks is charged at the least that it can cost to have it elsewhere. The division itself
/// is made once all have homes.
#[derive(Clone)]
pub(crate) struct State<'a> {
    problem: &'a Problem<'a>,
    homes: Vec<Option<&'a CpuHome>>,
    micro: Vec<u64>,
    bytes: Vec<u64>,
    clients: Vec<u32>,
    traffic: Vec<u64>,
    parts: Vec<u32>,
    costs: Vec<NodeCost>,
    sums: Sums,
    /// What pairs that are not both placed cost at least by distance.
    rest: u128,
    /// Of all that is placed: parts times extra distance from each node.
    to: Vec<u64>,
    /// Of all that is placed: vCPUs times extra distance to each node.
    from: Vec<u64>,
}

/// What a node holds of the VM: millionths of vCPUs, bytes, clients, bytes a second, parts of
/// groups.
#[derive(Clone, Copy, Debug)]
struct Held {
    micro: u64,
    bytes: u64,
    clients: u32,
    traffic: u64,
    parts: u32,
}

/// Sums over nodes and clients.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    stacked: u64,
    cpu_twice: u64,
    guessed_twice: u64,
    cards: u64,
    bandwidth: u64,
    caches: u64,
    crowding: u64,
    /// Bytes that nodes lack, each times the extra distance to the nearest other memory.
    short: u128,
    /// vCPUs times extra distance to memory in equal parts, inside homes of several nodes.
    inner: u64,
    /// vCPUs times parts of other clients times extra distance.
    siblings: u128,
    /// The same, for the difference from what the guest was told.
    misled: u128,
    /// Nodes in use.
    used: u32,
}

impl<'a> State<'a> {
    /// Nothing placed yet.
    pub(crate) fn new(problem: &'a Problem<'a>) -> Self {
        let (nodes, clients) = (problem.host.nodes.len(), problem.demands.len());
        Self {
            problem,
            homes: vec![None; clients],
            micro: vec![0; nodes],
            bytes: vec![0; nodes],
            clients: vec![0; nodes],
            traffic: vec![0; nodes],
            parts: vec![0; nodes],
            costs: vec![NodeCost::default(); nodes],
            sums: Sums::default(),
            rest: problem.least_of_pairs.iter().flatten().sum::<u128>() / 2,
            to: vec![0; nodes],
            from: vec![0; nodes],
        }
    }

    /// The home of each client.
    pub(crate) fn homes(&self) -> &[Option<&'a CpuHome>] {
        &self.homes
    }

    /// Millionths of vCPUs, bytes and traffic by node: where they are equal, so is the placement
    /// but for the names of its clients.
    pub(crate) fn loads(&self) -> (&[u64], &[u64], &[u64]) {
        (&self.micro, &self.bytes, &self.traffic)
    }

    /// The cost of what is placed so far; the last of its fields is left to the division of memory.
    pub(crate) fn estimate(&self) -> Cost {
        self.cost(&self.sums, true)
    }

    /// A cost that no completion of this placement can beat.
    pub(crate) fn bound(&self) -> Cost {
        let lost = self.lost_of(&self.sums, self.problem.one_node_each);
        let by_distance = |sum: u128| self.problem.rates.siblings(sum, WHOLE, self.problem.demands.len());
        let misled = by_distance(self.sums.misled);
        let siblings = by_distance(self.sums.siblings + self.rest + self.sums.misled) - misled;
        let cost = self.cost_from(&self.sums, &Lost { siblings, misled, ..lost });
        if self.problem.spread.keeps_apart() { Cost { unused: 0, ..cost } } else { cost }
    }

    /// The estimate if `client` had this home; it must have none.
    pub(crate) fn estimate_with(&self, client: usize, home: &CpuHome) -> Cost {
        let mut sums = self.sums;
        for (&node, &micro) in home.nodes.iter().zip(&home.micro) {
            self.change(&mut sums, node, self.with(client, home, node, micro));
        }
        sums.siblings += self.siblings(home);
        sums.misled += self.misled(client, home);
        sums.inner += self.problem.inner(home);
        self.cost(&sums, true)
    }

    /// CPU time that is lost, without what the division of memory says.
    pub(crate) fn lost(&self) -> Lost {
        self.lost_of(&self.sums, false)
    }

    /// Gives `client` a home; it must have none.
    pub(crate) fn give(&mut self, client: usize, home: &'a CpuHome) {
        for (&node, &micro) in home.nodes.iter().zip(&home.micro) {
            self.load(node, self.with(client, home, node, micro));
        }
        self.sums.siblings += self.siblings(home);
        self.sums.misled += self.misled(client, home);
        self.sums.inner += self.problem.inner(home);
        self.add_distances(home, true);
        self.rest -= self.least_with_placed(client);
        self.homes[client] = Some(home);
    }

    /// Takes the home of `client` away.
    pub(crate) fn take(&mut self, client: usize) -> Option<&'a CpuHome> {
        let home = self.homes[client].take()?;
        let [memory, traffic] = self.shares(client, home);
        for (&node, &micro) in home.nodes.iter().zip(&home.micro) {
            let held = self.held(node);
            let left = Held {
                micro: held.micro - micro,
                bytes: held.bytes - memory,
                clients: held.clients - 1,
                traffic: held.traffic - traffic,
                parts: held.parts - self.problem.parts(client, home),
            };
            self.load(node, left);
        }
        self.add_distances(home, false);
        self.rest += self.least_with_placed(client);
        self.sums.siblings -= self.siblings(home);
        self.sums.misled -= self.misled(client, home);
        self.sums.inner -= self.problem.inner(home);
        Some(home)
    }

    /// Memory and traffic of a client on each node of a home: in equal parts.
    fn shares(&self, client: usize, home: &CpuHome) -> [u64; 2] {
        let (memory, traffic) = (self.problem.near[client], self.problem.demands[client].traffic);
        [memory, traffic].map(|all| all / home.nodes.len() as u64)
    }

    /// What a node holds of the VM.
    fn held(&self, node: usize) -> Held {
        let (micro, bytes) = (self.micro[node], self.bytes[node]);
        Held { micro, bytes, clients: self.clients[node], traffic: self.traffic[node], parts: self.parts[node] }
    }

    /// The same with a client more, of which so many millionths of vCPUs are there.
    fn with(&self, client: usize, home: &CpuHome, node: usize, micro: u64) -> Held {
        let ([memory, traffic], held) = (self.shares(client, home), self.held(node));
        Held {
            micro: held.micro + micro,
            bytes: held.bytes + memory,
            clients: held.clients + 1,
            traffic: held.traffic + traffic,
            parts: held.parts + self.problem.parts(client, home),
        }
    }

    /// The cost of what is placed if this is what is lost.
    pub(crate) fn cost_of(&self, lost: &Lost) -> Cost {
        self.cost_from(&self.sums, lost)
    }

    fn cost(&self, sums: &Sums, with_short: bool) -> Cost {
        self.cost_from(sums, &self.lost_of(sums, with_short))
    }

    fn cost_from(&self, sums: &Sums, lost: &Lost) -> Cost {
        let cost = Cost { stacked: sums.stacked, misled: lost.misled, crowding: sums.crowding, ..Cost::default() };
        let cost = match self.problem.spread {
            Spread::Apart | Spread::MostVirtualNodes => {
                let unused = self.problem.cpu_nodes - sums.used;
                let counted = lost.cpu + lost.memory + lost.cards + lost.bandwidth + lost.caches;
                Cost { lost: counted, unused, apart: lost.siblings + lost.misled, ..cost }
            }
            Spread::Auto => Cost { lost: lost.all() + lost.charged(), ..cost },
            Spread::Together => {
                Cost { lost: lost.beside_bandwidth() + lost.charged(), bandwidth: lost.bandwidth, ..cost }
            }
        };
        cost.rounded()
    }

    fn lost_of(&self, sums: &Sums, with_short: bool) -> Lost {
        let problem = self.problem;
        // Without the division, memory inside a home of several nodes may also lie better than in
        // equal parts.
        let memory = if with_short { problem.rates.memory(sums.inner + problem.short_micro(sums.short)) } else { 0 };
        let by_distance = |sum: u128| problem.rates.siblings(sum, WHOLE, problem.demands.len());
        let siblings = by_distance(sums.siblings);
        // Rounded as one sum: what is saved by nearness and charged as difference is the same.
        let misled = by_distance(sums.siblings + sums.misled) - siblings;
        let Sums { cards, bandwidth, caches, .. } = *sums;
        let (cpu, guessed) = (sums.cpu_twice / 2, sums.guessed_twice / 2);
        Lost { cpu, guessed, memory, siblings, cards, bandwidth, misled, caches }
    }

    fn load(&mut self, node: usize, held: Held) {
        let mut sums = self.sums;
        self.costs[node] = self.change(&mut sums, node, held);
        self.sums = sums;
        (self.micro[node], self.bytes[node], self.clients[node]) = (held.micro, held.bytes, held.clients);
        (self.traffic[node], self.parts[node]) = (held.traffic, held.parts);
    }

    /// What the sums are when a node holds this instead of its own; the node's new cost.
    fn change(&self, sums: &mut Sums, node: usize, held: Held) -> NodeCost {
        let Held { micro, bytes, clients, traffic, parts } = held;
        let problem = self.problem;
        let own = &problem.host.nodes[node];
        let before = self.costs[node];
        let caches = problem.least_under.as_ref().map_or(0, |least| least.lost(node, parts));
        let after = NodeCost::of(own, problem.host.prefer_ht, &problem.rates, (micro, traffic, caches));
        sums.stacked = sums.stacked + after.stacked - before.stacked;
        sums.cpu_twice = sums.cpu_twice + after.cpu_twice - before.cpu_twice;
        sums.guessed_twice = sums.guessed_twice + after.guessed_twice - before.guessed_twice;
        sums.cards = sums.cards + after.cards - before.cards;
        sums.bandwidth = sums.bandwidth + after.bandwidth - before.bandwidth;
        sums.caches = sums.caches + after.caches - before.caches;
        sums.crowding = sums.crowding + after.crowding - before.crowding;
        let short = |bytes: u64| u128::from(bytes.saturating_sub(own.available)) * u128::from(problem.nearest[node]);
        sums.short = sums.short + short(bytes) - short(self.bytes[node]);
        sums.used = sums.used + u32::from(clients > 0) - u32::from(self.clients[node] > 0);
        after
    }

    /// Distances between `home` and the home of every client that has one, both ways.
    fn siblings(&self, home: &CpuHome) -> u128 {
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        let on = |((&node, &micro), &part): ((&usize, &u64), &u64)| {
            product(micro, self.to[node]) + product(part, self.from[node])
        };
        home.nodes.iter().zip(&home.micro).zip(&home.part).map(on).sum()
    }

    /// What `client` at `home` and every client that has a home are charged for the difference from
    /// what the guest was told of each other.
    fn misled(&self, client: usize, home: &CpuHome) -> u128 {
        let Some(told) = self.problem.told else { return 0 };
        let real = &self.problem.host.extra;
        let with = |(other, there): (usize, &Option<&CpuHome>)| {
            let (one, other) = ((client, home), (other, (*there)?));
            Some(told.difference(real, one, other) + told.difference(real, other, one))
        };
        self.homes.iter().enumerate().filter_map(with).sum()
    }

    /// What `client` and every client that has a home cost at least by distance.
    fn least_with_placed(&self, client: usize) -> u128 {
        let Some(row) = self.problem.least_of_pairs.get(client) else { return 0 };
        self.homes.iter().zip(row).filter(|(home, _)| home.is_some()).map(|(_, least)| least).sum()
    }

    fn add_distances(&mut self, home: &CpuHome, add: bool) {
        let signed = |sum: u64, amount: u64| if add { sum + amount } else { sum - amount };
        let extra = &self.problem.host.extra;
        for ((&own, &micro), &part) in home.nodes.iter().zip(&home.micro).zip(&home.part) {
            for (node, (to, from)) in self.to.iter_mut().zip(&mut self.from).enumerate() {
                *to = signed(*to, part * extra[node][own]);
                *from = signed(*from, micro * extra[own][node]);
            }
        }
    }
}
