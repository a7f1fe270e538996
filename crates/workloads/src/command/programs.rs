//! How programs are run is the operating system's matter: whoever runs a workload hands it in.

use super::{CommandError, Ended, Hearing, Job, Program, Used};
use std::path::{Path, PathBuf};

/// Runs programs.
pub trait Programs: Send + Sync {
    /// A new, empty directory for a repetition, with this name where one is given. The one before
    /// is removed.
    ///
    /// # Errors
    /// The system refuses it.
    fn new_directory(&self, name: Option<&str>) -> Result<PathBuf, CommandError>;

    /// Where this machine has a file of the controller's host.
    fn input(&self, file: &Path) -> PathBuf {
        file.to_owned()
    }

    /// Empties the page cache.
    ///
    /// # Errors
    /// This user may not.
    fn drop_caches(&self) -> Result<(), CommandError>;

    /// Runs a program of a job in `directory` to its end, and lets `hearing` hear its output. What
    /// it started and left behind is ended too.
    ///
    /// # Errors
    /// It could not be started.
    fn run(&self, job: &Job, program: &Program, directory: &Path, hearing: &mut Hearing) -> Result<Run, CommandError>;
}

/// A run of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// How it ended.
    pub ended: Ended,
    /// What it used.
    pub used: Used,
    /// The CPUs that it might use when it began, read back, in list format.
    pub cpus: String,
}
