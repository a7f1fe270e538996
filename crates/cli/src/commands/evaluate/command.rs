//! `homenode evaluate -- COMMAND`, and what guests need to run one.

use crate::args::EvaluateArguments;
use crate::failure::bad_input;
use crate::guest_images;
use anyhow::Context;
use evaluate::experiment::Experiment;
use evaluate::guest_files::GuestFiles;
use evaluate::of_command::{CommandLine, experiment_text};
use evaluate::real::System;
use evaluate::resolve::{Resolved, ResolvedGuest};
use evaluate::results::Results;
use std::path::{Component, Path, PathBuf};
use topology::Machine;
use vm::spec::Guest;

/// The experiment of a command on this host.
pub(crate) fn experiment(arguments: &EvaluateArguments, machine: &Machine) -> anyhow::Result<String> {
    let nodes = machine.nodes.iter().filter(|node| !machine.usable_cpus(node.id).is_empty()).count();
    let line = match (arguments.packages.is_empty(), &arguments.image) {
        (true, None) => absolute(&arguments.command)?,
        _ => with_copies(arguments)?,
    };
    let hardware_threads = machine.usable_threads().count() as u32;
    Ok(experiment_text(&line, hardware_threads, nodes as u32))
}

/// The command with absolute paths: it runs in a directory of its own, and in a guest.
fn absolute(command: &[String]) -> anyhow::Result<CommandLine> {
    let (mut argv, mut files) = (command.to_vec(), Vec::new());
    for (index, argument) in argv.iter_mut().enumerate() {
        let path = Path::new(argument);
        let is_file = if index == 0 { argument.contains('/') } else { path.is_file() };
        if !is_file {
            continue;
        }
        let absolute = std::path::absolute(path).with_context(|| argument.clone())?;
        if index > 0 {
            files.push(absolute.clone());
        }
        let text = absolute.into_os_string().into_string();
        *argument = text.map_err(|path| bad_input(format!("{}: a path that is no text", path.display())))?;
    }
    Ok(CommandLine { argv, files, guest: None })
}

/// The command with copies of its files beside it: in a guest of packages or of an image paths of
/// this host are not there. Relative paths are meant to be this host's, absolute ones the guest's.
fn with_copies(arguments: &EvaluateArguments) -> anyhow::Result<CommandLine> {
    let (mut argv, mut files) = (arguments.command.clone(), Vec::new());
    for (index, argument) in argv.iter_mut().enumerate() {
        let path = Path::new(argument);
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let is_program = index == 0;
        if path.is_absolute() || !path.is_file() || (is_program && !argument.contains('/')) {
            continue;
        }
        files.push(std::path::absolute(path).with_context(|| argument.clone())?);
        *argument = if is_program { format!("./{name}") } else { name.to_owned() };
    }
    let image = arguments.image.as_ref().map(std::path::absolute).transpose().context("--image")?;
    let firmware = image.as_ref().map(|_| arguments.firmware.into());
    let (packages, suite) = (arguments.packages.clone(), arguments.suite.clone());
    let guest = Guest { packages, suite, image, firmware, ..Guest::default() };
    Ok(CommandLine { argv, files, guest: Some(guest) })
}

/// Keeps the files of an experiment beside the results' copy of it, so that the copy can be run
/// again. Those that it names by absolute paths stay where they are.
pub(crate) fn keep_files(results: &Results, experiment: &Experiment, file: &Path) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(Path::new(""));
    for path in experiment.parts().iter().flat_map(|(section, _)| section.input_files()) {
        let Ok(name) = path.strip_prefix(directory) else { continue };
        let kept = results.path().join(name);
        if !name.components().all(|part| matches!(part, Component::Normal(_))) || kept.exists() {
            continue;
        }
        kept.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::copy(&path, kept)?;
    }
    // An image is too large to copy: the copy of the experiment finds it by a link.
    let image = experiment.guest.as_ref().and_then(|guest| guest.image.as_deref());
    if let Some(name) = image.and_then(|image| image.strip_prefix(directory).ok())
        && let (Some(image), kept) = (image, results.path().join(name))
        && name.is_relative()
        && name.components().all(|part| matches!(part, Component::Normal(_)))
    {
        kept.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::os::unix::fs::symlink(std::path::absolute(image)?, kept)?;
    }
    Ok(())
}

/// The system that VMs boot.
pub(crate) fn system(resolved: &Resolved) -> anyhow::Result<Option<System>> {
    match &resolved.guest {
        None => Ok(None),
        Some(ResolvedGuest::Packages(recipe)) => {
            let gone = || {
                let (what, key) = (recipe.summary(), recipe.key());
                bad_input(format!("the guest {key} ({what}), which it was measured with, is removed: start it anew"))
            };
            guest_images::of(recipe)?.map(|image| Some(System::Packages(image))).ok_or_else(gone)
        }
        Some(ResolvedGuest::Image(image)) => match image.changed() {
            None => Ok(Some(System::Image(image.disk.clone()))),
            Some(how) => Err(bad_input(format!(
                "the guest's image is not the one that it was measured with: {how}; start it anew"
            ))),
        },
    }
}

/// Programs and files of this host that VMs need; `None` where none does.
pub(crate) fn guest_files(resolved: &Resolved) -> anyhow::Result<Option<GuestFiles>> {
    let sections = || resolved.workloads.iter().map(|workload| &workload.section);
    if resolved.guest.is_some() {
        let wanted: Vec<PathBuf> = sections().flat_map(|section| section.input_files()).collect();
        return GuestFiles::alone(&wanted).map(Some).map_err(|error| bad_input(format!("for the guest: {error}")));
    }
    let wanted: Vec<PathBuf> = sections().flat_map(|section| section.guest_needs()).collect();
    let has_vms = resolved.configurations.iter().any(|configuration| !configuration.vms.is_empty());
    if wanted.is_empty() || !has_vms {
        return Ok(None);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    GuestFiles::of(&wanted, &path).map(Some).map_err(|error| bad_input(format!("for the VMs: {error}")))
}
