//! `homenode evaluate -- COMMAND`, and what the tiny guest needs to run one.

use crate::failure::bad_input;
use anyhow::Context;
use evaluate::guest_files::GuestFiles;
use evaluate::of_command::{CommandLine, experiment_text};
use evaluate::resolve::Resolved;
use std::path::{Path, PathBuf};
use topology::Machine;

/// The experiment of a command on this host.
pub(crate) fn experiment(command: &[String], machine: &Machine) -> anyhow::Result<String> {
    let nodes = machine.nodes.iter().filter(|node| !machine.usable_cpus(node.id).is_empty()).count();
    let line = absolute(command)?;
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
    Ok(CommandLine { argv, files })
}

/// Programs and files of this host that VMs need; `None` where none does.
pub(crate) fn guest_files(resolved: &Resolved) -> anyhow::Result<Option<GuestFiles>> {
    let wanted: Vec<PathBuf> = resolved.workloads.iter().flat_map(|workload| workload.section.guest_needs()).collect();
    let has_vms = resolved.configurations.iter().any(|configuration| !configuration.vms.is_empty());
    if wanted.is_empty() || !has_vms {
        return Ok(None);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    GuestFiles::of(&wanted, &path).map(Some).map_err(|error| bad_input(format!("for the VMs: {error}")))
}
