//! `homenode evaluate EXPERIMENT --on MACHINE`: the model instead of this host.

use crate::args::EvaluateArguments;
use crate::failure::{bad_input, unwritable};
use crate::machine_choice;
use crate::output;
use crate::text::terminal_width;
use anyhow::{Context, anyhow};
use evaluate::experiment::Experiment;
use evaluate::modelled::beside::{MeasuredRun, beside};
use evaluate::modelled::{ModelledError, Prediction, page};
use evaluate::results::{ModelledMachine, Results};
use evaluate::validation::shipped::{self, PredictionError};
use evaluate::{machine_picture, profiles, real, tables, text};
use simulator::workload::WorkloadProfile;
use std::path::Path;
use topology::read::{self, Described};

/// The seed where none is given.
const SEED: u64 = 1;

/// Computes, prints and keeps the figures.
pub(crate) fn run(arguments: &EvaluateArguments, file: &Path, experiment: &Experiment, on: &str) -> anyhow::Result<()> {
    let (machine, rates) = machine_choice::described(on)?;
    let on_machine = Described { machine, rates: Some(rates) };
    let name = file.display().to_string();
    let measured = arguments.beside.as_deref().map(measured).transpose()?;
    let with_profile = arguments.profile.as_deref().map(|profile| with_profile(experiment, profile)).transpose()?;
    let measured_as = experiment;
    let experiment = with_profile.as_ref().unwrap_or(experiment);
    let mut prediction =
        shipped::run(experiment, &name, Some(&on_machine), arguments.seed.unwrap_or(SEED)).map_err(refusal)?;
    if let Some(run) = &measured {
        beside(measured_as, &mut prediction, run)
            .map_err(|reason| bad_input(format!("--beside {}: {reason}", run.directory)))?;
    }
    let tables = tables::modelled(experiment, &prediction);
    let copy = topology::input::text(file, topology::input::LONGEST_TEXT).with_context(|| name.clone())?;
    let machines = machines(experiment, &prediction, &on_machine);
    let results = Results::create_modelled(&arguments.results, &real::stamp(), &copy, &prediction, &machines)
        .map_err(|error| unwritable("--results: cannot make the results directory", &error))?;
    let again = again(arguments, &results.path().join("experiment.toml"), on);
    let pictures = machine_picture::pictures(&prediction, &machines);
    let page = page::html(experiment, &prediction, &tables, &pictures, &again);
    results.write("report.html", page.as_bytes()).context("cannot write the report")?;
    if arguments.json {
        output::json("evaluate", &prediction)?;
    } else {
        output::print(text::render_modelled(&prediction, &tables, terminal_width()))?;
        output::line(format_args!("Report: {}", results.path().join("report.html").display()))?;
    }
    Ok(())
}

/// The experiment with the work of `--profile`, found again by what the user wrote.
fn with_profile(experiment: &Experiment, choice: &str) -> anyhow::Result<Experiment> {
    let profile = profiles::find(choice).map_err(|error| bad_input(format!("--profile {error}")))?;
    if profile.application.is_none() && experiment.workload != "stream" {
        return Err(bad_input(format!(
            "--profile {choice}: it has kernels of STREAM, and the experiment's workload is \"{}\": give a profile \
            with [application]",
            experiment.workload
        )));
    }
    Ok(experiment.with_profile(&WorkloadProfile { name: choice.to_owned(), ..profile }))
}

/// The figures of `--beside`.
fn measured(directory: &Path) -> anyhow::Result<MeasuredRun> {
    Results::measured(directory).map_err(|error| bad_input(format!("--beside {error}")))
}

/// The command that gives the same figures again, from the results' own copy of the experiment.
fn again(arguments: &EvaluateArguments, experiment: &Path, on: &str) -> String {
    let path = |path: &Path| topology::words::quoted(&path.display().to_string());
    let beside = arguments.beside.as_deref().map_or_else(String::new, |run| format!(" --beside {}", path(run)));
    let profile = arguments.profile.as_deref();
    let profile = profile.map_or_else(String::new, |one| format!(" --profile {}", topology::words::quoted(one)));
    format!(
        "homenode evaluate {} --on {}{profile}{beside} --seed {}",
        path(experiment),
        topology::words::quoted(on),
        arguments.seed.unwrap_or(SEED)
    )
}

/// What a user wrote is bad input; a solver that fails on it is not.
fn refusal(error: PredictionError) -> anyhow::Error {
    match &error {
        PredictionError::Modelled { source: ModelledError::Solve { .. } | ModelledError::Run { .. }, .. } => {
            anyhow!("{error}")
        }
        _ => bad_input(error),
    }
}

/// The machines of the configurations, each once.
fn machines(experiment: &Experiment, prediction: &Prediction, on: &Described) -> Vec<ModelledMachine> {
    let files = shipped::machines_of(experiment).unwrap_or_default();
    let of_file = |name: &str| files.values().find(|described| described.machine.name == name).cloned();
    let mut machines: Vec<ModelledMachine> = Vec::new();
    for configuration in &prediction.configurations {
        if machines.iter().any(|known| known.machine.name == configuration.machine) {
            continue;
        }
        let described = match on.machine.name == configuration.machine {
            true => Some(on.clone()),
            false => of_file(&configuration.machine)
                .or_else(|| read::shipped_described(&configuration.machine).and_then(Result::ok)),
        };
        machines.extend(described.map(|Described { machine, rates }| ModelledMachine { machine, rates }));
    }
    machines
}
