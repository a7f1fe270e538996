//! `homenode vm list`.

use crate::commands::libvirt_vms;
use crate::output;
use crate::residence_view;
use crate::text::{lines, table};
use qemu::{BackgroundVm, RuntimeDir, background};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    state: &'a BackgroundVm,
    uptime_seconds: Option<f64>,
}

/// Runs the command.
pub(super) fn run(directory: &RuntimeDir, json: bool) -> anyhow::Result<()> {
    // Taking the lock removes what killed starters reserved.
    drop(directory.lock_placement(Duration::ZERO)?);
    let listing = background::list(directory)?;
    for cleaned in &listing.cleaned {
        output::note(cleaned);
    }
    libvirt_vms::say()?;
    if json {
        let listed = |state| Listed { state, uptime_seconds: state.uptime_seconds() };
        return output::json(
            "vm.list",
            &serde_json::json!({ "vms": listing.vms.iter().map(listed).collect::<Vec<_>>() }),
        );
    }
    if listing.vms.is_empty() {
        output::line("No VM runs in the background.")?;
        return Ok(());
    }
    let header = ["Name", "Process", "vCPUs", "Memory", "Virtual nodes", "Home nodes", "Accelerator", "Up"];
    let mut table = table(header, &[1, 2, 3, 4]);
    for vm in &listing.vms {
        table.add_row([
            vm.name.clone(),
            vm.qemu.map_or_else(|| "starting".to_owned(), |qemu| qemu.pid.to_string()),
            vm.vcpus.to_string(),
            vm.memory.to_string(),
            vm.virtual_nodes.to_string(),
            vm.home.to_string(),
            residence_view::short(&vm.accelerator).to_owned(),
            vm.uptime_seconds().map_or_else(|| "-".to_owned(), uptime),
        ]);
    }
    output::line(lines(&table))?;
    Ok(())
}

/// `45 s`, `12 min`, `3 h 5 min`, `2 d 4 h`.
fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(uptime(59.9), "59 s");
        assert_eq!(uptime(60.0), "1 min");
        assert_eq!(uptime(3.0 * 3600.0 + 300.0), "3 h 5 min");
        assert_eq!(uptime(2.0 * 86_400.0 + 4.0 * 3600.0), "2 d 4 h");
    }
}
