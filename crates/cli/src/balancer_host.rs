//! This host for the commands that look at and move VMs.

use anyhow::Context;
use linux::{HostOptions, LinuxHost};
use scheduler::VmKey;
use std::time::Duration;
use topology::Bytes;

/// Between two looks of a balancer that has not seen all VMs yet.
const FIRST_LOOKS_APART: Duration = Duration::from_millis(50);

/// This host; `move_limit`: bytes a second that moves of memory keep to.
pub(crate) fn open(move_limit: Option<Bytes>, confine: bool) -> anyhow::Result<LinuxHost> {
    open_with(move_limit, confine, None)
}

/// This host, for a balancer: no look takes long, and when it begins every VM was seen, so that what it remembers of one is not forgotten.
pub(crate) fn open_for_long(move_limit: Bytes) -> anyhow::Result<LinuxHost> {
    let mut host = open_with(Some(move_limit), false, Some(linux::NEWCOMERS_WITHIN))?;
    host.examine_all(FIRST_LOOKS_APART).map_err(|why| anyhow::anyhow!("this host cannot be read: {why}"))?;
    Ok(host)
}

fn open_with(
    move_limit: Option<Bytes>,
    confine: bool,
    newcomers_within: Option<Duration>,
) -> anyhow::Result<LinuxHost> {
    // A monitor that somebody has, or that a manager started, is not asked.
    let ask = |vm: &VmKey| qemu::monitor::vcpu_threads(vm.pid);
    let options = HostOptions {
        move_limit,
        confine,
        newcomers_within,
        vcpu_source: Some(Box::new(ask)),
        affinity_manager: Some(libvirt::affinity_manager()),
        ..HostOptions::default()
    };
    LinuxHost::new(options).context("this host cannot be read")
}
