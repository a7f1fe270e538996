//! What one participant is told to run: a [`Section`] with its variables filled in.

use super::section::{Figure, Phase, Section, Verify};
use super::variables::Variables;
use crate::workload::Threads;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A command as an agent runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// In order.
    pub programs: Vec<Program>,
    /// The whole environment.
    pub environment: BTreeMap<String, String>,
    /// Copied to where it runs.
    pub files: Vec<InputFile>,
    /// Longest time of one program.
    pub time_limit_seconds: u32,
    /// Runs before those that are measured.
    pub warm_up: u32,
    /// Whether the page cache is emptied before each repetition.
    pub drop_caches: bool,
    /// What is read out of it.
    pub figures: Vec<Figure>,
    /// When it is believed.
    pub verify: Verify,
    /// Where its threads are.
    pub threads: Threads,
    /// Whether it is a part of a program that spans guests: it runs in the same directory in each,
    /// and only the first guest has programs.
    #[serde(default)]
    pub is_of_span: bool,
}

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the phase.
    pub phase: String,
    /// Its arguments, the program first.
    pub argv: Vec<String>,
}

/// A file that a command reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Where the agent finds it.
    pub from: PathBuf,
    /// Its name in the directory in which the command runs.
    pub name: String,
}

impl Job {
    /// The job of a section without a fault.
    pub fn of(section: &Section, variables: Variables, threads: Threads) -> Self {
        let fill = |text: &String| variables.fill(text);
        let name = |from: &PathBuf| from.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self {
            programs: section.programs_in_order().iter().map(|phase| program(phase, variables)).collect(),
            environment: section.environment.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
            files: section.files.iter().map(|from| InputFile { from: from.clone(), name: name(from) }).collect(),
            time_limit_seconds: section.time_limit(),
            warm_up: section.warm_up,
            drop_caches: section.drop_caches,
            figures: section.figures(),
            verify: section.verify.clone(),
            threads,
            is_of_span: false,
        }
    }

    /// The same for one of several guests that a program spans: MPI, started in the first one, has
    /// so many ranks in each.
    #[must_use]
    pub fn of_span(mut self, index: u32, ranks_each: u32) -> Self {
        self.is_of_span = true;
        if index > 0 {
            self.programs.clear();
            self.figures.clear();
        }
        let mapped = ("OMPI_MCA_rmaps_base_mapping_policy".to_owned(), format!("ppr:{ranks_each}:node"));
        self.environment.extend([mapped]);
        self
    }
}

fn program(phase: &Phase, variables: Variables) -> Program {
    let argv = match (&phase.argv, &phase.shell) {
        (Some(argv), _) => argv.iter().map(|argument| variables.fill(argument)).collect(),
        (None, shell) => {
            vec!["/bin/sh".to_owned(), "-c".to_owned(), variables.fill(shell.as_deref().unwrap_or_default())]
        }
    };
    Program { phase: phase.name.clone(), argv }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Width;
    use crate::workload::Pinning;
    use topology::Bytes;

    #[test]
    fn numbers_stand_where_variables_were() {
        let threads = Threads { count: 8, pinning: Pinning::None, cpu_node: None, memory_node: None };
        let section = Section {
            shell: Some("mpirun -np {ranks} solve {memory_mib} ${X}".to_owned()),
            environment: [("OMP_NUM_THREADS".to_owned(), "{threads}".to_owned())].into(),
            files: vec!["input/in.lj".into()],
            ..Section::default()
        };
        let variables = Variables { width: Width::of(8, Some(4)).unwrap(), memory: Bytes::GIB };
        let job = Job::of(&section, variables, threads);
        assert_eq!(job.programs[0].argv, ["/bin/sh", "-c", "mpirun -np 2 solve 1024 ${X}"]);
        assert_eq!(job.environment["OMP_NUM_THREADS"], "4");
        assert_eq!((job.files[0].name.as_str(), job.time_limit_seconds), ("in.lj", 300));
        assert_eq!(job.figures, [Figure::wall_time()]);
    }
}
