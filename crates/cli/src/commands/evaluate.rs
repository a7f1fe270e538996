//! `homenode evaluate`.

mod asked;
mod command;
mod modelled;

use crate::args::EvaluateArguments;
use crate::evaluation_view::{View, expectation};
use crate::failure::{bad_input, unwritable};
use crate::text::terminal_width;
use crate::{guest_images, measuring, output};
use anyhow::{Context, anyhow};
use evaluate::applications::{Widths, narrowed};
use evaluate::environment::Environment;
use evaluate::experiment::{Experiment, GuestSystem, Runs};
use evaluate::progress::{Event, Expectation, Progress};
use evaluate::real;
use evaluate::records::Record;
use evaluate::resolve::{Host, ResolveError, Resolved, ResolvedGuest, resolve};
use evaluate::results::Results;
use evaluate::{RunError, estimate, parse, session, text};
use std::path::{Path, PathBuf};
use topology::Machine;
use vm::Accelerator;

/// Runs the command.
pub(crate) fn run(arguments: &EvaluateArguments) -> anyhow::Result<()> {
    only_modelled(arguments)?;
    if let Some(directory) = &arguments.resume {
        return resume(arguments, directory);
    }
    if !arguments.command.is_empty() {
        let machine = topology::read::live().context("cannot read this host")?;
        let file = Path::new("the command");
        let text = asked::in_place(arguments, command::experiment(arguments, &machine)?);
        let experiment = parse::parse(&text, file).map_err(bad_input)?;
        return on_this_host(arguments, file, &text, &experiment, &machine);
    }
    let Some(file) = &arguments.experiment else { return Err(bad_input("which experiment? name its file")) };
    let experiment = parse::read(file).map_err(bad_input)?;
    if let Some(on) = &arguments.on {
        return modelled::run(arguments, file, &experiment, on);
    }
    measurable(&experiment, file)?;
    let machine = topology::read::live().context("cannot read this host")?;
    let written =
        topology::input::text(file, topology::input::LONGEST_TEXT).with_context(|| file.display().to_string())?;
    let copy = asked::in_place(arguments, written);
    let experiment = parse::read_as(&copy, file).map_err(bad_input)?;
    on_this_host(arguments, file, &copy, &experiment, &machine)
}

/// Measures; `copy` is the experiment's text.
fn on_this_host(
    arguments: &EvaluateArguments,
    file: &Path,
    copy: &str,
    experiment: &Experiment,
    machine: &Machine,
) -> anyhow::Result<()> {
    let available = linux::room::available().context("cannot read how much memory is available")?.available;
    let accelerator = accelerator(experiment, machine);
    let emulated = accelerator.as_ref().is_some_and(|accelerator| !accelerator.is_hardware());
    let running = linux::examine_this_host().context("cannot look for running VMs")?;
    crate::hidden_vms::say(&running);
    let occupied = crate::balancer_place::occupancy(&running, machine);
    let planner = |machine: &Machine, specs: &[vm::VmSpec]| scheduler::plan_together(machine, &occupied, specs);
    let host = Host { machine, available, emulated };
    let widths = if arguments.threads.is_empty() { Widths::OfTheFile } else { Widths::Asked };
    let (narrowed, left_out) = narrowed(experiment, machine, available, widths);
    let mut resolved = resolve(&narrowed, &host, &planner).map_err(|error| unresolved(file, &error))?;
    resolved.notes.extend(left_out);
    let whose = file.display().to_string();
    let guest = experiment.guest.as_ref().map(GuestSystem::guest);
    if let Some(guest) = &guest {
        resolved = resolved.with_guest(guest_images::resolved(guest, &whose)?);
    }
    if arguments.dry_run {
        return dry_run(&resolved, arguments.json);
    }
    let agent = agent_program(&resolved)?;
    if let Some(guest) = guest.filter(|guest| guest.image.is_none()) {
        guest_images::built(&guest, &whose)?;
    }
    command::guest_files(&resolved)?;
    if let Some(vm) = resolved.configurations.iter().flat_map(|configuration| &configuration.vms).next() {
        qemu::locate_qemu(&vm.spec.name)?;
    }
    let described = accelerator.map_or_else(|| "none: no VM runs".to_owned(), |accelerator| accelerator.to_string());
    let command: Vec<String> = std::env::args().collect();
    let environment = Environment::of_host(machine, available, described, command, real::now());
    let results = Results::create(&arguments.results, &real::stamp(), copy, &resolved, &environment)
        .map_err(|error| unwritable("--results: cannot make the results directory", &error))?;
    command::keep_files(&results, experiment, file).context("cannot keep the experiment's files")?;
    measure(arguments, &results, &resolved, &environment, &[], agent)
}

/// Refuses arguments that a measurement has no use for. clap lets them pass where another argument
/// excludes `--on`.
fn only_modelled(arguments: &EvaluateArguments) -> anyhow::Result<()> {
    let given = [
        ("--seed", arguments.seed.is_some()),
        ("--beside", arguments.beside.is_some()),
        ("--profile", arguments.profile.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given && arguments.on.is_none()) {
        Some((argument, _)) => {
            Err(bad_input(format!("{argument}: it belongs to --on MACHINE, which models and measures nothing")))
        }
        None => Ok(()),
    }
}

/// Refuses what only the model runs.
fn measurable(experiment: &Experiment, file: &Path) -> anyhow::Result<()> {
    let why = if experiment.parts().is_empty() {
        "workload = \"application\": homenode does not run these programs, and neither [kernels] nor \
         [command] names anything in their place"
    } else if experiment.configurations.iter().all(|configuration| configuration.modelled.only) {
        "configuration: each says modelled = { only = true }"
    } else {
        return Ok(());
    };
    Err(bad_input(format!("{}: {why}; name a machine with --on to model it", file.display())))
}

/// A host that has no room now is no fault of the experiment.
fn unresolved(file: &Path, error: &ResolveError) -> anyhow::Error {
    if matches!(error, ResolveError::Plan { reason, .. } if !reason.is_bad_input()) {
        return anyhow!("{}: {error}", file.display());
    }
    bad_input(format!("{}: {error}", file.display()))
}

fn accelerator(experiment: &Experiment, machine: &Machine) -> Option<Accelerator> {
    let has_vms = experiment.configurations.iter().any(|configuration| configuration.runs == Runs::Vms);
    has_vms.then(|| qemu::accelerator(machine.usable_threads().count() as u32))
}

fn agent_program(resolved: &Resolved) -> anyhow::Result<PathBuf> {
    measuring::agent_program(resolved.configurations.iter().any(|configuration| !configuration.vms.is_empty()))
}

fn resume(arguments: &EvaluateArguments, directory: &Path) -> anyhow::Result<()> {
    let (results, resolved, environment, recovered) = Results::open(directory).map_err(bad_input)?;
    let machine = topology::read::live().context("cannot read this host")?;
    let threads = machine.usable_threads().count() as u32;
    if machine.name != resolved.machine || threads != resolved.hardware_threads {
        return Err(bad_input(format!(
            "{}: it was measured on {} with {} hardware threads; this is {} with {threads}. Start it anew here",
            directory.display(),
            resolved.machine,
            resolved.hardware_threads,
            machine.name
        )));
    }
    if arguments.dry_run {
        return dry_run(&resolved, arguments.json);
    }
    if recovered.cut {
        output::say(
            "The last line of records.jsonl was half written; it is dropped, and what it held is measured again.\n",
        );
    }
    let agent = agent_program(&resolved)?;
    measure(arguments, &results, &resolved, &environment, &recovered.records, agent)
}

fn measure(
    arguments: &EvaluateArguments,
    results: &Results,
    resolved: &Resolved,
    environment: &Environment,
    earlier: &[Record],
    agent: PathBuf,
) -> anyhow::Result<()> {
    let cancelled = measuring::stop_wanted()?;
    let mut view = View::new();
    view.tell(Event::Note(&format!("Results: {}", results.path().display())));
    resolved.notes.iter().for_each(|note| view.tell(Event::Note(note)));
    let world = measuring::this_host(agent)?.with_guest_files(command::guest_files(resolved)?);
    let mut world = world.with_system(command::system(resolved)?);
    let outcome = session::run(results, resolved, environment, earlier, &mut world, &mut view, &cancelled);
    view.finish();
    let again = format!("homenode evaluate --resume {}", results.path().display());
    let outcome = outcome.map_err(|error| {
        anyhow!("{error}\nWhat was measured before is kept. When that is mended, continue with: {again}")
    })?;
    if arguments.json {
        output::json("evaluate", &outcome.summary)?;
    } else {
        output::print(text::render(&outcome.summary, &outcome.tables, terminal_width()))?;
        output::line(format_args!("Report: {}", results.path().join("report.html").display()))?;
    }
    match outcome.stopped {
        None => Ok(()),
        Some(RunError::Interrupted) => Err(anyhow!("interrupted; what was measured is kept. Continue with: {again}")),
        Some(error) => Err(anyhow!("{error}\nWhat was measured is kept. Continue with: {again}")),
    }
}

fn dry_run(resolved: &Resolved, json: bool) -> anyhow::Result<()> {
    let visits = estimate::visits(resolved);
    let (seconds, how) = estimate::expected(resolved, &visits);
    if json {
        let known = (how == Expectation::About).then_some(seconds);
        let value = serde_json::json!({ "resolved": resolved, "visits": visits, "estimated_seconds": known });
        return output::json("evaluate.dry_run", &value);
    }
    output::line(&resolved.experiment.title)?;
    for workload in resolved.workloads.iter().filter(|workload| !workload.about.is_empty()) {
        output::line(format_args!("{}: {}", workload.section.name(), workload.about))?;
    }
    resolved.notes.iter().try_for_each(|note| output::line(format_args!("! {note}")))?;
    if let Some(ResolvedGuest::Packages(recipe)) = &resolved.guest
        && guest_images::of(recipe)?.is_none()
    {
        output::line("! That guest is not built yet: it is built first, which takes minutes.")?;
    }
    for configuration in &resolved.configurations {
        output::line(format_args!("{}: {}", configuration.name, configuration.shape()))?;
        for vm in &configuration.vms {
            let homes: Vec<String> = vm.plan.placement.clients.iter().map(|client| client.home.to_string()).collect();
            output::line(format_args!(
                "  {}: {}, {} virtual nodes, home nodes {}",
                vm.spec.name,
                vm.spec.memory,
                vm.plan.topology.nodes.len(),
                homes.join(" | ")
            ))?;
        }
    }
    let running = if resolved.keep_running {
        "all VMs run all the time"
    } else {
        "VMs are started for each visit: memory does not hold all"
    };
    output::line(format_args!(
        "{} visits of {} repetitions; {running}",
        visits.len(),
        resolved.experiment.repetitions
    ))?;
    if let Some(until) = &resolved.experiment.until {
        output::line(format_args!(
            "further rounds until the interval of each ratio is at most {} % of it wide, for at most {} min",
            until.interval_percent, until.at_most_minutes
        ))?;
    }
    output::line(expectation(seconds, how))?;
    Ok(())
}
