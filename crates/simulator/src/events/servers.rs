//! What works on several actors at equal speed: a class of memory work, a core, an uplink, the
//! passing of time.
//!
//! All customers of a server progress alike, so each has only a mark on the server's own clock at
//! which it is done. A change of speed then costs one number for each server, not one for each
//! actor.

use std::collections::BTreeSet;

/// A server, by its index in [`Servers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ServerId(pub(super) u32);

#[derive(Debug, Default)]
struct Server {
    /// Work done so far for each customer that was there from the start.
    clock: f64,
    /// Work per nanosecond and customer.
    rate: f64,
    /// Clock at which it is done, as bits (they are in order, being of numbers from 0), and the
    /// actor.
    queue: BTreeSet<(u64, u32)>,
}

/// All servers, and which of them have customers.
#[derive(Debug, Default)]
pub(super) struct Servers {
    servers: Vec<Server>,
    busy: Vec<ServerId>,
}

/// Two ends nearer to each other than this share of the clock are one moment: what started alike
/// must end alike.
const SAME: f64 = 1e-12;

impl Servers {
    pub(super) fn add(&mut self, rate: f64) -> ServerId {
        self.servers.push(Server { rate, ..Server::default() });
        ServerId(self.servers.len() as u32 - 1)
    }

    pub(super) fn set_rate(&mut self, id: ServerId, rate: f64) {
        self.servers[id.0 as usize].rate = rate;
    }

    pub(super) fn customers(&self, id: ServerId) -> usize {
        self.servers[id.0 as usize].queue.len()
    }

    /// Lets `actor` in with this much work; the mark by which [`Servers::leave`] finds it.
    pub(super) fn enter(&mut self, id: ServerId, actor: u32, work: f64) -> u64 {
        let server = &mut self.servers[id.0 as usize];
        if server.queue.is_empty() {
            // A clock that starts again keeps its precision over runs of any length.
            server.clock = 0.0;
            self.busy.push(id);
        }
        let mark = (server.clock + work).to_bits();
        server.queue.insert((mark, actor));
        mark
    }

    /// Lets it out before it is done; what is left of its work.
    pub(super) fn leave(&mut self, id: ServerId, actor: u32, mark: u64) -> f64 {
        let server = &mut self.servers[id.0 as usize];
        server.queue.remove(&(mark, actor));
        let left = (f64::from_bits(mark) - server.clock).max(0.0);
        self.rest(id);
        left
    }

    /// Nanoseconds to the next end; infinite where nothing will end.
    pub(super) fn next_ns(&self) -> f64 {
        let ends = self.busy.iter().map(|id| {
            let server = &self.servers[id.0 as usize];
            let mark = server.queue.first().map_or(f64::INFINITY, |(mark, _)| f64::from_bits(*mark));
            (mark - server.clock).max(0.0) / server.rate
        });
        ends.fold(f64::INFINITY, f64::min)
    }

    /// Lets this much time pass and puts the actors whose work ended then into `done`, in their
    /// order.
    pub(super) fn pass(&mut self, ns: f64, done: &mut Vec<u32>) {
        done.clear();
        for index in (0..self.busy.len()).rev() {
            let id = self.busy[index];
            let server = &mut self.servers[id.0 as usize];
            server.clock += server.rate * ns;
            let now = server.clock * (1.0 + SAME);
            while let Some(&(mark, actor)) = server.queue.first().filter(|(mark, _)| f64::from_bits(*mark) <= now) {
                server.queue.remove(&(mark, actor));
                done.push(actor);
            }
            self.rest(id);
        }
        done.sort_unstable();
    }

    fn rest(&mut self, id: ServerId) {
        if self.servers[id.0 as usize].queue.is_empty() {
            self.busy.retain(|busy| *busy != id);
        }
    }
}
