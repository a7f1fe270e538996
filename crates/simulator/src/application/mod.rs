//! How long a parallel application runs: `T = f (serial + compute / capacity + memory) + waits`.
//!
//! [`BusyCores`] says how many cores have one and two busy hardware threads, [`Team`] where the
//! processes run and whose memory they use, [`time`] what follows. Published machines and figures
//! are not known here.

mod busy_cores;
mod drift;
mod time;

pub use busy_cores::BusyCores;
pub use drift::local_share;
pub use time::{OtherVms, Team, Time, time, utilisation};
