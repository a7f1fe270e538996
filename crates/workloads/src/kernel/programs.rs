//! Kernels in the place of programs that nobody may ship: the section `[kernels]`. Each runs once
//! in a repetition, one after the other, and its time is a figure under the program's name.
//!
//! ```toml
//! [kernels]
//! class = "auto"
//! programs = [
//!     { name = "swim", kernel = "shallow_water" },
//!     { name = "equake", kernel = "conjugate_gradient" },
//! ]
//! ```

use super::running::Running;
use super::{Class, Description};
use crate::WorkloadError;
use crate::choice::Choice;
use crate::workload::{
    Better, Host, Measured, ParameterFault, Prepared, Quantity, Settled, Share, Site, Threads, Together, Workload,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use topology::Bytes;

/// The section `[kernels]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Programs {
    /// How large the problems are, or `"auto"`: as large as the host does in about 10 s each.
    pub class: Choice<Class>,
    /// In the order of the tables.
    pub programs: Vec<Program>,
    /// What a reader of the tables has to know of the programs that are replaced.
    pub note: Option<String>,
}

/// A program, and what runs in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program's name: that of the figure.
    pub name: String,
    /// One of [`super::KERNELS`].
    pub kernel: String,
}

/// The kernels of one participant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramsJob {
    /// How large the problems are.
    pub class: Class,
    /// What runs.
    pub programs: Vec<Program>,
    /// Where threads and memory are.
    pub threads: Threads,
}

fn kernels(programs: &[Program]) -> Result<Vec<&'static Description>, WorkloadError> {
    programs.iter().map(|program| Description::named(&program.kernel)).collect()
}

impl Programs {
    fn class(&self) -> Class {
        self.class.fixed().copied().unwrap_or(Class::S)
    }

    /// What runs; none of a name that [`Workload::check`] refuses.
    fn kernels(&self) -> Vec<&'static Description> {
        kernels(&self.programs).unwrap_or_default()
    }
}

impl Workload for Programs {
    const NAME: &'static str = "kernels";
    type Job = ProgramsJob;

    fn check(&self) -> Result<(), ParameterFault> {
        let mut names = BTreeSet::new();
        for (index, Program { name, kernel }) in self.programs.iter().enumerate() {
            let field = |name: &str| format!("programs[{index}].{name}");
            if name.trim().is_empty() || !names.insert(name) {
                let problem = "expected a name that no other program has";
                return Err(ParameterFault::new(field("name"), format!("{name:?}"), problem));
            }
            if Description::named(kernel).is_err() {
                let valid = super::KERNELS.map(|kernel| kernel.name).join(", ");
                return Err(ParameterFault::new(
                    field("kernel"),
                    format!("{kernel:?}"),
                    format!("expected one of {valid}"),
                ));
            }
        }
        Ok(())
    }

    fn quantities(&self) -> Vec<Quantity> {
        let quantity = |program: &Program| Quantity {
            name: program.name.clone(),
            unit: "s".to_owned(),
            better: Better::Less,
            together: Together::Largest,
            decimals: 3,
            at: None,
        };
        self.programs.iter().map(quantity).collect()
    }

    fn settle(mut self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        let class = Class::settle(self.class, &self.kernels(), site)?;
        self.class = Choice::Fixed(class);
        let stands = |program: &Program| format!("{} for {}", program.kernel, program.name);
        let pairs: Vec<String> = self.programs.iter().map(stands).collect();
        let about = format!("kernels of homenode's own, class {}: {}", class.name(), pairs.join(", "));
        let note = "Times are those of homenode's own kernels, which stand for programs that nobody may ship: compare \
                    ratios with published ones, not seconds.";
        let notes = std::iter::once(note.to_owned()).chain(self.note.clone()).collect();
        Ok(Settled { parameters: self, about, notes })
    }

    fn memory(&self, _: u32) -> Bytes {
        self.kernels().iter().map(|kernel| (kernel.demand)(self.class()).memory).sum()
    }

    fn seconds(&self, threads: u32, emulated: bool) -> f64 {
        self.kernels().iter().map(|kernel| kernel.seconds(self.class(), threads, emulated)).sum()
    }

    fn job(&self, share: &Share) -> ProgramsJob {
        ProgramsJob { class: self.class(), programs: self.programs.clone(), threads: share.threads }
    }

    fn prepare(job: &ProgramsJob, _: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        let kernels = kernels(&job.programs)?;
        let names: Vec<String> = job.programs.iter().map(|program| program.name.clone()).collect();
        let figures = move |runs: &[super::Repetition]| {
            let figure =
                |(name, run): (&String, &super::Repetition)| Measured { quantity: name.clone(), value: run.seconds };
            names.iter().zip(runs).map(figure).collect()
        };
        Ok(Box::new(Running::prepare(&kernels, job.class, &job.threads, host, Box::new(figures))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{KERNELS, KernelSection};
    use crate::workload::{Pinning, Verification};
    use crate::{Anywhere, Kind, Placement};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    struct AnyHost;
    impl Host for AnyHost {
        fn check_memory(&self, _: &str, _: Bytes, _: Option<u32>) -> Result<(), WorkloadError> {
            Ok(())
        }
        fn place(&self, _: &Threads) -> Result<Arc<dyn Placement>, WorkloadError> {
            Ok(Arc::new(Anywhere))
        }
    }

    const SHARE: Share = Share {
        of_span: None,
        participants: 1,
        threads: Threads { count: 2, pinning: Pinning::None, cpu_node: None, memory_node: None },
    };

    fn programs() -> Programs {
        let program = |name: &str, kernel: &str| Program { name: name.into(), kernel: kernel.into() };
        let programs = vec![program("equake", "conjugate_gradient"), program("mgrid", "multigrid")];
        Programs { programs, ..Programs::default() }
    }

    #[test]
    fn every_kernel_is_a_workload_whose_figures_are_those_of_its_run() {
        for kernel in KERNELS {
            let kind = Kind::named(kernel.name).unwrap_or_else(|| panic!("{} is no workload", kernel.name));
            let section = kind.section();
            let mut prepared = kind.prepare(section.job(&SHARE).unwrap(), 2, &AnyHost).unwrap();
            let repetition = prepared.repetition().unwrap();
            let names: Vec<&str> = repetition.figures.iter().map(|figure| figure.quantity.as_str()).collect();
            assert_eq!(names, ["time", "speed"], "{}", kernel.name);
            assert!(repetition.figures.iter().all(|figure| figure.value > 0.0), "{repetition:?}");
            assert!(repetition.phases[0] >= repetition.figures[0].value, "{repetition:?}");
            assert_eq!(prepared.finish().unwrap().verification, Verification::Verified);
        }
    }

    #[test]
    fn each_program_has_the_time_of_the_kernel_in_its_place() {
        let mut prepared = Programs::prepare(&programs().job(&SHARE), 2, &AnyHost).unwrap();
        let repetition = prepared.repetition().unwrap();
        let names: Vec<&str> = repetition.figures.iter().map(|figure| figure.quantity.as_str()).collect();
        assert_eq!((names, repetition.phases.len()), (vec!["equake", "mgrid"], 2));
        let outcome = prepared.finish().unwrap();
        assert_eq!((outcome.verification, outcome.thread_cpus.len()), (Verification::Verified, 2));
    }

    #[test]
    fn a_kernel_that_is_none_and_a_name_twice_are_refused() {
        let mut wrong = programs();
        wrong.programs[1].name = "equake".into();
        assert!(wrong.check().unwrap_err().to_string().starts_with("programs[1].name = \"equake\": expected a name"));
        wrong.programs[1] = Program { name: "mgrid".into(), kernel: "mg".into() };
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.starts_with("programs[1].kernel = \"mg\"") && error.contains("multigrid"), "{error}");
    }

    #[test]
    fn the_class_follows_the_host_and_emulation_takes_the_smallest() {
        let machine = topology::read::shipped("hp-dl380-g6").unwrap().unwrap();
        let class = |mib: u64, emulated| {
            let (available, environment) = (Bytes::from_mib(mib), BTreeMap::new());
            let site = Site { machine: &machine, available, emulated, environment: &environment };
            KernelSection::<2>::default().settle(&site).unwrap().parameters.class
        };
        // conjugate_gradient of class B has 54.7e9 operations: 3.4 s at 16 threads of 1e9 each; of
        // class C 143e9: 9.0 s. C needs 0.51 GB, and half of 900 MiB is 0.47 GB.
        assert_eq!(KERNELS[2].name, "conjugate_gradient");
        assert_eq!(class(24_576, false), Choice::Fixed(Class::C));
        assert_eq!(class(900, false), Choice::Fixed(Class::B));
        assert_eq!(class(24_576, true), Choice::Fixed(Class::S));
    }
}
