//! How large a kernel's problem is.

use super::Description;
use crate::WorkloadError;
use crate::choice::{Choice, Choosable};
use crate::workload::{ParameterFault, Site};
use serde::{Deserialize, Serialize};
use topology::Bytes;

/// The classes of NPB. S is for tests; W fits the caches of one core or so; A to C are for
/// machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs)] // NPB's names.
pub enum Class {
    S,
    W,
    A,
    B,
    C,
}

/// A repetition of a kernel of the class that `"auto"` takes lasts no longer than about this.
const LONGEST_S: f64 = 10.0;

impl Class {
    /// All of them, the smallest first.
    pub const ALL: [Class; 5] = [Class::S, Class::W, Class::A, Class::B, Class::C];

    /// Its letter.
    pub fn name(self) -> &'static str {
        ["S", "W", "A", "B", "C"][self as usize]
    }

    /// The class of this letter.
    pub fn named(name: &str) -> Result<Class, WorkloadError> {
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        class.ok_or_else(|| WorkloadError::BadJob(format!("`class` is `{name}`; valid are S, W, A, B, C")))
    }

    /// The class that was asked for, or the largest one in which each of the kernels takes about 10
    /// s at most on all threads of the host, and all have room in half of its memory; S under
    /// emulation.
    ///
    /// # Errors
    /// There is no room for the class that was asked for.
    pub(super) fn settle(
        choice: Choice<Class>,
        kernels: &[&'static Description],
        site: &Site,
    ) -> Result<Class, ParameterFault> {
        let memory = |class| kernels.iter().map(|kernel| (kernel.demand)(class).memory).sum::<Bytes>();
        if let Some(&class) = choice.fixed() {
            let needed = memory(class);
            if needed.0 > site.available.0 / 10 * 9 {
                let problem = format!("its arrays need {needed}, and only {} of memory is available", site.available);
                return Err(ParameterFault::new("class", format!("{:?}", class.name()), problem));
            }
            return Ok(class);
        }
        let threads = site.machine.usable_threads().count().max(1) as u32;
        let suits = |class: &Class| {
            let quick = |kernel: &&'static Description| kernel.seconds(*class, threads, false) <= LONGEST_S;
            !site.emulated && kernels.iter().all(quick) && memory(*class).0 <= site.available.0 / 2
        };
        Ok(Class::ALL.into_iter().rev().find(suits).unwrap_or(Class::S))
    }
}

impl Choosable for Class {
    const VALID: &'static str = "one of \"S\", \"W\", \"A\", \"B\", \"C\"";
    fn from_value(value: &toml::Value) -> Option<Self> {
        Class::named(value.as_str()?).ok()
    }
}
