//! Completions and the manual page, from the command line's own definition.

use crate::args::Arguments;
use crate::output;
use clap::CommandFactory;

/// Prints a completion script.
pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "homenode", &mut script);
    output::exact(String::from_utf8_lossy(&script))
}

/// Prints `homenode(1)` with all its commands.
pub(crate) fn man() -> anyhow::Result<()> {
    let mut page = Vec::new();
    let mut command = Arguments::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    command.build();
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let title = format!("homenode {}", subcommand.get_name());
        clap_mangen::Man::new(subcommand.clone()).title(title).render(&mut page)?;
    }
    output::exact(String::from_utf8_lossy(&page))
}
