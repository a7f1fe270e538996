//! The loop: rates for what is at work, the next end, what the actors do after it.

use super::cores::{Core, MemoryKinds};
use super::outcome::{Limits, Outcome, RunError, Times};
use super::phase::{Actor, BarrierId, MemoryId, Phase, UplinkId};
use super::servers::{ServerId, Servers};
use crate::{Group, Memo, RateSolver};
use std::collections::{BTreeMap, VecDeque};

/// States of the machine that a run keeps solved.
const KNOWN_STATES: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Computing,
    /// Works alone while the other parties of this barrier wait.
    Serial(BarrierId),
    Moving(MemoryId, f64),
    /// Before the first byte of a message.
    Latency(Option<UplinkId>, f64),
    Transfer,
    Waiting,
    Done,
}

struct Running<'a> {
    actor: Actor<'a>,
    doing: Doing,
    /// Where its work is done, and its mark there.
    at: Option<(ServerId, u64)>,
    since_ns: f64,
    times: Times,
}

#[derive(Debug, Default)]
struct Barrier {
    parties: u32,
    /// Who is there, and the serial part that each brought.
    here: BTreeMap<u32, Option<f64>>,
}

/// A machine, what runs on it, and the time.
pub struct Simulation<'a, S> {
    solver: Memo<S>,
    smt_yield: f64,
    memory: MemoryKinds,
    servers: Servers,
    delay: ServerId,
    cores: BTreeMap<u32, Core>,
    uplinks: Vec<(ServerId, f64)>,
    barriers: Vec<Barrier>,
    actors: Vec<Running<'a>>,
    now_ns: f64,
    is_changed: bool,
    rates: Vec<f64>,
    /// Who takes its next phase up before time goes on.
    ready: VecDeque<u32>,
    events: u64,
    changes: u64,
}

impl<'a, S: RateSolver> Simulation<'a, S> {
    /// Nothing runs yet, on a machine with this many stations.
    pub fn new(stations: usize, solver: S) -> Self {
        let mut servers = Servers::default();
        let delay = servers.add(1.0);
        Self {
            solver: Memo::new(solver, KNOWN_STATES),
            smt_yield: 1.0,
            memory: MemoryKinds::new(stations),
            servers,
            delay,
            cores: BTreeMap::new(),
            uplinks: Vec::new(),
            barriers: Vec::new(),
            actors: Vec::new(),
            now_ns: 0.0,
            is_changed: false,
            rates: Vec::new(),
            ready: VecDeque::new(),
            events: 0,
            changes: 0,
        }
    }

    /// What a core gets done with several threads that all need it, in units of one alone: 1 to 2.
    /// Without this, 1.
    pub fn set_smt_yield(&mut self, smt_yield: f64) {
        self.smt_yield = smt_yield;
    }

    /// A kind of memory work: that of one thread which has its core for itself. The number of
    /// actors in it is left out. Threads of a core that move lines at the same time share its lines
    /// in flight, and its core time costs more while the core is shared.
    ///
    /// # Errors
    /// The group holds an impossible value.
    pub fn memory(&mut self, alone: &Group) -> Result<MemoryId, RunError> {
        Ok(self.memory.add(alone, &mut self.servers)?)
    }

    /// A meeting point of this many actors. It can be used again and again.
    pub fn barrier(&mut self, parties: u32) -> BarrierId {
        self.barriers.push(Barrier { parties, ..Barrier::default() });
        BarrierId(self.barriers.len() as u32 - 1)
    }

    /// A shared way for messages that carries this much, in GB/s (10^9; the same as bytes in a
    /// nanosecond).
    pub fn uplink(&mut self, gb_per_s: f64) -> UplinkId {
        self.uplinks.push((self.servers.add(gb_per_s), gb_per_s));
        UplinkId(self.uplinks.len() as u32 - 1)
    }

    /// Adds an actor; its number, from 0.
    pub fn actor(&mut self, actor: Actor<'a>) -> u32 {
        let id = self.actors.len() as u32;
        if !self.cores.contains_key(&actor.core) {
            let server = self.servers.add(1.0);
            self.cores.insert(actor.core, Core { actors: Vec::new(), server, users: 0, movers: 0 });
        }
        if let Some(core) = self.cores.get_mut(&actor.core) {
            core.actors.push(id);
        }
        self.actors.push(Running { actor, doing: Doing::Waiting, at: None, since_ns: 0.0, times: Times::default() });
        id
    }

    /// Runs all actors to the end of their phases.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn run(self) -> Result<Outcome, RunError> {
        self.run_within(Limits::default())
    }

    /// Runs until all are done or a limit is reached.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn run_within(mut self, limits: Limits) -> Result<Outcome, RunError> {
        let mut done: Vec<u32> = Vec::new();
        self.ready.extend(0..self.actors.len() as u32);
        loop {
            while let Some(actor) = self.ready.pop_front() {
                self.next_phase(actor)?;
                if self.events > limits.most_events {
                    return Err(RunError::TooManyEvents { events: self.events });
                }
            }
            self.share_out()?;
            let step_ns = self.servers.next_ns();
            if step_ns.is_infinite() {
                break;
            }
            if self.now_ns + step_ns > limits.end_ns {
                self.now_ns = limits.end_ns;
                return Ok(self.outcome(true));
            }
            self.now_ns += step_ns;
            self.servers.pass(step_ns, &mut done);
            for &actor in &done {
                self.finish(actor)?;
            }
            self.events += done.len() as u64;
        }
        let waiting = self.actors.iter().zip(0..).filter(|(actor, _)| actor.doing != Doing::Done).map(|(_, id)| id);
        let waiting: Vec<u32> = waiting.collect();
        if !waiting.is_empty() {
            return Err(RunError::Deadlock { at_ns: self.now_ns, actors: waiting });
        }
        Ok(self.outcome(false))
    }

    fn outcome(mut self, is_cut: bool) -> Outcome {
        if is_cut {
            for id in 0..self.actors.len() {
                let actor = &mut self.actors[id];
                if actor.doing != Doing::Done {
                    book(actor, self.now_ns);
                    actor.times.end_ns = self.now_ns;
                }
            }
        }
        Outcome {
            end_ns: self.now_ns,
            actors: self.actors.iter().map(|actor| actor.times).collect(),
            events: self.events,
            changes: self.changes,
            solved: self.solver.solved(),
        }
    }

    /// New rates where what moves lines has changed.
    fn share_out(&mut self) -> Result<(), RunError> {
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        self.memory.count(&self.servers);
        self.changes += 1;
        self.solver
            .rates(&self.memory.classes, &self.memory.active, &mut self.rates)
            .map_err(|error| RunError::Rates { at_ns: self.now_ns, error })?;
        for (active, rate) in self.memory.active.iter().zip(&self.rates) {
            self.servers.set_rate(self.memory.server_of(active.class), *rate);
        }
        Ok(())
    }

    /// The work of an actor has ended: a message's bytes follow its latency, the others of a serial
    /// part go on, else the next phase.
    fn finish(&mut self, id: u32) -> Result<(), RunError> {
        let at = id as usize;
        self.actors[at].at = None;
        let doing = self.actors[at].doing;
        if let Doing::Latency(Some(uplink), bytes) = doing
            && bytes > 0.0
        {
            book(&mut self.actors[at], self.now_ns);
            self.actors[at].doing = Doing::Transfer;
            self.join_uplink(id, uplink, bytes);
            return Ok(());
        }
        self.stop(id)?;
        if let Doing::Serial(barrier) = doing {
            self.open(barrier, Some(id));
        }
        self.ready.push_back(id);
        Ok(())
    }

    /// Takes an actor from what it did.
    fn stop(&mut self, id: u32) -> Result<(), RunError> {
        let running = &mut self.actors[id as usize];
        book(running, self.now_ns);
        let doing = running.doing;
        let number = running.actor.core;
        match doing {
            Doing::Moving(_, lines) => running.times.lines += lines,
            Doing::Transfer => self.even_uplinks(),
            _ => {}
        }
        self.occupy(number, doing, -1)
    }

    /// Takes the next phase of an actor up.
    fn next_phase(&mut self, id: u32) -> Result<(), RunError> {
        let running = &mut self.actors[id as usize];
        let Some(phase) = running.actor.phases.next() else {
            running.doing = Doing::Done;
            running.times.end_ns = self.now_ns;
            return Ok(());
        };
        self.check(id, &phase)?;
        match phase {
            Phase::Compute { ns } => self.compute(id, Doing::Computing, ns),
            Phase::Memory { memory, lines } => {
                self.actors[id as usize].doing = Doing::Moving(memory, lines);
                let number = self.actors[id as usize].actor.core;
                self.occupy(number, Doing::Moving(memory, lines), 1)?;
                let server = self.memory_server(number, memory)?;
                self.enter(id, server, lines);
                Ok(())
            }
            Phase::Message { latency_ns, bytes, uplink } => {
                self.actors[id as usize].doing = Doing::Latency(uplink, bytes);
                self.enter(id, self.delay, latency_ns);
                Ok(())
            }
            Phase::Barrier { barrier } => self.arrive(id, barrier, None),
            Phase::Serial { barrier, ns } => self.arrive(id, barrier, Some(ns)),
        }
    }

    fn compute(&mut self, id: u32, doing: Doing, ns: f64) -> Result<(), RunError> {
        self.actors[id as usize].doing = doing;
        let number = self.actors[id as usize].actor.core;
        self.occupy(number, doing, 1)?;
        if let Some(core) = self.cores.get(&number) {
            self.enter(id, core.server, ns);
        }
        Ok(())
    }

    fn arrive(&mut self, id: u32, barrier: BarrierId, serial: Option<f64>) -> Result<(), RunError> {
        self.actors[id as usize].doing = Doing::Waiting;
        let meeting = &mut self.barriers[barrier.0 as usize];
        meeting.here.insert(id, serial);
        if (meeting.here.len() as u32) < meeting.parties {
            return Ok(());
        }
        let first = meeting.here.first_key_value().map(|(first, serial)| (*first, *serial));
        if let Some((first, Some(ns))) = first {
            book(&mut self.actors[first as usize], self.now_ns);
            return self.compute(first, Doing::Serial(barrier), ns);
        }
        self.open(barrier, None);
        Ok(())
    }

    /// Lets all parties but `worked` go on.
    fn open(&mut self, barrier: BarrierId, worked: Option<u32>) {
        let here = std::mem::take(&mut self.barriers[barrier.0 as usize].here);
        for &id in here.keys().filter(|id| Some(**id) != worked) {
            book(&mut self.actors[id as usize], self.now_ns);
            self.events += 1;
            self.ready.push_back(id);
        }
    }

    fn enter(&mut self, id: u32, server: ServerId, work: f64) {
        let mark = self.servers.enter(server, id, work);
        self.actors[id as usize].at = Some((server, mark));
    }

    fn join_uplink(&mut self, id: u32, uplink: UplinkId, bytes: f64) {
        self.enter(id, self.uplinks[uplink.0 as usize].0, bytes);
        self.even_uplinks();
    }

    /// Equal shares for those that use an uplink.
    fn even_uplinks(&mut self) {
        for &(server, gb_per_s) in &self.uplinks {
            self.servers.set_rate(server, gb_per_s / self.servers.customers(server).max(1) as f64);
        }
    }

    fn memory_server(&mut self, number: u32, memory: MemoryId) -> Result<ServerId, RunError> {
        let Some(core) = self.cores.get(&number) else { return Ok(self.delay) };
        let server = self.memory.server(memory, core, self.smt_yield, &mut self.servers);
        server.map_err(|error| RunError::Rates { at_ns: self.now_ns, error })
    }

    /// One more (or one less) on a core does this; the others on it feel it.
    fn occupy(&mut self, number: u32, doing: Doing, change: i32) -> Result<(), RunError> {
        let (uses_core, moves) = match doing {
            Doing::Computing | Doing::Serial(_) => (true, false),
            Doing::Moving(memory, _) => (self.memory.uses_core(memory), true),
            _ => return Ok(()),
        };
        self.is_changed |= moves;
        let Some(core) = self.cores.get_mut(&number) else { return Ok(()) };
        core.users = core.users.saturating_add_signed(change * i32::from(uses_core));
        core.movers = core.movers.saturating_add_signed(change * i32::from(moves));
        self.servers.set_rate(core.server, core.speed(self.smt_yield));
        if core.actors.len() == 1 {
            return Ok(());
        }
        for sibling in core.actors.clone() {
            if let (Doing::Moving(memory, _), Some((server, mark))) =
                (self.actors[sibling as usize].doing, self.actors[sibling as usize].at)
            {
                let now = self.memory_server(number, memory)?;
                if now != server {
                    let left = self.servers.leave(server, sibling, mark);
                    self.enter(sibling, now, left);
                    self.is_changed = true;
                }
            }
        }
        Ok(())
    }

    fn check(&self, actor: u32, phase: &Phase) -> Result<(), RunError> {
        let wrong = |field, value, valid| Err(RunError::Phase { actor, field, value, valid });
        let amounts: [(&'static str, f64); 2] = match *phase {
            Phase::Compute { ns } | Phase::Serial { ns, .. } => [("ns", ns), ("ns", ns)],
            Phase::Memory { lines, .. } => [("lines", lines), ("lines", lines)],
            Phase::Message { latency_ns, bytes, .. } => [("latency_ns", latency_ns), ("bytes", bytes)],
            Phase::Barrier { .. } => return Ok(()),
        };
        if let Some((field, value)) = amounts.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            return wrong(field, value, "a finite number from 0");
        }
        match *phase {
            Phase::Memory { memory, .. } if !self.memory.knows(memory) => {
                wrong("memory", f64::from(memory.0), "one that this simulation gave")
            }
            _ => Ok(()),
        }
    }
}

/// Writes down how the actor spent the time since it was last written down.
fn book(running: &mut Running<'_>, now_ns: f64) {
    let spent = now_ns - std::mem::replace(&mut running.since_ns, now_ns);
    let times = &mut running.times;
    match running.doing {
        Doing::Computing | Doing::Serial(_) => times.compute_ns += spent,
        Doing::Moving(..) => times.memory_ns += spent,
        Doing::Latency(..) | Doing::Transfer => times.message_ns += spent,
        Doing::Waiting => times.barrier_ns += spent,
        Doing::Done => {}
    }
}
