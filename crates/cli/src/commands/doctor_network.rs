//! `homenode doctor --network`: which kinds of network this host has for this user.

use crate::output;
use crate::text::{lines, table};
use anyhow::Context;

/// Runs the command.
pub(super) fn run(json: bool) -> anyhow::Result<()> {
    let homenode = std::env::current_exe().context("find this program")?;
    let kinds = network::survey(&homenode).context("look at what this process may")?;
    if json {
        return output::json("doctor.network", &serde_json::json!({ "kinds": kinds }));
    }
    let mut table = table(["Network", "Here", "Needs", "Costs"], &[]);
    for kind in &kinds {
        let here = if kind.lacks.is_none() { "yes" } else { "no" };
        table.add_row([kind.name, here, kind.needs, kind.costs].map(str::to_owned));
    }
    output::line(lines(&table))?;
    for (kind, lacks) in kinds.iter().filter_map(|kind| Some((kind.name, kind.lacks.as_ref()?))) {
        output::line(format_args!("\n{kind} lacks: {lacks}"))?;
    }
    Ok(())
}
