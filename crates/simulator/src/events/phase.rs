//! What actors do, one phase after the other.

/// Memory work of one kind, given by [`Simulation::memory`](super::Simulation::memory).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub(crate) u32);

/// A barrier, given by [`Simulation::barrier`](super::Simulation::barrier).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub(crate) u32);

/// A shared way for messages, given by [`Simulation::uplink`](super::Simulation::uplink).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UplinkId(pub(crate) u32);

/// What an actor does until it is done with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// Work on its core.
    Compute {
        /// Nanoseconds that it takes while no other thread uses the core.
        ns: f64,
    },
    /// Lines moved between its core and memory, at the rate that the machine gives at each moment.
    Memory {
        /// What kind: which stations, how many lines in flight.
        memory: MemoryId,
        /// How many lines.
        lines: f64,
    },
    /// Waits until all parties have come.
    Barrier {
        /// Where they meet.
        barrier: BarrierId,
    },
    /// Waits until all parties have come; then the one that was added first works alone, and the
    /// others wait for it too.
    Serial {
        /// Where they meet.
        barrier: BarrierId,
        /// Nanoseconds of core work. Those of the one that works count.
        ns: f64,
    },
    /// Waits for a message. The core is free meanwhile.
    Message {
        /// Time before the first byte, in nanoseconds.
        latency_ns: f64,
        /// Bytes that follow over the uplink; 0 where the time is all.
        bytes: f64,
        /// What they go over; those that use it at the same time get equal shares. Without one the
        /// latency is all.
        uplink: Option<UplinkId>,
    },
}

/// One software thread on a hardware thread.
pub struct Actor<'a> {
    /// Its core. Actors with the same number share a core: its lines in flight and, under SMT, its
    /// speed.
    pub core: u32,
    /// What it does, in order. Any iterator: a list, or one that makes phases up as it goes, such
    /// as [`PageWalk`](crate::PageWalk).
    pub phases: Box<dyn Iterator<Item = Phase> + 'a>,
}

impl<'a> Actor<'a> {
    /// An actor on `core`.
    pub fn new<I>(core: u32, phases: I) -> Self
    where
        I: IntoIterator<Item = Phase>,
        I::IntoIter: 'a,
    {
        Self { core, phases: Box::new(phases.into_iter()) }
    }
}
