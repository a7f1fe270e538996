//! `homenode top --connect`.

use crate::args::TopArguments;
use crate::{output, remote_host, remote_view};
use libvirt::remote::{Look, Remote};
use std::time::Duration;

/// Runs the command for the libvirt at `uri`.
pub(crate) fn run(uri: &str, arguments: &TopArguments) -> anyhow::Result<()> {
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut remote = remote_host::open(uri)?;
    let before = look(&mut remote)?;
    std::thread::sleep(interval);
    let now = look(&mut remote)?;
    print(&remote_view::view(uri, remote.machine(), &now, &now.since(&before)), arguments.json)
}

fn look(remote: &mut Remote) -> anyhow::Result<Look> {
    remote.look().map_err(remote_host::failure)
}

fn print(view: &remote_view::View, json: bool) -> anyhow::Result<()> {
    if json { output::json("top", view) } else { output::print(remote_view::text(view)) }
}
