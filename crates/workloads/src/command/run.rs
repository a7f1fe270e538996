//! A job's repetitions: each in a new directory, its programs in their order, its figures at the
//! end.

use super::verify::Verdict;
use super::{CommandError, Ended, Hearing, Job, Listener, Program, Programs, Used};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Lines of a program that an error quotes.
const QUOTED_LINES: usize = 6;
/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 1 << 16;

/// The name of the directory where a program runs that spans guests: the same in each.
const SPAN_DIRECTORY: &str = "homenode-span";

/// What one repetition measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// In the order of the job's figures.
    pub figures: Vec<f64>,
    /// What all programs used together: times are sums, memory is the largest.
    pub used: Used,
    /// Wall time of each program.
    pub phases: Vec<f64>,
}

/// A job between its repetitions.
pub struct CommandRun {
    job: Job,
    programs: Arc<dyn Programs>,
    verdict: Option<Verdict>,
    cpus: String,
}

impl CommandRun {
    /// Makes the runs that warm up.
    ///
    /// # Errors
    /// One failed.
    pub fn prepare(job: Job, programs: Arc<dyn Programs>) -> Result<Self, CommandError> {
        let mut run = Self { job, programs, verdict: None, cpus: String::new() };
        for _ in 0..run.job.warm_up {
            run.repeat()?;
        }
        run.verdict = None;
        if run.job.programs.is_empty() {
            run.new_directory()?;
        }
        Ok(run)
    }

    /// Runs all programs once.
    ///
    /// # Errors
    /// One could not be run, ended otherwise than it must, or a figure is not there.
    pub fn repeat(&mut self) -> Result<Measured, CommandError> {
        let directory = self.new_directory()?;
        if self.job.drop_caches {
            self.programs.drop_caches()?;
        }
        let mut values = vec![None; self.job.figures.len()];
        let (mut used, mut phases, mut verdict) = (Used::default(), Vec::new(), Verdict::NotChecked);
        for (index, program) in self.job.programs.iter().enumerate() {
            let is_last = index + 1 == self.job.programs.len();
            let own = self.figures_of(program, is_last);
            let pattern = self.job.verify.pattern.as_deref().filter(|_| is_last);
            let mut hearing = Hearing::of(own.iter().map(|&of| self.job.figures[of].clone()).collect(), pattern)?;
            let run = self.programs.run(&self.job, program, &directory, &mut hearing)?;
            let wanted = self.job.verify.exit_status.filter(|_| is_last).unwrap_or(0);
            if run.ended != Ended::Status(wanted) {
                return Err(failed(program, run.ended, &hearing));
            }
            hear_files(&mut hearing, &directory)?;
            for (of, value) in own.into_iter().zip(hearing.read(&run.used)?) {
                values[of] = Some(value);
            }
            used = together(&used, &run.used);
            phases.push(run.used.wall_seconds);
            self.cpus = run.cpus;
            if is_last {
                let values: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
                verdict = self.job.verify.judge(run.ended, hearing.has_verified(), &self.job.figures, &values);
                // Nothing else tells why a pattern is not there.
                if let (Verdict::Wrong(reason), Some(false)) = (&mut verdict, hearing.has_verified()) {
                    *reason += &format!("; it said last: {}", hearing.stdout.kept().last_lines(2).join(" | "));
                }
            }
        }
        if !matches!(self.verdict, Some(Verdict::Wrong(_))) {
            self.verdict = Some(verdict);
        }
        Ok(Measured { figures: values.into_iter().flatten().collect(), used, phases })
    }

    /// A new directory with the command's files.
    fn new_directory(&self) -> Result<PathBuf, CommandError> {
        let directory = self.programs.new_directory(self.job.is_of_span.then_some(SPAN_DIRECTORY))?;
        for file in &self.job.files {
            std::fs::copy(self.programs.input(&file.from), directory.join(&file.name)).map_err(|error| {
                CommandError::Run {
                    program: format!("files: {}", file.from.display()),
                    reason: format!("it cannot be copied to where the command runs: {error}"),
                }
            })?;
        }
        Ok(directory)
    }

    /// Whether the results were right: wrong if one of them was.
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone().unwrap_or(Verdict::NotChecked)
    }

    /// The CPUs that the last program might use, read back.
    pub fn cpus(&self) -> &str {
        &self.cpus
    }

    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Figures that are read out of a program: those that name its phase, and of the last one also
    /// those that name none.
    fn figures_of(&self, program: &Program, is_last: bool) -> Vec<usize> {
        let figures = self.job.figures.iter().enumerate();
        let own = figures.filter(|(_, figure)| figure.phase.as_ref().map_or(is_last, |phase| *phase == program.phase));
        own.map(|(index, _)| index).collect()
    }
}

fn together(one: &Used, other: &Used) -> Used {
    Used {
        wall_seconds: one.wall_seconds + other.wall_seconds,
        user_seconds: one.user_seconds + other.user_seconds,
        system_seconds: one.system_seconds + other.system_seconds,
        peak_memory_bytes: one.peak_memory_bytes.max(other.peak_memory_bytes),
        left_behind: one.left_behind + other.left_behind,
    }
}

fn failed(program: &Program, ended: Ended, hearing: &Hearing) -> CommandError {
    let said = |listener: &Listener| listener.kept().last_lines(QUOTED_LINES);
    let lines = Some(said(&hearing.stderr)).filter(|lines| !lines.is_empty()).unwrap_or_else(|| said(&hearing.stdout));
    let quoted: String = lines.iter().map(|line| format!("\n  | {line}")).collect();
    let said = if quoted.is_empty() { "; it said nothing".to_owned() } else { format!("; its last lines:{quoted}") };
    CommandError::Ended { phase: program.phase.clone(), how: ended.in_words(), said }
}

/// Reads the files that hold figures, in pieces.
fn hear_files(hearing: &mut Hearing, directory: &Path) -> Result<(), CommandError> {
    for (name, listener) in hearing.files() {
        let path = directory.join(name);
        let failed =
            |error: std::io::Error| CommandError::File { file: name.display().to_string(), reason: error.to_string() };
        // A link or a pipe would lead elsewhere, or wait for ever.
        if !path.symlink_metadata().map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        let mut file = std::fs::File::open(&path).map_err(failed)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece).map_err(failed)? {
                0 => break,
                length => listener.hear(&piece[..length]),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
