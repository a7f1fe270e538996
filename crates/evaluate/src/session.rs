//! One session of an evaluation, from the first visit that is missing to the files that people
//! read.

use crate::environment::Environment;
use crate::errors::RunError;
use crate::progress::Progress;
use crate::records::Record;
use crate::report;
use crate::resolve::Resolved;
use crate::results::{self, Results, ResultsError};
use crate::runner::Runner;
use crate::summary::{Summary, summarise};
use crate::tables::{self, Table};
use crate::world::World;
use std::sync::atomic::AtomicBool;
use topology::words::quoted;

/// What a session left.
#[derive(Debug)]
pub struct Outcome {
    /// All figures so far, of earlier sessions too.
    pub summary: Summary,
    /// The tables.
    pub tables: Vec<Table>,
    /// Why it stopped early.
    pub stopped: Option<RunError>,
}

/// Makes all visits that `earlier` lacks, and writes `tables.json` and `report.html` of everything
/// that was measured, whatever happened.
///
/// # Errors
/// Results cannot be written. What stopped the measuring itself is in the outcome.
pub fn run(
    results: &Results,
    resolved: &Resolved,
    environment: &Environment,
    earlier: &[Record],
    world: &mut dyn World,
    progress: &mut dyn Progress,
    cancelled: &AtomicBool,
) -> Result<Outcome, ResultsError> {
    let mut journal = results.journal()?;
    let homenode = env!("CARGO_PKG_VERSION").to_owned();
    journal.append(Record::Session { homenode, at: world.timestamp(), resumed: !earlier.is_empty() })?;
    let mut all = earlier.to_vec();
    let next = |fresh: &[Record]| {
        all.truncate(earlier.len());
        all.extend_from_slice(fresh);
        results::remaining(resolved, &all)
    };
    let runner = Runner::new(resolved, world, &mut journal, progress, cancelled, results::next_job(earlier));
    let stopped = runner.run_while(next).err();
    if let Some(RunError::Journal(error)) = stopped {
        return Err(error.into());
    }
    let why = match &stopped {
        None => "complete".to_owned(),
        Some(error) => error.to_string(),
    };
    journal.append(Record::End { at: world.timestamp(), why })?;
    let summary = summarise(resolved, &results.records()?);
    let tables = tables::all(resolved, &summary);
    results.write_json("tables.json", &summary)?;
    let page = report::html(resolved, &summary, environment, &tables, &again(results));
    results.write("report.html", page.as_bytes())?;
    Ok(Outcome { summary, tables, stopped })
}

/// The command that runs the experiment again, from the results' own copy of its file.
fn again(results: &Results) -> String {
    format!("homenode evaluate {}", quoted(&results.path().join("experiment.toml").display().to_string()))
}
