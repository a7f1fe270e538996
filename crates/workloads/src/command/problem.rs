//! One problem in several sizes: which one suits a host, and what it puts into the command.

use super::section::{Section, Value};
use crate::choice::Choice;
use crate::workload::Site;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use topology::Bytes;

/// A size of the problem that a command solves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Problem {
    /// What `size` calls it.
    pub name: String,
    /// Hardware threads of a host that it is large enough for.
    pub from_threads: u32,
    /// Memory that it needs, instead of the command's.
    pub memory: Choice<Bytes>,
    /// Texts that stand where `{NAME}` stands in arguments and in the environment.
    pub variables: BTreeMap<String, String>,
    /// Figures that are known for this size, besides those of `verify`.
    pub values: Vec<Value>,
}

impl Default for Problem {
    fn default() -> Self {
        Self {
            name: String::new(),
            from_threads: 1,
            memory: Choice::Auto,
            variables: BTreeMap::new(),
            values: Vec::new(),
        }
    }
}

impl Problem {
    fn fill(&self, text: &mut String) {
        for (name, value) in &self.variables {
            *text = text.replace(&format!("{{{name}}}"), value);
        }
    }

    /// Whether the host is large enough for it. What it needs may be half of the memory, since VMs
    /// of several configurations stay up together.
    fn suits(&self, site: &Site) -> bool {
        let memory = self.memory.fixed().map_or(0, |memory| memory.0);
        site.machine.usable_threads().count() >= self.from_threads as usize && memory <= site.available.0 / 2
    }
}

impl Section {
    /// Puts the problem that was asked for, or the last that suits the host, into the command:
    /// under software emulation the first. Only that one is left, so that nothing changes where
    /// this is done twice.
    pub(super) fn choose_problem(&mut self, site: &Site) {
        let asked = self.problems.iter().find(|problem| Some(&problem.name) == self.size.as_ref());
        let suits = self.problems.iter().rfind(|problem| !site.emulated && problem.suits(site));
        let Some(problem) = asked.or(suits).or(self.problems.first()).cloned() else { return };
        let of_phases = self.phases.iter_mut().flat_map(|phase| texts(&mut phase.argv, &mut phase.shell));
        texts(&mut self.argv, &mut self.shell)
            .chain(of_phases)
            .chain(self.environment.values_mut())
            .for_each(|text| problem.fill(text));
        if problem.memory.fixed().is_some() {
            self.memory = problem.memory;
        }
        let known = |value: &&Value| !self.verify.values.contains(value);
        let values: Vec<Value> = problem.values.iter().filter(known).cloned().collect();
        self.verify.values.extend(values);
        self.size = Some(problem.name.clone());
        self.problems = vec![problem];
    }
}

fn texts<'a>(argv: &'a mut Option<Vec<String>>, shell: &'a mut Option<String>) -> impl Iterator<Item = &'a mut String> {
    argv.iter_mut().flatten().chain(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MELT: &str = r#"
argv = ["lmp", "-var", "cells", "{cells}", "{ranks}"]
environment = { CELLS = "{cells}" }
memory = "1 GiB"
[[figure]]
name = "energy"
unit = "1"
regex = 'energy (.*)'
[[problem]]
name = "small"
memory = "512 MiB"
variables = { cells = "10" }
values = [{ figure = "energy", expected = -4.62, tolerance = 0.01 }]
[[problem]]
name = "middle"
from_threads = 8
variables = { cells = "20" }
[[problem]]
name = "large"
from_threads = 8
memory = "8 GiB"
variables = { cells = "60" }
"#;

    fn chosen(size: Option<&str>, threads: usize, available: Bytes, emulated: bool) -> Section {
        let environment = BTreeMap::new();
        let machine = topology::read::from_synthetic(&format!("core:{threads} pu:1")).expect("a machine");
        let site = Site { machine: &machine, available, emulated, environment: &environment };
        let mut section: Section = toml::from_str(MELT).expect("a section");
        section.size = size.map(str::to_owned);
        section.choose_problem(&site);
        let once = section.clone();
        section.choose_problem(&site);
        assert_eq!(section, once, "twice is not once");
        section
    }

    #[test]
    fn the_largest_problem_that_suits_the_host_is_chosen() {
        let gib = |number: u64| Bytes(number << 30);
        for (size, threads, available, emulated, expected) in [
            (None, 2, gib(64), false, "small"),
            (None, 8, gib(64), false, "large"),
            // 8 GiB are more than half of 15 GiB.
            (None, 8, gib(15), false, "middle"),
            (None, 8, gib(64), true, "small"),
            (Some("large"), 2, gib(1), true, "large"),
        ] {
            let section = chosen(size, threads, available, emulated);
            assert_eq!(section.size.as_deref(), Some(expected), "{threads} threads, {available}");
        }
    }

    #[test]
    fn a_problem_stands_in_the_command_with_its_memory_and_what_is_known_of_it() {
        let small = chosen(Some("small"), 8, Bytes::GIB, false);
        assert_eq!(small.argv.as_deref().map(|argv| argv.join(" ")).as_deref(), Some("lmp -var cells 10 {ranks}"));
        assert_eq!((small.environment["CELLS"].as_str(), small.verify.values.len()), ("10", 1));
        assert_eq!(small.memory, Choice::Fixed(Bytes(512 << 20)));
        let middle = chosen(Some("middle"), 8, Bytes::GIB, false);
        assert_eq!((middle.memory, middle.verify.values.len()), (Choice::Fixed(Bytes::GIB), 0));
    }
}
