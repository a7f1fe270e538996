//! What the hardware threads of a core share: its speed and its lines in flight.

use super::phase::MemoryId;
use super::servers::{ServerId, Servers};
use crate::{Active, ClassId, Classes, Group, SolveError};

/// A core with its hardware threads.
#[derive(Debug)]
pub(super) struct Core {
    /// Its actors.
    pub(super) actors: Vec<u32>,
    /// Serves what computes on it.
    pub(super) server: ServerId,
    /// Threads that need the core now.
    pub(super) users: u32,
    /// Threads that move lines now.
    pub(super) movers: u32,
}

impl Core {
    /// Nanoseconds of work that each user gets done in a nanosecond: one alone has the core, more
    /// share what it yields.
    pub(super) fn speed(&self, smt_yield: f64) -> f64 {
        if self.users > 1 { (smt_yield / f64::from(self.users)).min(1.0) } else { 1.0 }
    }
}

/// Memory work by kind, and by how much of a core is left for it.
#[derive(Debug)]
pub(super) struct MemoryKinds {
    kinds: Vec<Kind>,
    pub(super) classes: Classes,
    /// Server of each class.
    servers: Vec<ServerId>,
    /// What moves lines now, by class.
    pub(super) active: Vec<Active>,
}

#[derive(Debug)]
struct Kind {
    alone: Group,
    /// Movers, users of the core, and the class that they make.
    variants: Vec<(u32, u32, ClassId)>,
}

impl MemoryKinds {
    pub(super) fn new(stations: usize) -> Self {
        Self { kinds: Vec::new(), classes: Classes::new(stations), servers: Vec::new(), active: Vec::new() }
    }

    pub(super) fn add(&mut self, group: &Group, servers: &mut Servers) -> Result<MemoryId, SolveError> {
        let class = self.class(group, servers)?;
        self.kinds.push(Kind { alone: group.clone(), variants: vec![(1, 1, class)] });
        Ok(MemoryId(self.kinds.len() as u32 - 1))
    }

    pub(super) fn knows(&self, id: MemoryId) -> bool {
        (id.0 as usize) < self.kinds.len()
    }

    /// Whether this work needs the core beside its lines in flight.
    pub(super) fn uses_core(&self, id: MemoryId) -> bool {
        self.kinds[id.0 as usize].alone.core_ns > 0.0
    }

    /// The server of this work on a core in this state.
    pub(super) fn server(
        &mut self,
        id: MemoryId,
        core: &Core,
        smt_yield: f64,
        servers: &mut Servers,
    ) -> Result<ServerId, SolveError> {
        let kind = &self.kinds[id.0 as usize];
        let movers = core.movers.max(1);
        let users = if kind.alone.core_ns > 0.0 { core.users.max(1) } else { 1 };
        if let Some((.., class)) = kind.variants.iter().find(|(m, u, _)| (*m, *u) == (movers, users)) {
            return Ok(self.servers[class.index()]);
        }
        // Line fill buffers belong to the core: each mover has its part of them, and none has less
        // than one.
        let lines_in_flight = (kind.alone.lines_in_flight / f64::from(movers)).max(1.0);
        let core_ns = kind.alone.core_ns / core.speed(smt_yield);
        let group = Group { lines_in_flight, core_ns, ..kind.alone.clone() };
        let class = self.class(&group, servers)?;
        self.kinds[id.0 as usize].variants.push((movers, users, class));
        Ok(self.servers[class.index()])
    }

    /// What moves lines now, in order of class, into [`MemoryKinds::active`].
    pub(super) fn count(&mut self, servers: &Servers) {
        self.active.clear();
        for (index, server) in self.servers.iter().enumerate() {
            let actors = servers.customers(*server);
            if actors > 0 {
                self.active.push(Active { class: ClassId(index as u32), actors: actors as f64 });
            }
        }
    }

    pub(super) fn server_of(&self, class: ClassId) -> ServerId {
        self.servers[class.index()]
    }

    fn class(&mut self, group: &Group, servers: &mut Servers) -> Result<ClassId, SolveError> {
        let class = self.classes.add(group)?;
        if class.index() == self.servers.len() {
            self.servers.push(servers.add(0.0));
        }
        Ok(class)
    }
}
