//! `homenode results`: what was measured and modelled before.

use crate::args_results::{ExportArguments, ResultsArguments, ResultsCommand};
use crate::failure::{bad_input, unwritable};
use crate::output;
use crate::text::{count, lines, table, terminal_width};
use evaluate::export::{self, ExportFile};
use evaluate::results::held::{self, EntryState, Held};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(arguments: &ResultsArguments) -> anyhow::Result<()> {
    match &arguments.command {
        ResultsCommand::List { parent, json } => list(parent, *json),
        ResultsCommand::Show { results, json } => show(results, *json),
        ResultsCommand::Export(arguments) => export_files(arguments),
    }
}

fn list(parent: &Path, json: bool) -> anyhow::Result<()> {
    let entries = held::entries(parent).map_err(bad_input)?;
    if json {
        return output::json("results.list", &serde_json::json!({ "results": entries }));
    }
    if entries.is_empty() {
        return output::line(format_args!("{}: no results; `homenode evaluate` writes them there", parent.display()));
    }
    let mut shown = table(["Results", "Began", "State", "Machine", "Title"], &[]);
    for entry in entries {
        let state = match entry.state {
            EntryState::Measured => "measured",
            EntryState::NotComplete => "not complete",
            EntryState::Modelled => "modelled",
        };
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let (at, machine, title) = (or_none(entry.at), or_none(entry.machine), or_none(entry.title));
        shown.add_row([entry.directory, at, state.to_owned(), machine, title]);
    }
    output::line(lines(&shown))
}

fn show(results: &Path, json: bool) -> anyhow::Result<()> {
    let held = Held::of(results).map_err(bad_input)?;
    if json {
        return output::exact(figures(&held)?);
    }
    output::print(held.text(terminal_width()))
}

/// As `homenode evaluate --json` prints them.
fn figures(held: &Held) -> anyhow::Result<String> {
    match held {
        Held::Measured(run) => output::json_document("evaluate", &run.summary),
        Held::Modelled(one) => output::json_document("evaluate", &one.prediction),
    }
}

fn export_files(arguments: &ExportArguments) -> anyhow::Result<()> {
    let held = Held::of(&arguments.results).map_err(bad_input)?;
    // All are made before any is written.
    let tables = arguments.csv.as_ref().map(|directory| Ok::<_, anyhow::Error>((directory, export::csv(&held)?)));
    let pictures = arguments.svg.as_ref().map(|directory| (directory, export::svg(&held)));
    if let Some((_, files)) = &pictures
        && files.is_empty()
    {
        let results = arguments.results.display();
        return Err(bad_input(format!("--svg: {results} has no chart: its tables say it; --csv writes them")));
    }
    let document = arguments.json.as_ref().map(|file| Ok::<_, anyhow::Error>((file, figures(&held)?))).transpose()?;
    for (option, directory, files) in tables
        .transpose()?
        .map(|(directory, files)| ("--csv", directory, files))
        .into_iter()
        .chain(pictures.map(|(directory, files)| ("--svg", directory, files)))
    {
        write_all(option, directory, &files)?;
    }
    if let Some((file, document)) = document {
        write("--json", file, &document)?;
        output::line(format_args!("{}", file.display()))?;
    }
    Ok(())
}

fn write_all(option: &str, directory: &Path, files: &[ExportFile]) -> anyhow::Result<()> {
    let failed = |error| unwritable(format!("{option} {}", directory.display()), &error);
    if directory.is_file() {
        return Err(bad_input(format!("{option} {}: it is a file; give a directory", directory.display())));
    }
    std::fs::create_dir_all(directory).map_err(failed)?;
    for file in files {
        write(option, &directory.join(&file.name), &file.content)?;
    }
    output::line(format_args!("{} in {}", count(files.len(), "file"), directory.display()))
}

fn write(option: &str, file: &Path, content: &str) -> anyhow::Result<()> {
    let failed = |error| unwritable(format!("{option} {}", file.display()), &error);
    linux::named_file::replace(file, content.as_bytes()).map_err(failed)
}
