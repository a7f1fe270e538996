//! A command as one of the workloads.

use super::section::{Figure, Section, Taken};
use super::variables::Variables;
use super::{CommandRun, Job, Verdict, Width};
use crate::WorkloadError;
use crate::choice::Choice;
use crate::workload::{
    Better, Host, Measured, Outcome, ParameterFault, Prepared, Quantity, Repetition, Settled, Share, Site, Together,
    Verification, Workload,
};
use std::path::PathBuf;
use topology::Bytes;

/// Most memory that is taken where the section says none.
const MOST_MEMORY: Bytes = Bytes(8 << 30);
/// The same under software emulation, where to fill it takes long.
const MOST_MEMORY_EMULATED: Bytes = Bytes::GIB;

impl Workload for Section {
    const NAME: &'static str = "command";
    type Job = Job;

    /// A section that is not there is looked at where the command is to be measured.
    fn check(&self) -> Result<(), ParameterFault> {
        if *self == Self::default() { Ok(()) } else { self.first_fault() }
    }

    /// What it used stands before what it says: the last figure stands for all.
    fn quantities(&self) -> Vec<Quantity> {
        let used = self.used().map(|(_, quantity)| quantity);
        used.chain(self.figures().iter().map(quantity)).collect()
    }

    fn settle(mut self, site: &Site) -> Result<Settled<Self>, ParameterFault> {
        self.first_fault()?;
        self.choose_problem(site);
        for file in &mut self.files {
            let written = file.display().to_string();
            let missing = |error| ParameterFault::new("files", &written, format!("it cannot be read: {error}"));
            *file = std::path::absolute(&*file).map_err(missing)?;
            std::fs::File::open(&*file).map_err(missing)?;
        }
        for (name, value) in site.environment {
            self.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let most = if site.emulated { MOST_MEMORY_EMULATED } else { MOST_MEMORY };
        let automatic = Bytes((site.available.0 / 4).min(most.0));
        self.memory = Choice::Fixed(self.memory.fixed().copied().unwrap_or(automatic));
        let programs: Vec<String> = self.programs_in_order().into_iter().map(|phase| phase.line()).collect();
        let solved = self.size.as_ref().map(|size| format!("the {size} problem: "));
        let mut notes = Vec::new();
        if self.verify.is_empty() {
            let how = "command.verify says how (docs/command.md)";
            notes.push(format!(
                "Nobody checks that the command's result is right: its figures are \"not verified\"; {how}."
            ));
        }
        let about = solved.unwrap_or_default() + &programs.join("; then ");
        Ok(Settled { about, parameters: self, notes })
    }

    fn memory(&self, participants: u32) -> Bytes {
        // What is brought into a guest lies in its memory too, packed and unpacked while it boots.
        let brought: u64 = self.files.iter().filter_map(|file| file.metadata().ok()).map(|file| 2 * file.len()).sum();
        Bytes(self.share_of_memory(participants).0 + brought)
    }

    /// A weight: an emulated run takes some ten times as long as a native one.
    fn seconds(&self, _: u32, emulated: bool) -> f64 {
        if emulated { 10.0 } else { 1.0 }
    }

    fn is_time_known(&self) -> bool {
        false
    }

    fn suits(&self, threads: u32) -> bool {
        Width::of(threads, self.threads_per_rank).is_some()
    }

    fn patience(&self) -> u32 {
        let runs = self.programs_in_order().len() as u32 * (1 + self.warm_up);
        self.time_limit().saturating_mul(runs)
    }

    fn guest_needs(&self) -> Vec<PathBuf> {
        let programs = self.programs_in_order();
        let own = programs.iter().filter_map(|phase| match &phase.argv {
            Some(argv) => argv.first().map(PathBuf::from),
            None => Some(PathBuf::from("/bin/sh")),
        });
        // What the experiment brings as a file is found where it is copied to.
        let is_brought = |program: &PathBuf| {
            let names = self.files.iter().filter_map(|file| file.file_name());
            program.is_relative() && names.into_iter().any(|name| Some(name) == program.file_name())
        };
        let own = own.filter(|program| !is_brought(program));
        own.chain(self.needs.iter().cloned()).chain(self.input_files()).collect()
    }

    fn input_files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn job(&self, share: &Share) -> Job {
        let one = Width { threads: 1, ranks: 1 };
        let width = Width::of(share.threads.count, self.threads_per_rank).unwrap_or(one);
        let memory = self.share_of_memory(share.participants);
        let Some(index) = share.of_span else {
            return Job::of(self, Variables { width, memory }, share.threads);
        };
        let all = Width { ranks: width.ranks * share.participants, ..width };
        Job::of(self, Variables { width: all, memory }, share.threads).of_span(index, width.ranks)
    }

    fn prepare(job: &Job, _: u32, host: &dyn Host) -> Result<Box<dyn Prepared>, WorkloadError> {
        let programs = host.programs(&job.threads)?;
        Ok(Box::new(Running {
            run: CommandRun::prepare(job.clone(), programs).map_err(WorkloadError::Command)?,
            used: used_of(&job.figures),
        }))
    }
}

impl Section {
    /// What each of so many may use.
    fn share_of_memory(&self, participants: u32) -> Bytes {
        let all = self.memory.fixed().copied().unwrap_or(MOST_MEMORY_EMULATED);
        Bytes(all.0 / u64::from(participants.max(1)))
    }

    fn used(&self) -> impl Iterator<Item = (Taken, Quantity)> + use<> {
        used_of(&self.figures()).into_iter()
    }
}

/// What is kept of every run, but for what is a figure of its own.
fn used_of(figures: &[Figure]) -> Vec<(Taken, Quantity)> {
    let quantity = |name: &str, taken: Taken, together, decimals| {
        let (name, unit) = (name.to_owned(), taken.unit().to_owned());
        (taken, Quantity { name, unit, better: Better::Less, together, decimals, at: None })
    };
    let all = [
        quantity("peak memory", Taken::PeakMemory, Together::Sum, 1),
        quantity("CPU time", Taken::CpuTime, Together::Sum, 3),
        quantity("wall time", Taken::WallTime, Together::Largest, 3),
    ];
    let is_new = |(taken, quantity): &(Taken, Quantity)| {
        figures.iter().all(|figure| figure.taken != Some(*taken) && figure.name != quantity.name)
    };
    all.into_iter().filter(is_new).collect()
}

fn quantity(figure: &Figure) -> Quantity {
    // Rates of VMs add up; a time is that of the last one.
    let together = match (figure.taken, figure.better) {
        (Some(Taken::CpuTime | Taken::PeakMemory), _) | (_, Better::More) => Together::Sum,
        (_, Better::Less) => Together::Largest,
    };
    let together = figure.together.unwrap_or(together);
    let Figure { name, unit, better, decimals, .. } = figure.clone();
    Quantity { name, unit, better, together, decimals, at: figure.place() }
}

/// A job in an agent.
struct Running {
    run: CommandRun,
    used: Vec<(Taken, Quantity)>,
}

impl Prepared for Running {
    fn repetition(&mut self) -> Result<Repetition, WorkloadError> {
        let measured = self.run.repeat().map_err(WorkloadError::Command)?;
        let used = self.used.iter().map(|(taken, quantity)| (quantity.name.clone(), taken.of(&measured.used)));
        let names = self.run.job().figures.iter().map(|figure| figure.name.clone());
        let figures = used.chain(names.zip(measured.figures));
        let figures = figures.map(|(quantity, value)| Measured { quantity, value }).collect();
        Ok(Repetition { figures, phases: measured.phases })
    }

    fn finish(&mut self) -> Result<Outcome, WorkloadError> {
        let verification = match self.run.verdict() {
            Verdict::Verified => Verification::Verified,
            Verdict::Wrong(reason) => Verification::Wrong { reason },
            Verdict::NotChecked => Verification::NotChecked,
        };
        Ok(Outcome { verification, thread_cpus: vec![self.run.cpus().to_owned()], pages_by_node: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_kept_beside_every_figure() {
        let mut section = Section::of_argv(vec!["true".to_owned()]);
        let names = |section: &Section| section.quantities().into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(&section), ["peak memory", "CPU time", "wall time"]);
        section.figures = vec![Figure { name: "rate".to_owned(), better: Better::More, ..Figure::default() }];
        assert_eq!(names(&section), ["peak memory", "CPU time", "wall time", "rate"]);
        assert_eq!(section.quantities()[3].together, Together::Sum);
        section.figures[0].together = Some(Together::Mean);
        assert_eq!(section.quantities()[3].together, Together::Mean);
    }

    #[test]
    fn a_guest_gets_the_program_unless_it_is_a_file_of_the_experiment() {
        let section = |argv: &str| Section {
            files: vec!["/in/a.out".into(), "/in/in.lj".into()],
            needs: vec!["mpirun".into()],
            ..Section::of_argv(vec![argv.to_owned()])
        };
        let needs =
            |argv: &str| section(argv).guest_needs().iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        assert_eq!(needs("./a.out"), ["mpirun", "/in/a.out", "/in/in.lj"]);
        assert_eq!(needs("lmp"), ["lmp", "mpirun", "/in/a.out", "/in/in.lj"]);
    }
}
