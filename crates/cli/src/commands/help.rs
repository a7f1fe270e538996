//! `homenode help`.

use crate::args::Arguments;
use crate::failure::bad_input;
use crate::{output, text, words};
use clap::CommandFactory;

/// The glossary's name among the commands.
const WORDS: &str = "words";

/// Runs the command.
pub(crate) fn run(topic: &[String]) -> anyhow::Result<()> {
    if topic.len() == 1 && topic[0] == WORDS {
        return output::print(words::text(text::width()));
    }
    let mut command = Arguments::command();
    command.build();
    let mut found = &mut command;
    for (depth, name) in topic.iter().enumerate() {
        let valid = valid(found, depth == 0);
        let unknown = || bad_input(format!("help: there is no command {name:?}; there are: {valid}"));
        found = found.find_subcommand_mut(name).ok_or_else(unknown)?;
    }
    output::print(found.render_long_help())
}

fn valid(command: &clap::Command, at_top: bool) -> String {
    let names = command.get_subcommands().filter(|one| !one.is_hide_set()).map(|one| one.get_name());
    names.chain(at_top.then_some(WORDS)).collect::<Vec<_>>().join(", ")
}
