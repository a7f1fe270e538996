//! `homenode validate`.

mod view;

use crate::args::ValidateArguments;
use crate::output;
use anyhow::Context;
use evaluate::validation::report::validate;

/// Runs the command.
pub(crate) fn run(arguments: &ValidateArguments) -> anyhow::Result<()> {
    let validation = validate().context("the published experiments do not run on the model")?;
    if arguments.json {
        output::json("validate", &validation)?;
    } else {
        output::print(view::render(&validation, arguments.cells))?;
    }
    Ok(())
}
