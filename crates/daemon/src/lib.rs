//! What keeps VMs at home, period after period: the loop around [`scheduler::balance::step`], its
//! policy file, what it remembers over a restart, and what it records. It works on any
//! [`scheduler::Host`].

mod balancer;
mod error;
mod event;
mod instance;
mod journal;
mod ledger;
mod life;
mod policy_file;
mod record;
mod recording;
mod release;
mod rules;
mod run;
mod saved;
mod standing;
mod telling;
#[cfg(test)]
mod testing;

pub use balancer::{Balancer, Exchanges, Mode};
pub use error::DaemonError;
pub use event::{Event, Outcome, Period, PutRight};
pub use instance::{Instance, holder};
pub use ledger::{Ledger, Start};
pub use life::{Doing, Life, Watched};
pub use policy_file::{MemoryRule, Owner, PolicyFile, VmRule, glob};
pub use record::{ClientRecord, VmRecord};
pub use recording::{RecordedPeriod, Recorder, Recording, ReplayedPeriod};
pub use release::Released;
pub use rules::Rules;
pub use run::{Wake, run};
pub use saved::{OF_SERVICE, Restored, Saved, SavedFile};
pub use telling::{Line, Telling, sentence};
