//! `homenode switch`: virtual switches for VMs.

use crate::args_switch::{CreateArguments, SwitchArguments, SwitchCommand};
use crate::failure::bad_input;
use crate::output;
use crate::switches::{self, failure, place};
use crate::text::{lines, table};
use anyhow::Context;
use network::{Fabric, LinkSeen, NetworkError, Outside, Switch, SwitchSeen, Traffic, Uplink};
use qemu::RuntimeDir;
use std::os::fd::AsFd;
use std::path::Path;

/// Runs the command.
pub(crate) fn run(arguments: &SwitchArguments) -> anyhow::Result<()> {
    match &arguments.command {
        SwitchCommand::Create(arguments) => create(arguments),
        SwitchCommand::List { json } => list(*json),
        SwitchCommand::Show { switch, json } => show(switch.as_ref(), *json),
        SwitchCommand::Delete { switch } => {
            Fabric::remove_kept(&place(&RuntimeDir::open()?), switch.as_ref()).map_err(failure)?;
            output::line(format_args!("Switch {switch} is gone."))
        }
        SwitchCommand::Keep { path } => keep(path.as_deref()),
    }
}

fn create(arguments: &CreateArguments) -> anyhow::Result<()> {
    let (rate, delay) = (arguments.rate, arguments.delay);
    let uplink = |to: &network::SwitchName| Uplink { to: to.clone(), rate, delay };
    let bridges = arguments.bridge.iter().cloned().map(Outside::Bridge);
    let switch = Switch {
        name: arguments.name.clone(),
        kind: arguments.kind,
        uplinks: arguments.uplink.iter().map(uplink).collect(),
        outside: bridges.chain(arguments.card.iter().cloned().map(Outside::Card)).collect(),
    };
    let homenode = std::env::current_exe().context("find this program")?;
    Fabric::add_kept(&place(&RuntimeDir::open()?), &homenode, &switch).map_err(failure)?;
    let name = &switch.name;
    output::line(format_args!(
        "Switch {name} is there. A VM is plugged in by its spec:\n\n  [[network]]\n  kind = \"switch\"\n  switch = \
        \"{name}\""
    ))
}

fn keep(path: Option<&Path>) -> anyhow::Result<()> {
    let control = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    network::keep(control, path).map_err(failure)
}

fn seen() -> anyhow::Result<Vec<SwitchSeen>> {
    let directory = RuntimeDir::open()?;
    switches::sweep(&directory);
    let fabric = Fabric::kept(&place(&directory)).map_err(failure)?;
    fabric.map_or(Ok(Vec::new()), |mut fabric| fabric.seen()).map_err(failure)
}

fn list(json: bool) -> anyhow::Result<()> {
    let switches = seen()?;
    if json {
        return output::json("switch.list", &serde_json::json!({ "switches": switches }));
    }
    if switches.is_empty() {
        return output::line("There is no switch. `homenode switch create NAME` makes one.");
    }
    let mut table = table(["Name", "Kind", "VMs", "Links", "From VMs, MiB", "Dropped"], &[2, 4, 5]);
    for switch in &switches {
        let sum = |of: fn(&Traffic) -> u64| switch.ports.iter().map(|port| of(&port.from_vm)).sum::<u64>();
        let dropped = sum(|it| it.dropped)
            + switch.ports.iter().map(|port| port.to_vm.dropped).sum::<u64>()
            + switch.links.iter().map(|link| link.sent.dropped).sum::<u64>();
        let links: Vec<String> = switch.links.iter().map(link).collect();
        let links = if links.is_empty() { "-".to_owned() } else { links.join(", ") };
        let (vms, from_vms) = (switch.ports.len().to_string(), mib(sum(|it| it.bytes)));
        table.add_row([switch.name.clone(), switch.kind.to_string(), vms, links, from_vms, dropped.to_string()]);
    }
    output::line(lines(&table))
}

fn link(link: &LinkSeen) -> String {
    let rate = link.rate.map(|rate| format!(" {rate}")).unwrap_or_default();
    let delay = link.delay.map(|delay| format!(" +{delay}")).unwrap_or_default();
    format!("{}{rate}{delay}", link.to)
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn show(name: &str, json: bool) -> anyhow::Result<()> {
    let switches = seen()?;
    let Some(switch) = switches.iter().find(|switch| switch.name == name) else {
        let there: Vec<&str> = switches.iter().map(|switch| switch.name.as_str()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        return Err(bad_input(NetworkError::NoSuchSwitch { name: name.to_owned(), there }.to_string()));
    };
    if json {
        return output::json("switch.show", &serde_json::json!({ "switch": switch }));
    }
    let headings = ["Port", "Direction", "Frames", "MiB", "Dropped", "Waits"];
    let mut table = table(headings, &[2, 3, 4, 5]);
    let mut row = |port: &str, direction: &str, traffic: Traffic, waits: String| {
        let (frames, dropped) = (traffic.frames.to_string(), traffic.dropped.to_string());
        table.add_row([port.to_owned(), direction.to_owned(), frames, mib(traffic.bytes), dropped, waits]);
    };
    for port in &switch.ports {
        row(&format!("VM {}", port.port), "from the VM", port.from_vm, "-".to_owned());
        row("", "to the VM", port.to_vm, "-".to_owned());
    }
    for one in &switch.links {
        row(&format!("link to {}", link(one)), "sent", one.sent, one.waits.to_string());
    }
    if switch.ports.is_empty() && switch.links.is_empty() {
        return output::line(format_args!("Nothing is plugged into switch {name}."));
    }
    output::line(lines(&table))?;
    output::line("\nA port is VM/CARD. Frames wait, and are dropped, where more comes than a link's rate lets through.")
}
