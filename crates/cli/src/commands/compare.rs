//! `homenode compare`.

use crate::args::CompareArguments;
use crate::failure::bad_input;
use crate::output;
use crate::text::terminal_width;
use evaluate::compare::Comparison;
use evaluate::results::Results;
use evaluate::{tables, text};

/// Runs the command.
pub(crate) fn run(arguments: &CompareArguments) -> anyhow::Result<()> {
    let places: Vec<_> = arguments.results.iter().map(|path| path.canonicalize().unwrap_or(path.clone())).collect();
    if let Some(again) = (1..places.len()).find(|&index| places[..index].contains(&places[index])) {
        let path = arguments.results[again].display();
        return Err(bad_input(format!("{path}: it is given twice: a run differs from itself in nothing")));
    }
    let runs: Result<Vec<_>, _> = arguments.results.iter().map(|path| Results::measured(path)).collect();
    let comparison = Comparison::of(&runs.map_err(bad_input)?).map_err(bad_input)?;
    if arguments.json {
        return output::json("compare", &comparison);
    }
    output::print(text::render_comparison(&comparison, &tables::compared(&comparison), terminal_width()))
}
