//! This host for the commands that look at and move VMs.

use crate::this_host;
use anyhow::Context;
use linux::host::AskMonitor;
use linux::{HostOptions, LinuxHost, TrafficOptions};
use qemu::monitor::FreeMonitors;
use scheduler::{Observation, Observe};
use std::time::Duration;
use topology::Bytes;

/// Between two looks of a balancer that has not seen all VMs yet.
const FIRST_LOOKS_APART: Duration = Duration::from_millis(50);

/// This host; `move_limit`: bytes a second that moves of memory keep to.
pub(crate) fn open(move_limit: Option<Bytes>, confine: bool) -> anyhow::Result<LinuxHost> {
    open_with(HostOptions { move_limit, confine, run_states: true, ..HostOptions::default() })
}

/// The VMs that run on this host now, with everything that can be known of them, by their monitors
/// too.
pub(crate) fn examine() -> anyhow::Result<Observation> {
    open_with(HostOptions::default())?.examine().context("the running VMs cannot be read")
}

/// This host, for a balancer: no look takes long, and when it begins every VM was seen, so that
/// what it remembers of one is not forgotten.
pub(crate) fn open_for_long(move_limit: Bytes, traffic: TrafficOptions) -> anyhow::Result<LinuxHost> {
    let newcomers_within = Some(linux::NEWCOMERS_WITHIN);
    let options = HostOptions { move_limit: Some(move_limit), newcomers_within, traffic, ..HostOptions::default() };
    let mut host = open_with(options)?;
    host.examine_all(FIRST_LOOKS_APART).map_err(|why| anyhow::anyhow!("this host cannot be read: {why}"))?;
    Ok(host)
}

fn open_with(options: HostOptions) -> anyhow::Result<LinuxHost> {
    let monitor: Option<Box<dyn AskMonitor>> = Some(Box::<FreeMonitors>::default());
    let affinity_manager = Some(libvirt::affinity_manager());
    let options = HostOptions { monitor, affinity_manager, ..options };
    let mut host = LinuxHost::new(options).context("this host cannot be read")?;
    let measured = this_host::measured(host.machine())?;
    host.know(measured);
    Ok(host)
}
