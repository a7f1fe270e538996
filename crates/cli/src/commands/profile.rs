//! `homenode profile`.

use crate::args::ProfileArguments;
use crate::failure::bad_input;
use crate::{machine_choice, named_file, output, profile_view};
use anyhow::anyhow;
use evaluate::fitted_profile::{FitError, FittedProfile, Wanted, fit};
use evaluate::results::Results;
use std::path::Path;
use topology::read::Described;

/// Runs the command.
pub(crate) fn run(arguments: &ProfileArguments) -> anyhow::Result<()> {
    if let Some(file) = &arguments.output {
        check_target(file, arguments.force)?;
    }
    let run = Results::measured(&arguments.results).map_err(bad_input)?;
    let name = &run.environment.machine.name;
    let choice = match &arguments.on {
        Some(choice) => choice.clone(),
        None => calibrated(name)?,
    };
    let (machine, rates) = machine_choice::described(&choice)?;
    let described = Described { machine, rates: Some(rates) };
    let wanted = Wanted {
        figure: arguments.figure.clone(),
        fit_threads: arguments.fit_threads.clone(),
        class: arguments.class.map(Into::into),
    };
    let fitted = fit(&run, &described, &wanted).map_err(|error| match error {
        FitError::Solve(_) => anyhow!("{error}"),
        error => bad_input(error),
    })?;
    if let Some(file) = &arguments.output {
        named_file::write(file, fitted.text.as_bytes(), arguments.force)?;
    }
    if arguments.json {
        return output::json("profile", &json(&fitted, arguments.output.as_deref()));
    }
    output::print(profile_view::view(&fitted))?;
    match &arguments.output {
        Some(file) => output::line(format_args!(
            "\nWritten: {0}. homenode advise VM.toml --on MACHINE --workload {0}, or homenode evaluate \
             EXPERIMENT.toml --on MACHINE --profile {0}.",
            file.display()
        )),
        None => output::line("\nNothing is written; --output FILE.toml keeps the profile."),
    }
}

/// The file that `homenode calibrate` writes by itself.
fn calibrated(machine: &str) -> anyhow::Result<String> {
    let file = format!("{machine}.toml");
    if Path::new(&file).is_file() {
        return Ok(file);
    }
    Err(bad_input(format!(
        "the run was measured on {machine}, and there is no {file} here: calibrate it there with `homenode \
         calibrate`, and name its machine file with --on"
    )))
}

fn check_target(file: &Path, force: bool) -> anyhow::Result<()> {
    if file.extension().is_none_or(|extension| extension != "toml") {
        return Err(bad_input(format!("--output {}: a profile's name ends in .toml", file.display())));
    }
    named_file::check("--output", file, force)
}

fn json(fitted: &FittedProfile, file: Option<&Path>) -> serde_json::Value {
    let mut value = serde_json::json!(fitted);
    for (index, residual) in fitted.residuals.iter().enumerate() {
        value["residuals"][index]["error_percent"] = residual.error_percent().into();
        value["residuals"][index]["left_out_percent"] = residual.left_out_percent().into();
    }
    for (index, vm) in fitted.vms.iter().enumerate() {
        value["vms"][index]["error_percent"] = vm.error_percent().into();
    }
    value["file"] = serde_json::json!(file);
    value
}
