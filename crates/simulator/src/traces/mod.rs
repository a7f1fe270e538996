//! Arrivals, departures and load over time: data, a generator from a seed, and the replay on a
//! host.
//!
//! A [`Trace`] is what VMs *want*; it holds no placement, so that every policy meets the same one.
//! It is written as a file, generated from a seed, or drawn from the looks of a recording
//! ([`RecordedTrace`]).

mod file;
mod generate;
mod memory;
mod random;
mod recorded;
mod replay;
mod traced;

pub use generate::TraceRule;
pub use memory::TraceTooLarge;
pub use random::Random;
pub use recorded::RecordedTrace;
pub use replay::Replay;
pub use traced::TracedHost;

use crate::host::{Phase, VmShape};
use scheduler::Moment;

/// VMs that come and go.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What to call it.
    pub name: String,
    /// The seed that it was generated from; absent for a trace of another origin.
    pub seed: Option<u64>,
    /// When it ends.
    pub ends: Moment,
    /// By moment of arrival.
    pub arrivals: Vec<Arrival>,
}

/// A VM that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When it starts.
    pub at: Moment,
    /// When it ends; absent: not before the trace.
    pub leaves: Option<Moment>,
    /// What it is.
    pub vm: VmShape,
}

/// What is wrong with a trace.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{trace}: {field}: {value}: {valid}")]
pub struct TraceError {
    /// The trace's name.
    pub trace: String,
    /// Which field, for example `arrival[3].vm.clients[0].vcpus`.
    pub field: String,
    /// What it holds.
    pub value: String,
    /// What would be valid.
    pub valid: &'static str,
}

impl Trace {
    /// Checks what a file may hold wrongly.
    ///
    /// # Errors
    /// The first value that cannot be run, with its place.
    pub fn check(&self) -> Result<(), TraceError> {
        let mut last = Moment(0);
        for (index, arrival) in self.arrivals.iter().enumerate() {
            let at = format!("arrival[{index}]");
            self.expect(arrival.at >= last, || {
                (format!("{at}.at"), arrival.at.0.to_string(), "not before the arrival above")
            })?;
            last = arrival.at;
            let leaves = arrival.leaves.unwrap_or(Moment(u64::MAX));
            self.expect(leaves > arrival.at, || (format!("{at}.leaves"), leaves.0.to_string(), "a moment after `at`"))?;
            self.check_vm(&format!("{at}.vm"), &arrival.vm)?;
        }
        Ok(())
    }

    fn check_vm(&self, at: &str, vm: &VmShape) -> Result<(), TraceError> {
        self.expect(!vm.clients.is_empty(), || (format!("{at}.clients"), "none".to_owned(), "at least one client"))?;
        for (index, client) in vm.clients.iter().enumerate() {
            let at = format!("{at}.clients[{index}]");
            self.expect(client.vcpus > 0, || (format!("{at}.vcpus"), "0".to_owned(), "a number from 1"))?;
            for (name, part) in [("held_part", client.held_part), ("sibling_part", client.sibling_part)] {
                let valid = (0.0..=1.0).contains(&part);
                self.expect(valid, || (format!("{at}.{name}"), part.to_string(), "a number from 0 to 1"))?;
            }
            let first = client.phases.first().map(|phase| phase.after_ms);
            self.expect(first == Some(0), || {
                (format!("{at}.phases"), format!("{first:?}"), "a first phase with after_ms = 0")
            })?;
            let mut last = 0;
            for (number, phase) in client.phases.iter().enumerate() {
                self.check_phase(&format!("{at}.phases[{number}]"), phase, last, client.vcpus)?;
                last = phase.after_ms;
            }
        }
        Ok(())
    }

    fn check_phase(&self, at: &str, phase: &Phase, last: u64, vcpus: u32) -> Result<(), TraceError> {
        let ordered = phase.after_ms >= last;
        self.expect(ordered, || (format!("{at}.after_ms"), phase.after_ms.to_string(), "not before the phase above"))?;
        let valid = (0.0..=f64::from(vcpus)).contains(&phase.busy);
        self.expect(valid, || (format!("{at}.busy"), phase.busy.to_string(), "CPUs from 0 to the number of vCPUs"))?;
        for (name, part) in [("part", phase.reuse.part), ("shared_part", phase.reuse.shared_part)] {
            let valid = (0.0..=1.0).contains(&part);
            self.expect(valid, || (format!("{at}.reuse.{name}"), part.to_string(), "a number from 0 to 1"))?;
        }
        let profile = &phase.profile;
        let values = [
            ("lines_in_flight", profile.lines_in_flight, profile.lines_in_flight >= 1.0, "a number from 1"),
            ("core_ns_per_line", profile.core_ns_per_line, profile.core_ns_per_line >= 0.0, "a time from 0"),
            ("write_share", profile.write_share, (0.0..=1.0).contains(&profile.write_share), "a number from 0 to 1"),
        ];
        for (name, value, valid, what) in values {
            self.expect(valid && value.is_finite(), || (format!("{at}.profile.{name}"), value.to_string(), what))?;
        }
        Ok(())
    }

    fn expect(&self, valid: bool, wrong: impl FnOnce() -> (String, String, &'static str)) -> Result<(), TraceError> {
        if valid {
            return Ok(());
        }
        let (field, value, valid) = wrong();
        Err(TraceError { trace: self.name.clone(), field, value, valid })
    }
}
