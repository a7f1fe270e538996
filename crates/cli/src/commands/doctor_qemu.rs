//! `homenode doctor --qemu`: what the QEMU of this host can do of what differs between versions.

use crate::output;
use crate::text::{lines, table};

/// Runs the command.
pub(super) fn run(json: bool) -> anyhow::Result<()> {
    let features = qemu::features()?;
    if json {
        return output::json("doctor.qemu", &features);
    }
    output::line(format_args!("{}: QEMU {}", features.program.display(), features.qemu_version))?;
    let machines = match (&features.machine, features.machines.last()) {
        (Some(machine), Some(oldest)) => {
            format!(
                "a VM that starts gets the machine type {machine}; {oldest} is the oldest that can be \
                resumed or received"
            )
        }
        _ => "it has no machine type q35: homenode cannot start a VM with it".to_owned(),
    };
    output::line(machines)?;
    let mut table = table(["For", "QEMU's word", "Here", "What homenode does with it"], &[]);
    for feature in &features.features {
        let has = if feature.has { "yes" } else { "no" };
        table.add_row([
            feature.purpose.to_string(),
            feature.name.to_owned(),
            has.to_owned(),
            feature.meaning.to_owned(),
        ]);
    }
    output::line(format_args!("\n{}", lines(&table)))
}
