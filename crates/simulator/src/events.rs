//! A run over phases: actors compute, move lines, meet at barriers, send and wait; whatever they
//! share is shared out again at each change.
//!
//! ```
//! use simulator::events::{Actor, Phase, Simulation};
//! use simulator::{Amva, Group, StationId};
//!
//! let mut run = Simulation::new(1, Amva::default());
//! // A load of 64 ns, 4 of them at the one memory controller, 10 at a time.
//! let local = run.memory(&Group {
//!     actors: 1.0,
//!     lines_in_flight: 10.0,
//!     latency_ns: 64.0,
//!     core_ns: 0.0,
//!     demands: vec![(StationId(0), 4.0)],
//! })?;
//! let all = run.barrier(2);
//! for core in 0..2 {
//!     let phases = vec![
//!         Phase::Compute { ns: 500.0 },
//!         Phase::Memory { memory: local, lines: 1000.0 },
//!         Phase::Barrier { barrier: all },
//!     ];
//!     run.actor(Actor::new(core, phases));
//! }
//! let outcome = run.run()?;
//! assert!(outcome.end_ns > 500.0 + 1000.0 * 6.4);
//! # Ok::<(), simulator::events::RunError>(())
//! ```

mod cores;
mod outcome;
mod phase;
mod servers;
mod simulation;

pub use outcome::{Limits, Outcome, RunError, Times};
pub use phase::{Actor, BarrierId, MemoryId, Phase, UplinkId};
pub use simulation::Simulation;
