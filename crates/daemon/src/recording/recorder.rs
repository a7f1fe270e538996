//! Writing a recording: one line of JSON an observation, one a period's decisions.

use super::format::{Decided, Entry, Start, VERSION};
use crate::{DaemonError, Event, PolicyFile};
use linux::named_file::NewFile;
use scheduler::Observation;
use scheduler::balance::BalanceState;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use topology::Machine;

/// Writes a recording.
pub struct Recorder {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Recorder {
    /// Starts a recording in a new or emptied file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start(
        path: &Path,
        machine: &Machine,
        policy: &PolicyFile,
        state: &BalanceState,
    ) -> Result<Self, DaemonError> {
        let file = NewFile::beside(path, "new", &[]).and_then(NewFile::take_place);
        let file = file.map_err(|source| DaemonError::file(path, "write the recording", source))?;
        let mut this = Self { path: path.to_owned(), file: BufWriter::new(file) };
        let (machine, policy, state) = (Cow::Borrowed(machine), Cow::Borrowed(policy), Cow::Borrowed(state));
        this.write(&Entry::Start(Box::new(Start { version: VERSION, machine, policy, state })))?;
        Ok(this)
    }

    pub(crate) fn observed(&mut self, observation: &Observation) -> Result<(), DaemonError> {
        self.write(&Entry::Observed { observation: Cow::Borrowed(observation) })
    }

    pub(crate) fn decided(&mut self, events: &[Event]) -> Result<(), DaemonError> {
        let acted = events.iter().filter_map(|event| match event {
            Event::Acted { decision, outcome, .. } => Some((decision, outcome)),
            _ => None,
        });
        let borrow =
            |(decision, outcome)| Decided { decision: Cow::Borrowed(decision), outcome: Cow::Borrowed(outcome) };
        self.write(&Entry::Decided { decisions: acted.map(borrow).collect() })
    }

    fn write(&mut self, entry: &Entry) -> Result<(), DaemonError> {
        let mut write = || {
            serde_json::to_writer(&mut self.file, entry)?;
            self.file.write_all(b"\n")?;
            self.file.flush()
        };
        write().map_err(|source| DaemonError::file(&self.path, "write the recording", source))
    }
}
