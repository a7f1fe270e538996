//! The experiment of `homenode evaluate -- COMMAND`: natively, in one VM with vNUMA, in one
//! without, and in a VM for each node, by wall time. It is a file as a user would write it, so that
//! the results' copy of it can be edited and run again. Pure.

use std::fmt::Write;
use std::path::PathBuf;
use vm::spec::{Firmware, Guest};

/// A command line as it runs: in a directory of its own, so that paths in it are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Files among the arguments: a guest needs them too.
    pub files: Vec<PathBuf>,
    /// The system that it runs in, where that is not the tiny guest: files are then copied to where
    /// it runs.
    pub guest: Option<Guest>,
}

/// The experiment's text, on a host with so many usable hardware threads and NUMA nodes.
pub fn experiment_text(command: &CommandLine, hardware_threads: u32, nodes: u32) -> String {
    let vms = nodes.max(2);
    // A width that the VMs can share.
    let width = (hardware_threads - hardware_threads % vms).max(1);
    let is_variable = |argument: &String| argument.contains("{threads}") || argument.contains("{ranks}");
    let threads = if command.argv.iter().any(is_variable) { "\"auto\"".to_owned() } else { format!("[{width}]") };
    let argv = toml::Value::from(command.argv.clone());
    let files: Vec<String> = command.files.iter().map(|file| file.display().to_string()).collect();
    let mut text = format!(
        "name = \"{}\"\ntitle = {}\nworkload = \"command\"\nthreads = {threads}\npinning = \"none\"\n\
         repetitions = 2 # in each round, the first of them to warm up\nrounds = 4\n\n\
         [command]\nargv = {argv}\n",
        name(command),
        toml::Value::from(title(command)),
    );
    if !files.is_empty() {
        let field = if command.guest.is_some() { "files" } else { "needs" };
        let _ = writeln!(text, "{field} = {}", toml::Value::from(files));
    }
    text +=
        "# Its figure is the wall time. docs/command.md: figures out of its output, and when they are believed.\n\n";
    if let Some(Guest { packages, suite, image, firmware, .. }) = &command.guest {
        text += "[guest]\n";
        if !packages.is_empty() {
            let _ = writeln!(text, "packages = {}", toml::Value::from(packages.clone()));
        }
        if let Some(suite) = suite {
            let _ = writeln!(text, "suite = {}", toml::Value::from(suite.clone()));
        }
        if let Some(image) = image {
            let _ = writeln!(text, "image = {}", toml::Value::from(image.display().to_string()));
        }
        if *firmware == Some(Firmware::Uefi) {
            text += "firmware = \"uefi\"\n";
        }
        text += "\n";
    }
    text += "[[configuration]]\nname = \"native\"\nruns = \"native\"\n\n";
    text += "[[configuration]]\nname = \"1 VM, vNUMA\"\nruns = \"vms\"\npolicy = { prefer_ht = true }\n\n";
    text += "[[configuration]]\nname = \"1 VM, no vNUMA\"\nruns = \"vms\"\n\
             policy = { prefer_ht = true, vnuma = false, memory = \"interleave\" }\n";
    if hardware_threads >= vms {
        text += "\n[[configuration]]\nname = \"1 VM per node\"\nruns = \"vms\"\nvms = \"per_node\"\nmin_vms = \
            2\npolicy = { prefer_ht = true }\n";
    }
    text
}

fn name(command: &CommandLine) -> String {
    let program = command.argv.first().map(PathBuf::from).unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let letter = |letter: char| if letter.is_ascii_lowercase() || letter.is_ascii_digit() { letter } else { '-' };
    format!("command-{}", program.chars().map(letter).take(30).collect::<String>())
}

fn title(command: &CommandLine) -> String {
    let line: String =
        command.argv.join(" ").chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if line.chars().count() > 80 { line.chars().take(77).chain("...".chars()).collect() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Runs;
    use std::path::Path;
    use workloads::choice::Choice;
    use workloads::command::Section;

    fn command(argv: &[&str]) -> CommandLine {
        CommandLine {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            files: vec!["/in/\"in\".lj".into()],
            guest: None,
        }
    }

    #[test]
    fn what_is_written_is_a_valid_experiment() {
        for (argv, threads) in [
            (&["/opt/Solver_2", "-in", "say \"hi\"\n"][..], Choice::Fixed(vec![6])),
            (&["mpirun", "-np", "{ranks}", "lmp"][..], Choice::Auto),
        ] {
            let text = experiment_text(&command(argv), 7, 2);
            let read = crate::parse::parse(&text, Path::new("evaluate")).expect(&text);
            assert_eq!(read.threads, threads);
            assert_eq!(read.configurations.iter().filter(|one| one.runs == Runs::Native).count(), 1);
            assert_eq!(read.configurations.len(), 4);
            let section: Section = read.parameters();
            assert_eq!((section.argv.as_deref(), section.needs.len()), (Some(&command(argv).argv[..]), 1));
        }
    }

    #[test]
    fn packages_become_a_guest_and_files_are_copied() {
        let guest =
            Guest { packages: vec!["lammps".into(), "hpcc".into()], suite: Some("trixie".into()), ..Guest::default() };
        let text = experiment_text(&CommandLine { guest: Some(guest.clone()), ..command(&["lmp"]) }, 4, 1);
        let read = crate::parse::parse(&text, Path::new("evaluate")).expect(&text);
        assert_eq!(read.guest.as_ref().map(crate::experiment::GuestSystem::guest), Some(guest));
        let section: Section = read.parameters();
        assert_eq!((section.files.len(), section.needs.len()), (1, 0));
    }

    #[test]
    fn the_example_of_the_page_is_valid() {
        let page = include_str!("../../../docs/command.md");
        let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let read = crate::parse::parse(example, Path::new("docs/command.md")).expect(example);
        assert_eq!(read.parameters::<Section>().figures().len(), 2);
    }

    #[test]
    fn a_host_of_one_thread_has_no_vm_for_each_node() {
        let text = experiment_text(&command(&["true"]), 1, 1);
        assert!(!text.contains("per node") && text.contains("threads = [1]"), "{text}");
    }
}
