//! `homenode check --cured` and `--cured-into`.
//!
//! **Problem.** `--cured`, looped over 40 domains, gives them all node 0: each is cured as if no
//! other were there, 4 do not start, and most are slower than before.
//!
//! **Rule.** `--cured-into` cures all definitions together: each sees where those before it will
//! live. A domain becomes a domain. Of a VM of Proxmox VE a script with its `qm set` lines is
//! written, not a configuration: `qm` checks them, keeps what must wait for the next start as
//! pending, and writes a file that other nodes of the cluster read too. One definition that cannot
//! be read, and nothing is written. `--cured` prints one domain, and says whom it did not look at.
//!
//! **Properties.** No node is promised more memory than it has by what the cures bind. Checked
//! together, the cured texts have no problem that the texts before had not. Curing twice changes
//! nothing.
//!
//! **Example.** Two nodes of 96 GiB, 40 domains of 4 GiB that float: 20 texts bind to each node.

use crate::args::CheckArguments;
use crate::failure::bad_input;
use crate::text::count;
use crate::{new_directory, not_looked_at, output};
use anyhow::bail;
use judge::{Finding, Severity, ShapedVm};
use scheduler::Occupancy;
use stacks::check::{CheckedDomain, Definition, movable};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use topology::Machine;

const INTO: &str = "--cured-into";

/// Cures of one VM may make room for another one's: rounds until nothing changes.
const ROUNDS: usize = 4;

/// What is cured.
pub(super) struct Job<'a> {
    /// The machine, and what runs there that is not cured.
    pub(super) machine: &'a Machine,
    pub(super) others: &'a Occupancy,
    pub(super) definitions: &'a [Definition],
    /// VMs that have no definition: QEMUs that nobody manages, by name.
    pub(super) processes: Vec<&'a str>,
    /// Whether memory is written so that the balancer may move it.
    pub(super) movable: bool,
    /// Why things that were named cannot be judged.
    pub(super) unread: Vec<String>,
}

impl Job<'_> {
    /// Writes a cured text for each definition into a new directory.
    ///
    /// # Errors
    /// Bad input, and nothing is written: something that was named cannot be read or has no
    /// definition, two texts would have one name, there is something in that directory. Else where
    /// findings are left that no change of a definition mends: the texts are written then.
    pub(super) fn cure_into(&self, directory: &Path) -> anyhow::Result<()> {
        new_directory::check(INTO, directory)?;
        if !self.unread.is_empty() {
            return Err(bad_input(format!("{}\n{INTO}: nothing was written", self.unread.join("\n"))));
        }
        if let Some(process) = self.processes.first() {
            return Err(bad_input(format!(
                "{INTO}: {process} is a QEMU that libvirt does not manage: it has no definition, and nothing was written"
            )));
        }
        let names = self.file_names()?;
        let cured = self.cured()?;
        let texts: Vec<(PathBuf, String)> = names.into_iter().zip(cured.texts).collect();
        new_directory::write(INTO, directory, &texts)?;
        self.tell(directory, &cured.changed, &cured.left)
    }

    /// `db.xml`; `101.sh` for the configuration `101.conf`.
    fn file_names(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for definition in self.definitions {
            let source = Path::new(definition.source());
            let of_vm = || PathBuf::from(definition.shaped().name.replace('/', "-"));
            let name = source.file_name().filter(|_| source.extension().is_some()).map_or_else(of_vm, PathBuf::from);
            let name = name.with_extension(if definition.domain().is_some() { "xml" } else { "sh" });
            if names.contains(&name) {
                return Err(bad_input(format!(
                    "{INTO}: two definitions would both be {}: name one of them, or give it another name",
                    name.display()
                )));
            }
            names.push(name);
        }
        Ok(names)
    }

    fn cured(&self) -> anyhow::Result<Cured> {
        let mut now: Vec<Definition> = self.definitions.to_vec();
        let mut scripts = vec![String::new(); now.len()];
        for _ in 0..ROUNDS {
            let beside = self.beside(&now);
            let mut changed = false;
            for (index, others) in beside.iter().enumerate() {
                let source = now[index].source().to_owned();
                let Some(text) = now[index].domain() else {
                    scripts[index] = self.script(&now[index], others)?;
                    continue;
                };
                let cured = CheckedDomain::new(self.machine, others, text, &source).map_err(bad_input)?.cured;
                let cured = written(self.movable, cured, &source)?;
                check_is_taken(&cured, &source)?;
                if cured != text {
                    changed = true;
                    now[index] = Definition::read(cured, source).map_err(bad_input)?;
                }
            }
            if !changed {
                break;
            }
        }
        let beside = self.beside(&now);
        let mut cured = Cured { texts: Vec::new(), changed: Vec::new(), left: Vec::new() };
        for (index, definition) in now.iter().enumerate() {
            let found = definition.check(self.machine, &beside[index]).map_err(bad_input)?;
            let text = definition.domain().map_or_else(|| scripts[index].clone(), str::to_owned);
            cured.changed.push(match definition.domain() {
                Some(text) => self.definitions[index].domain() != Some(text),
                None => found.iter().any(has_commands),
            });
            // What a script does to a configuration is seen when it has run.
            let is_left = |finding: &&Finding| {
                finding.severity > Severity::Note && (definition.domain().is_some() || !has_commands(finding))
            };
            cured.left.extend(found.iter().filter(is_left).map(|finding| (index, finding.sentence.clone())));
            cured.texts.push(text);
        }
        Ok(cured)
    }

    /// What each sees of the others.
    fn beside(&self, definitions: &[Definition]) -> Vec<Occupancy> {
        let shaped: Vec<ShapedVm> = definitions.iter().map(Definition::shaped).cloned().collect();
        judge::together(self.machine, self.others, &shaped).into_iter().map(|beside| beside.others).collect()
    }

    /// The `qm set` lines of all cures, each once.
    fn script(&self, definition: &Definition, others: &Occupancy) -> anyhow::Result<String> {
        let found = definition.check(self.machine, others).map_err(bad_input)?;
        let counts = found.iter().filter(|finding| finding.severity > Severity::Note);
        let mut said = BTreeSet::new();
        let lines: Vec<&str> = counts
            .flat_map(|finding| finding.cure.commands.iter().map(String::as_str))
            .filter(|line| said.insert(*line))
            .collect();
        let mut text = format!(
            "#!/bin/sh\n# {} for {}, cured by homenode together with {} more. Run it as root on its node.\nset -e\n",
            definition.source(),
            topology::input::harmless(&self.machine.name),
            self.definitions.len() - 1
        );
        if lines.is_empty() {
            text.push_str("# Nothing is changed.\n");
        }
        for line in lines {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        Ok(text)
    }

    fn tell(&self, directory: &Path, changed: &[bool], left: &[(usize, String)]) -> anyhow::Result<()> {
        let all = count(changed.len(), "definition");
        let cured = changed.iter().filter(|changed| **changed).count();
        output::line(format_args!(
            "{all}, solved together for {}: {cured} cured, {} as before; written into {}",
            self.machine.name,
            changed.len() - cured,
            directory.display()
        ))?;
        for (index, sentence) in left {
            output::line(format_args!("{}: {sentence}", self.definitions[*index].shaped().name))?;
        }
        if left.is_empty() {
            return Ok(());
        }
        bail!("{} left that no change of a definition mends", count(left.len(), "finding"))
    }
}

/// What became of all definitions, in their order.
struct Cured {
    texts: Vec<String>,
    changed: Vec<bool>,
    /// What no change mends: index of the definition, and what it is.
    left: Vec<(usize, String)>,
}

fn has_commands(finding: &Finding) -> bool {
    finding.severity > Severity::Note && !finding.cure.commands.is_empty()
}

/// Prints the domain with the cures of all problems and warnings.
///
/// # Errors
/// Bad input: it is no domain of libvirt. Else where findings are left that no change mends.
pub(super) fn print(
    arguments: &CheckArguments,
    definition: &Definition,
    machine: &Machine,
    others: &Occupancy,
) -> anyhow::Result<()> {
    let file = definition.source();
    let Some(text) = definition.domain() else {
        return Err(bad_input(format!(
            "--cured: {file} is no libvirt domain: `homenode check` prints its cures as commands, --cured-into DIRECTORY \
            writes them as a script"
        )));
    };
    let checked = CheckedDomain::new(machine, others, text, file).map_err(bad_input)?;
    let cured = written(arguments.movable, checked.cured, file)?;
    check_is_taken(&cured, file)?;
    output::exact(&cured)?;
    output::note(alone(arguments, file, machine));
    let after = CheckedDomain::new(machine, others, &cured, file).map_err(bad_input)?;
    let left = after.findings.iter().filter(|finding| finding.severity > Severity::Note);
    let left: Vec<&str> = left.map(|finding| finding.sentence.as_str()).collect();
    if !left.is_empty() {
        bail!("{file}: {} left that no change of the domain mends: {}", count(left.len(), "finding"), left.join("; "));
    }
    Ok(())
}

/// A cured domain as it is written: static, or movable beside the balancer.
fn written(is_movable: bool, cured: String, file: &str) -> anyhow::Result<String> {
    if is_movable { movable(&cured, file).map_err(bad_input) } else { Ok(cured) }
}

/// That libvirt takes a cured domain, as far as that is known of all its versions.
fn check_is_taken(cured: &str, file: &str) -> anyhow::Result<()> {
    let refused = CheckedDomain::refused(cured, file).map_err(bad_input)?;
    // What only older versions refuse is left to whoever knows the version.
    let Some(first) = refused.iter().find(|finding| finding.severity == Severity::Problem) else { return Ok(()) };
    bail!(
        "{file}: no change of the domain makes one that libvirt takes, so that none is printed: {}. {}. Cure: {}",
        first.sentence,
        first.seen,
        first.cure.advice
    )
}

/// Whom the cure of one domain did not look at.
fn alone(arguments: &CheckArguments, file: &str, machine: &Machine) -> String {
    let is_one = |path: &Path| path.extension().is_some_and(|ending| ending == "xml" || ending == "conf");
    let others = not_looked_at::beside(Path::new(file), is_one);
    let empty = match arguments.machine.on.is_some() || arguments.connect.connect.is_some() {
        true => format!("{} is taken to be empty", machine.name),
        false => "VMs that do not run here were not looked at".to_owned(),
    };
    let beside = not_looked_at::sentence(&others, "definition");
    let whom = [Some(empty), beside].into_iter().flatten().collect::<Vec<_>>().join(", and ");
    format!("{file} is cured alone: {whom}. {INTO} DIRECTORY cures all that are named together")
}
