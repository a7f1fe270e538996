//! Reading an experiment file. Every error names the file, the field, the value, and what would be
//! valid.

use crate::experiment::{Configuration, Experiment, NativeFiles, Runs, Vms, workload_names};
use crate::modelled::check;
use crate::published;
use crate::switching;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use topology::{TomlError, TomlText};
use workloads::command;
use workloads::kernel::Programs;
use workloads::workload::{ParameterFault, Workload};
use workloads::{Kind, MAX_REPETITIONS, Section, WORKLOADS};

/// Most VMs that run at the same time.
const MOST_VMS: u32 = 1024;
const VMS: std::ops::RangeInclusive<u32> = 1..=MOST_VMS;

/// An experiment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("{}: cannot read the experiment: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML, has an unknown field, or a value that cannot be used.
    #[error(transparent)]
    Toml(#[from] TomlError),
}

/// Reads and checks an experiment file.
///
/// # Errors
/// The file cannot be read, or is not a valid experiment.
pub fn read(path: &Path) -> Result<Experiment, ExperimentError> {
    let text = topology::input::text(path, topology::input::LONGEST_TEXT)
        .map_err(|source| ExperimentError::Read { path: path.to_owned(), source })?;
    read_as(&text, path)
}

/// [`read`], as if the file at `path` had this text.
///
/// # Errors
/// It is not a valid experiment.
pub fn read_as(text: &str, path: &Path) -> Result<Experiment, ExperimentError> {
    let mut experiment = parse(text, path)?;
    find_files_beside(&mut experiment, path);
    Ok(experiment)
}

/// Files that an experiment names lie beside its own.
fn find_files_beside(experiment: &mut Experiment, path: &Path) {
    let Some(directory) = path.parent() else { return };
    if let Some(image) = experiment.guest.as_mut().and_then(|guest| guest.image.as_mut()) {
        *image = directory.join(&*image);
    }
    let mut command: command::Section = experiment.parameters();
    if command.files.is_empty() {
        return;
    }
    for file in &mut command.files {
        *file = directory.join(&*file);
    }
    experiment.replace_section(Section::new(command));
}

/// Parses and checks an experiment; `path` is for messages.
///
/// # Errors
/// It is not a valid experiment.
pub fn parse(text: &str, path: &Path) -> Result<Experiment, ExperimentError> {
    parse_with(text, path, WORKLOADS)
}

/// [`parse`], of an experiment that knows these workloads.
///
/// # Errors
/// It is not a valid experiment.
pub fn parse_with(text: &str, path: &Path, kinds: &[Kind]) -> Result<Experiment, ExperimentError> {
    let file = path.display().to_string();
    let text = TomlText::new(text, &file);
    if text.line_of("sections").is_some() {
        return Err(text.fault("sections", format!("unknown field; parameters are in [{}]", kinds[0].name)).into());
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let kind = |name: &str| kinds.iter().copied().find(|kind| kind.name == name).unwrap_or(kinds[0]);
    let (mut experiment, given): (Experiment, Vec<Section>) =
        text.read_apart(&names, |name, section| kind(name).from_toml(section)).map_err(|error| {
            // Sections have the names of workloads in a file.
            let sections = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let problem = published::instead_of(&error.field);
            TomlError { problem: problem.unwrap_or_else(|| error.problem.replace("`sections`", &sections)), ..error }
        })?;
    experiment.sections = kinds.iter().map(|kind| kind.section()).collect();
    given.into_iter().for_each(|section| experiment.replace_section(section));
    if let Some(guest) = &experiment.guest {
        guest.guest().check().map_err(|found| text.fault(&found.field, found.problem))?;
    }
    match first_fault(&experiment, kinds) {
        None => Ok(experiment),
        Some(Fault { field, value, valid }) => {
            Err(TomlError { value: Some(value), ..text.fault(&field, format!("expected {valid}")) }.into())
        }
    }
}

struct Fault {
    field: String,
    value: String,
    valid: String,
}

fn fault(field: impl Into<String>, value: impl std::fmt::Display, valid: impl Into<String>) -> Option<Fault> {
    Some(Fault { field: field.into(), value: value.to_string(), valid: valid.into() })
}

fn first_fault(experiment: &Experiment, kinds: &[Kind]) -> Option<Fault> {
    workload(experiment, kinds)
        .or_else(|| top_level(experiment))
        .or_else(|| until(experiment))
        .or_else(|| limits(experiment))
        .or_else(|| configurations(experiment))
        .or_else(|| {
            let found = published::first_fault(experiment).or_else(|| check::first_fault(experiment));
            found.map(|(field, value, valid)| Fault { field, value, valid })
        })
}

fn workload(experiment: &Experiment, kinds: &[Kind]) -> Option<Fault> {
    if experiment.parts().is_empty() && !experiment.is_application() {
        let valid = format!("one of {}", workload_names(kinds));
        return fault("workload", format!("{:?}", experiment.workload), valid);
    }
    if experiment.is_application() && experiment.stand_ins().count() > 1 {
        let valid = "one of [kernels] and [command]: what runs on a host in the place of the programs";
        return fault("command", "beside [kernels]", valid);
    }
    if experiment.workload == Programs::NAME && experiment.parameters::<Programs>().programs.is_empty() {
        return fault("kernels.programs", "[]", "at least one { name = \"...\", kernel = \"...\" }");
    }
    let of_section = |section: &Section| {
        let ParameterFault { field, value, problem } = section.check().err()?;
        let valid = problem.strip_prefix("expected ").map(str::to_owned).unwrap_or(problem);
        Some(Fault { field: format!("{}.{field}", section.name()), value, valid })
    };
    experiment.sections.iter().find_map(of_section).or_else(|| guest(experiment))
}

/// What a guest of packages, or of an image, has no use for.
fn guest(experiment: &Experiment) -> Option<Fault> {
    let guest = experiment.guest.as_ref()?;
    if experiment.parts().iter().all(|(section, _)| section.name() != command::Section::NAME) {
        let valid = format!("workload = \"{}\": all others bring their programs themselves", command::Section::NAME);
        return fault("guest", format!("with workload = {:?}", experiment.workload), valid);
    }
    if guest.image.is_some() && guest.native == Some(NativeFiles::OfGuest) {
        let valid = "\"host\" beside `image`: its files are inside its own file system; packages can run natively too";
        return fault("guest.native", "\"of_guest\"", valid);
    }
    let needs = experiment.parameters::<command::Section>().needs;
    let valid =
        "no such field beside [guest]: name packages there (an image has its own), and files of yours in `files`";
    needs.first().and_then(|first| fault("command.needs", first.display(), valid))
}

fn top_level(experiment: &Experiment) -> Option<Fault> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if experiment.name.is_empty() || experiment.name.len() > 40 || !experiment.name.chars().all(allowed) {
        return fault(
            "name",
            format!("{:?}", experiment.name),
            "1 to 40 lower-case letters, digits and `-`: it names the results directory and the VMs",
        );
    }
    if !(1..=100).contains(&experiment.rounds) {
        return fault("rounds", experiment.rounds, "1 to 100");
    }
    if !(2..=MAX_REPETITIONS).contains(&experiment.repetitions) {
        return fault(
            "repetitions",
            experiment.repetitions,
            format!("2 to {MAX_REPETITIONS}: the first is not counted"),
        );
    }
    if let Some(threads) = experiment.threads.fixed() {
        let rising = threads.windows(2).all(|pair| pair[0] < pair[1]);
        if threads.is_empty() || !rising || threads.iter().any(|count| !(1..=8192).contains(count)) {
            return fault("threads", format!("{threads:?}"), "\"auto\" or rising numbers from 1 to 8192");
        }
    }
    None
}

fn until(experiment: &Experiment) -> Option<Fault> {
    let until = experiment.until.as_ref()?;
    if !(until.interval_percent > 0.0 && until.interval_percent <= 100.0) {
        let valid = "more than 0 and at most 100 (per cent of a ratio, from end to end of its interval)";
        return fault("until.interval_percent", until.interval_percent, valid);
    }
    if !(until.at_most_minutes > 0.0 && until.at_most_minutes <= 10_080.0) {
        return fault("until.at_most_minutes", until.at_most_minutes, "more than 0 and at most 10080: a week");
    }
    let runs = |runs| experiment.configurations.iter().any(|one| one.runs == runs && !one.modelled.only);
    let valid =
        "a configuration with runs = \"native\" and one with runs = \"vms\": intervals are those of their ratios";
    if runs(Runs::Native) && runs(Runs::Vms) { None } else { fault("until", "[until]", valid) }
}

fn limits(experiment: &Experiment) -> Option<Fault> {
    let limits = &experiment.limits;
    if limits.boot_seconds == Some(0) {
        return fault("limits.boot_seconds", 0, "1 or more");
    }
    if limits.repetition_seconds == 0 {
        return fault("limits.repetition_seconds", 0, "1 or more");
    }
    if !(limits.other_cpu_percent > 0.0 && limits.other_cpu_percent <= 10_000.0) {
        return fault(
            "limits.other_cpu_percent",
            limits.other_cpu_percent,
            "more than 0 (per cent of one CPU); 10000 never rejects on a host of up to 100 CPUs",
        );
    }
    if limits.repeat_disturbed > 100 {
        return fault("limits.repeat_disturbed", limits.repeat_disturbed, "0 to 100");
    }
    None
}

fn configurations(experiment: &Experiment) -> Option<Fault> {
    if experiment.configurations.is_empty() {
        return fault("configuration", "[]", "at least one [[configuration]] with a name and runs");
    }
    let of_tuple = |(field, value, valid)| Fault { field, value, valid };
    if let Some(found) = switching::of_sections(&experiment.switches) {
        return Some(of_tuple(found));
    }
    let mut names = BTreeSet::new();
    for (index, configuration) in experiment.configurations.iter().enumerate() {
        let field = |name: &str| format!("configuration[{index}].{name}");
        if configuration.name.trim().is_empty() || !names.insert(&configuration.name) {
            return fault(field("name"), format!("{:?}", configuration.name), "a name that no other configuration has");
        }
        if let Vms::Count(count) = configuration.vms
            && !VMS.contains(&count)
        {
            return fault(field("vms"), count, format!("a number from 1 to {MOST_VMS}, or \"per_node\""));
        }
        if configuration.min_vms.is_some_and(|least| !VMS.contains(&least))
            || (configuration.min_vms.is_some() && configuration.vms != Vms::PerNode)
        {
            let value = configuration.min_vms.unwrap_or_default();
            let valid = format!("a number from 1 to {MOST_VMS}, together with vms = \"per_node\"");
            return fault(field("min_vms"), value, valid);
        }
        let is_vm_field = configuration.vms != Vms::default()
            || configuration.vcpus.fixed().is_some()
            || configuration.memory.fixed().is_some()
            || configuration.switches.is_some()
            || configuration.card.is_some()
            || configuration.ranks_per_vm.is_some()
            || configuration.policy != Default::default();
        if configuration.runs == Runs::Native && is_vm_field {
            let valid = "runs = \"vms\", to which vms, vcpus, memory, policy, switches, card and ranks_per_vm belong";
            return fault(field("runs"), "\"native\"", valid);
        }
        if let Some(Fault { field: name, value, valid }) = span(experiment, configuration) {
            return fault(field(&name), value, valid);
        }
        let Some(switches) = &configuration.switches else {
            if configuration.card.is_some() {
                return fault(field("card"), "without switches", "switches too: the card is plugged into them");
            }
            continue;
        };
        let vms = if let Vms::Count(count) = configuration.vms { Some(count) } else { None };
        if let Some((name, value, valid)) = switching::of_configuration(switches, vms, &experiment.switches) {
            return fault(field(&name), value, valid);
        }
    }
    None
}

/// Packages of a guest in which MPI logs in from one VM to another.
const OF_LOGINS: [&str; 2] = ["openssh-server", "openssh-client"];

/// What a program that spans VMs lacks.
fn span(experiment: &Experiment, configuration: &Configuration) -> Option<Fault> {
    let ranks = configuration.ranks_per_vm?;
    let name = "ranks_per_vm";
    let value = ranks.fixed().map_or_else(|| "\"auto\"".to_owned(), u32::to_string);
    if configuration.switches.is_none() && configuration.vms != Vms::Count(1) {
        return fault(name, value, "switches too: ranks of several VMs talk over them");
    }
    let packages = experiment.guest.as_ref().filter(|guest| guest.image.is_none()).map(|guest| &guest.packages);
    let lacks = |package: &&&str| packages.is_some_and(|there| !there.iter().any(|known| known == **package));
    if experiment.guest.is_none() || OF_LOGINS.iter().any(|package| lacks(&package)) {
        let valid = format!("{} in [guest] packages: ranks of other VMs are started by ssh", OF_LOGINS.join(" and "));
        return fault(name, value, valid);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use workloads::choice::Choice;

    const SMALL: &str = "name = \"small\"\ntitle = \"Small\"\nworkload = \"stream\"\n";
    const NATIVE: &str = "[[configuration]]\nname = \"native\"\nruns = \"native\"\n";

    const VMS: &str = "[[configuration]]\nname = \"vms\"\nruns = \"vms\"\nvms = 2\n";

    /// A small experiment with a published table of one thread, and more lines of it.
    fn published(lines: &str) -> String {
        let table = "[[published]]\nconfiguration = \"native\"\ntitle = \"t\"\nsource = \"s\"\nthreads = [1]\n";
        format!("{SMALL}{NATIVE}{table}{lines}\n")
    }

    fn figure(quantity: &str, unit: &str, values: &str) -> String {
        format!("figure = [{{ quantity = \"{quantity}\", unit = \"{unit}\", values = {values} }}]")
    }

    fn error(text: &str) -> String {
        parse(text, Path::new("small.toml")).expect_err(text).to_string()
    }

    #[test]
    fn a_small_experiment_gets_defaults() {
        let experiment = parse(&format!("{SMALL}{NATIVE}"), Path::new("small.toml")).expect("valid");
        assert_eq!(experiment.rounds, 2);
        assert_eq!(experiment.threads, Choice::Auto);
        assert_eq!(experiment.limits.repeat_disturbed, 2);
    }

    #[test]
    fn files_lie_beside_the_experiment() {
        let text =
            SMALL.replace("stream", "command") + NATIVE + "[command]\nfiles = [\"in/a\", \"/b\"]\nargv = [\"c\"]\n";
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("small.toml");
        std::fs::write(&path, text).expect("written");
        let files = read(&path).expect("valid").parameters::<command::Section>().files;
        assert_eq!(files, [directory.path().join("in/a"), "/b".into()]);
    }

    #[test]
    fn an_error_names_the_file_the_field_the_value_and_what_is_valid() {
        let cases = [
            (SMALL.replace("stream", "strem") + NATIVE, ["small.toml", "strem", "numa_matrix"]),
            (format!("{SMALL}round = 2\n{NATIVE}"), ["small.toml", "round", "rounds"]),
            (format!("{SMALL}threads = [2, 1]\n{NATIVE}"), ["threads", "[2, 1]", "rising"]),
            (format!("{SMALL}threads = \"all\"\n{NATIVE}"), ["threads", "all", "auto"]),
            (format!("{SMALL}threads = [-1]\n{NATIVE}"), ["threads", "-1", "whole numbers"]),
            (
                format!("{SMALL}{NATIVE}[until]\ninterval_percent = 3\n"),
                ["small.toml:7: until", "at_most_minutes", "missing"],
            ),
            (
                format!("{SMALL}{NATIVE}[until]\ninterval_percent = 0\nat_most_minutes = 1\n"),
                ["small.toml:8: until.interval_percent", "0", "more than 0 and at most 100"],
            ),
            (
                format!("{SMALL}{NATIVE}[until]\ninterval_percent = 3\nat_most_minutes = inf\n"),
                ["small.toml:9: until.at_most_minutes", "inf", "a week"],
            ),
            (
                format!("{SMALL}{NATIVE}[until]\ninterval_percent = 3\nat_most_minutes = 1\n"),
                ["until", "runs = \"native\"", "runs = \"vms\""],
            ),
            (format!("{SMALL}repetitions = 1\n{NATIVE}"), ["repetitions", "= 1", "first is not counted"]),
            (
                format!("{SMALL}{NATIVE}[stream]\nstores = \"wide\"\n"),
                ["small.toml:8: stream.stores", "wide", "streaming"],
            ),
            (format!("{SMALL}{NATIVE}[stream]\nelements = -5\n"), ["stream.elements", "-5", "auto"]),
            (
                format!("{SMALL}{NATIVE}[stream]\nelements = 5\n"),
                ["small.toml:8: stream.elements", "5", "1000 to 2^40"],
            ),
            (
                format!("{SMALL}{NATIVE}[stream]\nelemets = 5\n"),
                ["small.toml:8: stream.elemets", "5", "wanted_elements"],
            ),
            (format!("{SMALL}{NATIVE}[chase]\nloads = 5\n"), ["small.toml:8: chase.loads", "5", "1000 or more"]),
            (format!("sections = []\n{SMALL}{NATIVE}"), ["small.toml:1: sections", "[]", "unknown field"]),
            (
                format!("{SMALL}{NATIVE}[guest]\npackages = [\"A\"]\n"),
                ["small.toml:8: guest.packages[0]", "A", "lower-case"],
            ),
            (format!("{SMALL}{NATIVE}[guest]\npackages = [\"a\"]\n"), ["guest", "stream", "workload = \"command\""]),
            (
                format!(
                    "{}{NATIVE}[guest]\npackages = [\"a\"]\nnative = \"host\"\n[command]\nargv = [\"a\"]\nneeds = \
                    [\"b\"]\n",
                    SMALL.replace("stream", "command")
                ),
                ["small.toml:12: command.needs", "b", "name packages"],
            ),
            (
                format!("{SMALL}{NATIVE}[guest]\npackages = [\"a\"]\nnative = \"tree\"\n"),
                ["guest.native", "tree", "of_guest"],
            ),
            (format!("{SMALL}{NATIVE}switches = 1\n"), ["configuration[0]", "native", "switches"]),
            (format!("{SMALL}{VMS}switches = 3\n"), ["configuration[0].switches", "3", "1 to 2"]),
            (format!("{SMALL}{VMS}switches = \"lan\"\n"), ["switches", "lan", "a number from 1"]),
            (format!("{SMALL}{VMS}switches = [\"lan\"]\n"), ["configuration[0].switches", "lan", "there is none"]),
            (format!("{SMALL}{VMS}card = {{ model = \"e1000\" }}\n"), ["configuration[0].card", "switches", "too"]),
            (format!("{SMALL}{VMS}switches = 1\ncard = {{ model = \"e100\" }}\n"), ["small.toml:9", "e100", "virtio"]),
            (
                format!("{SMALL}{VMS}[[switch]]\nname = \"lan\"\nrate = \"1 GB/s\"\n"),
                ["small.toml:10", "1 GB/s", "Gbit/s"],
            ),
            (
                format!("{SMALL}{VMS}[[switch]]\nname = \"lan\"\nrate = \"1 Gbit/s\"\n"),
                ["switch[0].rate", "without uplink", "an uplink too"],
            ),
            (
                format!("{SMALL}{VMS}[[switch]]\nname = \"lan\"\nuplink = \"core\"\n"),
                ["switch[0]", "core", "there is none"],
            ),
            (format!("{SMALL}{VMS}ranks_per_vm = \"auto\"\n"), ["configuration[0].ranks_per_vm", "auto", "switches"]),
            (
                format!("{SMALL}{VMS}switches = 1\nranks_per_vm = 2\n"),
                ["configuration[0].ranks_per_vm", "2", "openssh-server"],
            ),
            (format!("{SMALL}{NATIVE}vms = 2\n"), ["configuration[0]", "native", "runs = \"vms\""]),
            (format!("{SMALL}{NATIVE}{NATIVE}"), ["configuration[1].name", "native", "no other"]),
            (
                format!("{SMALL}[[configuration]]\nname = \"vm\"\nruns = \"vms\"\nvms = 4294967295\n"),
                ["configuration[0].vms", "4294967295", "1 to 1024"],
            ),
            (
                format!("{SMALL}[[configuration]]\nname = \"vm\"\nruns = \"vms\"\nmemory = \"4 GIB\"\n"),
                ["memory", "4 GIB", "4 GiB"],
            ),
            (published("[published.figures]"), ["small.toml:12", "figures", "`figure`"]),
            (published("").replace("\"native\"\ntitle", "\"vm\"\ntitle"), ["configuration = \"vm\"", "vm", "native"]),
            (published(&figure("coppy", "MB/s", "[1]")), ["published[0].figure[0].quantity", "coppy", "Triad"]),
            (published(&figure("Copy", "GB/s", "[1]")), ["published[0].figure[0].unit", "GB/s", "MB/s"]),
            (published(&figure("copy", "MB/s", "[1, 2]")), ["published[0].figure[0].values", "2 values", "[1]"]),
            (published(&figure("copy", "MB/s", "[-1]")), ["published[0].figure[0].values", "-1", "more than 0"]),
            (published(&figure("copy", "MB/s", "[]")), ["published[0].figure[0].values", "[]", "only_pictures"]),
            (
                published(&figure("copy", "MB/s", "[1], calibrated = [2]")),
                ["published[0].figure[0].calibrated", "2", "have a value"],
            ),
            (
                published(&figure("copy", "MB/s", "[1], only_pictures = [1]")),
                ["published[0].figure[0].only_pictures", "1", "without a value"],
            ),
            (
                published(&figure("copy", "MB/s", "[1] }, { quantity = \"Copy\", unit = \"MB/s\", values = [2]")),
                ["published[0].figure[1].quantity", "Copy", "no other"],
            ),
            (published("mb_per_s = { copy = [1] }"), ["published[0].mb_per_s", "figure = [{ quantity", "MB/s"]),
            (published("[published.seconds]\nnamd = [1]"), ["published[0].seconds", "figure = [{ quantity", "\"s\""]),
            (published("calibrated = { copy = [1] }"), ["published[0].calibrated", "belongs to a figure", "= [...]"]),
        ];
        for (text, parts) in cases {
            let message = error(&text);
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }
}
