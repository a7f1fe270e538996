//! The results directory: `results/<time>-<name>/`.

pub mod held;

use crate::environment::Environment;
use crate::estimate;
use crate::journal::{self, Journal, JournalError};
use crate::modelled::Prediction;
use crate::modelled::beside::MeasuredRun;
use crate::records::Record;
use crate::resolve::Resolved;
use crate::schedule::Visit;
use crate::summary;
use crate::until;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use topology::Machine;
use topology::input::shortened;
use topology::rates::Rates;

/// A results directory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not hold an evaluation.
    #[error("{}: not results that this homenode can read: {reason}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It holds no measured figures.
    #[error("{}: {reason}. Give the results directory of a measured run: results/<time>-<name>", path.display())]
    NotMeasured {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Its results directories cannot be listed.
    #[error("{}: {source}. Give the directory that holds the results: `homenode evaluate` writes \
        results/", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Its records cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A machine that a prediction was made on, as it stands in `machines.json`.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ModelledMachine {
    /// The machine.
    pub machine: Machine,
    /// What its memory system can do, and the source of each value.
    pub rates: Option<Rates>,
}

/// A results directory.
#[derive(Clone, Debug)]
pub struct Results {
    path: PathBuf,
}

impl Results {
    /// Makes the directory of a new evaluation, with a copy of its experiment file, what was
    /// resolved, and the environment.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn create(
        parent: &Path,
        stamp: &str,
        experiment_file: &str,
        resolved: &Resolved,
        environment: &Environment,
    ) -> Result<Self, ResultsError> {
        let results = Self::new(parent, &format!("{stamp}-{}", resolved.experiment.name))?;
        results.write("experiment.toml", experiment_file.as_bytes())?;
        results.write("resolved.json", &json(resolved)?)?;
        results.write("environment.json", &json(environment)?)?;
        Ok(results)
    }

    /// Makes the directory of a modelled evaluation, with a copy of its experiment file, every
    /// figure, and the machines with the source of each value. Nothing of it can be continued or
    /// taken for a measurement: it has no records.
    ///
    /// # Errors
    /// Something cannot be written.
    pub fn create_modelled(
        parent: &Path,
        stamp: &str,
        experiment_file: &str,
        prediction: &Prediction,
        machines: &[ModelledMachine],
    ) -> Result<Self, ResultsError> {
        let results = Self::new(parent, &format!("{stamp}-{}-modelled", prediction.name))?;
        results.write("experiment.toml", experiment_file.as_bytes())?;
        results.write_json("predictions.json", prediction)?;
        results.write_json("machines.json", &machines)?;
        Ok(results)
    }

    /// A directory of this name that was not there before, or of this name and a number.
    fn new(parent: &Path, base: &str) -> Result<Self, ResultsError> {
        fs::create_dir_all(parent).map_err(|source| io_error(parent, source))?;
        let names = std::iter::once(base.to_owned()).chain((2..).map(|number| format!("{base}-{number}")));
        for name in names {
            let path = parent.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(io_error(&path, source)),
            }
        }
        unreachable!("the names never end")
    }

    /// An existing directory, with what was resolved, what was measured, and whether a half-written
    /// line was cut off.
    ///
    /// # Errors
    /// It does not hold an evaluation.
    pub fn open(path: &Path) -> Result<(Self, Resolved, Environment, journal::Recovered), ResultsError> {
        let results = Self { path: path.to_owned() };
        is_measured(path)?;
        let resolved = results.read_json("resolved.json")?;
        let environment = results.read_json("environment.json")?;
        let records = results.records_path();
        let recovered = if records.exists() {
            journal::recover(&records)?
        } else {
            journal::Recovered { records: Vec::new(), cut: false }
        };
        Ok((results, resolved, environment, recovered))
    }

    /// A measured evaluation, to be set beside modelled figures; nothing in the directory is
    /// changed.
    ///
    /// # Errors
    /// It does not hold an evaluation that was measured.
    pub fn measured(path: &Path) -> Result<MeasuredRun, ResultsError> {
        let results = Self { path: path.to_owned() };
        is_measured(path)?;
        let records = results.records_path();
        if !records.exists() {
            let several = held::entries(path)?.len();
            let reason = match several {
                0 => "it has no records.jsonl, so that nothing was measured".to_owned(),
                _ => format!("it holds {several} results directories: `homenode results list {}`", path.display()),
            };
            return Err(ResultsError::NotMeasured { path: path.to_owned(), reason });
        }
        let resolved: Resolved = results.read_json("resolved.json")?;
        // What it has in tables.json may be of an older homenode.
        Ok(MeasuredRun {
            directory: path.display().to_string(),
            summary: summary::summarise(&resolved, &journal::look(&records)?),
            resolved,
            experiment: crate::parse::read(&path.join("experiment.toml")).ok(),
            environment: results.read_json("environment.json")?,
        })
    }

    fn read_json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, ResultsError> {
        let foreign = |reason: String| ResultsError::Foreign { path: self.path.clone(), reason };
        let text = topology::input::bytes(self.path.join(name), topology::input::LONGEST_FILE)
            .map_err(|error| foreign(format!("{name}: {error}")))?;
        let bad = |error: serde_json::Error| {
            let words = shortened(&error.to_string());
            foreign(format!("{name}: {words}. It is damaged, or another version of homenode wrote it"))
        };
        serde_json::from_slice(&text).map_err(bad)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn records_path(&self) -> PathBuf {
        self.path.join("records.jsonl")
    }

    /// Opens `records.jsonl` for appending.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn journal(&self) -> Result<Journal, ResultsError> {
        Ok(Journal::open(&self.records_path())?)
    }

    /// All records.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, ResultsError> {
        Ok(journal::recover(&self.records_path())?.records)
    }

    /// Writes a file whole: a reader sees the old one or the new one, never half of one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), ResultsError> {
        let path = self.path.join(name);
        linux::named_file::replace(&path, content).map_err(|source| io_error(&path, source))
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_json<T: serde::Serialize>(&self, name: &str, value: &T) -> Result<(), ResultsError> {
        self.write(name, &json(value)?)
    }
}

/// Whether what is there could have been measured.
fn is_measured(path: &Path) -> Result<(), ResultsError> {
    let unfit = |reason: &str| Err(ResultsError::NotMeasured { path: path.to_owned(), reason: reason.to_owned() });
    if path.is_file() {
        return unfit("it is a file");
    }
    if !path.is_dir() {
        return unfit("no such directory");
    }
    if path.join("predictions.json").exists() {
        return unfit("it holds modelled figures: nothing of it was measured");
    }
    Ok(())
}

fn io_error(path: &Path, source: io::Error) -> ResultsError {
    ResultsError::Io { path: path.to_owned(), source }
}

fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, ResultsError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| io_error(Path::new("JSON"), error.into()))?;
    text.push(b'\n');
    Ok(text)
}

/// Visits that are not complete, in their order; with `[until]`, those that come next.
pub fn remaining(resolved: &Resolved, records: &[Record]) -> Vec<Visit> {
    if let Some(until) = &resolved.experiment.until {
        let ratios = summary::reduce(resolved, records).ratios;
        return until::next(resolved, until, records, &ratios).unwrap_or_default();
    }
    let complete: BTreeSet<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::Visit { configuration, point, round, .. } => Some((configuration.as_str(), point, *round)),
            _ => None,
        })
        .collect();
    let mut visits = estimate::visits(resolved);
    visits.retain(|visit| {
        let name = resolved.configurations[visit.configuration].name.as_str();
        !complete.contains(&(name, &visit.point, visit.round))
    });
    visits
}

/// The first job number that no record has.
pub fn next_job(records: &[Record]) -> u64 {
    let jobs = records.iter().filter_map(|record| match record {
        Record::Repetition(repetition) => Some(repetition.job),
        Record::Done(done) => Some(done.job),
        _ => None,
    });
    jobs.max().map_or(1, |last| last.saturating_add(1))
}
